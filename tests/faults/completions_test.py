#!/usr/bin/env python3
"""Completions and the manual page: made of the definitions of options, and usable.

    completions_test.py PROGRAM
"""

import shutil
import subprocess
import unittest

from program_testing import ProgramTest


class Completions(ProgramTest):
    def complete(self, *words):
        """What bash offers for the last word."""
        script = self.file("varve.bash")
        with open(script, "w", encoding="utf-8") as file:
            file.write(self.run_program("completions", "bash").stdout)
        code = f"source {script}; COMP_WORDS=(varve \"$@\"); COMP_CWORD=$#; _varve; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        done = subprocess.run(["bash", "-c", code, "bash", *words], check=True, capture_output=True, text=True)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_bash_offers_commands_options_and_values(self):
        self.assertIn("run", self.complete(""))
        self.assertIn("transcribe", self.complete("tr"))
        self.assertEqual(self.complete("bench", "dec"), ["decode"])
        self.assertEqual(self.complete("run", "--max-b"), ["--max-bytes"])
        self.assertEqual(sorted(self.complete("run", "--device", "")), ["cpu", "cuda"])
        self.assertIn("q8_0", self.complete("run", "--tokens", "3", "--kv", "q8"))
        self.assertEqual(self.complete("run", "--file", ""), [])  # files are the shell's
        self.assertEqual(self.complete("completions", "z"), [])  # an argument, not an option

    def test_every_option_of_the_help_is_offered(self):
        for command in ("run", "inspect", "bench decode", "codebook train"):
            offered = self.complete(*command.split(), "-")
            for line in self.run_program(*command.split(), "--help").stdout.splitlines():
                if line.startswith("  -"):
                    for name in line.split()[0].split(","):
                        self.assertIn(name.split("{")[0], offered, command)

    def test_the_other_shells_take_their_scripts(self):
        for shell, check in (("zsh", ["zsh", "-n"]), ("fish", ["fish", "-n"]), ("bash", ["bash", "-n"])):
            text = self.run_program("completions", shell).stdout
            self.assertIn("--max-bytes" if shell != "fish" else "-l max-bytes", text)
            path = self.file(shell)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            if shutil.which(check[0]):
                subprocess.run([*check, path], check=True)
        self.expect(2, "tcsh", "completions", "tcsh")

    def test_the_manual_page_is_one(self):
        page = self.run_program("manual").stdout
        self.assertTrue(page.startswith(".TH VARVE 1"))
        for part in (".SH NAME", ".SS varve run", ".SH EXIT STATUS", "\\-\\-max\\-bytes"):
            self.assertIn(part, page)
        with open(self.file("varve.1"), "w", encoding="utf-8") as file:
            file.write(page)
        if shutil.which("groff"):
            done = subprocess.run(["groff", "-Kutf8", "-man", "-Tutf8", "-ww", "-z", self.file("varve.1")], check=True,
                                  capture_output=True, text=True)
            self.assertEqual(done.stderr, "")


if __name__ == "__main__":
    unittest.main()
