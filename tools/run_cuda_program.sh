#!/usr/bin/env bash
# Runs the program on a GPU beside the CPU: the same texts, the same losses, and decode speed. Ends in about three minutes.
#   VARVE=build/varve tools/run_cuda_program.sh FOLDER [PART...]      results go to FOLDER
#   parts: device check text kl small large      (default: all)
# MODEL: a GGUF file (default: the one that the program embeds; build/varve-light has none). CHECK: build/.../gpu_model_check, which
# has no embedded model either: its comparison of greedy text is skipped, part `text` makes it with the program.
# Libraries are looked for in lib/ beside the program, too, where tools/pack_program.sh puts them.
set -uo pipefail
out="${1:?usage: VARVE=PROGRAM tools/run_cuda_program.sh FOLDER [PART...]}"
shift
varve="${VARVE:?VARVE must name the program}"
mkdir -p "$out"
export LD_LIBRARY_PATH="$(dirname "$varve")/lib:${LD_LIBRARY_PATH:-}:/usr/local/cuda/lib64"
model=()
[[ -n "${MODEL:-}" ]] && model=(-m "$MODEL")
plans=(f16 q8_0 t4)
failed=()

part_device() { timeout 20 "$varve" inspect device 2>&1 | tee "$out/device.txt"; }
part_check() {
  [[ -n "${CHECK:-}" ]] || { echo "CHECK is not set: skipped"; return 0; }
  timeout 60 "$CHECK" 2>&1 | tee "$out/check.txt" | tail -n 15
}
text() { # PLAN DEVICE
  timeout 40 "$varve" run "${model[@]}" --kv "$1" --device "$2" --no-probe --raw --temp 0 -n 64 --json "$out/text-$1-$2.json" \
    -p "The old man looked at the sea for a long time, and then he said" >"$out/text-$1-$2.txt" 2>"$out/text-$1-$2.log" ||
    { tail -n 3 "$out/text-$1-$2.log"; return 1; }
}
# Greedy texts are equal unless two tokens are as likely as each other to the last bits.
part_text() {
  local plan ok=0
  for plan in "${plans[@]}"; do
    text "$plan" cpu && text "$plan" cuda || { ok=1; continue; }
    if cmp -s "$out/text-$plan-cpu.txt" "$out/text-$plan-cuda.txt"; then
      echo "$plan: the same text"
    else
      echo "$plan: the texts differ: $(cmp "$out/text-$plan-cpu.txt" "$out/text-$plan-cuda.txt" 2>&1)"
      ok=1
    fi
  done
  return "$ok"
}
# Each KL is against the f16 cache of the same device: both ask how much a plan loses, and must agree to a tenth or 1e-4.
part_kl() {
  local device
  for device in cpu cuda; do
    timeout 60 "$varve" eval kl "${model[@]}" --kv q8_0 t4 q4_0r --ctx 1024 --windows 2 --device "$device" --json "$out/kl-$device.json" 2>&1 |
      tee "$out/kl-$device.txt" | grep -v '^$' || return 1
  done
  python3 - "$out/kl-cpu.json" "$out/kl-cuda.json" <<'PYTHON'
import json, sys
cpu, cuda = ({row["plan"]: row["kl_mean"] for row in json.load(open(path))["rows"]} for path in sys.argv[1:])
apart = [f"{plan}: KL {cpu[plan]:.5f} on the CPU, {cuda.get(plan, float('nan')):.5f} on the GPU" for plan in cpu
         if not abs(cpu[plan] - cuda.get(plan, float("nan"))) <= max(1e-4, 0.1 * cpu[plan])]
print("\n".join(apart) or f"{len(cpu)} plans lose the same on both")
sys.exit(1 if apart or not cpu else 0)
PYTHON
}
decode() { # NAME, options
  local name="$1"
  shift
  timeout 90 "$varve" bench decode --device cuda --kv q8_0 t4 --reps 3 --json "$out/decode-$name.json" "$@" 2>&1 | tee "$out/decode-$name.txt"
}
part_small() {
  local ok=0
  decode embedded "${model[@]}" --depths 0,2048 --steps 32 || ok=1
  decode small-1 --random-model qwen3-0.6b --weights f16 --depths 0,4096,16384 --steps 32 || ok=1
  decode small-8 --random-model qwen3-0.6b --weights f16 --depths 4096 --batch 8 --steps 32 || ok=1
  return "$ok"
}
part_large() {
  local ok=0
  decode large-1 --random-model llama-3.1-8b --weights f16 --depths 1024,16384 --steps 32 || ok=1
  decode large-8 --random-model llama-3.1-8b --weights f16 --depths 4096 --batch 8 --steps 32 || ok=1
  return "$ok"
}

(($# > 0)) || set -- device check text kl small large
for part in "$@"; do
  declare -F "part_$part" >/dev/null || { echo "unknown part $part"; exit 2; }
  echo "== $part"
  start=$SECONDS
  "part_$part" || failed+=("$part")
  echo "== $part: $((SECONDS - start)) s"
done
((${#failed[@]} == 0)) || { echo "failed: ${failed[*]}"; exit 1; }
