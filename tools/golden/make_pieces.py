#!/usr/bin/env python3
"""Writes tests/golden/pieces: small SentencePiece models, and hashes of the ids of random texts.

usage: make_pieces.py            (needs sentencepiece 0.2.3 and transformers 5.23)

cases.json has for each folder (a model and the files next to it) an FNV-1a hash per block of texts
and the ids of the first texts in full. "by" says whose they are: those of the sentencepiece package
for each stretch between control and unknown pieces, or of AutoTokenizer, then with decoded texts.
"""
import json, os, re, shutil, tempfile

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import sentencepiece as spm
from sentencepiece import sentencepiece_model_pb2 as pb
from transformers import AutoTokenizer

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/golden/pieces")
WORDS = ("the small engine reads a file and turns it into numbers; every number stands for a piece of a word. When "
         "the text is long, the engine cuts it where a word ends, so that it can remember what it has seen before. "
         "walking, walked, walks; reading, reader, reads; 1234 + 5678 = 6912, ---------------- |---|---|---| 000000 ")
MORE = ("Der kleine Motor liest über Größen. Le petit moteur était là, déjà prêt. Мотор читает слова. 小さなエンジンが文字を"
        "読みます。 작은 엔진이 글을 읽습니다. ")
CODE = "def read(path):\n    with open(path) as f:\n        return f.read()\n\tif (x == 0) { y += 1; }\n\n"
# Character rules: source, target, in hexadecimal code points; the longest one counts.
RULES = ["FB01\t66 69", "BD\t31 2F 32", "A0\t20", "9\t20", "A\t20", "D\t20", "65 301\tE9", "65 301 300\t78", "AD\t",
         "3000\t20", "FF0C\t2C 20", "41\t61", "54\t74", "57\t77"]

# ---- the texts: tests/format/random_text.h and test_tokenizer_pieces.c draw the same ----
RANGES = [(0x20, 0x7f), (0x20, 0x7f), (0x61, 0x7b), (0x61, 0x7b), (0x30, 0x3a), (0x20, 0x21), (0x9, 0xe), (0, 0x20),
          (0xa0, 0x250), (0x250, 0x370), (0x300, 0x370), (0x370, 0x600), (0x600, 0x900), (0x900, 0x1000),
          (0x1100, 0x1200), (0x1680, 0x1820), (0x1e00, 0x2070), (0x2070, 0x2c00), (0x2e00, 0x3200), (0x3400, 0xa000),
          (0xa000, 0xac00), (0xac00, 0xd7a4), (0xe000, 0xe100), (0xf900, 0xff00), (0xff00, 0x10000),
          (0x10000, 0x11000), (0x11000, 0x12000), (0x16000, 0x17000), (0x1cc00, 0x1d400), (0x1d400, 0x1f000),
          (0x1f000, 0x1fc00), (0x20000, 0x32000), (0xe0000, 0xe01f0), (0x10fff0, 0x110000)]
PIECES = ["<s>", "</s>", " <word> ", "<Left>", "'s", "'LL", "\r\n", "  ", " the", "e\u0301"]
PARTS = ["the small engine", " reads", " a file", "walking, walked", " ", "    ", "\n", "\n\n", "\t", "--------------", "----",
         "|---|---|", "0000000", " 1234", "<|im_start|>", "<|im_end|>", " <|im_end|> ", "<b>", "abc", "abcd", "the",
         "</s>", " </s> ", "<unk>", "<ctl>", "<pad>", "[PAD]", "<left>", " <left>", "<a1>", "Größen", "é", "e\u0301\u0300",
         "ﬁle", "½", "\u00a0", "\u00ad", "小さな", "エンジン", "엔진", "\U0001f389", "\U0001f44d\U0001f3fd", "▁", "▁▁", " a", "number",
         "<0x0A>", "When", "\u3000"]
M = (1 << 64) - 1
TEXTS, BLOCK, SHOWN = 3000, 500, 3


class Random:
    def __init__(self, seed):
        self.x = seed

    def below(self, n):
        self.x = (self.x + 0x9E3779B97F4A7C15) & M
        z = self.x
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M
        return ((z ^ (z >> 31)) >> 33) % n


def random_text(r):
    out = []
    for _ in range(r.below(16)):
        if r.below(8) == 0:
            out.append(PIECES[r.below(len(PIECES))])
            continue
        lo, hi = RANGES[r.below(len(RANGES))]
        out += [chr(lo + r.below(hi - lo)) for _ in range(1 + r.below(4))]
    return "".join(out)


def piece_text(r):
    out = []
    for _ in range(r.below(12)):
        out.append(random_text(r) if r.below(8) == 0 else PARTS[r.below(len(PARTS))])
    return "".join(out)


# ---- models ----
def train(name, more_pieces=(), **more):
    with tempfile.TemporaryDirectory() as d:
        with open(d + "/text", "w", encoding="utf8") as f:
            f.write("\n".join([WORDS, MORE, CODE.replace("\n", " ")] * 4))
        with open(d + "/rules", "w") as f:
            f.write("\n".join(RULES) + "\n")
        settings = dict(input=d + "/text", model_prefix=d + "/m", character_coverage=0.98, minloglevel=2, num_threads=1,
                        hard_vocab_limit=False)
        if more.pop("rules", False):
            settings["normalization_rule_tsv"] = d + "/rules"
        else:
            settings.update(normalization_rule_name="identity", remove_extra_whitespaces=False)
        spm.SentencePieceTrainer.train(**settings, **more)
        m = pb.ModelProto()
        m.ParseFromString(open(d + "/m.model", "rb").read())
    m.trainer_spec.ClearField("input")
    m.trainer_spec.ClearField("model_prefix")
    m.normalizer_spec.ClearField("normalization_rule_tsv")
    for piece in more_pieces:
        m.pieces.add(piece=piece, score=-1e6)
    with open(f"{OUT}/{name}.model", "wb") as f:
        f.write(m.SerializeToString())


