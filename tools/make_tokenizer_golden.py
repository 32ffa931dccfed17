#!/usr/bin/env python3
"""Golden vectors of the tokenizers and chat formats, for src/runtime/tokenizer/*_test.cc.

Needs the Python packages tokenizers, sentencepiece, transformers, jinja2, gguf and numpy (written with
tokenizers 0.23, sentencepiece 0.2, transformers 5, gguf 0.19). They are the reference: small vocabularies are
trained with them here, on the text below, with the same pipelines that the model families use, and they encode
the cases.

    make_tokenizer_golden.py          write tests/data/tokenizer
    make_tokenizer_golden.py --check  encode again with what would be trained now, and compare

Files:
    NAME.gguf   metadata only, as a model file of the family has it
    NAME.json   [{name, text, parse_special, ids}]: what the reference makes of the text, without BOS
    chat.json   [{format, template, messages, prompt}]: what transformers makes of the template

Qwen2's own pipeline normalises to NFC first. Programs that read GGUF do not, and bytes could not come back, so the
reference here does not, either.
"""

import argparse
import io
import json
import sys
import tempfile
from pathlib import Path

import gguf
import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "data" / "tokenizer"

TEXT = """
The river rose in the night, and in the morning the meadow was a lake. We counted the trees that still stood.
Nobody had seen such water since the year 1897, when the old bridge was carried away with three carts on it.
"It's not the rain," said the miller, "it's the snow that we haven't thought of. They'll see, and you've been told."
I'm sure that he'd have gone on, but his wife didn't let him. WE'RE GOING HOME, she said; THAT'S ENOUGH.
Every spring leaves a thin layer of clay on the bottom of the lake, every winter a darker one above it.
Whoever counts the layers counts the years: 10, 100, 1000, 12345 of them, and the thickest tells of the largest flood.
Der Fluss stieg über Nacht, und am Morgen war die Wiese ein See. Die Bäume standen im Wasser, schön und still.
Größere Brücken hätten vielleicht gehalten; für die alte kam jede Hilfe zu spät. Überall lag Öl auf dem Wasser.
Jedes Frühjahr lässt eine dünne Schicht aus Ton zurück, jeder Winter eine dunklere darüber.
河水在夜里上涨，早晨草地变成了湖。我们数了数还站着的树。老桥和三辆车一起被冲走了。
每年春天都会在湖底留下一层薄薄的泥土，冬天又在上面盖上一层更深的颜色。数一数就知道年份。
def count_layers(core, start=0):
    total = start
    for layer in core:
        if layer.thickness > 0.25 and not layer.broken:
            total += 1
    return total

int main(void) {
\tfor (int i = 0; i < 100; ++i) {
\t\tprintf("%d\\n", layers[i]);
\t}
\treturn 0;
}
Smile 😀😀 and wave 👋🏽, the family 👨‍👩‍👧‍👦 is here! Café, naïve, São Paulo, Привет, мир; γειά σου; שלום; こんにちは。
"""

BLANKS = "\u00a0\u2003\u3000\u180e\u0085\u2028"
CASES = {
    "empty": "",
    "one blank": " ",
    "blanks": "        ",
    "english": "The river rose in the night, and nobody counted the layers.",
    "english quotes": "\"It's the snow,\" said he; 'they'll see'...",
    "german": "Größere Brücken hätten über Nacht gehalten, schöne Wiese! ÄÖÜ ß ẞ",
    "chinese": "早晨，老桥被冲走了。数一数 100 棵树！",
    "mixed scripts": "Привет, мир γειά שלום こんにちは 안녕하세요 ไทย हिन्दी",
    "emoji": "😀 👋🏽 👨‍👩‍👧‍👦🏳️‍🌈 end😀",
    "code": "def f(x):\n    if x > 0:\n        return x  # positive\n\n\tfor (;;) { i += 1; }\r\n\r\n}\n",
    "whitespace runs": "a  b   c    d \n  e\n\n\n   f\t\tg \t h  ",
    "newlines": "\n\n\r\n \n\ta\r\rb\n",
    "leading blanks": "   three blanks in front",
    "trailing blanks": "three blanks behind   ",
    "unicode blanks": "a" + " a".join(BLANKS) + "b" + BLANKS + "c",
    "digits": "1 12 123 1234 12345 1234567890 3.14159 1,000,000 x86 ٣٤٥ Ⅷ ½ ²",
    "contractions": "I'm you're he's we've they'll I'd can't 'tis o'clock 's 'S",
    "upper contractions": "I'M YOU'RE HE'S WE'VE THEY'LL I'D CAN'T 'Ll 'rE it'ſ",
    "combining marks": "e\u0301a\u0308 n\u0303o a\u0308\u0323 \u0301alone क्षि",
    "nfd": "Gro\u0308\u00dfere Bru\u0308cken, Cafe\u0301, Sa\u0303o",
    "punctuation": "!!!??? -- ... (a)[b]{c} <d> $5 + 3 = 8 ~ ^ | \\ / @home #tag a_b",
    "controls": "a\u0000b\u0001\u001a\u007f\u0080c",
    "zero width": "a\u200bb\u200c\u200d\ufeffc\u00add",
    "replacement": "\ufffd\ufffd a\ufffdb",
    "astral": "𝔘𝔫𝔦 𐍈 𒀀 \U0010ffff",
    "blank symbol": "a▁b ▁▁c",
    "byte names": "<0x0A> <0xE4> <unk> <s>",
    "url": "https://example.org/a-b_c?d=1&e=%20#f",
    "long word": "a" * 300 + "the" * 100,
    "long punctuation": "=" * 70 + "-" * 33 + "\n" + "#" * 20,
    "long number": "9" * 50,
    "special": "<|im_start|>user\nthe river<|im_end|>\n<think>\n 1</think><|endoftext|>",
    "special overlap": "<|im_end|<|im_end|>|> <think<think>",
    "special between letters": "the<|im_end|>the <think>the",
}

