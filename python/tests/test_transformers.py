"""VarveCache with small random models of each family."""

import copy
import gc
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: ./dev check python runs these tests")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: ./dev check python has it")

import numpy as np  # noqa: E402
from transformers import DynamicCache  # noqa: E402

import varve  # noqa: E402
from varve import _native  # noqa: E402
from varve.transformers import VarveCache, dense, exact_plan  # noqa: E402

torch.set_num_threads(1)
SMALL = dict(
    hidden_size=96, num_attention_heads=6, num_key_value_heads=2, head_dim=32, num_hidden_layers=4, intermediate_size=64,
    vocab_size=120, max_position_embeddings=8192, pad_token_id=0, bos_token_id=1, eos_token_id=None,
)
FAMILIES = {
    "Llama": {},
    "Mistral": dict(sliding_window=40),
    "Qwen2": dict(use_sliding_window=True, sliding_window=40, max_window_layers=2),
    "Qwen3": {},
    "Gemma2": dict(sliding_window=40, query_pre_attn_scalar=32),
    "Gemma3Text": dict(sliding_window=40, query_pre_attn_scalar=32, sliding_window_pattern=2),
}
CLASSES = {"Gemma3Text": "Gemma3ForCausalLM"}
# Random models repeat themselves unless they are kept from it; a text that varies tells more.
GREEDY = dict(do_sample=False, no_repeat_ngram_size=2)
POLICY = "evict=h2o,ratio=2,sink=16,recent=32,trigger=64,every=8,page=16"


def make_model(family="Llama", attention="varve", **changes):
    torch.manual_seed(1)
    config = getattr(transformers, f"{family}Config")(**(SMALL | FAMILIES[family] | changes))
    model = getattr(transformers, CLASSES.get(family, f"{family}ForCausalLM"))(config).eval()
    with torch.no_grad():  # initial weights are so small that every token is as likely as the others
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(4)
    model.set_attn_implementation(attention)
    return model


def make_cache(model, plan=None, **options):
    return VarveCache(model.config, exact_plan(model) if plan is None else plan, num_threads=1, **options)


def make_inputs(batch=2, tokens=70, padding=(13, 0), seed=5):
    ids = torch.from_numpy(np.random.default_rng(seed).integers(2, 120, (batch, tokens)))
    mask = torch.ones_like(ids)
    for row, count in enumerate(padding[:batch]):
        mask[row, :count] = 0
        ids[row, :count] = 0
    return dict(input_ids=ids, attention_mask=mask)


def generate(model, inputs, cache, tokens=40, **options):
    with torch.no_grad():
        return model.generate(**inputs, past_key_values=cache, **(GREEDY | dict(max_new_tokens=tokens) | options))


def reference(model, inputs, tokens=40, **options):
    """DynamicCache with the model's own eager attention."""
    chosen = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        return generate(model, inputs, DynamicCache(config=model.config), tokens, **options)
    finally:
        model.set_attn_implementation(chosen)


