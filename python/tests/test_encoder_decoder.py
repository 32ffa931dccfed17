"""Whisper on an EncoderDecoderCache of Varve caches, with a small random model."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: ./dev check python runs these tests")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: ./dev check python has it")

from transformers import DynamicCache, EncoderDecoderCache, WhisperConfig, WhisperForConditionalGeneration  # noqa: E402

import varve  # noqa: E402
from varve.transformers import encoder_decoder_cache, exact_plan  # noqa: E402

torch.set_num_threads(1)
GREEDY = dict(do_sample=False, no_repeat_ngram_size=2, max_new_tokens=24)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(3)
    model = WhisperForConditionalGeneration(
        WhisperConfig(
            d_model=128, encoder_layers=2, decoder_layers=3, encoder_attention_heads=4, decoder_attention_heads=4,
            encoder_ffn_dim=128, decoder_ffn_dim=128, vocab_size=120, num_mel_bins=16, max_source_positions=150,
            max_target_positions=64, decoder_start_token_id=1, bos_token_id=1, eos_token_id=119, pad_token_id=0,
            suppress_tokens=[], begin_suppress_tokens=[],
        )
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(3)
    return model


def sound(batch=2):
    return torch.randn(batch, 16, 300, generator=torch.Generator().manual_seed(7))


def generate(model, cache, attention, features=None, **options):
    model.set_attn_implementation(attention)
    with torch.no_grad():
        # The plain generation loop: Whisper's own one cuts sounds into windows and makes the cache by itself.
        return transformers.GenerationMixin.generate(
            model, input_features=sound() if features is None else features, past_key_values=cache, **(GREEDY | options)
        )


def dynamic(model):
    return EncoderDecoderCache(DynamicCache(config=model.config), DynamicCache(config=model.config))


@pytest.mark.parametrize("attention", ["varve", "eager"])
def test_tokens_are_those_of_dynamic_cache(model, attention):
    expected = generate(model, dynamic(model), "eager")
    cache = encoder_decoder_cache(model.config, exact_plan(model), num_threads=1)
    assert torch.equal(generate(model, cache, attention), expected)
    assert cache.cross_attention_cache.get_seq_length() == 150
    assert cache.get_seq_length() == expected.shape[1] - 1


def test_beams_share_the_rows_of_a_sound(model):
    expected = generate(model, dynamic(model), "eager", num_beams=3)
    cache = encoder_decoder_cache(model.config, exact_plan(model), num_threads=1)
    assert torch.equal(generate(model, cache, "varve", num_beams=3), expected)
    cross = cache.cross_attention_cache
    assert cross.batch_size == 6
    single = encoder_decoder_cache(model.config, exact_plan(model), num_threads=1)
    generate(model, single, "varve")
    assert cross.stats()["bytes_used"] < 1.2 * single.cross_attention_cache.stats()["bytes_used"]


@pytest.mark.parametrize("plan, cross_plan", [("q8_0", None), ("f16", "q8_0"), ("t4", "t4"), ("q4_0r", "k=q8_0,v=q4_0r")])
def test_every_plan_generates(model, plan, cross_plan):
    exact = encoder_decoder_cache(model.config, exact_plan(model), num_threads=1)
    cache = encoder_decoder_cache(model.config, plan, cross_plan, num_threads=1)
    generate(model, exact, "varve")
    assert generate(model, cache, "varve").shape[1] > 2
    assert cache.cross_attention_cache.stats()["bytes_used"] < exact.cross_attention_cache.stats()["bytes_used"]


def test_a_second_sound_after_reset(model):
    cache = encoder_decoder_cache(model.config, exact_plan(model), num_threads=1)
    first = generate(model, cache, "varve")
    cache.reset()
    assert torch.equal(generate(model, cache, "varve"), first)


def test_a_first_forward_that_broke_off_asks_for_a_reset(model):
    """transformers takes the cross attention of its first layers for done."""
    cache = encoder_decoder_cache(model.config, exact_plan(model), num_threads=1)
    layer = model.model.decoder.layers[1]
    original, layer.forward = layer.forward, lambda *args, **kwargs: 1 / 0
    try:
        with pytest.raises(ZeroDivisionError):
            generate(model, cache, "varve")
    finally:
        layer.forward = original
    with pytest.raises(varve.Error, match="run it again"):
        generate(model, cache, "varve")
    with pytest.raises(varve.Error, match=r"its first forward broke off; call reset\(\)"):
        generate(model, cache, "varve")
    cache.reset()
    assert torch.equal(generate(model, cache, "varve"), generate(model, dynamic(model), "eager"))


def test_a_copy_of_an_empty_cache_goes_on_by_itself(model):
    cache = encoder_decoder_cache(model.config, exact_plan(model), num_threads=1)
    twin = copy.deepcopy(cache)
    expected = [generate(model, dynamic(model), "eager", sound()[:1]), generate(model, dynamic(model), "eager", sound()[1:])]
    rows = torch.zeros(1, 4, 150, 32)
    cache.cross_attention_cache.store.keep(0, rows, rows)  # a forward that breaks off behind its first layer
    assert cache.cross_attention_cache.get_seq_length() == 150 and twin.cross_attention_cache.get_seq_length() == 0
    with pytest.raises(varve.Error, match="crop: the first forward is not finished: 1 layers are done"):
        cache.cross_attention_cache.crop(-1)
    assert torch.equal(generate(model, twin, "varve", sound()[1:]), expected[1])
    assert torch.equal(generate(model, cache, "varve", sound()[:1]), expected[0])
    assert cache.cross_attention_cache.batch_size == twin.cross_attention_cache.batch_size == 1


def test_a_full_cache_refuses_another_sound(model):
    cache = encoder_decoder_cache(model.config, exact_plan(model), num_threads=1)
    generate(model, cache, "varve")
    cross = cache.cross_attention_cache
    rows = torch.zeros(2, 4, 150, 32)
    with pytest.raises(varve.Error, match="reset"):
        cross.layers[0].update(rows, rows)[0]._varve_rows.attend(None, torch.zeros(2, 4, 1, 32), rows, rows, None, 1.0, 0.0)


def test_a_sound_that_finds_no_room_leaves_nothing(model):
    """One row of the batch has room, both have not."""
    cache = encoder_decoder_cache(model.config, exact_plan(model), num_threads=1, max_bytes=800_000)
    cross = cache.cross_attention_cache
    with pytest.raises(varve.Error) as caught:
        generate(model, cache, "varve")
    assert caught.value.code == "out of memory"
    assert cross.batch_size == -1 and cross.stats()["sequences"] == 0 and cross.get_seq_length() == 0
    cache.reset()
    generate(model, cache, "varve", sound(1))
    assert cross.get_seq_length() == 150


def test_plans_that_drop_rows_are_refused_for_cross_attention(model):
    with pytest.raises(varve.Error, match="window="):
        encoder_decoder_cache(model.config, "f16", "window=64")
