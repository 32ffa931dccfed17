"""What a model's configuration means for a cache: its shape, and the plan with the windows of sliding layers."""

from __future__ import annotations

import json
from typing import Any

import torch
from transformers.cache_utils import get_layer_types_and_kwargs

from varve._native import Error, Plan, Shape

_DROPPING = ("evict", "window", "fold")  # clauses after which rows are missing
_RESTING = ("idle", "idle_k", "idle_v")
CROP_MARGIN = 64  # tokens that stay behind a window of the model, so that candidates of assisted decoding can be cropped
_EXACT = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}


def check_dtype(dtype: torch.dtype) -> None:
    if dtype not in _EXACT:
        raise Error(f"{dtype} has no rung; load the model in float32, float16 or bfloat16 (dtype=…)")


def exact_plan(model_or_dtype: Any) -> str:
    """The plan that stores rows of a model (or dtype) as they are: outputs are those of DynamicCache but for rounding.

    >>> exact_plan(torch.bfloat16)
    'bf16,open_rung=bf16'
    """
    dtype = model_or_dtype if isinstance(model_or_dtype, torch.dtype) else model_or_dtype.dtype
    check_dtype(dtype)
    return f"{_EXACT[dtype]},open_rung={_EXACT[dtype]}"


def shape_of(config: Any) -> Shape:
    """The cache's shape of a decoder. Raises where layers differ, or a layer keeps something else than rows."""
    config = config.get_text_config(decoder=True)
    types, _ = get_layer_types_and_kwargs(config)
    odd = sorted(set(types) - {"full_attention", "sliding_attention"})
    if odd:
        raise Error(f"{type(config).__name__}: layers of type {', '.join(odd)} keep more than keys and values; "
                    "VarveCache takes full_attention and sliding_attention")
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    if heads % kv_heads:
        raise Error(f"{type(config).__name__}: {heads} heads are no multiple of {kv_heads} KV heads")
    return Shape(num_layers=len(types), num_kv_heads=kv_heads, key_dim=head_dim, group_size=heads // kv_heads)


def pair_order(dim: int) -> torch.Tensor:
    """Channels that RoPE turns together lie dim / 2 apart in transformers; in this order they lie side by side.

    >>> pair_order(6).tolist()
    [0, 3, 1, 4, 2, 5]
    """
    return torch.arange(dim).view(2, dim // 2).T.reshape(-1)


def windows_of(config: Any) -> list[int]:
    """The model's own sliding window of every layer; 0 is none."""
    types, arguments = get_layer_types_and_kwargs(config.get_text_config(decoder=True))
    if isinstance(arguments, dict):  # up to transformers 5.17: the same for all layers
        arguments = [arguments] * len(types)
    return [
        kwargs["sliding_window"] if kind == "sliding_attention" else 0 for kind, kwargs in zip(types, arguments)
    ]


def rules_of(plan: Plan) -> list[dict]:
    """The rules of a plan, each with `layers`."""
    rules = json.loads(plan.to_json())
    rules = rules.get("rules", [rules] if rules else [])
    return [{"layers": "0-"} | rule for rule in rules]


def drops_rows(plan: Plan) -> list[str]:
    """Clauses of the plan that leave rows out; empty if there are none."""
    return sorted({clause for rule in rules_of(plan) for clause in _DROPPING if clause in rule})


def has_rest(plan: Plan) -> bool:
    """Whether a layer has a form of its own for sequences at rest."""
    return any(clause in rule for rule in rules_of(plan) for clause in _RESTING)


def _layers_of(text: str | int, num_layers: int) -> range:
    first, dash, last = str(text).partition("-")
    if not dash:
        return range(int(first), int(first) + 1)
    return range(int(first), int(last) + 1 if last else num_layers)


def _rule_of_layer(plan: Plan, num_layers: int) -> list[dict] | None:
    """None if a rule names layers that are not there."""
    found: list[dict] = [{} for _ in range(num_layers)]
    for rule in rules_of(plan):
        layers = _layers_of(rule["layers"], num_layers)
        if layers.stop > num_layers:
            return None
        for layer in layers:
            found[layer] = {key: value for key, value in rule.items() if key != "layers"}
    return found


def check_croppable(plan: Plan, windows: list[int]) -> None:
    """Raises where the plan's own window= drops what a crop must find in a layer with a window."""
    for layer, (rule, window) in enumerate(zip(_rule_of_layer(plan, len(windows)) or [], windows)):
        kept = rule.get("window", window + CROP_MARGIN)
        if window and kept < window + CROP_MARGIN:
            raise Error(
                f"layer {layer}: tokens cannot be cropped, since window={kept} of the plan drops rows that the model's window of "
                f"{window} sees again then; use window={window + CROP_MARGIN} or more there, or none"
            )


def plan_with_windows(plan: Plan, windows: list[int]) -> Plan:
    """The plan, in which layers with a window of their own also drop what no query can see any more: neither now nor when up to
    CROP_MARGIN tokens are cropped.

    Where the plan has a policy or a window for such a layer already, the stricter one holds.
    """
    if not any(windows):
        return plan
    rule_of_layer = _rule_of_layer(plan, len(windows))
    if rule_of_layer is None:
        return plan  # making the cache says what is wrong
    rules = []
    for layer, (rule, window) in enumerate(zip(rule_of_layer, windows)):
        if window and "evict" not in rule and "fold" not in rule:
            kept = window + CROP_MARGIN
            rule = rule | {"window": min(kept, rule.get("window", kept))}
        if rule:
            rules.append({"layers": str(layer)} | rule)
    return Plan.from_json(json.dumps({"rules": rules}))
