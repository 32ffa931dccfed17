#!/usr/bin/env python3
"""Writes the seed inputs of the fuzzers of Whisper files to fuzz/corpus/whisper_{ggml,ct2,pt}.

    make_whisper_corpus.py [FOLDER]

Models of one layer each and width 16 (32 where weights are blocks), whole ones and ones with a fault. The same files
come out every time. What the fuzzers put around an input (filters of ggml files, the zip of a .pt) is left out.
"""

import struct
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MELS, VOCAB, AUDIO_CTX, TEXT_CTX = 80, 4, 2, 2
# Number, values and bytes of a block.
GGML_TYPES = {"f32": (0, 1, 4), "f16": (1, 1, 2), "q4_0": (2, 32, 18), "q5_1": (7, 32, 24), "q8_0": (8, 32, 34)}
MAGIC = 0x67676D6C


def shapes(width: int) -> list[tuple[str, list[int]]]:
    found = [("encoder.positional_embedding", [AUDIO_CTX, width]), ("encoder.conv1.weight", [width, MELS, 3]),
             ("encoder.conv1.bias", [width]), ("encoder.conv2.weight", [width, width, 3]),
             ("encoder.conv2.bias", [width]), ("encoder.ln_post.weight", [width]), ("encoder.ln_post.bias", [width]),
             ("decoder.positional_embedding", [TEXT_CTX, width]), ("decoder.token_embedding.weight", [VOCAB, width]),
             ("decoder.ln.weight", [width]), ("decoder.ln.bias", [width])]
    for stack, attentions in (("encoder", ["attn"]), ("decoder", ["attn", "cross_attn"])):
        block = f"{stack}.blocks.0."
        for attention in attentions:
            for part in ("query", "key", "value", "out"):
                found.append((f"{block}{attention}.{part}.weight", [width, width]))
                if part != "key":
                    found.append((f"{block}{attention}.{part}.bias", [width]))
            found += [(f"{block}{attention}_ln.{kind}", [width]) for kind in ("weight", "bias")]
        found += [(f"{block}mlp.0.weight", [4 * width, width]), (f"{block}mlp.0.bias", [4 * width]),
                  (f"{block}mlp.2.weight", [width, 4 * width]), (f"{block}mlp.2.bias", [width]),
                  (f"{block}mlp_ln.weight", [width]), (f"{block}mlp_ln.bias", [width])]
    return found


def count(dims: list[int]) -> int:
    product = 1
    for size in dims:
        product *= size
    return product


def is_factor(name: str, dims: list[int]) -> bool:
    return name.endswith(".weight") and len(dims) > 1


