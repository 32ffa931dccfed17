"""Rows of several runs in one table: presses need another environment than plans do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

# What must be the same for rows to be compared. The model may lie in another folder there.
_SAME = ("ctx", "windows", "text", "halves", "questions")


def load_runs(paths: list[str]) -> list[dict[str, Any]]:
    """Documents that --json wrote."""
    runs = []
    for path in paths:
        run = json.loads(Path(path).read_text(encoding="utf-8"))
        missing = [key for key in (*_SAME, "rows") if key not in run]
        if missing:
            raise ValueError(f"{path}: {missing[0]} is missing; write it with python -m varve.eval --json")
        runs.append(run | {"path": path})
    return runs


def merge_runs(run: dict[str, Any], others: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of `run`, then those of the others but their references. Refuses what has read something else."""
    rows = list(run["rows"])
    for other in others:
        for key in _SAME:
            if other[key] != run[key]:
                raise ValueError(f"{other['path']}: {key} is {other[key]}, here it is {run[key]}: not the same tokens")
        here, there = rows[0]["perplexity"], other["rows"][0]["perplexity"]
        if abs(here - there) > 1e-3 * here:
            raise ValueError(f"{other['path']}: DynamicCache has perplexity {there:.4f}, here {here:.4f}: not the same model")
        rows += [row for row in other["rows"][1:] if row["plan"] not in {known["plan"] for known in rows}]
    return rows
