"""Evaluation of plans on a small random model, and the program around it."""

import json

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: ./dev check python runs these tests")
pytest.importorskip("transformers", reason="transformers is not installed: ./dev check python has it")

import numpy as np  # noqa: E402
from test_transformers import POLICY, make_cache, make_model  # noqa: E402

from varve.eval import cut_windows, evaluate_windows, make_lanes, measure_decode  # noqa: E402
from varve.eval.__main__ import main  # noqa: E402
from varve.transformers import exact_plan  # noqa: E402

TOKENS = np.random.default_rng(2).integers(2, 120, 1000).tolist()


def test_windows_begin_with_bos_and_drop_the_rest():
    assert cut_windows(list(range(10)), 4, 99, 0) == [[99, 0, 1, 2], [99, 3, 4, 5], [99, 6, 7, 8]]
    assert cut_windows(list(range(10)), 4, None, 1) == [[0, 1, 2, 3]]
    with pytest.raises(ValueError, match="the text has 10 tokens, a window needs 20"):
        cut_windows(list(range(10)), 20, None, 0)


def test_the_exact_plan_loses_nothing_and_fewer_bits_lose_more():
    model = make_model()
    lanes = make_lanes(model.config, [exact_plan(model), "q8_0", "t4,exact=0", "t2,exact=0"], num_threads=1)
    rows = evaluate_windows(model, cut_windows(TOKENS, 320, 1, 2), lanes)
    reference, exact, eight, four, two = rows
    assert reference["kl_mean"] == 0 and reference["same_best"] == 1 and reference["ratio"] == 1
    # Every layer has 2 heads of 32 values, K and V, in f32.
    assert reference["bytes_per_token"] == 4 * 2 * 2 * 32 * 4
    assert exact["kl_mean"] < 1e-6 < eight["kl_mean"] < four["kl_mean"] < two["kl_mean"]
    assert exact["perplexity"] == pytest.approx(reference["perplexity"], rel=1e-4)
    assert exact["ratio"] < eight["ratio"] < four["ratio"] < two["ratio"]


def test_perplexity_is_that_of_one_forward():
    model = make_model(attention="eager")
    windows = cut_windows(TOKENS, 200, None, 1)
    row = evaluate_windows(model, windows, make_lanes(model.config, [], num_threads=1))[0]
    with torch.no_grad():
        ids = torch.tensor(windows)
        loss = torch.nn.functional.cross_entropy(model(ids).logits[0, :-1], ids[0, 1:])
    assert row["perplexity"] == pytest.approx(float(loss.exp()), rel=1e-4)


def test_a_plan_that_drops_rows_halves_the_windows_for_all():
    model = make_model()
    rows = evaluate_windows(model, cut_windows(TOKENS, 320, 1, 1), make_lanes(model.config, [POLICY], num_threads=1))
    assert rows[1]["kl_mean"] > 1e-6 and rows[1]["ratio"] > 1.5


def test_a_prompt_at_rest_is_smaller_and_what_follows_is_exact():
    model = make_model()
    plan, exact = f"{exact_plan(model)},idle=t2,exact=0", exact_plan(model)
    windows = cut_windows(TOKENS, 512, 1, 1)
    awake = evaluate_windows(model, windows, make_lanes(model.config, [plan], num_threads=1), halves=True)[1]
    _, whole, resting = evaluate_windows(model, windows, make_lanes(model.config, [exact, plan], rest=True, num_threads=1))
    assert awake["kl_mean"] == whole["kl_mean"] < 1e-6 < resting["kl_mean"]
    assert awake["prompt_bytes_per_token"] == whole["prompt_bytes_per_token"] > 3 * resting["prompt_bytes_per_token"]
    # Half of the window is as it was.
    assert 0.5 < resting["bytes_per_token"] / whole["bytes_per_token"] < 0.65


