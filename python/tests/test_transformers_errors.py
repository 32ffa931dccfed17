"""What a user can do wrong with VarveCache, and what it says."""

import gc
import weakref

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: ./dev check python runs these tests")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: ./dev check python has it")

from test_transformers import POLICY, SMALL, generate, make_cache, make_inputs, make_model  # noqa: E402

import varve  # noqa: E402
from varve.transformers import VarveCache, exact_plan  # noqa: E402

ALL_ATTENTION_FUNCTIONS = transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS


def run(model, cache, **inputs):
    with torch.no_grad():
        return model(**inputs, past_key_values=cache)


def test_a_plan_that_the_shape_cannot_honour():
    with pytest.raises(varve.Error, match="48"):
        make_cache(make_model(head_dim=48), "q8_0")
    with pytest.raises(varve.Error, match="layer"):
        make_cache(make_model(), "0-9: q8_0")
    with pytest.raises(varve.Error, match="layer"):
        make_cache(make_model("Gemma2"), "0-9: q8_0")


def test_another_batch_model_or_dtype():
    model = make_model()
    cache = make_cache(model)
    run(model, cache, **make_inputs(2))
    with pytest.raises(varve.Error, match=r"holds a batch of 2, this one has 1; make a new VarveCache, or call reset\(\)"):
        run(model, cache, input_ids=torch.ones(1, 1, dtype=torch.long))
    with pytest.raises(varve.Error, match="rows of another model"):
        run(make_model(), cache, **make_inputs(2, 70 + 1) | dict(input_ids=torch.ones(2, 1, dtype=torch.long)))
    with pytest.raises(varve.Error, match="heads of"):
        run(make_model(num_key_value_heads=6), make_cache(model), **make_inputs(2))
    with pytest.raises(varve.Error, match="call reset"):
        run(make_model().half(), cache, **make_inputs(2))


def test_a_dtype_without_a_rung():
    model = make_model().double()
    with pytest.raises(varve.Error, match="float64 has no rung; load the model in float32"):
        exact_plan(model)
    with pytest.raises(varve.Error, match="float64 has no rung"):
        run(model, make_cache(model, "f32"), **make_inputs(2))


def test_plans_that_drop_rows_need_varve_attention():
    for plan in (POLICY, "window=64"):
        model = make_model(attention="sdpa")
        with pytest.raises(varve.Error, match=r'set_attn_implementation\("varve"\)'):
            generate(model, make_inputs(2), make_cache(model, plan))


def test_weights_of_attention_are_refused():
    model = make_model()
    with pytest.raises((varve.Error, ValueError), match="attn_implementation"):
        run(model, make_cache(model), **make_inputs(2), output_attentions=True)


def make_gpt_oss():
    """Its heads have sinks: a column of scores that belongs to no row."""
    torch.manual_seed(1)
    config = transformers.GptOssConfig(**SMALL | dict(num_local_experts=2, num_experts_per_tok=1, sliding_window=40))
    return transformers.GptOssForCausalLM(config).eval()


def test_sinks_of_attention_are_refused_and_eager_attention_has_them():
    model, inputs = make_gpt_oss(), make_inputs(1, 60, padding=())
    model.set_attn_implementation("varve")
    cache = make_cache(model)
    for rows in (cache, None):
        with pytest.raises(varve.Error, match='s_aux: this model.s scores need it.*use attn_implementation "eager"'):
            run(model, rows, **inputs)
    assert cache.get_seq_length() == 0 and cache.batch_size == -1
    model.set_attn_implementation("eager")
    logits = run(model, cache, **inputs).logits
    torch.testing.assert_close(logits, run(model, transformers.DynamicCache(config=model.config), **inputs).logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["s_aux", "sinks", "position_bias", "indices", "block_indices"])
def test_arguments_that_change_scores_are_refused(name):
    model = make_model()
    cache = make_cache(model)
    run(model, cache, **make_inputs(1, 20, padding=()))
    with pytest.raises(varve.Error, match=f"^{name}: this model.s scores need it"):
        run(model, cache, input_ids=torch.ones(1, 3, dtype=torch.long), **{name: torch.zeros(1)})
    run(model, cache, input_ids=torch.ones(1, 3, dtype=torch.long), **{name: None})
    assert cache.get_seq_length() == 23


def test_a_class_that_never_calls_the_attention_function():
    model = make_model()
    cache = make_cache(model)
    rows = torch.zeros(1, 2, 5, 32)
    cache.update(rows, rows, 0)
    with pytest.raises(varve.Error, match="never called the attention function `varve`"):
        cache.update(rows, rows, 1)


