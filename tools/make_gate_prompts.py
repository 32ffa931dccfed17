#!/usr/bin/env python3
"""Writes gate/prompts/manifest.json: the passages of models/eval.txt that `varve gate` reads.

    make_gate_prompts.py > gate/prompts/manifest.json

A passage begins with a paragraph. It has eight bytes for each token that it must give (the bucket and the
tokens that follow), which is enough for any tokenizer of English. Hashes are XXH3-64, by `xxhsum -H3` (Debian: xxhash).
"""

import json
import subprocess
import sys
from pathlib import Path

TEXT = Path(__file__).resolve().parent.parent / "models" / "eval.txt"
SOURCE = "P. G. Wodehouse, Uneasy Money (1916), public domain in the US; models/eval.txt"
BUCKETS = [128, 512, 2048]
PASSAGES = 3  # of each bucket
REPLY_TOKENS = 256
BYTES_PER_TOKEN = 8


def xxh3(data: bytes) -> str:
    out = subprocess.run(["xxhsum", "-H3", "-q"], input=data, capture_output=True, check=True).stdout.decode()
    return out.split()[0].replace("XXH3_", "") if out.startswith("XXH3_") else out.split()[0]


def main() -> int:
    text = TEXT.read_bytes()
    count = PASSAGES * len(BUCKETS)
    passages = []
    for bucket in BUCKETS:
        for i in range(PASSAGES):
            # Spread over the text, the buckets in turn; the first half is left to KL and recall.
            place = len(text) * 2 // 5 + len(text) * 2 // 5 * (i * len(BUCKETS) + BUCKETS.index(bucket)) // count
            offset = text.index(b"\n\n", place) + 2
            size = (bucket + REPLY_TOKENS) * BYTES_PER_TOKEN
            while (text[offset + size] & 0xC0) == 0x80:  # not inside a character
                size += 1
            piece = text[offset : offset + size]
            passages.append({"name": f"uneasy-money-{bucket}-{i + 1}", "bucket": bucket, "offset": offset,
                             "bytes": size, "hash": xxh3(piece), "source": SOURCE})  # fmt: skip
    lines = ",\n".join("    " + json.dumps(p) for p in passages)
    print('{\n  "text": "models/eval.txt",\n  "passages": [\n' + lines + "\n  ]\n}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
