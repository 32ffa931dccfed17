"""A small GGUF reader (version 3): metadata, f32 and q8_0 tensors. Needs numpy."""

import struct
from pathlib import Path

import numpy as np

from gguf_writer import ALIGNMENT, ARRAY, BOOL, F32, I32, STRING, TENSOR_F32, TENSOR_Q8_0, U32

_FORMATS = {U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}


def decode_q8_0(data: bytes) -> np.ndarray:
    """Blocks of an f16 scale and 32 int8 codes, as a flat f32 array."""
    raw = np.frombuffer(data, np.uint8).reshape(-1, 34)
    scale = raw[:, :2].copy().view(np.float16).astype(np.float32)
    return (raw[:, 2:].view(np.int8) * scale).reshape(-1)


class GgufReader:
    """Reads the whole file. `metadata`: key to value; `tensors`: name to f32 array."""

    def __init__(self, path: Path) -> None:
        self._data, self._at = path.read_bytes(), 0
        magic, version = self._take("<4s"), self._take("<I")
        if magic != b"GGUF" or version != 3:
            raise ValueError(f"{path}: magic {magic!r}, version {version}; GGUF version 3 wanted")
        num_tensors, num_values = self._take("<Q"), self._take("<Q")
        self.metadata = {}
        for _ in range(num_values):
            key = self._string()
            self.metadata[key] = self._value(self._take("<I"))
        places = []
        for _ in range(num_tensors):
            name = self._string()
            dims = [self._take("<Q") for _ in range(self._take("<I"))]
            places.append((name, dims[::-1], self._take("<I"), self._take("<Q")))
        base = -(-self._at // ALIGNMENT) * ALIGNMENT
        self.tensors = {name: self._tensor(name, dims, kind, base + at) for name, dims, kind, at in places}

    def _take(self, layout: str):
        (value,) = struct.unpack_from(layout, self._data, self._at)
        self._at += struct.calcsize(layout)
        return value

    def _string(self) -> str:
        size = self._take("<Q")
        self._at += size
        return self._data[self._at - size : self._at].decode("utf-8")

    def _value(self, kind: int):
        if kind == STRING:
            return self._string()
        if kind == ARRAY:
            item, count = self._take("<I"), self._take("<Q")
            return [self._value(item) for _ in range(count)]
        return self._take(_FORMATS[kind])

    def _tensor(self, name: str, shape: list[int], kind: int, at: int) -> np.ndarray:
        count = int(np.prod(shape))
        if kind == TENSOR_F32:
            return np.frombuffer(self._data, "<f4", count, at).reshape(shape)
        if kind == TENSOR_Q8_0:
            return decode_q8_0(self._data[at : at + count // 32 * 34]).reshape(shape)
        raise ValueError(f"{name}: tensor type {kind}; {TENSOR_F32} (f32) or {TENSOR_Q8_0} (q8_0) wanted")
