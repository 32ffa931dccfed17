#!/usr/bin/env python3
"""Golden vectors of ggml's blocks, for src/rungs/block/ggml_golden_test.cc and src/runtime/kernels/weights_encode_test.cc.

Needs numpy and the Python package `gguf` of the llama.cpp project, whose numpy quantizers are bit-exact
to ggml's scalar reference (written with gguf 0.19.0; also compared with ggml-quants.c).

    make_ggml_golden.py          write tests/data/ggml_blocks
    make_ggml_golden.py --check  quantize the inputs that are there and compare

Files, little-endian, rows of DIM values:
    dimDIM.f32                    inputs, f32 [32, DIM]
    dimDIM.q8_0, dimDIM.q4_0      ggml blocks [32, DIM / 32], 34 or 18 bytes each
    dimDIM.q8_0.f32, .q4_0.f32    what ggml reads from the blocks, f32 [32, DIM]
    dim128.q4_1, .q5_0, .q5_1     ggml blocks of weights; two rows have values beyond what the first and the last hold

Left out, since ggml's own result is undefined or its two implementations differ: values that are not
finite, scales beyond f16 or with an inverse beyond f32, and blocks of zeros that start with -0 (the sign
of a zero q4_0 scale).
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "data" / "ggml_blocks"
DIMS = (64, 96, 128)
TYPES = {"q8_0": GGMLQuantizationType.Q8_0, "q4_0": GGMLQuantizationType.Q4_0}
WEIGHT_DIM = 128
WEIGHT_TYPES = {"q4_1": GGMLQuantizationType.Q4_1, "q5_0": GGMLQuantizationType.Q5_0, "q5_1": GGMLQuantizationType.Q5_1}
NUM_ROWS = 32


def with_outliers(rng: np.random.Generator, dim: int) -> np.ndarray:
    row = rng.standard_normal(dim)
    row[rng.integers(dim)] *= 30
    return row


def with_zero_blocks(rng: np.random.Generator, dim: int) -> np.ndarray:
    row = rng.standard_normal(dim)
    row[:32] = 0
    row[rng.integers(32, dim, 12)] = -0.0
    return row


def with_ties(rng: np.random.Generator, dim: int) -> np.ndarray:
    """Every block has its largest magnitude with both signs; the rest lies on rounding boundaries."""
    levels = rng.choice((8, 127))
    row = (rng.integers(-levels, levels, dim) + 0.5) * 0.25
    for start in range(0, dim, 32):
        first, second = rng.choice(32, 2, replace=False)
        row[start + first], row[start + second] = 0.25 * levels, -0.25 * levels
    return row


def one_hot(rng: np.random.Generator, dim: int) -> np.ndarray:
    row = np.zeros(dim)
    row[rng.integers(0, 32, dim // 32) + np.arange(0, dim, 32)] = rng.standard_normal(dim // 32)
    return row


def make_rows(rng: np.random.Generator, dim: int) -> np.ndarray:
    rows = [rng.standard_normal(dim) for _ in range(8)]
    rows += [with_outliers(rng, dim) for _ in range(6)]
    rows += [np.zeros(dim), with_zero_blocks(rng, dim), with_zero_blocks(rng, dim)]
    # q8_0 scales that are subnormal in f16, then that vanish.
    rows += [size * rng.standard_normal(dim) for size in (1e-4, 1e-5, 1e-6, 1e-9, 1e-30)]
    rows += [with_ties(rng, dim) for _ in range(6)]
    # Up to the largest q4_0 scale.
    rows += [rng.uniform(-65504 * 8, 65504 * 8, dim) for _ in range(2)]
    rows += [one_hot(rng, dim), np.full(dim, -1.5)]
    assert len(rows) == NUM_ROWS
    return np.stack(rows).astype("<f4")


def expected_files(dim: int, rows: np.ndarray) -> dict[str, bytes]:
    files = {}
    for name, kind in TYPES.items():
        blocks = quantize(rows, kind)
        files[f"dim{dim}.{name}"] = blocks.tobytes()
        files[f"dim{dim}.{name}.f32"] = dequantize(blocks, kind).astype("<f4").tobytes()
    if dim == WEIGHT_DIM:
        for name, kind in WEIGHT_TYPES.items():
            files[f"dim{dim}.{name}"] = quantize(rows, kind).tobytes()
    return files


def write() -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(20240501)
    for dim in DIMS:
        rows = make_rows(rng, dim)
        (FOLDER / f"dim{dim}.f32").write_bytes(rows.tobytes())
        for name, data in expected_files(dim, rows).items():
            (FOLDER / name).write_bytes(data)
    return 0


def check() -> int:
    bad = []
    for dim in DIMS:
        rows = np.fromfile(FOLDER / f"dim{dim}.f32", dtype="<f4").reshape(NUM_ROWS, dim)
        for name, data in expected_files(dim, rows).items():
            if (FOLDER / name).read_bytes() != data:
                bad.append(name)
    print("differ: " + " ".join(bad) if bad else "all files as the gguf package gives them")
    return 1 if bad else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Golden vectors of ggml's blocks.")
    parser.add_argument("--check", action="store_true", help="compare the files with the gguf package")
    return check() if parser.parse_args().check else write()


if __name__ == "__main__":
    sys.exit(main())