def plain_attention(self, hidden_states, position_embeddings, attention_mask=None, past_key_values=None, **kwargs):
    """Attention as a class of its own might have it: no attention function is asked."""
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb, repeat_kv

    shape = (*hidden_states.shape[:-1], -1, self.head_dim)
    query, key, value = (project(hidden_states).view(shape).transpose(1, 2) for project in (self.q_proj, self.k_proj, self.v_proj))
    query, key = apply_rotary_pos_emb(query, key, *position_embeddings)
    key, value = past_key_values.update(key, value, self.layer_idx)
    scores = query @ repeat_kv(key, self.num_key_value_groups).transpose(2, 3) * self.scaling
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1 + scores.shape[-1] - scores.shape[-2])
    weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
    output = (weights @ repeat_kv(value, self.num_key_value_groups)).transpose(1, 2)
    return self.o_proj(output.reshape(*hidden_states.shape[:-1], -1)), None


def test_a_model_with_attention_of_its_own(monkeypatch):
    inputs = make_inputs(2, padding=())
    expected = generate(make_model(), inputs, make_cache(make_model()))
    model = make_model()
    monkeypatch.setattr(type(model.model.layers[0].self_attn), "forward", plain_attention)
    with pytest.raises(varve.Error, match=r'never called the attention function `varve`.*set_attn_implementation\("sdpa"\)'):
        generate(model, inputs, make_cache(model))
    model.set_attn_implementation("sdpa")
    assert torch.equal(generate(model, inputs, make_cache(model)), expected), "the advice helps"


def test_a_sealed_page_is_cropped_in_the_middle():
    """Its rows stay as they were rounded; only those that go are gone."""
    model = make_model()
    cache = make_cache(model, "q8_0,exact=0,page=16")
    run(model, cache, **make_inputs(1, 100, padding=()))
    before = cache.native.read_rows(cache.sequences[0], 1, "k")
    assert any(entry["rung"].startswith("q8_0") for entry in cache.stats()["rungs"])
    cache.crop(-75)
    assert cache.get_seq_length() == 25
    assert (cache.native.read_rows(cache.sequences[0], 1, "k") == before[:, :25]).all()
    cache.crop(0)
    with pytest.raises(ValueError, match="pass the number of tokens to remove as a negative one"):
        cache.crop(20)
    run(model, cache, input_ids=torch.ones(1, 3, dtype=torch.long))
    assert cache.get_seq_length() == 28


def test_masks_that_are_no_padding():
    model = make_model()
    inputs = make_inputs(2)
    inputs["attention_mask"][0, 30] = 0
    cache = make_cache(model)
    with pytest.raises(varve.Error, match="row 0 hides tokens between others"):
        run(model, cache, **inputs)
    run(model, cache, **make_inputs(3))
    assert cache.batch_size == 3, "a refused mask does not settle the batch"
    four = torch.ones(2, 1, 70, 70, dtype=torch.bool).tril()
    with pytest.raises(varve.Error, match="takes the 2-D padding mask"):
        run(model, make_cache(model), input_ids=inputs["input_ids"], attention_mask=four)
    cache = make_cache(model)
    inputs = make_inputs(2)
    run(model, cache, **inputs)
    with pytest.raises(varve.Error, match="does not agree"):
        run(model, cache, input_ids=inputs["input_ids"][:, :1], attention_mask=torch.ones(2, 71, dtype=torch.long))


def test_a_forward_that_broke_off_is_rolled_back():
    model = make_model()
    cache = make_cache(model)
    layer = model.model.layers[2]
    original, layer.forward = layer.forward, lambda *args, **kwargs: 1 / 0
    with pytest.raises(ZeroDivisionError):
        run(model, cache, **make_inputs(2))
    layer.forward = original
    with pytest.raises(varve.Error, match="ended after 2 of 4 layers; its tokens have been rolled back: run it again"):
        run(model, cache, **make_inputs(2))
    run(model, cache, **make_inputs(2))
    assert cache.get_seq_length() == 70


@pytest.mark.parametrize("attention", ["varve", "sdpa"])
@pytest.mark.parametrize("shape, message", [
    ((1, 2, 9, 32), "layer 1: 9 tokens in a batch of 1, layers before it had 10 in a batch of 1; the forward has been rolled back"),
    ((2, 2, 10, 32), "holds a batch of 1, this one has 2"),
])
def test_layers_with_other_tokens_than_the_first(attention, shape, message):
    model = make_model(attention=attention)
    cache = make_cache(model)

    def update(layer, rows):
        key, value = cache.update(rows, rows, layer)
        if attention == "varve":
            ALL_ATTENTION_FUNCTIONS["varve"](model.model.layers[layer].self_attn, rows.repeat_interleave(3, 1), key, value, None)

    update(0, torch.ones(1, 2, 10, 32))
    with pytest.raises(varve.Error, match=message):
        update(1, torch.ones(shape))
    assert cache.get_seq_length() == 0 and cache.stats()["sequences"] == 0
    with pytest.raises(varve.Error, match="layer 2: no forward is open, and one begins with layer 0"):
        update(2, torch.ones(shape))
    for layer in range(4):
        update(layer, torch.ones(shape))
    assert cache.get_seq_length() == shape[2]


