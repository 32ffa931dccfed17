#!/usr/bin/env python3
"""A cap that is reached keeps what was done; side by side it shows what fits and what does not.

    caps_test.py PROGRAM
"""

import re
import unittest

from program_testing import PROMPT, ProgramTest

KV = ("--no-probe", "--temp", "0")


class Caps(ProgramTest):
    def test_a_text_that_reaches_the_cap_is_saved_and_goes_on(self):
        whole = self.run_program("run", "-p", PROMPT, "--tokens", "120", *KV)
        self.assertEqual(whole.returncode, 0, whole.stderr)
        capped = self.expect(4, "--max-bytes", "run", "-p", PROMPT, "--tokens", "120", *KV, "--max-bytes", "2700KiB",
                             "--save", "half.varve", "--json", "half.json")
        self.assertRegex(capped.stderr, r"--max-bytes 2764800: no room for more; \d+ tokens are done \(prompt \d+, generated \d+\)")
        self.assertRegex(capped.stderr, r"prompt \d+ tokens, .* generated \d+ tokens")  # the closing line
        row = self.json_rows("half.json")[0]
        self.assertEqual(row["stop"], "failed")
        self.assertGreater(row["tokens"], 0)
        self.assertLessEqual(row["cache_bytes"], 2764800 + (64 << 10))  # tables
        # The rest of the text comes out as if nothing had happened.
        rest = self.run_program("run", "--load", "half.varve", "-p", "", "--tokens", str(120 - row["tokens"]), *KV)
        self.assertEqual(rest.returncode, 0, rest.stderr)
        self.assertEqual(capped.stdout.rstrip("\n") + rest.stdout.rstrip("\n"), whole.stdout.rstrip("\n"))

    def test_a_prompt_that_reaches_the_cap_is_saved_and_goes_on(self):
        capped = self.expect(4, "generated 0)", "run", "-p", PROMPT, "--tokens", "8", *KV, "--max-bytes", "1500KiB",
                             "--save", "half.varve")
        done = int(re.search(r"; (\d+) tokens are done", capped.stderr)[1])
        self.assertGreater(done, 0)
        self.assertIn(f"saved {done} tokens", capped.stderr)
        whole = self.run_program("run", "-p", PROMPT, "--tokens", "8", *KV)
        rest = self.run_program("run", "--load", "half.varve", "-p", "", "--tokens", "8", *KV)
        self.assertEqual(rest.stdout, whole.stdout)

    def test_side_by_side_the_cap_is_of_the_compressed_caches(self):
        done = self.run_program("run", "-p", PROMPT, "--tokens", "40", *KV, "--kv", "f16", "t4", "--max-bytes", "2300KiB",
                                "--json", "rows.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        f16, t4 = self.json_rows("rows.json")
        self.assertFalse(f16["fits"])
        self.assertTrue(t4["fits"])
        self.assertEqual(t4["tokens"], 40)
        self.assertIn("> --max-bytes 2.25 MiB: it does not fit", done.stdout)

    def test_a_plan_that_does_not_fit_does_not_take_the_others_along(self):
        done = self.expect(4, 'varve: --kv "q8_0", --max-bytes 1945600', "run", "-p", PROMPT, "--tokens", "16", *KV,
                           "--kv", "q8_0", "t2", "--max-bytes", "1900KiB", "--json", "rows.json")
        self.assertEqual([row["plan"] for row in self.json_rows("rows.json")], ["f16", "t2"])
        self.assertIn("--- t2 ---", done.stdout)


if __name__ == "__main__":
    unittest.main()
