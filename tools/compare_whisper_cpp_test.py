"""Tests of compare_whisper_cpp.py on recorded output, and end to end with stand-ins for the programs."""

import contextlib
import io
import json
import stat
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
import compare_whisper_cpp as compare  # noqa: E402

WHISPER_CPP = """read_audio_data: trying to decode with miniaudio
whisper_model_load: loading model
system_info: n_threads = 2 / 2 | CPU : AVX = 1

 And so my fellow Americans, ask not.

whisper_print_timings:     load time =    67.05 ms
whisper_print_timings:      mel time =     9.00 ms
whisper_print_timings:   sample time =    20.00 ms /   133 runs (     0.15 ms per run)
whisper_print_timings:   encode time =  1000.00 ms /     1 runs (  1000.00 ms per run)
whisper_print_timings:   decode time =    10.00 ms /     2 runs (     5.00 ms per run)
whisper_print_timings:   batchd time =   300.00 ms /   128 runs (     2.34 ms per run)
whisper_print_timings:   prompt time =     0.00 ms /     1 runs (     0.00 ms per run)
whisper_print_timings:    total time =  1450.00 ms
"""
VARVE = """And so my fellow Americans, ask not.
speech.wav: 11.0 s of sound in 0.45 s; so far 1 windows encoded in 0.32 s, 141 tokens in 29 steps in 0.10 s; self 864 KiB
"""


class Parsing(unittest.TestCase):
    def test_decoding_is_all_that_whisper_cpp_calls_so(self):
        self.assertEqual(compare.parse_whisper_cpp(WHISPER_CPP), {"encode": 1.0, "decode": 0.31})

    def test_our_statistics_are_read(self):
        self.assertEqual(compare.parse_varve(VARVE), {"encode": 0.32, "decode": 0.10})

    def test_output_without_times_is_shown(self):
        for parse in (compare.parse_whisper_cpp, compare.parse_varve):
            with self.assertRaisesRegex(compare.CompareError, "no times.*\n.*no such model"):
                parse("no such model\n")

    def test_texts_are_the_words_alone(self):
        self.assertEqual(compare.text_of(WHISPER_CPP, False), "And so my fellow Americans, ask not.")
        self.assertEqual(compare.text_of(VARVE, True), "And so my fellow Americans, ask not.")


class Programs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def stand_in(self, name, output, status=0):
        path = self.folder / name
        path.write_text(f"#!/bin/sh\ncat <<'END'\n{output}END\nexit {status}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    def compare(self, cli, varve, *more):
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            status = compare.main(["--cli", cli, "--varve", varve, "-m", "ggml-tiny.en.bin", "speech.wav", *more])
        return status, out.getvalue(), errors.getvalue()

    def test_a_row_per_width_and_kind(self):
        target = self.folder / "out.json"
        status, out, _ = self.compare(self.stand_in("cli", WHISPER_CPP), self.stand_in("varve", VARVE), "--json",
                                      str(target))
        self.assertEqual(status, 0)
        rows = json.loads(target.read_text())["rows"]
        self.assertEqual([(row["beams"], row["time"]) for row in rows],
                         [(beams, kind) for beams in (1, 5) for kind in ("whole", "encode", "decode")])
        self.assertAlmostEqual(rows[1]["ratio"], 1.0 / 0.32)
        self.assertIn("3.12", out)
        self.assertNotIn("differ", out)

    def test_texts_that_differ_are_printed(self):
        other = self.stand_in("varve", VARVE.replace("ask", "asked"))
        _, out, _ = self.compare(self.stand_in("cli", WHISPER_CPP), other, "--rounds", "1")
        self.assertIn("the texts differ", out)
        self.assertIn("asked not", out)

    def test_a_program_that_fails_is_named(self):
        status, _, errors = self.compare(self.stand_in("cli", "bad magic\n", 3), self.stand_in("varve", VARVE))
        self.assertEqual(status, 1)
        self.assertIn("ended with status 3", errors)
        self.assertIn("bad magic", errors)


if __name__ == "__main__":
    unittest.main()
