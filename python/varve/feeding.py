"""Feeding inputs that are longer than a step."""

from __future__ import annotations

from collections.abc import Callable

from varve._native import Cache, Step


def prefill(cache: Cache, sequence: int, num_tokens: int, layers: Callable[[Step, int, int], None]) -> None:
    """Feeds num_tokens tokens in as few steps as `Cache.max_step_tokens` allows.

    Calls layers(step, first, count) for each: it appends the tokens [first, first + count) of the input to every
    layer, and attends if it wants outputs. If it raises, steps before stay committed. The prompt has not ended: see
    `Cache.end_prompt`.

    >>> import numpy as np
    >>> cache = varve.Cache(varve.Shape(num_layers=1, num_kv_heads=1, key_dim=32), "q8_0")
    >>> sequence = cache.create_sequence()
    >>> rows = np.zeros((5000, 1, 32), np.float16)
    >>> def layers(step, first, count):
    ...     step.append(0, sequence, rows[first:first + count], rows[first:first + count])
    >>> varve.prefill(cache, sequence, 5000, layers)
    >>> cache.next_position(sequence)
    5000
    """
    first = 0
    while first < num_tokens:
        count = min(cache.max_step_tokens(sequence), num_tokens - first)
        with cache.step(sequence, count) as step:
            layers(step, first, count)
        first += count
