#!/usr/bin/env python3
"""Learns compressors (fold.py) of a model that train_model.py has made.

    train_fold.py --model models/varve-books-29m.gguf --train books-train.txt.xz --valid books-valid.txt.xz \\
        --out OUT --minutes 8

Needs PyTorch, numpy and tokenizers, and one GPU for anything but a try (--device cpu --tiny). The frozen
model reads a window once. Then, for each factor, its prompt is folded and the rest of the window is read
again, behind the folded prompt and at the true positions; the loss is KL(unfolded || folded) of the
predictions. A third of the windows asks for facts of the prompt. Only the compressors learn, all factors
at once, from the same windows; the rate follows the clock.

They start as the mean of the rows, keys with a bias on top: a row that stands for `factor` rows needs
`factor` times the attention, so the bias is the least-squares solution of q · bias = √d · ln factor.

OUT gets fold{factor}.pth; meanpool{factor}.pth and random{factor}.pth, what to compare them with, for
factor --baseline; and report.json with figures of all on windows of --valid.
"""

import argparse
import copy
import json
import math
import random
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from fold import Cache, Compressor, continue_from, first, logits_of, prefill
from model import Llama, describe, read_gguf
from prompt_windows import PromptWindows
from train_model import learning_rate
from training_text import batch_loader, corpus_words, encode, read_documents, tokenizer_of

# Prompt and rest. An evaluation reads 2048 + 2048 tokens, or asks for facts of 3500.
SHAPES = ((2048, 1024), (2048, 2048), (1024, 1024), (3400, 512))
TINY_SHAPES = ((256, 128),)
RECALL_SHARE = 1 / 3
REACH = 3.0  # root mean squares of a hidden value above which its ReLU is open at the start
OPEN = 64.0  # no mean of rows is below −OPEN: with this reach the mean is exact


def queries(model: Llama, ids: torch.Tensor) -> list[torch.Tensor]:
    """Per layer [rows, head_dim]."""
    x, out = model.token_embd(ids), []
    for block in model.blk:
        q, k, v = block.project(x, model.table[: ids.shape[1]])
        out.append(q.flatten(0, 2))
        x = block.finish(x, q, k, v)
    return out


def mass_bias(q: torch.Tensor, factor: int) -> torch.Tensor:
    """What a key needs on top so that all queries see it `factor` times: q · bias = √d · ln factor."""
    d = q.shape[1]
    products = q.T @ q / len(q)
    ridge = 0.1 * products.trace() / d * torch.eye(d, device=q.device)
    return torch.linalg.solve(products + ridge, q.mean(0)) * math.sqrt(d) * math.log(factor)


@torch.no_grad()
def make_compressors(model: Llama, factor: int, sample: torch.Tensor) -> dict[str, Compressor]:
    """`random`, `meanpool`, and `fold`, which is to be trained. sample: token ids [windows, tokens]"""
    c = model.config
    made = {name: Compressor(factor, c.layers, c.head_dim) for name in ("random", "meanpool", "fold")}
    no_bias = [torch.zeros(c.head_dim)] * c.layers
    everything = torch.full((c.head_dim,), OPEN)
    made["meanpool"].start_mean(no_bias, [(everything, everything)] * c.layers)
    half = sample.shape[1] // 2
    means = made["meanpool"].to(sample.device)(first(prefill(model, sample)[1], half))
    reach = [tuple(REACH * t.pow(2).mean((0, 1, 2)).sqrt() for t in pair) for pair in means]
    made["fold"].start_mean([mass_bias(q, factor) for q in queries(model, sample)], reach)
    return {name: compressor.to(sample.device) for name, compressor in made.items()}


