"""Lane: one cache that is evaluated, a plan of ours or a cache of transformers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from transformers import DynamicCache, QuantizedCache
from transformers.cache_utils import Cache

from varve._native import Error, Plan

_CHUNK = 512  # tokens of a prompt at once, where the cache may drop some of them on the way


@dataclass
class Lane:
    """A cache of transformers. It reads a prompt at once, as `generate` does."""

    name: str
    attention: str  # implementation of attention that goes with it
    make: Callable[[], Cache]
    # The prompt is half of a window: what drops or folds rows must have seen one.
    needs_prompt: bool = False
    kind: str = "transformers"

    def select(self, model: Any) -> None:
        if model.config._attn_implementation != self.attention:
            model.set_attn_implementation(self.attention)

    @torch.no_grad()
    def read(self, model: Any, cache: Cache, tokens: torch.Tensor, begin: int, end: int, **options: Any) -> torch.Tensor:
        """Logits [end - begin, vocabulary] behind tokens[:, begin:end]; those before are in the cache."""
        self.select(model)
        return model(tokens[:, begin:end], past_key_values=cache, **options).logits[0].float()

    def read_prompt(self, model: Any, cache: Cache, tokens: torch.Tensor) -> None:
        """All of tokens [1, n], which are a prompt, and its end."""
        self.read(model, cache, tokens, 0, tokens.shape[1], logits_to_keep=1)

    def fork(self, cache: Cache) -> Cache:
        """Another cache with the same rows. Layers of transformers never write into tensors that they have, so these are shared."""
        twin = copy.copy(cache)
        twin.layers = [copy.copy(layer) for layer in cache.layers]
        return twin

    def bytes_of(self, cache: Cache) -> int:
        """Resident bytes of keys and values, with what is needed to find and to decode them."""
        seen: set[int] = set()
        return sum(_bytes_of(value, seen) for layer in cache.layers for value in vars(layer).values())


@dataclass
class PlanLane(Lane):
    """A VarveCache. It reads a prompt in steps, so that what a plan drops on the way is missing to what follows."""

    kind: str = "plan"
    rests: bool = False  # whether the prompt is brought to the plan's idle= when it has been read

    def read(self, model: Any, cache: Cache, tokens: torch.Tensor, begin: int, end: int, **options: Any) -> torch.Tensor:
        logits = []
        while begin < end:
            most = cache.native.max_step_tokens(cache.sequences[0]) if cache.sequences else 64
            count = min(end - begin, most)
            logits.append(super().read(model, cache, tokens, begin, begin + count, **options))
            begin += count
        return torch.cat(logits)

    def read_prompt(self, model: Any, cache: Cache, tokens: torch.Tensor) -> None:
        for begin in range(0, tokens.shape[1], _CHUNK):
            self.read(model, cache, tokens, begin, min(begin + _CHUNK, tokens.shape[1]), logits_to_keep=1)
        cache.end_prompt()
        if self.rests:
            for sequence in cache.sequences:
                cache.native.rest(sequence, 0, tokens.shape[1])

    def fork(self, cache: Cache) -> Cache:
        return copy.deepcopy(cache)  # shares pages

    def bytes_of(self, cache: Cache) -> int:
        stats = cache.stats()
        return stats["bytes_held"] + stats["bytes_tables"]


def _bytes_of(value: Any, seen: set[int]) -> int:
    """Bytes of the memory behind the tensors in a value: plain, in containers, or inside a quantized tensor.

    A view keeps all of its memory alive, so all of it counts; what two tensors share counts once.
    """
    if isinstance(value, torch.Tensor):
        inner = [getattr(value, name, None) for name in ("_data", "_scale", "_shift")]
        parts = [part for part in inner if isinstance(part, torch.Tensor)]
        if parts:
            return sum(_bytes_of(part, seen) for part in parts)
        storage = value.untyped_storage()
        if storage.data_ptr() in seen:
            return 0
        seen.add(storage.data_ptr())
        return storage.nbytes()
    if isinstance(value, dict):
        return sum(_bytes_of(part, seen) for part in value.values())
    if isinstance(value, (list, tuple)):
        return sum(_bytes_of(part, seen) for part in value)
    return 0


def _plan_lanes(config: Any, plans: list[str], rest: bool, options: dict[str, Any]) -> list[Lane]:
    try:
        from varve.transformers import VarveCache
        from varve.transformers.model_plan import drops_rows, has_rest
    except ImportError as error:
        raise Error(
            f"plans need transformers 5.16, this is {transformers.__version__}; run them in another environment and join "
            "the rows with --merge"
        ) from error
    lanes: list[Lane] = []
    for plan in plans:
        VarveCache(config, plan, **options)  # raises now if it cannot run
        rests = rest and has_rest(Plan(plan))
        needs_prompt = rests or bool(drops_rows(Plan(plan)))
        lanes.append(
            PlanLane(plan, "varve", lambda plan=plan: VarveCache(config, plan, **options), needs_prompt, rests=rests)
        )
    return lanes


def _quantized_lane(config: Any, text: str) -> Lane:
    backend, _, bits = text.partition(":")
    if not (bits or "4").isdecimal():
        raise ValueError(f"bits must be a number, as in {backend}:4")
    lane = Lane(
        f"QuantizedCache {backend} {bits or 4}", plain_attention(config),
        lambda: QuantizedCache(backend, config, nbits=int(bits or 4)),
    )
    lane.make()  # raises now if the back end is not there
    return lane


def _press_lane(config: Any, text: str) -> Lane:
    from varve.eval.presses import press_lane

    return press_lane(config, text)


def plain_attention(config: Any) -> str:
    """What goes with a cache of transformers. Models whose scores have a cap refuse sdpa."""
    return "eager" if getattr(config, "attn_logit_softcapping", None) else "sdpa"


def make_lanes(
    config: Any, plans: list[str], quantized: list[str] = (), presses: list[str] = (), *, rest: bool = False, **options: Any
) -> list[Lane]:
    """DynamicCache, which is the reference, then plans, rows of QuantizedCache ("quanto:4", "hqq:2"), and presses of
    kvpress with the share of the prompt that they drop ("snapkv:0.5"). With rest, plans with idle= bring a prompt there when
    it has been read.

    A back end that is not installed is left out, with a line that says so. What is no such row is refused.
    """
    lanes = [Lane("DynamicCache", plain_attention(config), lambda: DynamicCache(config=config))]
    if plans:
        lanes += _plan_lanes(config, plans, rest, options)
    for option, make, texts in (("--quantized", _quantized_lane, quantized), ("--press", _press_lane, presses)):
        for text in texts:
            try:
                lanes.append(make(config, text))
            except ImportError as error:
                print(f"{text}: left out: {error}")
            except ValueError as error:
                raise ValueError(f"{option} {text}: {error}") from error
    if len({lane.name for lane in lanes}) != len(lanes):
        raise Error("a row stands there twice; name every plan, back end and press once")
    return lanes
