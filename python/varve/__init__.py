"""Varve: keys and values of transformers, in pages that sink to cheaper representations.

    cache = varve.Cache(varve.Shape(num_layers=30, num_kv_heads=3, key_dim=64, group_size=3), "t4")

`varve.transformers` has the cache for Hugging Face models; docs/python.md begins at the beginning.
"""

from varve._native import (
    AttentionEvent,
    Cache,
    Codebook,
    CodebookGrain,
    CodebookTable,
    Compressor,
    Error,
    PageDecision,
    PagePool,
    PageSpan,
    Plan,
    RetentionEvent,
    Shape,
    Step,
    __version__,
    backends,
    cache_file_info,
    rung_bytes_per_row,
    verify_cache_file,
)
from varve.feeding import prefill
from varve.training import train_codebook

__all__ = [
    "AttentionEvent",
    "Cache",
    "Codebook",
    "CodebookGrain",
    "CodebookTable",
    "Compressor",
    "Error",
    "PageDecision",
    "PagePool",
    "PageSpan",
    "Plan",
    "RetentionEvent",
    "Shape",
    "Step",
    "backends",
    "cache_file_info",
    "prefill",
    "rung_bytes_per_row",
    "train_codebook",
    "verify_cache_file",
]
