"""Lane: one cache that is evaluated, a plan of ours or a cache of transformers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache, QuantizedCache
from transformers.cache_utils import Cache

from varve._native import Error, Plan
from varve.transformers import VarveCache
from varve.transformers.model_plan import drops_rows


@dataclass
class Lane:
    name: str
    attention: str  # implementation of attention that goes with it
    make: Callable[[], Cache]
    # The prompt is half of a window: what drops or folds rows must have seen one.
    needs_prompt: bool = False

    def bytes_of(self, cache: Cache) -> int:
        """Resident bytes of keys and values, with what is needed to find and to decode them."""
        if isinstance(cache, VarveCache):
            stats = cache.stats()
            return stats["bytes_held"] + stats["bytes_tables"]
        return sum(_bytes_of(value, set()) for layer in cache.layers for value in vars(layer).values())


def _bytes_of(value: Any, seen: set[int]) -> int:
    """Bytes of the tensors in a value: plain, in containers, or inside a quantized tensor."""
    if id(value) in seen:
        return 0
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        inner = [getattr(value, name, None) for name in ("_data", "_scale", "_shift")]
        parts = [part for part in inner if isinstance(part, torch.Tensor)]
        if parts:
            return sum(_bytes_of(part, seen) for part in parts)
        return value.numel() * value.element_size()
    if isinstance(value, dict):
        return sum(_bytes_of(part, seen) for part in value.values())
    if isinstance(value, (list, tuple)):
        return sum(_bytes_of(part, seen) for part in value)
    return 0


def _quantized(config: Any, backend: str, bits: int) -> Lane:
    return Lane(f"QuantizedCache {backend} {bits}", "sdpa", lambda: QuantizedCache(backend, config, nbits=bits))


def make_lanes(config: Any, plans: list[str], quantized: list[str] = (), **options: Any) -> list[Lane]:
    """DynamicCache, which is the reference, then plans, then rows of QuantizedCache: "quanto:4", "hqq:2".

    A back end that is not installed is left out, with a line that says so.
    """
    attention = "eager" if getattr(config, "attn_logit_softcapping", None) else "sdpa"
    lanes = [Lane("DynamicCache", attention, lambda: DynamicCache(config=config))]
    for plan in plans:
        VarveCache(config, plan, **options)  # raises now if it cannot run
        lanes.append(
            Lane(plan, "varve", lambda plan=plan: VarveCache(config, plan, **options), bool(drops_rows(Plan(plan))))
        )
    for text in quantized:
        backend, _, bits = text.partition(":")
        lane = _quantized(config, backend, int(bits or 4))
        try:
            lane.make()
        except (ImportError, ValueError) as error:
            print(f"{lane.name}: left out: {error}")
            continue
        lanes.append(lane)
    if len({lane.name for lane in lanes}) != len(lanes):
        raise Error("--kv: a plan stands there twice")
    return lanes
