#!/usr/bin/env python3
"""make_prompts.py AXOLOTL LLAMAFACTORY OUT - ids and labels of records in the prompts of Axolotl and the templates of
LLaMA-Factory, made by those programs' own prompters and templates.

AXOLOTL and LLAMAFACTORY are unpacked source distributions (axolotl 0.19.0, llamafactory 0.9.5). Only the modules that
build prompts are imported; what they import for other work is replaced by empty stand-ins. Needs tokenizers, jinja2.
Tokenizers: tests/golden/models/qwen2 (no bos), tests/golden/tokenizer/bytes.json (bos by its post-processor).
"""
import datetime
import gzip
import json
import sys
import types
from pathlib import Path

import jinja2
import jinja2.ext
import jinja2.sandbox
from tokenizers import Tokenizer

GOLDEN = Path(__file__).resolve().parents[2] / "tests/golden"
LONG = 1 << 20


def stand_in(name, **values):
    m = types.ModuleType(name)
    if "__path__" not in values:
        m.__getattr__ = lambda key: type(key, (), {})
    m.__dict__.update(values)
    sys.modules[name] = m
    return m


class Log:
    def __getattr__(self, name):
        return lambda *a, **k: None


class Encoded(dict):
    def __init__(self, data=None):
        super().__init__(data or {})


class Plain:
    """What the prompters use of a transformers tokenizer."""

    def __init__(self, path, bos, eos):
        self.t = Tokenizer.from_file(str(path))
        self.bos_token, self.eos_token, self.pad_token = bos, eos, eos
        self.chat_template = None

    bos_token_id = property(lambda s: s.t.token_to_id(s.bos_token) if s.bos_token else None)
    eos_token_id = property(lambda s: s.t.token_to_id(s.eos_token) if s.eos_token else None)
    pad_token_id = eos_token_id

    def __call__(self, text, add_special_tokens=True, truncation=False, max_length=None, **_):
        ids = self.t.encode(text, add_special_tokens=add_special_tokens).ids
        return {"input_ids": ids, "attention_mask": [1] * len(ids)}

    def encode(self, text, add_special_tokens=True):
        return self.t.encode(text, add_special_tokens=add_special_tokens).ids

    def convert_tokens_to_ids(self, token):
        return self.t.token_to_id(token)

    def add_special_tokens(self, tokens, **_):
        if "eos_token" in tokens:
            self.eos_token = tokens["eos_token"]
        return 0


def tokenizers():
    return {
        "qwen2": Plain(GOLDEN / "models/qwen2/tokenizer.json", None, "<|im_end|>"),
        "bytes": Plain(GOLDEN / "tokenizer/bytes.json", "<s>", "</s>"),
    }


# ---------------------------------------------------------------- Axolotl: prompts

Q, A = "What is 2 + 2?", "It is 4."
ALPACA = [
    {"instruction": Q, "input": "", "output": A},
    {"instruction": "Add", "input": "2 and 3", "output": "5\n"},
    {"instruction": "Größe {x}", "input": "{a} }{", "output": " é "},
    {"instruction": "No input", "output": "fine"},
    {"instruction": "null", "input": None, "output": "yes"},
]
SYSTEM = [r | {"system": s} for r, s in zip(ALPACA, ["Be brief.", "", "Sé {amable}", "x", ""])]
CHOICES = [{"question": Q, "choices": ["3", "4"], "solution": A}, {"question": Q, "choices": [], "explanation": "4."}]
CONTEXT = [{"article": "Two and two are four.", "question": Q, "unanswerable_question": "Why?", "answer": A, "context": "math"}]
ORCA = [{"question": Q, "response": A, "system_prompt": s} for s in ("Be brief.", "")]
OASST = [{"INSTRUCTION": Q, "RESPONSE": A}]
STYLED = {
    "alpaca": ALPACA, "jeopardy": [{"category": "math", "question": Q, "answer": "four"}], "oasst": OASST,
    "gpteacher": [{"instruction": Q, "input": i, "response": A} for i in ("", "now")], "explainchoice": CHOICES,
}
PLAIN = {
    "concisechoice": CHOICES, "summarizetldr": [{"article": "Long.", "summary": "L"}],
    "reflection": [r | {"reflection": "Good.", "corrected": "Four."} for r in ALPACA[:2]],
    "reflection:chat": [r | {"reflection": "Good.", "corrected": "Four."} for r in ALPACA[:2]],
    "alpaca_instruct": ALPACA, "alpaca_instruct.load_no_prompt": ALPACA, "alpaca_chat": ALPACA, "alpaca_chat.load_concise": ALPACA,
    "alpaca_chat.load_qa": [{"question": Q, "answer": A}], "alpaca_chat.load_camel_ai": [{"message_1": Q, "message_2": A}],
    "alpaca_chat.load_no_prompt": ALPACA, "alpaca_w_system": SYSTEM, "alpaca_w_system.load": SYSTEM, "alpaca_w_system.load_chat": SYSTEM,
    "alpaca_w_system.load_instruct": SYSTEM, "alpaca_w_system.load_open_orca": ORCA, "alpaca_w_system.load_open_orca_chatml": ORCA,
    "context_qa": CONTEXT, "context_qa.load_404": CONTEXT, "context_qa.load_v2": CONTEXT, "orcamini": ORCA,
    "creative_acr.load_answer": [{"instruction": Q, "answer": "no", "revision": A}],
}
OWN = [
    ({"format": "[INST] {instruction} | {input} [/INST]", "no_input_format": "[INST] {instruction} [/INST]"}, ALPACA),
    ({"field_instruction": "q", "field_output": "a"}, [{"q": Q, "a": A}]),
    ({"field_instruction": "q", "field_input": "extra", "field_output": "a", "field_system": "s", "system_prompt": "Default.",
      "system_format": "<<{system}>>\n", "format": "{{{instruction}}} {input}: ", "no_input_format": "Q: {instruction}\nA:"},
     [{"q": Q, "a": A}, {"q": Q, "a": A, "s": "Own.", "extra": "more"}, {"q": Q, "s": "", "a": ""}]),
]


