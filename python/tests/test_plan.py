import json

import pytest

import varve

SHAPE = varve.Shape(num_layers=4, num_kv_heads=2, key_dim=64, group_size=2)


def test_text_and_json_are_the_same_plan():
    plan = varve.Plan("0-1: f16; 2-: q4_0r, open=128")
    assert varve.Plan.from_json(plan.to_json()) == plan
    assert varve.Plan(str(plan)) == plan
    assert json.loads(plan.to_json())["rules"][1]["open"] == 128
    assert len({plan, varve.Plan(str(plan)), varve.Plan("q8_0")}) == 2


def test_a_plan_equals_its_text_and_nothing_that_is_no_plan():
    plan = varve.Plan("q8_0")
    assert plan == "q8_0" and "q8_0" == plan and plan != "t4"
    assert plan != "q9_0" and not plan == "q9_0", "a text that is no plan"
    assert plan != None and plan != 3 and plan in [None, 3, "q9_0", plan]  # noqa: E711


def test_a_wrong_clause_is_quoted_with_its_column():
    with pytest.raises(varve.Error, match=r'clause 2 "v=q9_0" \(column 8\): unknown rung') as caught:
        varve.Plan("k=q8_0,v=q9_0")
    assert caught.value.code == "invalid argument"


def test_a_cache_takes_text_or_a_plan():
    assert varve.Cache(SHAPE, "q8_0").plan == varve.Cache(SHAPE, varve.Plan("q8_0")).plan


def test_estimates_are_what_a_cache_holds():
    from feed import feed, make_cache

    cache = make_cache("q8_0,open=64")
    feed(cache, cache.create_sequence(), 640)
    cost = varve.Plan("q8_0,open=64").estimate(cache.shape, 640)
    assert cost["payload"] == cache.stats()["bytes_used"]
    assert sum(r["bytes"] for r in cost["ranges"]) == cost["bytes"]
    assert [stage["state"] for stage in cost["ranges"][0]["stages"]][-1] == "sealed"


def test_a_plan_that_the_shape_cannot_honour_is_refused_by_both():
    shape = varve.Shape(num_layers=4, num_kv_heads=1, key_dim=80)
    with pytest.raises(varve.Error, match="80"):
        varve.Cache(shape, "q8_0")
    with pytest.raises(varve.Error, match="80"):
        varve.Plan("q8_0").estimate(shape, 100)
    cost = varve.Plan("q8_0,fallback=f16").estimate(shape, 100)
    assert {use["used"] for use in cost["fallbacks"]} == {"f16"}


def test_layers_beyond_the_last_are_refused():
    with pytest.raises(varve.Error, match="layer"):
        varve.Cache(SHAPE, "0-7: q8_0")
