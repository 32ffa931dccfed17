"""Windows of a prompt and what follows it: facts are stated in the prompt and asked for after it."""

import random

import numpy as np

import recall_text
from training_text import ANSWER_WEIGHT, Windows

Passage = tuple[list[int], list[int]]  # a question and its answer


class PromptWindows(Windows):
    """The first token is END; `prompt` tokens, then `rest` more."""

    def prompt_with_facts(
        self, rng: random.Random, num_facts: int, prompt: int, rest: int
    ) -> tuple[list[int], list[Passage], np.ndarray, int]:
        """`prompt` tokens, the questions, `rest` tokens of the text that goes on, and where in the stream."""
        names = self.facts(rng, num_facts)
        stated = [(rng.random() * 0.97, 0, self.ids(recall_text.fact(*fact)), []) for fact in names.items()]
        asked = [
            (self.ids(recall_text.question(name)), self.ids(recall_text.answer(value)))
            for name, value in names.items()
        ]
        room = prompt - 1 - sum(len(ids) for _, _, ids, _ in stated)
        body, start = self.plain(rng, room + rest)
        ids, _ = self.insert(body[:room], start, stated)
        return [0] + ids, asked, body[room:], start + room

    def recall_row(self, rng: random.Random, prompt: int, rest: int) -> tuple[np.ndarray, np.ndarray]:
        """Half of the questions come right after the prompt, the others anywhere later."""
        num_facts = min(rng.choice((1, 2, 3, 4, 6, 8)), max(1, min(prompt, rest) // 100))
        ids, asked, body, start = self.prompt_with_facts(rng, num_facts, prompt, rest)
        weights = [1.0] * prompt
        gap, later = self.ids("\n\n"), []
        for question, answer in asked:
            answer = answer + gap
            if rng.random() < 0.5:
                ids += question + answer
                weights += [1.0] * len(question) + [ANSWER_WEIGHT] * len(answer)
            else:
                later.append((rng.random(), 0, question, answer))
        room = prompt + rest - len(ids) - sum(len(q) + len(a) for _, _, q, a in later)
        more, more_weights = self.insert(body[:room], start, later)
        return np.array(ids + more), np.array(weights + more_weights, np.float32)

    def prompt_batch(
        self, size: int, shapes: tuple[tuple[int, int], ...], recall_share: float, rng: random.Random
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Tokens and weights [size, prompt + rest], and the prompt's length."""
        prompt, rest = rng.choice(shapes)
        rows = []
        for _ in range(size):
            if rng.random() < recall_share:
                rows.append(self.recall_row(rng, prompt, rest))
            else:
                body, _ = self.plain(rng, prompt + rest - 1)
                rows.append((np.concatenate(([0], body)), np.ones(prompt + rest, np.float32)))
        ids, weights = (np.stack(column) for column in zip(*rows))
        return ids.astype(np.int64), weights, np.array(prompt)
