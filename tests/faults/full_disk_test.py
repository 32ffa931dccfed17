#!/usr/bin/env python3
"""Disks that are full: an output file is there whole or as it was, and the error says why.

    full_disk_test.py PROGRAM

On a tmpfs of a few KiB where this user may mount one, and with a limit on the size of files everywhere.
"""

import os
import resource
import signal
import subprocess
import unittest

from program_testing import PROMPT, TREE, ProgramTest

FOLD = os.path.join(TREE, "models", "varve-books-29m-fold4.bin")
TEXT = os.path.join(TREE, "models", "eval.txt")
OLD = b"what was there before"
RUN = ("run", "-p", PROMPT, "--tokens", "24", "--no-probe")

# The option or argument that names the file comes last.
OUTPUTS = {
    "run --json": (*RUN, "--json"),
    "run --report": (*RUN, "--kv", "q8_0", "--report"),
    "run --trace": (*RUN, "--kv", "evict=h2o,sink=16,recent=32,trigger=64,page=16", "--trace"),
    "run --save": (*RUN, "--save"),
    "eval --json": ("eval", "kl", "--ctx", "256", "--windows", "1", "--kv", "q8_0", "--json"),
    "plan --json": ("plan", "q8_0", "--json"),
    "inspect --json": ("inspect", "--json"),
    "models --json": ("models", "--json"),
    "codebook": ("codebook", "train", "-f", TEXT, "--tokens", "512", "-M", "16", "--nbits", "4", "--iterations", "2", "-o"),
    "fold baseline": ("fold", "baseline", FOLD),
}


def small_files():
    """Writes beyond 200 bytes fail with EFBIG instead of a signal."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))


class FullDisk(ProgramTest):
    def expect_untouched(self, name, done, path, reason):
        self.assertEqual(done.returncode, 6, f"{name}: {done.stderr}")
        self.assertIn(reason, done.stderr, name)
        self.assertIn(os.path.basename(path), done.stderr, name)
        with open(path, "rb") as file:
            self.assertEqual(file.read(), OLD, name)
        left = [other for other in os.listdir(os.path.dirname(path)) if ".tmp-" in other]
        self.assertEqual(left, [], name)

    def mount(self, size):
        """A small disk; the test is skipped where this user may not have one."""
        disk = self.file("disk")
        os.mkdir(disk)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk], check=False,
                                 capture_output=True)
        if mounted.returncode != 0:
            self.skipTest("this user may not mount a tmpfs")
        self.addCleanup(subprocess.run, ["umount", disk], check=True)
        return disk

    def write_old(self, path):
        with open(path, "wb") as file:
            file.write(OLD)

    def test_a_file_that_may_not_grow_stays_as_it_was(self):
        for name, arguments in OUTPUTS.items():
            with self.subTest(name):
                path = self.file("out.html" if "report" in name else "out")
                self.write_old(path)
                done = self.run_program(*arguments, path, preexec_fn=small_files)
                self.expect_untouched(name, done, path, "File too large")

    def test_a_disk_without_room_leaves_what_was_there(self):
        disk = self.mount("8k")
        for name, arguments in OUTPUTS.items():
            with self.subTest(name):
                path = os.path.join(disk, "out.html" if "report" in name else "out")
                self.write_old(path)
                with open(os.path.join(disk, "fill"), "wb") as fill:
                    fill.write(bytes(4096))  # the other of its two pages
                done = self.run_program(*arguments, path)
                self.expect_untouched(name, done, path, "No space left on device")
                os.remove(path)

    def test_folders_of_files_say_which_one(self):
        disk = self.mount("64k")
        self.expect(6, "No space left on device", "dump", "--ctx", "256", "-o", os.path.join(disk, "rows"))
        self.expect(6, "No space left on device", "codebook", "sample", "-f", TEXT, "--tokens",
                    "256", "-o", os.path.join(disk, "samples"))
        for _, _, names in os.walk(disk):
            self.assertFalse([name for name in names if ".tmp-" in name])

    def test_stdout_that_is_full_is_an_error(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([*self.command(), "plan", "q8_0"], check=False, stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 6)
        self.assertIn("No space left on device", done.stderr)
        self.expect(6, "No space left on device", "plan", "q8_0", "--json", "/dev/full")

    def test_a_spill_file_uses_the_room_that_there_is(self):
        disk = self.mount("600k")
        plan = f"bf16,open_rung=bf16,pack=store,hot=16/64,bootstrap=32,step=64,spill={disk}/spill"
        plain = self.run_program("run", "-p", PROMPT * 3, "--tokens", "24", "--temp", "0", "--kv", "bf16,open_rung=bf16")
        done = self.run_program("run", "-p", PROMPT * 3, "--tokens", "24", "--temp", "0", "--kv", plan, "--json", "row.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, plain.stdout)
        row = self.json_rows("row.json")[0]
        self.assertGreater(row["spill_refused"], 0)  # not all of it fits,
        self.assertGreater(row["bytes_spilled"], 400 << 10)  # but most of the room is used


if __name__ == "__main__":
    unittest.main()
