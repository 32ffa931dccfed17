#!/usr/bin/env python3
"""Writes tests/data/fold: small compressors as PyTorch saves them, and what PyTorch computes with them.

    python3 tools/make_fold_golden.py [--out tests/data/fold] [--device cpu|cuda]

Each NAME.pth is a state dict in one of the layouts that `varve fold convert` reads. NAME.f32 has, as
little-endian float32, rows of K and V and the folded rows of some cases; index.json says what is where:

    models[].rows.keys, .values     [layers, heads, tokens, head_dim], offsets in numbers; every value is
                                    exact in f16
    models[].cases[]                the first image_tokens + text_tokens of them folded to `rows` rows:
        keys, values                [layers, heads, rows, head_dim], computed in float32
        native_keys, native_values  the same computed in the dtype of the weights (absent for f32)

A case is what a segment becomes: whole groups of `factor` rows pass the network if there are at least
min_seq_len of them, the rest follows as it is; image first, then text. A model without image networks
leaves the image alone. NAME.bin, where present, is the compressor file, written here from the tensors
without Varve.

With --device cuda the tensors are saved from the GPU and the products are computed there (without TF32);
the weights and the inputs are those of the CPU.

Needs: torch, numpy.
"""

import argparse
import collections
import json
import pathlib
import struct

import numpy as np
import torch
from torch import nn

TEXT = ("compress_tk", "compress_tv")
IMAGE = ("compress_ik", "compress_iv")
SLOTS = (0, 3, 6)
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}
BIN_DTYPES = {"f16": 0, "bf16": 1, "f32": 2}

# 11 + 10 tokens by 5 are the source's own check: 5 rows.
AROUND_THE_THRESHOLD = [(0, n) for n in (1, 4, 5, 9, 10, 11, 14, 15, 20)]
SEGMENTS = [(11, 10), (10, 0), (11, 0), (4, 17), (9, 9), (10, 11)]

MODELS = [
    dict(name="nested_f16", layout="model_state_dict.compressor", dtype="f16", layers=2, heads=2, head_dim=16,
         factor=5, min_seq_len=2, image=True, bias=True, tokens=21,
         cases=[(11, 10), (10, 0), (9, 5), (0, 9), (0, 10), (0, 21)]),
    dict(name="compressor_f32", layout="compressor", dtype="f32", layers=1, heads=2, head_dim=16, factor=5,
         min_seq_len=2, image=True, bias=True, tokens=21, cases=SEGMENTS + AROUND_THE_THRESHOLD),
    dict(name="flat_bf16", layout="flat", dtype="bf16", layers=1, heads=1, head_dim=16, factor=4, min_seq_len=3,
         image=False, bias=False, tokens=19, cases=[(0, 11), (0, 12), (0, 13), (0, 19), (7, 12), (19, 0)], bin=True),
    dict(name="flat_f32", layout="flat", dtype="f32", layers=1, heads=2, head_dim=32, factor=2, min_seq_len=1,
         image=False, bias=True, tokens=9, cases=[(0, 1), (0, 2), (0, 3), (0, 9), (4, 5)]),
    # Parameters, views of one storage, and transposed strides.
    dict(name="views_f32", layout="flat", dtype="f32", layers=1, heads=1, head_dim=16, factor=2, min_seq_len=2,
         image=False, bias=True, tokens=8, cases=[(0, 3), (0, 4), (0, 8)], views=True, bin=True),
    dict(name="flat_f64", layout="compressor", dtype="f64", layers=1, heads=1, head_dim=16, factor=2, min_seq_len=2,
         image=False, bias=False, tokens=4, cases=[(0, 4)]),
]  # fmt: skip


class Compressor(nn.Module):
    """The source's module: per layer a network for K and V of text and of an image."""

    def __init__(self, spec):
        super().__init__()
        dim, bias = spec["head_dim"], spec["bias"]
        for prefix in TEXT + (IMAGE if spec["image"] else ()):
            self.add_module(prefix, nn.ModuleList(
                nn.Sequential(
                    nn.Linear(spec["factor"] * dim, dim, bias), nn.ReLU(), nn.Dropout(0.1),
                    nn.Linear(dim, dim, bias), nn.ReLU(), nn.Dropout(0.1),
                    nn.Linear(dim, dim, bias))
                for _ in range(spec["layers"])))  # fmt: skip


def fold_segment(network, rows, factor, min_groups):
    """rows [heads, tokens, dim] -> [heads, folded tokens, dim], in the network's dtype."""
    heads, tokens, dim = rows.shape
    groups = tokens // factor
    if network is None or groups == 0 or groups < min_groups:
        return rows
    whole = rows[:, : groups * factor].reshape(heads, groups, factor * dim)
    dtype = next(network.parameters()).dtype
    return torch.cat([network(whole.to(dtype)).to(rows.dtype), rows[:, groups * factor :]], dim=1)


@torch.no_grad()
def fold(model, spec, kind, rows, image_tokens, text_tokens):
    """kind "k" or "v"; rows [layers, heads, tokens, dim]."""
    out = []
    for layer in range(spec["layers"]):
        used = rows[layer, :, : image_tokens + text_tokens]
        image = getattr(model, f"compress_i{kind}")[layer] if spec["image"] else None
        text = getattr(model, f"compress_t{kind}")[layer]
        out.append(torch.cat([
            fold_segment(image, used[:, :image_tokens], spec["factor"], spec["min_seq_len"]),
            fold_segment(text, used[:, image_tokens:], spec["factor"], spec["min_seq_len"])], dim=1))  # fmt: skip
    return torch.stack(out)


