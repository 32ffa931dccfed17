"""Rows of several runs in one table: presses need another environment than plans do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

# What must be the same for rows to be compared. The model may lie in another folder there.
_SAME = ("ctx", "windows", "text", "halves", "questions")


_ADVICE = "write it with python -m varve.eval --json"


def read_text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: is no UTF-8 text: byte {error.start} is {error.object[error.start]:#04x}") from error


def read_json(path: str) -> Any:
    try:
        return json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: is no JSON: {error}") from error


def _check_rows(path: str, rows: Any) -> None:
    named = isinstance(rows, list) and all(isinstance(row, dict) and isinstance(row.get("plan"), str) for row in rows)
    if not named or not rows or not isinstance(rows[0].get("perplexity"), (int, float)):
        raise ValueError(f"{path}: rows are not those of a table whose first row is DynamicCache; {_ADVICE}")


def load_runs(paths: list[str]) -> list[dict[str, Any]]:
    """Documents that --json wrote."""
    runs = []
    for path in paths:
        run = read_json(path)
        if not isinstance(run, dict):
            raise ValueError(f"{path}: holds {type(run).__name__}, not an object; {_ADVICE}")
        missing = [key for key in (*_SAME, "rows") if key not in run]
        if missing:
            raise ValueError(f"{path}: {missing[0]} is missing; {_ADVICE}")
        _check_rows(path, run["rows"])
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
