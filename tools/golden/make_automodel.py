#!/usr/bin/env python3
"""make_automodel.py AUTOMODEL OUT - ids and labels of records in the datasets of NeMo AutoModel, made by its own classes.

AUTOMODEL is an unpacked source distribution (nemo_automodel 0.7.0). Only the modules that make rows are imported; what they
import for other work is replaced by empty stand-ins. Needs transformers. Tokenizers: tests/golden/models/qwen2, which has
a chat template, and tests/golden/tokenizer/splits.json. AutoModel's labels are shifted by one, and its
newer versions add no eos: both are undone here.
"""
import gzip
import json
import sys
import types
from pathlib import Path

import torch  # noqa: F401  before the stand-ins
from transformers import PreTrainedTokenizerFast

GOLDEN = Path(__file__).resolve().parents[2] / "tests/golden"
Q, A = "What is 2 + 2?", "It is 4."
SQUAD = [
    {"context": "Two and two are four.", "question": Q, "answers": {"text": [" four ", "4"], "answer_start": [16, 0]}},
    {"context": "Größe {x}", "question": "Größe?", "answers": {"text": ["é"], "answer_start": [0]}},
]
CHOICES = [
    {"ctx": "A man adds two and two. He", "endings": ["sleeps.", "says four.", "runs."], "label": "1"},
    {"ctx": "Größe", "endings": ["eins.", "zwei."], "label": 0},
]
COLUMNS = [{"c": "Two and two are four.", "q": Q, "a": A}, {"c": "é", "q": "Größe?", "a": " 1\n"}]
CHAT = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' }}{% if m['role'] == 'assistant' %}{% generation %}"
        "{{ m['content'] + '<|im_end|>' }}{% endgeneration %}{{ '\\n' }}{% else %}{{ m['content'] + '<|im_end|>\\n' }}{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def stand_in(name, **values):
    def missing(key):
        if key.startswith("__"):
            raise AttributeError(key)
        return type(key, (), {})

    m = types.ModuleType(name)
    if "__path__" not in values:
        m.__getattr__ = missing
    m.__dict__.update(values)
    sys.modules[name] = m


def modules(source):
    src = Path(source) / "nemo_automodel"
    stand_in("datasets")
    for name in ("nemo_automodel", "nemo_automodel.components", "nemo_automodel.components.datasets", "nemo_automodel.components.datasets.llm"):
        stand_in(name, __path__=[str(src.joinpath(*name.split(".")[1:]))])
    stand_in("nemo_automodel.components.datasets.lazy_mapped_dataset")
    from nemo_automodel.components.datasets import utils
    from nemo_automodel.components.datasets.llm import column_mapped_text_instruction_dataset, squad
    return squad, column_mapped_text_instruction_dataset, utils


def tokenizers():
    for name, path, bos, eos in (("qwen2", GOLDEN / "models/qwen2/tokenizer.json", None, "<|im_end|>"), ("splits", GOLDEN / "tokenizer/splits.json", "<s>", "</s>")):
        t = PreTrainedTokenizerFast(tokenizer_file=str(path), bos_token=bos, eos_token=eos, pad_token=eos)
        yield name, t


def row(made, eos, last=None):
    """One more id than labels, which belong to the next one; with eos, as older versions and their tokenizers had it. `last`: the
    last id where it has no label."""
    ids, labels = list(made["input_ids"]), list(made["labels"])
    ids, labels = ids + [last if last is not None else labels[-1]], [-100] + labels
    return {"ids": ids + [eos], "labels": labels + [eos]} if eos is not None and ids[-1] != eos else {"ids": ids, "labels": labels}


def columns(module, t, mapping, chat):
    d = object.__new__(module.ColumnMappedTextInstructionDataset)
    d.tokenizer, d.column_mapping, d.answer_only_loss_mask = t, mapping, True
    d.seq_length, d.padding, d.truncation, d.use_hf_chat_template = None, "do_not_pad", "do_not_truncate", chat
    return [d._apply_tokenizer({k: r[v] for k, v in mapping.items()}) for r in COLUMNS]


def one(name, entry, records, made):
    return {"model": name, "entry": entry, "run": {}, "records": records, "rows": made}


def rows(source):
    squad, mapped, utils = modules(source)
    data = types.SimpleNamespace(get_context=lambda x: [r["ctx"] for r in x], get_target=lambda x: [r["endings"][int(r["label"])] for r in x])
    fields = {"field_instruction": "q", "field_output": "a"}
    for name, t in tokenizers():
        eos, chat = t.eos_token_id, name == "qwen2"
        if not chat:
            made = [utils.SFTSingleTurnPreprocessor(t)._tokenize_function([r], data) for r in CHOICES]
            yield one(name, {"type": "automodel:hellaswag"}, CHOICES, [row({"input_ids": x["input_ids"][0][:-1], "labels": x["labels"][0][:-1]}, eos) for x in made])
        t.chat_template = CHAT if chat else None
        entry = {"chat_template": "jinja", "chat_template_jinja": CHAT} if chat else {}
        end, last = (None, t("\n")["input_ids"][-1]) if chat else (eos, None)
        form = squad._formatting_prompts_func_with_chat_template if chat else squad._formatting_prompts_func
        made = [form(r, t, eos, t.pad_token_id, None, False, False) for r in SQUAD]
        yield one(name, entry | {"type": "automodel:squad"}, SQUAD, [row(x, end, last) for x in made])
        for mapping, context in (({"question": "q", "answer": "a"}, ""), ({"context": "c", "question": "q", "answer": "a"}, "c")):
            made = columns(mapped, t, mapping, chat)
            kind = {"type": "automodel:columns_chat" if chat else "automodel:columns", "field_input": context}
            yield one(name, entry | fields | kind, COLUMNS, [row(x, end, last) for x in made])


def main():
    with gzip.GzipFile(Path(sys.argv[2]) / "automodel.jsonl.gz", "wb", mtime=0) as f:
        f.writelines(json.dumps(r, ensure_ascii=False, separators=(",", ":")).encode() + b"\n" for r in rows(sys.argv[1]))


main()
