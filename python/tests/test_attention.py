import numpy as np
import pytest

import varve
from feed import SHAPE, attention, feed, make_cache, make_rows

EXACT = "f32,open_rung=f32"


@pytest.mark.parametrize("tokens", [1, 63, 64, 65, 300])
def test_prefill_is_causal_attention(tokens):
    cache = make_cache(EXACT)
    keys, values, queries, outputs = feed(cache, cache.create_sequence(), tokens)
    np.testing.assert_allclose(outputs, attention(keys, values, queries), atol=2e-6)


@pytest.mark.parametrize(
    "options", [dict(scale=0.3), dict(soft_cap=2.0), dict(window=17), dict(causal=False)], ids=lambda o: list(o)[0]
)
def test_options_of_attention(options):
    cache = make_cache(EXACT)
    sequence = cache.create_sequence()
    keys, values, _, _ = feed(cache, sequence, 100)
    queries = make_rows(3, 9, heads=6)
    outputs = cache.attend(1, sequence, queries, **options)
    np.testing.assert_allclose(outputs, attention(keys, values, queries, first=97, **options), atol=2e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint16], ids=["f32", "f16", "bf16"])
def test_types_in_and_out(dtype):
    def typed(rows):
        return (rows.view(np.uint32) >> 16).astype(np.uint16) if dtype is np.uint16 else rows.astype(dtype)

    def back(rows):
        return (rows.astype(np.uint32) << 16).view(np.float32) if dtype is np.uint16 else rows.astype(np.float32)

    keys, values, queries = (typed(make_rows(20, seed, heads)) for seed, heads in ((0, 2), (1, 2), (2, 6)))
    cache = make_cache(EXACT)
    sequence = cache.create_sequence()
    with cache.step(sequence, 20) as step:
        for layer in range(2):
            step.append(layer, sequence, keys, values)
        outputs = step.attend(0, sequence, queries)
    assert outputs.dtype == dtype
    expected = attention(back(keys), back(values), back(queries))
    np.testing.assert_allclose(back(outputs), expected, atol={np.float32: 2e-6, np.float16: 1e-3, np.uint16: 2e-2}[dtype])
    np.testing.assert_array_equal(cache.read_rows(sequence, 1, "k"), back(keys).transpose(1, 0, 2))


def test_strided_arrays_are_read_in_place():
    """Rows of a bigger array, heads before tokens: the layout of torch models."""
    base = make_rows(2 * 40, heads=1).reshape(2, 40, 64)
    keys = base[:, 5:25].transpose(1, 0, 2)
    assert not keys.flags.c_contiguous
    cache = make_cache(EXACT)
    sequence = cache.create_sequence()
    with cache.step(sequence, 20) as step:
        for layer in range(2):
            step.append(layer, sequence, keys, keys)
    np.testing.assert_array_equal(cache.read_rows(sequence, 0, "v"), base[:, 5:25])


def test_queries_without_dimensions_are_refused():
    cache = make_cache(EXACT)
    sequence = cache.create_sequence()
    feed(cache, sequence, 4)
    for queries in (np.zeros((), np.float32), np.zeros(64, np.float32)):
        with pytest.raises(varve.Error, match=r"queries: shape \[(64)?\] is not \[any, 6, 64\], which is \[queries, query heads"):
            cache.attend(0, sequence, queries)
        with pytest.raises(varve.Error, match=r"queries: shape \[(64)?\] is not \[any, 6, 64\], which is \[queries, query heads"):
            with cache.step(sequence) as step:
                step.attend(0, sequence, queries)
    assert cache.next_position(sequence) == 4


def test_read_only_rows_are_fine_and_read_only_outputs_are_not():
    cache = make_cache(EXACT)
    sequence = cache.create_sequence()
    keys, queries = make_rows(4), make_rows(4, heads=6)
    output = np.empty_like(queries)
    for array in (keys, queries, output):
        array.flags.writeable = False
    with cache.step(sequence, 4) as step:
        for layer in range(2):
            step.append(layer, sequence, keys, keys)
        step.attend(0, sequence, queries)
    with pytest.raises(ValueError, match="read-only"):
        cache.attend(0, sequence, queries, output)


def test_a_batch_is_its_rows_one_by_one():
    """Left and right padding, and a row without tokens, in the layout of transformers."""
    starts, counts = [3, 0, 0, 0], [7, 10, 0, 6]
    rows = [make_rows(4 * 10, seed, heads=1).reshape(4, 1, 10, 64).repeat(2, 1) for seed in (0, 1)]
    queries = make_rows(4 * 10, 2, heads=6).reshape(4, 10, 6, 64)
    batch = make_cache(EXACT)
    sequences = [batch.create_sequence() for _ in starts]
    outputs = np.full_like(queries, 7.0)
    with batch.step([(s, c) for s, c in zip(sequences, counts) if c]) as step:
        for layer in range(2):
            step.append_batch(layer, sequences, *rows, starts, counts)
            step.attend_batch(layer, sequences, queries.transpose(0, 2, 1, 3), outputs, starts, counts)
    for b, (start, count) in enumerate(zip(starts, counts)):
        span = slice(start, start + count)
        keys, values = (r[b, :, span].transpose(1, 0, 2) for r in rows)
        expected = np.full_like(queries[b], 7.0)
        if count:
            expected[span] = attention(keys, values, queries[b, span])
        np.testing.assert_allclose(outputs[b], expected, atol=2e-6)
        assert batch.next_position(sequences[b]) == count


@pytest.mark.parametrize("plan", ["q8_0", "t4,exact=0", "k=q8_0,v=t3,exact=0", "age=f16:64/q8_0:128/q4_0r,exact=0"])
def test_attention_is_that_of_the_decoded_rows(plan):
    cache = make_cache(plan)
    sequence = cache.create_sequence()
    keys, _, _, _ = feed(cache, sequence, 400)
    decoded = [cache.read_rows(sequence, 1, part).transpose(1, 0, 2) for part in "kv"]
    queries = make_rows(1, 9, heads=6)
    np.testing.assert_allclose(
        cache.attend(1, sequence, queries), attention(*decoded, queries, first=399), atol=2e-2
    )
    error = np.abs(decoded[0] - keys).mean()
    assert 1e-4 < error < 0.2, "lossy, and not by much"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (np.zeros((4, 2, 64)), "type 'd' has no rung; use float32"),
        (np.zeros((4, 3, 64), np.float32), r"keys: shape \[4, 3, 64\] is not \[any, 2, 64\]"),
        (np.zeros((4, 2, 128), np.float32)[:, :, ::2], "last dimension has a stride of 2"),
        (np.broadcast_to(np.zeros((1, 2, 64), np.float32), (4, 2, 64)), "repeated by a stride of 0"),
        ([[1.0]], "pass a NumPy array or a torch tensor"),
        (np.zeros((3, 2, 64), np.float32), "3"),
    ],
)
def test_rows_that_do_not_fit_are_refused_by_name(keys, message):
    cache = make_cache()
    sequence = cache.create_sequence()
    with pytest.raises(varve.Error, match=message):
        with cache.step(sequence, 4) as step:
            step.append(0, sequence, keys, make_rows(4))
    assert cache.next_position(sequence) == 0
    assert SHAPE["num_kv_heads"] == 2
