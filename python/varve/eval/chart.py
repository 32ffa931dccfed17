"""KL against bytes, as a picture."""

from __future__ import annotations

from typing import Any


def draw_chart(rows: list[dict[str, Any]], title: str, path: str) -> None:
    """One point per row but the reference. Needs matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5), constrained_layout=True)
    for row in rows[1:]:
        ours = not row["plan"].startswith("QuantizedCache")
        axes.plot(row["bytes_per_token"], max(row["kl_mean"], 1e-12), "o" if ours else "s", color="C0" if ours else "C1")
        axes.annotate(row["plan"], (row["bytes_per_token"], max(row["kl_mean"], 1e-12)), fontsize=8,
                      textcoords="offset points", xytext=(5, 4))
    axes.set_yscale("log")
    axes.set_xlabel("bytes per token, all layers")
    axes.set_ylabel("KL to DynamicCache, nats per token")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    figure.savefig(path)
    pyplot.close(figure)
