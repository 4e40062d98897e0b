#!/usr/bin/env python3
"""make_tokenizer.py TEXT.jsonl FOLDER: trains the demo's tokenizer, byte-level BPE of 928 tokens.

Needs the Python package `tokenizers`; only for making the base model anew, the demo does not need
it. Digits stand alone, so that numbers are spelled, not known by heart. What is between words is a
piece of its own, so that a word has the same tokens after a space, after a quote and at the start of
a line: a model this small learns to copy much sooner then."""
import json
import sys

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 928
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
SPLIT = r"\p{L}+|\p{N}|[^\p{L}\p{N}]+"
TEMPLATE = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
            "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def texts(path):
    with open(path, encoding="utf-8") as f:
        for line in f:
            text = json.loads(line)["text"]
            for s in SPECIAL:
                text = text.replace(s, "")
            yield text


def main():
    source, folder = sys.argv[1:3]
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(texts(source), trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(SPECIAL), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.add_special_tokens(SPECIAL)
    assert t.get_vocab_size() == VOCABULARY, t.get_vocab_size()
    t.save(f"{folder}/tokenizer.json", pretty=False)
    with open(f"{folder}/tokenizer_config.json", "w", encoding="utf-8") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": False,
                   "bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
                   "unk_token": None, "clean_up_tokenization_spaces": False,
                   "model_max_length": 256, "chat_template": TEMPLATE}, f, indent=2)
        f.write("\n")


if __name__ == "__main__":
    main()
