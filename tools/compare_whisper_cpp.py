#!/usr/bin/env python3
"""Varve beside whisper.cpp on the same model file and recordings: time of the whole program, of encoding and of decoding.

    tools/compare_whisper_cpp.py --cli whisper.cpp/build/bin/whisper-cli -m ggml-tiny.en.bin speech.wav

Runs the user's own whisper-cli and our program (build/varve) in turn, with the same threads, beams and language, so
that a machine that slows down slows both; figures are medians of the rounds. Both decode without timestamps. The
whole time is that of the process, with reading the model. Encoding and decoding are what the programs say of
themselves. The texts are printed where they differ. whisper.cpp runs on the CPU, with flash attention as it is by
default.
"""

import argparse
import json
import os
import re
import sys
import time
from pathlib import Path

from side_by_side import CompareError, last_lines, median_of, render, run, say

ROOT = Path(__file__).resolve().parent.parent


def parse_whisper_cpp(output: str) -> dict:
    """Seconds of encoding and of everything that decodes, from whisper_print_timings."""
    times = {name: float(value) / 1000
             for name, value in re.findall(r"(\w+) time\s*=\s*([\d.]+) ms", output)}
    if "encode" not in times or "decode" not in times:
        raise CompareError("whisper-cli printed no times; its last lines:\n" + last_lines(output))
    return {"encode": times["encode"], "decode": sum(times.get(name, 0) for name in ("decode", "batchd", "prompt"))}


def parse_varve(output: str) -> dict:
    """The same of `varve transcribe --stats`."""
    found = re.search(r"encoded in ([\d.]+) s, .* steps in ([\d.]+) s", output)
    if not found:
        raise CompareError("varve transcribe printed no times; its last lines:\n" + last_lines(output))
    return {"encode": float(found[1]), "decode": float(found[2])}


def text_of(output: str, is_ours: bool) -> str:
    """The words, without what the programs say of themselves."""
    noise = r": [\d.]+ s of sound in " if is_ours else r"^(whisper|ggml|main|system_info|load_backend|read_audio|output_)"
    kept = [line for line in output.splitlines() if not re.search(noise, line)]
    # The text and the statistics may share a line: they come from two streams.
    return " ".join(" ".join(kept).split())


def commands(options, beams: int, recording: str) -> dict:
    language = ["-l", options.language] if options.language else []
    ours = ["--language", options.language] if options.language else []
    plan = ["--kv", options.kv] if options.kv else []
    return {
        "whisper.cpp": [options.cli, "-m", options.model, "-f", recording, "-t", str(options.threads), "-ng", "-nt",
                        "-bs", str(beams), "-bo", str(max(beams, 1)), *language],
        "varve": [options.varve, "transcribe", "-m", options.model, recording, "--threads", str(options.threads),
                  "--beam", str(beams), "--no-timestamps", "--stats", *ours, *plan],
    }


def measure(options) -> tuple[dict, dict]:
    """Medians by (program, recording, beams, kind), and the texts by (program, recording, beams)."""
    samples: dict[tuple, list[float]] = {}
    texts = {}
    for number in range(options.rounds):
        for recording in options.recordings:
            for beams in options.beams:
                for program, command in commands(options, beams, recording).items():
                    say(f"round {number + 1} of {options.rounds}: {program}, {Path(recording).name}, {beams} beams")
                    begin = time.perf_counter()
                    output = run(command)
                    whole = time.perf_counter() - begin
                    is_ours = program == "varve"
                    figures = {"whole": whole, **(parse_varve if is_ours else parse_whisper_cpp)(output)}
                    for kind, value in figures.items():
                        samples.setdefault((program, recording, beams, kind), []).append(value)
                    texts[program, recording, beams] = text_of(output, is_ours)
    return median_of(samples), texts


def table(medians: dict, options) -> list[dict]:
    rows = []
    for recording in options.recordings:
        for beams in options.beams:
            for kind in ("whole", "encode", "decode"):
                mine, other = (medians[name, recording, beams, kind] for name in ("varve", "whisper.cpp"))
                rows.append({"recording": Path(recording).name, "beams": beams, "time": kind, "varve_s": mine,
                             "whisper_cpp_s": other, "ratio": other / mine if mine > 0 else float("inf")})
    return rows


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", nargs="+", metavar="AUDIO", help="wav files of 16 kHz, which both programs read")
    parser.add_argument("-m", "--model", required=True, help="ggml file of a Whisper model")
    parser.add_argument("--cli", metavar="PATH", required=True, help="whisper-cli of the user's whisper.cpp")
    parser.add_argument("--varve", metavar="PATH", default=str(ROOT / "build/varve"))
    parser.add_argument("--kv", help="plan of Varve (default: f16, as whisper.cpp has it)")
    parser.add_argument("--beams", type=lambda text: [int(part) for part in text.split(",")], default=[1, 5],
                        help="widths of the search (default: 1,5)")
    parser.add_argument("--language", help="code; needed by multilingual models (default: en by whisper.cpp)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of both programs in turn (default: 3)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all cores")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write all figures as JSON")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse_arguments(arguments)
    try:
        medians, texts = measure(options)
        rows = table(medians, options)
        print(f"{Path(options.model).name}, {options.threads} threads, seconds, medians of {options.rounds} rounds that "
              "take turns")
        print(render(["recording", "beams", "time", "varve", "whisper.cpp", "whisper.cpp / varve"],
                     [[row["recording"], str(row["beams"]), row["time"], f"{row['varve_s']:.3f}",
                       f"{row['whisper_cpp_s']:.3f}", f"{row['ratio']:.2f}"] for row in rows]))
        for recording in options.recordings:
            for beams in options.beams:
                mine, other = (texts[name, recording, beams] for name in ("varve", "whisper.cpp"))
                if mine != other:
                    print(f"\n{Path(recording).name}, {beams} beams: the texts differ\n  varve        {mine}\n"
                          f"  whisper.cpp  {other}")
        if options.json:
            options.json.write_text(json.dumps({"model": Path(options.model).name, "threads": options.threads,
                                                "rows": rows}, indent=2) + "\n")
    except (CompareError, OSError) as error:
        print(f"compare_whisper_cpp: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("compare_whisper_cpp: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