# --- byte-level BPE -------------------------------------------------------------------------------

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|" + REST
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + REST

CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
USER_DEFINED = ["<think>", "</think>"]


def byte_level(use_regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def split_by(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), byte_level(False)])


BYTE_LEVEL = {
    "gpt-2": byte_level(True),
    "llama-bpe": split_by(LLAMA3),
    "qwen2": split_by(QWEN2),
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level(True)]),
}


def train_byte_level(pre):
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = BYTE_LEVEL[pre]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=640, show_progress=False, initial_alphabet=alphabet)
    trained.train_from_iterator([TEXT], trainer)
    model = json.loads(trained.to_str())["model"]
    merges = [tuple(merge) for merge in model["merges"]]
    whole_words = pre == "llama-bpe"
    if whole_words:  # tokens that no merge makes: only whole words are ever these
        merges = [merge for merge in merges if "".join(merge) not in ("Ġthe", "Ġlayer")]
    tokenizer = Tokenizer(models.BPE(vocab=model["vocab"], merges=merges, ignore_merges=whole_words))
    tokenizer.pre_tokenizer = BYTE_LEVEL[pre]
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(CONTROL)
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=False) for text in USER_DEFINED])
    return tokenizer, merges


def byte_level_gguf(path, pre, tokenizer, merges):
    vocab = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    assert [number for _, number in vocab] == list(range(len(vocab)))
    tokens = [text for text, _ in vocab]
    types = [3 if t in CONTROL else 4 if t in USER_DEFINED else 1 for t in tokens]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(merge) for merge in merges])
    writer.add_bos_token_id(tokens.index("<|endoftext|>"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    finish(writer)


def byte_level_cases(tokenizer):
    cases = []
    for name, text in CASES.items():
        for parse_special in (False, True) if name.startswith("special") else (False,):
            tokenizer.encode_special_tokens = not parse_special
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            cases.append({"name": name, "text": text, "parse_special": parse_special, "ids": ids})
    return cases


# --- SentencePiece --------------------------------------------------------------------------------

SENTENCE_PIECE = {
    # As Llama 2 and Mistral.
    "spm-llama": dict(add_dummy_prefix=True, byte_fallback=True, vocab_size=700),
    # As Gemma: no blank in front, runs of blanks as tokens.
    "spm-gemma": dict(add_dummy_prefix=False, byte_fallback=True, vocab_size=700,
                      user_defined_symbols=["<think>", "</think>", "▁▁", "▁▁▁▁"]),
    # What training gives by default, but for the characters.
    "spm-tidy": dict(add_dummy_prefix=True, byte_fallback=False, vocab_size=500, remove_extra_whitespaces=True),
}


def train_sentence_piece(options):
    model = io.BytesIO()
    options = dict(remove_extra_whitespaces=False) | options
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT.strip("\n").split("\n")), model_writer=model, model_type="bpe",
        normalization_rule_name="identity", split_digits=True, character_coverage=0.999,
        allow_whitespace_only_pieces=True, minloglevel=2, num_threads=1, **options)
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def sentence_piece_gguf(path, processor, options):
    size = processor.get_piece_size()
    types = []
    for number in range(size):
        if processor.is_unknown(number):
            types.append(2)
        elif processor.is_control(number):
            types.append(3)
        elif processor.is_byte(number):
            types.append(6)
        else:
            types.append(4 if processor.id_to_piece(number) in options.get("user_defined_symbols", ()) else 1)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([processor.id_to_piece(number) for number in range(size)])
    writer.add_token_scores([processor.get_score(number) for number in range(size)])
    writer.add_token_types(types)
    writer.add_bos_token_id(processor.bos_id())
    writer.add_eos_token_id(processor.eos_id())
    writer.add_unk_token_id(processor.unk_id())
    writer.add_add_space_prefix(options["add_dummy_prefix"])
    writer.add_remove_extra_whitespaces(options.get("remove_extra_whitespaces", False))
    finish(writer)


