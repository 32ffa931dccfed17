#!/usr/bin/env python3
"""Golden vectors of Whisper's vocabularies, for src/runtime/whisper/whisper_vocabulary_test.cc.

Needs the Python package tiktoken (written with 0.14) and the source package openai-whisper (20250625), which are the
reference: the vocabularies are OpenAI's own, and its tokenizer encodes the texts.

    make_whisper_vocabulary_golden.py PACKAGE     write tests/data/whisper/vocabulary.json

PACKAGE is the unpacked source package. The file: per vocabulary (english, multilingual, large-v3) its special ids, the
tokens that are not speech, and for each text its ids.
"""

import importlib.util
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEXTS = [
    "", " ", "  ", "\n", "\t\n  x", "a", " a", "Hello, world!", " Hello, world!", "And so my fellow Americans,",
    " ask not what your country can do for you", "I'm, you're, he'd, we'll, they've, it's, can't", "I'M YOU'RE",
    "1234567890", " 3.14159, 2,718", "in 1984 and 2026", "10:30 a.m. $5.99 100%", "x" * 70, "aaaaaaaaaaaaaaab",
    "   three spaces   ", "tab\tand\r\nline", "don't--stop", "(laughs) [MUSIC] {x} <br>", "♪♪♪ la la ♪",
    "Ångström café naïve Zürich", "Der schnelle braune Fuchs springt über den faulen Hund.", "¿Dónde está la biblioteca?",
    "Съешь ещё этих мягких французских булок", "今日はいい天気ですね。", "我们去北京吃烤鸭吧！", "안녕하세요 세계",
    "مرحبا بالعالم", "שלום עולם", "नमस्ते दुनिया", "สวัสดีชาวโลก", "Χαίρετε, κόσμε", "🙂👍🏽👨‍👩‍👧‍👦🇩🇪",
    "e\u0301 \u00a0nbsp \u3000wide \u200bzero", "<|endoftext|><|startoftranscript|>", "supercalifragilisticexpialidocious",
    "https://example.org/a?b=c&d=e#f", "x = y[3] * (z + 1); // comment", "\u180e mongol \u2028 line",
]


def load_tokenizer(package: Path):
    spec = importlib.util.spec_from_file_location("whisper_tokenizer", package / "whisper/tokenizer.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def describe(tokenizer) -> dict:
    cases = []
    for text in TEXTS:
        ids = tokenizer.encoding.encode(text, disallowed_special=())
        assert tokenizer.encoding.decode_bytes(ids) == text.encode()
        cases.append({"text": text, "ids": ids})
    special = {
        "end_of_text": tokenizer.eot, "start": tokenizer.sot, "translate": tokenizer.translate,
        "transcribe": tokenizer.transcribe, "start_of_previous": tokenizer.sot_prev, "start_of_lm": tokenizer.sot_lm,
        "no_speech": tokenizer.no_speech, "no_timestamps": tokenizer.no_timestamps,
        "first_timestamp": tokenizer.timestamp_begin,
        "german": tokenizer.to_language_token("de"),
    }
    return {"vocab": tokenizer.encoding.n_vocab, "special": special, "non_speech": tokenizer.non_speech_tokens,
            "cases": cases}


def main(package: str) -> None:
    module = load_tokenizer(Path(package))
    golden = {
        "english": describe(module.get_tokenizer(False)),
        "multilingual": describe(module.get_tokenizer(True)),
        "large-v3": describe(module.get_tokenizer(True, num_languages=100)),
    }
    path = ROOT / "tests/data/whisper/vocabulary.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(golden, ensure_ascii=True, separators=(",", ":")) + "\n")
    print(f"{path}: {len(TEXTS)} texts, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1])
