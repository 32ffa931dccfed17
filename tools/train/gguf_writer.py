"""A small GGUF writer (version 3): metadata, f32 and q8_0 tensors. Needs numpy."""

import struct
from pathlib import Path

import numpy as np

ALIGNMENT = 32
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9  # value types
TENSOR_F32, TENSOR_Q8_0 = 0, 8


def _string(text: str) -> bytes:
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def _value(value) -> tuple[int, bytes]:
    if isinstance(value, bool):
        return BOOL, struct.pack("<B", value)
    if isinstance(value, int):
        return U32, struct.pack("<I", value)
    if isinstance(value, float):
        return F32, struct.pack("<f", value)
    if isinstance(value, str):
        return STRING, _string(value)
    items = [_value(v) for v in value]
    kind = I32 if items[0][0] == U32 else items[0][0]
    return ARRAY, struct.pack("<IQ", kind, len(items)) + b"".join(data for _, data in items)


def quantize_q8_0(matrix: np.ndarray) -> bytes:
    """Blocks of 32 along the rows: an f16 scale max|x| / 127, then 32 int8 codes."""
    blocks = matrix.astype(np.float32).reshape(-1, 32)
    scale = np.abs(blocks).max(axis=1) / 127.0
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    codes = np.round(blocks * inverse[:, None]).astype(np.int8)
    out = np.empty((len(blocks), 34), np.uint8)
    out[:, :2] = scale.astype(np.float16).view(np.uint8).reshape(-1, 2)
    out[:, 2:] = codes.view(np.uint8)
    return out.tobytes()


class GgufWriter:
    """Collects metadata and tensors, then writes the file in one go."""

    def __init__(self) -> None:
        self._metadata: list[tuple[str, object]] = []
        self._tensors: list[tuple[str, tuple[int, ...], int, bytes]] = []

    def add(self, key: str, value) -> None:
        """bool, int (u32), float (f32), str, or a list of one of them (integers as i32)."""
        self._metadata.append((key, value))

    def add_f32(self, name: str, array: np.ndarray) -> None:
        self._tensors.append((name, array.shape, TENSOR_F32, array.astype("<f4").tobytes()))

    def add_q8_0(self, name: str, matrix: np.ndarray) -> None:
        """[rows, cols], cols a multiple of 32."""
        self._tensors.append((name, matrix.shape, TENSOR_Q8_0, quantize_q8_0(matrix)))

    def write(self, path: Path) -> None:
        header = [b"GGUF", struct.pack("<IQQ", 3, len(self._tensors), len(self._metadata))]
        for key, value in self._metadata:
            kind, data = _value(value)
            header.append(_string(key) + struct.pack("<I", kind) + data)
        offset = 0
        for name, shape, kind, data in self._tensors:
            dims = tuple(reversed(shape))
            header.append(_string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset))
            offset += -(-len(data) // ALIGNMENT) * ALIGNMENT
        head = b"".join(header)
        with open(path, "wb") as file:
            file.write(head + b"\0" * (-len(head) % ALIGNMENT))
            for _, _, _, data in self._tensors:
                file.write(data + b"\0" * (-len(data) % ALIGNMENT))
