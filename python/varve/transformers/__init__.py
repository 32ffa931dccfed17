"""Varve caches for Hugging Face transformers.

    from varve.transformers import VarveCache

    model = AutoModelForCausalLM.from_pretrained(NAME, attn_implementation="varve")
    model.generate(**inputs, past_key_values=VarveCache(model.config, "t4"))

Importing this module registers the attention function `varve`, which works on stored bytes, and its mask function. With
any other attention the cache compresses all the same, and hands decoded rows to the model at every step.
"""

from varve.transformers.attention import register
from varve.transformers.cache import VarveCache, VarveLayer
from varve.transformers.cross import VarveCrossCache, encoder_decoder_cache
from varve.transformers.model_plan import exact_plan, shape_of

__all__ = ["VarveCache", "VarveCrossCache", "VarveLayer", "encoder_decoder_cache", "exact_plan", "shape_of"]

register()