@pytest.mark.parametrize("attention", ["varve", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_tokens_are_those_of_dynamic_cache(family, attention):
    model = make_model(family, attention)
    inputs = make_inputs()
    expected = reference(model, inputs)
    assert len(set(expected[0, 70:].tolist())) > 5, "a text that says something"
    assert torch.equal(generate(model, inputs, make_cache(model)), expected)


@pytest.mark.parametrize("attention", ["varve", "eager"])
def test_keys_in_pairs_change_nothing_but_their_order(attention):
    model = make_model("Gemma2", attention)
    inputs = make_inputs()
    plain, pairs = make_cache(model), make_cache(model, key_pairs=True)
    assert torch.equal(generate(model, inputs, plain), generate(model, inputs, pairs))
    # Of the first layer, which no rounding in attention has reached yet.
    halves, stored = (cache.native.read_rows(cache.sequences[1], 0, "k") for cache in (plain, pairs))
    np.testing.assert_array_equal(stored[..., 0::2], halves[..., :16])
    np.testing.assert_array_equal(stored[..., 1::2], halves[..., 16:])
    chunks = make_cache(model, "q8_0", key_pairs=True)
    assert generate(model, inputs, chunks, prefill_chunk_size=16).shape == (2, 110)


@pytest.mark.parametrize("family", ["Llama", "Gemma3Text"])
def test_logits_of_a_prompt_are_those_of_dynamic_cache(family):
    model = make_model(family)
    ids = make_inputs(1, 200)["input_ids"]
    with torch.no_grad():
        logits = model(ids, past_key_values=make_cache(model)).logits
        model.set_attn_implementation("eager")
        expected = model(ids, past_key_values=DynamicCache(config=model.config)).logits
    torch.testing.assert_close(logits, expected, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_agree_within_their_rounding(dtype):
    model = make_model().to(dtype)
    ids = make_inputs(1, 100)["input_ids"]
    with torch.no_grad():
        logits = model(ids, past_key_values=make_cache(model)).logits
        model.set_attn_implementation("eager")
        expected = model(ids).logits
    assert logits.dtype == dtype
    assert (logits - expected).abs().mean() < (0.01 if dtype == torch.float16 else 0.1) * expected.abs().mean()


def test_a_padded_batch_equals_single_runs():
    model = make_model("Gemma2")
    inputs = make_inputs(4, 60, padding=(0, 7, 30, 55))
    together = generate(model, inputs, make_cache(model, "q8_0"))
    for row in range(4):
        real = inputs["attention_mask"][row].bool()
        single = {name: value[row : row + 1, real] for name, value in inputs.items()}
        assert torch.equal(generate(model, single, make_cache(model, "q8_0"))[0, -40:], together[row, -40:])


@pytest.mark.parametrize("family", ["Llama", "Mistral"])
def test_beams_are_those_of_dynamic_cache(family):
    model = make_model(family)
    inputs = make_inputs()
    expected = reference(model, inputs, num_beams=4)
    cache = make_cache(model)
    assert torch.equal(generate(model, inputs, cache, num_beams=4), expected)
    assert cache.batch_size == 8
    assert cache.stats()["sequences"] == 8


def test_samples_with_a_seed_are_those_of_dynamic_cache():
    model = make_model()
    inputs = make_inputs()
    torch.manual_seed(3)
    expected = reference(model, inputs, do_sample=True, top_k=20)
    torch.manual_seed(3)
    assert torch.equal(generate(model, inputs, make_cache(model), do_sample=True, top_k=20), expected)


@pytest.mark.parametrize("chunk", [1, 16, 33])
def test_prefill_in_chunks_changes_nothing(chunk):
    model = make_model("Gemma2")
    inputs = make_inputs()
    expected = reference(model, inputs)
    assert torch.equal(generate(model, inputs, make_cache(model), prefill_chunk_size=chunk), expected)


def test_assisted_decoding_crops():
    model, assistant = make_model(), make_model(num_hidden_layers=1)
    inputs = make_inputs(1)
    expected = reference(model, inputs)
    cache = make_cache(model)
    assert torch.equal(generate(model, inputs, cache, assistant_model=assistant), expected)


@pytest.mark.parametrize("attention", ["varve", "eager"])
@pytest.mark.parametrize("family", ["Mistral", "Gemma2"])
def test_assisted_decoding_of_a_second_answer(family, attention):
    """Layers with windows of 40 tokens have dropped rows by then; candidates are cropped all the same."""
    model, assistant = make_model(family, attention), make_model(family, num_hidden_layers=1)
    options = dict(num_assistant_tokens=30, num_assistant_tokens_schedule="constant", assistant_confidence_threshold=0.0)
    assistant.generation_config.update(**options)

    def answer_twice(cache):
        answer = generate(model, make_inputs(1, 150, padding=()), cache, 20)
        longer = torch.cat([answer, make_inputs(1, 30, padding=(), seed=9)["input_ids"]], 1)
        again = dict(input_ids=longer, attention_mask=torch.ones_like(longer))
        return generate(model, again, cache, 60, assistant_model=assistant)

    cache, crops = make_cache(model, f"{exact_plan(model)},page=16"), []
    cache.crop = lambda tokens: crops.append(tokens) or VarveCache.crop(cache, tokens)
    found = answer_twice(cache)
    assert min(crops) < -20
    model.set_attn_implementation("eager")
    assert torch.equal(found, answer_twice(DynamicCache(config=model.config)))
    live = cache.native.describe(cache.sequences[0], 0)["live_rows"]
    assert live <= 40 + 64 + 16, "the window, what may be cropped, a page"


def test_assisted_decoding_is_refused_at_once_where_the_plan_drops_what_a_crop_needs():
    model = make_model("Mistral")
    cache, enough = make_cache(model, "f16,window=48"), make_cache(model, "f16,window=104")
    inputs = make_inputs(1, 100, padding=())
    for turn in range(2):
        with pytest.raises(varve.Error, match="layer 0: tokens cannot be cropped, since window=48 of the plan.*use window=104"):
            generate(model, inputs, cache, assistant_model=make_model("Mistral", num_hidden_layers=1))
        assert cache.get_seq_length() == 100 * turn
        with torch.no_grad():
            model(inputs["input_ids"], past_key_values=cache)
    enough.activate_past_recording()


def test_a_conversation_goes_on_in_the_same_cache():
    model = make_model("Qwen3")
    first = make_inputs(1, 50, padding=())
    cache = make_cache(model)
    answer = generate(model, first, cache, 10)
    longer = torch.cat([answer, make_inputs(1, 30, padding=(), seed=9)["input_ids"]], 1)
    again = dict(input_ids=longer, attention_mask=torch.ones_like(longer))
    assert torch.equal(generate(model, again, cache), reference(model, again))


def test_a_prompt_that_has_not_come_does_not_end():
    model = make_model()
    ends = []
    cache = make_cache(model, POLICY.replace("h2o", "snapkv"), on_retention=lambda event: ends.append(event.next_position))
    cache.end_prompt()
    with torch.no_grad():
        model(**make_inputs(1, 150, padding=()), past_key_values=cache)
        assert not ends
        model(torch.ones(1, 1, dtype=torch.long), past_key_values=cache)
    assert set(ends) == {150}, "where the first single token comes"


def test_a_cache_is_initialized_when_it_has_rows():
    model = make_model()
    cache = make_cache(model)
    assert not cache.is_initialized
    with torch.no_grad():
        model(**make_inputs(2), past_key_values=cache)
    assert cache.is_initialized
    cache.reset()
    assert not cache.is_initialized


@pytest.mark.parametrize("attention, plan", [("varve", None), ("varve", POLICY), ("sdpa", None)])
def test_under_autocast_keys_and_values_are_stored_in_one_type(monkeypatch, attention, plan):
    """RoPE leaves keys in f32 there, values are bf16; a cache on a GPU takes one type."""
    model, types = make_model(attention=attention), set()
    for name, first in (("append_attend_batch", 2), ("append_batch", 2), ("append", 2)):
        plain = getattr(_native.Step, name)

        def spy(step, *arguments, plain=plain, first=first, **options):
            types.add((arguments[first].dtype, arguments[first + 1].dtype))
            return plain(step, *arguments, **options)

        monkeypatch.setattr(_native.Step, name, spy)
    ids = make_inputs(1, 150, padding=())["input_ids"]
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(ids, past_key_values=make_cache(model, plan)).logits
        model.set_attn_implementation("eager")
        expected = model(ids, past_key_values=DynamicCache(config=model.config)).logits
    assert types == {(torch.float32, torch.float32)}
    assert (logits - expected).float().abs().mean() < 0.02 * expected.float().std()


PLANS = [
    "", "q8_0", "q4_0r", "t4", "t3,exact=0", "k=q8_0,v=t4", "age=f16:32/q8_0:64/t4,page=16", "0-1: f16; 2-: t4",
    "window=64,sink=16,page=16", POLICY, POLICY.replace("h2o", "tova"), POLICY.replace("h2o", "demote"),
    POLICY.replace("h2o", "snapkv"), POLICY.replace("h2o", "random"), "bf16,open_rung=bf16,pack=store,hot=0/32",
    "2-: evict=window,ratio=2,sink=16,recent=32,trigger=64,page=16",
]


@pytest.mark.parametrize("plan", PLANS)
def test_every_plan_generates(plan):
    model = make_model()
    cache = make_cache(model, plan)
    inputs = make_inputs(2, 150)
    tokens = generate(model, inputs, cache)
    assert tokens.shape == (2, 190) and cache.get_seq_length() == 189
    if "evict" in plan and "snapkv" not in plan:
        assert cache.native.property("plans") > 0
    cache.native.wait_for_packing()
    if plan and "pack" not in plan:  # random numbers cannot be packed
        assert cache.stats()["bytes_used"] < cache.stats()["bytes_f16_seen"]


def test_a_codebook_generates():
    model = make_model()
    with torch.no_grad():
        past = model(make_inputs(1, 400)["input_ids"], past_key_values=make_cache(model)).past_key_values
    rows = [np.stack([past.native.read_rows(past.sequences[0], layer, part) for layer in range(4)]) for part in "kv"]
    codebook = varve.train_codebook(*rows, k=(16, 5), v=(16, 5), iterations=3)
    cache = make_cache(model, "pq16x5,open=16", codebook=codebook)
    generate(model, make_inputs(2, 150), cache)
    assert any("pq16x5" in entry["rung"] for entry in cache.stats()["rungs"])


def test_a_forward_longer_than_a_step_is_fed_in_steps():
    """A policy decides every few tokens, so a prompt never fits: it is computed on exact rows, then compressed."""
    model = make_model("Gemma2")
    inputs = make_inputs(2, 150)
    masses = []
    cache = make_cache(model, "evict=h2o,ratio=1.01,sink=150,recent=150,trigger=64,every=8,page=16,open_rung=f32,k=f32,v=f32",
                       on_attention=lambda event: masses.append(event.layer))
    with torch.no_grad():
        logits = model(**inputs, past_key_values=cache).logits
        model.set_attn_implementation("eager")
        expected = model(**inputs, past_key_values=DynamicCache(config=model.config)).logits
    real = inputs["attention_mask"].bool()
    torch.testing.assert_close(logits[real], expected[real], atol=2e-4, rtol=2e-4)
    assert set(masses) == {0, 1, 2, 3}
    assert cache.native.next_position(cache.sequences[0]) == 137


def test_sliding_layers_give_their_memory_back():
    model = make_model("Gemma2")
    cache = make_cache(model, "f16,page=16")
    generate(model, make_inputs(1, 300, padding=()), cache)
    live = [cache.native.describe(cache.sequences[0], layer)["live_rows"] for layer in range(4)]
    assert live[0] == live[2] <= 40 + 64 + 16 and live[1] == live[3] == 339, "the window, 64 tokens to crop, a page"
    with pytest.raises(varve.Error, match="activate_past_recording"):
        cache.crop(-100)
    recording = make_cache(model, "f16,page=16")
    recording.activate_past_recording()
    generate(model, make_inputs(1, 300), recording)
    recording.crop(-100)
    assert recording.get_seq_length() == 239


def test_crop_and_rows_of_the_batch():
    model = make_model()
    inputs = make_inputs(3, 70, padding=(20, 0, 5))
    cache = make_cache(model)
    with torch.no_grad():
        model(**inputs, past_key_values=cache)
    rows = [cache.native.read_rows(s, 1, "k") for s in cache.sequences]
    cache.crop(-30)
    assert cache.get_seq_length() == 40
    assert [cache.native.next_position(s) for s in cache.sequences] == [20, 40, 35]
    cache.batch_select_indices(torch.tensor([2, 0, 2]))
    for sequence, old, count in zip(cache.sequences, (2, 0, 2), (35, 20, 35)):
        np.testing.assert_array_equal(cache.native.read_rows(sequence, 1, "k"), rows[old][:, :count])
    cache.batch_select_indices((0, 1))
    cache.batch_repeat_interleave(3)
    assert cache.batch_size == 6 and cache.stats()["sequences"] == 6
    with pytest.raises(ValueError, match="negative"):
        cache.crop(3)
    cache.crop(-1000)
    assert cache.get_seq_length() == 0 and cache.layers[0].keys.numel() == 0
    cache.reset()
    assert cache.get_seq_length() == 0 and cache.stats()["sequences"] == 0
    assert torch.equal(generate(model, inputs, cache), reference(model, inputs))


def test_rows_without_padding_need_no_mask():
    model = make_model()
    inputs = make_inputs(3, 70, padding=(20, 0, 5))
    cache = make_cache(model)
    with torch.no_grad():
        model(**inputs, past_key_values=cache)
        with pytest.raises(varve.Error, match="attention_mask is missing"):
            model(torch.ones(3, 1, dtype=torch.long), past_key_values=cache)
        cache.batch_select_indices([1])
        model(torch.ones(1, 1, dtype=torch.long), past_key_values=cache)
        right = make_cache(model)
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        inputs["attention_mask"][0, 60:] = 0
        model(**inputs, past_key_values=right)
        right.crop(-10)
        model(torch.ones(3, 1, dtype=torch.long), past_key_values=right)
    assert cache.get_seq_length() == 71 and right.get_seq_length() == 61


@pytest.mark.parametrize("keeps_scores", [False, True])
def test_dense_attention_asks_in_pieces_where_torch_would_hold_all_scores(monkeypatch, keeps_scores):
    asked = []

    def attention(query, *args, **kwargs):
        asked.append(query.shape[2])
        return plain(query, *args, **kwargs)

    plain = dense.scaled_dot_product_attention
    monkeypatch.setattr(dense, "scaled_dot_product_attention", attention)
    monkeypatch.setattr(dense, "_keeps_scores", lambda *rows: keeps_scores)
    torch.manual_seed(2)
    query, (key, value) = torch.randn(1, 6, 1100, 32), torch.randn(2, 1, 2, 1100, 32)
    found = dense.dense_attention(query, key, value, None, 0.2)
    assert asked == ([512, 512, 76] if keeps_scores else [1100])
    torch.testing.assert_close(found, plain(query, key, value, is_causal=True, scale=0.2, enable_gqa=True))


def test_cuda_is_the_current_gpu_of_torch(monkeypatch):
    """Without a GPU: where the native cache would be made, and with which stream."""
    found = []

    def native(*args, device, stream, **options):
        found.append((str(device), stream))
        raise varve.Error("no GPU")

    config = make_model().config
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=70 + device.index))
    monkeypatch.setattr(_native, "Cache", native)
    for device in ("cuda", torch.device("cuda"), "cuda:1"):
        with pytest.raises(varve.Error, match="no GPU"):
            VarveCache(config, device=device)
    assert found == [("cuda:3", 73), ("cuda:3", 73), ("cuda:1", 71)]


def test_a_shared_prefix_is_stored_once():
    model = make_model()
    cache = make_cache(model, "q8_0")
    with torch.no_grad():
        model(make_inputs(1, 256)["input_ids"], past_key_values=cache)
    before = cache.stats()["pages"]
    cache.batch_repeat_interleave(5)
    assert cache.stats()["pages"] == before


def test_a_deep_copy_shares_pages_and_goes_on_by_itself():
    model = make_model()
    prefix, inputs = make_cache(model), make_inputs(1, 200, padding=())
    with torch.no_grad():
        model(inputs["input_ids"][:, :150], past_key_values=prefix)
    pages = prefix.stats()["pages"]
    twin = copy.deepcopy(prefix)
    assert prefix.stats()["pages"] == pages and prefix.stats()["sequences"] == 2
    assert torch.equal(generate(model, inputs, twin), reference(model, inputs))
    assert prefix.get_seq_length() == 150 and twin.get_seq_length() == 239
    del twin
    assert prefix.stats()["sequences"] == 1 and prefix.stats()["pages"] == pages


@pytest.mark.parametrize("call", [copy.deepcopy, lambda cache: cache.batch_repeat_interleave(2)])
def test_a_fork_that_fails_takes_nothing_along(monkeypatch, call):
    model = make_model()
    cache, inputs = make_cache(model), make_inputs(2)
    with torch.no_grad():
        model(**inputs, past_key_values=cache)
    native, forks = cache.store.cache, []

    class FailingForks:
        """The native cache, whose second fork fails."""

        def __getattr__(self, name):
            return getattr(native, name)

        def fork(self, sequence):
            if forks:
                raise MemoryError("no fork")
            forks.append(native.fork(sequence))
            return forks[-1]

    monkeypatch.setattr(cache.store, "cache", FailingForks())
    with pytest.raises(MemoryError, match="no fork"):
        call(cache)
    monkeypatch.undo()
    gc.collect()
    assert len(forks) == 1 and cache.stats()["sequences"] == 2
    with torch.no_grad():
        model(input_ids=torch.ones(2, 1, dtype=torch.long), past_key_values=cache, attention_mask=torch.cat(
            [inputs["attention_mask"], torch.ones(2, 1, dtype=torch.long)], 1))
