"""Store: the sequences of a batch in a native cache, as the layers of a VarveCache use them together."""

from __future__ import annotations

import copy
import weakref
from typing import Any

import torch

from varve._native import Cache, Error
from varve.transformers.dense import dense_attention
from varve.transformers.forward import Forward, Spans
from varve.transformers.gradient import without_gradient
from varve.transformers.model_plan import CROP_MARGIN, check_dtype, drops_rows, pair_order
from varve.transformers.turns import Turns


class Store:
    """All layers have the same tokens, so sequences, lengths and the open step are here and not in a layer."""

    def __init__(self, cache: Cache, windows: list[int], user_plan: Any, key_pairs: bool = False) -> None:
        self.cache = cache
        self.turns = Turns(cache)  # with the stores of copies
        self.forward: Forward | None = None
        self.sequences: list[int] = []
        self.shape = cache.shape
        self.device = torch.device(cache.device)
        # Order in which the channels of keys and queries are stored; None: as they come.
        self.order = pair_order(cache.shape.key_dim).to(self.device) if key_pairs else None
        self.windows = windows
        self.dropping = drops_rows(user_plan)
        self.ranks = "evict" in self.dropping
        self.commit_may_raise = False  # an observer is called behind commits
        self.reset()

    def reset(self) -> None:
        self.abort()
        self.leave_batch()
        self.num_tokens = 0  # seen, padding included
        self.valid: torch.Tensor | None = None  # [batch, num_tokens] bool: what is no padding; None: all
        self.rows_seen: tuple | None = None  # what rows of this forward are like, once checked
        self.unattended: int | None = None  # layer whose marked rows no attention function has seen
        self.prompt_ended = False

    def leave_batch(self) -> None:
        """What the first rows have settled is open again."""
        sequences, self.sequences = self.sequences, []
        self.turns.free(sequences)
        self.dtype: torch.dtype | None = None
        self.module = lambda: None  # a weak reference to the first layer's attention

    def fork(self) -> Store:
        """A batch with the same tokens in the same native cache; pages are shared.

        The two take turns forward by forward: where one begins, or is cropped, reordered or copied, a forward of the other
        that was broken off is rolled back.
        """
        self.take_turn("deepcopy")
        # First: a twin that fails half-made would free what is ours.
        forks = self.forks_of(list(enumerate(self.sequences)))
        twin = copy.copy(self)
        twin.sequences = [forks[row] for row in range(len(forks))]
        return twin

    def forks_of(self, rows: list[tuple[int, int]]) -> dict[int, int]:
        """A fork of each sequence of (key, sequence) by its key: all of them or none."""
        forks: dict[int, int] = {}
        try:
            for key, sequence in rows:
                forks[key] = self.cache.fork(sequence)
        except BaseException:
            for fork in forks.values():
                self.cache.free(fork)
            raise
        return forks

    def __del__(self) -> None:
        """A twin may go on with the native cache, so what was ours is given back."""
        try:
            self.abort()
        except Error:
            pass  # an observer runs: the step goes with its last reference
        self.turns.free(self.sequences)

    # --- lengths ---

    def tokens_in(self, layer: int) -> int:
        """Tokens seen, with those of an open forward that the layer has already."""
        if self.forward is not None and layer in self.forward.done:
            return self.num_tokens + self.forward.spans.num_tokens
        return self.num_tokens

    def first_position(self, layer: int) -> int:
        """Of the oldest page; pages before it have left the model's window."""
        if not self.sequences:
            return 0
        pages = self.cache.describe(self.sequences[0], layer)["pages"]
        return pages[0].first_position if pages else 0

    # --- a forward ---

    def check_rows(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> None:
        """Once per forward: layers whose rows are like those of the one before pass at once. A refusal ends the forward."""
        rows_seen = (key.shape, value.shape, key.dtype, value.dtype, key.device)
        try:
            if rows_seen != self.rows_seen:
                self.check_new_rows(layer, key, value)
                self.rows_seen = rows_seen
            self.check_attended()
        except Error:
            self.abort()
            raise

    def check_attended(self) -> None:
        waiting, self.unattended = self.unattended, None
        if waiting is not None:
            raise Error(
                f"layer {waiting}: the model never called the attention function `varve`; its class computes attention "
                'by itself. Use model.set_attn_implementation("sdpa") or "eager": then VarveCache hands out decoded rows'
            )

    def check_new_rows(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> None:
        check_dtype(key.dtype)
        check_dtype(value.dtype)
        if key.device != self.device:
            raise Error(f"layer {layer}: rows are on {key.device}, the cache is on {self.device}; a VarveCache has one "
                        f"device: VarveCache(config, plan, device=\"{key.device}\"), with the whole model there")
        shape = self.shape
        for rows, dim, name in ((key, shape.key_dim, "keys"), (value, shape.value_dim, "values")):
            if (rows.shape[1], rows.shape[3]) != (shape.num_kv_heads, dim):
                raise Error(
                    f"layer {layer}: {name} have {rows.shape[1]} heads of {rows.shape[3]}, the cache was made for "
                    f"{shape.num_kv_heads} of {dim}; make a VarveCache from this model's config"
                )
        if self.sequences and key.shape[0] != len(self.sequences):
            raise Error(
                f"the cache holds a batch of {len(self.sequences)}, this one has {key.shape[0]}; "
                "make a new VarveCache, or call reset()"
            )
        if self.dtype not in (None, key.dtype):
            raise Error(f"the cache was filled with {self.dtype}, these rows are {key.dtype}; call reset()")

    def begin(self, layer: int, batch: int, num_tokens: int, mask: torch.Tensor | None, dtype: torch.dtype) -> Forward:
        """The open forward, or a new one when its first layer comes."""
        if self.forward is not None and layer not in self.forward.done:
            self.check_same_tokens(layer, batch, num_tokens)
            return self.forward
        if self.forward is not None:
            done = len(self.forward.done)
            self.abort()
            raise Error(
                f"the forward before ended after {done} of {self.shape.num_layers} layers; its tokens have been "
                "rolled back: run it again. A model that uses fewer layers needs a config that says so"
            )
        if layer:
            raise Error(
                f"layer {layer}: no forward is open, and one begins with layer 0; reset() and turns of a copy of the cache end "
                "a forward: run it again"
            )
        spans = self.spans_of(batch, num_tokens, mask)
        self.turns.take(self)
        if num_tokens == 1 and self.num_tokens and not self.prompt_ended:
            self.end_prompt()
        is_first = not self.sequences
        try:
            if is_first:
                for _ in range(batch):
                    self.sequences.append(self.cache.create_sequence())
            self.forward = Forward.begin(self.cache, self.sequences, spans, self.commit_may_raise)
        except BaseException:
            if is_first:
                self.leave_batch()
            raise
        self.forward.is_first = is_first
        self.dtype = dtype
        return self.forward

    def check_same_tokens(self, layer: int, batch: int, num_tokens: int) -> None:
        """All layers of a forward have the same tokens, so rows are cut by the spans of the first one."""
        spans = self.forward.spans
        if (len(spans.starts), spans.num_tokens) != (batch, num_tokens):
            self.abort()
            raise Error(
                f"layer {layer}: {num_tokens} tokens in a batch of {batch}, layers before it had {spans.num_tokens} in a batch of "
                f"{len(spans.starts)}; the forward has been rolled back: give every layer the same tokens"
            )

    def spans_of(self, batch: int, num_tokens: int, mask: torch.Tensor | None) -> Spans:
        if mask is None:
            if self.valid is not None:
                raise Error("attention_mask is missing; this batch has padding, so pass the mask of all tokens so far")
            return Spans.all(batch, num_tokens)
        if mask.dim() != 2:
            raise Error(
                f"attention_mask with {mask.dim()} dimensions: varve attention takes the 2-D padding mask; "
                'for other masks use model.set_attn_implementation("sdpa")'
            )
        if mask.shape[1] != self.num_tokens + num_tokens:
            raise Error(
                f"attention_mask has {mask.shape[1]} columns; the cache holds {self.num_tokens} tokens and "
                f"{num_tokens} are new: pass the mask of all {self.num_tokens + num_tokens}"
            )
        if self.valid is None and bool(mask.all()):  # a forward with a mask waits for a GPU here, or for the copy
            return Spans.all(batch, num_tokens)
        mask = mask.bool().cpu()
        if self.num_tokens and not torch.equal(mask[:, : self.num_tokens], self.all_valid()):
            raise Error("attention_mask does not agree with the one that the cached tokens came with")
        return Spans.of_mask(mask[:, self.num_tokens :])

    def all_valid(self) -> torch.Tensor:
        """[batch, num_tokens] bool: what is no padding."""
        if self.valid is None:
            return torch.ones(len(self.sequences), self.num_tokens, dtype=torch.bool)
        return self.valid

    def end_layer(self, layer: int) -> None:
        """Behind the last one the forward is kept."""
        forward = self.forward
        forward.done.add(layer)
        if layer + 1 < self.shape.num_layers:
            return
        try:
            forward.finish(self.cache, self.sequences)
        except BaseException:
            self.abort()
            raise
        if self.valid is not None or forward.spans.padded:
            self.valid = torch.cat([self.all_valid(), forward.spans.valid()], 1)
        self.num_tokens += forward.spans.num_tokens
        self.forward = None
        self.turns.free_left()

    def abort(self) -> None:
        """Of the open forward nothing stays; of the first one its batch does not stay either."""
        self.unattended = None
        forward, self.forward = self.forward, None
        if forward is None:
            return
        forward.abort(self.cache)
        if forward.is_first:
            self.leave_batch()
        self.turns.free_left()

    def begin_prompt(self) -> None:
        self.turns.take(self)
        self.prompt_ended = False
        for sequence in self.sequences:
            self.cache.begin_prompt(sequence)

    def end_prompt(self) -> None:
        if not self.sequences:
            return  # the prompt is still to come
        self.turns.take(self)
        for sequence in self.sequences:
            self.cache.end_prompt(sequence)
        self.prompt_ended = True

    # --- rows ---

    def ordered(self, rows: torch.Tensor) -> torch.Tensor:
        """Keys or queries as they are stored. Scores do not change, since both are."""
        rows = rows.detach() if rows.requires_grad else rows
        return rows if self.order is None else rows[..., self.order]

    def attend(self, layer, module, query, key, value, mask, scale, soft_cap) -> torch.Tensor:
        """Appends the rows and attends on stored bytes: [batch, tokens, heads, dim]."""
        if layer == 0:
            if self.module() not in (None, module):
                raise Error("the cache holds rows of another model; make a new VarveCache, or call reset()")
        sources = query, key, value
        query, key = self.ordered(query), self.ordered(key)
        value = value.detach().to(key.dtype)  # under autocast RoPE leaves keys in another type
        batch, _, num_tokens, _ = query.shape
        forward = self.begin(layer, batch, num_tokens, mask, key.dtype)
        try:
            output = self.append_and_attend(layer, forward, query, key, value, scale, soft_cap)
            if layer == 0:
                self.module = weakref.ref(module)
        except BaseException:  # of refused rows nothing stays
            self.abort()
            raise
        self.end_layer(layer)
        return without_gradient(output, *sources)

    def append_and_attend(self, layer, forward, query, key, value, scale, soft_cap) -> torch.Tensor:
        spans = forward.spans
        batch, heads, num_tokens, _ = query.shape
        make = query.new_zeros if spans.padded else query.new_empty
        output = make((batch, num_tokens, heads, self.shape.value_dim))
        if forward.step is not None:
            forward.step.append_attend_batch(
                layer, self.sequences, key, value, query, output, spans.starts, spans.counts,
                scale, soft_cap, self.windows[layer],
            )
        elif forward.waits:
            options = dict(scale=scale, soft_cap=soft_cap, window=self.windows[layer])
            for b in range(batch):
                self.attend_dense(layer, b, spans, query, key, value, output, options)
            # Without the mark, which leads back here: a cycle would outlive a forward that breaks off.
            forward.waiting.append((key.detach(), value, query if self.ranks else None, options))
        return output

    def attend_dense(self, layer, b, spans, query, key, value, output, options) -> None:
        """Row b of a forward that is too long for a step: on what the cache has, decoded, and the new rows, exact."""
        span = slice(spans.starts[b], spans.starts[b] + spans.counts[b])
        sequence = self.sequences[b]
        rows, positions = [new[b : b + 1, :, span] for new in (key, value)], None
        first = self.cache.next_position(sequence)
        if first:
            past = [torch.from_numpy(self.cache.read_rows(sequence, layer, part)).to(key) for part in "kv"]
            rows = [torch.cat([old[None], new], 2) for old, new in zip(past, rows)]
            positions = torch.cat([self.positions(sequence, layer), first + torch.arange(spans.counts[b])])
        attended = dense_attention(
            query[b : b + 1, :, span], *rows, None, options["scale"], options["soft_cap"],
            window=options["window"], positions=positions,
        )
        output[b, span] = attended[0].transpose(0, 1)

    def positions(self, sequence: int, layer: int) -> torch.Tensor:
        """Of the live rows. Rows of a page that is partly dead or folded are taken to be its first ones."""
        spans = [
            page.first_position + torch.arange(page.num_live_rows)
            for page in self.cache.describe(sequence, layer)["pages"]
        ]
        return torch.cat([torch.zeros(0, dtype=torch.long), *spans])

    def append_and_decode(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Appends the rows, padding too, and gives all rows that there are: for attention that is not ours."""
        if self.dropping:
            raise Error(
                f"the plan's {', '.join(c + '=' for c in self.dropping)} leaves rows out, which only varve attention "
                'knows of; call model.set_attn_implementation("varve")'
            )
        sources = key, value
        key, value = key.detach(), value.detach().to(key.dtype)
        batch, _, num_tokens, _ = key.shape
        forward = self.begin(layer, batch, num_tokens, None, key.dtype)
        stored = self.ordered(key)
        try:
            if forward.step is not None:
                forward.step.append_batch(layer, self.sequences, stored, value, forward.spans.starts, forward.spans.counts)
                rows = self.decoded(layer, key.dtype)
            else:
                past = self.decoded(layer, key.dtype)
                rows = tuple(torch.cat(parts, 2) for parts in zip(past, (key, value)))
                forward.waiting.append((stored, value, None, {}))
        except BaseException:
            self.abort()
            raise
        self.end_layer(layer)
        return without_gradient(rows[0], *sources), without_gradient(rows[1], *sources)

    def decoded(self, layer: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """All live rows, [batch, kv_heads, rows, dim]; sequences must have the same number."""
        shape = self.shape
        live = self.cache.describe(self.sequences[0], layer)["live_rows"]
        parts = []
        for part, dim in (("k", shape.key_dim), ("v", shape.value_dim)):
            out = torch.empty(len(self.sequences), shape.num_kv_heads, live, dim)
            if live:
                self.cache.read_batch(layer, part, self.sequences, out)
            out = out.to(self.device, dtype)
            if part == "k" and self.order is not None:
                out = out[..., self.order.argsort()]
            parts.append(out)
        return parts[0], parts[1]

    # --- between forwards ---

    def select(self, rows: list[int]) -> None:
        """Row i of the batch becomes what row rows[i] was. Pages are shared, not copied."""
        self.take_turn("reorder_cache")
        if not rows:
            raise Error("reorder_cache: no row of the batch was chosen; call reset() to make the cache empty")
        unknown = [row for row in rows if not 0 <= row < len(self.sequences)]
        if unknown:
            raise Error(f"row {unknown[0]} is outside the batch of {len(self.sequences)}")
        first: dict[int, int] = {}  # where a row goes that needs no fork
        for i, row in enumerate(rows):
            first.setdefault(row, i)
        forks = self.forks_of([(i, self.sequences[row]) for i, row in enumerate(rows) if first[row] != i])
        chosen = [forks.get(i, self.sequences[row]) for i, row in enumerate(rows)]
        for row in set(range(len(self.sequences))) - set(first):
            self.cache.free(self.sequences[row])
        self.sequences, self.rows_seen = chosen, None
        if self.valid is not None:
            self.keep_valid(self.valid[torch.tensor(rows, dtype=torch.long)])

    def crop(self, num_tokens: int) -> None:
        """Forgets the last num_tokens of every row: all rows or none."""
        self.take_turn("crop")
        num_tokens = min(num_tokens, self.num_tokens)
        if not num_tokens:
            return
        kept = self.all_valid()[:, : self.num_tokens - num_tokens].sum(1).tolist()
        cuts = []
        for sequence, tokens in zip(self.sequences, kept):
            stay, position = self.cache.find_cut(sequence, tokens)
            if stay != tokens:
                raise Error(f"crop: {tokens} tokens would stay, but a folded page can be cut at {stay}; use a plan without fold=")
            self.check_window(sequence, position)
            cuts.append((sequence, position))
        for sequence, position in cuts:
            self.cache.truncate(sequence, position)
        self.num_tokens -= num_tokens
        if self.valid is not None:
            self.keep_valid(self.valid[:, : self.num_tokens])

    def keep_valid(self, valid: torch.Tensor) -> None:
        """Where no padding is left the mask is not needed any more."""
        self.valid = None if bool(valid.all()) else valid

    def check_window(self, sequence: int, position: int) -> None:
        """Rows that a query at `position` sees in a sliding layer must still be there."""
        for layer, window in enumerate(self.windows):
            if not window:
                continue
            pages = self.cache.describe(sequence, layer)["pages"]
            first = pages[0].first_position if pages else 0
            if first > max(0, position - window + 1):
                raise Error(
                    f"crop: layer {layer} has dropped what the window of {window} tokens needs at position {position}; up to "
                    f"{CROP_MARGIN} tokens can be cropped (fewer with window= in the plan), more after "
                    "activate_past_recording() before the first token"
                )

    def take_turn(self, call: str) -> None:
        """Refused where a forward of our own is open; one of a twin ends."""
        self.check_idle(call)
        self.turns.take(self)

    def check_idle(self, call: str) -> None:
        if self.forward is not None:
            raise Error(f"{call}: a forward is not finished: {len(self.forward.done)} layers are done")
