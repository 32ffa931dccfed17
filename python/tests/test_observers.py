import gc
import weakref

import numpy as np
import pytest

import varve
from feed import feed, make_cache, make_rows


def test_attention_mass_of_pages_sums_to_one():
    """A step is told in pieces, cut where a page changes its form."""
    events = []
    cache = make_cache("q8_0", on_attention=events.append)
    sequence = cache.create_sequence()
    feed(cache, sequence, 200)
    pieces = [event for event in events if event.layer == 1]
    assert [event.first_position for event in pieces] == list(np.cumsum([0] + [len(e.mass) for e in pieces[:-1]]))
    assert sum(len(event.mass) for event in pieces) == 200
    for event in pieces:
        assert event.sequence == sequence and event.mass.shape[1:] == (6, len(event.pages))
        np.testing.assert_allclose(event.mass.sum(-1), 1, atol=1e-5)
    last = pieces[-1]
    assert [page.first_position for page in last.pages] == [0, 64, 128, 192] and last.pages[3].num_rows == 8
    assert (last.mass[:, :, :3] > 0).all()


def test_decisions_of_a_policy_are_told():
    events = []
    plan = "evict=window,ratio=2,sink=16,recent=32,trigger=128,page=16"
    cache = make_cache(plan, on_retention=events.append)
    feed(cache, cache.create_sequence(), 400)
    fates = {decision.fate for event in events for decision in event.pages}
    assert fates == {"kept", "dropped"}
    assert all(event.held_bytes <= event.target_bytes or event.floors_bind for event in events)
    kept = [d for d in events[-1].pages if d.fate == "kept"]
    assert kept[0].page.first_position == 0 and kept[0].rung == "f16"


def test_lines_of_the_log_are_told():
    lines = []
    plan = "evict=window,ratio=2,sink=16,recent=32,trigger=128,page=16,log_stats=1"
    cache = make_cache(plan, on_log=lines.append)
    feed(cache, cache.create_sequence(), 400)
    assert lines and all(isinstance(line, str) and "\n" not in line for line in lines)


def test_what_an_observer_raises_comes_out_of_the_call():
    def fail(event):
        raise KeyError("from the observer")

    cache = make_cache(on_attention=fail)
    sequence = cache.create_sequence()
    with pytest.raises(KeyError, match="from the observer"):
        feed(cache, sequence, 10)
    assert cache.next_position(sequence) == 0


def test_an_observer_must_not_call_into_its_cache():
    cache = make_cache(on_attention=lambda event: cache.stats())
    with pytest.raises(varve.Error, match="must not call into the cache"):
        feed(cache, cache.create_sequence(), 10)


class Watcher:
    """Holds a cache, which calls its methods: a cycle."""

    def __init__(self, *names):
        self.calls = 0
        self.cache = make_cache(**{name: self.watch for name in names})

    def watch(self, event):
        self.calls += 1


@pytest.mark.parametrize("name", ["on_attention", "on_retention", "on_log"])
def test_an_observer_may_hold_its_cache_and_goes_with_it(name):
    watcher = Watcher(name)
    feed(watcher.cache, watcher.cache.create_sequence(), 10)
    gone = weakref.ref(watcher)
    del watcher
    gc.collect()
    assert gone() is None


def test_an_open_step_keeps_the_observers_of_a_cache_that_nobody_holds():
    watcher = Watcher("on_attention")
    sequence = watcher.cache.create_sequence()
    step, gone = watcher.cache.step(sequence, 2), weakref.ref(watcher)
    del watcher
    gc.collect()
    for layer in range(2):
        step.append(layer, sequence, make_rows(2), make_rows(2))
        step.attend(layer, sequence, make_rows(2, heads=6))
    step.commit()
    assert gone().calls == 2
    del step
    gc.collect()
    assert gone() is None


def test_an_own_policy_is_an_observer_and_remove_range():
    """Drop the page with the least mass, after each step."""
    masses = {}

    def watch(event):
        if event.layer == 0:
            for page, mass in zip(event.pages, event.mass.sum((0, 1))):
                masses[page.first_position] = masses.get(page.first_position, 0.0) + mass

    cache = make_cache("q8_0", on_attention=watch)
    sequence = cache.create_sequence()
    feed(cache, sequence, 320)
    least = min(masses, key=masses.get)
    cache.remove_range(sequence, least, least + 64)
    assert cache.describe(sequence, 0)["live_rows"] == 256
    assert least not in {page.first_position for page in cache.describe(sequence, 0)["pages"]}
    cache.attend(0, sequence, make_rows(1, heads=6))
