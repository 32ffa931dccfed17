"""VarveCache: a transformers Cache whose rows lie in a Varve cache."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from varve import _native
from varve.transformers.attention import MARK, NAME
from varve.transformers.model_plan import check_croppable, plan_with_windows, shape_of, windows_of
from varve.transformers.store import Store


class MarkedRows:
    """What a layer's new keys carry to the attention function."""

    __slots__ = ("store", "layer")

    def __init__(self, store: Store, layer: int) -> None:
        self.store, self.layer = store, layer

    def attend(self, module, query, key, value, mask, scale: float, soft_cap: float) -> torch.Tensor:
        self.store.unattended = None
        return self.store.attend(self.layer, module, query, key, value, mask, scale, soft_cap)


class VarveLayer(CacheLayerMixin):
    """One layer of a VarveCache. Sequences belong to the whole cache, so what reorders or cuts them is there."""

    is_compileable = False
    is_croppable = False  # rows that have been sealed stay sealed
    supports_early_init = False

    def __init__(self, cache: VarveCache, index: int, window: int) -> None:
        self._cache = weakref.proxy(cache)  # no cycle: native memory goes with the last reference
        self._index = index
        self.is_sliding = window > 0
        self.sliding_window = window or None

    @property
    def _store(self) -> Store:
        return self._cache.store

    @property
    def is_initialized(self) -> bool:
        return bool(self._store.sequences)

    @property
    def keys(self) -> torch.Tensor | None:
        """Decoded rows, [batch, kv_heads, rows, dim]. A copy; it takes as much time and memory as it looks.

        Padding is not stored by varve attention, so rows of a padded batch have different lengths: that raises.
        """
        return self._store.decoded(self._index, self._store.dtype)[0] if self.is_initialized else None

    @property
    def values(self) -> torch.Tensor | None:
        return self._store.decoded(self._index, self._store.dtype)[1] if self.is_initialized else None

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Sequences are made by the first update."""

    def update(self, key_states, value_states, *args, **kwargs) -> tuple[torch.Tensor, torch.Tensor]:
        """With varve attention: the new rows, marked. Otherwise: all rows, decoded."""
        cache = self._cache
        store = cache.store_for(key_states)
        store.check_rows(self._index, key_states, value_states)
        if not cache.uses_varve_attention:
            return store.append_and_decode(self._index, key_states, value_states)
        marked = key_states.view_as(key_states)  # of its own, so that the caller's tensor has no mark
        setattr(marked, MARK, MarkedRows(store, self._index))
        store.unattended = self._index
        return marked, value_states

    def get_seq_length(self) -> int:
        return self._store.tokens_in(self._index)

    def get_max_length(self) -> int:
        return self.sliding_window or -1

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """What `update` of so many tokens will return: its length, and the position of its first row."""
        offset = 0
        if self.is_sliding and not self._cache.uses_varve_attention:
            offset = self._store.first_position(self._index)
        return self._store.num_tokens + query_length - offset, offset

    def reset(self) -> None:
        self._cache.reset()

    def offload(self) -> None:
        """Rows stay where they are; to have them elsewhere, make the cache there."""

    def prefetch(self) -> None:
        """Likewise."""

    def _whole_cache_only(self, *args: Any) -> None:
        raise _native.Error("layers of a VarveCache share their sequences; call this on the cache")

    reorder_cache = crop = batch_repeat_interleave = batch_select_indices = _whole_cache_only


class VarveCache(Cache):
    """The cache of a model for `generate(past_key_values=…)` and `forward`.

    config: of the model, which says shape and sliding windows. plan: text or varve.Plan (docs/plans.md). The rest is as
    in varve.Cache, which is `.native`. It holds one batch at a time; reset() makes it empty.

    device: where rows are kept, "cpu", "cuda:0", "cuda" (torch's current GPU now) or model.device. None: where the first rows
    come from; until then the native cache is on the CPU. On a GPU its memory grows with the text, by device_chunk_bytes, up to
    max_bytes (0: no cap).

    key_pairs: store the channels of keys as GGUF files of Llama and Mistral have them, the pairs of RoPE side by side. Codebooks and
    compressors that `varve` made for such a file, and .varve files of it, fit no other order.

    >>> config = LlamaConfig(hidden_size=64, num_attention_heads=2, num_hidden_layers=2, intermediate_size=64, vocab_size=50)
    >>> cache = VarveCache(config, "q8_0")
    >>> model = LlamaForCausalLM(config).eval()
    >>> model.set_attn_implementation("varve")
    >>> tokens = model.generate(torch.tensor([[1, 2, 3]]), past_key_values=cache, max_new_tokens=5, do_sample=False)
    >>> cache.get_seq_length()
    7
    """

    layer_class = VarveLayer
    store_class = Store

    def __init__(
        self,
        config: Any,
        plan: _native.Plan | str = "",
        *,
        codebook: _native.Codebook | None = None,
        compressor: _native.Compressor | None = None,
        model_fingerprint: int = 0,
        key_pairs: bool = False,
        max_bytes: int = 0,
        num_threads: int = 0,
        pool: _native.PagePool | None = None,
        device: Any = None,
        device_chunk_bytes: int | None = None,
        on_attention: Callable[[_native.AttentionEvent], object] | None = None,
        on_retention: Callable[[_native.RetentionEvent], object] | None = None,
        on_log: Callable[[str], object] | None = None,
    ) -> None:
        self._config = config.get_text_config(decoder=True)
        # Of an encoder-decoder model that is a copy, which does not hear of set_attn_implementation.
        self._model_config = config if getattr(config, "is_encoder_decoder", False) else self._config
        if key_pairs and getattr(config, "is_encoder_decoder", False):
            raise _native.Error("key_pairs: this model has no RoPE, so its keys have one order only")
        self.plan, self._key_pairs = _native.Plan(plan), key_pairs
        self._options = dict(
            codebook=codebook, compressor=compressor, model_fingerprint=model_fingerprint, max_bytes=max_bytes,
            num_threads=num_threads, pool=pool, on_attention=on_attention, on_retention=on_retention, on_log=on_log,
        )
        if device_chunk_bytes is not None:
            self._options["device_chunk_bytes"] = device_chunk_bytes
        self._follows = device is None  # the device of the first rows
        self._device = torch.device("cpu" if device is None else device)
        if self._device.type == "cuda" and self._device.index is None:
            self._device = torch.device("cuda", torch.cuda.current_device())
        self._keeps_windows = False
        self.store = self._make_store()
        super().__init__(layers=[self.layer_class(self, i, window) for i, window in enumerate(self.store.windows)])

    def _make_store(self) -> Store:
        windows = windows_of(self._config)
        plan = self.plan if self._keeps_windows else plan_with_windows(self.plan, windows)
        store = self.store_class(self._make_native(plan), windows, self.plan, self._key_pairs)
        store.commit_may_raise = any(self._options[name] is not None for name in ("on_retention", "on_log"))
        return store

    def _make_native(self, plan: _native.Plan | str) -> _native.Cache:
        stream = torch.cuda.current_stream(self._device).cuda_stream if self._device.type == "cuda" else 0
        return _native.Cache(shape_of(self._config), plan, device=self._device, stream=stream, **self._options)

    def store_for(self, rows: torch.Tensor) -> Store:
        """The store, which an empty cache brings to the device of its first rows."""
        store = self.store
        if rows.device != store.device and self._follows and not store.sequences:
            before, self._device = self._device, rows.device
            try:
                store = self.store = self._make_store()
            except BaseException:
                self._device = before
                raise
        return store

    @property
    def native(self) -> _native.Cache:
        """The Varve cache: statistics, files, pages."""
        return self.store.cache

    @property
    def sequences(self) -> list[int]:
        """The native sequence of every row of the batch."""
        return list(self.store.sequences)

    @property
    def batch_size(self) -> int:
        return len(self.store.sequences) or -1

    @property
    def is_initialized(self) -> bool:
        return bool(self.store.sequences)

    @property
    def uses_varve_attention(self) -> bool:
        return self._model_config._attn_implementation == NAME

    def stats(self) -> dict:
        """Those of the native cache."""
        return self.native.stats()

    def begin_prompt(self) -> None:
        """What comes next is a prompt again: plans with fold= fold it, until `end_prompt` or the next single token."""
        self.store.begin_prompt()

    def end_prompt(self) -> None:
        """The prompt is complete. A forward of a single token says so by itself."""
        self.store.end_prompt()

    def __deepcopy__(self, memo: dict) -> VarveCache:
        """Shares the native cache and every page; each of the two goes on by itself. They take turns forward by forward."""
        twin = copy.copy(self)
        twin.store = self.store.fork()
        twin.layers = [self.layer_class(twin, i, window) for i, window in enumerate(self.store.windows)]
        return twin

    def reset(self) -> None:
        self.store.reset()

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        if self.store.sequences:
            self.store.select(beam_idx.tolist())

    def batch_select_indices(self, indices: Any) -> None:
        """indices: a tensor of rows or of bools, or a sequence of rows."""
        if not self.store.sequences:
            return
        chosen = torch.as_tensor(indices).cpu()
        chosen = chosen if chosen.numel() else chosen.long()  # an empty list has no type of its own
        self.store.select(torch.arange(len(self.store.sequences))[chosen].tolist())

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.store.sequences:
            self.store.select([row for row in range(len(self.store.sequences)) for _ in range(repeats)])

    def crop(self, tokens_to_remove: int) -> None:
        if tokens_to_remove > 0:
            raise ValueError(f"crop: {tokens_to_remove} is positive; pass the number of tokens to remove as a negative one")
        self.store.crop(-tokens_to_remove)

    def activate_past_recording(self) -> None:
        """Keeps what sliding layers would drop, so that `crop` can go back to any token. Before the first token; later it changes
        nothing: up to 64 tokens can be cropped, as assisted decoding does with its candidates."""
        check_croppable(self.plan, self.store.windows)
        if any(self.store.windows) and not self.store.sequences:
            self._keeps_windows = True
            self.store = self._make_store()
