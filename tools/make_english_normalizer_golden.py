#!/usr/bin/env python3
"""Writes the second column of tests/data/eval/english_normalizer.tsv: the first one as Whisper's English normaliser gives it.

    python3 tools/make_english_normalizer_golden.py [FILE]

Needs: openai-whisper (20250625). Outer blanks of the result are cut off.
"""

import pathlib
import sys

from whisper.normalizers import EnglishTextNormalizer


def main():
    path = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/data/eval/english_normalizer.tsv")
    normalize = EnglishTextNormalizer()
    inputs = [line.split("\t")[0] for line in path.read_text().splitlines()]
    path.write_text("".join(f"{text}\t{normalize(text).strip()}\n" for text in inputs))


if __name__ == "__main__":
    main()
