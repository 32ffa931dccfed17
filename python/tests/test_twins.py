"""Deep copies of a VarveCache share its native cache, which has one step at a time: they take turns forward by forward."""

import copy
import gc

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: ./dev check python runs these tests")
pytest.importorskip("transformers", reason="transformers is not installed: ./dev check python has it")

from test_transformers import POLICY, make_cache, make_inputs, make_model  # noqa: E402

import varve  # noqa: E402


def run(model, cache, tokens=1):
    with torch.no_grad():
        return model(torch.full((cache.batch_size, tokens), 7), past_key_values=cache).logits


def break_off(model, cache, tokens=1):
    """A forward that ends before its third layer."""
    layer = model.model.layers[2]
    original, layer.forward = layer.forward, lambda *args, **kwargs: 1 / 0
    try:
        with pytest.raises(ZeroDivisionError):
            run(model, cache, tokens)
    finally:
        layer.forward = original


def make_twins(plan=None, attention="varve"):
    model = make_model(attention=attention)
    cache = make_cache(model, plan)
    with torch.no_grad():
        model(**make_inputs(2, 70, padding=()), past_key_values=cache)
    return model, cache, copy.deepcopy(cache)


TURNS = {
    "a forward": lambda model, cache: run(model, cache),
    "crop": lambda model, cache: cache.crop(-3),
    "reorder_cache": lambda model, cache: cache.reorder_cache(torch.tensor([1, 1])),
    "deepcopy": lambda model, cache: copy.deepcopy(cache),
    "end_prompt": lambda model, cache: cache.end_prompt(),
    "begin_prompt": lambda model, cache: cache.begin_prompt(),
}


@pytest.mark.parametrize("attention", ["varve", "sdpa"])
@pytest.mark.parametrize("turn", TURNS)
def test_a_forward_that_broke_off_does_not_stand_in_the_way_of_a_copy(turn, attention):
    model, cache, twin = make_twins(attention=attention)
    expected = run(model, make_twins(attention=attention)[1])
    break_off(model, cache)
    TURNS[turn](model, twin)
    assert cache.store.forward is None and cache.get_seq_length() == 70
    assert torch.equal(run(model, cache), expected), "and it is run again as if it had never begun"


def test_long_forwards_take_turns_too():
    """Their rows wait outside of a step."""
    model, cache, twin = make_twins(POLICY)
    break_off(model, cache, 150)
    assert len(cache.store.forward.waiting) == 2
    run(model, twin, 150)
    assert cache.store.forward is None
    run(model, cache, 150)
    assert cache.get_seq_length() == twin.get_seq_length() == 220


def test_a_forward_that_a_copy_has_ended_says_so():
    model, cache, twin = make_twins()
    layer = model.model.layers[2]
    original = layer.forward

    def forward(*args, **kwargs):
        layer.forward = original
        run(model, twin)
        return original(*args, **kwargs)

    layer.forward = forward
    with pytest.raises(varve.Error, match="layer 2: no forward is open.*turns of a copy of the cache end a forward: run it again"):
        run(model, cache)
    run(model, cache)
    assert cache.get_seq_length() == twin.get_seq_length() == 71


def test_a_copy_that_goes_during_a_forward_gives_its_sequences_back_behind_it():
    model, cache, twin = make_twins()
    native = cache.native
    break_off(model, cache)
    del twin
    gc.collect()
    assert native.stats()["sequences"] == 4, "the open step is in the way"
    run(model, make_twins()[1])  # of another native cache: nothing happens here
    assert native.stats()["sequences"] == 4
    with pytest.raises(varve.Error, match="have been rolled back: run it again"):
        run(model, cache)
    assert native.stats()["sequences"] == 2


def test_a_cache_that_goes_with_its_forward_open_leaves_nothing():
    model, cache, twin = make_twins()
    break_off(model, cache)
    del cache
    gc.collect()
    assert twin.stats()["sequences"] == 2
    run(model, twin)
    twin.reset()
    assert twin.stats()["sequences"] == 0


def test_reset_waits_for_the_forward_of_a_copy():
    model, cache, twin = make_twins()
    break_off(model, cache)
    twin.reset()
    assert twin.batch_size == -1 and cache.store.forward is not None
    cache.reset()
    assert cache.stats()["sequences"] == 0


def test_a_sequence_that_the_program_has_freed_is_no_error():
    _, cache, _ = make_twins()
    cache.native.free(cache.sequences[0])
    cache.reset()
    assert cache.stats()["sequences"] == 2, "those of the copy"
