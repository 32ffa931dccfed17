#!/usr/bin/env python3
"""Writes the seed inputs of the audio fuzzer (fuzz/audio_fuzzer.cc) to fuzz/corpus/audio.

    make_audio_corpus.py [FOLDER]

Short sounds in every format that is read, and files with one thing wrong each.

Needs: numpy, soundfile.
"""

import io
import struct
import sys
from pathlib import Path

import numpy as np
import soundfile

FOLDER = Path(__file__).resolve().parent.parent / "fuzz" / "corpus" / "audio"


def sine(rate, channels, samples):
    x = 0.4 * np.sin(2 * np.pi * 440 * np.arange(samples) / rate)
    return np.repeat(x[:, None], channels, axis=1).astype(np.float32)


def encode(samples, rate, container, subtype):
    out = io.BytesIO()
    soundfile.write(out, samples, rate, format=container, subtype=subtype)
    return out.getvalue()


def patched(data, offset, value):
    return data[:offset] + value + data[offset + len(value) :]


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    wav = encode(sine(16000, 1, 400), 16000, "WAV", "PCM_16")
    floats = encode(sine(16000, 1, 200), 16000, "WAV", "FLOAT")
    flac = encode(sine(16000, 1, 900), 16000, "FLAC", "PCM_16")
    vorbis = encode(sine(8000, 1, 800), 8000, "OGG", "VORBIS")
    opus = encode(sine(16000, 1, 800), 16000, "OGG", "OPUS")
    mp3 = encode(sine(16000, 1, 1200), 16000, "MP3", "MPEG_LAYER_III")
    data = floats.find(b"data") + 8
    files = {
        "wav": wav,
        "wav_stereo_44100": encode(sine(44100, 2, 300), 44100, "WAV", "PCM_24"),
        "wav_eight_channels": encode(sine(8000, 8, 60), 8000, "WAV", "PCM_U8"),
        "wav_one_sample": encode(sine(48000, 1, 1), 48000, "WAV", "PCM_16"),
        "wav_no_samples": encode(sine(16000, 1, 0), 16000, "WAV", "PCM_16"),
        "wav_nan": patched(floats, data + 40, struct.pack("<f", float("nan"))),
        "wav_huge": patched(floats, data + 40, struct.pack("<f", 1e38)),
        "wav_no_length": patched(patched(wav, 4, b"\xff" * 4), 40, b"\xff" * 4),
        "wav_rate_of_1_hz": patched(wav, 24, struct.pack("<I", 1)),
        "wav_rate_of_4_ghz": patched(wav, 24, struct.pack("<I", 4000000000)),
        "wav_no_channels": patched(wav, 22, struct.pack("<H", 0)),
        "wav_cut": wav[:300],
        "wav_header_only": wav[:30],
        "flac": flac,
        "flac_claims_hours": patched(flac, 21, bytes([flac[21] & 0xF0, 0x20, 0, 0, 0])),
        "flac_no_length": patched(flac, 21, bytes([flac[21] & 0xF0, 0, 0, 0, 0])),
        "flac_cut": flac[: len(flac) * 2 // 3],
        "flac_damaged": patched(flac, len(flac) // 2, b"damage"),
        "vorbis": vorbis,
        "vorbis_cut": vorbis[: len(vorbis) * 9 // 10],
        "opus": opus,
        "opus_damaged": patched(opus, len(opus) * 3 // 4, b"damage"),
        "mp3": mp3,
        "mp3_cut": mp3[: len(mp3) // 2],
        "mp3_damaged": patched(mp3, len(mp3) // 2, b"damage"),
        "text": b"What people say.",
        "empty": b"",
    }
    for subtype in ("ULAW", "ALAW", "IMA_ADPCM", "MS_ADPCM", "GSM610"):
        files["wav_" + subtype.lower()] = encode(sine(8000, 1, 320), 8000, "WAV", subtype)
    for name, content in files.items():
        (folder / name).write_bytes(content)


if __name__ == "__main__":
    main()