def divergence(log_p: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """KL(p || softmax(logits)) of each row, in nats."""
    return F.kl_div(F.log_softmax(logits, -1), log_p, log_target=True, reduction="none").sum(-1)


def check_continuation(model: Llama, ids: torch.Tensor, prompt: int, limit: float) -> float:
    """Check: with an unfolded prompt as cache, predictions equal those without a cut. Returns the mean KL."""
    with torch.no_grad():
        hidden, cache = prefill(model, ids)
        log_p = F.log_softmax(logits_of(model, hidden[:, prompt:]), -1)
        logits = continue_from(model, first(cache, prompt), ids[:, prompt:], prompt)
        value = divergence(log_p, logits).mean().item()
    if not abs(value) < limit:
        raise RuntimeError(f"unfolded continuation: KL {value} > {limit}")
    return value


@torch.no_grad()
def read_window(model: Llama, ids: torch.Tensor, weights: torch.Tensor, prompt: int):
    """The unfolded model's predictions behind the prompt (logarithms), the prompt's cache, the tokens
    behind it that something follows, and the share of each in the loss."""
    hidden, cache = prefill(model, ids[:, :-1])
    log_p = F.log_softmax(logits_of(model, hidden[:, prompt:]), -1)
    share = weights[:, prompt + 1 :]  # a prediction counts as much as the token that follows
    return log_p, first(cache, prompt), ids[:, prompt:-1], share / share.sum()


def in_bf16(model: Llama) -> Llama:
    """A copy with the matrices of its layers in bf16, for autocast."""
    copied = copy.deepcopy(model)
    for module in copied.modules():
        if isinstance(module, nn.Linear):
            module.to(torch.bfloat16)
    return copied


def check_unfolded(model: Llama, sample: torch.Tensor, half: int, device: str) -> dict[str, float]:
    """check_continuation in f32 and as trained. Returns the mean KL of both."""
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        unfolded_bf16 = check_continuation(in_bf16(model) if device == "cuda" else model, sample, half, 1e-2)
    unfolded = check_continuation(model, sample, half, 1e-4)
    print(f"unfolded continuation: KL {unfolded:.2e}, as trained {unfolded_bf16:.2e}", flush=True)
    return {"f32": unfolded, "bf16": unfolded_bf16}


def train(model: Llama, compressors: dict[int, Compressor], windows: PromptWindows, shapes, args) -> dict:
    """compressors: by factor. On a GPU all is computed in bf16 but the residual stream, logits and loss."""
    cuda = args.device == "cuda"
    model = in_bf16(model) if cuda else model
    optimizers = {
        f: torch.optim.AdamW(c.parameters(), lr=args.rate, betas=(0.9, 0.98), weight_decay=0.0, fused=cuda)
        for f, c in compressors.items()
    }
    autocast = partial(torch.autocast, args.device, torch.bfloat16, enabled=cuda)
    make = partial(windows.prompt_batch, args.batch, shapes, RECALL_SHARE)
    loader = batch_loader(make, args.seed, args.workers, args.device)
    begin, steps, tokens, history = time.time(), 0, 0, []
    recent = {f: [] for f in compressors}
    for ids, weights, prompt in loader:
        done = (time.time() - begin) / (60 * args.minutes)
        if done >= 1.0:
            break
        ids, weights = (t.to(args.device, non_blocking=True) for t in (ids, weights))
        with autocast():
            log_p, cache, rest, share = read_window(model, ids, weights, int(prompt))
        for factor, compressor in compressors.items():
            with autocast():
                logits = continue_from(model, compressor(cache), rest, int(prompt))
            loss = (divergence(log_p, logits) * share).sum()
            loss.backward()
            recent[factor].append(loss.detach())
            nn.utils.clip_grad_norm_(compressor.parameters(), 1.0)
            for group in optimizers[factor].param_groups:
                group["lr"] = learning_rate(max(done, 1e-4), args.rate)
            optimizers[factor].step()
            optimizers[factor].zero_grad(set_to_none=True)
        steps += 1
        tokens += ids.numel()
        if steps % args.log_steps == 0:
            losses = {f: torch.stack(values).mean().item() for f, values in recent.items()}
            recent = {f: [] for f in compressors}
            seconds = time.time() - begin
            history.append({"step": steps, "seconds": seconds, "loss": losses})
            shown = "  ".join(f"{f}: {value:.4f}" for f, value in losses.items())
            print(f"step {steps}  {steps / seconds:.2f}/s  done {done:.3f}  loss {shown}", flush=True)
    return {"steps": steps, "tokens": tokens, "train_seconds": time.time() - begin, "history": history}


@torch.no_grad()
def evaluate(
    model: Llama, folds: dict[str, Compressor], stream: np.ndarray, half: int, count: int, device: str
) -> dict:
    """KL to the unfolded model and perplexity, in f32: `count` windows spread over the stream, half of
    each the prompt, the other half scored."""
    kl = {name: [] for name in folds}
    loss = {name: [] for name in ["unfolded", *folds]}
    for start in np.linspace(0, len(stream) - 2 * half, count).astype(int):
        ids = torch.tensor(np.concatenate(([0], stream[start : start + 2 * half - 1])).astype(np.int64))
        ids = ids[None].to(device)
        hidden, cache = prefill(model, ids)
        cache, rest, targets = first(cache, half), ids[:, half:-1], ids[0, half + 1 :]
        log_p = F.log_softmax(logits_of(model, hidden[:, half:-1]), -1)
        loss["unfolded"].append(F.nll_loss(log_p[0], targets).item())
        for name, compressor in folds.items():
            logits = continue_from(model, compressor(cache), rest, half)
            kl[name].append(divergence(log_p, logits).mean().item())
            loss[name].append(F.cross_entropy(logits[0], targets).item())
    report = {"unfolded": {"kl": 0.0, "perplexity": math.exp(np.mean(loss["unfolded"]))}}
    for name in folds:
        report[name] = {
            "kl": float(np.mean(kl[name])),
            "kl_sem": float(np.std(kl[name]) / math.sqrt(max(1, count - 1))),
            "perplexity": math.exp(np.mean(loss[name])),
        }
    return report


@torch.no_grad()
def recall_hits(
    model: Llama, folds: dict[str, Compressor], windows: PromptWindows, prompt: int, asked: int, device: str
) -> dict:
    """How often greedy decoding would give the whole answer to a question right after the prompt."""
    rng, hits = random.Random(7), dict.fromkeys(["unfolded", *folds], 0)
    for _ in range(asked):
        ids, passages, _, _ = windows.prompt_with_facts(rng, 4 if prompt > 1000 else 1, prompt, 0)
        question, answer = passages[0]
        cache = prefill(model, torch.tensor([ids], device=device))[1]
        rest = torch.tensor([question + answer], device=device)
        pasts: dict[str, Cache] = {"unfolded": cache} | {name: fold(cache) for name, fold in folds.items()}
        for name, past in pasts.items():
            best = continue_from(model, past, rest[:, :-1], prompt)[0, -len(answer) :].argmax(-1)
            hits[name] += int((best == rest[0, -len(answer) :]).all())
    return hits


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="GGUF file of train_model.py")
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--valid", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--factors", type=int, nargs="+", default=[2, 4, 5])
    parser.add_argument("--baseline", type=int, default=4, help="factor of the baselines that are written")
    parser.add_argument("--minutes", type=float, default=8.0, help="of training")
    parser.add_argument("--start", type=Path, help="a folder with fold{factor}.pth to go on from")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--log-steps", type=int, default=100)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="short windows, to try the script")
    args = parser.parse_args()
    if args.baseline not in args.factors:
        parser.error(f"--baseline {args.baseline}: not one of --factors {args.factors}")
    return args


