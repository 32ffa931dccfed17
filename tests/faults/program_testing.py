"""What the tests of the program share: it runs in a folder of its own, with the embedded model."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(1))
TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROMPT = "The old house stood at the end of the road, and nobody had lived in it for years. " * 12


class ProgramTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def file(self, name):
        return os.path.join(self.folder, name)

    def command(self):
        return [PROGRAM]

    def json_rows(self, name):
        with open(self.file(name), encoding="utf-8") as file:
            return json.load(file)["rows"]

    def run_program(self, *arguments, **options):
        options.setdefault("timeout", 100)
        return subprocess.run([PROGRAM, *arguments], check=False, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, cwd=self.folder, **options)

    def expect(self, code, message, *arguments, **options):
        """Runs the program: it must exit with the code and say the message."""
        done = self.run_program(*arguments, **options)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(message, done.stderr)
        return done
