#!/usr/bin/env python3
"""Writes tests/data/weights/: blocks of every weight type and what they decode to.

Needs numpy and gguf (the Python package of the format's authors), whose decoding is the reference:
    python3 tools/make_weight_golden.py tests/data/weights

One file per type, little-endian: u32 number of values, the blocks, then the values as f32.
"""

import pathlib
import sys

import gguf
import numpy as np

TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K",
         "Q2_K", "Q3_K", "IQ4_NL", "IQ4_XS"]
NUM_VALUES = 1024
# Byte offsets of the f16 fields of a block.
F16_FIELDS = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q4_K": [0, 2],
              "Q5_K": [0, 2], "Q6_K": [208], "Q2_K": [80, 82], "Q3_K": [108], "IQ4_NL": [0],
              "IQ4_XS": [0]}
# What the first blocks of random bytes have for scales: zero, signs, a subnormal, the largest.
SCALES = np.array([0.01, -0.037, 6e-8, 65504.0, 0.0, 1.0], dtype=np.float16)


def random_blocks(name: str, count: int, rng: np.random.Generator) -> np.ndarray:
    """Any bytes are valid codes; only the f16 fields have to be finite."""
    size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]][1]
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    for i, block in enumerate(blocks):
        for place, offset in enumerate(F16_FIELDS[name]):
            scale = SCALES[(i + 2 * place) % len(SCALES)]
            block[offset : offset + 2] = np.frombuffer(scale.tobytes(), dtype=np.uint8)
    return blocks


def make_blocks(name: str, rng: np.random.Generator) -> np.ndarray:
    """The bytes of NUM_VALUES values: half of them quantized where gguf can, the rest random."""
    qtype = gguf.GGMLQuantizationType[name]
    values = (rng.standard_normal(NUM_VALUES) * 0.05).astype(np.float32)
    if name in ("F32", "F16", "BF16"):
        values[:8] = [0.0, -0.0, 1e-7, -6.1e-5, 65504.0, -1.0, np.inf, -np.inf]
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(gguf.quantize(values.reshape(1, -1), qtype)).view(np.uint8)
    per_block = gguf.GGML_QUANT_SIZES[qtype][0]
    try:
        made = gguf.quantize(values[: NUM_VALUES // 2].reshape(1, -1), qtype).reshape(-1)
    except NotImplementedError:
        made = np.empty(0, dtype=np.uint8)
    done = made.size // gguf.GGML_QUANT_SIZES[qtype][1]
    rest = random_blocks(name, NUM_VALUES // per_block - done, rng).reshape(-1)
    return np.concatenate([made, rest])


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(20240611)
    for name in TYPES:
        blocks = make_blocks(name, rng).reshape(1, -1)
        qtype = gguf.GGMLQuantizationType[name]
        if name in ("F32", "F16"):
            values = blocks.view(np.float32 if name == "F32" else np.float16).astype(np.float32)
        else:
            values = gguf.dequantize(blocks, qtype)
        values = np.ascontiguousarray(values.reshape(-1), dtype="<f4")
        assert values.size == NUM_VALUES, (name, values.size)
        header = np.array([values.size], dtype="<u4")
        (folder / f"{name.lower()}.bin").write_bytes(
            header.tobytes() + blocks.tobytes() + values.tobytes())


if __name__ == "__main__":
    main()