def main() -> None:
    args = parse_arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(args.seed)
    begin = time.time()

    model, meta = read_gguf(args.model)
    model = model.to(args.device).requires_grad_(False)
    tokenizer = tokenizer_of(meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.merges"])
    documents, valid_documents = read_documents(args.train), read_documents(args.valid)
    if args.tiny:
        documents = [d[:100000] for d in documents[:10]]
    stream, valid = encode(tokenizer, documents), encode(tokenizer, valid_documents)
    windows = PromptWindows(stream, tokenizer, corpus_words(documents), model.config.context)
    valid_windows = PromptWindows(valid, tokenizer, [], model.config.context)
    print(f"{len(stream)} and {len(valid)} tokens after {time.time() - begin:.0f} s", flush=True)

    shapes, half, count, asked = (TINY_SHAPES, 256, 8, 4) if args.tiny else (SHAPES, 2048, 32, 40)
    sample, _, _ = windows.prompt_batch(8, ((half, half),), RECALL_SHARE, random.Random(args.seed))
    sample = torch.from_numpy(sample).to(args.device)
    unfolded_kl = check_unfolded(model, sample, half, args.device)

    made = {factor: make_compressors(model, factor, sample) for factor in args.factors}
    for factor, group in made.items():
        if args.start:
            group["fold"].start_from(args.start / f"fold{factor}.pth")
    named = {f"{name}{f}": c for f, group in made.items() for name, c in group.items()}
    for name in ("random", "meanpool"):
        named[f"{name}{args.baseline}"].save(args.out / f"{name}{args.baseline}.pth", model.config.kv_heads)
    report = {"config": describe(model.config), "train_tokens_unique": len(stream)}
    report |= {key: getattr(args, key) for key in ("factors", "minutes", "batch", "rate", "seed")}
    report |= {"shapes": shapes, "unfolded_kl": unfolded_kl}
    report["device"] = torch.cuda.get_device_name() if args.device == "cuda" else args.device
    before = evaluate(model, named, valid, half, count, args.device)
    report["before"] = before
    print(json.dumps(before, indent=1), f"after {time.time() - begin:.0f} s", flush=True)

    torch.set_float32_matmul_precision("high")
    trained = {factor: group["fold"] for factor, group in made.items()}
    report |= train(model, trained, windows, shapes, args)
    torch.set_float32_matmul_precision("highest")
    for factor, compressor in trained.items():
        compressor.save(args.out / f"fold{factor}.pth", model.config.kv_heads)
    folds = {f"fold{f}": c for f, c in trained.items()}
    report["after"] = evaluate(model, folds, valid, half, count, args.device)
    baselines = {name: c for name, c in named.items() if name.startswith("meanpool")}
    depth = 400 if args.tiny else 3400
    report["recall_asked"] = asked
    report["recall_hits"] = recall_hits(model, folds | baselines, valid_windows, depth, asked, args.device)
    report["seconds"] = time.time() - begin
    (args.out / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps({k: v for k, v in report.items() if k != "history"}, indent=1), flush=True)


if __name__ == "__main__":
    main()
