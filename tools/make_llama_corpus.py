#!/usr/bin/env python3
"""Writes the seed inputs of the model fuzzer (fuzz/llama_fuzzer.cc) to fuzz/corpus/llama.

    make_llama_corpus.py [FOLDER]

Descriptions of every architecture in every weight type, with and without changes of single keys and
tensors, and one whole file of a few KB. The same files come out every time. A description is a byte that
is not 'G' (it also chooses plan and precision), then the shape, weight type and flags, then changes of four
bytes each (see Description::Change).
"""

import random
import struct
import sys
from pathlib import Path

ARCHITECTURES = ["llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3"]
NUM_TYPES = 15
FIRST_K_TYPE = 8
NUM_KEYS = 30
# Indices into kKeys and kStrings of the fuzzer.
ROPE_TYPE, ROPE_FACTOR, HEAD_COUNT_KV, WINDOW_PATTERN = 28, 21, 4, 10
LINEAR, YARN = 1, 2


def description(arch: int, weight_type: int, flags: int, changes: list[tuple[int, int, int, int]],
                first: int = 0) -> bytes:
    # Two layers of width 32 with 2 KV heads of 32; blocks of 256 values want one of width 256.
    shape = [1, 1, 1, 0, 1, 1, 2, 2] if weight_type < FIRST_K_TYPE else [0, 3, 0, 2, 3, 3, 2, 2]
    out = [first, arch, *shape, weight_type, flags]
    for change in changes:
        out += change
    return bytes(out)


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def whole_file() -> bytes:
    """One layer of width 16 in F16, vocabulary 4."""
    keys = [(string("general.architecture") + struct.pack("<I", 8) + string("llama"))]
    for name, value in [("block_count", 1), ("embedding_length", 16), ("feed_forward_length", 16),
                        ("attention.head_count", 1), ("context_length", 64)]:
        keys.append(string("llama." + name) + struct.pack("<II", 4, value))
    keys.append(string("llama.attention.layer_norm_rms_epsilon") + struct.pack("<If", 6, 1e-5))
    tensors, data = [], b""
    names = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]
    shapes = [(f"blk.0.{name}.weight", [16, 16]) for name in names]
    shapes += [("token_embd.weight", [16, 4]), ("output_norm.weight", [16])]
    shapes += [(f"blk.0.{name}.weight", [16]) for name in ("attn_norm", "ffn_norm")]
    for number, (name, dims) in enumerate(shapes):
        count = dims[0] * (dims[1] if len(dims) > 1 else 1)
        tensors.append(string(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
                       + struct.pack("<IQ", 1, len(data)))
        values = [1.0 if len(dims) == 1 else ((i * 7 + number) % 11 - 5) / 16 for i in range(count)]
        data += struct.pack(f"<{count}e", *values)
        data += bytes(-len(data) % 32)
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(keys)) + b"".join(keys) + b"".join(tensors)
    return head + bytes(-len(head) % 32) + data


def main() -> int:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "fuzz/corpus/llama")
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(1)
    seeds = {"file_f16": whole_file()}
    for arch, name in enumerate(ARCHITECTURES):
        seeds[name] = description(arch, arch % NUM_TYPES, 0, [], arch)
        changes = [(rng.randrange(10), rng.randrange(NUM_KEYS), rng.randrange(20), rng.randrange(256))
                   for _ in range(3)]
        seeds[f"{name}_changed"] = description(arch, 0, 2, changes, arch)
    for weight_type in range(NUM_TYPES):
        seeds[f"type_{weight_type}"] = description(0, weight_type, 2 | 8 | 16, [], 128 + weight_type)
    seeds["any_bits"] = description(0, 0, 1, [])
    seeds["rope_divisors"] = description(0, 3, 4, [])
    factor = (2, ROPE_FACTOR, 4, 0)
    seeds["rope_linear"] = description(3, 3, 0, [(3, ROPE_TYPE, LINEAR, 0), factor])
    seeds["rope_yarn"] = description(3, 3, 0, [(3, ROPE_TYPE, YARN, 0), factor])
    seeds["array_of_heads"] = description(0, 3, 0, [(4, HEAD_COUNT_KV, 2, 2)])
    seeds["window_pattern"] = description(5, 3, 0, [(1, WINDOW_PATTERN, 2, 0)])
    for name, seed in seeds.items():
        (folder / name).write_bytes(seed)
    print(f"{folder}: {len(seeds)} inputs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
