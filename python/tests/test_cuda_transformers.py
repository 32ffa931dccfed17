"""VarveCache for models on a GPU. Where its kernels are emulated, the model is on the CPU and its rows cross over."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: ./dev check python runs these tests")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: ./dev check python has it")

from gpu import EMULATED, need_gpu  # noqa: E402
from test_transformers import generate, make_inputs, make_model, reference  # noqa: E402
from transformers import DynamicCache  # noqa: E402

import varve  # noqa: E402
from varve import _native  # noqa: E402
from varve.transformers import VarveCache, exact_plan  # noqa: E402
from varve.transformers.dense import dense_attention  # noqa: E402
from varve.transformers.model_plan import shape_of, windows_of  # noqa: E402

need_gpu()
DEVICE = "cpu" if EMULATED else "cuda:0"
real = pytest.mark.skipif(EMULATED, reason="needs tensors of torch on a GPU")
# Of logits in f16, in units of their standard deviation. Rounding alone gives 0.001 and 0.006, rows in wrong places 0.1 and more.
MEAN_ERROR, MAX_ERROR = 0.005, 0.03
SCORE_ERROR = 0.005  # of a mean log probability


class CrossingCache(VarveCache):
    """A cache on an emulated GPU for rows of the CPU."""

    def _make_native(self, plan):
        return _native.Cache(shape_of(self._config), plan, device="cuda", **self._options)

    def _make_store(self):
        store = super()._make_store()
        store.device = torch.device("cpu")
        return store


def gpu_model(family="Llama", dtype=torch.float16, **changes):
    return make_model(family, head_dim=64, **changes).to(DEVICE, dtype)


def gpu_cache(model, plan=None, **options):
    return (CrossingCache if EMULATED else VarveCache)(model.config, exact_plan(model) if plan is None else plan, num_threads=1, **options)


def gpu_inputs(*args, **kwargs):
    return {name: tensor.to(DEVICE) for name, tensor in make_inputs(*args, **kwargs).items()}


def positions_of(mask):
    return (mask.cumsum(1) - 1).clamp(min=0)


def forced_logits(model, inputs, cache, text):
    """Logits on the way through `text`, whatever they would choose: [batch, tokens, vocabulary], f32."""
    begin = inputs["input_ids"].shape[1]
    output = generate(
        model, inputs, cache, text.shape[1] - begin, output_logits=True, return_dict_in_generate=True,
        prefix_allowed_tokens_fn=lambda row, ids: [int(text[row, len(ids)])],
    )
    assert torch.equal(output.sequences, text)
    return torch.stack(output.logits, 1).float()


def dynamic_logits(model, inputs, text):
    """Those of DynamicCache with the model's own eager attention."""
    chosen = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        return forced_logits(model, inputs, DynamicCache(config=model.config), text)
    finally:
        model.set_attn_implementation(chosen)


def assert_rounding_alone(logits, expected):
    """f16 models that sum in another order differ by a thousandth of what their logits vary by; with wrong rows by a third."""
    error = (logits - expected).abs() / expected.std()
    assert error.mean() < MEAN_ERROR and error.max() < MAX_ERROR


def assert_same_text_but_for_ties(found, expected, logits):
    """Rows may part at a token that the logits of `expected`, [batch, tokens, vocabulary], like no better than the other."""
    begin = expected.shape[1] - logits.shape[1]
    for row in range(len(expected)):
        for at in (found[row] != expected[row]).nonzero().flatten().tolist()[:1]:
            gap = logits[row, at - begin, expected[row, at]] - logits[row, at - begin, found[row, at]]
            assert gap.abs() < 2 * MAX_ERROR * logits.std(), f"row {row} parts at token {at}"


@pytest.mark.parametrize("family", ["Llama", "Qwen3"])
def test_greedy_tokens_are_those_of_dynamic_cache(family):
    """In f16 two ways of summing may choose another token where two are nearly as likely; after that the texts differ.
    Logits on the way through one text do not."""
    model = gpu_model(family)
    inputs = gpu_inputs()
    expected = reference(model, inputs, 24)
    logits = dynamic_logits(model, inputs, expected)
    assert_same_text_but_for_ties(generate(model, inputs, gpu_cache(model), 24), expected, logits)
    assert_rounding_alone(forced_logits(model, inputs, gpu_cache(model), expected), logits)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("plan", ["f16", "q8_0", "t4,exact=0", "k=q8_0,v=t4,exact=0"])
def test_logits_are_those_of_a_cache_on_the_cpu(plan, dtype):
    ids = make_inputs(1, 150, padding=())["input_ids"]
    logits = []
    for device in ("cpu", "cuda"):
        model = make_model(head_dim=64).to(dtype)
        model = model.to(DEVICE if device == "cuda" else "cpu")
        cache = gpu_cache(model, plan) if device == "cuda" else VarveCache(model.config, plan)
        with torch.no_grad():
            first = model(ids.to(model.device), past_key_values=cache).logits
            last = model(ids[:, :1].to(model.device), past_key_values=cache).logits
        logits.append(torch.cat([first, last], 1).float().cpu())
        assert cache.native.device == ("cpu" if device == "cpu" else "cuda:0")
    spread = logits[0].std()
    assert (logits[1] - logits[0]).abs().mean() < (0.02 if dtype == torch.float16 else 0.08) * spread


