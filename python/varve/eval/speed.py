"""Decoding speed and memory behind a long text, all lanes interleaved: one token each in turn."""

from __future__ import annotations

import time
from typing import Any

import torch
from transformers.cache_utils import Cache

from varve.eval.lanes import Lane


def _read(model: Any, lane: Lane, tokens: list[int]) -> Cache:
    """A cache that has read the tokens."""
    cache = lane.make()
    lane.read_prompt(model, cache, torch.tensor([tokens]))
    return cache


def _hand_over(model: Any, reader: Lane, source: Cache, lane: Lane) -> Cache:
    """A cache with the rows of another: prefill is the same for all, so it is computed once."""
    reader.select(model)  # not varve attention, which wants queries with the rows
    cache = lane.make()
    for layer in range(len(source.layers)):
        cache.update(source.layers[layer].keys, source.layers[layer].values, layer)
    return cache


@torch.no_grad()
def measure_decode(model: Any, lanes: list[Lane], tokens: list[int], steps: int) -> dict[str, dict[str, float]]:
    """By lane: tokens a second of decoding behind `tokens`, and bytes of the cache at the end.

    The first lane reads the text and hands its exact rows to the others. Lanes that drop rows read it themselves; all do where
    layers of the first one have dropped what has left their windows.
    """
    before = model.config._attn_implementation
    first = _read(model, lanes[0], tokens)
    slides = any(getattr(layer, "is_sliding", False) for layer in first.layers)
    caches = [first] + [
        _read(model, lane, tokens) if slides or lane.needs_prompt else _hand_over(model, lanes[0], first, lane)
        for lane in lanes[1:]
    ]
    seconds = [0.0] * len(lanes)
    text = torch.tensor([tokens + [tokens[-1]] * (steps + 1)])
    for step in range(steps + 1):
        for index, (lane, cache) in enumerate(zip(lanes, caches)):
            lane.select(model)
            started = time.perf_counter()
            lane.read(model, cache, text, len(tokens) + step, len(tokens) + step + 1)
            if step > 0:  # the first one makes work buffers
                seconds[index] += time.perf_counter() - started
    model.set_attn_implementation(before)
    return {
        lane.name: {"decode_tokens_per_s": steps / spent, "decode_bytes": lane.bytes_of(cache)}
        for lane, cache, spent in zip(lanes, caches, seconds)
    }
