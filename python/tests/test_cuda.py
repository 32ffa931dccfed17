"""Caches on a GPU: the same rows go to one on the CPU, and both agree."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from feed import attention
from gpu import EMULATED, DeviceArray, need_gpu, to_gpu, to_host

import varve

need_gpu()

SHAPE = varve.Shape(num_layers=2, num_kv_heads=2, key_dim=64, group_size=3)
PLANS = ["f16", "bf16,open_rung=bf16", "q8_0", "q4_0,exact=0", "t4,exact=0", "t3", "k=q8_0,v=t4", "age=f16:64/q8_0:128/t4,exact=0"]


def make_rows(num_tokens, seed=0, heads=2, dtype=np.float16):
    return np.random.default_rng(seed).normal(size=(num_tokens, heads, 64)).astype(dtype)


def bits_of(array):
    """bfloat16, cut off."""
    return (array.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def feed(cache, sequence, num_tokens, seed=0, place=lambda array: array, steps=(70, 1, 40), dtype=np.float16, attend=True):
    """The outputs of every layer, for steps of these lengths in turn."""
    outputs = []
    first = turn = 0
    while first < num_tokens:
        count = min(steps[turn % len(steps)], num_tokens - first)
        with cache.step(sequence, count) as step:
            for layer in range(SHAPE.num_layers):
                keys, values = make_rows(count, seed + first, dtype=dtype), make_rows(count, seed + first + 1000, dtype=dtype)
                queries = place(make_rows(count, seed + first + 2000, heads=6, dtype=dtype))
                out = place(np.zeros((count, 6, 64), dtype))
                step.append(layer, sequence, place(keys), place(values))
                if attend:
                    step.attend(layer, sequence, queries, out)
                    outputs.append(out)
        first, turn = first + count, turn + 1
    return [o if isinstance(o, np.ndarray) else to_host(o) for o in outputs]


def make_pair(plan):
    """A cache on the CPU and one on the GPU, each with an empty sequence."""
    caches = [varve.Cache(SHAPE, plan, num_threads=1), varve.Cache(SHAPE, plan, device="cuda:0", num_threads=1)]
    return caches, [cache.create_sequence() for cache in caches]


@pytest.mark.parametrize("plan", PLANS)
def test_outputs_are_those_of_the_cpu(plan):
    (cpu, gpu), (a, b) = make_pair(plan)
    expected, found = feed(cpu, a, 270), feed(gpu, b, 270, place=to_gpu)
    for host, device in zip(expected, found):
        np.testing.assert_allclose(device, host.astype(np.float32), atol=0.04)
        assert np.abs(device - host).mean() < 0.004
    for part in "kv":
        np.testing.assert_array_equal(gpu.read_rows(b, 1, part), cpu.read_rows(a, 1, part))
    assert gpu.device == "cuda:0" and cpu.device == "cpu"
    assert gpu.stats()["rungs"] == cpu.stats()["rungs"]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint16])
def test_every_type_of_numbers(dtype):
    keys, values, queries = make_rows(70, 1), make_rows(70, 2), make_rows(70, 3, heads=6)
    if dtype == np.uint16:
        keys, values, queries = (bits_of(x) for x in (keys, values, queries))
    else:
        keys, values, queries = (x.astype(dtype) for x in (keys, values, queries))
    cache = varve.Cache(SHAPE, "f16", device="cuda")
    sequence = cache.create_sequence()
    out = to_gpu(np.zeros(queries.shape, dtype))
    with cache.step(sequence, 70) as step:
        for layer in range(2):
            step.append(layer, sequence, to_gpu(keys), to_gpu(values))
            step.attend(layer, sequence, to_gpu(queries), out)
    expected = attention(*(to_host(to_gpu(x)) for x in (keys, values, queries)))
    np.testing.assert_allclose(to_host(out), expected, atol=0.03 if dtype == np.uint16 else 0.01)


def test_arrays_of_the_host_go_to_the_gpu_and_back():
    (cpu, gpu), (a, b) = make_pair("q8_0")
    for host, device in zip(feed(cpu, a, 130, dtype=np.float32), feed(gpu, b, 130, dtype=np.float32)):
        np.testing.assert_allclose(device, host, atol=0.01)


@pytest.mark.parametrize("joint", [False, True])
def test_batches_with_padding_and_strides_of_every_kind(joint):
    """Keys [batch, heads, tokens, dim] lie by tokens, values by heads: both as they come."""
    (cpu, gpu), _ = make_pair("q8_0,exact=0")
    random = np.random.default_rng(4)
    shape = (3, 2, 50, 64)
    keys = random.normal(size=(3, 50, 2, 64)).astype(np.float16).transpose(0, 2, 1, 3)
    values = random.normal(size=shape).astype(np.float16)
    queries = random.normal(size=(3, 50, 6, 64)).astype(np.float16).transpose(0, 2, 1, 3)
    starts, counts = [0, 7, 20], [50, 40, 1]
    results = []
    for cache, place in ((cpu, np.asarray), (gpu, to_gpu)):
        sequences = [cache.create_sequence() for _ in range(3)]
        out = place(np.full((3, 50, 6, 64), 7, np.float16))
        with cache.step(list(zip(sequences, counts))) as step:
            for layer in range(2):
                tensors = [place(x) for x in (keys, values, queries)]
                if joint:
                    step.append_attend_batch(layer, sequences, *tensors, out, starts, counts)
                else:
                    step.append_batch(layer, sequences, *tensors[:2], starts, counts)
                    step.attend_batch(layer, sequences, tensors[2], out, starts, counts)
        results.append(out if isinstance(out, np.ndarray) else to_host(out))
        assert [cache.next_position(s) for s in sequences] == counts
    np.testing.assert_allclose(results[1], results[0].astype(np.float32), atol=0.02)
    assert (results[1][1, :7] == 7).all() and (results[1][2, 21:] == 7).all(), "padding is left as it is"


def test_single_tokens_of_a_batch_lie_side_by_side():
    (cpu, gpu), _ = make_pair("t4")
    results = []
    for cache, place in ((cpu, np.asarray), (gpu, to_gpu)):
        sequences = [cache.create_sequence() for _ in range(4)]
        for i, sequence in enumerate(sequences):
            feed(cache, sequence, 80 + i, seed=i, attend=False)
        random = np.random.default_rng(9)
        keys, values = random.normal(size=(2, 4, 2, 1, 64)).astype(np.float16)
        queries = random.normal(size=(4, 6, 1, 64)).astype(np.float16)
        out = place(np.zeros((4, 1, 6, 64), np.float16))
        with cache.step([(s, 1) for s in sequences]) as step:
            for layer in range(2):
                step.append_attend_batch(layer, sequences, place(keys), place(values), place(queries), out, [0] * 4, [1] * 4)
        results.append(out if isinstance(out, np.ndarray) else to_host(out))
    np.testing.assert_allclose(results[1], results[0].astype(np.float32), atol=0.02)


@pytest.mark.parametrize("home", [0, 1])
def test_files_and_pages_move_between_devices(tmp_path, home):
    caches, ids = make_pair("q8_0,exact=0")
    path = str(tmp_path / "cache.varve")
    source, target = caches[home], caches[1 - home]
    feed(source, ids[home], 300, attend=False)
    child = source.fork(ids[home])
    source.truncate(child, 130)
    source.save(path, {ids[home]: [1, 2], child: []})
    (first, tokens), (second, _) = target.load(path)
    assert tokens == [1, 2] and target.next_position(second) == 130
    for part in "kv":
        for old, new in ((ids[home], first), (child, second)):
            np.testing.assert_array_equal(target.read_rows(new, 1, part), source.read_rows(old, 1, part))
    fresh = target.create_sequence()
    target.import_pages(fresh, source.export_pages(ids[home], 0, 128))
    np.testing.assert_array_equal(target.read_rows(fresh, 0, "k"), source.read_rows(ids[home], 0, "k", 0, 128))


def test_memory_grows_up_to_a_cap_that_the_error_names():
    cache = varve.Cache(SHAPE, "f16", device="cuda", max_bytes=8 << 20, device_chunk_bytes=2 << 20)
    sequence = cache.create_sequence()
    with pytest.raises(varve.Error, match="max_bytes 8388608") as caught:
        feed(cache, sequence, 20000, place=to_gpu, steps=(500,), attend=False)
    assert caught.value.code == "out of memory"
    held = cache.stats()["bytes_held"]
    assert 6 << 20 < held <= 8 << 20
    cache.free(sequence)
    assert cache.stats()["bytes_held"] < held / 4
    feed(cache, cache.create_sequence(), 1000, place=to_gpu, attend=False)


def test_policies_hear_of_the_mass():
    (cpu, gpu), (a, b) = make_pair("evict=h2o,ratio=2,sink=64,recent=64,trigger=128,every=32")
    feed(cpu, a, 352, steps=(32,)), feed(gpu, b, 352, steps=(32,), place=to_gpu)
    assert gpu.stats()["pages_dropped"] == cpu.stats()["pages_dropped"] > 0


@pytest.mark.parametrize(
    ("plan", "options", "message"),
    [
        ("pack=store", {}, "pack= works on the CPU alone; leave it out"),
        ("f32", {}, "rung f32 has no kernels"),
        ("q8_0", dict(pool=varve.PagePool()), "pool is not null"),
        ("q8_0", dict(device="cuda:77"), "device 77 of"),
    ],
)
def test_what_a_gpu_cannot_do_is_refused_by_name(plan, options, message):
    with pytest.raises(varve.Error, match=message):
        varve.Cache(SHAPE, plan, **(dict(device="cuda") | options))


def test_tensors_of_another_gpu_are_refused():
    cache = varve.Cache(SHAPE, device="cuda:0")
    sequence = cache.create_sequence()
    with pytest.raises(varve.Error, match=r'keys: the tensor is on cuda:1, the cache on cuda:0; use .to\("cuda:0"\)'):
        with cache.step(sequence, 4) as step:
            step.append(0, sequence, DeviceArray(make_rows(4), index=1), make_rows(4))
    with pytest.raises(varve.Error, match="out: is in the memory of the CPU, but queries is on the GPU"):
        with cache.step(sequence, 4) as step:
            step.append(0, sequence, to_gpu(make_rows(4)), to_gpu(make_rows(4)))
            step.attend(0, sequence, to_gpu(make_rows(4, heads=6)), make_rows(4, heads=6))
    assert cache.next_position(sequence) == 0


@pytest.mark.skipif(not EMULATED, reason="a stream that is none would be used")
def test_libraries_that_do_not_tell_their_stream_are_asked_to_wait():
    for given, named in ((0, 1), (1, 1), (77, 77)):
        cache = varve.Cache(SHAPE, device="cuda", stream=given)
        sequence = cache.create_sequence()
        keys = DeviceArray(make_rows(4))
        with cache.step(sequence, 4) as step:
            for layer in range(2):
                step.append(layer, sequence, keys, keys)
        assert keys.streams == [named] * 4


class TorchArray(DeviceArray):
    """Its library tells the stream that it works on, as torch does."""

    __module__ = "torch"


class InterruptedArray(DeviceArray):
    """While it is read, `meanwhile` happens, as if another thread did it."""

    def __init__(self, array, meanwhile):
        super().__init__(array)
        self.meanwhile = meanwhile

    def __dlpack__(self, stream=None):
        capsule = super().__dlpack__(stream)
        self.meanwhile()
        return capsule


@pytest.mark.skipif(not EMULATED, reason="streams that are none would be used")
def test_work_goes_to_the_stream_of_its_tensors_whoever_else_works(monkeypatch):
    current = [200]
    cuda = SimpleNamespace(
        is_available=lambda: True, current_device=lambda: 0, current_stream=lambda index: SimpleNamespace(cuda_stream=current[-1])
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    cache = varve.Cache(SHAPE, device="cuda")
    sequence, other = cache.create_sequence(), cache.create_sequence()
    feed(cache, other, 70, place=TorchArray, attend=False)

    def work_elsewhere():
        current.append(300)
        cache.attend(0, other, TorchArray(make_rows(1, heads=6)), TorchArray(make_rows(1, heads=6)))
        current.pop()

    with cache.step(sequence, 4) as step:
        step.append(0, sequence, TorchArray(make_rows(4)), InterruptedArray(make_rows(4), work_elsewhere))
        asked = DeviceArray(make_rows(4))
        step.append(1, sequence, asked, asked)
    assert asked.streams == [200, 200]


@pytest.mark.skipif(EMULATED, reason="an emulated GPU has no streams")
def test_work_goes_to_the_current_stream_of_torch():
    import torch

    cache = varve.Cache(SHAPE, "q8_0", device="cuda")
    sequence = cache.create_sequence()
    (cpu, _), (a, _) = make_pair("q8_0")
    expected = feed(cpu, a, 600, steps=(200,))
    found = []
    streams = [torch.cuda.Stream(), torch.cuda.current_stream(), torch.cuda.Stream()]
    for turn, stream in enumerate(streams):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), cache.step(sequence, 200) as step:
            for layer in range(2):
                first = 200 * turn
                rows = [to_gpu(make_rows(200, first + offset, heads)) for offset, heads in ((0, 2), (1000, 2), (2000, 6))]
                torch.cuda._sleep(20_000_000)  # what comes late must still be waited for
                late = [x.clone() for x in rows]
                step.append(layer, sequence, *late[:2])
                found.append(step.attend(layer, sequence, late[2]).float().cpu().numpy())
    for host, device in zip(expected, found):
        np.testing.assert_allclose(device, host.astype(np.float32), atol=0.03)
