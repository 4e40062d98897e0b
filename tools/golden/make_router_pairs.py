#!/usr/bin/env python3
"""Makes tests/golden/judged/router-pairs: python make_router_pairs.py.

Preference training of judged/router-model with the auxiliary loss of its routers by TRL, float32 on the CPU: a tokenizer of
letters, pairs and answers with labels, and per run the keys and, of each step, loss, aux_loss and gradient norm. All weights
are trained; the reference is a frozen copy. Micro-batches hold sequences of different lengths, so that padding matters."""
import json
import os
import pathlib
import random
import shutil
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import datasets
import torch
import transformers
import trl
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "judged"
OUT = GOLDEN / "router-pairs"
LETTERS = "abcdefghijklmnopqrstuvwxyzĠ"
COMMON = {"per_device_train_batch_size": 2, "max_steps": 4, "learning_rate": 0.002, "weight_decay": 0.0, "max_grad_norm": 0.5, "lr_scheduler_type": "constant",
          "warmup_steps": 0, "max_length": 60}
RUNS = {
    "dpo-default": {"rl": "dpo"},
    "dpo": {"rl": "dpo", "router_aux_loss_coef": 0.5, "gradient_accumulation_steps": 2},
    "kto": {"rl": "kto", "router_aux_loss_coef": 0.3},
    "orpo": {"rl": "orpo", "router_aux_loss_coef": 0.4, "output_router_logits": True},
}


def tokenizer_json():
    vocab = {"<pad>": 0, "<bos>": 1, "<eos>": 2, **{c: i + 3 for i, c in enumerate(LETTERS)}}
    special = [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
               for i, t in enumerate(["<pad>", "<bos>", "<eos>"])]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                      "ignore_merges": False, "vocab": vocab, "merges": []}}


def text(r, least, most):
    return "".join(r.choice("abcdefghij klmnop qrstuvw xyz") for _ in range(r.randrange(least, most))).strip() + r.choice("xyz")


def write(name, rows):
    with open(OUT / name, "w") as f:
        f.writelines(json.dumps(row) + "\n" for row in rows)


def train(folder, name):
    run = dict(RUNS[name])
    method, coef, logits = run.pop("rl"), run.pop("router_aux_loss_coef", None), run.pop("output_router_logits", None)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    rows = [json.loads(line) for line in open(OUT / ("kto.jsonl" if method == "kto" else "pairs.jsonl"))]
    config, trainer = {"dpo": (trl.DPOConfig, trl.DPOTrainer), "kto": (trl.KTOConfig, trl.KTOTrainer), "orpo": (ORPOConfig, ORPOTrainer)}[method]
    more = {"router_aux_loss_coef": coef} if method != "orpo" else {"max_prompt_length": None} if hasattr(ORPOConfig, "max_prompt_length") else {}
    if method == "orpo":
        model.config.router_aux_loss_coef, model.config.output_router_logits = coef, logits
    else:
        more["train_sampling_strategy"] = "sequential"
    with tempfile.TemporaryDirectory() as out:
        args = config(output_dir=out, logging_steps=1, report_to=[], bf16=False, use_cpu=True, gradient_checkpointing=False, save_strategy="no", beta=0.1, disable_tqdm=True, seed=0,
                      **COMMON, **run, **more)

        class Ordered(trainer):
            def _get_train_sampler(self, *a, **k):
                return torch.utils.data.SequentialSampler(self.train_dataset)

        t = Ordered(model, args=args, train_dataset=datasets.Dataset.from_list(rows), processing_class=transformers.AutoTokenizer.from_pretrained(folder))
        t.train()
    steps = [{k: h[k] for k in ("loss", "grad_norm", "aux_loss") if k in h} for h in t.state.log_history if "loss" in h]
    return {"keys": {**COMMON, **RUNS[name]}, "steps": steps}


def main():
    OUT.mkdir(exist_ok=True)
    r = random.Random(11)
    with open(OUT / "tokenizer.json", "w") as f:
        json.dump(tokenizer_json(), f, separators=(",", ":"), ensure_ascii=False)
    with open(OUT / "tokenizer_config.json", "w") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>"}, f)
    pairs = [{"prompt": text(r, 3, 20), "chosen": " " + text(r, 2, 18), "rejected": " " + text(r, 2, 18)} for _ in range(16)]
    write("pairs.jsonl", pairs)
    write("kto.jsonl", [{"prompt": p["prompt"], "completion": p["chosen" if i % 3 else "rejected"], "label": i % 3 > 0} for i, p in enumerate(pairs)])
    with tempfile.TemporaryDirectory() as folder:
        for f in (GOLDEN / "router-model").iterdir():
            shutil.copy(f, folder)
        for f in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(OUT / f, folder)
        result = {name: train(folder, name) for name in RUNS}
    with open(OUT / "runs.json", "w") as f:
        json.dump(result, f, indent=1)
        f.write("\n")


main()
