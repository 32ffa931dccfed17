#!/usr/bin/env python3
"""Golden GGUF files, written by another implementation, for src/runtime/gguf/gguf_golden_test.cc.

Needs numpy and the Python package `gguf` of the llama.cpp project (written with gguf 0.19.0).

    make_gguf_golden.py          write tests/data/gguf
    make_gguf_golden.py --check  write them elsewhere and compare

Files:
    types.gguf                     every metadata type, arrays of them, every tensor type; alignment 64
    split-0000N-of-00003.gguf      four tensors in three parts
    types.json, split.json         what is in them: keys in order with type and value, tensors in
                                   order with dims (columns first), type and bytes in hex
"""

import argparse
import filecmp
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import quantize

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "data" / "gguf"
SCALARS = {
    GGUFValueType.UINT8: 250,
    GGUFValueType.INT8: -120,
    GGUFValueType.UINT16: 65000,
    GGUFValueType.INT16: -32000,
    GGUFValueType.UINT32: 4_000_000_000,
    GGUFValueType.INT32: -2_000_000_000,
    GGUFValueType.FLOAT32: 0.15625,
    GGUFValueType.BOOL: True,
    GGUFValueType.STRING: "Grüße, 世界 🌍",
    GGUFValueType.UINT64: 2**63 - 25,
    GGUFValueType.INT64: -(2**62),
    GGUFValueType.FLOAT64: 0.1,
}
ARRAYS = {
    "array.string": ["<unk>", "▁the", "", "line\nbreak"],
    "array.int32": [0, -1, 2**31 - 1],
    "array.float32": [0.0, -1.5, 65504.0],
    "array.bool": [True, False, True],
}
QUANTIZED = (Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1)
# The package reads these and does not make them.
READ_ONLY = (Type.Q4_K, Type.Q5_K, Type.Q6_K, Type.Q2_K, Type.Q3_K, Type.IQ4_NL, Type.IQ4_XS)


def add_tensors(writer: GGUFWriter, rng: np.random.Generator) -> None:
    values = rng.standard_normal((3, 64)).astype(np.float32)
    writer.add_tensor("f32.weight", values)
    writer.add_tensor("f32.vector", values[0])
    writer.add_tensor("f16.weight", values.astype(np.float16))
    writer.add_tensor("bf16.weight", quantize(values, Type.BF16), raw_dtype=Type.BF16)
    for kind in QUANTIZED:
        writer.add_tensor(f"{kind.name.lower()}.weight", quantize(values, kind), raw_dtype=kind)
    for kind in READ_ONLY:
        _, block_bytes = GGML_QUANT_SIZES[kind]
        blocks = rng.integers(0, 256, (2, block_bytes), dtype=np.uint8)
        writer.add_tensor(f"{kind.name.lower()}.weight", blocks, raw_dtype=kind)
    writer.add_tensor("cube", rng.standard_normal((2, 3, 5)).astype(np.float32))


def finish(writer: GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_types(path: Path) -> None:
    writer = GGUFWriter(path, "llama")
    writer.add_custom_alignment(64)
    for kind, value in SCALARS.items():
        writer.add_key_value(f"scalar.{kind.name.lower()}", value, kind)
    for key, values in ARRAYS.items():
        writer.add_array(key, values)
    add_tensors(writer, np.random.default_rng(1))
    finish(writer)


def write_split(folder: Path) -> None:
    writer = GGUFWriter(folder / "split.gguf", "llama", split_max_tensors=2, small_first_shard=True)
    writer.add_name("in three parts")
    for i in range(4):
        writer.add_tensor(f"t{i}", np.full((2, i + 1), i, dtype=np.float32))
    finish(writer)


def describe(paths: list[Path]) -> dict:
    """Keys of the first file and tensors of all, as the package itself reads them."""
    readers = [GGUFReader(path) for path in paths]
    keys = []
    for field in readers[0].fields.values():
        if field.name.startswith("GGUF."):
            continue
        keys.append({"key": field.name, "types": [int(kind) for kind in field.types],
                     "value": field.contents()})
    tensors = []
    for reader in readers:
        for tensor in reader.tensors:
            tensors.append({"name": tensor.name, "dims": [int(size) for size in tensor.shape],
                            "type": tensor.tensor_type.name, "data": tensor.data.tobytes().hex()})
    return {"keys": keys, "tensors": tensors}


def write_all(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_types(folder / "types.gguf")
    write_split(folder)
    for name, pattern in (("types", "types.gguf"), ("split", "split-*.gguf")):
        text = json.dumps(describe(sorted(folder.glob(pattern))), indent=1, ensure_ascii=False)
        (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    if not parser.parse_args().check:
        write_all(FOLDER)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        write_all(Path(folder))
        names = sorted(path.name for path in Path(folder).iterdir())
        _, different, missing = filecmp.cmpfiles(folder, FOLDER, names, shallow=False)
    for name in different + missing:
        print(f"{name}: differs or is missing", file=sys.stderr)
    return 1 if different or missing else 0


if __name__ == "__main__":
    sys.exit(main())
