"""Recall: does the model still find a number that it read long ago?"""

from __future__ import annotations

import random
from typing import Any

import torch

from varve.eval.lanes import Lane
from varve.eval.windows import _read_piece


def _prompt(tokenizer: Any, filler: list[int], ctx: int, chance: random.Random) -> tuple[list[int], list[int]]:
    """A text with a pass key at some depth, a question behind it, and the tokens of the answer."""
    key = str(chance.randrange(10000, 100000))
    needle = tokenizer.encode(f"\n\nThe pass key is {key}. Remember it: {key} is the pass key.\n\n", add_special_tokens=False)
    question = tokenizer.encode("\n\nWhat is the pass key? The pass key is", add_special_tokens=False)
    answer = tokenizer.encode(f" {key}", add_special_tokens=False)
    room = ctx - len(needle) - len(question) - len(answer)
    if room < 16:
        raise ValueError(f"--ctx {ctx}: no room for a text around the pass key")
    begin = chance.randrange(max(1, len(filler) - room))
    text = filler[begin : begin + room]
    depth = int(len(text) * chance.uniform(0.1, 0.8))
    return text[:depth] + needle + text[depth:] + question, answer


def measure_recall(
    model: Any, tokenizer: Any, filler: list[int], lanes: list[Lane], ctx: int, prompts: int, seed: int = 1
) -> dict[str, float]:
    """Share of the answers' tokens that are the most likely ones, by lane; the answer so far is given."""
    right = dict.fromkeys((lane.name for lane in lanes), 0)
    total = 0
    before = model.config._attn_implementation
    chance = random.Random(seed)
    for _ in range(prompts):
        prompt, answer = _prompt(tokenizer, filler, ctx, chance)
        tokens = torch.tensor([prompt + answer[:-1]])
        total += len(answer)
        for lane in lanes:
            model.set_attn_implementation(lane.attention)
            cache = lane.make()
            for begin in range(0, len(prompt) - 1, 512):
                _read_piece(model, cache, tokens, begin, min(begin + 512, len(prompt) - 1))
            logits = torch.cat(
                [_read_piece(model, cache, tokens, i, i + 1) for i in range(len(prompt) - 1, tokens.shape[1])]
            )
            right[lane.name] += int((logits.argmax(-1) == torch.tensor(answer)).sum())
    model.set_attn_implementation(before)
    return {name: count / total for name, count in right.items()}
