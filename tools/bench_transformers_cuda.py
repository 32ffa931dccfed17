#!/usr/bin/env python3
"""Decoding of a Hugging Face model on a GPU behind a long prompt: VarveCache beside DynamicCache and QuantizedCache.

    PYTHONPATH=build/python python tools/bench_transformers_cuda.py --json out/transformers-cuda.json

A model with random weights (the shape of Llama-3.1-8B) in bfloat16 reads one prompt of random tokens into every cache. Then
all caches decode in turn, some tokens each, several times: tokens a second are medians. DynamicCache runs twice, the
second time under another name: what its two rows differ by is noise.

Memory is what the cache takes on the device: tensors of torch, and what lies outside of torch's pool, which is where pages
of a VarveCache are, with the room that its pool has taken and not filled, and its work buffers. `peak` is the most while
decoding, with what the cache and its attention make on the way.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig, QuantizedCache
from transformers.cache_utils import Cache

import varve
from varve.transformers import VarveCache

BACKENDS = {"quanto": "optimum.quanto", "hqq": "hqq"}


@dataclass
class Lane:
    name: str
    attention: str
    make: Callable[[], Cache]
    cache: Cache | None = None
    token: torch.Tensor | None = None  # [batch, 1]: the next one
    row: dict[str, Any] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)  # of each turn
    host_seconds: list[float] = field(default_factory=list)  # until the last kernel was launched


def make_model(args: argparse.Namespace) -> Any:
    config = LlamaConfig(
        num_hidden_layers=args.layers, hidden_size=args.hidden, num_attention_heads=args.heads,
        num_key_value_heads=args.kv_heads, head_dim=args.head_dim, intermediate_size=args.ffn, vocab_size=args.vocab,
        max_position_embeddings=131072, rope_theta=500000.0,
    )
    torch.manual_seed(0)
    with torch.device(args.device):
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa").eval()


def has_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def make_lanes(config: Any, args: argparse.Namespace) -> list[Lane]:
    def dynamic() -> Cache:
        return DynamicCache(config=config)

    lanes = [Lane("DynamicCache", "sdpa", dynamic), Lane("DynamicCache (noise)", "sdpa", dynamic)]
    for backend, module in BACKENDS.items():
        for bits in args.bits:
            if has_module(module):
                name = f"QuantizedCache {backend} {bits}"
                lanes.append(Lane(name, "sdpa", lambda b=backend, n=bits: QuantizedCache(b, config, nbits=n)))
            else:
                print(f"QuantizedCache {backend} {bits}: left out: {module} is not installed", file=sys.stderr)
    for plan in args.kv:
        lanes.append(Lane(f"Varve {plan}", "varve", lambda plan=plan: VarveCache(config, plan, device=args.device)))
    return lanes


def memory(device: torch.device) -> tuple[int, int]:
    """Bytes of live tensors, and those on the device that torch does not have: pages of ours, contexts, kernels."""
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    return torch.cuda.memory_allocated(device), total - free - torch.cuda.memory_reserved(device)


@torch.no_grad()
def read_prompt(model: Any, lane: Lane, prompt: torch.Tensor, chunk: int) -> None:
    """The whole prompt at once, or in chunks; leaves the next token."""
    before = memory(prompt.device)
    torch.cuda.reset_peak_memory_stats(prompt.device)
    lane.cache = lane.make()
    started = time.perf_counter()
    for begin in range(0, prompt.shape[1], chunk):
        logits = model(prompt[:, begin : begin + chunk], past_key_values=lane.cache, logits_to_keep=1).logits
    torch.cuda.synchronize(prompt.device)
    lane.row["prefill_s"] = time.perf_counter() - started
    lane.row["prefill_peak_bytes"] = torch.cuda.max_memory_allocated(prompt.device) - before[0]
    lane.token = logits[:, -1:].argmax(-1)
    del logits
    after = memory(prompt.device)
    lane.row["torch_bytes"], lane.row["outside_bytes"] = (b - a for a, b in zip(before, after))
    lane.row["cache_bytes"] = lane.row["torch_bytes"] + lane.row["outside_bytes"]


@torch.no_grad()
def decode(model: Any, lane: Lane, tokens: int) -> torch.Tensor:
    """Greedy tokens without waiting for the device on the way; gives the last logits."""
    token = lane.token
    for _ in range(tokens):
        logits = model(token, past_key_values=lane.cache).logits
        token = logits[:, -1:].argmax(-1)
    lane.token = token
    return logits


def read_prompts(model: Any, lanes: list[Lane], prompt: torch.Tensor, chunk: int) -> None:
    """Every lane reads the prompt, and then one token more, which is the first lane's for all: so their logits answer the
    same text and can be compared."""
    first = expected = None
    for lane in lanes:
        model.set_attn_implementation(lane.attention)
        read_prompt(model, lane, prompt, chunk)
        first = lane.token if first is None else first
        lane.token = first
        logits = decode(model, lane, 1).float()
        expected = logits if expected is None else expected
        # In units of the logits' own spread.
        lane.row["logit_error"] = float((logits - expected).abs().mean() / expected.std())
        print(f"{lane.name}: prompt read in {lane.row['prefill_s']:.2f} s", file=sys.stderr)


def run_turn(model: Any, lane: Lane, tokens: int, device: torch.device) -> None:
    model.set_attn_implementation(lane.attention)
    torch.cuda.synchronize(device)
    own = lane.row["torch_bytes"]
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    started = time.perf_counter()
    decode(model, lane, tokens)
    launched = time.perf_counter()
    torch.cuda.synchronize(device)
    lane.seconds.append(time.perf_counter() - started)
    lane.host_seconds.append(launched - started)
    peak = torch.cuda.max_memory_allocated(device) - before + own + lane.row["outside_bytes"]
    lane.row["peak_bytes"] = max(peak, lane.row.get("peak_bytes", 0))


def warm_up(model: Any, lanes: list[Lane], prompt: torch.Tensor) -> None:
    """Kernels, contexts and work buffers of libraries are there before anything is measured."""
    for lane in lanes:
        model.set_attn_implementation(lane.attention)
        lane.cache, lane.token = lane.make(), prompt[:, -1:]
        with torch.no_grad():
            model(prompt[:, :300], past_key_values=lane.cache, logits_to_keep=1)
        decode(model, lane, 3)
        lane.cache = lane.token = None


def finish(lanes: list[Lane], args: argparse.Namespace) -> list[dict[str, Any]]:
    base = statistics.median(lanes[0].seconds)
    held = lanes[0].row["cache_bytes"]
    rows = []
    for lane in lanes:
        spent = statistics.median(lane.seconds)
        row = {"cache": lane.name} | ({"role": "noise"} if "noise" in lane.name else {}) | lane.row
        row |= {
            "tokens_per_s": args.batch * args.decode / spent, "ms_per_step": 1000 * spent / args.decode,
            "ms_per_step_all": [1000 * s / args.decode for s in lane.seconds],
            "host_ms_per_step": 1000 * statistics.median(lane.host_seconds) / args.decode,
            "speed_ratio": base / spent, "memory_ratio": held / max(1, row["cache_bytes"]),
        }
        if isinstance(lane.cache, VarveCache):
            stats = lane.cache.stats()
            row |= {key: stats[key] for key in ("bytes_used", "bytes_held", "bytes_tables", "bytes_scratch")}
        rows.append(row)
    return rows


def print_table(rows: list[dict[str, Any]]) -> None:
    print(f"{'cache':26} {'tokens/s':>9} {'ratio':>6} {'host ms':>8} {'cache MiB':>10} {'smaller':>8} {'peak MiB':>9} "
          f"{'prefill s':>10} {'error':>8}")
    for row in rows:
        print(f"{row['cache']:26} {row['tokens_per_s']:9.2f} {row['speed_ratio']:6.2f} {row['host_ms_per_step']:8.2f} "
              f"{row['cache_bytes'] / 2**20:10.0f} {row['memory_ratio']:8.2f} {row['peak_bytes'] / 2**20:9.0f} "
              f"{row['prefill_s']:10.2f} {row['logit_error']:8.4f}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("layers", 32), ("hidden", 4096), ("heads", 32), ("kv-heads", 8), ("head-dim", 128), ("ffn", 14336),
                          ("vocab", 128256)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--ctx", type=int, default=32768, help="tokens of the prompt (default: 32768)")
    parser.add_argument("--chunk", type=int, default=0, help="tokens of the prompt at once; 0: all (default)")
    parser.add_argument("--decode", type=int, default=64, help="tokens of a turn (default: 64)")
    parser.add_argument("--reps", type=int, default=3, help="turns of each cache (default: 3)")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--kv", nargs="*", default=["bf16,open_rung=bf16", "q8_0", "q4_0", "t4", "t3"], metavar="PLAN")
    parser.add_argument("--bits", nargs="*", type=int, default=[4], help="of QuantizedCache (default: 4)")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args()


def main() -> int:
    args = parse_arguments()
    if not torch.cuda.is_available():
        print("bench_transformers_cuda: torch sees no GPU", file=sys.stderr)
        return 77
    device = torch.device(args.device)
    model = make_model(args)
    prompt = torch.randint(10, args.vocab, (args.batch, args.ctx), generator=torch.Generator().manual_seed(1)).to(device)
    lanes = make_lanes(model.config, args)
    warm_up(model, lanes, prompt)
    read_prompts(model, lanes, prompt, args.chunk or args.ctx)
    for turn in range(args.reps):
        for lane in lanes:
            run_turn(model, lane, args.decode, device)
    rows = finish(lanes, args)
    print_table(rows)
    result = {
        "command": "bench_transformers_cuda", "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": {"device": torch.cuda.get_device_name(device), "cuda": torch.version.cuda},
        "version": {"varve": varve.__version__, "torch": torch.__version__, "transformers": transformers.__version__,
                    "python": sys.version.split()[0]},
        "model": {key: getattr(args, key) for key in ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab")},
        "ctx": args.ctx, "decode": args.decode, "batch": args.batch, "reps": args.reps, "chunk": args.chunk, "rows": rows,
    }
    if args.json:
        Path(args.json).parent.mkdir(parents=True, exist_ok=True)
        Path(args.json).write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
