"""Training text: documents, the byte-level BPE, and windows of tokens with recall passages in them.

Texts hold documents separated by a line `<|endoftext|>`. Needs PyTorch, numpy and tokenizers.
"""

import lzma
import random
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

import recall_text

END = "<|endoftext|>"
# The pre-tokenizer "qwen2": every digit is a token of its own.
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
ANSWER_WEIGHT = 3.0  # of the loss of an answer's tokens


def read_documents(path: Path) -> list[str]:
    opener = lzma.open if path.suffix == ".xz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        return [d.strip("\n") for d in file.read().split(f"\n{END}\n") if d.strip()]


def byte_level_bpe(model: models.BPE) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def train_tokenizer(documents: list[str], vocab: int) -> Tokenizer:
    tokenizer = byte_level_bpe(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=[END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    pieces = (d[i : i + 20000] for d in documents for i in range(0, len(d), 20000))
    tokenizer.train_from_iterator(pieces, trainer)
    return tokenizer


def tokenizer_of(tokens: list[str], merges: list[str]) -> Tokenizer:
    """The tokenizer that a GGUF file of write_gguf holds."""
    vocab = {token: i for i, token in enumerate(tokens)}
    tokenizer = byte_level_bpe(models.BPE(vocab, [tuple(m.split(" ")) for m in merges]))
    tokenizer.add_special_tokens([END])
    return tokenizer


def corpus_words(documents: list[str]) -> list[str]:
    """Words that recall passages may be about, beside those of recall_text."""
    return sorted(set(re.findall(r"\b[a-z]{3,9}\b", documents[0])))


def encode(tokenizer: Tokenizer, documents: list[str]) -> np.ndarray:
    """One stream, each document followed by END (token 0). Cut at paragraphs, to use all cores."""
    chunks = []
    for document in documents:
        parts = re.split(r"(?<=\n\n)(?=\S)", document)
        piece = ""
        for part in parts:
            piece += part
            if len(piece) > 20000:
                chunks.append(piece)
                piece = ""
        chunks.append(piece + END)
    out = [np.array(e.ids, np.uint16) for e in tokenizer.encode_batch(chunks)]
    return np.concatenate(out)


class Windows:
    """Training windows of `context` + 1 tokens, the first one END, with loss weights."""

    def __init__(self, stream: np.ndarray, tokenizer: Tokenizer, words: list[str], context: int) -> None:
        self.stream, self.tokenizer, self.words, self.context = stream, tokenizer, words, context
        texts = [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]
        ends = np.array([t in (".", "!", "?", '."', '!"', '?"') for t in texts])
        blank = np.array([t.startswith("Ġ") and len(t) > 1 for t in texts])
        self.may_insert = np.zeros(len(stream) + 1, bool)  # a fact may stand before this token
        self.may_insert[1:-1] = ends[stream[:-1]] & blank[stream[1:]]

    def ids(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def plain(self, rng: random.Random, tokens: int) -> tuple[np.ndarray, int]:
        start = rng.randrange(len(self.stream) - tokens)
        return self.stream[start : start + tokens], start

    def text(self, rng: random.Random) -> tuple[np.ndarray, np.ndarray]:
        body, _ = self.plain(rng, self.context)
        return np.concatenate(([0], body)), np.ones(self.context + 1, np.float32)

    def facts(self, rng: random.Random, count: int) -> dict[tuple[str, str], str]:
        names: dict[tuple[str, str], str] = {}
        while len(names) < count:
            names[recall_text.thing(rng, self.words)] = recall_text.number(rng)
        return names

    def insert(self, body: np.ndarray, start: int, inserts: list[tuple]) -> tuple[list[int], list[float]]:
        """The tokens of `body`, which begins at `start` of the stream, with passages between its sentences.
        inserts: (place in 0..1, order at one place, ids, ids of an answer that follows them)."""
        places = np.flatnonzero(self.may_insert[start : start + len(body)])
        ids, weights, done = [], [], 0
        for place, _, asked, told in sorted(inserts, key=lambda item: item[:2]):
            at = int(place * len(body))
            if len(places):
                at = int(places[min(np.searchsorted(places, at), len(places) - 1)])
            at = max(at, done)
            ids += body[done:at].tolist() + asked + told
            weights += [1.0] * (at - done + len(asked)) + [ANSWER_WEIGHT] * len(told)
            done = at
        return ids + body[done:].tolist(), weights + [1.0] * (len(body) - done)

    def recall(self, rng: random.Random, num_facts: int = 0, at_end: bool = False, tokens: int = 0):
        """Facts at random places; each asked for at the end, some of them earlier. Returns tokens and
        weights, and with `at_end` exactly `tokens` tokens that end with one question and its answer."""
        total = tokens or self.context + 1
        num_facts = min(num_facts or rng.choice((1, 1, 2, 3, 4, 6, 8)), max(1, total // 400))
        inserts, tail = [], []
        for name, value in self.facts(rng, num_facts).items():
            place = rng.random() * 0.97
            inserts.append((place, 0, self.ids(recall_text.fact(name, value)), []))
            asked = self.ids(recall_text.question(name))
            told = self.ids(recall_text.answer(value))
            if at_end or rng.random() < 0.7:
                tail.append((asked, told))
            if not at_end and rng.random() < 0.4:
                inserts.append((place + rng.random() * (1 - place), 1, asked, told + self.ids("\n\n")))
        rng.shuffle(tail)
        tail = tail[:1] if at_end else tail
        gap = self.ids("\n\n")
        tail_length = sum(len(a) + len(t) + len(gap) for a, t in tail) - (len(gap) if at_end else 0)
        room = total - 1 - tail_length - sum(len(i) + len(t) for _, _, i, t in inserts)
        body, start = self.plain(rng, room)
        ids, weights = self.insert(body, start, inserts)
        ids, weights = [0] + ids, [1.0] + weights
        for asked, told in tail:
            ids += asked + told + (gap if not at_end else [])
            weights += [1.0] * len(asked) + [ANSWER_WEIGHT] * len(told) + [1.0] * (0 if at_end else len(gap))
        assert len(ids) == total == len(weights), (len(ids), total)
        return np.array(ids), np.array(weights, np.float32), len(tail[0][1]) if tail else 0

    def batch(self, size: int, recall_share: float, rng: random.Random):
        rows = [
            self.recall(rng)[:2] if rng.random() < recall_share else self.text(rng) for _ in range(size)
        ]
        return np.stack([r[0] for r in rows]).astype(np.int64), np.stack([r[1] for r in rows])


class BatchStream(torch.utils.data.IterableDataset):
    """Batches without end; every worker of a loader has random numbers of its own."""

    def __init__(self, make: Callable[[random.Random], tuple[np.ndarray, ...]], seed: int) -> None:
        self.make, self.seed = make, seed

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        rng = random.Random(self.seed * 1000 + (info.id if info else 0))
        while True:
            yield tuple(torch.from_numpy(array) for array in self.make(rng))


def batch_loader(make: Callable[[random.Random], tuple[np.ndarray, ...]], seed: int, workers: int, device: str):
    return torch.utils.data.DataLoader(
        BatchStream(make, seed), batch_size=None, num_workers=workers,
        pin_memory=device == "cuda", prefetch_factor=4 if workers else None,
    )  # fmt: skip
