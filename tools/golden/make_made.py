#!/usr/bin/env python3
"""Writes tests/golden/made: tokenizers in files other than tokenizer.json, or not in it alone, and the ids of AutoTokenizer.

usage: make_made.py            (needs tokenizers 0.23, transformers 5.23 and tiktoken)

cases.json: "texts", and for each folder its files (a name that begins with @ is a file of tests/golden/made) and the ids
of the texts, with special tokens and without.
"""
import base64, json, os, shutil, tempfile

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import tiktoken
from tokenizers import ByteLevelBPETokenizer
from transformers import AutoTokenizer
from transformers.convert_slow_tokenizer import bytes_to_unicode
from transformers.integrations.mistral.tokenizer import MistralConverter

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/golden/made")
CORPUS = ["hello world hello there don't you're über Größen 12345 678 def f(x):\n    return x**2\n  \t\t user 小さな エンジン " * 3]
TEXTS = ["", "  ", " a", "hello world", "Hello  World\n\n\tfoo", "don't you're I'LL", "12345 67 8", "über Größen e\u0301",
         "小さな エンジン", "\U0001f389\U0001f469\u200d\U0001f469 ok", "<|endoftext|>", "a<|endoftext|> b", "</s>x<s> <pad>",
         "<|im_start|>user\nhi<|im_end|>\n", "x <extra> y", "\u00a0nb\u2003sp", "a\r\nb\rc", "\ufb01 \u00bd", "\x01z", " <mask> ",
         "def f(x):\n    return x**2\n", "trail  ", "[INST] hi [/INST]", "한국어 العربية", "don'T ABCdef XYZ3a", "中文abc 中 文",
         "worldhellothere therello Größenüberen", "returndefuser ssizenell"]


def added(text, **more):
    return {"content": text, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True, **more}


def train(name, special):
    t = ByteLevelBPETokenizer()
    t.train_from_iterator(CORPUS, vocab_size=330, special_tokens=special, show_progress=False)
    t.save_model(OUT, name)
    return {"vocab.json": f"@{name}-vocab.json", "merges.txt": f"@{name}-merges.txt"}, t.get_vocab_size()


def cases():
    own, n = train("own", ["<|endoftext|>"])
    bare, q = train("bare", [])
    opt, _ = train("opt", ["<s>", "<pad>", "</s>", "<unk>"])
    end = {"content": "</s>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": True}
    names = {"bos_token": end, "eos_token": end, "unk_token": end, "pad_token": {**end, "content": "<pad>"}}
    qwen = {"add_prefix_space": False, "additional_special_tokens": ["<|im_start|>", "<|im_end|>"], "bos_token": None,
            "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "tokenizer_class": "Qwen2Tokenizer", "unk_token": None}
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<extra>"]
    decoder = {str(q + i): added(t, special=i < 3) for i, t in enumerate(tokens)}
    yield "gpt2", {**own, "config.json": {"model_type": "gpt2"}}
    yield "gpt2-around", {**own, "tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True, "add_bos_token": True,
                                                         "add_eos_token": True, "mask_token": added("<mask>", lstrip=True, __type="AddedToken")}}
    yield "opt", {**opt, "tokenizer_config.json": {**{k: {**v, "__type": "AddedToken"} for k, v in names.items()}, "add_bos_token": True,
                                                   "tokenizer_class": "GPT2Tokenizer"}, "special_tokens_map.json": names}
    yield "qwen2", {**bare, "tokenizer_config.json": {**qwen, "added_tokens_decoder": decoder}}
    yield "qwen2-old", {**bare, "tokenizer_config.json": qwen, "added_tokens.json": {t: q + i for i, t in enumerate(tokens)}}
    yield "qwen2-bare", {**bare, "config.json": {"model_type": "qwen2"}}
    yield "phi", {**own, "tokenizer_config.json": {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>",
                                                   "tokenizer_class": "CodeGenTokenizer"}, "added_tokens.json": {"<extra>": n + 1, "  ": n}}
    yield from beside(opt)
    yield from ranked(json.load(open(os.path.join(OUT, "bare-vocab.json"))))


TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
          r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GLM4 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
