"""The embedded model (models/varve-books-29m.gguf) as a Hugging Face folder, and VarveCache on it."""

import json
import tarfile
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: ./dev check python runs these tests")
pytest.importorskip("transformers", reason="transformers is not installed: ./dev check python has it")
pytest.importorskip("gguf", reason="gguf is not installed: ./dev check python has it")

from test_transformers import GREEDY, PLANS  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache  # noqa: E402

import varve  # noqa: E402
from varve.convert_hf import load_gguf, main  # noqa: E402
from varve.eval import evaluate_windows, make_lanes, make_prompts, measure_recall  # noqa: E402
from varve.transformers import VarveCache, exact_plan  # noqa: E402

MODELS = Path(__file__).parents[2] / "models"
FILE = MODELS / "varve-books-29m.gguf"
TEXT = MODELS / "eval.txt"
pytestmark = pytest.mark.skipif(not FILE.exists(), reason=f"{FILE} is in the repository, these tests are not")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("books")
    assert main([str(FILE), str(made)]) == 0
    return made


@pytest.fixture(scope="module")
def model(folder):
    return AutoModelForCausalLM.from_pretrained(folder).eval()


@pytest.fixture(scope="module")
def tokenizer(folder):
    loaded = AutoTokenizer.from_pretrained(folder, padding_side="left")
    loaded.pad_token = loaded.pad_token or loaded.eos_token
    return loaded


def make_cache(model, plan=None):
    return VarveCache(model.config, exact_plan(model) if plan is None else plan, num_threads=1)


def generate(model, inputs, cache, **options):
    model.set_attn_implementation("varve" if isinstance(cache, VarveCache) else "sdpa")
    with torch.no_grad():
        return model.generate(**inputs, past_key_values=cache, eos_token_id=None, **(GREEDY | options))


def both(model, inputs, **options):
    """With DynamicCache, and with a VarveCache of the model's own type."""
    return generate(model, inputs, DynamicCache(config=model.config), **options), generate(model, inputs, make_cache(model), **options)


def passage(tokenizer, tokens):
    """That many tokens of a novel."""
    ids = tokenizer(TEXT.read_text(encoding="utf-8")[: 8 * tokens], return_tensors="pt").input_ids[:, :tokens]
    return dict(input_ids=ids, attention_mask=torch.ones_like(ids))


def test_the_folder_has_the_model_of_the_file(folder, model, tokenizer):
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {path.name for path in folder.iterdir()}
    assert "quantization_config" not in json.loads((folder / "config.json").read_text())
    read, words = load_gguf(FILE)
    weights = model.state_dict()
    assert all(torch.equal(weights[name], tensor) for name, tensor in read.state_dict().items())
    text = TEXT.read_text(encoding="utf-8")[:20000]
    assert tokenizer.encode(text) == words.encode(text)


def test_words_are_cut_as_the_program_cuts_them(tokenizer):
    # What `varve tokenize --ids` prints for the text.
    text = "It's the year 1853; 'twas\n\n  cold — très"
    ids = [0, 1138, 381, 261, 1652, 221, 17, 24, 21, 19, 27, 557, 84, 4260, 298, 221, 1882, 763, 223, 243, 545, 4579, 83]
    assert tokenizer.encode(text) == ids
    assert tokenizer.decode(ids[1:]) == text


def test_a_file_that_is_not_there(tmp_path, capsys):
    assert main([str(tmp_path / "none.gguf"), str(tmp_path / "out")]) == 1
    assert "none.gguf: there is no such file" in capsys.readouterr().err


def test_200_greedy_tokens(model, tokenizer):
    expected, tokens = both(model, passage(tokenizer, 300), max_new_tokens=200)
    assert torch.equal(tokens, expected)
    assert len(set(expected[0, -200:].tolist())) > 50, "a text that says something"


def test_beams(model, tokenizer):
    expected, tokens = both(model, passage(tokenizer, 60), max_new_tokens=40, num_beams=4, num_return_sequences=4)
    assert torch.equal(tokens, expected)


