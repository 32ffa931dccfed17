"""Recall: does the model still find numbers that it read long ago? The task of `varve eval recall`.

    … Remember that the number of the silver tower is 48213. …
    What is the number of the silver tower? The number of the silver tower is

Each lane reads a text with several facts once. The prompt has ended before the first question comes, and every question
is asked behind a copy of the same cache.
"""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass
from typing import Any

import torch

from varve.eval.lanes import Lane

_FACTS = 8  # of one text
_DEPTHS = (0.0, 0.225, 0.45, 0.675, 0.9)  # questions take them in turn
_MOST = 12  # tokens of an answer
_THINGS = [
    f"{adjective} {noun}"
    for adjective in ("amber", "black", "broken", "copper", "frozen", "golden", "hidden", "quiet", "red", "silver", "stone", "tall")
    for noun in ("abbey", "bell", "bridge", "castle", "clock", "farm", "garden", "harbor", "island", "lamp", "mill", "tower")
]


@dataclass
class RecallPrompt:
    text: list[int]
    questions: list[tuple[list[int], str]]  # tokens, and the number that answers them


def _place_behind(tokenizer: Any, filler: list[int], at: int) -> int:
    """Behind the end of a sentence, if there is one soon."""
    for place in range(at, min(at + 64, len(filler))):
        if tokenizer.decode(filler[place]).endswith((".", "!", "?")):
            return place + 1
    return at


def _make_prompt(tokenizer: Any, filler: list[int], ctx: int, first: int, count: int, chance: random.Random) -> RecallPrompt:
    encode = lambda text: tokenizer.encode(text, add_special_tokens=False)  # noqa: E731
    things = chance.sample(_THINGS, count)
    numbers = [str(chance.randrange(10000, 100000)) for _ in things]
    facts = [encode(f" Remember that the number of the {t} is {n}.") for t, n in zip(things, numbers)]
    questions = [encode(f"\n\nWhat is the number of the {t}? The number of the {t} is") for t in things]
    bos = [tokenizer.bos_token_id] if getattr(tokenizer, "add_bos_token", False) else []
    room = ctx - len(bos) - sum(map(len, facts)) - max(map(len, questions)) - _MOST
    if room < 16 or room > len(filler):
        raise ValueError(f"--ctx {ctx}: a text with {count} facts has room for {room} other tokens, of which there are {len(filler)}")
    begin = chance.randrange(len(filler) - room + 1)
    text = filler[begin : begin + room]
    places = [_place_behind(tokenizer, text, int(len(text) * _DEPTHS[(first + i) % len(_DEPTHS)])) for i in range(count)]
    for place, fact in sorted(zip(places, facts), key=lambda entry: entry[0], reverse=True):
        text = text[:place] + fact + text[place:]
    return RecallPrompt(bos + text, list(zip(questions, numbers)))


def make_prompts(tokenizer: Any, filler: list[int], ctx: int, asked: int, seed: int = 1) -> list[RecallPrompt]:
    """Texts of at most ctx tokens with their questions and answers, from different places of `filler`."""
    chance = random.Random(seed)
    return [
        _make_prompt(tokenizer, filler, ctx, first, min(_FACTS, asked - first), chance) for first in range(0, asked, _FACTS)
    ]


def fingerprint(prompts: list[RecallPrompt]) -> int:
    """Of all tokens and answers: runs whose numbers differ have asked something else."""
    return zlib.crc32(repr(prompts).encode())


def _is_hit(tokenizer: Any, tokens: list[int], number: str, ended: bool) -> bool | None:
    """None while more text may make it one. A hit is the number and then anything but a digit."""
    said = tokenizer.decode(tokens).lstrip(" ")
    if len(said) > len(number):
        return said.startswith(number) and not said[len(number)].isdigit()
    return (said == number if ended else None) if number.startswith(said) else False


def _ask(model: Any, tokenizer: Any, lane: Lane, cache: Any, text: list[int], question: list[int], number: str) -> tuple[bool, int]:
    """Greedy, in the cache, which has read the text: whether the number was found, and how many tokens it has read then."""
    tokens, begin, said = text + question, len(text), []
    while True:
        logits = lane.read(model, cache, torch.tensor([tokens]), begin, len(tokens), logits_to_keep=1)
        said.append(int(logits[-1].argmax()))
        begin, tokens = len(tokens), tokens + said[-1:]
        ended = said[-1] == tokenizer.eos_token_id
        hit = _is_hit(tokenizer, said[:-1] if ended else said, number, ended or len(said) == _MOST)
        if hit is not None:
            return hit, begin


def measure_recall(model: Any, tokenizer: Any, prompts: list[RecallPrompt], lanes: list[Lane]) -> dict[str, dict[str, float]]:
    """By lane: the share of questions answered, and bytes a token when the last question of a text has been answered."""
    before = model.config._attn_implementation
    results = {}
    for lane in lanes:
        hits = held = seen = 0
        for prompt in prompts:
            cache = lane.make()
            lane.read_prompt(model, cache, torch.tensor([prompt.text]))
            for index, (question, number) in enumerate(prompt.questions):
                last = index + 1 == len(prompt.questions)
                asked = cache if last else lane.fork(cache)
                hit, tokens = _ask(model, tokenizer, lane, asked, prompt.text, question, number)
                hits += hit
                del asked
            held += lane.bytes_of(cache)
            seen += tokens
        asked = sum(len(prompt.questions) for prompt in prompts)
        results[lane.name] = {"recall": hits / asked, "recall_bytes_per_token": held / seen}
    model.set_attn_implementation(before)
    return results
