"""Caches of encoder-decoder models such as Whisper: self attention and cross attention, each with a plan of its own."""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import EncoderDecoderCache

from varve import _native
from varve.transformers.attention import MARK
from varve.transformers.cache import VarveCache, VarveLayer
from varve.transformers.dense import dense_attention
from varve.transformers.gradient import without_gradient
from varve.transformers.store import Store


class CrossRows:
    """What the keys of a cross-attention layer carry to the attention function. New rows come once, at the first token."""

    def __init__(self, store: CrossStore, layer: int, is_new: bool) -> None:
        self.store, self.layer, self.is_new = store, layer, is_new

    def attend(self, module, query, key, value, mask, scale: float, soft_cap: float) -> torch.Tensor:
        self.store.unattended = None
        if self.is_new:  # exact, as they are about to be stored
            output = dense_attention(query, key, value, mask, scale, soft_cap, causal=False)
            self.store.keep(self.layer, key, value)
            return output.transpose(1, 2).contiguous()
        if mask is not None:
            raise _native.Error('a mask on cross attention: use model.set_attn_implementation("sdpa")')
        output = self.store.attend_rows(self.layer, query.detach(), scale, soft_cap)
        return without_gradient(output, query, self.store.source)


class CrossStore(Store):
    """Rows of an encoder: all at once, never more. Rows of a batch that are equal (beams) are stored once."""

    def leave_batch(self) -> None:
        super().leave_batch()
        self.source = torch.zeros(0)  # asks for a gradient if one of the rows did

    def abort(self) -> None:
        super().abort()
        self.waiting: list[tuple[torch.Tensor, torch.Tensor]] = []

    def fork(self) -> CrossStore:
        twin = super().fork()
        twin.waiting = []
        return twin

    def check_idle(self, call: str) -> None:
        if self.waiting:
            raise _native.Error(f"{call}: the first forward is not finished: {len(self.waiting)} layers are done")

    def tokens_in(self, layer: int) -> int:
        return self.waiting[layer][0].shape[2] if layer < len(self.waiting) else self.num_tokens

    def keep(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> None:
        """Takes the layer's rows; behind the last layer they go into the cache."""
        if self.sequences:
            raise _native.Error("cross attention came with new rows, but the cache is full; call reset() between sounds")
        self.turns.take(self)
        del self.waiting[layer:]  # a forward that was broken off before
        if len(self.waiting) != layer:
            raise _native.Error(f"layer {layer} of cross attention came before layer {len(self.waiting)}")
        if key.requires_grad or value.requires_grad:
            self.source = torch.zeros(0, requires_grad=True)
        self.waiting.append((key.detach(), value.detach().to(key.dtype)))
        if layer + 1 < self.shape.num_layers:
            return
        batch, _, num_rows, _ = key.shape
        try:
            for b in range(batch):
                twin = next((a for a in range(b) if self._equal(a, b)), None)
                self.sequences.append(self.cache.create_sequence() if twin is None else self.cache.fork(self.sequences[twin]))
                if twin is None:
                    self._fill(b, num_rows)
        except BaseException:
            self.abort()
            self.leave_batch()
            raise
        self.dtype, self.num_tokens, self.waiting = key.dtype, num_rows, []

    def _equal(self, a: int, b: int) -> bool:
        return all(torch.equal(rows[a], rows[b]) for layer in self.waiting for rows in layer)

    def _fill(self, b: int, num_rows: int) -> None:
        sequence = self.sequences[b]
        begin = 0
        while begin < num_rows:
            count = min(self.cache.max_step_tokens(sequence), num_rows - begin)
            span = slice(begin, begin + count)
            with self.cache.step(sequence, count) as step:
                for layer, (key, value) in enumerate(self.waiting):
                    step.append(layer, sequence, key[b, :, span].transpose(0, 1), value[b, :, span].transpose(0, 1))
            begin += count
        self.cache.end_prompt(sequence)

    def attend_rows(self, layer: int, query: torch.Tensor, scale: float, soft_cap: float) -> torch.Tensor:
        """query [batch, heads, tokens, dim]; on stored bytes: [batch, tokens, heads, dim]."""
        if query.shape[0] != len(self.sequences):
            raise _native.Error(f"the cache holds a batch of {len(self.sequences)}, this one has {query.shape[0]}; call reset()")
        batch, heads, tokens, _ = query.shape
        output = query.new_empty(batch, tokens, heads, self.cache.shape.value_dim)
        for b, sequence in enumerate(self.sequences):
            self.cache.attend(
                layer, sequence, query[b].transpose(0, 1), output[b], scale=scale, soft_cap=soft_cap, causal=False
            )
        return output


class VarveCrossLayer(VarveLayer):
    """A model asks such a layer for `keys` and `values` at every token after the first."""

    def _rows(self, part: int) -> torch.Tensor | None:
        if not self.is_initialized:
            return None
        if not self._cache.uses_varve_attention:
            return without_gradient(self._store.decoded(self._index, self._store.dtype)[part], self._store.source)
        handle = torch.empty(0, dtype=self._store.dtype, device=self._store.device)
        setattr(handle, MARK, CrossRows(self._store, self._index, False))
        return handle

    @property
    def keys(self) -> torch.Tensor | None:
        """With varve attention: a handle without rows. Otherwise all rows, decoded."""
        return self._rows(0)

    @property
    def values(self) -> torch.Tensor | None:
        return self._rows(1)

    def update(self, key_states, value_states, *args, **kwargs) -> tuple[torch.Tensor, torch.Tensor]:
        store = self._cache.store_for(key_states)
        store.check_rows(self._index, key_states, value_states)
        if not self._cache.uses_varve_attention:
            store.keep(self._index, key_states, value_states)
            return key_states, value_states
        marked = key_states.view_as(key_states)
        setattr(marked, MARK, CrossRows(store, self._index, True))
        store.unattended = self._index
        return marked, value_states


class VarveCrossCache(VarveCache):
    """The cross-attention half of an EncoderDecoderCache. Plans that leave rows out are refused: an encoder's rows all count."""

    layer_class = VarveCrossLayer
    store_class = CrossStore

    def _make_store(self) -> Store:
        store = super()._make_store()
        if store.dropping:
            raise _native.Error(f"cross attention: the plan's {', '.join(c + '=' for c in store.dropping)} would leave rows out")
        return store


def encoder_decoder_cache(config: Any, plan: Any = "", cross_plan: Any = None, **options: Any) -> EncoderDecoderCache:
    """The cache of an encoder-decoder model for `generate(past_key_values=…)`: `plan` for self attention, `cross_plan` (default:
    the same) for cross attention. The other options are those of VarveCache, for both.

    >>> from transformers import WhisperConfig
    >>> cache = encoder_decoder_cache(WhisperConfig(decoder_layers=2), "q8_0", cross_plan="t4")
    >>> cache.cross_attention_cache.plan
    Plan('t4')
    """
    cross_plan = plan if cross_plan is None else cross_plan
    return EncoderDecoderCache(VarveCache(config, plan, **options), VarveCrossCache(config, cross_plan, **options))