USER = ["<|im_start|>", "▁▁", "▁▁▁▁", "\n", "abc", "<b>", "ab"]


def train_all():
    train("bpe", model_type="bpe", byte_fallback=True, vocab_size=480, allow_whitespace_only_pieces=True)
    train("bpe_user", ["[UNUSED_0]", "abcd"], model_type="bpe", byte_fallback=True, vocab_size=440, add_dummy_prefix=False,
          user_defined_symbols=USER, control_symbols=["<ctl>"], pad_id=0, eos_id=1, bos_id=2, unk_id=3)
    train("bpe_rules", model_type="bpe", vocab_size=220, rules=True)
    train("unigram", model_type="unigram", vocab_size=160, rules=True)
    train("unigram_user", model_type="unigram", byte_fallback=True, vocab_size=400,
          user_defined_symbols=["<|im_start|>", "ﬁ", "  ", "number", "num"])


# ---- cases ----
def token(content, special=True, **flags):
    return dict(content=content, lstrip=False, rstrip=False, normalized=False, single_word=False, special=special) | flags


def llama(**more):
    return {"tokenizer_class": "LlamaTokenizer", **more}


CONFIG, MAP, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
CASES = [(m, "sentencepiece", None, {}) for m in ["bpe", "bpe_user", "bpe_rules", "unigram", "unigram_user"]] + [
    ("bpe", "sentencepiece", None, {CONFIG: llama(legacy=True)}),
    ("bpe", "transformers", "llama", {CONFIG: llama(add_bos_token=True)}),
    ("bpe", "transformers", "llama", {CONFIG: llama(
        legacy=False, add_bos_token=False, add_eos_token=True, pad_token="<|im_end|>",
        added_tokens_decoder={"480": token("<|im_end|>"), "481": token("<left>", False, lstrip=True),
                              "482": token("the", False, single_word=True, rstrip=True)})}),
    ("bpe", "transformers", "llama", {CONFIG: {"tokenizer_class": "LlamaTokenizerFast", "add_prefix_space": False,
                                               "add_bos_token": True, "pad_token": "[PAD]"}}),
    ("bpe", "transformers", "llama", {
        CONFIG: llama(add_bos_token=True),
        MAP: {"bos_token": "<s>", "eos_token": {k: v for k, v in token("</s>").items() if k != "special"},
              "pad_token": "<pad>", "extra_special_tokens": ["<a1>"]},
        ADDED: {"<pad>": 480, "<a1>": 481, "<left>": 482}}),
    ("bpe_user", "transformers", "internlm2", {CONFIG: {
        "tokenizer_class": "InternLM2Tokenizer", "add_bos_token": True,
        "added_tokens_decoder": {"440": token("<|im_end|>")}}}),
]


def by_sentencepiece(path):
    sp = spm.SentencePieceProcessor(model_file=path)
    special = {sp.id_to_piece(i): i for i in range(sp.get_piece_size()) if sp.is_control(i) or sp.is_unknown(i)}
    cut = re.compile("(" + "|".join(map(re.escape, special)) + ")")

    def encode(text, _):
        ids = []
        for part in cut.split(text):
            ids += [special[part]] if part in special else sp.encode(part)
        return ids, None
    return encode


def by_transformers(model, model_type, files):
    with tempfile.TemporaryDirectory() as d:
        shutil.copy(model, d + "/tokenizer.model")
        for name, value in {**files, "config.json": {"model_type": model_type}}.items():
            with open(f"{d}/{name}", "w", encoding="utf8") as f:
                json.dump(value, f)
        t = AutoTokenizer.from_pretrained(d)

    def encode(text, i):
        ids = t.encode(text, add_special_tokens=bool(i & 1))
        return ids, t.decode(ids, skip_special_tokens=bool(i & 2))
    return encode


def run(model, by, model_type, files):
    path = f"{OUT}/{model}.model"
    encode = by_sentencepiece(path) if by == "sentencepiece" else by_transformers(path, model_type, files)
    r, h, hashes, shown = Random(20261117), 0xCBF29CE484222325, [], []
    for i in range(TEXTS):
        text = piece_text(r)
        if model == "bpe_user" and by == "transformers":
            text = text.replace("▁", "_")  # there an added token, here part of the vocabulary
        ids, back = encode(text, i)
        for c in b"".join(k.to_bytes(4, "little") for k in ids) + b"\xff" + (back or "").encode():
            h = ((h ^ c) * 0x100000001B3) & M
        if i % BLOCK == BLOCK - 1:
            hashes.append("%016x" % h)
        if len(shown) < SHOWN and 4 < len(text) < 60:
            shown.append([i, text, ids])
    return {"model": model, "by": by, "files": files, "hash": hashes, "shown": shown}


def main():
    os.makedirs(OUT, exist_ok=True)
    train_all()
    out = {"texts": TEXTS, "block": BLOCK, "cases": [run(*c) for c in CASES]}
    with open(OUT + "/cases.json", "w", encoding="utf8") as f:
        f.write(json.dumps(out, ensure_ascii=False, separators=(",", ":")) + "\n")


main()
