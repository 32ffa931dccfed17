"""Tests of compare_llama_cpp.py on recorded output, and end to end with stand-ins for the programs."""

import contextlib
import io
import json
import stat
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
import compare_llama_cpp as compare  # noqa: E402

BENCH_ROW = """  {
    "build_commit": "b21e4de7", "build_number": 8400, "cpu_info": "Intel(R) Xeon(R)", "gpu_info": "", "backends": "CPU",
    "model_filename": "model.gguf", "model_type": "llama 135M Q4_1", "model_size": 96601472, "n_threads": 2,
    "type_k": "f16", "type_v": "f16", "flash_attn": true, "n_prompt": 0, "n_gen": %d, "n_depth": %d,
    "test_time": "2026-11-16T03:00:00Z", "avg_ns": 367000000, "stddev_ns": 0, "avg_ts": %f, "stddev_ts": 0.000000,
    "samples_ns": [ 367000000 ], "samples_ts": [ %f ]
  }"""
BENCH_OUTPUT = ("warning: asserts enabled, performance may be affected [build]\n"
                "[\n" + BENCH_ROW % (32, 0, 87.25, 87.25) + ",\n" + BENCH_ROW % (32, 4096, 41.5, 41.5) + "\n]\n"
                "llama_memory: done {cleanly}\n")

DIVERGENCE_OUTPUT = """kl_divergence: computing over 4 chunks, n_ctx=512, batch_size=512, n_seq=1
kl_divergence: 1.94 seconds per pass - ETA 0.12 minutes

chunk             PPL               ln(PPL(Q)/PPL(base))          KL Divergence              Δp RMS            Same top p
   1      27.4418 ±    5.2222       0.00431 ±    0.00521       0.00395 ±    0.00041     1.612 ±  0.108 %    95.686 ±  1.275 %

====== Perplexity statistics ======
Mean PPL(Q)                   :  31.012345 ±   1.802000
Mean PPL(base)                :  30.910000 ±   1.795000
Cor(ln(PPL(Q)), ln(PPL(base))):  99.97%
Mean ln(PPL(Q)/PPL(base))     :   0.003305 ±   0.002400

====== KL divergence statistics ======
Mean    KLD:   0.003800 ±   0.000120
Maximum KLD:   0.101000
99.9%   KLD:   0.070000
99.0%   KLD:   0.021000
95.0%   KLD:   0.011000
Median  KLD:   0.002500

====== Token probability statistics ======
Mean    Δp: -0.012 ± 0.030 %
RMS Δp    :  1.500 ± 0.060 %
Same top p: 95.900 ± 0.620 %
"""


class Parsing(unittest.TestCase):
    def test_rows_are_found_among_other_lines(self):
        rows = compare.parse_bench(BENCH_OUTPUT)
        self.assertEqual([(row["n_depth"], row["avg_ts"]) for row in rows], [(0, 87.25), (4096, 41.5)])

    def test_lines_of_json_are_rows_too(self):
        line = json.dumps(json.loads(BENCH_ROW % (32, 7, 5.0, 5.0)))
        self.assertEqual(len(compare.parse_bench(f"{line}\n{line}\n")), 2)

    def test_no_results_are_an_error_with_the_last_lines(self):
        with self.assertRaisesRegex(compare.CompareError, "unable to load model"):
            compare.parse_bench("main: error: unable to load model [x]\n")

    def test_figures_of_the_divergence(self):
        figures = compare.parse_divergence(DIVERGENCE_OUTPUT)
        self.assertAlmostEqual(figures.pop("top1"), 0.959)
        self.assertEqual(figures, {"kl_mean": 0.0038, "kl_p99": 0.021, "ppl": 31.012345, "ppl_f16": 30.91})

    def test_a_ruined_model_has_figures_that_are_no_numbers(self):
        figures = compare.parse_divergence(DIVERGENCE_OUTPUT.replace("0.003800 ±   0.000120", "nan ±        nan"))
        self.assertNotEqual(figures["kl_mean"], figures["kl_mean"])

    def test_output_without_the_statistics_is_an_error(self):
        with self.assertRaisesRegex(compare.CompareError, "no kl_mean"):
            compare.parse_divergence("failed to open base.kld\n")

    def test_flash_attention_is_spelled_as_the_build_wants_it(self):
        new = "-fa,   --flash-attn [on|off|auto]       set Flash Attention use"
        self.assertEqual(compare.flash_attention(new, False), ["-fa", "on"])
        self.assertEqual(compare.flash_attention("  -fa, --flash-attn <on|off|auto>   (default: off)", True), ["-fa", "on"])
        old = "-fa,   --flash-attn                     enable Flash Attention"
        self.assertEqual(compare.flash_attention(old, False), ["-fa"])
        self.assertEqual(compare.flash_attention("  -fa, --flash-attn <0|1>", True), ["-fa", "1"])


