"""Several plans on the same tokens: how far predictions move, and what is saved. Usage: compare_plans.py [MODEL]"""

from small_model import load_model

from varve.eval import evaluate_windows, make_lanes

model, prompt = load_model()
lanes = make_lanes(model.config, ["q8_0", "t4", "k=t3,v=t2", "age=f16:64/q8_0:256/t4"])
for row in evaluate_windows(model, [prompt[0].tolist()], lanes):
    print(f"{row['plan']:24} KL {row['kl_mean']:.2e}  {row['ratio']:.2f} times fewer bytes")
