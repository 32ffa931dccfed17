"""Training of codebooks for the pq rungs, by k-means in NumPy.

`varve codebook train` does the same faster, with rotations, for models that the program runs. This one is for rows
that only Python has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from varve._native import Codebook, CodebookGrain, CodebookTable

_POINTS_PER_CENTROID = 256  # more rows do not change centroids much
_CHUNK = 4096  # rows whose distances are computed at once


def _nearest(points: Any, centroids: Any) -> Any:
    """Index of the nearest centroid of every point."""
    import numpy as np

    half_norms = 0.5 * (centroids * centroids).sum(1)
    indices = np.empty(len(points), np.int64)
    for first in range(0, len(points), _CHUNK):
        chunk = points[first : first + _CHUNK]
        indices[first : first + _CHUNK] = (half_norms - chunk @ centroids.T).argmin(1)
    return indices


def _kmeans(points: Any, num_centroids: int, iterations: int, random: Any) -> Any:
    """Lloyd's algorithm. A centroid without points moves to a point that is chosen by chance."""
    import numpy as np

    centroids = points[random.choice(len(points), num_centroids, replace=len(points) < num_centroids)].copy()
    for _ in range(iterations):
        indices = _nearest(points, centroids)
        counts = np.bincount(indices, minlength=num_centroids)
        for channel in range(points.shape[1]):
            sums = np.bincount(indices, weights=points[:, channel], minlength=num_centroids)
            centroids[:, channel] = sums / np.maximum(counts, 1)
        empty = np.flatnonzero(counts == 0)
        centroids[empty] = points[random.choice(len(points), len(empty))]
    return centroids


def _as_bytes(centroids: Any) -> tuple[float, Any]:
    """A scale, and centroids as bytes 1 … 255 around 128, [channel, centroid]."""
    import numpy as np

    scale = max(float(np.abs(centroids).max()) / 127.0, 1e-16)
    codes = np.clip(np.rint(centroids / scale) + 128, 1, 255).astype(np.uint8)
    return scale, np.ascontiguousarray(codes.T)


def _train_table(part: str, rows: Any, size: tuple[int, int], iterations: int, random: Any) -> CodebookTable:
    """Centroids per layer and head; rows [layers, kv_heads, tokens, dim]."""
    import numpy as np

    num_subspaces, bits = size
    layers, heads, _, dim = rows.shape
    if num_subspaces < 1 or dim % num_subspaces:
        raise ValueError(f"{part}: {num_subspaces} codes do not divide a head_dim of {dim}; choose a divisor of it")
    sub_dim = dim // num_subspaces
    scales = np.empty((layers * heads, num_subspaces), np.float32)
    centroids = np.empty((layers * heads, num_subspaces, sub_dim, 1 << bits), np.uint8)
    for group in range(layers * heads):
        points = np.asarray(rows[group // heads, group % heads], np.float32)
        keep = min(len(points), _POINTS_PER_CENTROID << bits)
        points = points[random.choice(len(points), keep, replace=False)]
        norms = np.linalg.norm(points, axis=1, keepdims=True)
        points = points / np.where(norms > 0, norms, 1)  # centroids are of rows of length 1
        for m in range(num_subspaces):
            piece = np.ascontiguousarray(points[:, m * sub_dim : (m + 1) * sub_dim])
            scales[group, m], centroids[group, m] = _as_bytes(_kmeans(piece, 1 << bits, iterations, random))
    return CodebookTable(
        part=part,
        dim=dim,
        num_subspaces=num_subspaces,
        bits=bits,
        grain=CodebookGrain.HEAD,
        scales=scales.tobytes(),
        centroids=centroids.tobytes(),
    )


def train_codebook(
    keys: Any,
    values: Any,
    *,
    k: Sequence[int],
    v: Sequence[int],
    iterations: int = 12,
    seed: int = 1,
    model_name: str = "",
    model_fingerprint: int = 0,
) -> Codebook:
    """A codebook for the rungs pqMxB, from rows that a model has made (keys after RoPE).

    keys, values: [layers, kv_heads, tokens, dim]. k and v are (M, B): M codes of B bits a row, 4 … 12. Centroids are
    per layer and head. Needs some 40 rows for each of the 2^B centroids to be good.

    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(1, 2, 512, 32)).astype(np.float32)
    >>> codebook = varve.train_codebook(rows, rows, k=(8, 4), v=(8, 4), iterations=4)
    >>> cache = varve.Cache(varve.Shape(num_layers=1, num_kv_heads=2, key_dim=32), "pq8x4", codebook=codebook)
    """
    import numpy as np

    for name, rows in (("keys", keys), ("values", values)):
        if np.ndim(rows) != 4 or np.shape(rows)[2] == 0:
            raise ValueError(f"{name}: shape {np.shape(rows)} is not [layers, kv_heads, tokens, dim]")
    if np.shape(keys)[:2] != np.shape(values)[:2]:
        raise ValueError(f"keys have layers and heads {np.shape(keys)[:2]}, values {np.shape(values)[:2]}")
    random = np.random.default_rng(seed)
    return Codebook(
        num_layers=np.shape(keys)[0],
        num_kv_heads=np.shape(keys)[1],
        tables=[
            _train_table("k", np.asarray(keys), (k[0], k[1]), iterations, random),
            _train_table("v", np.asarray(values), (v[0], v[1]), iterations, random),
        ],
        model_fingerprint=model_fingerprint,
        model_name=model_name,
        trained_on=f"{np.shape(keys)[2]} tokens, {iterations} iterations, seed {seed}",
    )
