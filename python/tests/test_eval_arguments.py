"""What `python -m varve.eval` refuses, and when."""

import json
import sys

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: ./dev check python runs these tests")
pytest.importorskip("transformers", reason="transformers is not installed: ./dev check python has it")

from test_eval import model_folder  # noqa: E402, F401
from test_transformers import POLICY  # noqa: E402

from varve.eval.__main__ import main  # noqa: E402

RUN = dict(ctx=256, windows=1, text=7, halves=False, questions=0, rows=[dict(plan="DynamicCache", perplexity=10.0)])


@pytest.fixture
def refused(model_folder, capsys):  # noqa: F811
    """What is printed for arguments that end the program."""

    def run(*arguments, file="text.txt"):
        assert main([str(model_folder), "-f", str(model_folder / file), "--threads", "1", "--ctx", "256", *map(str, arguments)]) == 1
        return capsys.readouterr().err

    return run


@pytest.fixture
def refused_at_once(refused, monkeypatch):
    """Before the model is loaded."""
    monkeypatch.setattr("varve.eval.__main__.load_model", lambda *arguments: pytest.fail("the model was loaded"))
    return refused


@pytest.mark.parametrize("arguments, message", [
    (["--ctx", 0], "--ctx 0: must be at least 2"), (["--ctx", 1], "--ctx 1: must be at least 2"),
    (["--ctx", -5], "--ctx -5: must be at least 2"), (["--windows", -1], "--windows -1: must be at least 0"),
    (["--decode", -2], "--decode -2: must be at least 0"), (["--decode-ctx", -2], "--decode-ctx -2: must be at least 0"),
    (["--threads", -4], "--threads -4: must be at least 0"), (["--recall", -3], "--recall -3: must be at least 0"),
])
def test_numbers_below_their_limit(refused_at_once, arguments, message):
    assert refused_at_once(*arguments) == f"varve.eval: {message}\n"


def test_numbers_that_the_text_or_the_plan_cannot_honour(refused):
    assert "--decode-ctx 1001: the text has 1000 tokens" in refused("--decode", 2, "--decode-ctx", 1001)
    assert "the text has 1000 tokens, a window needs 2000 (--ctx 2000)" in refused("--ctx", 2000)
    assert "--ctx 2: a window needs at least 3 tokens where its first half is a prompt" in refused("--kv", POLICY, "--ctx", 2)
    assert "--ctx 20: a text with 1 facts has room for" in refused("--recall", 1, "--ctx", 20)


def test_the_shortest_windows_are_evaluated(model_folder, capsys):  # noqa: F811
    for arguments in (["--ctx", "2", "--kv", "q8_0"], ["--ctx", "3", "--kv", POLICY]):
        assert main([str(model_folder), "-f", str(model_folder / "text.txt"), "--windows", "3", "--threads", "1", *arguments]) == 0
        assert "DynamicCache" in capsys.readouterr().out


@pytest.mark.parametrize("arguments, message", [
    (["--kv", "q9_0"], 'unknown rung "q9_0"'),
    (["--quantized", "quanto:x"], "--quantized quanto:x: bits must be a number, as in quanto:4"),
    (["--quantized", "nothing:4"], "--quantized nothing:4: Unknown quantization backend"),
    (["--press", "snapkv"], "--press snapkv: the share that goes must be in 0 … 1, as in snapkv:0.5"),
    (["--press", "snapkv:1"], "--press snapkv:1: the share that goes must be in 0 … 1"),
])
def test_rows_that_are_none(refused, arguments, message):
    assert message in refused(*arguments)


def test_files_to_merge(refused_at_once, tmp_path):
    path = tmp_path / "runs.json"
    for content, message in (
        (b"[1, 2]", "holds list, not an object; write it with python -m varve.eval --json"),
        (b"7", "holds int, not an object"),
        (b'{"ctx": 1', "is no JSON: Expecting"),
        (b"\xff\xfe", "is no UTF-8 text: byte 0 is 0xff"),
        (b"{}", "ctx is missing; write it with"),
        (json.dumps(RUN | dict(rows=[])).encode(), "rows are not those of a table whose first row is DynamicCache"),
        (json.dumps(RUN | dict(rows=[1])).encode(), "rows are not those of a table"),
        (json.dumps(RUN | dict(rows=[dict(plan="DynamicCache")])).encode(), "rows are not those of a table"),
    ):
        path.write_bytes(content)
        assert f"varve.eval: {path}: {message}" in refused_at_once("--merge", path)
    assert "No such file" in refused_at_once("--merge", tmp_path / "nothing.json")


def test_texts_that_are_none(refused, model_folder):  # noqa: F811
    (model_folder / "bytes.txt").write_bytes(b"ab\xff")
    assert "bytes.txt: is no UTF-8 text: byte 2 is 0xff" in refused(file="bytes.txt")
    (model_folder / "ids.json").write_text("[1, ")
    assert "ids.json: is no JSON: Expecting value" in refused("--ids", file="ids.json")


def test_places_to_write_to(refused_at_once, monkeypatch, tmp_path):
    missing = tmp_path / "missing"
    assert f"--json {missing}/rows.json: there is no folder {missing}" in refused_at_once("--json", missing / "rows.json")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert f"--chart {missing}/x.png: there is no folder {missing}" in refused_at_once("--chart", missing / "x.png")
    assert "x.png: needs the package matplotlib; pip install matplotlib" in refused_at_once("--chart", tmp_path / "x.png")


def test_a_gguf_file_without_its_package(model_folder, capsys, monkeypatch):  # noqa: F811
    monkeypatch.setitem(sys.modules, "gguf", None)
    path = model_folder / "model.gguf"
    path.write_bytes(b"GGUF")
    assert main([str(path), "-f", str(model_folder / "text.txt")]) == 1
    assert capsys.readouterr().err == f"varve.eval: {path}: reading it needs the package gguf; pip install gguf\n"
