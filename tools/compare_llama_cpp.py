#!/usr/bin/env python3
"""Varve beside llama.cpp on the same GGUF file: speed and loss of quantized KV caches, side by side.

    tools/compare_llama_cpp.py --bench llama.cpp/build/bin/llama-bench \\
        --perplexity llama.cpp/build/bin/llama-perplexity -m smollm2 --kv q8_0 q4_0 q4_0r --depths 0,4096

Runs the user's own llama-bench and llama-perplexity and our program (build/varve) with the same file, threads, depths
and text. Without --bench the speed is left out, without --perplexity the loss.

Speed: rounds of llama-bench and `varve bench decode` take turns, so that a machine that slows down slows both; figures
are medians of the rounds. Prompts are read by `llama-bench -p` and by `varve run`. A plan stands beside the cache type
of llama.cpp that stores the same (q8_0; k=q8_0,v=q4_0 is -ctk q8_0 -ctv q4_0); a plan that llama.cpp has nothing for
stands beside its f16. llama.cpp runs with flash attention and no layers on a GPU.

Loss: KL divergence from the own f16 cache, on the second half of windows that begin where the text begins.
llama.cpp stores its f16 predictions first (--kl-divergence-base) and compares then; Varve does the same with
`eval kl --prompt-half`. Each is compared with itself: the two f16 rows show how far the programs agree. In Varve the
page that is being filled is exact; llama.cpp quantizes every row at once.
"""

import argparse
import json
import os
import re
import sys
import tempfile
from pathlib import Path

from side_by_side import CompareError, last_lines, median_of, render, run, say

