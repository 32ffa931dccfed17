"""Rows for tests, and attention in double precision to compare with."""

import numpy as np

import varve

SHAPE = dict(num_layers=2, num_kv_heads=2, key_dim=64, group_size=3)


def make_cache(plan="", **options):
    return varve.Cache(varve.Shape(**SHAPE), plan, **options)


def make_rows(num_tokens, seed=0, heads=2, dim=64, dtype=np.float32):
    return np.random.default_rng(seed).normal(size=(num_tokens, heads, dim)).astype(dtype)


def feed(cache, sequence, num_tokens, seed=0):
    """The same rows in every layer; gives keys, values and the outputs of layer 0 for queries of their own."""
    shape = cache.shape
    keys, values = make_rows(num_tokens, seed), make_rows(num_tokens, seed + 1)
    queries = make_rows(num_tokens, seed + 2, heads=shape.num_kv_heads * shape.group_size)
    outputs = np.empty_like(queries)

    def layers(step, first, count):
        span = slice(first, first + count)
        for layer in range(shape.num_layers):
            step.append(layer, sequence, keys[span], values[span])
            step.attend(layer, sequence, queries[span], outputs[span])

    varve.prefill(cache, sequence, num_tokens, layers)
    return keys, values, queries, outputs


def attention(keys, values, queries, first=0, scale=None, soft_cap=0.0, window=0, causal=True):
    """keys [tokens, kv_heads, dim]; query i stands at position first + i."""
    keys, values, queries = (np.asarray(x, np.float64) for x in (keys, values, queries))
    group = queries.shape[1] // keys.shape[1]
    scores = np.einsum("qhd,khd->hqk", queries, keys.repeat(group, 1))
    scores *= keys.shape[2] ** -0.5 if scale is None else scale
    if soft_cap:
        scores = soft_cap * np.tanh(scores / soft_cap)
    position = first + np.arange(len(queries))[:, None]
    row = np.arange(len(keys))[None, :]
    hidden = np.zeros((len(queries), len(keys)), bool)
    if causal:
        hidden |= row > position
    if window:
        hidden |= row <= position - window
    scores = np.where(hidden, -np.inf, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("hqk,khd->qhd", weights, values.repeat(group, 1))
