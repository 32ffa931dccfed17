#!/usr/bin/env python3
"""Writes tests/data/whisper/MODEL.json: what the transformers library, on the CPU in f32, makes of
real speech with a real model: some values of encoder output and logits, and the greedy tokens without
timestamps. The test (cli/transcribe/whisper_models_test.cc) finds model and speech on the machine that
it runs on, or is skipped; neither is committed.

Needs torch, transformers and soundfile.

    python3 tools/make_whisper_model_golden.py --model whisper-tiny.en --file tiny.en.pt --audio DIR
    python3 tools/make_whisper_model_golden.py --model whisper-base --file model.bin --audio DIR

DIR holds folders of sound files at 16 kHz.
"""

import argparse
import json
import pathlib
import struct

import numpy as np
import soundfile
import torch
from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration

from make_whisper_golden import NAMES

ENCODER_ROWS, ENCODER_STRIDE, LOGIT_STRIDE, LOGIT_ROWS = (0, 700, 1499), 61, 4999, 4


def read_pt(path):
    """OpenAI's checkpoint."""
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    return {name: value.float() for name, value in checkpoint["model_state_dict"].items()}


def read_ct2_tensors(path):
    """CTranslate2's model.bin, with its own names."""
    data = pathlib.Path(path).read_bytes()
    at = 0

    def take(form):
        nonlocal at
        value = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return value[0]

    def text():
        nonlocal at
        size = take("H")
        at += size
        return data[at - size:at - 1].decode()

    take("I"), text(), take("I")
    stored = {}
    for _ in range(take("I")):
        name, rank = text(), take("B")
        dims = [take("I") for _ in range(rank)]
        dtype, size = (np.float32, np.int8, np.int16, np.int32, np.float16)[take("B")], take("I")
        stored[name] = torch.tensor(np.frombuffer(data, dtype, size // dtype().itemsize, at).reshape(dims).astype(np.float32))
        at += size
    return stored


class OpenAiNames:
    """Tensors of CTranslate2, one after the other, to `weights` with OpenAI's names."""

    def __init__(self, stored):
        self.stored = stored
        self.weights = {}

    def put(self, ours, theirs):
        for mine, suffixes in (("weight", ("weight", "gamma")), ("bias", ("bias", "beta"))):
            for suffix in suffixes:
                if f"{theirs}/{suffix}" in self.stored:
                    self.weights[f"{ours}.{mine}"] = self.stored[f"{theirs}/{suffix}"]

    def split(self, ours, theirs, parts):
        for kind in ("weight", "bias"):
            for part, value in zip(parts, self.stored[f"{theirs}/{kind}"].chunk(len(parts))):
                if (part, kind) != ("key", "bias"):
                    self.weights[f"{ours}.{part}.{kind}"] = value

    def put_layer(self, ours, theirs, crosses):
        """crosses: a layer of the decoder, which attends to the encoder's output, too."""
        self.put(f"{ours}.attn_ln", f"{theirs}/self_attention/layer_norm")
        self.split(f"{ours}.attn", f"{theirs}/self_attention/linear_0", ("query", "key", "value"))
        self.put(f"{ours}.attn.out", f"{theirs}/self_attention/linear_1")
        if crosses:
            self.put(f"{ours}.cross_attn_ln", f"{theirs}/attention/layer_norm")
            self.put(f"{ours}.cross_attn.query", f"{theirs}/attention/linear_0")
            self.split(f"{ours}.cross_attn", f"{theirs}/attention/linear_1", ("key", "value"))
            self.put(f"{ours}.cross_attn.out", f"{theirs}/attention/linear_2")
        self.put(f"{ours}.mlp_ln", f"{theirs}/ffn/layer_norm")
        self.put(f"{ours}.mlp.0", f"{theirs}/ffn/linear_0")
        self.put(f"{ours}.mlp.2", f"{theirs}/ffn/linear_1")


def read_ct2(path):
    """CTranslate2's model.bin, with OpenAI's names."""
    stored = read_ct2_tensors(path)
    names = OpenAiNames(stored)
    for side, norm in (("encoder", "ln_post"), ("decoder", "ln")):
        names.weights[f"{side}.positional_embedding"] = stored[f"{side}/position_encodings/encodings"]
        names.put(f"{side}.{norm}", f"{side}/layer_norm")
        layer = 0
        while f"{side}/layer_{layer}/ffn/linear_0/weight" in stored:
            names.put_layer(f"{side}.blocks.{layer}", f"{side}/layer_{layer}", side == "decoder")
            layer += 1
    for name in ("conv1", "conv2"):
        names.put(f"encoder.{name}", f"encoder/{name}")
    names.put("decoder.token_embedding", "decoder/embeddings")
    return names.weights


def build(weights):
    layers = lambda side: 1 + max(int(n.split(".")[2]) for n in weights if n.startswith(f"{side}.blocks."))
    vocab, state = weights["decoder.token_embedding.weight"].shape
    config = WhisperConfig(
        vocab_size=vocab, d_model=state, encoder_layers=layers("encoder"), decoder_layers=layers("decoder"),
        encoder_attention_heads=state // 64, decoder_attention_heads=state // 64, encoder_ffn_dim=4 * state,
        decoder_ffn_dim=4 * state, num_mel_bins=weights["encoder.conv1.weight"].shape[1],
        attn_implementation="eager")
    model = WhisperForConditionalGeneration(config)
    renamed = {}
    for name, value in weights.items():
        for ours, theirs in NAMES:
            name = name.replace(ours, theirs)
        renamed["model." + name] = value
    missing = model.load_state_dict(renamed, strict=False)
    assert not missing.unexpected_keys and set(missing.missing_keys) <= {"proj_out.weight"}, missing
    model.proj_out.weight = model.model.decoder.embed_tokens.weight
    return model.eval()


def greedy(model, encoded, start, end, suppressed):
    tokens, cache, fed, rows = list(start), None, torch.tensor([start]), []
    while len(tokens) < len(start) + 224:
        out = model.model.decoder(input_ids=fed, encoder_hidden_states=encoded, past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        logits = model.proj_out(out.last_hidden_state[:, -1])[0]
        rows.append(logits.clone())
        logits[suppressed] = -torch.inf
        if len(tokens) == len(start):
            logits[[220, end]] = -torch.inf
        best = int(logits.argmax())
        if best == end:
            break
        tokens.append(best)
        fed = torch.tensor([[best]])
    return tokens[len(start):], rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--file", required=True)
    parser.add_argument("--audio", type=pathlib.Path, required=True)
    parser.add_argument("--most", type=int, default=2, help="files of each folder")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    data = pathlib.Path(__file__).parent.parent / "tests/data/whisper"
    model = build(read_ct2(arguments.file) if arguments.file.endswith(".bin") else read_pt(arguments.file))
    english = model.config.vocab_size == 51864
    vocabulary = json.loads((data / "vocabulary.json").read_text())["english" if english else "multilingual"]
    start = [50257, 50362] if english else [50258, 50259, 50359, 50363]
    end = 50256 if english else 50257
    steering = [50257, 50357, 50358, 50359, 50360, 50361] if english else [50258, 50358, 50359, 50360, 50361, 50362]
    suppressed = sorted(set(vocabulary["non_speech"]) | set(steering))
    extractor = WhisperFeatureExtractor(feature_size=model.config.num_mel_bins)
    rounded = lambda values: [float(f"{v:.7g}") for v in values.tolist()]
    clips = {}
    files = []
    for kind in ("jfk", "librispeech", "ljspeech"):
        found = sorted(p for p in (arguments.audio / kind).iterdir() if p.suffix in (".wav", ".flac"))
        files += found[:arguments.most]
    with torch.no_grad():
        for path in files:
            samples, rate = soundfile.read(path, dtype="float32")
            assert rate == 16000 and samples.ndim == 1, path
            mel = extractor(samples, sampling_rate=rate, return_tensors="pt").input_features
            encoded = model.model.encoder(mel).last_hidden_state
            tokens, rows = greedy(model, encoded, start, end, suppressed)
            clips[f"{path.parent.name}/{path.name}"] = {
                "encoder": [rounded(encoded[0, row, ::ENCODER_STRIDE]) for row in ENCODER_ROWS],
                "logits": [rounded(row[::LOGIT_STRIDE]) for row in rows[:LOGIT_ROWS]],
                "tokens": tokens,
            }
            print(path.name, len(tokens), flush=True)
    golden = {"encoder_rows": ENCODER_ROWS, "encoder_stride": ENCODER_STRIDE, "logit_stride": LOGIT_STRIDE,
              "start": start, "clips": clips}
    out = data / f"{arguments.model}.json"
    out.write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    print(out, out.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
