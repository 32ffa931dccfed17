#!/usr/bin/env python3
"""The baseline of cuda_bench: PyTorch's scaled_dot_product_attention in fp16, one query per sequence.

    python3 tools/bench_sdpa.py [--set quick|wide|full|step|prompt] [--out FILE] [--seconds N]

Each shape is run with the flash and the cuDNN back end, with grouped heads as they are and with the query
heads of a group as queries of one KV head; the fastest counts. Calls are captured in a CUDA graph over
enough copies of K and V that nothing is found in the second-level cache; the median of replays counts.
"""

import argparse
import json
import statistics
import sys
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

HEAD_DIM = 128
COLD_BYTES = 512 << 20
CALLS_PER_GRAPH = 16
REPLAYS = 12


def shapes(name):
    """(batch, query heads, KV heads, context), as in cuda_bench."""
    if name == "prompt":
        return []
    if name == "step":
        return [(1, 32, 32, 32768), (4, 32, 32, 32768), (8, 32, 32, 32768), (1, 32, 8, 32768), (8, 32, 8, 32768)]
    if name == "quick":
        return [(8, 32, 8, 32768)]
    if name == "wide":
        return [(8, 32, 8, 32768), (16, 32, 8, 131072), (1, 32, 32, 32768), (1, 32, 8, 4096)]
    return [
        (batch, 32, kv_heads, context)
        for context in (4096, 32768, 131072)
        for batch in (1, 8, 16 if context == 131072 else 32)
        for kv_heads in (32, 8, 4)
    ]


def time_graph(calls):
    """Median and minimum microseconds of one of the calls."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls[:2]:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    times = []
    for replay in range(REPLAYS + 2):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        stop.record()
        stop.synchronize()
        if replay >= 2:
            times.append(1000 * start.elapsed_time(stop) / len(calls))
    return statistics.median(times), min(times)


def variants(batch, heads, kv_heads, sets):
    """Names and calls of the ways to ask for the same attention."""
    group = heads // kv_heads
    folded = torch.randn(batch, kv_heads, group, HEAD_DIM, device="cuda", dtype=torch.float16)
    plain = folded.reshape(batch, heads, 1, HEAD_DIM)
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        for name, query in (("grouped", plain), ("folded", folded)):
            if name == "folded" and group == 1:
                continue

            def call(index, backend=backend, query=query, gqa=name == "grouped" and group > 1):
                keys, values = sets[index % len(sets)]
                with sdpa_kernel(backend):
                    return scaled_dot_product_attention(query, keys, values, enable_gqa=gqa)

            yield f"{backend.name.lower()} {name}", call


def run_shape(batch, heads, kv_heads, context):
    size = 2 * batch * kv_heads * context * HEAD_DIM * 2
    num_sets = min(max(1, COLD_BYTES // size + 1), CALLS_PER_GRAPH)
    shape = (batch, kv_heads, context, HEAD_DIM)
    sets = [
        tuple(torch.randn(shape, device="cuda", dtype=torch.float16) for _ in range(2)) for _ in range(num_sets)
    ]
    best = None
    tried = {}
    for name, call in variants(batch, heads, kv_heads, sets):
        try:
            calls = [lambda i=i: call(i) for i in range(CALLS_PER_GRAPH)]
            median, least = time_graph(calls)
        except RuntimeError as error:  # a back end that does not take the shape
            tried[name] = str(error).splitlines()[0][:120]
            continue
        tried[name] = round(median, 2)
        if best is None or median < best[1]:
            best = (name, median, least)
    if best is None:
        raise RuntimeError(f"no back end takes batch {batch}, heads {heads}/{kv_heads}, context {context}: {tried}")
    return {
        "batch": batch, "query_heads": heads, "kv_heads": kv_heads, "ctx": context, "head_dim": HEAD_DIM,
        "backend": best[0], "median_us": round(best[1], 2), "min_us": round(best[2], 2), "bytes": size,
        "gbps": round(size / best[1] * 1e-3, 1), "tried": tried,
    }  # fmt: skip


def run_prompt(rows, heads=32, kv_heads=8):
    """Causal attention of a whole prompt; the time of each back end."""
    query = torch.randn(1, heads, rows, HEAD_DIM, device="cuda", dtype=torch.float16)
    keys, values = (torch.randn(1, kv_heads, rows, HEAD_DIM, device="cuda", dtype=torch.float16) for _ in range(2))
    tried = {}
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        times = []
        for run in range(11):
            start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            with sdpa_kernel(backend):
                scaled_dot_product_attention(query, keys, values, is_causal=True, enable_gqa=True)
            stop.record()
            stop.synchronize()
            if run >= 2:
                times.append(1000 * start.elapsed_time(stop))
        tried[backend.name.lower()] = round(statistics.median(times), 2)
    flops = 2 * rows * rows * HEAD_DIM * heads
    return {"queries": rows, "query_heads": heads, "kv_heads": kv_heads, "head_dim": HEAD_DIM, "median_us": tried,
            "tflops": {name: round(flops / us * 1e-6, 1) for name, us in tried.items()}}  # fmt: skip


def run_prompts():
    rows = []
    for length in (2048, 8192, 32768):
        rows.append(run_prompt(length))
        print("sdpa   prompt {queries:6}: {median_us} us, {tflops} TFLOP/s".format(**rows[-1]), flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", default="quick", choices=("quick", "wide", "full", "step", "prompt"))
    parser.add_argument("--out", default="-")
    parser.add_argument("--seconds", type=float, default=1e9)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("SKIPPED: no CUDA device on this machine")
        return 77
    started = time.monotonic()
    rows = run_prompts() if args.set == "prompt" else []
    for shape in shapes(args.set):
        if time.monotonic() - started > args.seconds:
            break
        row = run_shape(*shape)
        torch.cuda.empty_cache()
        rows.append(row)
        print("sdpa   batch {batch:3} heads {query_heads}/{kv_heads} ctx {ctx:6}: {median_us:9.1f} us "
              "{gbps:6.0f} GB/s  {backend}".format(**row), flush=True)  # fmt: skip
    result = {"command": "bench_sdpa", "device": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows}
    text = json.dumps(result, indent=1)
    if args.out == "-":
        print(text)
    else:
        with open(args.out, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
