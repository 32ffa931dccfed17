"""Generation within a number of bytes: `budget=` in the plan, for the whole sequence. Usage: generate_budget.py [MODEL]"""

from small_model import load_model

from varve import Plan
from varve.transformers import VarveCache, shape_of

model, prompt = load_model()
length = prompt.shape[1] + 100
in_f16 = Plan("f16").estimate(shape_of(model.config), length)["bytes_f16"]
budget = in_f16 // 2
cache = VarveCache(model.config, f"evict=h2o,budget={budget >> 10}KiB,sink=16,recent=64,trigger=128,page=16")
model.generate(prompt, past_key_values=cache, max_new_tokens=100, do_sample=False)
stats = cache.stats()
print(f"{length} tokens in f16: {in_f16 >> 10} KiB; budget {budget >> 10} KiB; held {stats['bytes_held'] >> 10} KiB")
assert stats["pages_dropped"] > 0
