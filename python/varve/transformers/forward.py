"""One forward of a model: the step that it is, or, if it is too long for one, the rows until its end."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from varve._native import Cache, Error, Step


@dataclass
class Spans:
    """Which tokens of each row of a batch are real: [starts[b], starts[b] + counts[b])."""

    num_tokens: int
    starts: list[int]
    counts: list[int]
    padded: bool = False

    @staticmethod
    def all(batch: int, num_tokens: int) -> Spans:
        return Spans(num_tokens, [0] * batch, [num_tokens] * batch)

    @staticmethod
    def of_mask(mask: torch.Tensor) -> Spans:
        """mask [batch, tokens] bool, on the CPU. Padding may be on either side."""
        num_tokens = mask.shape[1]
        counts = mask.sum(1).tolist()
        starts = [int(row.argmax()) if count else 0 for row, count in zip(mask.int(), counts)]
        for b, (start, count) in enumerate(zip(starts, counts)):
            if not bool(mask[b, start : start + count].all()):
                raise Error(f"attention_mask: row {b} hides tokens between others; only padding at an end can be left out")
        return Spans(num_tokens, starts, counts, any(count != num_tokens for count in counts))

    def valid(self) -> torch.Tensor:
        """[batch, tokens] bool"""
        index = torch.arange(self.num_tokens)
        starts, counts = torch.tensor(self.starts)[:, None], torch.tensor(self.counts)[:, None]
        return (index >= starts) & (index < starts + counts)


@dataclass
class Forward:
    """Layers come in order. `step` is None where the tokens do not fit into one: then rows wait in `waiting`."""

    spans: Spans
    step: Step | None
    is_first: bool = False  # of its batch: the sequences were made for it
    done: set[int] = field(default_factory=set)
    # Per layer (keys, values, queries or None, options of attention)
    waiting: list[tuple] = field(default_factory=list)
    # Of the sequences, from before the step: what an observer that raises behind the commit brings back
    forks: list[int] = field(default_factory=list)

    @staticmethod
    def begin(cache: Cache, sequences: list[int], spans: Spans, commit_may_raise: bool = False) -> Forward:
        entries = [(s, count) for s, count in zip(sequences, spans.counts) if count]
        forward = Forward(spans, None)
        # One token always fits.
        if not entries or any(count > 1 and count > cache.max_step_tokens(s) for s, count in entries):
            return forward
        if commit_may_raise:
            forward.forks = [cache.fork(sequence) for sequence in sequences]
        try:
            forward.step = cache.step(entries)
        except BaseException:
            forward.free_forks(cache)
            raise
        return forward

    @property
    def waits(self) -> bool:
        return self.step is None and any(self.spans.counts)

    def abort(self, cache: Cache) -> None:
        if self.step is not None:
            self.step.abort()
        self.free_forks(cache)
        self.waiting.clear()

    def free_forks(self, cache: Cache) -> None:
        while self.forks:
            cache.free(self.forks.pop())

    def finish(self, cache: Cache, sequences: list[int]) -> None:
        """Keeps the tokens: ends the step, or feeds what waits. All tokens or none; after a failure `sequences` may be
        others, with the content from before."""
        if self.step is not None:
            self._commit(cache, sequences)
        elif self.waits:
            self._feed_all(cache, sequences)
        self.waiting.clear()

    def _commit(self, cache: Cache, sequences: list[int]) -> None:
        """The end of a step drops old rows, which no truncation brings back; so forks where observers may raise."""
        before = [cache.next_position(sequence) for sequence in sequences]
        try:
            self.step.commit()
        except BaseException:
            for b, (sequence, position) in enumerate(zip(sequences, before)):
                if cache.next_position(sequence) == position:
                    continue
                if self.forks:
                    self.forks[b], sequences[b] = sequence, self.forks[b]
                else:
                    cache.truncate(sequence, position)
            raise
        finally:
            self.free_forks(cache)

    def _feed_all(self, cache: Cache, sequences: list[int]) -> None:
        """In several steps. Each may drop old rows, which no truncation brings back, so forks hold what there was."""
        forks: list[int] = []
        try:
            for sequence in sequences:
                forks.append(cache.fork(sequence))
            for b, sequence in enumerate(sequences):
                self._feed_row(cache, b, sequence)
        except BaseException:
            for b, fork in enumerate(forks):
                forks[b], sequences[b] = sequences[b], fork
            raise
        finally:
            for fork in forks:
                cache.free(fork)

    def _feed_row(self, cache: Cache, b: int, sequence: int) -> None:
        """In steps as long as the cache allows."""
        begin, end = self.spans.starts[b], self.spans.starts[b] + self.spans.counts[b]
        while begin < end:
            count = min(cache.max_step_tokens(sequence), end - begin)
            with cache.step(sequence, count) as step:
                self._feed(step, b, sequence, slice(begin, begin + count))
            begin += count

    def _feed(self, step: Step, b: int, sequence: int, span: slice) -> None:
        for layer, (keys, values, queries, options) in enumerate(self.waiting):
            step.append(layer, sequence, keys[b, :, span].transpose(0, 1), values[b, :, span].transpose(0, 1))
            if queries is not None:  # a policy ranks pages by what they look at
                step.attend(layer, sequence, queries[b, :, span].transpose(0, 1), **options)
