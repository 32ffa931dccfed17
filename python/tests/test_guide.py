"""Code blocks of docs/python.md, and the examples."""

import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = re.findall(r"^```python( \w+)?\n(.*?)^```", (ROOT / "docs/python.md").read_text(), re.M | re.S)
NEEDS_MODEL = next(i for i, (mark, _) in enumerate(BLOCKS) if mark)


def run_blocks(blocks, names):
    for _, text in blocks:
        exec(compile(text, "docs/python.md", "exec"), names)


def test_blocks_about_caches_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert NEEDS_MODEL == 2
    run_blocks(BLOCKS[:NEEDS_MODEL], {})


def test_blocks_about_models_run(tmp_path, monkeypatch):
    """On a small random model, in place of the block that loads one."""
    torch = pytest.importorskip("torch", reason="torch is not installed: ./dev check python runs these tests")
    pytest.importorskip("transformers", reason="transformers is not installed: ./dev check python has it")
    from test_transformers import make_model
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(120)}, unk_token="w1"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, model_input_names=["input_ids", "attention_mask"])
    monkeypatch.chdir(tmp_path)
    loading = "".join(line + "\n" for line in BLOCKS[NEEDS_MODEL][1].splitlines() if "import" in line)
    names = dict(model=make_model(), tokenizer=tokenizer, torch=torch)
    run_blocks([("", loading)] + BLOCKS[NEEDS_MODEL + 1 :], names)


@pytest.mark.parametrize("name", sorted(p.stem for p in (ROOT / "examples/python").glob("*.py") if p.stem != "small_model"))
def test_examples_run(name, monkeypatch, capsys):
    pytest.importorskip("torch", reason="torch is not installed: ./dev check python runs these tests")
    pytest.importorskip("transformers", reason="transformers is not installed: ./dev check python has it")
    monkeypatch.setattr(sys, "argv", [f"{name}.py"])
    monkeypatch.syspath_prepend(str(ROOT / "examples/python"))
    runpy.run_path(str(ROOT / "examples/python" / f"{name}.py"), run_name="__main__")
    assert capsys.readouterr().out