ROOT = Path(__file__).resolve().parent.parent
NUMBER = r"([-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|nan|inf))"
CACHE_TYPES = {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"}


# --- what the programs print ---


def parse_bench(output: str) -> list[dict]:
    """The rows of `llama-bench -o json` (or jsonl), wherever they stand among other lines."""
    decoder = json.JSONDecoder()
    rows = []
    position = 0
    while match := re.compile(r"[\[{]").search(output, position):
        try:
            value, position = decoder.raw_decode(output, match.start())
        except json.JSONDecodeError:
            position = match.end()
            continue
        for row in value if isinstance(value, list) else [value]:
            if isinstance(row, dict) and "avg_ts" in row:
                rows.append(row)
    if not rows:
        raise CompareError("llama-bench printed no results; its last lines:\n" + last_lines(output))
    return rows


def parse_divergence(output: str) -> dict:
    """Figures of `llama-perplexity --kl-divergence`."""
    fields = {
        "kl_mean": rf"Mean\s+KLD:\s*{NUMBER}",
        "kl_p99": rf"99\.0%\s+KLD:\s*{NUMBER}",
        "top1": rf"Same top p:\s*{NUMBER}",
        "ppl": rf"Mean PPL\(Q\)\s*:\s*{NUMBER}",
        "ppl_f16": rf"Mean PPL\(base\)\s*:\s*{NUMBER}",
    }
    figures = {}
    for name, pattern in fields.items():
        found = re.search(pattern, output, re.IGNORECASE)
        if not found:
            raise CompareError(f"llama-perplexity printed no {name}; its last lines:\n" + last_lines(output))
        figures[name] = float(found[1])
    figures["top1"] /= 100
    return figures


def flash_attention(help_text: str, is_bench: bool) -> list[str]:
    """How this build of llama.cpp spells flash attention: with on|off|auto, or as before that."""
    line = next((line for line in help_text.splitlines() if "--flash-attn" in line), "")
    if re.search(r"on\s*\|\s*off", line) or re.search(r"\[on", line):
        return ["-fa", "on"]
    return ["-fa", "1"] if is_bench else ["-fa"]


# --- which cache type of llama.cpp a plan stands beside ---


def counterpart(plan: str) -> tuple[str, str] | None:
    """(K, V) types of llama.cpp that store what the plan stores; None if it has none."""
    if plan in CACHE_TYPES:
        return plan, plan
    found = re.fullmatch(r"k=(\w+),v=(\w+)", plan)
    if found and found[1] in CACHE_TYPES and found[2] in CACHE_TYPES:
        return found[1], found[2]
    return None


def cache_types(plans: list[str]) -> list[tuple[str, str]]:
    types = [("f16", "f16")]
    for plan in plans:
        pair = counterpart(plan)
        if pair and pair not in types:
            types.append(pair)
    return types


def type_name(pair: tuple[str, str]) -> str:
    return pair[0] if pair[0] == pair[1] else f"{pair[0]}/{pair[1]}"


# --- running them ---


def run_varve(options, arguments: list[str], folder: Path) -> list[dict]:
    target = folder / "varve.json"
    run([options.varve, *arguments, "--json", str(target)])
    return json.loads(target.read_text())["rows"]


def model_path(options, folder: Path) -> str:
    if Path(options.model).is_file():
        return options.model
    for row in run_varve(options, ["models"], folder):
        if row["name"] == options.model and row["path"]:
            return row["path"]
    raise CompareError(f"-m {options.model}: no such file, and no model that `varve models` lists")


def bench_llama(options, model: str, pair: tuple[str, str]) -> list[dict]:
    help_text = run([options.bench, "--help"], may_fail=True)
    command = [options.bench, "-m", model, "-t", str(options.threads), "-ngl", "0", "-r", "1", "-o", "json",
               "-ctk", pair[0], "-ctv", pair[1], "-n", str(options.steps), "-p", "0",
               "-d", ",".join(map(str, options.depths)), *flash_attention(help_text, True)]
    rows = parse_bench(run(command))
    if pair == ("f16", "f16"):
        command[command.index("-n") + 1] = "0"
        command[command.index("-p") + 1] = str(options.prompt)
        command[command.index("-d") + 1] = "0"
        rows += parse_bench(run(command))
    return rows


def measure_speed(options, model: str, folder: Path) -> tuple[dict, dict]:
    """Tokens per second of llama.cpp by (kind, type, depth) and of Varve by (kind, plan, depth), all rounds."""
    theirs: dict[tuple, list[float]] = {}
    ours: dict[tuple, list[float]] = {}
    for number in range(options.rounds):
        for pair in cache_types(options.kv):
            say(f"round {number + 1} of {options.rounds}: llama-bench, {type_name(pair)}")
            for row in bench_llama(options, model, pair):
                kind = "decode" if row["n_gen"] > 0 else "prompt"
                theirs.setdefault((kind, type_name(pair), row["n_depth"]), []).append(row["avg_ts"])
        say(f"round {number + 1} of {options.rounds}: varve bench decode")
        for row in run_varve(options, ["bench", "decode", "-m", model, "--kv", *options.kv,
                                       "--depths", ",".join(map(str, options.depths)), "--steps", str(options.steps),
                                       "--reps", "2", "--threads", str(options.threads)], folder):
            if row["role"] != "noise":
                ours.setdefault(("decode", row["plan"], row["depth"]), []).append(row["tokens_per_s"])
        rows = run_varve(options, ["run", "-m", model, "--raw", "-f", str(options.text), "--prompt-tokens",
                                   str(options.prompt), "-n", "1", "--threads", str(options.threads)], folder)
        ours.setdefault(("prompt", "f16", 0), []).append(rows[0]["prompt_tokens_per_s"])
    return median_of(theirs), median_of(ours)


def measure_loss(options, model: str, folder: Path) -> tuple[dict, dict]:
    """Figures of llama.cpp by type and of Varve by plan."""
    help_text = run([options.perplexity, "--help"], may_fail=True)
    common = [options.perplexity, "-m", model, "-t", str(options.threads), "-ngl", "0", "-c", str(options.ctx),
              "-b", str(options.ctx), *flash_attention(help_text, False)]
    base = str(folder / "base.kld")
    say("llama-perplexity, f16")
    run([*common, "-f", str(options.text), "--chunks", str(options.windows), "--kl-divergence-base", base])
    theirs = {}
    for pair in cache_types(options.kv):
        say(f"llama-perplexity, {type_name(pair)} against f16")
        output = run([*common, "--kl-divergence-base", base, "--kl-divergence", "-ctk", pair[0], "-ctv", pair[1]])
        theirs[type_name(pair)] = parse_divergence(output)
    say("varve eval kl")
    rows = run_varve(options, ["eval", "kl", "-m", model, "-f", str(options.text), "--ctx", str(options.ctx), "--windows",
                               str(options.windows), "--prompt-half", "--threads", str(options.threads), "--kv",
                               *options.kv], folder)
    return theirs, {row["plan"]: row for row in rows}


# --- tables ---


def plans_with_f16(plans: list[str]) -> list[str]:
    return ["f16", *(plan for plan in plans if plan != "f16")]


def speed_rows(theirs: dict, ours: dict, plans: list[str], depths: list[int]) -> list[dict]:
    rows = []
    cells = [("prompt", "f16", 0)]
    cells += [("decode", plan, depth) for depth in depths for plan in plans_with_f16(plans)]
    for kind, plan, depth in cells:
        beside = type_name(counterpart(plan) or ("f16", "f16"))
        mine, other = ours.get((kind, plan, depth)), theirs.get((kind, beside, depth))
        if mine is None or other is None:
            continue
        rows.append({"test": kind, "depth": depth, "plan": plan, "varve_tokens_per_s": mine, "llama_cpp_type": beside,
                     "llama_cpp_tokens_per_s": other, "ratio": mine / other})
    return rows


def loss_rows(theirs: dict, ours: dict, plans: list[str]) -> list[dict]:
    rows = [{"program": "llama.cpp", "cache": name, **figures} for name, figures in theirs.items()]
    for plan in plans_with_f16(plans):
        if plan in ours:
            figures = ours[plan]
            rows.append({"program": "varve", "cache": plan, "ratio": figures["ratio"],
                         **{key: figures[key] for key in ("kl_mean", "kl_p99", "top1", "ppl")}})
    return rows


def print_speed(rows: list[dict], options) -> None:
    print(f"\nspeed, {options.threads} threads, tokens/s, medians of {options.rounds} rounds that take turns")
    print(render(["test", "plan", "varve", "llama.cpp", "its cache", "varve / llama.cpp"],
                 [[f"prompt of {options.prompt}" if row["test"] == "prompt" else f"decode at {row['depth']}",
                   row["plan"], f"{row['varve_tokens_per_s']:.1f}", f"{row['llama_cpp_tokens_per_s']:.1f}",
                   row["llama_cpp_type"], f"{row['ratio']:.2f}"] for row in rows]))


def print_loss(rows: list[dict], options) -> None:
    print(f"\nloss against the own f16 cache, second half of {options.windows} windows of {options.ctx} tokens")
    print(render(["program", "cache", "KL mean", "KL p99", "same best token", "perplexity"],
                 [[row["program"], row["cache"], f"{row['kl_mean']:.2e}", f"{row['kl_p99']:.2e}",
                   f"{100 * row['top1']:.2f} %", f"{row['ppl']:.3f}"] for row in rows]))


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True, help="GGUF file, or a name that `varve models` lists")
    parser.add_argument("--bench", metavar="PATH", help="llama-bench of the user's llama.cpp")
    parser.add_argument("--perplexity", metavar="PATH", help="llama-perplexity of the same")
    parser.add_argument("--varve", metavar="PATH", default=str(ROOT / "build/varve"))
    parser.add_argument("--kv", nargs="+", default=["q8_0", "q4_0"], help="plans of Varve (default: q8_0 q4_0)")
    parser.add_argument("--depths", type=lambda text: [int(part) for part in text.split(",")], default=[0, 4096],
                        help="tokens in the cache when decoding begins (default: 0,4096)")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of the prompt (default: 512)")
    parser.add_argument("--steps", type=int, default=32, help="tokens to decode (default: 32)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of both programs in turn (default: 3)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all cores")
    parser.add_argument("-f", "--text", type=Path, default=ROOT / "models/eval.txt", help="text of the loss")
    parser.add_argument("--ctx", type=int, default=512, help="tokens of a window (default: 512)")
    parser.add_argument("--windows", type=int, default=4, help="windows of the text (default: 4)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write all figures as JSON")
    options = parser.parse_args(arguments)
    if not options.bench and not options.perplexity:
        parser.error("name the programs of llama.cpp: --bench PATH, --perplexity PATH, or both")
    return options


def main(arguments: list[str]) -> int:
    options = parse_arguments(arguments)
    result = {"model": options.model, "threads": options.threads, "speed": [], "loss": []}
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            model = model_path(options, folder)
            if options.bench:
                result["speed"] = speed_rows(*measure_speed(options, model, folder), options.kv, options.depths)
                print_speed(result["speed"], options)
            if options.perplexity:
                result["loss"] = loss_rows(*measure_loss(options, model, folder), options.kv)
                print_loss(result["loss"], options)
        if options.json:
            options.json.write_text(json.dumps(result, indent=2) + "\n")
    except (CompareError, OSError) as error:
        print(f"compare_llama_cpp: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("compare_llama_cpp: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
