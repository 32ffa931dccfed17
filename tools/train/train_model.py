#!/usr/bin/env python3
"""Trains the embedded model: tokenizer, Llama-architecture model, GGUF file, and what its card says.

    train_model.py --train books-train.txt.xz --valid books-valid.txt.xz --out OUT --minutes 9

Needs PyTorch, numpy and tokenizers, and one GPU for anything but a try (--device cpu --tiny). The learning
rate follows the clock, so that the run ends when it should on any machine; OUT gets tokenizer.json,
model.gguf (in parts with --part-bytes) and report.json. A third of the windows carries recall passages
(recall_text.py).
"""

import argparse
import json
import math
import random
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from model import Config, Llama, describe, write_gguf
from training_text import Windows, batch_loader, corpus_words, encode, read_documents, train_tokenizer


def learning_rate(done: float, peak: float) -> float:
    """done: share of the time that has passed. Linear warm-up, flat, linear decay over the last half."""
    return peak * min(1.0, done / 0.02, max(0.0, (1 - done) / 0.5))


def optimizer_of(model: Llama, peak: float, decay: float, fused: bool) -> torch.optim.Optimizer:
    matrices = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    groups = [{"params": matrices, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=peak, betas=(0.9, 0.95), eps=1e-8, fused=fused)


def train(model: Llama, windows: Windows, args, device: str) -> dict:
    compiled = torch.compile(model) if device == "cuda" else model
    optimizer = optimizer_of(model, args.rate, args.decay, device == "cuda")
    loader = batch_loader(partial(windows.batch, args.batch, 1 / 3), args.seed, args.workers, device)
    begin, steps, history, smooth = None, 0, [], None
    for ids, weights in loader:
        ids, weights = ids.to(device, non_blocking=True), weights.to(device, non_blocking=True)
        # The clock starts after the first step, which compiles.
        done = 0.0 if begin is None else (time.time() - begin) / (60 * args.minutes)
        if done >= 1.0:
            break
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(max(done, 1e-4), args.rate)
        with torch.autocast(device, torch.bfloat16):
            logits = compiled(ids[:, :-1])
        losses = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none").float()
        w = weights[:, 1:].flatten()
        loss = (losses * w).sum() / w.sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        steps += 1
        if begin is None:
            if device == "cuda":
                torch.cuda.synchronize()
            begin = time.time()
        if steps % 50 == 0:
            value = loss.item()
            smooth = value if smooth is None else 0.8 * smooth + 0.2 * value
            history.append({"step": steps, "loss": value})
            print(f"step {steps} loss {smooth:.3f} done {done:.3f}", flush=True)
    tokens = steps * args.batch * windows.context
    return {"steps": steps, "tokens": tokens, "train_loss": smooth, "history": history[:: max(1, len(history) // 100)]}


@torch.no_grad()
def perplexity(model: Llama, stream: np.ndarray, context: int, num_windows: int, device: str) -> float:
    """Mean loss in nats: windows of `context` tokens, the first one END, spread over the stream."""
    starts = np.linspace(0, len(stream) - context, num_windows).astype(int)
    total, count = 0.0, 0
    for start in starts:
        ids = torch.tensor(np.concatenate(([0], stream[start : start + context - 1])).astype(np.int64))
        ids = ids[None].to(device)
        logits = model(ids[:, :-1]).float()
        total += F.cross_entropy(logits[0], ids[0, 1:], reduction="sum").item()
        count += ids.shape[1] - 1
    return total / count


@torch.no_grad()
def recall_hits(model: Llama, windows: Windows, tokens: int, facts: int, asked: int, device: str) -> int:
    """How often greedy decoding would give the whole answer: every answer token is the best one."""
    rng, hits = random.Random(7), 0
    for _ in range(asked):
        ids, _, length = windows.recall(rng, num_facts=facts, at_end=True, tokens=tokens)
        ids = torch.tensor(ids)[None].to(device)
        best = model(ids[:, :-1])[0, -length:].argmax(-1)
        hits += int((best == ids[0, -length:]).all())
    return hits


def write_parts(path: Path, part_bytes: int) -> None:
    """The file again, as PATH.part0, PATH.part1 …"""
    data = path.read_bytes()
    for n in range(math.ceil(len(data) / part_bytes)):
        part = data[n * part_bytes : (n + 1) * part_bytes]
        path.with_name(f"{path.name}.part{n}").write_bytes(part)


def measure(model: Llama, valid: np.ndarray, windows: Windows, bytes_per_token: float, args) -> dict:
    """Loss on the stream `valid` and recall in its windows, for the report."""
    model.eval()
    contexts = (128, 512) if args.tiny else (512, 2048, 4096)
    losses = {c: perplexity(model, valid, c, 64, args.device) for c in contexts}
    depth = 400 if args.tiny else 3500
    return {
        "valid_loss": losses,
        "valid_perplexity": {c: math.exp(v) for c, v in losses.items()},
        "valid_bits_per_byte": {c: v / math.log(2) / bytes_per_token for c, v in losses.items()},
        "recall_of_40": {
            f"{facts} facts": recall_hits(model, windows, depth, facts, 40, args.device) for facts in (1, 4, 8)
        },
    }


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--valid", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=9.0, help="of training, after the first step")
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--rate", type=float, default=2.5e-3)
    # The text is read some 18 times: with the usual 0.1 the loss on other books was 0.1 higher.
    parser.add_argument("--decay", type=float, default=0.8, help="weight decay")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--name", default="varve-books-29m")
    parser.add_argument("--part-bytes", type=int, default=0, help="also write the model in parts")
    parser.add_argument("--tiny", action="store_true", help="a toy, to try the script")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    config = Config(vocab=1024, layers=2, width=128, ffn=256, context=512) if args.tiny else Config()

    begin = time.time()
    documents, valid_documents = read_documents(args.train), read_documents(args.valid)
    if args.tiny:
        documents, valid_documents = [documents[0][:400000]], [valid_documents[0][:100000]]
    tokenizer = train_tokenizer(documents, config.vocab)
    tokenizer.save(str(args.out / "tokenizer.json"))
    print(f"tokenizer after {time.time() - begin:.0f} s", flush=True)
    stream, valid = encode(tokenizer, documents), encode(tokenizer, valid_documents)
    bytes_per_token = sum(len(d.encode()) for d in valid_documents) / len(valid)
    words = corpus_words(documents)
    print(f"{len(stream)} tokens, {bytes_per_token:.3f} bytes per token, {time.time() - begin:.0f} s", flush=True)

    windows = Windows(stream, tokenizer, words, config.context)
    valid_windows = Windows(valid, tokenizer, [], config.context)
    model = Llama(config).to(args.device)
    parameters = sum(p.numel() for p in model.parameters())
    report = {"config": describe(config), "parameters": parameters, "train_tokens_unique": len(stream)}
    report |= train(model, windows, args, args.device)
    vocabulary = json.loads((args.out / "tokenizer.json").read_text(encoding="utf-8"))
    path = args.out / "model.gguf"
    write_gguf(model, vocabulary, args.name, path)
    print(f"wrote {path.stat().st_size} bytes", flush=True)
    if args.part_bytes:
        write_parts(path, args.part_bytes)
    report |= measure(model, valid, valid_windows, bytes_per_token, args)
    report["seconds"] = time.time() - begin
    (args.out / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps({k: v for k, v in report.items() if k != "history"}, indent=1), flush=True)


if __name__ == "__main__":
    main()