@pytest.mark.parametrize("attention", ["varve", "sdpa"])
@pytest.mark.parametrize("part", ["k_proj", "v_proj"])
@pytest.mark.parametrize("layer", [0, 2])
def test_rows_that_are_refused_are_rolled_back(layer, part, attention):
    model = make_model(attention=attention)
    cache = make_cache(model)
    project = getattr(model.model.layers[layer].self_attn, part)
    original, project.forward = project.forward, lambda x: original(x).double()
    with pytest.raises(varve.Error, match="ha(s|ve) no rung"):
        run(model, cache, **make_inputs(2, 70, padding=()))
    project.forward = original
    run(model, cache, **make_inputs(3, 50, padding=()))
    assert cache.get_seq_length() == 50 and cache.batch_size == 3


@pytest.mark.parametrize("layer", [0, 2])
def test_options_that_are_refused_roll_back(layer):
    model = make_model()
    cache = make_cache(model)
    run(model, cache, **make_inputs(2, 70, padding=()))
    attention = model.model.layers[layer].self_attn
    attention.attention_dropout = 0.5
    attention.train()
    with pytest.raises(varve.Error, match=r"no dropout; call model.eval\(\)"):
        run(model, cache, input_ids=torch.ones(2, 3, dtype=torch.long))
    model.eval()
    run(model, cache, input_ids=torch.ones(2, 5, dtype=torch.long))
    assert cache.get_seq_length() == 75


def test_a_first_forward_without_room_settles_nothing():
    """Neither the batch nor the type of its numbers."""
    model = make_model()
    cache = make_cache(model, max_bytes=1 << 18)
    with pytest.raises(varve.Error) as caught:
        run(model, cache, **make_inputs(4, 16, padding=()))
    assert caught.value.code == "out of memory"
    assert cache.batch_size == -1 and cache.stats()["sequences"] == 0
    run(model.bfloat16(), cache, **make_inputs(1, 16, padding=()))
    assert cache.get_seq_length() == 16


def test_a_long_forward_that_finds_no_room_is_rolled_back():
    """It is stored in steps, sequence after sequence: none of them stays."""
    model = make_model()
    cache = make_cache(model, POLICY, max_bytes=1 << 17)
    with pytest.raises(varve.Error) as caught:
        run(model, cache, **make_inputs(4, 150, padding=()))
    assert caught.value.code == "out of memory"
    assert cache.batch_size == -1 and cache.stats()["sequences"] == 0
    run(model, cache, **make_inputs(4, 16, padding=()))
    assert cache.get_seq_length() == 16


def content(cache):
    """Of every row and layer: the rows, and the pages that they lie in."""
    native, found = cache.native, []
    for sequence in cache.sequences:
        for layer in range(native.shape.num_layers):
            spans = [(page.first_position, page.num_live_rows) for page in native.describe(sequence, layer)["pages"]]
            found.append((spans, *(native.read_rows(sequence, layer, part).tobytes() for part in "kv")))
    return found


def test_a_long_forward_that_fails_gives_back_what_its_steps_dropped():
    """Windows of sliding layers and decisions of policies have moved on when the second row of the batch fails."""
    model = make_model("Gemma2")
    fails = []

    def watch(event):
        if event.sequence in fails:
            raise KeyError("from the observer")

    cache = make_cache(model, f"1: {POLICY}", on_attention=watch)
    run(model, cache, **make_inputs(2, 150, padding=()))
    before = content(cache)
    fails.append(cache.sequences[1])
    more = torch.ones(2, 100, dtype=torch.long)
    with pytest.raises(KeyError, match="from the observer"):
        run(model, cache, input_ids=more)
    assert content(cache) == before and cache.get_seq_length() == 150
    assert cache.stats()["sequences"] == 2
    fails.clear()
    other = make_cache(model, f"1: {POLICY}", on_attention=lambda event: None)
    run(model, other, **make_inputs(2, 150, padding=()))
    assert torch.equal(run(model, cache, input_ids=more).logits, run(model, other, input_ids=more).logits)
    assert content(cache) == content(other) != before


