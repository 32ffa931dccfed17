"""Presses as rows of python -m varve.eval: with a press made here, and with kvpress itself where it is installed."""

import importlib.util
import json
from contextlib import contextmanager

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: ./dev check python runs these tests")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: ./dev check python has it")

import numpy as np  # noqa: E402
from transformers import DynamicCache  # noqa: E402

from varve.eval import cut_windows, evaluate_windows, make_lanes, make_prompts, measure_recall  # noqa: E402
from varve.eval.merge import load_runs, merge_runs  # noqa: E402
from varve.eval.presses import press_lane  # noqa: E402

torch.set_num_threads(1)
TOKENS = np.random.default_rng(2).integers(2, 120, 1000).tolist()
ROW_BYTES = 4 * 2 * 2 * 32  # values of a token: layers, heads, K and V, dim


def make_model():
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        hidden_size=96, num_attention_heads=6, num_key_value_heads=2, head_dim=32, num_hidden_layers=4, intermediate_size=64,
        vocab_size=120, max_position_embeddings=8192, pad_token_id=0, bos_token_id=1, eos_token_id=None,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(4)
    model.set_attn_implementation("sdpa")
    return model


class KeepRows:
    """A press in the form of kvpress: a context that drops rows of the cache when the forward is over."""

    def __init__(self, keep):
        self.keep = keep

    @contextmanager
    def __call__(self, model):
        yield
        for layer in self.caches[-1].layers:
            layer.keys, layer.values = layer.keys[:, :, self.keep], layer.values[:, :, self.keep]


def keeping(model, keep):
    lane = press_lane(model.config, "rows:0.5", KeepRows(keep))
    make, lane.press.caches = lane.make, []
    lane.make = lambda: lane.press.caches.append(make()) or lane.press.caches[-1]
    return lane


def rows_of(model, lane, ctx=200):
    reference = make_lanes(model.config, [])[0]
    return evaluate_windows(model, cut_windows(TOKENS, ctx, None, 1), [reference, lane])


def test_a_press_that_drops_nothing_loses_nothing_but_rounding():
    model = make_model()
    reference, row = rows_of(model, keeping(model, slice(None)))
    assert 0 <= row["kl_mean"] < 1e-5 and row["kind"] == "press"
    assert row["bytes_per_token"] == 2 * ROW_BYTES and reference["bytes_per_token"] == 4 * ROW_BYTES


def test_rows_that_were_dropped_are_seen_by_nobody_and_positions_stay():
    model = make_model()
    keep = torch.arange(0, 100, 3)
    _, row = rows_of(model, keeping(model, keep))
    ids = torch.tensor([TOKENS[:200]])
    visible = torch.ones(200, 200, dtype=torch.bool).tril()
    hidden = torch.ones(100, dtype=torch.bool)
    hidden[keep] = False
    visible[100:, :100][:, hidden] = False
    with torch.no_grad():
        logits = model(ids, attention_mask=visible[None, None]).logits[0].double().log_softmax(-1)
        expected = model(ids).logits[0].double().log_softmax(-1)
    kl = (expected.exp() * (expected - logits)).sum(-1)[100:-1].mean()
    assert row["kl_mean"] == pytest.approx(float(kl), rel=0.02)
    assert row["kl_mean"] > 1e-3


def test_bytes_are_those_of_the_memory_that_is_kept_alive():
    model = make_model()
    _, row = rows_of(model, keeping(model, torch.arange(0, 100, 4)))
    # One token behind the prompt, and at the end of the window.
    assert row["prompt_bytes_per_token"] * 101 == (25 + 1) * 2 * ROW_BYTES
    assert row["bytes_per_token"] * 200 == (25 + 100) * 2 * ROW_BYTES
    lane = make_lanes(model.config, [])[0]
    cache = lane.make()
    cache.update(torch.zeros(1, 2, 100, 32), torch.zeros(1, 2, 100, 32), 0)
    whole = lane.bytes_of(cache)
    cache.layers[0].keys = cache.layers[0].keys[:, :, :10]  # a view keeps all rows
    assert lane.bytes_of(cache) == whole == 2 * 100 * 2 * 32 * 4
    cache.layers[0].keys = cache.layers[0].keys.clone()
    assert lane.bytes_of(cache) == whole * 110 // 200


def test_what_is_wrong_with_a_press():
    model = make_model()
    for text in ("snapkv", "snapkv:1", "snapkv:x"):
        with pytest.raises(ValueError, match="the share that goes must be in 0 … 1, as in snapkv:0.5"):
            press_lane(model.config, text)
    lane = keeping(model, slice(None))
    cache, lane.press = lane.make(), lambda model: {}["cache_position"]
    with pytest.raises(ValueError, match="'cache_position' is missing.*an environment of its own"):
        lane.read_prompt(model, cache, torch.tensor([TOKENS[:80]]))


