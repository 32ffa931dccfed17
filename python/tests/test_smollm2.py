"""SmolLM2 through transformers' own GGUF loader: what `./dev models smollm2` brings."""

import os
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: ./dev check python runs these tests")
pytest.importorskip("transformers", reason="transformers is not installed: ./dev check python has it")
pytest.importorskip("gguf", reason="gguf is not installed: ./dev check python has it")

from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache  # noqa: E402

from varve.convert_hf import load_gguf  # noqa: E402
from varve.transformers import VarveCache, exact_plan  # noqa: E402

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
MODELS = Path(os.environ.get("VARVE_MODELS", "models/cache"))
FOLDER = MODELS / "smollm2" if (MODELS / "smollm2" / FILE).exists() else MODELS
pytestmark = pytest.mark.skipif(not (FOLDER / FILE).exists(), reason=f"{FOLDER / FILE}: ./dev models smollm2 brings it")


@pytest.fixture(scope="module")
def model():
    return AutoModelForCausalLM.from_pretrained(FOLDER, gguf_file=FILE, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def tokenizer():
    loaded = AutoTokenizer.from_pretrained(FOLDER, gguf_file=FILE, padding_side="left")
    loaded.pad_token = loaded.pad_token or loaded.eos_token
    return loaded


def generate(model, inputs, cache, **options):
    model.set_attn_implementation("varve" if isinstance(cache, VarveCache) else "sdpa")
    return model.generate(**inputs, past_key_values=cache, do_sample=False, eos_token_id=None, **options)


def both(model, inputs, **options):
    """With DynamicCache, and with a VarveCache of the model's own type."""
    ours = VarveCache(model.config, exact_plan(model), num_threads=1)
    return generate(model, inputs, DynamicCache(config=model.config), **options), generate(model, inputs, ours, **options)


def test_words_are_cut_as_the_program_cuts_them():
    # What `varve tokenize --ids --no-bos` prints for the text; transformers' own tokenizer has 20 tokens.
    ids = [15886, 333, 33, 40, 28, 281, 256, 33, 40, 37, 35, 42, 3805, 39, 263, 23, 17466]
    assert load_gguf(FOLDER / FILE)[1].encode("Page   18, in  1853:\n 7 o'clock") == ids


def test_200_greedy_tokens(model, tokenizer):
    inputs = tokenizer("Once upon a time, in a small village by the river, there lived a", return_tensors="pt")
    expected, tokens = both(model, inputs, max_new_tokens=200)
    assert torch.equal(tokens, expected)


def test_beams(model, tokenizer):
    inputs = tokenizer("The colour blue", return_tensors="pt")
    expected, tokens = both(model, inputs, max_new_tokens=40, num_beams=4, num_return_sequences=4)
    assert torch.equal(tokens, expected)


def test_a_batch_of_four_with_padding_equals_single_runs(model, tokenizer):
    texts = ["The history of the sea begins with", "In physics, the second law", "My dear friend, I write to you from the far north, where", "Ice"]
    plan = "q8_0"
    together = generate(model, tokenizer(texts, return_tensors="pt", padding=True), VarveCache(model.config, plan, num_threads=1), max_new_tokens=80)
    for row, text in zip(together, texts):
        single = generate(model, tokenizer(text, return_tensors="pt"), VarveCache(model.config, plan, num_threads=1), max_new_tokens=80)
        assert torch.equal(single[0, -80:], row[-80:])


def test_extra_padding_changes_nothing(model, tokenizer):
    short = tokenizer(["The cat"], return_tensors="pt")
    padded = tokenizer(["The cat"], return_tensors="pt", padding=True, pad_to_multiple_of=32)
    assert padded.input_ids.shape[1] == 32 > short.input_ids.shape[1]
    tokens = [generate(model, inputs, VarveCache(model.config, "t4", num_threads=1), max_new_tokens=20)[0, -20:] for inputs in (short, padded)]
    assert torch.equal(*tokens)
