"""python -m varve.convert_hf FILE.gguf FOLDER: a GGUF model as a Hugging Face folder, with weights as safetensors.

transformers reads GGUF files by itself, but it neither saves such a model again, nor cuts words as every model wants it.
`load_gguf` reads one with its own tokenizer; `convert` writes the folder that `from_pretrained` takes.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

_DTYPES = ("float32", "float16", "bfloat16")


def _tokenizer_fields(path: Path) -> tuple[str, bool | None]:
    """How the file says that words are cut ("qwen2", "smollm" …, or nothing), and whether a text begins with BOS."""
    from gguf import GGUFReader

    fields = GGUFReader(str(path)).fields
    pre, bos = (fields.get(f"tokenizer.ggml.{name}") for name in ("pre", "add_bos_token"))
    return "" if pre is None else bytes(pre.parts[pre.data[0]]).decode(), None if bos is None else bool(bos.parts[bos.data[0]][0])


def _obey(tokenizer: Any, pre: str, bos: bool | None) -> None:
    """transformers knows most ways to cut words; of SmolLM's it leaves out that every digit is a word. Some versions of
    it begin every text with BOS."""
    if pre == "smollm":
        from tokenizers import pre_tokenizers

        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    if bos is not None and getattr(tokenizer, "add_bos_token", bos) != bos:
        tokenizer.add_bos_token = bos


def load_gguf(path: str | Path, dtype: torch.dtype = torch.float32, **options: Any) -> tuple[Any, Any]:
    """Model and tokenizer of a GGUF file. options go to the tokenizer, such as padding_side="left"."""
    path = Path(path)
    if not path.is_file():
        raise OSError(f"{path}: there is no such file")
    if importlib.util.find_spec("gguf") is None:
        raise ImportError(f"{path}: reading it needs the package gguf; pip install gguf")
    where = dict(pretrained_model_name_or_path=str(path.parent), gguf_file=path.name)
    tokenizer = AutoTokenizer.from_pretrained(**where, **options)
    _obey(tokenizer, *_tokenizer_fields(path))
    return AutoModelForCausalLM.from_pretrained(**where, dtype=dtype).eval(), tokenizer


def convert(path: str | Path, folder: str | Path, dtype: torch.dtype = torch.float32) -> None:
    """Writes config.json, model.safetensors and the tokenizer's files. In float32 the weights are those of the file."""
    model, tokenizer = load_gguf(path, dtype)
    config = copy.deepcopy(model.config)
    if hasattr(config, "quantization_config"):  # a model that has one cannot be saved
        del config.quantization_config
    plain = AutoModelForCausalLM.from_config(config, dtype=dtype)
    plain.load_state_dict(model.state_dict())
    plain.generation_config = model.generation_config
    plain.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m varve.convert_hf", description="A GGUF model as a Hugging Face folder.")
    parser.add_argument("file", help="GGUF file, such as models/varve-books-29m.gguf")
    parser.add_argument("folder", help="is made if it is not there")
    parser.add_argument("--dtype", default="float32", choices=_DTYPES, help="of the weights (default: float32)")
    args = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    try:
        convert(args.file, args.folder, getattr(torch, args.dtype))
    except (ImportError, OSError, ValueError) as error:
        print(f"varve.convert_hf: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