@pytest.mark.skipif(importlib.util.find_spec("kvpress") is not None, reason="kvpress is installed")
def test_without_kvpress_its_rows_are_left_out_with_a_line(capsys):
    lanes = make_lanes(make_model().config, [], presses=["snapkv:0.5"])
    assert [lane.name for lane in lanes] == ["DynamicCache"]
    assert "snapkv:0.5: left out: No module named 'kvpress'" in capsys.readouterr().out


def test_kvpress_itself():
    pytest.importorskip("kvpress", reason="kvpress is not installed; it wants transformers below 5.3, so an environment of its own")
    model = make_model()
    names = ["snapkv:0.5", "expectedattention:0.5", "keydiff:0.5", "knorm:0.5", "streamingllm:0.5"]
    lanes = make_lanes(model.config, [], presses=names)
    assert [lane.name for lane in lanes[1:]] == ["SnapKV 0.5", "ExpectedAttention 0.5", "KeyDiff 0.5", "Knorm 0.5", "StreamingLLM 0.5"]
    rows = evaluate_windows(model, cut_windows(TOKENS, 200, None, 1), lanes)
    # It keeps the first four rows and the last ones.
    streaming = keeping(model, torch.cat([torch.arange(4), torch.arange(54, 100)]))
    assert rows[5]["kl_mean"] == pytest.approx(rows_of(model, streaming)[1]["kl_mean"], rel=1e-3)
    for row in rows[1:]:
        assert row["bytes_per_token"] * 200 == (50 + 100) * 2 * ROW_BYTES
        assert row["kl_mean"] > 1e-3
    with pytest.raises(ValueError, match="kvpress has no such press; it has .*snapkv"):
        press_lane(model.config, "nothing:0.5")


class Letters:
    """A tokenizer for measure_recall: a letter is a token."""

    eos_token_id = bos_token_id = 1

    def encode(self, text, **options):
        return [ord(letter) for letter in text]

    def decode(self, tokens):
        return "".join(map(chr, [tokens] if isinstance(tokens, int) else tokens))


def test_the_question_comes_behind_the_prompt():
    model = make_model()
    model.resize_token_embeddings(128)
    lane = keeping(model, torch.arange(0, 100, 4))
    prompts = make_prompts(Letters(), TOKENS, 900, asked=9)
    assert [len(prompt.questions) for prompt in prompts] == [8, 1]
    for prompt in prompts:
        text = Letters().decode(prompt.text)
        for question, number in prompt.questions:
            thing = Letters().decode(question).split("What is the number of the ")[1].split("?")[0]
            assert f" Remember that the number of the {thing} is {number}." in text
    found = measure_recall(model, Letters(), prompts, [lane])["rows 0.5"]
    assert found["recall"] == 0
    rows = [cache.get_seq_length() for cache in lane.press.caches]
    assert all(25 + len(p.questions[-1][0]) <= r <= 25 + len(p.questions[-1][0]) + 12 for p, r in zip(prompts, rows))


def test_runs_of_two_environments_become_one_table(tmp_path):
    here = dict(ctx=200, windows=1, text=7, halves=True, questions=0)
    row = dict(plan="DynamicCache", perplexity=10.0)
    run = here | dict(rows=[row, dict(plan="t4")])
    path = tmp_path / "presses.json"
    path.write_text(json.dumps(here | dict(rows=[row | dict(perplexity=10.001), dict(plan="SnapKV 0.5")])))
    assert [r["plan"] for r in merge_runs(run, load_runs([str(path)]))] == ["DynamicCache", "t4", "SnapKV 0.5"]
    with pytest.raises(ValueError, match="presses.json: text is 7, here it is 8"):
        merge_runs(run | dict(text=8), load_runs([str(path)]))
    path.write_text(json.dumps(here | dict(rows=[row | dict(perplexity=11.0)])))
    with pytest.raises(ValueError, match="not the same model"):
        merge_runs(run, load_runs([str(path)]))
    path.write_text(json.dumps(dict(rows=[])))
    with pytest.raises(ValueError, match="ctx is missing"):
        load_runs([str(path)])


def test_a_cache_of_a_press_gives_rows_in_the_models_type():
    model = make_model()
    cache = keeping(model, slice(None)).make()
    with torch.no_grad():
        logits = model(torch.tensor([TOKENS[:50]]), past_key_values=cache).logits
        expected = model(torch.tensor([TOKENS[:50]]), past_key_values=DynamicCache(config=model.config)).logits
    assert cache.layers[0].keys.dtype == torch.float32 and cache.layers[0].held_keys.dtype == torch.float16
    torch.testing.assert_close(logits, expected, atol=2e-2, rtol=2e-2)
