"""Perplexity and KL of lanes on windows of a text: every token but the first, teacher-forced, in pieces of 64."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from varve.eval.lanes import Lane
from varve.transformers import VarveCache

_PIECE = 64  # tokens at once: where pages of most plans end


def cut_windows(tokens: list[int], ctx: int, bos: int | None, max_windows: int) -> list[list[int]]:
    """Windows of exactly ctx tokens, each with bos first; what is left at the end is not used."""
    stride = ctx - 1 if bos is not None else ctx
    count = min(len(tokens) // stride, max_windows or len(tokens))
    if ctx < 2 or count == 0:
        raise ValueError(f"the text has {len(tokens)} tokens, a window needs {stride} (--ctx {ctx})")
    first = [] if bos is None else [bos]
    return [first + tokens[i * stride : (i + 1) * stride] for i in range(count)]


@dataclass
class Scores:
    """Sums over scored tokens, and what a window cost."""

    losses: list[float] = field(default_factory=list)
    kl: list[float] = field(default_factory=list)
    same_best: int = 0
    bytes: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def row(self, lane: Lane, reference: Scores) -> dict[str, Any]:
        count = len(self.losses)
        perplexity = math.exp(sum(self.losses) / count)
        return {
            "plan": lane.name,
            "perplexity": perplexity,
            "perplexity_change": perplexity / math.exp(sum(reference.losses) / count) - 1,
            "kl_mean": sum(self.kl) / count,
            "kl_p99": sorted(self.kl)[max(0, math.ceil(0.99 * count) - 1)],
            "same_best": self.same_best / count,
            "bytes_per_token": self.bytes / self.tokens,
            "ratio": reference.bytes / self.bytes,
            "prefill_tokens_per_s": self.tokens / self.seconds,
        }


def _pieces(ctx: int, prompt: int, most: int) -> list[tuple[int, int]]:
    """Cut at multiples of _PIECE, at the end of the prompt, and at what a step may hold."""
    cuts, begin = [], 0
    while begin < ctx:
        end = min(ctx, (begin // _PIECE + 1) * _PIECE, begin + most)
        if begin < prompt < end:
            end = prompt
        cuts.append((begin, end))
        begin = end
    return cuts


def _step_limit(cache: Any) -> int:
    if isinstance(cache, VarveCache) and cache.sequences:
        return cache.native.max_step_tokens(cache.sequences[0])
    return _PIECE


@torch.no_grad()
def _read_piece(model: Any, cache: Any, window: torch.Tensor, begin: int, end: int) -> torch.Tensor:
    """Logits of tokens [begin, end), in as many forwards as the cache wants."""
    logits = []
    while begin < end:
        count = min(end - begin, _step_limit(cache))
        logits.append(model(window[:, begin : begin + count], past_key_values=cache).logits[0].float())
        begin += count
    return torch.cat(logits)


def _score(scores: Scores, logits: torch.Tensor, reference: torch.Tensor, targets: torch.Tensor) -> None:
    """log-probabilities [tokens, vocabulary] of the lane and the reference."""
    ours, theirs = logits.double().log_softmax(-1), reference
    scores.losses += (-ours.gather(1, targets[:, None])[:, 0]).tolist()
    scores.kl += (theirs.exp() * (theirs - ours)).sum(-1).tolist()
    scores.same_best += int((ours.argmax(-1) == theirs.argmax(-1)).sum())


def evaluate_windows(
    model: Any, windows: list[list[int]], lanes: list[Lane], progress: Callable[[str], None] | None = None
) -> list[dict[str, Any]]:
    """A row per lane; the first lane is the reference. If a lane drops rows, the first half of each window is a prompt
    and only the second half is scored, for all."""
    ctx = len(windows[0])
    prompt = ctx // 2 if any(lane.needs_prompt for lane in lanes) else 0
    scores = [Scores() for _ in lanes]
    before = model.config._attn_implementation
    for number, tokens in enumerate(windows):
        window = torch.tensor([tokens])
        caches = [lane.make() for lane in lanes]
        for begin, end in _pieces(ctx, prompt, _PIECE):
            reference = None
            for lane, cache, score in zip(lanes, caches, scores):
                if begin == prompt > 0 and isinstance(cache, VarveCache):
                    cache.end_prompt()
                model.set_attn_implementation(lane.attention)
                started = time.perf_counter()
                logits = _read_piece(model, cache, window, begin, end)
                score.seconds += time.perf_counter() - started
                last = min(end, ctx - 1)  # the last token has no next one
                if begin < prompt or last <= begin:
                    continue
                logits, targets = logits[: last - begin], window[0, begin + 1 : last + 1]
                reference = logits.double().log_softmax(-1) if reference is None else reference
                _score(score, logits, reference, targets)
        for lane, cache, score in zip(lanes, caches, scores):
            score.bytes += lane.bytes_of(cache)
            score.tokens += ctx
        if progress:
            progress(f"window {number + 1} of {len(windows)}")
    model.set_attn_implementation(before)
    return [score.row(lane, scores[0]) for lane, score in zip(lanes, scores)]
