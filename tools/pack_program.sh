#!/usr/bin/env bash
# Puts programs of this tree and the shared libraries that they need into one archive, for a machine that has none of
# them: libc, libstdc++ and what CUDA brings stay out.
#   cmake --build build --target varve_light gpu_model_check
#   tools/pack_program.sh ARCHIVE.tar.xz build/varve-light [PROGRAM...]
# LEAVE_OUT: an expression of more libraries that the other machine has; Ubuntu: 'libcrypto|libssl' (2 MB).
# There: tar xf ARCHIVE.tar.xz gives program/; tools/run_cuda_program.sh finds the libraries beside its program.
set -euo pipefail
archive="${1:?usage: tools/pack_program.sh ARCHIVE.tar.xz PROGRAM...}"
shift
(($# > 0)) || { echo "usage: tools/pack_program.sh ARCHIVE.tar.xz PROGRAM..." >&2; exit 2; }
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/program/lib"
for program in "$@"; do
  strip -o "$work/program/$(basename "$program")" "$program"
  ldd "$program" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }'
done | sort -u | grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv|libstdc\+\+|libgcc_s|libcuda)\.so|/libcu[a-z]+(Lt)?\.so' |
  grep -vE "/(${LEAVE_OUT:-nothing})\.so" |
  xargs -r -I{} cp -L {} "$work/program/lib/"
tar -C "$work" -c program | xz -9 >"$archive"
echo "$archive: $(stat -c %s "$archive") bytes, $(find "$work/program" -type f | wc -l) files"
