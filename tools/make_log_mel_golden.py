#!/usr/bin/env python3
"""Writes tests/data/audio/log_mel.json: Whisper's log-mel spectrogram of a synthetic sound.

Computed in float64 from the definition, with nothing but numpy. The sound is made from sines and a
linear congruential generator, so that the test makes the same one. With the mel_filters.npz of
OpenAI's package the script also says how far its filters are from those.

    python3 tools/make_log_mel_golden.py [--out FILE] [--filters mel_filters.npz]
"""

import argparse
import json
import pathlib

import numpy as np

RATE, WINDOW, HOP, PADDING = 16000, 400, 160, 480000
SAMPLES = 11237
FRAMES = (0, 1, 35, 69, 70, 71, 100)  # both ends of the sound, the step in its level, silence


def sound():
    """Loud sines and noise, then the same 60 dB lower."""
    state = 1
    noise = np.empty(SAMPLES)
    for n in range(SAMPLES):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        noise[n] = (state >> 40) / 2**23 - 1
    n = np.arange(SAMPLES)
    x = 0.3 * np.sin(2 * np.pi * 440 * n / RATE) + 0.1 * np.sin(2 * np.pi * 3217 * n / RATE + 1)
    x += 0.02 * noise
    return np.where(n < 6000, x, 1e-3 * x).astype(np.float32).astype(np.float64)


def mel_filters(mels):
    """[mels, 201]: triangles on Slaney's scale, of equal area."""
    knee, step = 15.0, np.log(6.4) / 27
    top = knee + np.log(8000 / 1000) / step
    points = np.linspace(0, top, mels + 2)
    hz = np.where(points < knee, points * 200 / 3, 1000 * np.exp((points - knee) * step))
    bins = np.arange(WINDOW // 2 + 1) * RATE / WINDOW
    rise = (bins[None] - hz[:-2, None]) / np.diff(hz)[:-1, None]
    fall = (hz[2:, None] - bins[None]) / np.diff(hz)[1:, None]
    return np.maximum(0, np.minimum(rise, fall)) * (2 / (hz[2:] - hz[:-2]))[:, None]


def log_mel(x, mels):
    padded = np.concatenate([x, np.zeros(PADDING)])
    padded = np.concatenate([padded[WINDOW // 2 : 0 : -1], padded, padded[-2 : -WINDOW // 2 - 2 : -1]])
    frames = (SAMPLES + PADDING) // HOP
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    n = np.arange(WINDOW)
    transform = np.exp(-2j * np.pi * np.outer(np.arange(WINDOW // 2 + 1), n) / WINDOW)
    pieces = np.stack([padded[f * HOP : f * HOP + WINDOW] * window for f in range(frames)])
    power = np.abs(pieces @ transform.T) ** 2
    values = np.log10(np.maximum(mel_filters(mels) @ power.T, 1e-10))
    return (np.maximum(values, values.max() - 8) + 4) / 4


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default="tests/data/audio/log_mel.json")
    parser.add_argument("--filters", type=pathlib.Path)
    args = parser.parse_args()
    golden = {"samples": SAMPLES, "frames": FRAMES, "log_mel": {}, "filter_sums": {}}
    for mels in (80, 128):
        values = log_mel(sound(), mels)
        golden["log_mel"][mels] = [[round(v, 7) for v in values[:, f]] for f in FRAMES]
        golden["filter_sums"][mels] = [round(v, 9) for v in mel_filters(mels).sum(1)]
        if args.filters:
            distance = np.abs(mel_filters(mels) - np.load(args.filters)[f"mel_{mels}"]).max()
            print(f"{mels} mels: filters differ by {distance:.2g}")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
