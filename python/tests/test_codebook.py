import numpy as np
import pytest

import varve
from feed import SHAPE, feed, make_cache

ROWS = np.random.default_rng(3).normal(size=(2, 2, 2000, 64)).astype(np.float32)


def relative_error(codebook, plan):
    cache = make_cache(plan, codebook=codebook)
    sequence = cache.create_sequence()
    keys, _, _, _ = feed(cache, sequence, 256)
    decoded = cache.read_rows(sequence, 0, "k").transpose(1, 0, 2)
    return ((decoded - keys) ** 2).sum() / (keys**2).sum()


def test_trained_centroids_are_good_for_gaussian_rows():
    """2 bits a value: the distortion-rate bound is 1/16, a good quantizer of single values has 0.1175."""
    codebook = varve.train_codebook(ROWS, ROWS, k=(32, 4), v=(16, 4), iterations=8)
    error = relative_error(codebook, "k=pq32x4,v=pq16x4,open=0,exact=0")
    assert 1 / 16 < error < 0.16


def test_training_depends_on_the_seed_alone():
    def train(seed):
        return varve.train_codebook(ROWS[..., :300, :], ROWS[..., :300, :], k=(8, 4), v=(8, 4), iterations=2, seed=seed)

    assert train(1).hash == train(1).hash != train(2).hash


def test_a_codebook_is_saved_and_parsed(tmp_path):
    small = ROWS[..., :300, :]
    codebook = varve.train_codebook(small, small, k=(16, 4), v=(8, 5), iterations=1, model_name="tests")
    path = str(tmp_path / "book")
    codebook.save(path)
    assert varve.Codebook.load(path).hash == varve.Codebook.parse(codebook.to_bytes()).hash == codebook.hash
    assert [(t.part, t.num_subspaces, t.bits) for t in codebook.tables] == [("k", 16, 4), ("v", 8, 5)]
    with pytest.raises(varve.Error):
        varve.Codebook.parse(codebook.to_bytes()[:-1])


@pytest.mark.parametrize("step", [2, -1])
def test_bytes_with_gaps_are_refused(step):
    """They would be read as if they lay side by side, from the first one on."""
    small = ROWS[..., :300, :]
    codebook = varve.train_codebook(small, small, k=(16, 4), v=(8, 5), iterations=1)
    content = np.frombuffer(codebook.to_bytes(), np.uint8)
    spread = np.zeros(2 * len(content), np.uint8)[: abs(step) * len(content)][::step]
    spread[:] = content
    with pytest.raises(varve.Error, match=f"bytes: dimension 0 has a stride of {step} bytes, not 1; make the array contiguous"):
        varve.Codebook.parse(spread)
    with pytest.raises(varve.Error, match=f"bytes: dimension 0 has a stride of {step} bytes"):
        varve.Codebook.parse(memoryview(spread))
    assert varve.Codebook.parse(spread.copy()).hash == codebook.hash
    assert varve.Codebook.parse(np.broadcast_to(content, (1, len(content)))).hash == codebook.hash, "of one value a stride may be 0"


def test_a_codebook_that_is_missing_or_does_not_fit_is_refused():
    with pytest.raises(varve.Error, match="codebook"):
        make_cache("pq32x4")
    small = ROWS[:1, :, :300]
    codebook = varve.train_codebook(small, small, k=(32, 4), v=(32, 4), iterations=1)
    with pytest.raises(varve.Error, match="1"):
        varve.Cache(varve.Shape(**SHAPE), "pq32x4", codebook=codebook)
    with pytest.raises(ValueError, match="choose a divisor"):
        varve.train_codebook(small, small, k=(7, 4), v=(8, 4))
    with pytest.raises(ValueError, match=r"is not \[layers, kv_heads, tokens, dim\]"):
        varve.train_codebook(small[0], small, k=(8, 4), v=(8, 4))
