#!/usr/bin/env python3
"""Makes models/whisper-*.tokens.zst from the vocabularies of OpenAI's Whisper.

    make_whisper_tokens.py ASSETS     the folder whisper/assets of the source package openai-whisper 20250625

A .tiktoken file has a line per token: its bytes in base64, and its number. Ours has the tokens in the order of their
numbers, each a byte with its length, then its bytes; all of it one zstd frame (the program `zstd` makes it).
"""

import base64
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAMES = {"gpt2": "whisper-english", "multilingual": "whisper-multilingual"}


def read_tiktoken(path: Path) -> list[bytes]:
    tokens = {}
    for line in path.read_text().splitlines():
        text, number = line.split()
        tokens[int(number)] = base64.b64decode(text)
    return [tokens[number] for number in range(len(tokens))]


def main(assets: str) -> None:
    for source, name in NAMES.items():
        tokens = read_tiktoken(Path(assets) / f"{source}.tiktoken")
        listed = b"".join(bytes([len(token)]) + token for token in tokens)
        # With the size in its header, which the reader takes from there.
        command = ["zstd", "--ultra", "-22", f"--stream-size={len(listed)}", "-c"]
        packed = subprocess.run(command, input=listed, capture_output=True, check=True).stdout
        path = ROOT / "models" / f"{name}.tokens.zst"
        path.write_bytes(packed)
        print(f"{path}: {len(tokens)} tokens, {len(packed)} bytes")


if __name__ == "__main__":
    main(sys.argv[1])
