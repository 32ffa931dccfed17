#!/usr/bin/env python3
"""Writes the seed inputs of the cache fuzzer (fuzz/cache_fuzzer.cc) to fuzz/corpus/cache.

    make_cache_corpus.py [FOLDER]

Programs that lean on one kind of operation each, over every plan of the fuzzer and with or without a
cap, NaN rows and a second thread. The same files come out every time. A byte string is a program: plan,
flags, then operations with their arguments (see Program::Operation).
"""

import random
import sys
from pathlib import Path

NUM_PLANS = 11  # without codebooks, first in the fuzzer's list
NUM_PQ_PLANS = 5  # after them
NUM_EXACT_PLANS = 2  # with exact=, after those
NUM_TURNED_PLANS = 3  # t4, t3, t2, last
STEP = 11  # and above
# Name, number of operations, and the operations that make up a third of the program besides steps.
KINDS = [
    ("steps", 60, [STEP]),
    ("forks", 60, [1, 2, STEP]),
    ("cuts", 50, [3, 4, 5, 6]),
    ("errors", 40, [7, 8, 9, 10]),
    ("all", 90, list(range(11))),
]


def program(rng: random.Random, plan: int, flags: int, count: int, operations: list[int]) -> bytes:
    out = [plan, flags, 0]
    for _ in range(count):
        if rng.random() < 0.33:
            out.append(rng.choice(operations))
            out += [rng.randrange(256) for _ in range(3)]
        else:
            # Mostly all sequences at once, mostly as many tokens as the step may hold.
            out += [STEP, rng.choice([255, 255, 1, 2, 3])]
            out += [rng.choice([255, rng.randrange(128)]) for _ in range(2)]
    return bytes(out)


def main() -> int:
    root = Path(__file__).resolve().parent.parent
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else root / "fuzz" / "corpus" / "cache"
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(20240)
    flags = [0, 1, 2, 4, 8, 12, 5]
    number = 0
    for name, count, operations in KINDS:
        for _ in range(6):
            plan = number % NUM_PLANS
            data = program(rng, plan, flags[number % len(flags)], count, operations)
            (folder / f"{name}_{number:02}").write_bytes(data)
            number += 1
    for plan in range(NUM_PLANS, NUM_PLANS + NUM_PQ_PLANS):
        data = program(rng, plan, flags[plan % len(flags)], 80, list(range(11)))
        (folder / f"pq_{number:02}").write_bytes(data)
        number += 1
    for plan in range(NUM_PLANS + NUM_PQ_PLANS, NUM_PLANS + NUM_PQ_PLANS + NUM_EXACT_PLANS):
        for operations in ([1, 2, STEP], [3, 4, 5, 6]):
            data = program(rng, plan, flags[number % len(flags)], 60, operations)
            (folder / f"exact_{number:02}").write_bytes(data)
            number += 1
    first = NUM_PLANS + NUM_PQ_PLANS + NUM_EXACT_PLANS
    for plan in range(first, first + NUM_TURNED_PLANS):
        data = program(rng, plan, flags[number % len(flags)], 80, list(range(11)))
        (folder / f"turned_{number:02}").write_bytes(data)
        number += 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