def test_a_forward_whose_observer_raises_behind_the_commit_gives_back_what_it_dropped():
    """Layers 0 and 2 have windows of 40 tokens: the end of the step drops pages that the forward before has seen."""
    model = make_model("Gemma2")
    plan = "1: evict=h2o,ratio=2,sink=16,recent=32,trigger=64,every=128,page=16,log_stats=1"
    fails = []

    def watch(line):
        if fails:
            raise KeyError("from the observer")

    cache = make_cache(model, plan, on_log=watch)
    with torch.no_grad():
        run(model, cache, **make_inputs(2, 330, padding=()))
        before = content(cache)
        fails.append(True)
        more = make_inputs(2, 54, padding=(), seed=6)["input_ids"]
        assert cache.native.max_step_tokens(cache.sequences[0]) >= 54  # up to the next decision
        with pytest.raises(KeyError, match="from the observer"):
            run(model, cache, input_ids=more)
            run(model, cache, input_ids=more[:, :10])  # what was decided is dropped by the next step
        fails.clear()
        assert cache.stats()["sequences"] == 2
        other = make_cache(model, plan, on_log=lambda line: None)
        run(model, other, **make_inputs(2, 330, padding=()))
        if cache.get_seq_length() == 384:
            run(model, other, input_ids=more)
        else:
            assert content(cache) == before
        assert content(cache) == content(other)
        last = make_inputs(2, 5, padding=(), seed=7)["input_ids"]
        assert torch.equal(run(model, cache, input_ids=last).logits, run(model, other, input_ids=last).logits)


def test_a_long_forward_that_breaks_off_does_not_keep_the_cache():
    model = make_model()
    cache = make_cache(model, POLICY)
    store = weakref.ref(cache.store)
    model.model.layers[2].forward = lambda *args, **kwargs: 1 / 0
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(ZeroDivisionError):
            run(model, cache, **make_inputs(2, 150, padding=()))
        assert len(cache.store.forward.waiting) == 2
        del cache
        assert store() is None
    finally:
        gc.enable()


def test_a_device_that_is_none_is_not_kept():
    model = make_model("Gemma2")
    cache = make_cache(model)
    rows = torch.zeros(1, 2, 5, 32, device="meta")
    with pytest.raises(varve.Error, match="'meta' is neither 'cpu' nor"):
        cache.update(rows, rows, 0)
    cache.activate_past_recording()
    run(model, cache, **make_inputs(2))
    assert cache.native.device == "cpu" and cache.get_seq_length() == 70


def test_rows_of_a_padded_batch_are_no_tensor():
    model = make_model()
    cache = make_cache(model)
    run(model, cache, **make_inputs(2))
    with pytest.raises(varve.Error, match="has 70 live rows in layer 0, not 57"):
        cache.layers[0].keys  # noqa: B018
    assert cache.native.read_rows(cache.sequences[1], 0, "k").shape == (2, 70, 32)


def test_a_selection_of_no_rows():
    model = make_model()
    cache = make_cache(model)
    for indices in ([], [0], torch.tensor([True])):
        cache.batch_select_indices(indices)
    cache.batch_repeat_interleave(2)
    cache.reorder_cache(torch.tensor([0]))
    assert cache.batch_size == -1, "of an empty cache nothing can be chosen, and nothing happens"
    run(model, cache, **make_inputs(2))
    for choose in (
        lambda: cache.batch_select_indices([]), lambda: cache.batch_select_indices(torch.zeros(2, dtype=torch.bool)),
        lambda: cache.batch_select_indices(torch.zeros(0, dtype=torch.long)), lambda: cache.batch_repeat_interleave(0),
        lambda: cache.reorder_cache(torch.zeros(0, dtype=torch.long)),
    ):
        with pytest.raises(varve.Error, match=r"no row of the batch was chosen; call reset\(\)"):
            choose()
    assert cache.batch_size == 2 and cache.get_seq_length() == 70


def test_layers_by_themselves():
    cache = make_cache(make_model())
    with pytest.raises(varve.Error, match="call this on the cache"):
        cache.layers[0].crop(-1)


def test_layers_that_are_no_rows():
    from transformers import Qwen3NextConfig

    with pytest.raises(varve.Error, match="linear_attention"):
        VarveCache(Qwen3NextConfig(num_hidden_layers=4))


def test_a_cap_that_is_reached():
    model = make_model()
    with pytest.raises(varve.Error) as caught:
        generate(model, make_inputs(2), make_cache(model, max_bytes=1 << 16), 40)
    assert caught.value.code == "out of memory"
