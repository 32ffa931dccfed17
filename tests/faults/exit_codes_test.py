#!/usr/bin/env python3
"""One exit code per kind of fault, pins of files, messages that can be read.

    exit_codes_test.py PROGRAM
"""

import os
import re
import shutil
import unittest

from program_testing import TREE, ProgramTest

FOLD = os.path.join(TREE, "models", "varve-books-29m-fold4.bin")
MODEL = os.path.join(TREE, "models", "varve-books-29m.gguf")
QUICK = ("run", "-p", "The old house", "--tokens", "2", "--no-probe")


class ExitCodes(ProgramTest):
    def test_each_kind_has_its_own(self):
        self.expect(0, "", *QUICK)
        self.expect(2, "unknown rung", *QUICK, "--kv", "q5_0")
        self.expect(2, "--tokens", "run", "--tokens", "many")
        self.expect(3, "none.gguf", "inspect", "none.gguf")
        self.expect(3, "none.txt", "run", "-f", "none.txt")
        self.expect(4, "--max-bytes", *QUICK, "--max-bytes", "64KiB")
        with open(self.file("bad.varve"), "wb") as file:
            done = self.run_program(*QUICK, "--save", "good.varve")
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(self.file("good.varve"), "rb") as good:
                content = bytearray(good.read())
            content[len(content) // 2] ^= 1
            file.write(content)
        self.expect(5, "bad.varve", "inspect", "bad.varve")
        self.expect(6, "no/such/folder", *QUICK, "--json", "no/such/folder/out.json")

    def test_help_lists_them(self):
        text = self.run_program("--help").stdout
        for line in ("  0       done", "  4       no memory", "  6       the system refused", "  128 + N"):
            self.assertIn(line, text)


class Messages(ProgramTest):
    def test_unknown_options_are_listed_in_order_and_by_name(self):
        text = self.expect(2, "", "run", "--zebra", "-p", "x", "--apple=3", "--temp", "0", "left").stderr
        self.assertLess(text.index("--zebra"), text.index("--apple"))
        self.assertLess(text.index("--apple"), text.index('"left"'))

    def test_no_limit_has_more_digits_than_a_person_reads(self):
        for arguments in (("run", "--seed", "-1"), ("run", "--tokens", "-9"), ("run", "--threads", "0"),
                          ("bench", "decode", "--min-ms", "-3"), ("eval", "recall", "--seed", "-1")):
            text = self.run_program(*arguments).stderr
            self.assertIsNone(re.search(r"[0-9.]{25}", text), text)
        for command in ("run", "eval", "bench decode", "eval recall", "bench weights", "bench pq"):
            text = self.run_program(*command.split(), "--help").stdout
            self.assertIsNone(re.search(r"[0-9.]{25}", text), command)
        self.expect(2, '"-1" is below 0', "run", "--seed", "-1")


class Pins(ProgramTest):
    def hash_of(self, path):
        text = self.run_program("inspect", path).stdout
        return re.search(r"^hash +(xxh3:[0-9a-f]{16})$", text, re.MULTILINE)[1]

    def test_a_compressor_is_what_was_pinned_or_refused(self):
        pin = self.hash_of(FOLD)
        self.expect(0, "", *QUICK, "--kv", f"fold={FOLD}#{pin}")
        self.expect(0, "", *QUICK, "--kv", f"fold=shipped#{pin}")
        other = "xxh3:0123456789abcdef"
        text = self.expect(5, other, *QUICK, "--kv", f"fold={FOLD}#{other}").stderr
        self.assertIn(pin, text)
        self.assertIn(FOLD, text)
        self.expect(2, "xxh3:12", *QUICK, "--kv", f"fold={FOLD}#xxh3:12")

    def test_a_model_is_what_was_pinned_or_refused(self):
        pin = self.hash_of(MODEL)
        for model in ((), ("-m", MODEL)):  # the embedded one is that file
            self.expect(0, "", *QUICK, *model, "--expect-hash", pin)
            text = self.expect(5, "xxh3:00000000000000ff", *QUICK, *model, "--expect-hash",
                               "xxh3:00000000000000ff").stderr
            self.assertIn(pin, text)
        self.expect(0, "", *QUICK, "-m", f"{MODEL}#{pin}")
        self.expect(2, "--expect-hash", *QUICK, "--expect-hash", "md5")
        # One byte of a weight, which nothing else would notice.
        changed = self.file("changed.gguf")
        shutil.copy(MODEL, changed)
        with open(changed, "r+b") as file:
            file.seek(-100, os.SEEK_END)
            byte = file.read(1)[0]
            file.seek(-100, os.SEEK_END)
            file.write(bytes([byte ^ 1]))
        self.expect(5, pin, *QUICK, "-m", changed, "--expect-hash", pin)

    def test_a_network_that_is_not_finite_is_refused(self):
        with open(FOLD, "rb") as file:
            content = bytearray(file.read())
        content[-2:] = b"\x00\x7c"  # the last number, f16: infinity
        with open(self.file("inf.bin"), "wb") as file:
            file.write(content)
        self.expect(5, "finite", *QUICK, "--kv", f"fold={self.file('inf.bin')}")


if __name__ == "__main__":
    unittest.main()
