"""What is said about devices where there is none."""

import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from feed import feed, make_cache, make_rows
from gpu import DeviceArray

import varve


def test_a_tensor_of_a_gpu_for_a_cache_on_the_cpu():
    cache = make_cache()
    sequence = cache.create_sequence()
    with pytest.raises(varve.Error, match=r'keys: the tensor is on cuda:3, .*make the cache with device="cuda:3", or use .cpu\(\)'):
        with cache.step(sequence, 4) as step:
            step.append(0, sequence, DeviceArray(make_rows(4), index=3), make_rows(4))
    assert cache.device == "cpu" and cache.next_position(sequence) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(device="gpu"), "device: 'gpu' is neither 'cpu' nor 'cuda' nor 'cuda:1'"),
        (dict(device="cuda:"), "device: 'cuda:' is neither"),
        (dict(stream=5), 'stream: a cache on the CPU has none; pass device="cuda"'),
        (dict(device="cuda", stream=2), "stream: 2 is another stream in every thread"),
        (dict(device="cuda:77"), "has no CUDA; build where nvcc is|device 77 of"),
    ],
)
def test_devices_that_are_none(options, message):
    with pytest.raises(varve.Error, match=message):
        make_cache(**options)


def test_back_ends_are_those_of_the_build():
    backends = varve.backends()
    assert backends in (["cpu"], ["cpu", "cuda"])
    with pytest.raises(varve.Error) as raised:
        make_cache(device="cuda:77")
    assert ("has no CUDA" in str(raised.value)) == ("cuda" not in backends)
    assert raised.value.code == ("not found" if "cuda" in backends else "unimplemented")
    # What CMake has built (./dev test, ./dev wheel).
    if built := os.environ.get("VARVE_BUILD_CUDA"):
        assert ("cuda" in backends) == (built == "ON")


def test_cuda_is_the_current_gpu_of_torch(monkeypatch):
    asked = []
    cuda = SimpleNamespace(is_available=lambda: True, current_device=lambda: asked.append("cuda") or 77)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    with pytest.raises(varve.Error, match="has no CUDA; build where nvcc is|device 77 of"):
        make_cache(device="cuda")
    assert asked == ["cuda"]


def test_rows_of_a_batch_go_to_the_host():
    cache = make_cache()
    out = DeviceArray(np.zeros((1, 2, 0, 64), np.float32))
    with pytest.raises(varve.Error, match="^out: read_batch decodes on the host; pass an array of the host$"):
        cache.read_batch(0, "k", [cache.create_sequence()], out)


class OnGpu(np.ndarray):
    """Of a library that is not torch, and has no way to make an array like another."""

    def __dlpack_device__(self):
        return 2, 0


def test_an_output_for_queries_on_a_gpu_has_to_be_brought():
    cache = make_cache()
    sequence = cache.create_sequence()
    feed(cache, sequence, 4)
    queries = make_rows(1, heads=6)
    with pytest.raises(varve.Error, match="^out: pass an array of your library on the GPU$"):
        cache.attend(0, sequence, queries.view(OnGpu))
    out = np.empty_like(queries)
    assert cache.attend(0, sequence, queries.view(OnGpu), out) is out
    np.testing.assert_array_equal(out, cache.attend(0, sequence, queries))


def test_rows_and_queries_in_one_call():
    shape = varve.Shape(num_layers=1, num_kv_heads=2, key_dim=64, group_size=3)
    random = np.random.default_rng(3)
    keys, values = random.normal(size=(2, 2, 2, 9, 64)).astype(np.float32)
    queries = random.normal(size=(2, 6, 9, 64)).astype(np.float32)
    outs = []
    for joint in (False, True):
        cache = varve.Cache(shape, "f32,open_rung=f32")
        sequences = [cache.create_sequence() for _ in range(2)]
        out = np.full((2, 9, 6, 64), 7, np.float32)
        spans = ([0, 4], [9, 5])
        with cache.step([(sequences[0], 9), (sequences[1], 5)]) as step:
            if joint:
                step.append_attend_batch(0, sequences, keys, values, queries, out, *spans, 0.1, 30.0, 4)
            else:
                step.append_batch(0, sequences, keys, values, *spans)
                step.attend_batch(0, sequences, queries, out, *spans, scale=0.1, soft_cap=30.0, window=4)
        outs.append(out)
    np.testing.assert_array_equal(*outs)