def test_a_batch_of_four_with_padding_equals_single_runs(model, tokenizer):
    texts = ["The history of the sea begins with", "\"My dear sir,\" he said,", "It was late when the carriage came to the house, and", "Ice"]
    together = generate(model, tokenizer(texts, return_tensors="pt", padding=True), make_cache(model, "q8_0"), max_new_tokens=80)
    for row, text in zip(together, texts):
        single = generate(model, tokenizer(text, return_tensors="pt"), make_cache(model, "q8_0"), max_new_tokens=80)
        assert torch.equal(single[0, -80:], row[-80:])


@pytest.mark.parametrize("plan", PLANS)
def test_every_plan_generates(model, tokenizer, plan):
    cache = make_cache(model, plan)
    tokens = generate(model, passage(tokenizer, 200), cache, max_new_tokens=60)
    assert tokens.shape == (1, 260) and cache.get_seq_length() == 259
    if plan and "pack" not in plan:  # so few pages are hardly worth packing
        assert cache.stats()["bytes_used"] < cache.stats()["bytes_f16_seen"]


def test_a_folded_page_cannot_be_cropped_in_the_middle(model, tokenizer):
    compressor = varve.Compressor.load(str(MODELS / "varve-books-29m-fold4.bin"))
    cache = VarveCache(model.config, "fold,q8_0", compressor=compressor, num_threads=1)
    generate(model, passage(tokenizer, 300), cache, max_new_tokens=8)
    assert cache.native.describe(cache.sequences[0], 0)["live_rows"] < 200
    cache.crop(-7)  # behind the prompt
    with pytest.raises(varve.Error, match="a folded page can be cut at .*; use a plan without fold="):
        cache.crop(-150)
    assert cache.get_seq_length() == 300, "nothing has changed"


# KL of the first window of 1024 tokens by `varve eval kl --ctx 1024 --windows 1 --kv pq4 fold`
@pytest.mark.parametrize(("plan", "of_the_program"), [("pq4", 0.00021), ("fold", 0.132)])
def test_constants_of_the_program_fit_keys_in_pairs(model, tokenizer, tmp_path, plan, of_the_program):
    constants = dict(compressor=varve.Compressor.load(str(MODELS / "varve-books-29m-fold4.bin")))
    if plan == "pq4":
        with tarfile.open(MODELS / "varve-books-29m.codebook.tar.xz") as archive:
            archive.extractall(tmp_path)
        constants = dict(codebook=varve.Codebook.load(str(tmp_path / "varve-books-29m.codebook")))
    windows = [passage(tokenizer, 1024)["input_ids"][0].tolist()]
    kl = {}
    for pairs in (False, True):
        lanes = make_lanes(model.config, [plan], num_threads=1, key_pairs=pairs, **constants)
        kl[pairs] = evaluate_windows(model, windows, lanes)[1]["kl_mean"]
    assert kl[True] == pytest.approx(of_the_program, rel=0.05)
    assert kl[False] > 1.5 * of_the_program


def test_facts_are_found_unless_they_have_been_dropped(model, tokenizer):
    filler = tokenizer.encode(TEXT.read_text(encoding="utf-8")[:40000], add_special_tokens=False)
    prompts = make_prompts(tokenizer, filler, 700, asked=8)
    assert len(prompts) == 1 and len(prompts[0].text) < 700
    dropped = "window=64,sink=0,page=16"
    found = measure_recall(model, tokenizer, prompts, make_lanes(model.config, ["q8_0", dropped], num_threads=1))
    assert found["DynamicCache"]["recall"] >= 7 / 8
    assert found["q8_0"]["recall"] == found["DynamicCache"]["recall"]
    assert found[dropped]["recall"] <= 2 / 8
    assert found[dropped]["recall_bytes_per_token"] < found["q8_0"]["recall_bytes_per_token"] / 4
