"""The learned compressor: `factor` consecutive rows of a KV cache become one, by a small network.

Per layer there is a network for keys (after RoPE) and one for values, shared by the KV heads:
Linear(factor · d, d), ReLU, Linear(d, d), ReLU, Linear(d, d). Files hold it as `compress_tk.{layer}.{0,3,6}`
and `compress_tv…`, the indices of the Linear layers in a Sequential with ReLU and Dropout between.
"""

from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from model import Llama

MIN_GROUPS = 2  # a prompt of fewer groups stays as it is
SLOTS = (0, 3, 6)
Cache = list[tuple[torch.Tensor, torch.Tensor]]  # per layer K and V, [batch, kv_heads, tokens, head_dim]


class Fold(nn.Module):
    """One network, with its ReLUs moved: ReLU(x + reach) − reach = max(x, −reach), per hidden value.

    A network that starts as a linear map needs biases that hold its ReLUs open. Here they are constants
    outside the parameters: hidden values stay centred, so that a step of the optimizer on a matrix
    does not shift what follows. `plain` gives the same function with ordinary ReLUs.
    """

    def __init__(self, factor: int, head_dim: int) -> None:
        super().__init__()
        self.linear = nn.ModuleList(nn.Linear(n * head_dim, head_dim) for n in (factor, 1, 1))
        self.register_buffer("reach", torch.zeros(head_dim))

    @torch.no_grad()
    def start_linear(self, matrix: torch.Tensor, bias: torch.Tensor, reach: torch.Tensor) -> None:
        """y = matrix x + bias, as long as no value of matrix x is below −reach."""
        identity = torch.eye(len(matrix))
        for layer, weight in zip(self.linear, (matrix, identity, identity)):
            layer.weight.copy_(weight)
            layer.bias.zero_()
        self.linear[2].bias.copy_(bias)
        self.reach.copy_(reach)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.linear[:2]:
            x = layer(x)
            x = torch.maximum(x, -self.reach.to(x.dtype))
        return self.linear[2](x)

    @torch.no_grad()
    def start_plain(self, layers: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """The inverse of `plain`; the reach stays what it is, whatever the network was made with."""
        into = torch.zeros_like(self.reach)
        for n, (layer, (weight, bias)) in enumerate(zip(self.linear, layers)):
            out = self.reach if n < 2 else torch.zeros_like(self.reach)
            shift = weight.double() @ into.double() if n else 0.0
            layer.weight.copy_(weight)
            layer.bias.copy_(bias.double() - out + shift)
            into = out

    @torch.no_grad()
    def plain(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Weight and bias of the three layers with ordinary ReLUs between."""
        into = torch.zeros_like(self.reach)  # how much higher than here the inputs of the layer are
        for n, layer in enumerate(self.linear):
            out = self.reach if n < 2 else torch.zeros_like(self.reach)
            shift = layer.weight.double() @ into.double() if n else 0.0
            yield layer.weight.clone(), (layer.bias.double() + out - shift).float()
            into = out


class Compressor(nn.Module):
    """The networks of a model's layers. Freshly made they are PyTorch's random ones."""

    def __init__(self, factor: int, layers: int, head_dim: int) -> None:
        super().__init__()
        self.factor, self.head_dim = factor, head_dim
        self.keys = nn.ModuleList(Fold(factor, head_dim) for _ in range(layers))
        self.values = nn.ModuleList(Fold(factor, head_dim) for _ in range(layers))

    def fold(self, net: Fold, rows: torch.Tensor) -> torch.Tensor:
        """[batch, kv_heads, tokens, head_dim] to groups of `factor` rows, and the remainder as it is."""
        groups = rows.shape[2] // self.factor
        if groups < MIN_GROUPS:
            return rows
        whole = groups * self.factor
        folded = net(rows[:, :, :whole].unflatten(2, (groups, self.factor)).flatten(-2))
        return torch.cat((folded.to(rows.dtype), rows[:, :, whole:]), 2)

    def forward(self, prompt: Cache) -> Cache:
        return [
            (self.fold(key, k), self.fold(value, v))
            for key, value, (k, v) in zip(self.keys, self.values, prompt)
        ]

    def start_mean(self, key_bias: list[torch.Tensor], reach: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """The mean of the rows; keys get a bias on top. Per layer: bias, reach of keys and of values."""
        matrix = torch.eye(self.head_dim).repeat(1, self.factor) / self.factor
        for key, value, bias, (reach_k, reach_v) in zip(self.keys, self.values, key_bias, reach):
            key.start_linear(matrix, bias, reach_k)
            value.start_linear(matrix, torch.zeros_like(bias), reach_v)

    def start_from(self, path: Path) -> None:
        """What `save` has written; the reaches stay what they are."""
        state = torch.load(path, weights_only=True)["model_state_dict"]["compressor"]
        for prefix, nets in (("compress_tk", self.keys), ("compress_tv", self.values)):
            for layer, net in enumerate(nets):
                names = [f"{prefix}.{layer}.{slot}" for slot in SLOTS]
                device = net.reach.device
                net.start_plain([(state[f"{n}.weight"].float().to(device), state[f"{n}.bias"].float().to(device)) for n in names])

    def save(self, path: Path, kv_heads: int) -> None:
        """Weights and a few numbers: nothing that needs code to be read."""
        state = {}
        for prefix, nets in (("compress_tk", self.keys), ("compress_tv", self.values)):
            for layer, net in enumerate(nets):
                for slot, (weight, bias) in zip(SLOTS, net.plain()):
                    state[f"{prefix}.{layer}.{slot}.weight"] = weight.cpu()
                    state[f"{prefix}.{layer}.{slot}.bias"] = bias.cpu()
        numbers = {
            "compression_factor": self.factor,
            "num_layers": len(self.keys),
            "num_heads": kv_heads,
            "head_dim": self.head_dim,
            "min_seq_len": MIN_GROUPS,
        }
        torch.save({"model_state_dict": {"compressor": state}} | numbers, path)


def logits_of(model: Llama, x: torch.Tensor) -> torch.Tensor:
    """In f32: the logits of bf16 are a few hundredths apart."""
    with torch.autocast(x.device.type, enabled=False):
        return F.linear(model.output_norm(x.float()), model.token_embd.weight)


@torch.no_grad()
def prefill(model: Llama, ids: torch.Tensor) -> tuple[torch.Tensor, Cache]:
    """The unfolded model: hidden values after the last layer, and the cache of all tokens."""
    x, cache = model.token_embd(ids), []
    for block in model.blk:
        q, k, v = block.project(x, model.table[: ids.shape[1]])
        cache.append((k, v))
        x = block.finish(x, q, k, v)
    return x, cache


def first(cache: Cache, tokens: int) -> Cache:
    return [(k[:, :, :tokens], v[:, :, :tokens]) for k, v in cache]


def continue_from(model: Llama, past: Cache, ids: torch.Tensor, position: int) -> torch.Tensor:
    """Logits of tokens that come after `past`, at their true positions. Gradients reach `past`."""
    x = model.token_embd(ids)
    for block, (past_k, past_v) in zip(model.blk, past):
        q, k, v = block.project(x, model.table[position : position + ids.shape[1]])
        x = block.finish(x, q, torch.cat((past_k, k), 2), torch.cat((past_v, v), 2))
    return logits_of(model, x)
