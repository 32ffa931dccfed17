"""VarveCache for models on a GPU. Where its kernels are emulated, the model is on the CPU and its rows cross over."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: ./dev check python runs these tests")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: ./dev check python has it")

from gpu import EMULATED, need_gpu  # noqa: E402
from test_transformers import generate, make_inputs, make_model, reference  # noqa: E402

import varve  # noqa: E402
from varve import _native  # noqa: E402
from varve.transformers import VarveCache, exact_plan  # noqa: E402
from varve.transformers.model_plan import shape_of, windows_of  # noqa: E402

need_gpu()
DEVICE = "cpu" if EMULATED else "cuda:0"
real = pytest.mark.skipif(EMULATED, reason="needs tensors of torch on a GPU")


class CrossingCache(VarveCache):
    """A cache on an emulated GPU for rows of the CPU."""

    def _make_store(self):
        native = _native.Cache(shape_of(self._config), self.plan, device="cuda", **self._options)
        store = self.store_class(native, windows_of(self._config), self.plan, self._key_pairs)
        store.device = torch.device("cpu")
        return store


def gpu_model(family="Llama", dtype=torch.float16, **changes):
    return make_model(family, head_dim=64, **changes).to(DEVICE, dtype)


def gpu_cache(model, plan=None, **options):
    return (CrossingCache if EMULATED else VarveCache)(model.config, exact_plan(model) if plan is None else plan, num_threads=1, **options)


def gpu_inputs(*args, **kwargs):
    return {name: tensor.to(DEVICE) for name, tensor in make_inputs(*args, **kwargs).items()}


@pytest.mark.parametrize("family", ["Llama", "Qwen3"])
def test_greedy_tokens_are_those_of_dynamic_cache(family):
    """In f16 two ways of summing may choose another token where two are nearly as likely; after that the texts differ."""
    model = gpu_model(family)
    inputs = gpu_inputs()
    expected, found = reference(model, inputs, 24), generate(model, inputs, gpu_cache(model), 24)
    assert torch.equal(found[:, :74], expected[:, :74]), "the first tokens at least"
    assert (found == expected).float().mean() > 0.9


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


def test_beams_and_padding():
    model = gpu_model()
    inputs = gpu_inputs()
    expected = reference(model, inputs, 16, num_beams=3)
    found = generate(model, inputs, gpu_cache(model), 16, num_beams=3)
    assert found.shape == expected.shape and torch.equal(found[:, :72], expected[:, :72])
    alone = [
        generate(model, {k: v[row : row + 1, start:] for k, v in inputs.items()}, gpu_cache(model), 16)[0, 70 - start :]
        for row, start in enumerate((13, 0))
    ]
    together = generate(model, inputs, gpu_cache(model), 16)
    for row in range(2):
        assert (together[row, 70:] == alone[row]).float().mean() > 0.8


def test_sliding_windows_and_policies():
    for family, plan in (("Gemma3Text", None), ("Llama", "evict=h2o,ratio=2,sink=64,recent=64,trigger=128,every=8")):
        model = gpu_model(family, num_hidden_layers=2)
        assert generate(model, gpu_inputs(1, 200, padding=()), gpu_cache(model, plan), 12).shape == (1, 212)


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


@real
def test_attention_that_is_not_ours_gets_decoded_rows():
    model = gpu_model(attention="sdpa")
    inputs = gpu_inputs()
    expected = reference(model, inputs, 16)
    assert torch.equal(generate(model, inputs, gpu_cache(model), 16)[:, :74], expected[:, :74])


@real
def test_the_device_is_that_of_the_first_rows_or_the_one_that_is_named():
    model = gpu_model()
    cache = VarveCache(model.config, "q8_0")
    assert cache.native.device == "cpu"
    generate(model, gpu_inputs(), cache, 4)
    assert cache.native.device == "cuda:0" and cache.layers[0].keys.device.type == "cuda"
    with pytest.raises(varve.Error, match='rows are on cuda:0, the cache is on cpu.*device="cuda:0"'):
        generate(model, gpu_inputs(), VarveCache(model.config, "q8_0", device="cpu"), 4)
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