@pytest.mark.parametrize("family", ["Llama", "Mistral", "Qwen2", "Gemma2"])
def test_decoding_is_timed_behind_the_whole_text(family):
    """Also where the reference has dropped what left its windows of 40 tokens, so that it cannot hand its rows over."""
    model = make_model(family, attention="eager")
    lanes, caches = make_lanes(model.config, ["f32,open_rung=f32,page=16", "q8_0,page=16"], num_threads=1), []
    for lane in lanes:
        lane.make = lambda make=lane.make: caches.append(make()) or caches[-1]
    tokens = list(range(2, 102))
    found = measure_decode(model, lanes, tokens, 3)
    assert model.config._attn_implementation == "eager"
    for cache in caches:
        assert cache.get_seq_length() == 100 + 3 + 1
    model.set_attn_implementation("varve")
    with torch.no_grad():
        alone = make_cache(model, lanes[1].name)
        for begin in range(0, 100, 50):
            model(torch.tensor([tokens[begin : begin + 50]]), past_key_values=alone)
        for _ in range(4):
            model(torch.tensor([tokens[-1:]]), past_key_values=alone)
    native = caches[1].native
    assert [native.describe(caches[1].sequences[0], layer)["live_rows"] for layer in range(4)] == [
        alone.native.describe(alone.sequences[0], layer)["live_rows"] for layer in range(4)
    ]
    for layer in range(4):
        rows = native.read_rows(caches[1].sequences[0], layer, "k")
        np.testing.assert_allclose(rows, alone.native.read_rows(alone.sequences[0], layer, "k"), atol=1e-3)
    assert found[lanes[2].name]["decode_bytes"] < found[lanes[1].name]["decode_bytes"]


@pytest.fixture
def model_folder(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(120)}, unk_token="w1"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(tmp_path)
    make_model().save_pretrained(tmp_path)
    (tmp_path / "text.txt").write_text(" ".join(f"w{token}" for token in TOKENS))
    return tmp_path


def no_back_end(*arguments, **options):
    raise ImportError("no such back end is installed")


def test_the_program_writes_rows_and_a_chart(model_folder, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr("varve.eval.lanes.QuantizedCache", no_back_end)
    files = [str(model_folder / name) for name in ("text.txt", "rows.json", "chart.png")]
    arguments = [str(model_folder), "--kv", "q8_0", "t4", "--ctx", "256", "--threads", "1", "--recall", "1", "--decode", "4"]
    assert main(arguments + ["-f", files[0], "--json", files[1], "--chart", files[2], "--quantized", "quanto:4"]) == 0
    printed = capsys.readouterr().out
    assert "quanto:4: left out: no such back end" in printed and "recall %" in printed
    rows = json.loads((model_folder / "rows.json").read_text())["rows"]
    assert [row["plan"] for row in rows] == ["DynamicCache", "q8_0", "t4"]
    assert all(row["decode_tokens_per_s"] > 0 and 0 <= row["recall"] <= 1 for row in rows)
    assert (model_folder / "chart.png").read_bytes().startswith(b"\x89PNG")


def perplexities(words):
    return [words[words.index(plan) + 1] for plan in ("DynamicCache", "q8_0")]


def test_numbers_of_tokens_instead_of_text(model_folder, capsys):
    (model_folder / "ids.json").write_text(json.dumps(TOKENS))
    common = [str(model_folder), "--ctx", "200", "--kv", "q8_0", "--threads", "1"]
    assert main([*common, "-f", str(model_folder / "text.txt")]) == 0
    of_text = capsys.readouterr().out.split()
    assert main([*common, "-f", str(model_folder / "ids.json"), "--ids"]) == 0
    of_numbers = capsys.readouterr().out.split()
    assert perplexities(of_numbers) == perplexities(of_text)
    (model_folder / "ids.json").write_text("[1, 200]")
    assert main([*common, "-f", str(model_folder / "ids.json"), "--ids"]) == 1
    assert "below 120" in capsys.readouterr().err
