"""A policy of one's own: an observer sums the attention that each page gets, and the least wanted page is removed.

Usage: own_policy.py [MODEL]
"""

from collections import defaultdict

import torch
from small_model import load_model

from varve.transformers import VarveCache

KEEP_PAGES, PAGE = 16, 16
mass = defaultdict(float)  # (layer, first position) -> attention so far


def watch(event):
    for page, share in zip(event.pages, event.mass.sum((0, 1))):
        mass[event.layer, page.first_position] += float(share)


model, prompt = load_model()
cache = VarveCache(model.config, f"f16,page={PAGE}", on_attention=watch)
token = prompt
with torch.no_grad():
    for _ in range(100):
        token = model(token, past_key_values=cache).logits[:, -1:].argmax(-1)
        pages = cache.native.describe(cache.sequences[0], 0)["pages"]
        # Between steps a cache may be changed; all layers lose the page. The first and the last few stay.
        while len(pages) > KEEP_PAGES:
            worst = min(pages[1:-4], key=lambda page: sum(mass[layer, page.first_position] for layer in range(len(cache))))
            cache.native.remove_range(cache.sequences[0], worst.first_position, worst.first_position + PAGE)
            pages.remove(worst)
stats = cache.stats()
print(f"{cache.get_seq_length()} tokens seen, {len(pages)} pages of {PAGE} left: {stats['bytes_held'] >> 10} KiB held")
assert len(pages) == KEEP_PAGES
