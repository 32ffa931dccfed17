#!/usr/bin/env python3
"""Signals at the program itself: what there is so far is saved and written, and the exit code tells.

    signals_test.py PROGRAM
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(1))


class Signals(unittest.TestCase):
    def interrupt(self, name, arguments, folder, ready):
        """Runs the program, sends the signal once `ready` says so, returns its exit code."""
        with open(os.path.join(folder, "out"), "wb") as out:
            process = subprocess.Popen([PROGRAM, *arguments], stdout=out, stderr=subprocess.DEVNULL,
                                       stdin=subprocess.DEVNULL)
            try:
                while not ready():
                    self.assertIsNone(process.poll(), "ended before the signal")
                    time.sleep(0.01)
                process.send_signal(name)
                return process.wait(timeout=60)
            finally:
                process.kill()
                process.wait()

    def has_text(self, folder):
        path = os.path.join(folder, "out")
        return lambda: os.path.exists(path) and os.path.getsize(path) > 40

    def test_a_run_saves_what_it_has(self):
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                saved, row = os.path.join(folder, "saved.varve"), os.path.join(folder, "row.json")
                code = self.interrupt(
                    name, ["run", "-p", "The old house stood", "--tokens", "3500", "--save", saved,
                           "--json", row], folder, self.has_text(folder))
                self.assertEqual(code, 128 + name)
                subprocess.run([PROGRAM, "inspect", saved], check=True, stdout=subprocess.DEVNULL)
                again = subprocess.run([PROGRAM, "run", "--load", saved, "-p", " and", "--tokens", "2"], check=True,
                                       capture_output=True)
                self.assertTrue(again.stdout)
                with open(row, encoding="utf-8") as file:
                    self.assertEqual(len(json.load(file)["rows"]), 1)

    def test_work_that_is_done_exits_with_0(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([PROGRAM, "run", "-p", "The old house", "--tokens", "2"], cwd=folder, check=False,
                                  capture_output=True)
            self.assertEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main()
