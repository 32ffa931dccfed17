#!/usr/bin/env python3
"""Writes the seeds of fuzz/corpus/compressor and fuzz/corpus/pth: small files, right and wrong ones.

    python3 tools/make_fold_corpus.py [--out fuzz/corpus]

The first byte of a seed is for the fuzzer: the order of blocks, or whether the rest is a whole .pth (even)
or the pickle of one (odd). Needs the standard library alone.
"""

import argparse
import io
import pathlib
import struct
import zipfile

MAGIC = 0x4B56434D
PREFIXES = ("compress_tk", "compress_tv", "compress_ik", "compress_iv")


def compressor(dtype=0, layers=1, image=False, bias=True, hidden=1, metadata=b"", turned=False, **fields):
    """A file of head_dim 16 and factor 2 with narrow hidden layers; `fields` replace those of the header."""
    header = dict(magic=MAGIC, version=1, dtype=dtype, reserved=0, num_layers=layers, num_heads=2, head_dim=16,
                  hidden_size=32, factor=2, min_seq_len=2, count=12 if image else 6, metadata=len(metadata))  # fmt: skip
    header.update(fields)
    out = [struct.pack("<IIHH8I", *header.values()), metadata]
    one = {0: b"\x00\x38", 1: b"\x00\x3f", 2: b"\x00\x00\x00\x3f"}[dtype]  # 0.5
    for _ in range(layers * (4 if image else 2)):
        for rows, cols in ((hidden, 32), (hidden, hidden), (16, hidden))[:: -1 if turned else 1]:
            out.append(struct.pack("<III", rows, cols, bias) + one * (rows * cols + rows * bias))
    return b"".join(out)


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def ints(*values):
    return b"(" + b"".join(b"J" + struct.pack("<i", value) for value in values) + b"t"


def tensor(rows, cols, storage="FloatStorage", key="0", count=512, offset=0, strides=None):
    shape = (rows, cols) if cols else (rows,)
    strides = strides or ((cols, 1) if cols else (1,))
    return (b"ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + f"ctorch\n{storage}\n".encode() + text(key)
            + text("cpu") + b"J" + struct.pack("<i", count) + b"tQJ" + struct.pack("<i", offset) + ints(*shape)
            + ints(*strides) + b"\x89ccollections\nOrderedDict\n)RtR")  # fmt: skip


def state_dict(prefixes=PREFIXES[:2], bias=True, **changes):
    out = b"ccollections\nOrderedDict\n)R("
    for prefix in prefixes:
        for slot, cols in ((0, 32), (3, 16), (6, 16)):
            out += text(f"{prefix}.0.{slot}.weight") + tensor(16, cols, **changes)
            if bias:
                out += text(f"{prefix}.0.{slot}.bias") + tensor(16, 0, **changes)
    return out + b"u"


def pickle(body):
    return b"\x80\x02" + body + b"."


def pth(pickled, storage=bytes(2048), compression=zipfile.ZIP_STORED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in (("data.pkl", pickled), ("byteorder", b"little"), ("data/0", storage)):
            archive.writestr(zipfile.ZipInfo("a/" + name, (1980, 1, 1, 0, 0, 0)), content, compression)
    return buffer.getvalue()


COMPRESSORS = {
    "text_f16": b"\0" + compressor(),
    "image_bf16": b"\0" + compressor(dtype=1, image=True),
    "text_f32_no_bias": b"\0" + compressor(dtype=2, bias=False, hidden=2),
    "two_layers_metadata": b"\0" + compressor(layers=2, metadata=b"{}"),
    "slots_turned": b"\4" + compressor(turned=True),
    "magic_only": b"\0" + struct.pack("<I", MAGIC),
    "header_only": b"\0" + compressor()[:44],
    "zip": b"\0PK\3\4" + bytes(40),
    "version_2": b"\0" + compressor(version=2),
    "many_layers": b"\0" + compressor(num_layers=1024),
    "huge_metadata": b"\0" + compressor(metadata=b"")[:40] + b"\xff\xff\xff\xff" + bytes(8),
    "trailing": b"\0" + compressor() + b"\0",
}

METADATA = b"}" + text("_metadata") + b"ccollections\nOrderedDict\n)Rsb"
PTHS = {
    "state_dict": b"\1" + pickle(state_dict() + METADATA),
    "image_nested": b"\1" + pickle(b"}" + text("model_state_dict") + b"}" + text("compressor")
                                   + state_dict(PREFIXES, bias=False) + b"ss"),  # fmt: skip
    "strides": b"\1" + pickle(state_dict(bias=False, strides=(1, 16))),
    "half_storage": b"\1" + pickle(state_dict(storage="HalfStorage", count=1024)),
    "leads_out": b"\1" + pickle(state_dict(offset=2147483647)),
    "os_system": b"\1" + pickle(b"cos\nsystem\n" + text("true") + b"\x85R"),
    "inst": b"\1" + pickle(b"(ios\nsystem\n"),
    "deep": b"\1" + pickle(b"(" * 300),
    "contains_itself": b"\1" + pickle(b"]q\0h\0a"),
    "protocol_4": b"\1\x80\x04\x95" + struct.pack("<Q", 5) + b"}\x94K\x01K\x02s.",
    "long_text": b"\1" + pickle(b"X\xff\xff\xff\xff"),
    "whole": b"\0" + pth(pickle(state_dict(bias=False))),
    "compressed": b"\0" + pth(pickle(b"}"), compression=zipfile.ZIP_DEFLATED),
    "empty_dict": b"\0" + pth(pickle(b"}"), storage=b""),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("fuzz/corpus"))
    args = parser.parse_args()
    for folder, seeds in (("compressor", COMPRESSORS), ("pth", PTHS)):
        (args.out / folder).mkdir(parents=True, exist_ok=True)
        for name, seed in seeds.items():
            (args.out / folder / name).write_bytes(seed)
            print(f"{len(seed):6d} {folder}/{name}")


if __name__ == "__main__":
    main()
