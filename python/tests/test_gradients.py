"""What goes through a VarveCache has no gradient: a backward says so, instead of going on without it."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: ./dev check python runs these tests")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: ./dev check python has it")

from test_encoder_decoder import model as whisper  # noqa: E402, F401
from test_encoder_decoder import sound  # noqa: E402
from test_transformers import POLICY, generate, make_cache, make_inputs, make_model  # noqa: E402

import varve  # noqa: E402
from varve.transformers import encoder_decoder_cache, exact_plan  # noqa: E402
from varve.transformers.gradient import without_gradient  # noqa: E402

ADVICE = r"train without a VarveCache \(use_cache=False\)"


@pytest.mark.parametrize("attention, plan, trains", [
    ("varve", None, False), ("varve", POLICY, False), ("sdpa", None, True), ("sdpa", None, False), ("eager", "q8_0", True),
])
def test_a_backward_through_a_cache_raises(attention, plan, trains):
    model = make_model(attention=attention).train(trains)
    logits = model(**make_inputs(2, 150, padding=()), past_key_values=make_cache(model, plan)).logits
    with pytest.raises(varve.Error, match=ADVICE):
        logits.sum().backward()


@pytest.mark.parametrize("part", ["k_proj", "v_proj", "q_proj"])
def test_a_backward_raises_where_one_matrix_alone_is_trained(part):
    """Of the first layer: what comes before it asks for no gradient."""
    model = make_model().requires_grad_(False)
    getattr(model.model.layers[0].self_attn, part).requires_grad_(True)
    logits = model(**make_inputs(2), past_key_values=make_cache(model)).logits
    with pytest.raises(varve.Error, match=ADVICE):
        logits.sum().backward()


def test_a_training_forward_on_a_cache_is_refused_at_once():
    model = make_model().train()
    cache = make_cache(model)
    with pytest.raises(varve.Error, match=f"no gradient; {ADVICE}"):
        model(**make_inputs(2), past_key_values=cache)
    assert cache.batch_size == -1
    with torch.no_grad():
        model(**make_inputs(2), past_key_values=cache)
    assert cache.get_seq_length() == 70


@pytest.mark.parametrize("attention", ["varve", "sdpa"])
def test_inference_with_gradients_on_gives_the_same(attention):
    model = make_model(attention=attention)
    inputs = make_inputs(2, 70, padding=())
    expected = generate(model, inputs, make_cache(model), 8)
    cache, ids = make_cache(model), inputs["input_ids"]
    for _ in range(8):
        logits = model(ids[:, cache.get_seq_length() :], past_key_values=cache).logits
        assert logits.requires_grad
        ids = torch.cat([ids, logits[:, -1:].argmax(-1)], 1)
    assert torch.equal(ids[:, :72], expected[:, :72]), "greedy, before bigrams are forbidden"


def test_the_advice_helps():
    gradients = []
    for attention in ("varve", "eager"):
        model = make_model("Gemma2", attention).train()
        inputs = make_inputs(2, padding=())
        model(**inputs, labels=inputs["input_ids"], use_cache=False).loss.backward()
        gradients.append(model.model.layers[0].self_attn.k_proj.weight.grad)
    torch.testing.assert_close(*gradients, atol=1e-3, rtol=1e-3)
    assert gradients[0].abs().max() > 0


def test_a_tensor_on_such_a_way_may_change_in_place():
    source = torch.ones(3, requires_grad=True)
    changed = without_gradient(torch.zeros(3), source).add_(1)
    assert changed.tolist() == [1, 1, 1]
    with pytest.raises(varve.Error, match=ADVICE):
        changed.sum().backward()
    with torch.no_grad():
        assert not without_gradient(torch.zeros(3), source).requires_grad
    assert not without_gradient(torch.zeros(3), torch.ones(3)).requires_grad


@pytest.mark.parametrize("attention", ["varve", "eager"])
def test_rows_of_an_encoder_pass_no_gradient_on_once_they_are_stored(whisper, attention):  # noqa: F811
    whisper.set_attn_implementation(attention)
    cache = encoder_decoder_cache(whisper.config, exact_plan(whisper), num_threads=1)
    sounds = whisper.model.encoder(sound()).last_hidden_state
    decoder = dict(encoder_outputs=(sounds,), past_key_values=cache, use_cache=True)
    whisper(decoder_input_ids=torch.ones(2, 1, dtype=torch.long), **decoder)
    whisper.requires_grad_(False)
    try:
        logits = whisper(decoder_input_ids=torch.ones(2, 1, dtype=torch.long), **decoder).logits
        with pytest.raises(varve.Error, match=ADVICE):
            logits.sum().backward()
    finally:
        whisper.requires_grad_(True)
