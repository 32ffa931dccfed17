"""Quality and cost of plans on any Hugging Face model: `python -m varve.eval MODEL --kv q8_0 t4`.

Windows, pieces and scores are those of `varve eval kl`, so figures of the two may be compared.
"""

from varve.eval.lanes import Lane, make_lanes
from varve.eval.recall import make_prompts, measure_recall
from varve.eval.speed import measure_decode
from varve.eval.windows import cut_windows, evaluate_windows

__all__ = ["Lane", "cut_windows", "evaluate_windows", "make_lanes", "make_prompts", "measure_decode", "measure_recall"]
