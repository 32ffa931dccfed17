"""The connector for LMCache, by the contract of its native_plugin adapter; with LMCache itself where that is installed."""

import os
import select
import shutil
import socket
import subprocess
import time

import numpy as np
import pytest

from varve.lmcache import ChunkCodec, FolderStore, RedisStore, VarveConnector

LAYERS, TOKENS, HEADS, DIM = 3, 128, 2, 64
SHAPE = {"num_layers": LAYERS, "num_kv_heads": HEADS, "head_dim": DIM}


def chunk_of(seed, dtype="bf16"):
    rows = np.random.default_rng(seed).standard_normal((2, LAYERS, TOKENS, HEADS * DIM), np.float32)
    if dtype == "bf16":
        return (rows.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    return rows.astype({"f16": np.float16, "f32": np.float32}[dtype]).tobytes()


def numbers_in(chunk, dtype="bf16"):
    if dtype == "bf16":
        return (np.frombuffer(chunk, np.uint16).astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(chunk, {"f16": np.float16, "f32": np.float32}[dtype]).astype(np.float32)


def wait_for(connector, number):
    """The completion of one batch, as LMCache waits for it."""
    poller = select.poll()
    poller.register(connector.event_fd(), select.POLLIN)
    limit = time.monotonic() + 20
    while time.monotonic() < limit:
        if not poller.poll(500):
            continue
        for completion in connector.drain_completions():
            assert completion[0] == number
            return completion[1:]
    raise AssertionError("no completion")


def set_chunks(connector, keys, chunks):
    return wait_for(connector, connector.submit_batch_set(keys, [memoryview(chunk) for chunk in chunks]))


def get_chunks(connector, keys, size):
    buffers = [bytearray(size) for _ in keys]
    ok, error, found = wait_for(connector, connector.submit_batch_get(keys, [memoryview(b) for b in buffers]))
    return ok, error, [bytes(buffer) if there else None for buffer, there in zip(buffers, found)]


@pytest.fixture
def connector(tmp_path):
    made = VarveConnector(str(tmp_path / "pages"), plan="q8_0", **SHAPE)
    yield made
    made.close()


# --- the codec ---


@pytest.mark.parametrize(("plan", "ratio", "error"), [("q8_0", 1.8, 0.01), ("t4", 3.4, 0.2), ("q4_0", 3.3, 0.2)])
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_a_chunk_is_smaller_and_close(plan, ratio, error, dtype):
    codec = ChunkCodec(plan=plan, dtype=dtype, **SHAPE)
    chunk = chunk_of(1, dtype)
    value = codec.encode("key", memoryview(chunk))
    assert ratio < len(chunk) / len(value) < 1.2 * ratio
    back = bytearray(len(chunk))
    codec.decode("key", value, memoryview(back))
    before, after = numbers_in(chunk, dtype), numbers_in(bytes(back), dtype)
    distance = np.sqrt(np.mean((before - after) ** 2) / np.mean(before**2))
    assert error / 20 < distance < error


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_a_rung_that_holds_the_numbers_gives_them_back(dtype):
    codec = ChunkCodec(plan=dtype, dtype=dtype, **SHAPE)
    chunk = chunk_of(2, dtype)
    back = bytearray(len(chunk))
    codec.decode("key", codec.encode("key", memoryview(chunk)), memoryview(back))
    assert bytes(back) == chunk


def test_bytes_of_no_known_shape_are_kept_as_they_are():
    for codec in (ChunkCodec(), ChunkCodec(plan="t4", **SHAPE)):
        for size in (0, 1, 1000):
            data = os.urandom(size)
            value = codec.encode("key", memoryview(data))
            assert len(value) == size + 32
            back = bytearray(size)
            codec.decode("key", value, memoryview(back))
            assert bytes(back) == data


def test_what_was_changed_is_refused():
    codec = ChunkCodec(plan="q8_0", **SHAPE)
    chunk = chunk_of(3)
    value = codec.encode("key", memoryview(chunk))
    back = memoryview(bytearray(len(chunk)))
    for at in range(0, len(value), 997):
        damaged = bytearray(value)
        damaged[at] ^= 16
        with pytest.raises(ValueError):
            codec.decode("key", bytes(damaged), back)
    for bad, key, out in [
        (value, "another key", back),
        (value[:-1], "key", back),
        (value[:20], "key", back),
        (b"", "key", back),
        (value, "key", back[:-2]),
    ]:
        with pytest.raises(ValueError):
            codec.decode(key, bad, out)


def test_settings_that_cannot_work_are_refused_at_once():
    with pytest.raises(ValueError, match="dtype"):
        ChunkCodec(dtype="int8")
    with pytest.raises((RuntimeError, TypeError)):
        ChunkCodec(plan="q7_9", **SHAPE)
    with pytest.raises(ValueError, match="redis://"):
        VarveConnector("http://x")
    with pytest.raises(ValueError, match="num_workers"):
        VarveConnector("/nowhere", num_workers=0)


# --- the contract ---


def test_batches_go_in_and_come_out(connector):
    keys = [f"model@00000000@0@{i:x}" for i in range(5)]
    chunks = [chunk_of(i) for i in range(5)]
    assert set_chunks(connector, keys, chunks) == (True, "", [True] * 5)
    ok, error, found = wait_for(connector, connector.submit_batch_exists([*keys, "missing"]))
    assert (ok, error, found) == (True, "", [True] * 5 + [False])
    ok, error, got = get_chunks(connector, ["missing", *keys], len(chunks[0]))
    assert ok and error == "" and got[0] is None
    for before, after in zip(chunks, got[1:]):
        assert np.max(np.abs(numbers_in(before) - numbers_in(after))) < 0.05
    assert wait_for(connector, connector.submit_batch_delete([keys[0], "missing"])) == (True, "", [True, False])
    assert wait_for(connector, connector.submit_batch_exists(keys[:2]))[2] == [False, True]


def test_nothing_waits_without_a_reason(connector):
    assert connector.drain_completions() == []
    number = connector.submit_batch_exists([])
    assert wait_for(connector, number) == (True, "", [])


def test_many_batches_at_once_have_one_completion_each(connector):
    chunk = chunk_of(0)
    numbers = {connector.submit_batch_set([f"key {i}"], [memoryview(chunk)]) for i in range(40)}
    done = []
    while len(done) < 40:
        select.select([connector.event_fd()], [], [], 20)
        done += [number for number, ok, _, _ in connector.drain_completions() if ok]
    assert sorted(done) == sorted(numbers)


def test_a_damaged_file_is_a_miss_and_can_be_written_anew(connector, tmp_path):
    chunk = chunk_of(0)
    set_chunks(connector, ["key"], [chunk])
    (path,) = (tmp_path / "pages").iterdir()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert get_chunks(connector, ["key"], len(chunk)) == (True, "", [None])
    set_chunks(connector, ["key"], [chunk])
    assert get_chunks(connector, ["key"], len(chunk))[2] != [None]


def test_closing_twice_is_closing(tmp_path):
    connector = VarveConnector(str(tmp_path))
    connector.submit_batch_set(["key"], [memoryview(b"data")])
    connector.close()
    connector.close()
    assert FolderStore(str(tmp_path)).has(["key"]) == [True]


# --- stores ---


def test_a_folder_keeps_its_budget_and_what_was_used_last(tmp_path):
    store = FolderStore(str(tmp_path), 10_000)
    for i in range(50):
        assert store.put([str(i)], [bytes(999)]) == [True]
        assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 10_000
        store.get(["0"])
    assert store.has(["0", "1", "49"]) == [True, False, True]
    assert store.put(["large"], [bytes(10_001)]) == [False]
    (tmp_path / "left.tmp").write_bytes(b"by a process that died")
    again = FolderStore(str(tmp_path), 10_000)
    assert again.has(["0", "1", "49"]) == [True, False, True]
    assert not (tmp_path / "left.tmp").exists()


@pytest.fixture
def redis():
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--logfile", os.devnull]
    process = subprocess.Popen(command)
    try:
        for _ in range(200):
            try:
                RedisStore(f"redis://127.0.0.1:{port}").has(["ready"])
                break
            except OSError:
                time.sleep(0.02)
        yield f"redis://127.0.0.1:{port}", process
    finally:
        process.kill()
        process.wait()


def test_two_connectors_share_a_redis_and_live_without_it(redis):
    url, process = redis
    chunk = chunk_of(7)
    first, second = (VarveConnector(url, plan="t4", timeout=0.5, **SHAPE) for _ in range(2))
    assert set_chunks(first, ["a", "b"], [chunk, chunk]) == (True, "", [True, True])
    ok, error, got = get_chunks(second, ["a", "missing", "b"], len(chunk))
    assert ok and got[1] is None and got[0] is not None and got[0] == got[2]
    process.kill()
    process.wait()
    begin = time.monotonic()
    for _ in range(5):
        ok, error, got = get_chunks(second, ["a", "b"], len(chunk))
        assert not ok and error and got == [None, None]
        ok, error, _ = set_chunks(first, ["c"], [chunk])
        assert not ok and error
    assert time.monotonic() - begin < 5
    first.close()
    second.close()


# --- LMCache itself ---


def test_lmcache_takes_it_as_a_native_plugin(tmp_path):
    pytest.importorskip("lmcache", reason="LMCache is not installed")
    torch = pytest.importorskip("torch")
    from lmcache.v1.distributed.api import ObjectKey
    from lmcache.v1.distributed.l2_adapters import native_plugin_l2_adapter as plugin

    config = plugin.NativePluginL2AdapterConfig.from_dict(
        {
            "type": "native_plugin",
            "module_path": "varve.lmcache",
            "class_name": "VarveConnector",
            "adapter_params": {"store": str(tmp_path), "plan": "q8_0", **SHAPE},
        }
    )
    adapter = plugin._create_native_plugin_l2_adapter(config)

    class Chunk:
        def __init__(self, data):
            self.data = bytearray(data)
            self.byte_array = memoryview(self.data)

    def wait(fd, ask):
        select.select([fd], [], [], 20)
        os.eventfd_read(fd)
        return ask()

    try:
        keys = [ObjectKey(chunk_hash=bytes([i] * 16), model_name="m", kv_rank=0) for i in range(3)]
        chunks = [chunk_of(i) for i in range(3)]
        task = adapter.submit_store_task(keys[:2], [Chunk(data) for data in chunks[:2]])
        results = wait(adapter.get_store_event_fd(), adapter.pop_completed_store_tasks)
        assert list(results) == [task]
        task = adapter.submit_lookup_and_lock_task(keys, {})
        found = wait(adapter.get_lookup_and_lock_event_fd(), lambda: adapter.query_lookup_and_lock_result(task))
        assert [found.test(i) for i in range(3)] == [True, True, False]
        loaded = [Chunk(bytes(len(chunks[0]))) for _ in range(3)]
        task = adapter.submit_load_task(keys, loaded)
        found = wait(adapter.get_load_event_fd(), lambda: adapter.query_load_result(task))
        assert [found.test(i) for i in range(3)] == [True, True, False]
        before = torch.frombuffer(bytearray(chunks[1]), dtype=torch.bfloat16).float()
        after = torch.frombuffer(loaded[1].data, dtype=torch.bfloat16).float()
        assert torch.max(torch.abs(before - after)) < 0.05
    finally:
        adapter.close()
