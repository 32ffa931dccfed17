"""Attention on plain tensors, for rows that are in no Varve cache."""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

_QUERIES = 512  # at once, so that masks and scores stay small


def _keeps_scores(query, key, value, causal, grouped) -> bool:
    """Whether torch would hold all scores at once: on a GPU, where no fused kernel takes the rows. None takes groups in f32."""
    if query.device.type != "cuda":
        return False
    backends = torch.backends.cuda
    rows = backends.SDPAParams(query, key, value, None, 0.0, causal, grouped)
    return not (
        backends.can_use_flash_attention(rows)
        or backends.can_use_efficient_attention(rows)
        or backends.can_use_cudnn_attention(rows)
    )


def _scores_attention(query, key, value, visible, scale, soft_cap):
    """With soft-capped scores, which torch's function does not have."""
    group = query.shape[1] // key.shape[1]
    scores = (query.float() @ key.float().repeat_interleave(group, 1).transpose(-1, -2)) * scale
    scores = soft_cap * torch.tanh(scores / soft_cap)
    weights = torch.softmax(scores.masked_fill(~visible, float("-inf")), -1).nan_to_num()
    return (weights @ value.float().repeat_interleave(group, 1)).to(query.dtype)


def dense_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    soft_cap: float = 0.0,
    *,
    window: int = 0,
    causal: bool = True,
    positions: torch.Tensor | None = None,
) -> torch.Tensor:
    """query [batch, heads, queries, dim], key and value [batch, kv_heads, rows, dim]; gives the shape of query.

    mask: None, [batch, at least rows] (the last rows count), or [batch, 1, queries, rows], which is then all there is
    to hide. The last query stands at the last row. positions [rows], on the CPU, are those of the rows, if some are missing.
    """
    num_queries, num_rows = query.shape[2], key.shape[2]
    grouped = key.shape[1] != query.shape[1]
    plain = mask is None and positions is None and not soft_cap and not window and num_queries == num_rows
    if plain and (num_queries <= _QUERIES or not _keeps_scores(query, key, value, causal, grouped)):
        # A text from its beginning: torch needs no mask, and on a GPU has its fastest kernels for it.
        return scaled_dot_product_attention(query, key, value, is_causal=causal, scale=scale, enable_gqa=grouped)
    first = (num_rows if positions is None else int(positions[-1]) + 1) - num_queries if num_rows else 0
    rows = torch.arange(num_rows, device=query.device) if positions is None else positions.to(query.device)
    outputs = []
    for begin in range(0, num_queries, _QUERIES):
        end = min(begin + _QUERIES, num_queries)
        if mask is not None and mask.dim() == 4:
            visible = mask[:, :, begin:end, :num_rows]
        else:
            visible = torch.ones(1, 1, end - begin, num_rows, dtype=torch.bool, device=query.device)
            at = torch.arange(first + begin, first + end, device=query.device)[:, None]
            if causal:
                visible = visible & (rows <= at)
            if window:
                visible = visible & (rows > at - window)
            if mask is not None:
                visible = visible & mask[:, None, None, -num_rows:].bool()
        piece = query[:, :, begin:end]
        if soft_cap:
            outputs.append(_scores_attention(piece, key, value, visible, scale, soft_cap))
        else:
            outputs.append(
                scaled_dot_product_attention(
                    piece, key, value, attn_mask=visible, scale=scale, enable_gqa=grouped
                ).nan_to_num()
            )
    return torch.cat(outputs, 2)
