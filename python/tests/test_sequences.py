import threading
import time

import numpy as np
import pytest

import varve
from feed import feed, make_cache, make_rows


def rows_of(cache, sequence):
    return cache.read_rows(sequence, 0, "k")


def test_forks_share_pages_and_part_when_they_grow():
    cache = make_cache("q8_0")
    parent = cache.create_sequence()
    feed(cache, parent, 200)
    before = cache.stats()["pages"]
    child = cache.fork(parent)
    assert cache.stats()["pages"] == before
    feed(cache, child, 10, seed=5)
    assert cache.next_position(parent) == 200 and cache.next_position(child) == 210
    np.testing.assert_array_equal(rows_of(cache, child)[:, :200], rows_of(cache, parent))
    cache.free(parent)
    with pytest.raises(varve.Error) as caught:
        cache.next_position(parent)
    assert caught.value.code == "not found"


def test_positions_can_be_forgotten():
    cache = make_cache("f32,open_rung=f32")
    sequence = cache.create_sequence()
    keys, _, _, _ = feed(cache, sequence, 300)
    cache.truncate(sequence, 250)
    cache.remove_range(sequence, 10, 20)
    cache.keep_only(sequence, 5, 240)
    expected = np.concatenate([keys[5:10], keys[20:240]]).transpose(1, 0, 2)
    np.testing.assert_array_equal(rows_of(cache, sequence), expected)
    np.testing.assert_array_equal(cache.read_rows(sequence, 1, "k", 0, 30), expected[:, :15])
    assert cache.describe(sequence, 0)["live_rows"] == 225
    assert cache.find_cut(sequence, 100) == (100, 100)
    cache.slide_window(sequence, 64)
    assert cache.describe(sequence, 0)["pages"][0].first_position >= 128


def test_a_step_that_raises_is_rolled_back():
    cache = make_cache()
    sequence = cache.create_sequence()
    with pytest.raises(ZeroDivisionError):
        with cache.step(sequence, 4) as step:
            step.append(0, sequence, make_rows(4), make_rows(4))
            1 / 0
    assert cache.next_position(sequence) == 0 and not step.is_open
    with pytest.raises(varve.Error, match="layer"):
        with cache.step(sequence, 4) as step:
            step.append(0, sequence, make_rows(4), make_rows(4))  # and nothing in layer 1
    step = cache.step(sequence, 4)
    with pytest.raises(varve.Error):
        cache.step(sequence, 1)
    del step  # rolls back
    cache.step([(sequence, 1)]).abort()


def test_a_cap_refuses_the_step_and_says_so():
    cache = make_cache("f32,open_rung=f32", max_bytes=1 << 20)
    sequence = cache.create_sequence()
    with pytest.raises(varve.Error) as caught:
        for seed in range(100):
            feed(cache, sequence, 64, seed)
    assert caught.value.code == "out of memory"
    pool = varve.PagePool(1 << 20)
    shared = [make_cache("q8_0", pool=pool) for _ in range(2)]
    feed(shared[0], shared[0].create_sequence(), 100)
    assert 0 < shared[1].stats()["bytes_held"] + pool.bytes_held <= 1 << 20


def test_policies_keep_to_their_budget():
    cache = make_cache("evict=h2o,ratio=2,sink=16,recent=64,trigger=128,page=16")
    sequence = cache.create_sequence()
    feed(cache, sequence, 600)
    properties = cache.properties()
    assert properties["evicted_pages"] > 0
    assert 0.3 < properties["keep_ratio"] < 0.6
    assert cache.property("keep_ratio") == properties["keep_ratio"]
    with pytest.raises(varve.Error, match="no_such_name"):
        cache.property("no_such_name")


def test_packing_keeps_rows_and_saves_bytes():
    plain, packed = make_cache("bf16,open_rung=bf16"), make_cache("bf16,open_rung=bf16,pack=store,hot=0/64")
    sequences = [cache.create_sequence() for cache in (plain, packed)]
    for cache, sequence in zip((plain, packed), sequences):
        feed(cache, sequence, 1000)
    packed.wait_for_packing()
    assert packed.stats()["bytes_used"] < plain.stats()["bytes_used"]
    assert packed.property("kv_content_consistency_pass") == 1
    np.testing.assert_array_equal(rows_of(plain, sequences[0]), rows_of(packed, sequences[1]))


def test_other_threads_run_while_a_cache_works():
    """Attention of a long prompt, while this thread goes round: with the GIL held, it would stand still for a whole call."""
    cache = make_cache("f32,open_rung=f32", num_threads=1)
    sequence = cache.create_sequence()
    feed(cache, sequence, 4000)
    queries = make_rows(4000, heads=6)
    calls = []

    def work():
        for _ in range(3):
            begin = time.perf_counter()
            cache.attend(0, sequence, queries)
            calls.append(time.perf_counter() - begin)

    worker = threading.Thread(target=work)
    worker.start()
    longest, before = 0.0, time.perf_counter()
    while worker.is_alive():
        now = time.perf_counter()
        longest, before = max(longest, now - before), now
    assert len(calls) == 3 and longest < min(calls) / 2


def test_threads_take_turns():
    cache = make_cache("q8_0")
    sequences = [cache.create_sequence() for _ in range(4)]
    for sequence in sequences:
        feed(cache, sequence, 200)
    queries = make_rows(50, heads=6)
    expected = [cache.attend(0, sequence, queries) for sequence in sequences]
    results = [None] * 4

    def work(index):
        for _ in range(20):
            results[index] = cache.attend(0, sequences[index], queries)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result, wanted in zip(results, expected):
        np.testing.assert_array_equal(result, wanted)
