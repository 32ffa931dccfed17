#!/usr/bin/env python3
"""Makes models/whisper-spelling.txt from the British and American spellings of OpenAI's Whisper.

    make_english_spelling.py FILE     whisper/normalizers/english.json of the source package openai-whisper 20250625

A line stands for the words that differ in the same way behind the same beginning: the beginning, what is British, what is
American, then the endings, "-" for none. "cent|re|er - s" is centre -> center and centres -> centers.
"""

import json
import os
import sys
from collections import defaultdict
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "models" / "whisper-spelling.txt"


def main():
    spellings = json.loads(Path(sys.argv[1]).read_text())
    lines = defaultdict(list)
    for british, american in spellings.items():
        if " " in british:
            continue  # "flyer / flier" is no word
        begin = len(os.path.commonprefix([british, american]))
        end = len(os.path.commonprefix([british[begin:][::-1], american[begin:][::-1]]))
        ending = british[len(british) - end :]
        stem = (british[:begin], british[begin : len(british) - end], american[begin : len(american) - end])
        lines[stem].append(ending or "-")
    TARGET.write_text("".join(f"{'|'.join(stem)} {' '.join(endings)}\n" for stem, endings in sorted(lines.items())))


if __name__ == "__main__":
    main()