def as_views(state):
    """All tensors in one storage; weights with the strides of their transpose; some are Parameters."""
    storage = torch.empty(sum(t.numel() for t in state.values()) + 3, dtype=torch.float32,
                          device=next(iter(state.values())).device)  # fmt: skip
    views, at = collections.OrderedDict(), 3
    for i, (key, tensor) in enumerate(state.items()):
        piece = storage[at : at + tensor.numel()]
        at += tensor.numel()
        view = piece.view(tensor.shape[::-1]).t() if tensor.dim() == 2 else piece
        view.copy_(tensor)
        views[key] = nn.Parameter(view) if i % 3 == 0 else view
    return views


def in_layout(layout, state, spec):
    if layout == "flat":
        return state
    state["attention.0.q_proj.weight"] = torch.zeros(2, 3, dtype=DTYPES[spec["dtype"]])
    state["attention.0.scale"] = torch.tensor(0.25)
    if layout == "compressor":
        return {"compressor": state, "note": "a small one", "done": True}
    return {"epoch": 3, "loss": 0.125, "best": None, "steps": [1, 70000, -5, 1 << 40], "shape": (16, 5, 2, 1),
            "model_state_dict": {"compressor": state, "step": torch.tensor(7)}}  # fmt: skip


def bin_bytes(spec, state):
    """The compressor file (docs/format/compressor.md) in default order."""
    prefixes = TEXT + (IMAGE if spec["image"] else ())
    out = [struct.pack("<IIHH8I", 0x4B56434D, 1, BIN_DTYPES[spec["dtype"]], 0, spec["layers"], spec["heads"],
                       spec["head_dim"], spec["factor"] * spec["head_dim"], spec["factor"], spec["min_seq_len"],
                       len(prefixes) * len(SLOTS), 0)]  # fmt: skip

    def raw(tensor):
        tensor = tensor.detach().cpu().contiguous()
        return (tensor.view(torch.int16) if tensor.element_size() == 2 else tensor).numpy().tobytes()

    for layer in range(spec["layers"]):
        for prefix in prefixes:
            for slot in SLOTS:
                weight = state[f"{prefix}.{layer}.{slot}.weight"]
                bias = state.get(f"{prefix}.{layer}.{slot}.bias")
                out.append(struct.pack("<III", *weight.shape, bias is not None) + raw(weight))
                out.append(b"" if bias is None else raw(bias))
    return b"".join(out)


def make(spec, out, device):
    torch.manual_seed(sum(spec["name"].encode()))
    native = Compressor(spec).to(DTYPES[spec["dtype"]]).to(device).eval()
    wide = Compressor(spec).to(device).eval()
    wide.load_state_dict({key: value.float() for key, value in native.state_dict().items()})
    shape = (spec["layers"], spec["heads"], spec["tokens"], spec["head_dim"])
    rows = {kind: torch.randn(shape).half().float() for kind in "kv"}

    state = native.state_dict()  # with its _metadata, which the pickle sets by BUILD
    entry = {key: spec[key] for key in ("name", "layout", "dtype", "layers", "heads", "head_dim", "factor",
                                        "min_seq_len", "image", "bias", "tokens")}  # fmt: skip
    if spec.get("bin"):
        (out / f"{spec['name']}.bin").write_bytes(bin_bytes(spec, state))
        entry["bin"] = f"{spec['name']}.bin"
    saved = in_layout(spec["layout"], as_views(state) if spec.get("views") else state, spec)
    torch.save(saved, out / f"{spec['name']}.pth")
    entry["pth"], entry["file"] = f"{spec['name']}.pth", f"{spec['name']}.f32"
    entry["ignored"] = [key for key in state if key.startswith("attention")]

    numbers, size = [], 0

    def put(tensor):
        nonlocal size
        at = size
        numbers.append(tensor.float().cpu().numpy().astype("<f4").ravel())
        size += numbers[-1].size
        return at

    entry["rows"] = {"keys": put(rows["k"]), "values": put(rows["v"])}
    entry["cases"] = []
    for image_tokens, text_tokens in spec["cases"]:
        case = {"image_tokens": image_tokens, "text_tokens": text_tokens}
        for kind, name in (("k", "keys"), ("v", "values")):
            given = rows[kind].to(device)
            folded = fold(wide, spec, kind, given, image_tokens, text_tokens)
            case["rows"] = folded.shape[2]
            case[name] = put(folded)
            if spec["dtype"] in ("f16", "bf16"):
                case["native_" + name] = put(fold(native, spec, kind, given, image_tokens, text_tokens))
        entry["cases"].append(case)
    np.concatenate(numbers).tofile(out / entry["file"])
    entry["numbers"] = size
    return entry


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/data/fold"))
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.use_deterministic_algorithms(True, warn_only=True)
    args.out.mkdir(parents=True, exist_ok=True)
    models = [make(spec, args.out, args.device) for spec in MODELS]
    index = {"torch": torch.__version__, "device": args.device, "models": models}
    lines = ",\n".join(json.dumps(model) for model in models)
    text = json.dumps({**index, "models": []}).replace("[]}", "[\n" + lines + "\n]}\n")
    assert json.loads(text) == index
    (args.out / "index.json").write_text(text)
    for path in sorted(args.out.iterdir()):
        print(f"{path.stat().st_size:8d} {path.name}")


if __name__ == "__main__":
    main()
