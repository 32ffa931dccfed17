"""python -m varve.eval MODEL --kv PLAN …"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import zlib
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from varve._native import Error
from varve.convert_hf import load_gguf
from varve.eval.lanes import make_lanes
from varve.eval.merge import load_runs, merge_runs, read_json, read_text
from varve.eval.recall import fingerprint, make_prompts, measure_recall
from varve.eval.speed import measure_decode
from varve.eval.windows import cut_windows, evaluate_windows


_LEAST = {"ctx": 2, "windows": 0, "recall": 0, "decode": 0, "decode_ctx": 0, "threads": 0}


def load_model(name: str, dtype: str) -> tuple[Any, Any]:
    """A folder or name of transformers, or a GGUF file."""
    if Path(name).suffix == ".gguf":
        return load_gguf(name, getattr(torch, dtype))
    return AutoModelForCausalLM.from_pretrained(name, dtype=getattr(torch, dtype)).eval(), AutoTokenizer.from_pretrained(name)


def read_tokens(path: str, ids: bool, tokenizer: Any) -> list[int]:
    """ids: the file has numbers."""
    if not ids:
        return tokenizer.encode(read_text(path), add_special_tokens=False)
    tokens = read_json(path)
    if not isinstance(tokens, list) or not all(isinstance(token, int) and 0 <= token < len(tokenizer) for token in tokens):
        raise ValueError(f"{path}: --ids wants a list of numbers below {len(tokenizer)}, as `varve tokenize --ids` writes it")
    return tokens


def print_table(rows: list[dict[str, Any]]) -> None:
    heads = ["plan", "ppl", "% to first", "KL mean", "KL p99", "top-1 %", "bytes/token", "ratio", "prefill t/s"]
    optional = [
        ("prompt_bytes_per_token", "behind prompt", 1.0), ("recall", "recall %", 100.0),
        ("decode_tokens_per_s", "decode t/s", 1.0), ("decode_bytes", "KiB there", 1 / 1024),
    ]
    optional = [entry for entry in optional if entry[0] in rows[0]]
    heads += [head for _, head, _ in optional]
    lines = [heads]
    for row in rows:
        cells = [
            row["plan"], f"{row['perplexity']:.4f}", f"{100 * row['perplexity_change']:+.3f}", f"{row['kl_mean']:.3g}",
            f"{row['kl_p99']:.3g}", f"{100 * row['same_best']:.2f}", f"{row['bytes_per_token']:.0f}", f"{row['ratio']:.2f}",
            f"{row['prefill_tokens_per_s']:.0f}",
        ]
        lines.append(cells + [f"{factor * row[key]:.1f}" if key in row else "" for key, _, factor in optional])
    widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
    for line in lines:
        print("  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths))))


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m varve.eval", description="Quality and cost of plans on a model.")
    parser.add_argument("model", help="name or folder of transformers, or a GGUF file")
    parser.add_argument("--kv", nargs="*", metavar="PLAN", help="plans (docs/plans.md; default: q8_0 t4, with --press none)")
    parser.add_argument("-f", "--file", required=True, help="text to evaluate on")
    parser.add_argument("--ids", action="store_true", help="the file is a list of token numbers, of `varve tokenize --ids`")
    parser.add_argument("--ctx", type=int, default=1024, help="tokens of a window (default: 1024)")
    parser.add_argument("--windows", type=int, default=1, help="at most so many; 0 is all (default: 1)")
    parser.add_argument("--quantized", nargs="*", default=[], metavar="BACKEND:BITS",
                        help="rows of QuantizedCache: quanto:4, hqq:2")
    parser.add_argument("--press", nargs="*", default=[], metavar="NAME:SHARE",
                        help="rows of kvpress, with the share of the prompt that goes: snapkv:0.5")
    parser.add_argument("--rest", action="store_true",
                        help="plans with idle= bring the prompt there when it has been read, as `varve eval kl --rest` does")
    parser.add_argument("--merge", nargs="*", default=[], metavar="FILE", help="add the rows of runs that --json wrote")
    parser.add_argument("--recall", type=int, default=0, metavar="N", help="ask for N facts, 8 in a text of --ctx tokens")
    parser.add_argument("--decode", type=int, default=0, metavar="N", help="time N tokens, all rows in turn")
    parser.add_argument("--decode-ctx", type=int, default=0, metavar="N", help="behind so many (default: --ctx)")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--key-pairs", action="store_true", help="store keys as GGUF files of Llama have them, as the program does")
    parser.add_argument("--threads", type=int, default=0, help="of torch and of the cache; 0: one per core")
    parser.add_argument("--json", metavar="FILE", help="write the rows there too")
    parser.add_argument("--chart", metavar="FILE", help="write KL against bytes as a picture (matplotlib)")
    return parser.parse_args(arguments)


def check_arguments(args: argparse.Namespace) -> None:
    """What can be said before the model is loaded."""
    for name, least in _LEAST.items():
        if getattr(args, name) < least:
            raise ValueError(f"--{name.replace('_', '-')} {getattr(args, name)}: must be at least {least}")
    for option in ("json", "chart"):
        path = getattr(args, option)
        if path and not Path(path).parent.is_dir():
            raise ValueError(f"--{option} {path}: there is no folder {Path(path).parent}")
    if args.chart and importlib.util.find_spec("matplotlib") is None:
        raise ValueError(f"--chart {args.chart}: needs the package matplotlib; pip install matplotlib")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """What --json writes."""
    check_arguments(args)
    if args.threads:
        torch.set_num_threads(args.threads)
    others = load_runs(args.merge)
    model, tokenizer = load_model(args.model, args.dtype)
    tokens = read_tokens(args.file, args.ids, tokenizer)
    bos = tokenizer.bos_token_id if getattr(tokenizer, "add_bos_token", False) else None
    windows = cut_windows(tokens, args.ctx, bos, args.windows)
    if args.decode and args.decode_ctx > len(tokens):
        raise ValueError(f"--decode-ctx {args.decode_ctx}: the text has {len(tokens)} tokens")
    plans = ([] if args.press else ["q8_0", "t4"]) if args.kv is None else args.kv
    lanes = make_lanes(model.config, plans, args.quantized, args.press, rest=args.rest, num_threads=args.threads, key_pairs=args.key_pairs)
    halves = any(lane.needs_prompt for lane in lanes) or any(other["halves"] for other in others)
    prompts = make_prompts(tokenizer, tokens, args.ctx, args.recall) if args.recall else []
    rows = evaluate_windows(model, windows, lanes, lambda line: print(line, file=sys.stderr), halves)
    if prompts:
        recall = measure_recall(model, tokenizer, prompts, lanes)
        rows = [row | recall[row["plan"]] for row in rows]
    if args.decode:
        speed = measure_decode(model, lanes, tokens[: args.decode_ctx or args.ctx], args.decode)
        rows = [row | speed[row["plan"]] for row in rows]
    result = {
        "model": args.model, "dtype": args.dtype, "ctx": args.ctx, "windows": len(windows), "halves": halves,
        "text": zlib.crc32(repr(windows).encode()), "questions": fingerprint(prompts), "rows": rows,
    }
    return result | {"rows": merge_runs(result, others)}


def main(arguments: list[str] | None = None) -> int:
    args = parse_arguments(sys.argv[1:] if arguments is None else arguments)
    try:
        result = run(args)
        print_table(result["rows"])
        if args.json:
            Path(args.json).write_text(json.dumps(result, indent=1))
        if args.chart:
            from varve.eval.chart import draw_chart

            draw_chart(result["rows"], f"{Path(args.model).stem}, {args.ctx} tokens", args.chart)
    except (Error, ImportError, ValueError, OSError) as error:
        print(f"varve.eval: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
