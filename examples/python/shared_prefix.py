"""One prompt, many continuations: the prompt's pages are stored once. Usage: shared_prefix.py [MODEL]"""

import torch
from small_model import load_model

from varve.transformers import VarveCache

COUNT = 8
model, prompt = load_model()
cache = VarveCache(model.config, "q8_0")
with torch.no_grad():
    model(prompt[:, :-1], past_key_values=cache)
alone = cache.stats()["bytes_used"]
cache.batch_repeat_interleave(COUNT)
together = prompt.repeat(COUNT, 1)
texts = model.generate(together, past_key_values=cache, max_new_tokens=20, do_sample=True, attention_mask=torch.ones_like(together))
print(f"{COUNT} texts of {texts.shape[1]} tokens: {cache.stats()['bytes_used'] >> 10} KiB; the prompt alone: {alone >> 10} KiB")
assert cache.stats()["bytes_used"] < COUNT * alone / 2
