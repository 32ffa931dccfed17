"""KL against bytes, as a picture."""

from __future__ import annotations

from typing import Any

_MARKS = {"plan": ("o", "C0"), "transformers": ("s", "C1"), "press": ("^", "C2")}


def draw_chart(rows: list[dict[str, Any]], title: str, path: str) -> None:
    """One point per row but the reference: plans, caches of transformers, presses. Needs matplotlib.

    Behind a prompt its bytes are those one token behind it, else those at the window's end.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5), constrained_layout=True)
    for row in rows[1:]:
        point = row.get("prompt_bytes_per_token", row["bytes_per_token"]), max(row["kl_mean"], 1e-12)
        marker, color = _MARKS[row["kind"]]
        axes.plot(*point, marker, color=color)
        axes.annotate(row["plan"], point, fontsize=8, textcoords="offset points", xytext=(5, 4))
    axes.set_yscale("log")
    axes.set_xlabel("bytes per token, all layers")
    axes.set_ylabel("KL to DynamicCache, nats per token")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    figure.savefig(path)
    pyplot.close(figure)