def ggml_header(width: int, tokens: list[bytes]) -> bytes:
    sizes = [VOCAB, AUDIO_CTX, width, width // 16, 1, TEXT_CTX, width, width // 16, 1, MELS]
    out = struct.pack("<I11i2i", MAGIC, *sizes, 1, MELS, 201)
    return out + struct.pack("<i", len(tokens)) + b"".join(struct.pack("<I", len(t)) + t for t in tokens)


def ggml_tensor(name: str, dims: list[int], kind: str) -> bytes:
    number, values, block = GGML_TYPES[kind]
    out = struct.pack("<3i", len(dims), len(name), number) + struct.pack(f"<{len(dims)}i", *reversed(dims))
    return out + name.encode() + bytes([0x2C]) * (count(dims) // values * block)


def ggml_file(width: int, kind: str, tensors=None) -> bytes:
    out = ggml_header(width, [b"a", b"", b"\xff\x00"])
    for name, dims in tensors or shapes(width):
        if not is_factor(name, dims):
            used = "f32"
        else:
            used = "f16" if len(dims) == 3 else kind
        shown = [*dims, 1] if name.startswith("encoder.conv") and len(dims) == 1 else dims
        out += ggml_tensor(name, shown, used)
    return out


def ct2_string(text: str) -> bytes:
    return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"


def ct2_variable(name: str, dims: list[int], dtype: int, data: bytes) -> bytes:
    return (ct2_string(name) + struct.pack(f"<B{len(dims)}I", len(dims), *dims)
            + struct.pack("<BI", dtype, len(data)) + data)


def ct2_variables(width: int) -> dict[str, list[int]]:
    found = {"encoder/position_encodings/encodings": [AUDIO_CTX, width],
             "decoder/position_encodings/encodings": [TEXT_CTX, width], "decoder/embeddings/weight": [VOCAB, width],
             "encoder/conv1/weight": [width, MELS, 3], "encoder/conv1/bias": [width],
             "encoder/conv2/weight": [width, width, 3], "encoder/conv2/bias": [width]}
    for stack in ("encoder", "decoder"):
        linears = {"self_attention/linear_0": (3, 1), "self_attention/linear_1": (1, 1), "ffn/linear_0": (4, 1),
                   "ffn/linear_1": (1, 4)}
        norms = ["self_attention", "ffn"]
        if stack == "decoder":
            linears |= {"attention/linear_0": (1, 1), "attention/linear_1": (2, 1), "attention/linear_2": (1, 1)}
            norms.append("attention")
        for name, (rows, cols) in linears.items():
            found[f"{stack}/layer_0/{name}/weight"] = [rows * width, cols * width]
            found[f"{stack}/layer_0/{name}/bias"] = [rows * width]
        for norm in [f"layer_0/{norm}/layer_norm" for norm in norms] + ["layer_norm"]:
            found[f"{stack}/{norm}/gamma"] = [width]
            found[f"{stack}/{norm}/beta"] = [width]
    return found


def ct2_file(width: int, dtype: int, spec: str = "WhisperSpec", leave_out: str = "") -> bytes:
    value = {0: 4, 1: 1, 4: 2}[dtype]
    parts = [ct2_variable("decoder/num_heads", [], 2, struct.pack("<h", width // 16)),
             ct2_variable("encoder/num_heads", [], 2, struct.pack("<h", width // 16)),
             ct2_variable("decoder/activation", [], 1, b"\3")]
    for name, dims in ct2_variables(width).items():
        if name != leave_out:
            fill = 0 if name.endswith("bias") else 0x2C
            parts.append(ct2_variable(name, dims, dtype, bytes([fill]) * (count(dims) * value)))
    out = struct.pack("<I", 6) + ct2_string(spec) + struct.pack("<II", 3, len(parts)) + b"".join(parts)
    return out + struct.pack("<I", 1) + ct2_string("decoder/projection/weight") + ct2_string("decoder/embeddings/weight")


def pickle_text(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text)) + text.encode()


def pickle_int(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def pickle_tensor(dims: list[int], key: int, strides: list[int]) -> bytes:
    storage = b"HalfStorage" if key % 2 == 0 else b"FloatStorage"
    out = b"ctorch._utils\n_rebuild_tensor_v2\n((" + pickle_text("storage") + b"ctorch\n" + storage + b"\n"
    out += pickle_text(str(key)) + pickle_text("cpu") + pickle_int(4096) + b"tQ" + pickle_int(0)
    for numbers in (dims, strides):
        out += b"(" + b"".join(pickle_int(number) for number in numbers) + b"t"
    return out + b"\x89ccollections\nOrderedDict\n)RtR"


def pt_pickle(width: int, key: int = 0, zero_strides: bool = False, changed: dict[str, int] | None = None) -> bytes:
    sizes = {"n_vocab": VOCAB, "n_audio_ctx": AUDIO_CTX, "n_audio_state": width, "n_audio_head": width // 16,
             "n_audio_layer": 1, "n_text_ctx": TEXT_CTX, "n_text_state": width, "n_text_head": width // 16,
             "n_text_layer": 1, "n_mels": MELS} | (changed or {})
    out = b"\x80\x02}(" + pickle_text("dims") + b"}("
    out += b"".join(pickle_text(name) + pickle_int(size) for name, size in sizes.items()) + b"u"
    out += pickle_text("model_state_dict") + b"}("
    for name, dims in shapes(width):
        strides = [0 if zero_strides else count(dims[i + 1:]) for i in range(len(dims))]
        out += pickle_text(name) + pickle_tensor(dims, key, strides)
    return out + b"uu."


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "fuzz/corpus"
    whole = ggml_file(16, "f16")
    header = ggml_header(16, [b"a"])
    files = {
        "whisper_ggml/f16": whole,
        "whisper_ggml/q4_0": ggml_file(32, "q4_0"),
        "whisper_ggml/q5_1": ggml_file(32, "q5_1"),
        "whisper_ggml/blocks_of_half_a_row": ggml_file(16, "q8_0"),
        "whisper_ggml/truncated": whole[:3000],
        "whisper_ggml/no_tensors": header,
        "whisper_ggml/unknown_tensor": header + ggml_tensor("encoder.blocks.1.attn.key.weight", [16, 16], "f16"),
        "whisper_ggml/twice": header + ggml_tensor("decoder.ln.bias", [16], "f32") * 2,
        "whisper_ggml/many_tokens": header[:56] + struct.pack("<i", 2**31 - 1),
        "whisper_ct2/f16": ct2_file(16, 4),
        "whisper_ct2/f32": ct2_file(16, 0),
        "whisper_ct2/integers": ct2_file(16, 1),
        "whisper_ct2/missing": ct2_file(16, 4, leave_out="decoder/layer_norm/beta"),
        "whisper_ct2/other_spec": ct2_file(16, 4, spec="TransformerSpec")[:400],
        "whisper_ct2/truncated": ct2_file(16, 4)[:2000],
        "whisper_pt/f16": pt_pickle(16),
        "whisper_pt/f32": pt_pickle(16, key=1),
        "whisper_pt/zero_strides": pt_pickle(16, zero_strides=True),
        "whisper_pt/wide": pt_pickle(16, changed={"n_audio_state": 4096, "n_text_state": 4096})[:2000],
        "whisper_pt/no_storage": pt_pickle(16, key=7),
    }
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


if __name__ == "__main__":
    main()