def test_a_padded_batch_is_its_rows_alone():
    model = gpu_model()
    inputs = gpu_inputs()
    together = generate(model, inputs, gpu_cache(model), 16)
    logits = forced_logits(model, inputs, gpu_cache(model), together)
    for row, start in enumerate((13, 0)):
        single = {name: tensor[row : row + 1, start:] for name, tensor in inputs.items()}
        alone = forced_logits(model, single, gpu_cache(model), together[row : row + 1, start:])
        assert_rounding_alone(alone, logits[row : row + 1])


def test_beams_are_scored_by_what_they_say():
    """A beam's score is summed up while rows of the cache are forked and thrown away. Read once more, its text has the same."""
    model = gpu_model()
    inputs = gpu_inputs()
    output = generate(
        model, inputs, gpu_cache(model), 16, num_beams=3, num_return_sequences=3, output_scores=True, return_dict_in_generate=True,
    )
    assert len({tuple(text) for text in output.sequences.tolist()}) == 6, "beams that differ"
    tripled = {name: tensor.repeat_interleave(3, 0) for name, tensor in inputs.items()}
    logits = dynamic_logits(model, tripled, output.sequences).log_softmax(-1)
    scores = logits.gather(2, output.sequences[:, 70:, None]).mean((1, 2))
    error = (scores - output.sequences_scores).abs().max()
    assert error < SCORE_ERROR


def test_rows_that_change_places():
    """What beams do, as a fixed script: both caches are told the same, and say the same."""
    model = gpu_model()
    inputs = gpu_inputs()
    random = np.random.default_rng(3)
    turns = [(random.integers(0, 6, 6), random.integers(2, 120, (6, 1))) for _ in range(12)]
    logits = []
    for attention in ("varve", "eager"):
        model.set_attn_implementation(attention)
        cache = gpu_cache(model) if attention == "varve" else DynamicCache(config=model.config)
        mask, found = inputs["attention_mask"].repeat_interleave(3, 0), []
        with torch.no_grad():
            model(**inputs, position_ids=positions_of(inputs["attention_mask"]), past_key_values=cache)
            cache.batch_repeat_interleave(3)
            for parents, tokens in turns:
                parents, tokens = (torch.from_numpy(x).to(DEVICE) for x in (parents, tokens))
                cache.reorder_cache(parents)
                mask = torch.cat([mask[parents], torch.ones_like(tokens)], 1)
                positions = positions_of(mask)[:, -1:]
                found.append(model(tokens, attention_mask=mask, position_ids=positions, past_key_values=cache).logits)
        logits.append(torch.cat(found, 1).float())
    assert_rounding_alone(*logits)


def test_sliding_layers_drop_pages_and_say_the_same():
    model = gpu_model("Gemma3Text")
    inputs = gpu_inputs(1, 200, padding=())
    text = reference(model, inputs, 12)
    cache = gpu_cache(model)
    assert_rounding_alone(forced_logits(model, inputs, cache, text), dynamic_logits(model, inputs, text))
    assert cache.stats()["pages_dropped"] > 0


def test_a_policy_keeps_to_its_ratio():
    model = gpu_model(num_hidden_layers=2)
    cache = gpu_cache(model, "evict=h2o,ratio=2,sink=64,recent=64,trigger=128,every=8")
    assert generate(model, gpu_inputs(1, 200, padding=()), cache, 12).shape == (1, 212)
    assert cache.stats()["pages_dropped"] > 0


def test_an_observer_costs_no_rows():
    """With one, every step is preceded by forks, which give their pages back."""
    model = gpu_model(num_hidden_layers=2)
    inputs = gpu_inputs(1, 100, padding=())
    plain, observed = gpu_cache(model, "q8_0"), gpu_cache(model, "q8_0", on_retention=lambda event: None)
    text = generate(model, inputs, plain, 8)
    assert torch.equal(forced_logits(model, inputs, observed, text), forced_logits(model, inputs, gpu_cache(model, "q8_0"), text))
    assert observed.stats()["bytes_used"] == plain.stats()["bytes_used"]


def test_a_forward_that_is_longer_than_a_step():
    """Attended by torch on exact rows, then stored; the next one sees what is stored."""
    model = gpu_model(num_hidden_layers=2)
    ids = make_inputs(1, 4200, padding=())["input_ids"].to(DEVICE)
    at_once, in_parts = gpu_cache(model), gpu_cache(model)
    with torch.no_grad():
        model(ids, past_key_values=at_once, logits_to_keep=1)
        for begin in range(0, 4200, 2100):
            model(ids[:, begin : begin + 2100], past_key_values=in_parts, logits_to_keep=1)
        last = [model(ids[:, :1], past_key_values=cache).logits.float() for cache in (at_once, in_parts)]
    assert at_once.get_seq_length() == 4201
    assert (last[0] - last[1]).abs().mean() < 0.02 * last[0].std()


