"""The attention function `varve` and its mask function.

transformers hands to an attention function what `Cache.update` returned. A VarveCache returns the new rows, with a
mark on the keys that leads back to the cache; the function appends them and attends on the stored bytes. Keys without
the mark (no cache, another cache, an encoder) go to torch.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from varve._native import Error
from varve.transformers.dense import dense_attention
from varve.transformers.gradient import ADVICE

NAME = "varve"
MARK = "_varve_rows"  # attribute of marked keys

# What some models hand over beside queries and rows, by the names that transformers has for it: sinks of attention (GPT-OSS,
# MiMo-V2), biases of scores (T5), choices of rows (DeepSeek-V3.2, MiniMax-M3).
_CHANGE_SCORES = ("s_aux", "sinks", "position_bias", "indices", "block_indices")


def varve_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    attention_mask: torch.Tensor | None = None,
    allow_is_causal_skip: bool = True,
    use_vmap: bool = False,
    **kwargs: Any,
) -> torch.Tensor | None:
    """The 2-D padding mask as it is: attention knows causality and windows by itself.

    Masks that are neither, and caches whose rows are longer than the text (StaticCache), get the 4-D mask of sdpa.
    """
    plain = allow_is_causal_skip and not use_vmap and kv_offset + kv_length == q_offset + q_length
    if plain:
        return attention_mask
    return sdpa_mask(
        batch_size=batch_size,
        q_length=q_length,
        kv_length=kv_length,
        q_offset=q_offset,
        kv_offset=kv_offset,
        attention_mask=attention_mask,
        allow_is_causal_skip=False,
        use_vmap=use_vmap,
        **kwargs,
    )


def _refusal(with_gradient: bool, dropout: float, kwargs: dict[str, Any]) -> str | None:
    """kwargs: of the attention function, without those that it knows."""
    if kwargs.get("output_attentions"):
        return 'output_attentions: weights are never whole in memory; use model.set_attn_implementation("eager")'
    for name in _CHANGE_SCORES:
        if kwargs.get(name) is not None:
            return (f"{name}: this model's scores need it, and varve attention does not know it; use "
                    'attn_implementation "eager": then VarveCache hands out decoded rows')
    if with_gradient:
        return f"varve attention on a cache has no gradient; {ADVICE}"
    if dropout:
        return 'varve attention has no dropout; call model.eval(), or train with model.set_attn_implementation("sdpa")'
    return None


def varve_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    is_causal: bool | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """query [batch, heads, tokens, dim]; gives [batch, tokens, heads, dim]."""
    if key is None:
        raise Error("cross attention has no rows: its first forward broke off; call reset() on the cache and run it again")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    rows = getattr(key, MARK, None)
    trains = rows is not None and module.training and any(tensor.requires_grad for tensor in (query, key, value))
    refusal = _refusal(trains, dropout, kwargs)
    if refusal:
        if rows is not None:
            rows.store.abort()
        raise Error(refusal)
    if rows is not None:
        return rows.attend(module, query, key, value, attention_mask, scale, softcap or 0.0), None
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    output = dense_attention(
        query, key, value, attention_mask, scale, softcap or 0.0, window=sliding_window or 0, causal=causal
    )
    return output.transpose(1, 2).contiguous(), None


def register() -> None:
    """Makes `attn_implementation="varve"` known."""
    AttentionInterface.register(NAME, varve_attention)
    AttentionMaskInterface.register(NAME, varve_mask)
