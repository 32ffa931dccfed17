#!/usr/bin/env python3
"""Writes tests/data/llama: tiny models with random weights, and the logits of the reference.

Each NAME.gguf is an F32 model in the layout of published GGUF files (tensor names, row order of Q and
K); NAME.json has token ids, the logits at some positions and the perplexity, computed by the
transformers library in float32 on the CPU. The tests of src/runtime/llama compare with them.

    python3 tools/make_llama_golden.py [--out tests/data/llama] [--models models]

embedded.json is the same for the model that ships with Varve, on the beginning of its evaluation
text: the tensors of the GGUF file, dequantized to float32, in the reference. It has every 16th logit.

Needs: numpy, torch, transformers (5 or newer), gguf, tokenizers.
"""

import argparse
import json
import math
import pathlib

import gguf
import numpy as np
import tokenizers
import torch
import transformers

NUM_TOKENS = 150  # two pages of 64 and a part
LOGIT_POSITIONS = (0, 1, 15, 63, 64, 65, 127, 128, 149)
EMBEDDED_MODEL = "varve-books-29m.gguf"
EMBEDDED_TOKENS = 200
EMBEDDED_STRIDE = 16  # of the logits that are kept


def shape(**changes):
    """Fields that all configurations share."""
    fields = dict(
        vocab_size=96,
        hidden_size=64,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=256,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        attn_implementation="eager",
    )
    fields.update(changes)
    return fields


# One layer is enough to show a variant of RoPE.
SMALL = dict(vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=1,
             num_attention_heads=2, num_key_value_heads=1)


def rope(kind, **fields):
    return dict(rope_parameters=dict(rope_type=kind, **fields))


def models():
    """name, GGUF architecture, configuration"""
    t = transformers
    yield "llama", "llama", t.LlamaConfig(
        **shape(num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=False),
        **rope("default", rope_theta=10000.0))
    yield "llama_rope3", "llama", t.LlamaConfig(
        **shape(**SMALL), **rope("llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0,
                                 high_freq_factor=4.0, original_max_position_embeddings=64))
    yield "llama_linear", "llama", t.LlamaConfig(
        **shape(**SMALL), **rope("linear", rope_theta=10000.0, factor=4.0))
    yield "llama_yarn", "llama", t.LlamaConfig(
        **shape(**SMALL), **rope("yarn", rope_theta=10000.0, factor=4.0,
                                 original_max_position_embeddings=64))
    yield "mistral_window", "llama", t.MistralConfig(
        **shape(num_attention_heads=2, num_key_value_heads=2, sliding_window=40),
        **rope("default", rope_theta=1000.0))
    yield "qwen2", "qwen2", t.Qwen2Config(
        **shape(num_attention_heads=2, num_key_value_heads=1, use_sliding_window=False),
        **rope("default", rope_theta=100000.0))
    yield "qwen3", "qwen3", t.Qwen3Config(
        **shape(rms_norm_eps=1e-6), **rope("default", rope_theta=1000000.0))
    yield "gemma2", "gemma2", t.Gemma2Config(
        **shape(**{**SMALL, "num_hidden_layers": 2}, query_pre_attn_scalar=32, sliding_window=40,
                attn_logit_softcapping=6.0, final_logit_softcapping=8.0),
        **rope("default", rope_theta=10000.0))
    yield "gemma3", "gemma3", t.Gemma3TextConfig(
        **shape(**{**SMALL, "num_hidden_layers": 2}, query_pre_attn_scalar=32, sliding_window=40,
                layer_types=["sliding_attention", "full_attention"]),
        rope_parameters=dict(
            full_attention=dict(rope_type="linear", rope_theta=1000000.0, factor=8.0),
            sliding_attention=dict(rope_type="default", rope_theta=10000.0)))


def is_gemma(config):
    return config.model_type.startswith("gemma")