def axolotl_modules(source):
    src = Path(source) / "src/axolotl"
    stand_in("transformers", BatchEncoding=Encoded)
    stand_in("datasets")
    stand_in("colorama", Fore=types.SimpleNamespace(CYAN="", RESET=""))
    stand_in("axolotl", __path__=[str(src)])
    stand_in("axolotl.utils", __path__=[])
    stand_in("axolotl.utils.logging", get_logger=lambda *a: Log())
    import importlib
    from axolotl import prompt_strategies, prompt_tokenizers, prompters
    return importlib, prompt_strategies, prompt_tokenizers, prompters


def axolotl_strategy(modules, kind, tok, cfg):
    importlib, strategies, tz, pr = modules
    if isinstance(kind, dict):
        return strategies.load("user_defined", tok, cfg, dict(kind))
    loaded = strategies.load(kind, tok, cfg, {})
    if loaded:
        return loaded
    base, _, style = kind.partition(":")
    prompter, strategy = {
        "alpaca": (pr.AlpacaPrompter, tz.AlpacaPromptTokenizingStrategy), "jeopardy": (pr.JeopardyPrompter, tz.JeopardyPromptTokenizingStrategy),
        "oasst": (pr.AlpacaPrompter, tz.OpenAssistantPromptTokenizingStrategy), "gpteacher": (pr.GPTeacherPrompter, tz.GPTeacherPromptTokenizingStrategy),
        "explainchoice": (pr.MultipleChoiceExplainPrompter, tz.AlpacaMultipleChoicePromptTokenizingStrategy),
        "concisechoice": (pr.MultipleChoiceConcisePrompter, tz.AlpacaMultipleChoicePromptTokenizingStrategy),
        "summarizetldr": (pr.SummarizeTLDRPrompter, tz.SummarizeTLDRPromptTokenizingStrategy),
        "reflection": (pr.ReflectAlpacaPrompter, tz.AlpacaReflectionPTStrategy),
    }[base]
    return strategy(prompter(style or "instruct"), tok, cfg.train_on_inputs, cfg.sequence_len)


def axolotl_rows(source):
    modules = axolotl_modules(source)
    jobs = [(k if s == "instruct" else f"{k}:{s}", r) for k, r in STYLED.items() for s in ("instruct", "chat", "chatml", "phi")]
    jobs += list(PLAIN.items()) + OWN
    for name, tok in tokenizers().items():
        for kind, records in jobs:
            for inputs in (False, True) if kind in ("alpaca", "reflection") else (False,):
                cfg = types.SimpleNamespace(train_on_inputs=inputs, sequence_len=LONG)
                strategy = axolotl_strategy(modules, kind, tok, cfg)
                rows = [strategy.tokenize_prompt(r) for r in records]
                yield {"model": name, "entry": {"type": kind}, "run": {"train_on_inputs": inputs}, "records": records,
                       "rows": [{"ids": r["input_ids"], "labels": r["labels"]} for r in rows]}


# ---------------------------------------------------------------- LLaMA-Factory: templates

def talks():
    def turn(*texts):
        return [{"role": ("user", "assistant")[i % 2], "content": t} for i, t in enumerate(texts)]
    think = "<think>\nTwo and two.\n</think>\n\nIt is 4."
    return [
        (None, turn(Q, A)),
        ("Be brief.", turn(Q, A)),
        (None, turn(Q, A, " And 3 + 3? ", " 6\n")),
        ("Sé breve.", turn("Größe?", "1 é", "\nx", "\n\ny", "z", "w")),
        (None, turn(Q, think)),
        ("S", turn(Q, think, "Again?", think)),
    ]


