"""The connector: LMCache submits batches, threads work on them, and a file descriptor says when one is done."""

from __future__ import annotations

import itertools
import os
import queue
import threading
from collections.abc import Callable, Sequence

from varve.lmcache.codec import ChunkCodec
from varve.lmcache.stores import open_store

_Completion = tuple[int, bool, str, "list[bool] | None"]


class VarveConnector:
    """What LMCache's `native_plugin` adapter asks of a connector.

    Each submit_… gives a number at once. When the batch is done, event_fd becomes readable and drain_completions has
    (number, ok, error, one bool per key). A value that is missing, damaged or of another size is False for its key, and
    its buffer is not to be used; what is broken behind the store never raises here. Buffers must stay as they are until
    their batch is done, as LMCache keeps them.

    store is a folder, with at most max_bytes in it, or redis://[[USER]:PASSWORD@]HOST[:PORT]. The shape, plan and dtype
    are those of ChunkCodec.
    """

    def __init__(
        self,
        store: str,
        num_layers: int = 0,
        num_kv_heads: int = 0,
        head_dim: int = 0,
        plan: str = "q8_0",
        dtype: str = "bf16",
        page_tokens: int = 64,
        num_workers: int = 4,
        max_bytes: int = 0,
        prefix: str = "varve-lm",
        ttl: int = 0,
        timeout: float = 1,
    ) -> None:
        if num_workers < 1:
            raise ValueError(f"num_workers {num_workers} < 1")
        self._codec = ChunkCodec(num_layers, num_kv_heads, head_dim, plan, dtype, page_tokens)
        self._store = open_store(store, max_bytes, prefix, ttl, timeout)
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._numbers = itertools.count(1)
        self._jobs: queue.SimpleQueue[tuple[int, Callable[[], list[bool]], int] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # of what follows
        self._completions: list[_Completion] = []
        self._closed = False
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(num_workers)]
        for thread in self._threads:
            thread.start()

    def event_fd(self) -> int:
        return self._fd

    def submit_batch_get(self, keys: Sequence[str], buffers: Sequence[memoryview]) -> int:
        return self._submit(lambda: self._get(keys, buffers), len(keys))

    def submit_batch_set(self, keys: Sequence[str], buffers: Sequence[memoryview]) -> int:
        return self._submit(lambda: self._set(keys, buffers), len(keys))

    def submit_batch_exists(self, keys: Sequence[str]) -> int:
        return self._submit(lambda: self._store.has(keys), len(keys))

    def submit_batch_delete(self, keys: Sequence[str]) -> int:
        return self._submit(lambda: self._store.remove(keys), len(keys))

    def drain_completions(self) -> list[_Completion]:
        try:
            os.eventfd_read(self._fd)
        except BlockingIOError:
            return []
        with self._lock:
            completions, self._completions = self._completions, []
        return completions

    def close(self) -> None:
        """Waits for the batches that were submitted."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._store.close()
        os.close(self._fd)

    def _submit(self, job: Callable[[], list[bool]], num_keys: int) -> int:
        number = next(self._numbers)
        self._jobs.put((number, job, num_keys))
        return number

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            number, work, num_keys = job
            try:
                results, error = work(), ""
            except Exception as failure:  # whatever it is, LMCache must hear of it
                results, error = [False] * num_keys, f"{type(failure).__name__}: {failure}"
            with self._lock:
                self._completions.append((number, not error, error, results))
            os.eventfd_write(self._fd, 1)

    def _get(self, keys: Sequence[str], buffers: Sequence[memoryview]) -> list[bool]:
        results = []
        for key, value, buffer in zip(keys, self._store.get(keys), buffers, strict=True):
            results.append(value is not None)
            if value is None:
                continue
            try:
                self._codec.decode(key, value, buffer)
            except (ValueError, RuntimeError):
                results[-1] = False
                self._store.remove([key])
        return results

    def _set(self, keys: Sequence[str], buffers: Sequence[memoryview]) -> list[bool]:
        values = [self._codec.encode(key, buffer) for key, buffer in zip(keys, buffers, strict=True)]
        stored = self._store.put(keys, values)
        if not all(stored):
            raise OSError(f"{stored.count(False)} of {len(keys)} values were refused")
        return stored
