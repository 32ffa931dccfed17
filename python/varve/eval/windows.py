"""Perplexity and KL of lanes on windows of a text: every token but the first, teacher-forced, in pieces of 64."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from varve.eval.lanes import Lane

_PIECE = 64  # tokens at once: where pages of most plans end


def cut_windows(tokens: list[int], ctx: int, bos: int | None, max_windows: int) -> list[list[int]]:
    """Windows of exactly ctx tokens, each with bos first; what is left at the end is not used. max_windows: 0 is all."""
    if ctx < 2:
        raise ValueError(f"--ctx {ctx}: a window needs at least 2 tokens")
    if max_windows < 0:
        raise ValueError(f"--windows {max_windows}: must be at least 0, which is all")
    stride = ctx - 1 if bos is not None else ctx
    count = min(len(tokens) // stride, max_windows or len(tokens))
    if count == 0:
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
    prompt_bytes: int = 0  # one token behind the prompt
    prompt_tokens: int = 0
    seconds: float = 0.0

    def row(self, lane: Lane, reference: Scores) -> dict[str, Any]:
        count = len(self.losses)
        perplexity = math.exp(sum(self.losses) / count)
        after_prompt = {"prompt_bytes_per_token": self.prompt_bytes / self.prompt_tokens} if self.prompt_tokens else {}
        return {
            "plan": lane.name,
            "kind": lane.kind,
            "perplexity": perplexity,
            "perplexity_change": perplexity / math.exp(sum(reference.losses) / count) - 1,
            "kl_mean": sum(self.kl) / count,
            "kl_p99": sorted(self.kl)[max(0, math.ceil(0.99 * count) - 1)],
            "same_best": self.same_best / count,
            "bytes_per_token": self.bytes / self.tokens,
            "ratio": reference.bytes / self.bytes,
            "prefill_tokens_per_s": self.tokens / self.seconds,
        } | after_prompt


def _pieces(ctx: int, prompt: int) -> list[tuple[int, int]]:
    """What is scored, cut at multiples of _PIECE. Behind a prompt there is a single token first: then what a policy
    decided at the prompt's end has been done, and little has been added."""
    cuts, begin = ([(prompt, prompt + 1)], prompt + 1) if prompt else ([], 0)
    while begin < ctx:
        end = min(ctx, (begin // _PIECE + 1) * _PIECE)
        cuts.append((begin, end))
        begin = end
    return cuts


def _score(scores: Scores, logits: torch.Tensor, reference: torch.Tensor, targets: torch.Tensor) -> None:
    """log-probabilities [tokens, vocabulary] of the lane and the reference."""
    ours, theirs = logits.double().log_softmax(-1), reference
    scores.losses += (-ours.gather(1, targets[:, None])[:, 0]).tolist()
    scores.kl += (theirs.exp() * (theirs - ours)).sum(-1).tolist()
    scores.same_best += int((ours.argmax(-1) == theirs.argmax(-1)).sum())


def _read_prompts(model: Any, window: torch.Tensor, lanes: list[Lane], caches: list[Any], scores: list[Scores]) -> None:
    for lane, cache, score in zip(lanes, caches, scores):
        started = time.perf_counter()
        lane.read_prompt(model, cache, window)
        score.seconds += time.perf_counter() - started


def _run_window(model: Any, window: torch.Tensor, prompt: int, lanes: list[Lane], scores: list[Scores]) -> None:
    """window [1, ctx], its first `prompt` tokens are not scored."""
    ctx = window.shape[1]
    caches = [lane.make() for lane in lanes]
    if prompt:
        _read_prompts(model, window[:, :prompt], lanes, caches, scores)
    for begin, end in _pieces(ctx, prompt):
        reference = None
        for lane, cache, score in zip(lanes, caches, scores):
            started = time.perf_counter()
            logits = lane.read(model, cache, window, begin, end)
            score.seconds += time.perf_counter() - started
            if begin == prompt > 0:
                score.prompt_bytes += lane.bytes_of(cache)
                score.prompt_tokens += end
            last = min(end, ctx - 1)  # the last token has no next one
            if last <= begin:
                continue
            logits, targets = logits[: last - begin], window[0, begin + 1 : last + 1]
            reference = logits.double().log_softmax(-1) if reference is None else reference
            _score(score, logits, reference, targets)
    for lane, cache, score in zip(lanes, caches, scores):
        score.bytes += lane.bytes_of(cache)
        score.tokens += ctx


def evaluate_windows(
    model: Any,
    windows: list[list[int]],
    lanes: list[Lane],
    progress: Callable[[str], None] | None = None,
    halves: bool | None = None,
) -> list[dict[str, Any]]:
    """A row per lane; the first lane is the reference. With halves the first half of each window is a prompt and only the
    second half is scored, for all; if nothing is said, that is so where a lane drops rows."""
    if halves is None:
        halves = any(lane.needs_prompt for lane in lanes)
    prompt = len(windows[0]) // 2 if halves else 0
    if len(windows[0]) < prompt + 2:
        raise ValueError(f"--ctx {len(windows[0])}: a window needs at least 3 tokens where its first half is a prompt")
    scores = [Scores() for _ in lanes]
    before = model.config._attn_implementation
    for number, tokens in enumerate(windows):
        _run_window(model, torch.tensor([tokens]), prompt, lanes, scores)
        if progress:
            progress(f"window {number + 1} of {len(windows)}")
    model.set_attn_implementation(before)
    return [score.row(lane, scores[0]) for lane, score in zip(lanes, scores)]