def test_a_cache_on_the_gpu_is_saved_and_read_on_the_cpu(tmp_path):
    model = gpu_model()
    cache = gpu_cache(model, "q8_0")
    generate(model, gpu_inputs(1, 100, padding=()), cache, 8)
    path = str(tmp_path / "cache.varve")
    cache.native.save(path)
    host = varve.Cache(cache.native.shape, cache.native.plan)
    ((sequence, _),) = host.load(path)
    assert (host.read_rows(sequence, 3, "v") == cache.native.read_rows(cache.sequences[0], 3, "v")).all()
    twin = copy.deepcopy(cache)
    assert twin.get_seq_length() == cache.get_seq_length() == 107


def test_attention_that_is_not_ours_gets_decoded_rows():
    """The rows that DynamicCache would have handed out."""
    model = gpu_model(attention="sdpa")
    inputs = gpu_inputs()
    expected = generate(model, inputs, DynamicCache(config=model.config), 16)
    theirs, ours = DynamicCache(config=model.config), gpu_cache(model)
    logits = forced_logits(model, inputs, theirs, expected)
    assert_same_text_but_for_ties(generate(model, inputs, gpu_cache(model), 16), expected, logits)
    assert_rounding_alone(forced_logits(model, inputs, ours, expected), logits)
    # Of the first layer, which no sum of attention has reached yet.
    for part in ("keys", "values"):
        assert torch.equal(getattr(ours.layers[0], part), getattr(theirs.layers[0], part))


@real
def test_long_prompts_take_no_memory_for_all_scores():
    """Rows in f32 that share heads have no fused kernel: 6 heads of 12000 x 12000 scores would be 3.2 GiB."""
    query, (key, value) = torch.randn(1, 6, 12000, 64, device=DEVICE), torch.randn(2, 1, 2, 12000, 64, device=DEVICE)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    dense_attention(query, key, value, None, 0.125)
    assert torch.cuda.max_memory_allocated() - before < 1 << 30


@real
def test_the_device_is_that_of_the_first_rows_or_the_one_that_is_named():
    model = gpu_model()
    inputs = gpu_inputs(padding=())  # rows of one length, so that they are one tensor
    cache = VarveCache(model.config, "q8_0")
    assert cache.native.device == "cpu"
    generate(model, inputs, cache, 4)
    assert cache.native.device == "cuda:0" and cache.layers[0].keys.device == model.device
    with pytest.raises(varve.Error, match='rows are on cuda:0, the cache is on cpu.*device="cuda:0"'):
        generate(model, inputs, VarveCache(model.config, "q8_0", device="cpu"), 4)
    named = VarveCache(model.config, "q8_0", device=model.device, max_bytes=64 << 20)
    assert named.native.device == "cuda:0"
    with pytest.raises(varve.Error, match="the cache is on cuda:0"):
        generate(model.to("cpu"), make_inputs(), named, 4)


@real
def test_decoding_does_not_wait_for_the_gpu():
    model = gpu_model()
    cache = gpu_cache(model, "t4")
    with torch.no_grad():
        model(gpu_inputs(1, 130, padding=())["input_ids"], past_key_values=cache)
        token = torch.ones(1, 1, dtype=torch.long, device=DEVICE)
        for _ in range(3):  # work buffers
            model(token, past_key_values=cache)
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(20):
                model(token, past_key_values=cache)
        finally:
            torch.cuda.set_sync_debug_mode("default")


@real
def test_the_host_runs_ahead_of_the_gpu():
    """torch's debug mode, above, sees torch's own waits alone."""
    model = gpu_model()
    cache = gpu_cache(model)
    with torch.no_grad():
        model(gpu_inputs(1, 130, padding=())["input_ids"], past_key_values=cache)
        token = torch.ones(1, 1, dtype=torch.long, device=DEVICE)
        for _ in range(3):  # work buffers
            model(token, past_key_values=cache)
        torch.cuda.synchronize()
        torch.cuda._sleep(2_000_000_000)  # a second
        slept = torch.cuda.Event()
        slept.record()
        model(token, past_key_values=cache)
        assert not slept.query(), "a token of four layers was launched while the GPU slept"
    torch.cuda.synchronize()


@real
def test_another_stream_of_torch():
    model = gpu_model()
    inputs = gpu_inputs(1, 100, padding=())
    expected = generate(model, inputs, gpu_cache(model, "q8_0"), 16)
    cache = gpu_cache(model, "q8_0")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        found = generate(model, inputs, cache, 16)
    torch.cuda.current_stream().wait_stream(stream)
    assert torch.equal(found, expected)
