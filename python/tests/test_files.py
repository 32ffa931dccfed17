import numpy as np
import pytest

import varve
from feed import feed, make_cache


def test_a_saved_cache_goes_on_where_it_was(tmp_path):
    path = str(tmp_path / "cache.varve")
    cache = make_cache("q8_0")
    first, second = cache.create_sequence(), cache.create_sequence()
    feed(cache, first, 150)
    feed(cache, second, 70, seed=3)
    cache.save(path, {second: [7, 8], first: [1]}, model_name="tests", model_fingerprint=5)
    varve.verify_cache_file(path)
    info = varve.cache_file_info(path)
    assert info["model_name"] == "tests" and info["plan"] == cache.plan
    assert [s["next_position"] for s in info["sequences"]] == [70, 150]
    again = varve.Cache(info["shape"], info["plan"])
    loaded = again.load(path, model_fingerprint=5)
    assert [tokens for _, tokens in loaded] == [[7, 8], [1]]
    np.testing.assert_array_equal(again.read_rows(loaded[1][0], 1, "v"), cache.read_rows(first, 1, "v"))


def test_a_file_of_another_plan_or_model_is_refused(tmp_path):
    path = str(tmp_path / "cache.varve")
    cache = make_cache("q8_0")
    feed(cache, cache.create_sequence(), 70)
    cache.save(path, model_fingerprint=5)
    with pytest.raises(varve.Error, match="plan"):
        make_cache("f16").load(path)
    with pytest.raises(varve.Error, match="fingerprint"):
        make_cache("q8_0").load(path, model_fingerprint=6)
    with pytest.raises(varve.Error, match="None saves all"):
        cache.save(path, {})
    with pytest.raises(varve.Error) as caught:
        cache.save("/no/such/folder/cache.varve")
    assert caught.value.code == "i/o error"


@pytest.mark.parametrize("step", [2, -1])
def test_an_image_of_pages_with_gaps_is_refused(step):
    cache = make_cache("q8_0")
    sequence = cache.create_sequence()
    feed(cache, sequence, 64)
    image = np.frombuffer(cache.export_pages(sequence, 0, 64), np.uint8)
    spread = np.zeros(2 * len(image), np.uint8)[: abs(step) * len(image)][::step]
    spread[:] = image
    other = cache.create_sequence()
    with pytest.raises(varve.Error, match=f"image: dimension 0 has a stride of {step} bytes, not 1; make the array contiguous"):
        cache.import_pages(other, spread)
    assert cache.next_position(other) == 0
    cache.import_pages(other, spread.copy())
    np.testing.assert_array_equal(cache.read_rows(other, 1, "v"), cache.read_rows(sequence, 1, "v"))


def test_a_damaged_page_is_an_error_that_names_the_file(tmp_path):
    path = tmp_path / "cache.varve"
    cache = make_cache("q8_0")
    feed(cache, cache.create_sequence(), 200)
    cache.save(str(path))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(varve.Error, match="cache.varve") as caught:
        varve.verify_cache_file(str(path))
    assert caught.value.code == "data loss"
