"""python -m varve.eval MODEL --kv PLAN …"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from varve._native import Error
from varve.eval.lanes import make_lanes
from varve.eval.recall import measure_recall
from varve.eval.speed import measure_decode
from varve.eval.windows import cut_windows, evaluate_windows


def load_model(name: str, dtype: str) -> tuple[Any, Any]:
    """A folder or name of transformers, or a GGUF file, which its own loader reads."""
    path = Path(name)
    where = dict(pretrained_model_name_or_path=name)
    if path.suffix == ".gguf":
        where = dict(pretrained_model_name_or_path=str(path.parent), gguf_file=path.name)
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=getattr(torch, dtype)).eval()
    return model, AutoTokenizer.from_pretrained(**where)


def read_tokens(path: str, ids: bool, tokenizer: Any) -> list[int]:
    """ids: the file has numbers. Tokenizers that transformers makes from GGUF files lose the model's own way to cut words."""
    text = Path(path).read_text(encoding="utf-8")
    if not ids:
        return tokenizer.encode(text, add_special_tokens=False)
    tokens = json.loads(text)
    if not isinstance(tokens, list) or not all(isinstance(token, int) and 0 <= token < len(tokenizer) for token in tokens):
        raise ValueError(f"{path}: --ids wants a list of numbers below {len(tokenizer)}, as `varve tokenize --ids` writes it")
    return tokens


def print_table(rows: list[dict[str, Any]]) -> None:
    heads = ["plan", "ppl", "% to first", "KL mean", "KL p99", "top-1 %", "bytes/token", "ratio", "prefill t/s"]
    optional = [("recall", "recall %", 100.0), ("decode_tokens_per_s", "decode t/s", 1.0), ("decode_bytes", "KiB there", 1 / 1024)]
    heads += [head for key, head, _ in optional if key in rows[0]]
    lines = [heads]
    for row in rows:
        cells = [
            row["plan"], f"{row['perplexity']:.4f}", f"{100 * row['perplexity_change']:+.3f}", f"{row['kl_mean']:.3g}",
            f"{row['kl_p99']:.3g}", f"{100 * row['same_best']:.2f}", f"{row['bytes_per_token']:.0f}", f"{row['ratio']:.2f}",
            f"{row['prefill_tokens_per_s']:.0f}",
        ]
        lines.append(cells + [f"{factor * row[key]:.1f}" for key, _, factor in optional if key in row])
    widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
    for line in lines:
        print("  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths))))


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m varve.eval", description="Quality and cost of plans on a model.")
    parser.add_argument("model", help="name or folder of transformers, or a GGUF file")
    parser.add_argument("--kv", nargs="+", default=["q8_0", "t4"], metavar="PLAN", help="plans (docs/plans.md)")
    parser.add_argument("-f", "--file", required=True, help="text to evaluate on")
    parser.add_argument("--ids", action="store_true", help="the file is a list of token numbers, of `varve tokenize --ids`")
    parser.add_argument("--ctx", type=int, default=1024, help="tokens of a window (default: 1024)")
    parser.add_argument("--windows", type=int, default=1, help="at most so many; 0 is all (default: 1)")
    parser.add_argument("--quantized", nargs="*", default=[], metavar="BACKEND:BITS",
                        help="rows of QuantizedCache: quanto:4, hqq:2")
    parser.add_argument("--recall", type=int, default=0, metavar="N", help="N prompts with a pass key")
    parser.add_argument("--decode", type=int, default=0, metavar="N", help="time N tokens, all rows in turn")
    parser.add_argument("--decode-ctx", type=int, default=0, metavar="N", help="behind so many (default: --ctx)")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--threads", type=int, default=0, help="of torch and of the cache; 0: one per core")
    parser.add_argument("--json", metavar="FILE", help="write the rows there too")
    parser.add_argument("--chart", metavar="FILE", help="write KL against bytes as a picture (matplotlib)")
    return parser.parse_args(arguments)


def run(args: argparse.Namespace) -> list[dict[str, Any]]:
    if args.threads:
        torch.set_num_threads(args.threads)
    model, tokenizer = load_model(args.model, args.dtype)
    tokens = read_tokens(args.file, args.ids, tokenizer)
    bos = tokenizer.bos_token_id if getattr(tokenizer, "add_bos_token", False) else None
    windows = cut_windows(tokens, args.ctx, bos, args.windows)
    lanes = make_lanes(model.config, args.kv, args.quantized, num_threads=args.threads)
    rows = evaluate_windows(model, windows, lanes, lambda line: print(line, file=sys.stderr))
    if args.recall:
        recall = measure_recall(model, tokenizer, tokens, lanes, args.ctx, args.recall)
        rows = [row | {"recall": recall[row["plan"]]} for row in rows]
    if args.decode:
        speed = measure_decode(model, lanes, tokens[: args.decode_ctx or args.ctx], args.decode)
        rows = [row | speed[row["plan"]] for row in rows]
    return rows


def main(arguments: list[str] | None = None) -> int:
    args = parse_arguments(sys.argv[1:] if arguments is None else arguments)
    try:
        rows = run(args)
    except (Error, ValueError, OSError) as error:
        print(f"varve.eval: {error}", file=sys.stderr)
        return 1
    print_table(rows)
    if args.json:
        Path(args.json).write_text(json.dumps({"model": args.model, "ctx": args.ctx, "rows": rows}, indent=1))
    if args.chart:
        from varve.eval.chart import draw_chart

        draw_chart(rows, f"{Path(args.model).stem}, {args.ctx} tokens", args.chart)
    return 0


if __name__ == "__main__":
    sys.exit(main())
