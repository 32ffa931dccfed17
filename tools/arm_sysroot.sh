#!/usr/bin/env bash
# arm_sysroot.sh DIR: Debian's arm64 packages that the kernels and their tests link, unpacked under DIR.
#
# Nothing is installed and the system stays as it is: apt works in a folder of its own, with the system's sources and
# keys, and packages are unpacked. What is there already is kept. `./dev check arm` calls this.
set -euo pipefail

readonly PACKAGES=(libhwy-dev libhwy1 libfmt-dev libfmt9 libzstd-dev libzstd1 libxxhash-dev nlohmann-json3-dev libgtest-dev)

dir="${1:?usage: arm_sysroot.sh DIR}"
[[ -e "$dir/.complete" ]] && exit 0
rm -rf "$dir"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/packages" "$dir"
cat >"$work/apt.conf" <<CONF
Dir::State::Lists "$work/lists";
Dir::Cache "$work/cache";
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Sandbox::User "$(id -un)";
Acquire::Languages "none";
CONF
export APT_CONFIG="$work/apt.conf"
apt-get update -qq || echo "arm_sysroot: some package lists could not be fetched; trying with the others" >&2
(cd "$work/packages" && apt-get download -qq "${PACKAGES[@]}")
for package in "$work"/packages/*.deb; do dpkg-deb -x "$package" "$dir"; done
touch "$dir/.complete"
