#!/usr/bin/env python3
"""Writes tests/data/whisper/forward.json: encoder output, logits and greedy tokens of a small Whisper
model with random weights, computed by the transformers library on the CPU in f32.

Weights and input are numbers of SplitMix64 that depend on a name and an index alone, so that the test
makes the same ones. Needs torch and transformers.

    python3 tools/make_whisper_golden.py [--out FILE]
"""

import argparse
import json
import pathlib

import numpy as np
import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

VOCAB, STATE, HEADS, LAYERS, AUDIO_CTX, TEXT_CTX, MELS = 51864, 64, 2, 2, 100, 64, 80
ENCODER_ROWS, ENCODER_STRIDE = (0, 1, 63, 64, 99), 5
LOGIT_STRIDE = 499
TOKENS = [50257, 50362, 100, 2000, 30000, 7, 49999]
GREEDY = 12

# OpenAI's names of modules, and those of transformers.
NAMES = [
    ("blocks", "layers"), ("cross_attn_ln", "encoder_attn_layer_norm"), ("cross_attn", "encoder_attn"),
    ("mlp_ln", "final_layer_norm"), ("attn_ln", "self_attn_layer_norm"), (".attn.", ".self_attn."),
    ("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj"), ("attn.out", "attn.out_proj"),
    ("mlp.0", "fc1"), ("mlp.2", "fc2"), ("decoder.ln.", "decoder.layer_norm."),
    ("encoder.ln_post", "encoder.layer_norm"), ("positional_embedding", "embed_positions.weight"),
    ("token_embedding", "embed_tokens"),
]


def uniforms(name, count):
    """Numbers in [-1, 1) with 24 bits, by name and index."""
    seed = 0xCBF29CE484222325
    for c in name.encode():
        seed = (seed ^ c) * 0x100000001B3 % 2**64
    with np.errstate(over="ignore"):
        x = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    return ((x >> np.uint64(40)).astype(np.float64) / 2**23 - 1).astype(np.float32)


def tensor(name, shape):
    """Norms are about 1; factors keep the size of what they multiply."""
    values = uniforms(name, int(np.prod(shape)))
    if name.endswith(("ln.weight", "ln_post.weight")):
        values = np.float32(1) + np.float32(0.25) * values
    elif len(shape) > 1 and "embedding" not in name:
        values = np.float32(1.5 / np.sqrt(np.prod(shape[1:]))) * values
    else:
        values = np.float32(0.25) * values
    return torch.tensor(values.reshape(shape))


def load(model):
    ours = {}
    theirs = {key[len("model."):]: value for key, value in model.state_dict().items() if key.startswith("model.")}
    for name, value in theirs.items():
        openai = name
        for mine, hf in NAMES:
            openai = openai.replace(hf, mine)
        ours["model." + name] = tensor(openai, tuple(value.shape))
    missing = model.load_state_dict(ours, strict=False)
    assert not missing.unexpected_keys and set(missing.missing_keys) <= {"proj_out.weight"}, missing
    model.proj_out.weight = model.model.decoder.embed_tokens.weight
    return model.eval()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    default = pathlib.Path(__file__).parent.parent / "tests/data/whisper/forward.json"
    parser.add_argument("--out", type=pathlib.Path, default=default)
    arguments = parser.parse_args()
    config = WhisperConfig(
        vocab_size=VOCAB, d_model=STATE, encoder_layers=LAYERS, decoder_layers=LAYERS,
        encoder_attention_heads=HEADS, decoder_attention_heads=HEADS, encoder_ffn_dim=4 * STATE,
        decoder_ffn_dim=4 * STATE, max_source_positions=AUDIO_CTX, max_target_positions=TEXT_CTX,
        num_mel_bins=MELS, attn_implementation="eager")
    model = load(WhisperForConditionalGeneration(config))
    mel = torch.tensor(uniforms("mel", MELS * 2 * AUDIO_CTX).reshape(1, MELS, 2 * AUDIO_CTX))
    with torch.no_grad():
        encoded = model.model.encoder(mel).last_hidden_state
        run = lambda ids: model.proj_out(model.model.decoder(
            input_ids=torch.tensor([ids]), encoder_hidden_states=encoded).last_hidden_state)[0]
        logits = run(TOKENS)
        greedy = list(TOKENS)
        for _ in range(GREEDY):
            greedy.append(int(run(greedy)[-1].argmax()))
    rounded = lambda values: [float(f"{v:.7g}") for v in values.tolist()]
    golden = {
        "encoder_rows": list(ENCODER_ROWS), "encoder_stride": ENCODER_STRIDE,
        "encoder": [rounded(encoded[0, row, ::ENCODER_STRIDE]) for row in ENCODER_ROWS],
        "tokens": TOKENS, "logit_stride": LOGIT_STRIDE,
        "logits": [rounded(row[::LOGIT_STRIDE]) for row in logits],
        "greedy": greedy[len(TOKENS):],
    }
    arguments.out.write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    print(arguments.out, arguments.out.stat().st_size, "bytes; greedy", golden["greedy"])


if __name__ == "__main__":
    main()
