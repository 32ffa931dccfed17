"""A model for the examples: the one that the command line names, or a small one with random weights."""

import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM


def load_model():
    """Model with varve attention, and token ids of a prompt."""
    torch.manual_seed(0)
    if len(sys.argv) > 1:
        folder, _, gguf = sys.argv[1].rpartition("/") if sys.argv[1].endswith(".gguf") else (sys.argv[1], "", None)
        model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=gguf, attn_implementation="varve").eval()
        text = "It was a bright cold day in April. " * 40
        return model, AutoTokenizer.from_pretrained(folder, gguf_file=gguf)(text, return_tensors="pt").input_ids
    config = LlamaConfig(
        hidden_size=128, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=4, intermediate_size=256,
        vocab_size=256, attn_implementation="varve", eos_token_id=None,
    )
    return LlamaForCausalLM(config).eval(), torch.randint(0, 256, (1, 500))
