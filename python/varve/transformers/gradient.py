"""What goes through a cache has no gradient; a backward that needs one is told so, instead of going on without it."""

from __future__ import annotations

from typing import Any

import torch

from varve._native import Error

ADVICE = "train without a VarveCache (use_cache=False)"


class _NoGradient(torch.autograd.Function):
    """Tensors as they are, until a backward comes."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, *sources: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(tensor)  # no view, so that a model may change it in place
        return tensor

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        raise Error(f"a VarveCache passes no gradient on; {ADVICE}")


def without_gradient(tensor: torch.Tensor, *sources: torch.Tensor) -> torch.Tensor:
    """The tensor itself, which must be new: it was computed from `sources` on a way that autograd does not know. Where one
    of them asks for a gradient, a backward from here raises."""
    if not torch.is_grad_enabled() or not any(source.requires_grad for source in sources):
        return tensor
    return _NoGradient.apply(tensor, *sources)