def sentence_piece_cases(processor, options):
    # A U+2581 that is in the text itself may be part of a user-defined token for SentencePiece. Programs that read GGUF
    # look for those in the text as it is, with blanks.
    blank_tokens = "▁▁" in options.get("user_defined_symbols", ())
    cases = [{"name": name, "text": text, "parse_special": False, "ids": processor.encode(text)}
             for name, text in CASES.items() if not (blank_tokens and name == "blank symbol")]
    # SentencePiece itself knows no special tokens in a text; it is asked for what is around them.
    cases.append({"name": "special", "text": "<s>the river</s>the", "parse_special": True,
                  "ids": [processor.bos_id(), *processor.encode("the river"), processor.eos_id(),
                          *processor.encode("the")]})
    return cases


# --- chat -----------------------------------------------------------------------------------------

SYSTEM = {"role": "system", "content": "Be brief."}
TURN = [{"role": "user", "content": "How old is the lake?"}]
TALK = TURN + [{"role": "assistant", "content": "Count the layers."}, {"role": "user", "content": "  And then? "}]

NO_SYSTEM = [TURN, TALK]
WITH_SYSTEM = [TURN, TALK, [SYSTEM, *TURN], [SYSTEM, *TALK]]

# Format, conversations, template: the usual ones of the families, without tools.
CHATS = [
    ("chatml", WITH_SYSTEM,
     "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
     "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"),
    ("llama3", WITH_SYSTEM,
     "{% for message in messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
     " + message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}"
     "{% endif %}{{ content }}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"),
    ("llama2", WITH_SYSTEM,
     "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
     "{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}"
     "{% set system_message = false %}{% endif %}{% for message in loop_messages %}"
     "{% if loop.index0 == 0 and system_message != false %}"
     "{% set content = '<<SYS>>\n' + system_message + '\n<</SYS>>\n\n' + message['content'] %}"
     "{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}"
     "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}"
     "{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"),
    ("mistral", NO_SYSTEM,
     "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}"
     "{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}"
     "{{ ' ' + message['content'] + eos_token }}{% endif %}{% endfor %}"),
    ("gemma", WITH_SYSTEM,
     "{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
     "{% set first_user_prefix = messages[0]['content'] + '\n\n' %}{% set loop_messages = messages[1:] %}"
     "{% else %}{% set first_user_prefix = '' %}{% set loop_messages = messages %}{% endif %}"
     "{% for message in loop_messages %}{% if message['role'] == 'assistant' %}{% set role = 'model' %}"
     "{% else %}{% set role = message['role'] %}{% endif %}"
     "{{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else '') + message['content'] | trim"
     " + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"),
    ("zephyr", WITH_SYSTEM,
     "{% for message in messages %}\n{% if message['role'] == 'user' %}\n"
     "{{ '<|user|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'system' %}\n"
     "{{ '<|system|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'assistant' %}\n"
     "{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif %}\n"
     "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}"),
    ("phi3", WITH_SYSTEM,
     "{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}"
     "{{'<|system|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == 'user' %}"
     "{{'<|user|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == 'assistant' %}"
     "{{'<|assistant|>\n' + message['content'] + '<|end|>\n'}}{% endif %}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"),
]


def chat_cases():
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), bos_token="<s>", eos_token="</s>")
    cases = []
    for name, conversations, template in CHATS:
        for messages in conversations:
            prompt = tokenizer.apply_chat_template(
                messages, chat_template=template, tokenize=False, add_generation_prompt=True)
            cases.append({"format": name, "template": template, "messages": messages,
                          "prompt": prompt.removeprefix("<s>")})
    return cases


# --- files ----------------------------------------------------------------------------------------


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_json(path, cases):
    lines = ",\n".join(json.dumps(case, ensure_ascii=True, separators=(",", ":")) for case in cases)
    path.write_text("[\n" + lines + "\n]\n")


def write_all(folder):
    for pre in BYTE_LEVEL:
        tokenizer, merges = train_byte_level(pre)
        byte_level_gguf(folder / f"{pre}.gguf", pre, tokenizer, merges)
        write_json(folder / f"{pre}.json", byte_level_cases(tokenizer))
    for name, options in SENTENCE_PIECE.items():
        processor = train_sentence_piece(options)
        sentence_piece_gguf(folder / f"{name}.gguf", processor, options)
        write_json(folder / f"{name}.json", sentence_piece_cases(processor, options))
    write_json(folder / "chat.json", chat_cases())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with what is there, write nothing")
    if not parser.parse_args().check:
        FOLDER.mkdir(parents=True, exist_ok=True)
        write_all(FOLDER)
        return 0
    with tempfile.TemporaryDirectory() as made:
        write_all(Path(made))
        different = [path.name for path in sorted(Path(made).iterdir())
                     if not (FOLDER / path.name).is_file() or path.read_bytes() != (FOLDER / path.name).read_bytes()]
    print("different: " + ", ".join(different) if different else "all files agree")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
