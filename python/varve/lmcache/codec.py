"""Chunks of KV as LMCache has them, [2, layers, tokens, kv_heads * head_dim], and the bytes that are stored for them.

A stored value is a header of 32 bytes and a body: the image of the chunk's pages (Cache.export_pages), or the chunk
itself where it does not fit the shape. The header has a hash of key, sizes and body: bytes of another key, and bytes
that were changed, are refused.
"""

from __future__ import annotations

import hashlib
import struct
import threading

import numpy as np

import varve

_HEADER = struct.Struct("<4sB3xQ16s")  # magic, kind, bytes of the chunk, hash
_MAGIC = b"VLM1"
_PLAIN, _PAGES = 0, 1
_ITEM_BYTES = {"f16": 2, "bf16": 2, "f32": 4}


def _to_f32(chunk: memoryview, dtype: str) -> np.ndarray:
    if dtype == "f32":
        return np.frombuffer(chunk, np.float32)
    if dtype == "f16":
        return np.frombuffer(chunk, np.float16).astype(np.float32)
    return (np.frombuffer(chunk, np.uint16).astype(np.uint32) << 16).view(np.float32)


def _from_f32(rows: np.ndarray, dtype: str) -> np.ndarray:
    """As dtype has it, rounded to nearest, ties to even."""
    if dtype == "f32":
        return rows
    if dtype == "f16":
        return rows.astype(np.float16)
    bits = np.ascontiguousarray(rows).view(np.uint32)
    rounded = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(np.uint16)
    return np.where(np.isnan(rows), ((bits >> 16) | 0x40).astype(np.uint16), rounded)


class ChunkCodec:
    """Turns chunks into values and back. Any number of threads may use one; each has a cache of its own.

    >>> codec = ChunkCodec(num_layers=2, num_kv_heads=1, head_dim=32, plan="q8_0", dtype="f16")
    >>> chunk = np.ones((2, 2, 64, 32), np.float16).tobytes()
    >>> value = codec.encode("a key", memoryview(chunk))
    >>> len(chunk), len(value) < 12000
    (16384, True)
    >>> back = bytearray(len(chunk))
    >>> codec.decode("a key", value, memoryview(back))
    >>> bytes(back) == chunk
    True
    """

    def __init__(
        self,
        num_layers: int = 0,
        num_kv_heads: int = 0,
        head_dim: int = 0,
        plan: str = "q8_0",
        dtype: str = "bf16",
        page_tokens: int = 64,
    ) -> None:
        if dtype not in _ITEM_BYTES:
            raise ValueError(f"dtype: {dtype!r} is none of {', '.join(_ITEM_BYTES)}")
        self._dtype = dtype
        self._page_tokens = page_tokens
        self._shape = None
        self._local = threading.local()
        if not (num_layers or num_kv_heads or head_dim):
            return
        self._shape = varve.Shape(
            num_layers=num_layers, num_kv_heads=num_kv_heads, key_dim=head_dim, page_tokens=page_tokens
        )
        self._dims = (num_layers, num_kv_heads, head_dim)
        # Every page in its last form at once. Rows that are to come back as they were need an open rung that holds them.
        self._plan = f"{plan},open=0,exact=0"
        if "open_rung" not in plan and dtype != "f16":
            self._plan += f",open_rung={dtype}"
        self._cache()  # a plan that cannot work is refused here

    def _cache(self) -> varve.Cache:
        if not hasattr(self._local, "cache"):
            self._local.cache = varve.Cache(self._shape, self._plan, num_threads=1)
        return self._local.cache

    def _tokens_of(self, chunk_bytes: int) -> int:
        """How many tokens a chunk of that size has; 0 if it is not made of whole pages of the shape."""
        if self._shape is None:
            return 0
        layers, heads, dim = self._dims
        row_bytes = 2 * layers * heads * dim * _ITEM_BYTES[self._dtype]
        tokens, rest = divmod(chunk_bytes, row_bytes)
        return tokens if rest == 0 and tokens % self._page_tokens == 0 else 0

    @staticmethod
    def _hash(key: str, kind: int, chunk_bytes: int, body: bytes | memoryview) -> bytes:
        state = hashlib.blake2b(struct.pack("<BQI", kind, chunk_bytes, len(key.encode())), digest_size=16)
        state.update(key.encode())
        state.update(body)
        return state.digest()

    def encode(self, key: str, chunk: memoryview) -> bytes:
        chunk = chunk.cast("B")
        tokens = self._tokens_of(len(chunk))
        kind = _PAGES if tokens else _PLAIN
        body = self._to_pages(chunk, tokens) if tokens else bytes(chunk)
        return _HEADER.pack(_MAGIC, kind, len(chunk), self._hash(key, kind, len(chunk), body)) + body

    def decode(self, key: str, value: bytes, out: memoryview) -> None:
        """Fills `out`; ValueError unless the value is whole, of this key, and of its size."""
        out = out.cast("B")
        if len(value) < _HEADER.size:
            raise ValueError(f"{len(value)} bytes < {_HEADER.size}, a header")
        magic, kind, chunk_bytes, stored_hash = _HEADER.unpack_from(value)
        body = memoryview(value)[_HEADER.size :]
        if magic != _MAGIC or stored_hash != self._hash(key, kind, chunk_bytes, body):
            raise ValueError("the bytes are not those that were stored for this key")
        if chunk_bytes != len(out):
            raise ValueError(f"the chunk has {chunk_bytes} bytes, the buffer {len(out)}")
        if kind == _PLAIN:
            out[:] = body
            return
        tokens = self._tokens_of(chunk_bytes)
        if not tokens:
            raise ValueError("the chunk is of a model of another shape")
        self._from_pages(body, tokens, out)

    def _to_pages(self, chunk: memoryview, tokens: int) -> bytes:
        layers, heads, dim = self._dims
        rows = _to_f32(chunk, self._dtype).reshape(2, layers, tokens, heads, dim)
        cache = self._cache()
        sequence = cache.create_sequence()

        def feed(step: varve.Step, first: int, count: int) -> None:
            for layer in range(layers):
                step.append(layer, sequence, *rows[:, layer, first : first + count])

        try:
            varve.prefill(cache, sequence, tokens, feed)
            cache.wait_for_packing()
            return cache.export_pages(sequence, 0, tokens)
        finally:
            cache.free(sequence)

    def _from_pages(self, image: memoryview, tokens: int, out: memoryview) -> None:
        layers, heads, dim = self._dims
        cache = self._cache()
        sequence = cache.create_sequence()
        try:
            cache.import_pages(sequence, image)
            if cache.next_position(sequence) != tokens:
                raise ValueError(f"the pages have {cache.next_position(sequence)} tokens, not {tokens}")
            size = tokens * heads * dim * _ITEM_BYTES[self._dtype]
            for at, (part, layer) in enumerate((part, layer) for part in "kv" for layer in range(layers)):
                rows = cache.read_rows(sequence, layer, part).transpose(1, 0, 2)
                numbers = np.ascontiguousarray(_from_f32(rows, self._dtype))
                out[at * size : (at + 1) * size] = memoryview(numbers).cast("B")
        finally:
            cache.free(sequence)