def factory_modules(source):
    src = Path(source) / "src/llamafactory"
    stand_in("llamafactory", __path__=[str(src)])
    stand_in("llamafactory.extras", logging=types.SimpleNamespace(get_logger=lambda *a: Log()))
    stand_in("llamafactory.extras.logging", get_logger=lambda *a: Log())
    stand_in("llamafactory.data", __path__=[str(src / "data")])
    stand_in("llamafactory.data.data_utils", Role=role_names())
    stand_in("llamafactory.data.mm_plugin", get_mm_plugin=lambda *a, **k: None)
    from llamafactory.data import template
    stand_in("llamafactory.data.processor", __path__=[str(src / "data/processor")])
    from llamafactory.data.processor import processor_utils
    return template, processor_utils


def role_names():
    import enum

    class Role(str, enum.Enum):
        USER, ASSISTANT, SYSTEM, FUNCTION, OBSERVATION = "user", "assistant", "system", "function", "observation"
    return Role


def factory_encode(t, utils, tok, system, messages, cutoff, history, prompt):
    """As SupervisedDatasetProcessor._encode_data_example, which cannot be imported without the trainer."""
    ids, labels = [], []
    pairs = t.encode_multiturn(tok, messages, system, None, history and not t.preserve_thinking)
    total = 1 if t.efficient_eos else 0
    for i, (source, target) in enumerate(pairs[::-1] if history else pairs):
        if total >= cutoff:
            break
        n, m = utils.infer_seqlen(len(source), len(target), cutoff - total)
        source, target, total = source[:n], target[:m], total + n + m
        mask = source if prompt else [tok.eos_token_id] + [-100] * (n - 1) if t.efficient_eos and i else [-100] * n
        goal = [-100] * m if history and i else target
        ids, labels = (source + target + ids, mask + goal + labels) if history else (ids + source + target, labels + mask + goal)
    end = [tok.eos_token_id] if t.efficient_eos else []
    return {"ids": ids + end, "labels": labels + end}


def factory_rows(source):
    template, utils = factory_modules(source)
    plain = [n for n in template.TEMPLATES if n != "dbrx"]         # not in the table: a page of system text
    for name in tokenizers():
        for which in plain:
            for run in ({}, {"cutoff_len": 40}, {"mask_history": True}, {"train_on_prompt": True}, {"enable_thinking": False}):
                if run and which not in ("default", "llama3", "qwen", "qwen3", "llama2", "falcon", "deepseekr1"):
                    continue
                if name == "bytes" and which not in ("default", "llama3", "qwen3", "llama2", "falcon", "gemma", "alpaca", "mistral"):
                    continue
                tok, t = tokenizers()[name], template.TEMPLATES[which]
                if run.get("train_on_prompt") and t.efficient_eos:
                    continue
                thinking = t.enable_thinking
                if isinstance(t, template.ReasoningTemplate):
                    t.enable_thinking = run.get("enable_thinking", True)
                elif "enable_thinking" in run:
                    continue
                t.fix_special_tokens(tok)
                if tok.eos_token_id is None:        # its stop word is not in this small vocabulary
                    continue
                rows = [factory_encode(t, utils, tok, s, m, run.get("cutoff_len", LONG), run.get("mask_history"), run.get("train_on_prompt"))
                        for s, m in talks()]
                t.enable_thinking = thinking
                if any(i is None for r in rows for i in r["ids"]):
                    continue                        # a token of its own that this vocabulary lacks
                records = [{"messages": ([{"role": "system", "content": s}] if s else []) + m} for s, m in talks()]
                yield {"model": name, "entry": {}, "run": {"template": which} | run, "records": records, "rows": rows}


# ---------------------------------------------------------------- Axolotl: chat templates

def environment():
    class Generation(jinja2.ext.Extension):
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.Scope(body).set_lineno(line)

    e = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])

    def refuse(message):
        raise jinja2.exceptions.TemplateError(message)
    e.globals["raise_exception"] = refuse
    e.globals["strftime_now"] = datetime.datetime(2025, 3, 14, 9, 26, 53).strftime
    e.filters["tojson"] = lambda x, **k: json.dumps(x, ensure_ascii=False)
    return e


def template_rows(source):
    e = environment()
    for path in sorted((Path(source) / "src/axolotl/utils/chat_templates/templates").glob("*.jinja")):
        t, rows = e.from_string(path.read_text()), []
        for system, messages in talks():
            m = ([{"role": "system", "content": system}] if system else []) + messages
            try:
                rows.append({"messages": m, "text": t.render(messages=m, tools=None, documents=None, add_generation_prompt=False, bos_token="<s>", eos_token="</s>")})
            except jinja2.exceptions.TemplateError:
                rows.append({"messages": m, "text": None})
        yield {"template": path.stem, "rows": rows}


def main():
    axolotl, factory, out = sys.argv[1:4]
    for name, rows in (("axolotl", axolotl_rows(axolotl)), ("chat_templates", template_rows(axolotl)), ("llamafactory", factory_rows(factory))):
        with gzip.GzipFile(Path(out) / f"{name}.jsonl.gz", "wb", mtime=0) as f:
            f.writelines(json.dumps(r, ensure_ascii=False, separators=(",", ":")).encode() + b"\n" for r in rows)


main()
