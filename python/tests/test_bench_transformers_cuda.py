"""What tools/bench_transformers_cuda.py compares, without a GPU."""

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: ./dev check python runs these tests")
pytest.importorskip("transformers", reason="transformers is not installed: ./dev check python has it")


@pytest.fixture
def bench(monkeypatch):
    path = Path(__file__).parents[2] / "tools" / "bench_transformers_cuda.py"
    spec = importlib.util.spec_from_file_location("bench_transformers_cuda", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # where dataclasses look for their types
    spec.loader.exec_module(module)
    return module


def test_logits_are_compared_behind_one_token(bench, monkeypatch):
    """Prompts of lossy caches may end in another token; logits behind it would say nothing about the cache."""
    asked = []

    class Model:
        def set_attn_implementation(self, name):
            pass

        def __call__(self, token, past_key_values):
            asked.append((past_key_values, token.item()))
            return SimpleNamespace(logits=torch.nn.functional.one_hot(token, 10).float())

    def read_prompt(model, lane, prompt, chunk):
        lane.cache, lane.token = lane.name, torch.tensor([[int(lane.name)]])
        lane.row["prefill_s"] = 0.0

    monkeypatch.setattr(bench, "read_prompt", read_prompt)
    lanes = [bench.Lane(name, "sdpa", None) for name in ("3", "5", "4")]
    bench.read_prompts(Model(), lanes, torch.zeros(1, 8), 8)
    assert asked == [("3", 3), ("5", 3), ("4", 3)]
    assert [lane.row["logit_error"] for lane in lanes] == [0, 0, 0]
