#!/usr/bin/env python3
"""tests/golden/tokenizer/gguf_splits.json: ids that llama.cpp gives for the names of tokenizer.ggml.pre.

Needs gguf, llama_cpp and tokenizers. The merges know no words, so that another split gives other ids. Left out are texts
where llama.cpp's patterns are not those of the models' own tokenizers (marks after letters, capitals inside words)."""
import json
import pathlib
import re
import tempfile

import gguf
import llama_cpp
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests/golden/tokenizer/gguf_splits.json"
TEXTS = [
    "the small engine reads 1 12 123 1234 12345 1234567890 and 3.14159, 1,000,000",
    " It's 12345 o'clock; WE'LL read: I'M you'Re!\n\n\tdef f(x):\n    return x  \n\n\n  ",
    "小引擎读取数字。你好，世界！カタカナ 한국어 문장 \U0001f389 café Ünïcödé ΑΒΓ αβγ Привет МИР",
    "x_y-z http://example.com/path?q=1&r=2 //comment {\"k\": [1, 2]}\r\n\r\nend   ",
    "      spaces    between\t\ttabs\n \n  \n",
    "$100 + 50% = #1 @user ~tilde ^caret |pipe `code` <tag> x²+y² 3rd «quotes» — dash…",
]


def train():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    parts = [p for s in TEXTS for p in re.findall(r"\s*\S+\s*", s) + [s[i:i + 4] for i in range(0, len(s), 2)]]
    t.train_from_iterator(parts * 3, trainers.BpeTrainer(vocab_size=700, special_tokens=["<|endoftext|>", "<|im_end|>"],
                                                         initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    model = json.loads(t.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].get), [" ".join(m) for m in model["merges"]]


def ids_of(name, tokens, merges, path):
    w = gguf.GGUFWriter(path, "llama")
    for key, n in (("context_length", 64), ("embedding_length", 8), ("block_count", 1), ("feed_forward_length", 8),
                   ("attention.head_count", 1)):
        w.add_uint32(f"llama.{key}", n)
    w.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(name)
    w.add_token_list(tokens)
    w.add_token_types([3, 3] + [1] * (len(tokens) - 2))
    w.add_token_merges(merges)
    w.add_eos_token_id(0)
    w.add_bos_token_id(0)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()
    model = llama_cpp.Llama(path, vocab_only=True, verbose=False)
    return [model.tokenize(s.encode(), add_bos=False, special=True) for s in TEXTS]


def main():
    source = (ROOT / "src/format/tokenizer/tokenizer_pre.c").read_text()
    names = re.findall(r'^    \{"([^"]+)",', source, re.M)
    tokens, merges = train()
    groups = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            if name != "gemma4":
                groups.setdefault(str(ids_of(name, tokens, merges, f"{folder}/v.gguf")), []).append(name)
    splits = [{"names": n, "ids": json.loads(ids)} for ids, n in groups.items()]
    OUT.write_text(json.dumps({"tokens": tokens, "merges": merges, "texts": TEXTS, "splits": splits},
                              ensure_ascii=False, separators=(",", ":")) + "\n")
    print(len(names), "names,", len(splits), "splits,", OUT.stat().st_size, "bytes")


main()