def randomise(model, seed):
    """Weights on which attention is far from uniform and logits are of order one to ten."""
    generator = torch.Generator().manual_seed(seed)

    def normal(like, deviation):
        return torch.randn(like.shape, generator=generator) * deviation

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1 and name.endswith("norm.weight"):
                per_head = "q_norm" in name or "k_norm" in name
                mean = (1.7 if per_head else 1.0) - (1.0 if is_gemma(model.config) else 0.0)
                parameter.copy_(mean + normal(parameter, 0.3))
            elif parameter.dim() == 1:
                parameter.copy_(normal(parameter, 0.5))
            elif "embed_tokens" in name or "lm_head" in name:
                parameter.copy_(normal(parameter, 0.4))
            else:
                gain = 1.8 if ("q_proj" in name or "k_proj" in name) else 1.0
                parameter.copy_(normal(parameter, gain / math.sqrt(parameter.shape[1])))


def interleave(weight, heads):
    """Rows of a head from (first half, second half) to pairs, as GGUF files of llama have them."""
    rows = weight.shape[0]
    halves = weight.reshape(heads, 2, rows // heads // 2, *weight.shape[1:])
    return halves.swapaxes(1, 2).reshape(weight.shape)


LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
GEMMA_LAYER_NAMES = LAYER_NAMES | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def gguf_name(name, layer_names):
    """model.layers.0.mlp.up_proj.weight -> blk.0.ffn_up.weight"""
    if name == "lm_head.weight":
        return "output.weight"
    stem, kind = name.removeprefix("model.").rsplit(".", 1)
    if stem == "embed_tokens":
        return f"token_embd.{kind}"
    if stem == "norm":
        return f"output_norm.{kind}"
    _, layer, rest = stem.split(".", 2)
    return f"blk.{layer}.{layer_names[rest]}.{kind}"


def llama3_divisors(config):
    """The rule that Meta published with Llama 3.1, as divisors of the plain frequencies."""
    p = config.rope_parameters
    context = p["original_max_position_embeddings"]
    divisors = []
    for i in range(config.head_dim // 2):
        wavelength = 2 * math.pi * p["rope_theta"] ** (2 * i / config.head_dim)
        turns = context / wavelength
        if turns > p["high_freq_factor"]:
            divisors.append(1.0)
        elif turns < p["low_freq_factor"]:
            divisors.append(p["factor"])
        else:
            smooth = (turns - p["low_freq_factor"]) / (p["high_freq_factor"] - p["low_freq_factor"])
            divisors.append(1 / ((1 - smooth) / p["factor"] + smooth))
    return np.array(divisors, dtype=np.float32)


def write_gguf(path, architecture, config, model):
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(path.stem)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim if hasattr(config, "head_dim") else
                          config.hidden_size // config.num_attention_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    parameters = config.rope_parameters
    parameters = parameters.get("full_attention", parameters)
    writer.add_rope_freq_base(parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    if config.model_type == "mistral" or is_gemma(config):
        writer.add_sliding_window(config.sliding_window)
    if architecture == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if architecture == "gemma3":
        writer.add_sliding_window_pattern(2)
    kind = parameters["rope_type"]
    if kind in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
        writer.add_rope_scaling_factor(parameters["factor"])
    if kind == "yarn":
        writer.add_rope_scaling_orig_ctx_len(parameters["original_max_position_embeddings"])
    if kind == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_divisors(config))
    for name, parameter in model.named_parameters():
        array = parameter.detach().numpy().astype(np.float32)
        if architecture == "llama" and "q_proj" in name:
            array = interleave(array, config.num_attention_heads)
        if architecture == "llama" and "k_proj" in name:
            array = interleave(array, config.num_key_value_heads)
        if is_gemma(config) and name.endswith("norm.weight"):
            array = array + 1  # the reference multiplies by 1 + w, files have the sum
        names = GEMMA_LAYER_NAMES if is_gemma(config) else LAYER_NAMES
        writer.add_tensor(gguf_name(name, names), np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def sharpness(model, ids):
    """Mean largest attention weight: 1 / length would be uniform."""
    with torch.no_grad():
        attentions = model(ids, output_attentions=True).attentions
    return float(torch.stack([a[..., 32:, :].max(-1).values.mean() for a in attentions]).mean())


def write_golden(path, model, tokens, stride):
    ids = torch.tensor(tokens)[None]
    with torch.no_grad():
        logits = model(ids).logits[0]
        loss = torch.nn.functional.cross_entropy(logits[:-1].double(), ids[0, 1:])
    positions = [p for p in LOGIT_POSITIONS if p < len(tokens)] + [len(tokens) - 1]
    golden = {
        "made_by": f"transformers {transformers.__version__}, torch {torch.__version__}",
        "tokens": [int(token) for token in tokens],
        "perplexity": math.exp(loss.item()),
        "stride": stride,
        "logits": {str(p): [float(f"{v:.7g}") for v in logits[p, ::stride].tolist()]
                   for p in sorted(set(positions))},
    }
    path.write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    print(f"{path.stem:16} logits std {logits.std():.2f} max {logits.abs().max():.2f}  "
          f"perplexity {golden['perplexity']:.2f}  mean top attention {sharpness(model, ids):.2f}")


def make(out, seed, name, architecture, config):
    model = transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation="eager").to(torch.float32).eval()
    randomise(model, seed)
    write_gguf(out / f"{name}.gguf", architecture, config, model)
    tokens = np.random.default_rng(seed).integers(0, config.vocab_size, NUM_TOKENS)
    write_golden(out / f"{name}.json", model, tokens, stride=1)


def halve(weight, heads):
    """The inverse of interleave."""
    rows = weight.shape[0]
    pairs = weight.reshape(heads, rows // heads // 2, 2, *weight.shape[1:])
    return pairs.swapaxes(1, 2).reshape(weight.shape)


def load_gguf(path):
    """A llama model of the reference with the dequantized tensors of a GGUF file, and its fields."""
    reader = gguf.GGUFReader(path)

    def field(name):
        return reader.fields[name].contents()

    tensors = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).reshape(t.shape[::-1])
               for t in reader.tensors}
    config = transformers.LlamaConfig(
        vocab_size=tensors["token_embd.weight"].shape[0],
        hidden_size=field("llama.embedding_length"),
        intermediate_size=field("llama.feed_forward_length"),
        num_hidden_layers=field("llama.block_count"),
        num_attention_heads=field("llama.attention.head_count"),
        num_key_value_heads=field("llama.attention.head_count_kv"),
        head_dim=field("llama.attention.key_length"),
        max_position_embeddings=field("llama.context_length"),
        rms_norm_eps=field("llama.attention.layer_norm_rms_epsilon"),
        tie_word_embeddings="output.weight" not in tensors,
        **rope("default", rope_theta=field("llama.rope.freq_base")))
    model = transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation="eager").to(torch.float32).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            array = tensors[gguf_name(name, LAYER_NAMES)]
            if "q_proj" in name:
                array = halve(array, config.num_attention_heads)
            if "k_proj" in name:
                array = halve(array, config.num_key_value_heads)
            parameter.copy_(torch.tensor(array))
    return model, field


def encode(text, field):
    """Byte-level BPE of the file's vocabulary, without a pre-tokenizer: good enough to be text."""
    vocabulary = {token: i for i, token in enumerate(field("tokenizer.ggml.tokens"))}
    merges = [tuple(merge.split(" ")) for merge in field("tokenizer.ggml.merges")]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer.encode(text).ids


def make_embedded(out, folder):
    model, field = load_gguf(folder / EMBEDDED_MODEL)
    tokens = encode((folder / "eval.txt").read_text()[:4000], field)[:EMBEDDED_TOKENS - 1]
    tokens = [field("tokenizer.ggml.bos_token_id"), *tokens]
    write_golden(out / "embedded.json", model, tokens, EMBEDDED_STRIDE)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/data/llama"))
    parser.add_argument("--models", type=pathlib.Path, default=pathlib.Path("models"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for seed, (name, architecture, config) in enumerate(models()):
        make(arguments.out, seed, name, architecture, config)
    make_embedded(arguments.out, arguments.models)


if __name__ == "__main__":
    main()