KIMI = "|".join([r"[\p{Han}]+", r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                 r"[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER + "*(?i:'s|'t|'re|'ve|'m|'ll|'d)?", r"\p{N}{1,3}",
                 r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])


def ranked(vocab):
    """tekken.json, with the ids of transformers' converter and bos, and files of Kimi and GLM-4, with those of tiktoken."""
    byte = {c: b for b, c in bytes_to_unicode().items()}
    tokens = [bytes(byte[c] for c in t) for t in sorted(vocab, key=vocab.get)]
    coded = [base64.b64encode(t).decode() for t in tokens]
    special = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]
    tekken = {"config": {"pattern": TEKKEN, "default_vocab_size": len(tokens) + 1, "default_num_special_tokens": 8},
              "vocab": [{"rank": i, "token_bytes": t} for i, t in enumerate(coded)],
              "special_tokens": [{"rank": i, "token_str": t} for i, t in enumerate(special)]}
    with tempfile.TemporaryDirectory() as d:
        write(d, {"tekken.json": tekken})
        t = MistralConverter(os.path.join(d, "tekken.json")).converted()
    bare = [t.encode(x, add_special_tokens=False).ids for x in TEXTS]
    yield "tekken", {"tekken.json": tekken}, ([[1, *i] for i in bare], bare)
    n = len(tokens)
    named = {n: "[BOS]", n + 1: "[EOS]", n + 2: "<|im_end|>", n + 4: "<|im_start|>"}
    with open(os.path.join(OUT, "tiktoken.model"), "w") as f:
        f.writelines(f"{t} {i}\n" for i, t in enumerate(coded))
    e = tiktoken.Encoding("kimi", pat_str=KIMI, mergeable_ranks={t: i for i, t in enumerate(tokens)},
                          special_tokens={named.get(i, f"<|reserved_token_{i}|>"): i for i in range(n, n + 256)})
    ids = [e.encode(x, allowed_special="all") for x in TEXTS]
    config = {"tokenizer_class": "TikTokenTokenizer", "bos_token": "[BOS]", "eos_token": "[EOS]",
              "added_tokens_decoder": {str(i): added(t) for i, t in named.items()}}
    glm = ["<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>", "<|user|>"]
    g = tiktoken.Encoding("glm4", pat_str=GLM4, mergeable_ranks={t: i for i, t in enumerate(tokens)}, special_tokens={t: n + i for i, t in enumerate(glm)})
    bare = [g.encode(x, allowed_special="all") for x in TEXTS]
    glm4 = {"tokenizer_class": "ChatGLM4Tokenizer", "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>",
            "added_tokens_decoder": {str(n + i): added(t) for i, t in enumerate(glm)}}
    yield "glm4", {"tokenizer.model": "@tiktoken.model", "tokenizer_config.json": glm4}, ([[n + 2, n + 4, *i] for i in bare], bare)
    yield "kimi", {"tiktoken.model": "@tiktoken.model", "tokenizer_config.json": config}, (ids, ids)


def beside(opt):
    """tokenizer.json, and tokens that only the files next to it add."""
    with tempfile.TemporaryDirectory() as d:
        write(d, {**opt, "tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer", **dict.fromkeys(["bos_token", "eos_token", "unk_token"], "</s>")}})
        whole = json.loads(AutoTokenizer.from_pretrained(d).backend_tokenizer.to_str())
    n = max(whole["model"]["vocab"].values()) + 1
    whole["added_tokens"] = [{"id": 2, **added("</s>")}]
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    tokens = {str(n): added("<extra>", special=False), str(n + 1): added("<|im_end|>"), "2": added("</s>", special=False, rstrip=True)}
    yield "named", {"tokenizer.json": whole, "tokenizer_config.json": names}
    yield "listed", {"tokenizer.json": whole, "tokenizer_config.json": {**names, "additional_special_tokens": ["<|im_start|>", "<|im_end|>"]}}
    yield "nowhere", {"tokenizer.json": whole, "tokenizer_config.json": {**names, "pad_token": "<mask>"}}
    yield "decoder", {"tokenizer.json": whole, "tokenizer_config.json": {**names, "added_tokens_decoder": tokens}}
    yield "taken", {"tokenizer.json": whole, "tokenizer_config.json": {**names, "added_tokens_decoder": {"2": added("</s>"), "0": added("<s>")}}}
    renamed = json.loads(json.dumps(whole))  # id 5 has two texts: that of the vocabulary and that of an added token
    text = [t for t, i in whole["model"]["vocab"].items() if i == 5][0]
    renamed["added_tokens"] = [{"id": 5, **added("<other>")}, *whole["added_tokens"]]
    yield "renamed", {"tokenizer.json": renamed, "tokenizer_config.json": {**names, "pad_token": text}}
    yield "map", {"tokenizer.json": whole, "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"},
                  "special_tokens_map.json": {**names, "pad_token": "<pad>"}}
    yield "added", {"tokenizer.json": whole, "tokenizer_config.json": names, "added_tokens.json": {"<extra>": n}}


def write(d, files):
    for name, value in files.items():
        if isinstance(value, str):
            shutil.copy(os.path.join(OUT, value[1:]), os.path.join(d, name))
        else:
            json.dump(value, open(os.path.join(d, name), "w"))


def ids_of(files):
    with tempfile.TemporaryDirectory() as d:
        write(d, files)
        t = AutoTokenizer.from_pretrained(d)
        return [t(x)["input_ids"] for x in TEXTS], [t(x, add_special_tokens=False)["input_ids"] for x in TEXTS]


def main():
    os.makedirs(OUT, exist_ok=True)
    rows = []
    for name, files, *known in cases():
        ids, bare = known[0] if known else ids_of(files)
        rows.append({"name": name, "files": files, "ids": ids, "bare": bare})
    with open(os.path.join(OUT, "cases.json"), "w") as f:
        f.write('{"texts": %s,\n"cases": [\n%s\n]}\n' % (json.dumps(TEXTS), ",\n".join(json.dumps(r) for r in rows)))


main()
