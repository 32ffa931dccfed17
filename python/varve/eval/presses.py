"""Presses of kvpress as lanes: `--press snapkv:0.5` drops half of the prompt's rows when the prompt has been read.

kvpress wants an older transformers than VarveCache does, so the two live in environments of their own: run the presses in
one, with --json, and join their rows in the other with --merge.
"""

from __future__ import annotations

from typing import Any

import torch
import transformers
from transformers.cache_utils import Cache, DynamicLayer

from varve.eval.lanes import Lane, plain_attention


class HalfLayer(DynamicLayer):
    """Holds rows in 16 bits and gives them in the model's own type.

    A model that runs in float32 here runs in 16 bits elsewhere: a press is not charged for that.
    """

    def _give(self, name: str) -> torch.Tensor | None:
        rows = self.__dict__.get(name)
        return rows if rows is None else rows.to(self.dtype)

    def _take(self, name: str, rows: torch.Tensor | None) -> None:
        self.__dict__[name] = rows.half() if rows is not None and rows.dtype == torch.float32 else rows

    keys = property(lambda self: self._give("held_keys"), lambda self, rows: self._take("held_keys", rows))
    values = property(lambda self: self._give("held_values"), lambda self, rows: self._take("held_values", rows))


def _half_cache(config: Any) -> Cache:
    """In any number of layers; sliding windows are not dropped, presses choose the rows."""
    return Cache(layers=[HalfLayer() for _ in range(config.num_hidden_layers)])


class PressLane(Lane):
    """DynamicCache with a press on the prompt, which is read at once: a press looks at the first forward only.

    Rows that follow keep their true positions; the cache, which counts rows, does not know them.
    """

    press: Any = None

    def read(self, model: Any, cache: Cache, tokens: torch.Tensor, begin: int, end: int, **options: Any) -> torch.Tensor:
        return super().read(model, cache, tokens, begin, end, position_ids=torch.arange(begin, end)[None], **options)

    def read_prompt(self, model: Any, cache: Cache, tokens: torch.Tensor) -> None:
        try:
            with self.press(model):
                super().read_prompt(model, cache, tokens)
        except KeyError as error:  # what a layer is called with changes between versions
            raise ValueError(
                f"{self.name}: this kvpress does not know how transformers {transformers.__version__} calls a layer "
                f"({error} is missing); use the version that kvpress asks for, in an environment of its own"
            ) from error


def _classes() -> dict[str, type]:
    """Presses that are made from a ratio alone, by their short names: snapkv, keydiff, expectedattention …"""
    import kvpress

    found = {name: getattr(kvpress, name) for name in kvpress.__all__ if name.endswith("Press") and name != "ScorerPress"}
    return {
        name.removesuffix("Press").lower(): thing
        for name, thing in sorted(found.items())
        if issubclass(thing, kvpress.ScorerPress)
    }


def press_lane(config: Any, text: str, press: Any = None) -> Lane:
    """text: "snapkv:0.5", the press and the share of the prompt that it drops. press: to be used in place of kvpress's."""
    name, _, share = text.partition(":")
    try:
        ratio = float(share)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio < 1:
        raise ValueError(f"the share that goes must be in 0 … 1, as in {name}:0.5")
    if press is None:
        classes = _classes()
        if name not in classes:
            raise ValueError(f"kvpress has no such press; it has {' '.join(classes)}")
        press, name = classes[name](compression_ratio=ratio), classes[name].__name__.removesuffix("Press")
    lane = PressLane(f"{name} {ratio:g}", plain_attention(config), lambda: _half_cache(config), needs_prompt=True, kind="press")
    lane.press = press
    return lane
