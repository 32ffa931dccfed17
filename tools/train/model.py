"""The Llama architecture in plain PyTorch, and its GGUF file.

RoPE turns neighbouring pairs (0,1) (2,3) …, the order of GGUF's `llama`: weights are written as they are.
"""

from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.bias import causal_lower_right

from gguf_reader import GgufReader
from gguf_writer import GgufWriter


@dataclass
class Config:
    vocab: int = 8192
    layers: int = 8
    width: int = 512
    ffn: int = 1536
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 128
    context: int = 4096
    rope_base: float = 10000.0
    epsilon: float = 1e-5


def rope_table(config: Config, positions: int, device) -> torch.Tensor:
    """[positions, head_dim / 2, 2]: cos and sin."""
    exponent = torch.arange(0, config.head_dim, 2, device=device, dtype=torch.float64) / config.head_dim
    angle = torch.arange(positions, device=device, dtype=torch.float64)[:, None] * config.rope_base**-exponent
    return torch.stack((angle.cos(), angle.sin()), -1).float()


def rotate(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """x: [batch, heads, tokens, head_dim]"""
    pairs = x.float().unflatten(-1, (-1, 2))
    cos, sin = table[..., 0], table[..., 1]
    even, odd = pairs[..., 0], pairs[..., 1]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2).to(x.dtype)


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Causal attention, all heads alike; the queries belong to the last of the keys."""
    if q.shape[2] == k.shape[2]:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=causal_lower_right(q.shape[2], k.shape[2]))


class Block(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        q_width, kv_width = config.heads * config.head_dim, config.kv_heads * config.head_dim
        self.attn_norm = nn.RMSNorm(config.width, config.epsilon)
        self.attn_q = nn.Linear(config.width, q_width, bias=False)
        self.attn_k = nn.Linear(config.width, kv_width, bias=False)
        self.attn_v = nn.Linear(config.width, kv_width, bias=False)
        self.attn_output = nn.Linear(q_width, config.width, bias=False)
        self.ffn_norm = nn.RMSNorm(config.width, config.epsilon)
        self.ffn_gate = nn.Linear(config.width, config.ffn, bias=False)
        self.ffn_up = nn.Linear(config.width, config.ffn, bias=False)
        self.ffn_down = nn.Linear(config.ffn, config.width, bias=False)

    def project(self, x: torch.Tensor, table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries [batch, heads, tokens, head_dim], keys (both turned) and values [batch, kv_heads, …]."""
        h = self.attn_norm(x)
        q, k, v = (
            layer(h).unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2)
            for layer in (self.attn_q, self.attn_k, self.attn_v)
        )
        return rotate(q, table), rotate(k, table), v

    def finish(self, x: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Attention and feed-forward. The queries are those of the last keys: the last sees all of them."""
        group = self.config.heads // self.config.kv_heads
        k, v = (t.repeat_interleave(group, dim=1) for t in (k, v))
        mixed = attend(q, k, v)
        x = x + self.attn_output(mixed.transpose(1, 2).flatten(-2))
        h = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(h)) * self.ffn_up(h))

    def forward(self, x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        return self.finish(x, *self.project(x, table))


class Llama(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.token_embd = nn.Embedding(config.vocab, config.width)
        self.blk = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.output_norm = nn.RMSNorm(config.width, config.epsilon)
        self.register_buffer("table", rope_table(config, config.context, "cpu"), persistent=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                deep = name.endswith(("attn_output.weight", "ffn_down.weight"))
                nn.init.normal_(p, std=0.02 / (2 * config.layers) ** 0.5 if deep else 0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """[batch, tokens] to logits [batch, tokens, vocab]; the output matrix is the embedding."""
        x = self.token_embd(tokens)
        for block in self.blk:
            x = block(x, self.table[: tokens.shape[1]])
        return F.linear(self.output_norm(x), self.token_embd.weight)


def write_gguf(model: Llama, tokenizer: dict, name: str, path: Path) -> None:
    """`tokenizer` is the parsed tokenizer.json of a byte-level BPE; token 0 begins and ends a text."""
    c = model.config
    writer = GgufWriter()
    for key, value in {
        "general.architecture": "llama",
        "general.name": name,
        "general.license": "cc0-1.0",
        "general.file_type": 7,
        "llama.block_count": c.layers,
        "llama.context_length": c.context,
        "llama.embedding_length": c.width,
        "llama.feed_forward_length": c.ffn,
        "llama.attention.head_count": c.heads,
        "llama.attention.head_count_kv": c.kv_heads,
        "llama.attention.key_length": c.head_dim,
        "llama.attention.value_length": c.head_dim,
        "llama.attention.layer_norm_rms_epsilon": c.epsilon,
        "llama.rope.dimension_count": c.head_dim,
        "llama.rope.freq_base": c.rope_base,
        "llama.vocab_size": c.vocab,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.ggml.add_bos_token": True,
    }.items():
        writer.add(key, value)
    tokens = sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].get)
    writer.add("tokenizer.ggml.tokens", tokens)
    writer.add("tokenizer.ggml.token_type", [3] + [1] * (len(tokens) - 1))
    merges = [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]]
    writer.add("tokenizer.ggml.merges", merges)
    for key, p in model.state_dict().items():
        array = p.detach().float().cpu().numpy()
        writer.add_q8_0(key, array) if array.ndim == 2 else writer.add_f32(key, array)
    writer.write(path)


def read_gguf(path: Path) -> tuple[Llama, dict]:
    """A model that write_gguf has written, in f32, and the metadata."""
    reader = GgufReader(path)
    meta = reader.metadata
    config = Config(
        vocab=meta["llama.vocab_size"],
        layers=meta["llama.block_count"],
        width=meta["llama.embedding_length"],
        ffn=meta["llama.feed_forward_length"],
        heads=meta["llama.attention.head_count"],
        kv_heads=meta["llama.attention.head_count_kv"],
        head_dim=meta["llama.attention.key_length"],
        context=meta["llama.context_length"],
        rope_base=meta["llama.rope.freq_base"],
        epsilon=meta["llama.attention.layer_norm_rms_epsilon"],
    )
    model = Llama(config)
    model.load_state_dict({name: torch.tensor(array) for name, array in reader.tensors.items()})
    return model, meta


def describe(config: Config) -> dict:
    return asdict(config)