class Pairing(unittest.TestCase):
    def test_a_plan_stands_beside_the_type_that_stores_the_same(self):
        self.assertEqual(compare.counterpart("q8_0"), ("q8_0", "q8_0"))
        self.assertEqual(compare.counterpart("k=q8_0,v=q4_0"), ("q8_0", "q4_0"))
        self.assertIsNone(compare.counterpart("q4_0r"))
        self.assertIsNone(compare.counterpart("q4_0,open=128"))
        self.assertEqual(compare.cache_types(["q4_0r", "q8_0", "f16", "k=q8_0,v=q4_0", "q8_0"]),
                         [("f16", "f16"), ("q8_0", "q8_0"), ("q8_0", "q4_0")])

    def test_what_llama_cpp_has_nothing_for_stands_beside_f16(self):
        theirs = {("decode", "f16", 0): 50.0, ("prompt", "f16", 0): 100.0}
        ours = {("decode", "f16", 0): 75.0, ("decode", "q4_0r", 0): 100.0, ("prompt", "f16", 0): 150.0}
        rows = compare.speed_rows(theirs, ours, ["q4_0r"], [0])
        self.assertEqual([(row["plan"], row["llama_cpp_type"], row["ratio"]) for row in rows],
                         [("f16", "f16", 1.5), ("f16", "f16", 1.5), ("q4_0r", "f16", 2.0)])


VARVE = r"""
import json, sys
arguments = sys.argv[1:]
if arguments[0] == "bench":
    rows = [{"role": role, "plan": plan, "depth": 0, "tokens_per_s": speed} for role, plan, speed in
            (("baseline", "f16", 90.0), ("noise", "f16", 1.0), ("candidate", "q8_0", 95.0))]
elif arguments[0] == "eval":
    assert "--prompt-half" in arguments
    rows = [{"plan": plan, "kl_mean": kl, "kl_p99": kl, "top1": 1.0, "ppl": 31.0, "ratio": 1.0} for plan, kl in
            (("f16", 0.0), ("q8_0", 9.3e-5))]
elif arguments[0] == "run":
    rows = [{"prompt_tokens_per_s": 400.0}]
else:
    rows = [{"name": "small", "path": __file__}]
json.dump({"rows": rows}, open(arguments[arguments.index("--json") + 1], "w"))
"""
LLAMA_BENCH = r"""
import json, sys
if "--help" in sys.argv:
    print("  -fa, --flash-attn <on|off|auto>")
    sys.exit(0)
assert sys.argv[sys.argv.index("-fa") + 1] == "on"
value = lambda name: int(sys.argv[sys.argv.index(name) + 1])
print("loading"), print(json.dumps([{"n_gen": value("-n"), "n_prompt": value("-p"), "n_depth": 0,
                                     "avg_ts": 100.0 if value("-p") else 60.0}]))
"""


class WholeRun(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.varve = self.program("varve", VARVE)
        self.bench = self.program("llama-bench", LLAMA_BENCH)
        self.perplexity = self.program("llama-perplexity", f"print({DIVERGENCE_OUTPUT!r})")

    def program(self, name: str, source: str) -> str:
        path = self.folder / name
        path.write_text(f"#!{sys.executable}\n{source}")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    def run_main(self, *arguments):
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            status = compare.main(["-m", "small", "--varve", self.varve, "--kv", "q8_0", "--depths", "0", "--rounds", "2",
                                   *arguments])
        return status, out.getvalue(), err.getvalue()

    def test_both_tables_and_the_json(self):
        target = self.folder / "out.json"
        status, out, err = self.run_main("--bench", self.bench, "--perplexity", self.perplexity, "--json", str(target))
        self.assertEqual(status, 0, err)
        self.assertRegex(out, r"prompt of 512 +f16 +400\.0 +100\.0 +f16 +4\.00")
        self.assertRegex(out, r"decode at 0 +f16 +90\.0 +60\.0 +f16 +1\.50")
        self.assertRegex(out, r"decode at 0 +q8_0 +95\.0 +60\.0 +q8_0 +1\.58")
        self.assertRegex(out, r"llama\.cpp +q8_0 +3\.80e-03 +2\.10e-02 +95\.90 % +31\.012")
        self.assertRegex(out, r"varve +q8_0 +9\.30e-05")
        result = json.loads(target.read_text())
        self.assertEqual((len(result["speed"]), len(result["loss"])), (3, 4))

    def test_a_program_that_fails_is_named(self):
        broken = self.program("broken", "import sys; sys.exit('cannot open model')")
        status, _, err = self.run_main("--bench", broken)
        self.assertEqual(status, 1)
        self.assertIn("cannot open model", err)
        status, _, err = self.run_main("--bench", "/nowhere/llama-bench")
        self.assertIn("/nowhere/llama-bench: No such file", err)

    def test_an_unknown_model_is_refused(self):
        status, _, err = self.run_main("--bench", self.bench, "-m", "large")
        self.assertEqual(status, 1)
        self.assertIn("-m large: no such file", err)


if __name__ == "__main__":
    unittest.main()
