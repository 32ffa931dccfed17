#!/usr/bin/env bash
# Builds varve_cuda for one GPU and runs what needs it. Each part is limited in time; a part that fails does not
# stop the next.
#   tools/run_cuda.sh FOLDER [PART...]      results go to FOLDER
#   parts: build test sanitize quick wide full sdpa-quick sdpa-wide sdpa-full prompt sdpa-prompt step sdpa-step masses tiling profile   (default: build test quick)
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

out="${1:?usage: tools/run_cuda.sh FOLDER [PART...]}"
shift
mkdir -p "$out"
build="${VARVE_CUDA_BUILD:-build-cuda-only}"
rungs="${VARVE_CUDA_RUNGS:-f16,bf16,q8_0,q4_0,q4_0r,t4,t3,t2,pq4,pq2}"
failed=()

part_build() {
  cmake -S src/cuda -B "$build" -DCMAKE_BUILD_TYPE=Release -DVARVE_CUDA_ARCHITECTURES=90a-real \
    -DCMAKE_CUDA_FLAGS="-lineinfo -Xptxas -v" >"$out/configure.log" 2>&1 &&
    timeout 240 cmake --build "$build" --parallel "$(nproc)" >"$out/build.log" 2>&1 || { tail -n 40 "$out/build.log"; return 1; }
}
part_test() { timeout 120 "$build/cuda_tests" 2>&1 | tee "$out/tests.log" | tail -n 40; }
# The tests whose names contain one of these: kernels for all rungs, for pairs of pq, several blocks a head, kernels for each
# rung alone with many pages and with few.
part_sanitize() {
  local tool tests ok=0
  read -ra tests <<<"${VARVE_CUDA_SANITIZE:-Mixes LooksPairs JoinsSplits AddsMany GivesPages}"
  for tool in memcheck initcheck synccheck racecheck; do # the last one reports what decision 10 says of it
    # Left to itself synccheck keeps track of too few barriers.
    timeout 100 compute-sanitizer --tool "$tool" --num-cuda-barriers 65536 --error-exitcode 9 "$build/cuda_tests" "${tests[@]}" \
      >"$out/sanitize-$tool.log" 2>&1 || { echo "$tool failed"; tail -n 15 "$out/sanitize-$tool.log"; ok=1; }
    echo "$tool: $(tail -n 1 "$out/sanitize-$tool.log")"
  done
  return "$ok"
}
bench() { timeout "$2" "$build/cuda_bench" --set "$1" --rungs "$rungs" --seconds "$2" --out "$out/cuda-$1.json" 2>&1 | tee "$out/cuda-$1.log"; }
sdpa() { timeout "$2" python3 tools/bench_sdpa.py --set "$1" --seconds "$2" --out "$out/sdpa-$1.json" 2>&1 | tee "$out/sdpa-$1.log"; }
part_quick() { bench quick 60; }
part_wide() { bench wide 90; }
part_full() { bench full 240; }
part_masses() { timeout 60 "$build/cuda_bench" --set quick --rungs "$rungs" --page-lse 1 --out "$out/cuda-masses.json"; }
part_tiling() {
  local tiling ok=0
  for tiling in pages tiles; do
    echo "tiling by $tiling"
    timeout 60 "$build/cuda_bench" --set quick --rungs f16,q8_0 --tiling "$tiling" --out "$out/cuda-tiling-$tiling.json" || ok=1
  done
  return "$ok"
}
part_profile() {
  local rung ok=0
  for rung in ${VARVE_CUDA_PROFILE:-f16 q4_0 t4 t3}; do
    timeout 60 ncu --clock-control none --section SpeedOfLight --section Occupancy --section WarpStateStats \
      --section ComputeWorkloadAnalysis --section MemoryWorkloadAnalysis --section InstructionStats --section SchedulerStats \
      --section LaunchStats -k regex:AttendPages -c 1 "$build/cuda_bench" --set quick --rungs "$rung" --out /dev/null \
      >"$out/profile-$rung.txt" 2>&1 || { tail -n 5 "$out/profile-$rung.txt"; ok=1; }
    timeout 60 ncu --clock-control none --section SourceCounters --page source --csv -k regex:AttendPages -c 1 \
      "$build/cuda_bench" --set quick --rungs "$rung" --out /dev/null >"$out/source-$rung.csv" 2>&1 || { tail -n 5 "$out/source-$rung.csv"; ok=1; }
  done
  return "$ok"
}
part_prompt() { timeout 60 "$build/prompt_bench" --rungs "$rungs" --out "$out/cuda-prompt.json" 2>&1 | tee "$out/cuda-prompt.log"; }
part_step() { timeout 200 "$build/step_bench" --batches "${VARVE_CUDA_BATCHES:-1,8}" --rungs "$rungs" --out "$out/cuda-step.json" 2>&1 | tee "$out/cuda-step.log"; }
part_sdpa-step() { sdpa step 60; }
part_sdpa-prompt() { sdpa prompt 60; }
part_sdpa-quick() { sdpa quick 60; }
part_sdpa-wide() { sdpa wide 90; }
part_sdpa-full() { sdpa full 200; }

(($# > 0)) || set -- build test quick
for part in "$@"; do
  declare -F "part_$part" >/dev/null || { echo "unknown part $part"; exit 2; }
  echo "== $part"
  start=$SECONDS
  "part_$part" || failed+=("$part")
  echo "== $part: $((SECONDS - start)) s"
done
((${#failed[@]} == 0)) || { echo "failed: ${failed[*]}"; exit 1; }
