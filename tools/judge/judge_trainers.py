#!/usr/bin/env python3
"""judge_trainers.py AFINAR [--only WORD] [--keep DIR]

Short runs next to the trainers that users come from: SFTTrainer, DPOTrainer, KTOTrainer, RewardTrainer, ORPOTrainer
and CPOTrainer of TRL, its GKDTrainer without generated answers, and the Trainer of transformers with labels; the tiny
Qwen2 of tests/golden in float32 on the CPU, 12 records in file order, 2 rows x 3 passes a step. Compared per step:
loss, gradient norm, learning rate and the metrics that both log. Weights are not: a bias of keys has no gradient but
rounding, by which AdamW divides; divergences of DPO raise such differences to a power, so that they run with SGD. A
development tool: needs torch, transformers, trl, peft, datasets, and for optimizers bitsandbytes, torch-optimi, schedulefree. One line per run with the largest difference,
relative to 1 or the value; exit status 1 when a run is outside."""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import warnings

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TRL_EXPERIMENTAL_SILENCE="1")
warnings.filterwarnings("ignore")
import torch
from datasets import Dataset, disable_progress_bars
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import (AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer,
                          DataCollatorWithPadding, Trainer, TrainerCallback, TrainingArguments)
from transformers.utils import logging
from trl import (DPOConfig, DPOTrainer, KTOConfig, KTOTrainer, RewardConfig, RewardTrainer, SFTConfig, SFTTrainer)
from trl.experimental.cpo import CPOConfig, CPOTrainer
from trl.experimental.gkd import GKDConfig, GKDTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

torch.set_num_threads(1)
logging.disable_progress_bar()
disable_progress_bars()
GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"
QWEN = str(GOLDEN / "models" / "qwen2")
# not those of padding (logits of ORPO and CPO), of time, or of the whole run
SKIPPED = ("step", "epoch", "total_flos", "train_", "eval_", "logits/")
LIMIT = 1e-4  # DPO begins with gradients that cancel out but for rounding; most runs are within 2e-6
RATE = {"learning_rate": 1e-3, "lr_scheduler_type": "linear"}


class Rows(TrainerCallback):
    def __init__(self):
        self.rows = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.rows.append(dict(logs, step=state.global_step))


def token_rows(n, seed):
    r, rows = random.Random(seed), []
    for _ in range(n):
        ids = [r.randrange(5, 500) for _ in range(r.randint(4, 30))]
        prompt = r.randint(0, len(ids) - 2)
        rows.append({"input_ids": ids, "labels": [-100] * prompt + ids[prompt:]})
    return rows


def golden_rows(name, keys, n=12):
    lines = (GOLDEN / "preference" / "data" / name).read_text().splitlines()[:n]
    return [{k: json.loads(x)[k] for k in keys} for x in lines]


def label_rows(kind):
    r = random.Random(5)
    words = "the lamp is near a lake station by people like old parts found yes no idea very good bad film".split()
    label = {"single_label_classification": lambda: r.randrange(3), "regression": lambda: 4 * r.random(),
             "multi_label_classification": lambda: [float(r.randrange(2)) for _ in range(4)]}[kind]
    return [{"text": " ".join(r.choice(words) for _ in range(r.randint(3, 14))), "label": label()} for _ in range(12)]


PAIRS = golden_rows("preferences.jsonl", ("prompt", "chosen", "rejected"))
KINDS = {"sft": (SFTTrainer, SFTConfig, token_rows(12, 3)), "dpo": (DPOTrainer, DPOConfig, PAIRS),
         "kto": (KTOTrainer, KTOConfig, golden_rows("kto.jsonl", ("prompt", "completion", "label"))),
         "orpo": (ORPOTrainer, ORPOConfig, PAIRS), "cpo": (CPOTrainer, CPOConfig, PAIRS),
         "simpo": (CPOTrainer, CPOConfig, PAIRS), "reward": (RewardTrainer, RewardConfig, PAIRS)}


class Judge:
    def __init__(self, afinar, folder):
        self.afinar, self.folder, self.failed = afinar, pathlib.Path(folder), 0
        self.tokenizer = AutoTokenizer.from_pretrained(QWEN)

    def path(self, name):
        return str(self.folder / name)

    def ours(self, name, rows, keys):
        data, run = self.path(name + ".jsonl"), self.path(name + ".yaml")
        with open(data, "w") as f:
            f.writelines(json.dumps(x) + "\n" for x in rows)
        keys = {"base_model": QWEN, "datasets": [{"path": data}], "output_dir": self.path(name), "shuffle": False,
                "bf16": False, "device": "cpu", "threads": 1, "per_device_train_batch_size": 2,
                "gradient_accumulation_steps": 3, "num_epochs": 4, "sequence_len": 160, **RATE, **keys}
        with open(run, "w") as f:
            f.writelines(f"{k}: {json.dumps(v)}\n" for k, v in keys.items())
        done = subprocess.run([self.afinar, "train", run, "-q"], capture_output=True, text=True)
        if done.returncode:
            print(done.stderr.strip())
            return []
        with open(os.path.join(self.path(name), "metrics.jsonl")) as f:
            return [json.loads(x) for x in f]

    def args(self, config, name, more):
        return config(**{**dict(output_dir=self.path(name + "-theirs"), report_to=[], logging_steps=1, use_cpu=True,
                                bf16=False, save_strategy="no", disable_tqdm=True, dataloader_pin_memory=False,
                                train_sampling_strategy="sequential", gradient_checkpointing=False,
                                per_device_train_batch_size=2, gradient_accumulation_steps=3, num_train_epochs=4),
                         **RATE, **({} if config is TrainingArguments else {"max_length": 160}), **more})

    def compare(self, name, ours, theirs):
        ours, theirs = ([x for x in rows if "loss" in x] for rows in (ours, theirs))
        worst, where = 0.0 if len(ours) == len(theirs) > 0 else float("inf"), ""
        for a, b in zip(ours, theirs):
            for k, v in b.items():
                if k in a and not k.startswith(SKIPPED) and abs(a[k] - v) / max(1, abs(v)) > worst:
                    worst, where = abs(a[k] - v) / max(1, abs(v)), f" ({k}, step {b['step']})"
        self.failed += worst > LIMIT
        print(f"{'ok' if worst <= LIMIT else 'OUTSIDE':8}{name:30}{len(ours)} steps, {worst:.1e}{where}", flush=True)

    def adapter(self, name, model, lora, warm):
        torch.manual_seed(3)
        made = get_peft_model(model, LoraConfig(**lora))
        for n, p in made.named_parameters():
            if warm and "lora_B" in n:  # an adapter that was trained before
                torch.nn.init.normal_(p, std=0.05)
        made.save_pretrained(self.path(name + "-start"))
        return made.unload()

    def run(self, name, kind, theirs=None, ours=None, lora=None, warm=False):
        trainer, config, rows = KINDS[kind]
        keys = {} if kind == "sft" else {"rl": kind}
        if kind == "reward":
            torch.manual_seed(0)
            model = AutoModelForSequenceClassification.from_pretrained(QWEN, num_labels=1, dtype=torch.float32)
            keys["base_model"] = self.path(name + "-base")
            model.save_pretrained(keys["base_model"])
            self.tokenizer.save_pretrained(keys["base_model"])
        else:
            model = AutoModelForCausalLM.from_pretrained(QWEN, dtype=torch.float32)
        if lora:
            task = "SEQ_CLS" if kind == "reward" else "CAUSAL_LM"
            model = self.adapter(name, model, {"task_type": task, "r": 4, "lora_alpha": 8, **lora}, warm)
            model = PeftModel.from_pretrained(model, self.path(name + "-start"), is_trainable=True)
            keys.update(adapter="lora", lora_model_dir=self.path(name + "-start"))
        log = Rows()
        reference = {}
        if kind in ("dpo", "kto") and not lora:
            reference["ref_model"] = AutoModelForCausalLM.from_pretrained(QWEN, dtype=torch.float32)
        trainer(model=model, args=self.args(config, name, theirs or {}), train_dataset=Dataset.from_list(rows),
                processing_class=self.tokenizer, callbacks=[log], **reference).train()
        self.compare(name, self.ours(name, rows, {**keys, **(ours or {})}), log.rows)

    def run_labels(self, name, kind, count):
        """With one pass a step: with several, transformers adds up the means of the passes."""
        rows, folder = label_rows(kind), self.path(name + "-base")
        torch.manual_seed(1)
        model = AutoModelForSequenceClassification.from_pretrained(QWEN, num_labels=count, dtype=torch.float32,
                                                                   problem_type=kind)
        model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        data = Dataset.from_list([dict(self.tokenizer(x["text"]), labels=x["label"]) for x in rows])
        log = Rows()
        Trainer(model=model, args=self.args(TrainingArguments, name, {"gradient_accumulation_steps": 1}),
                train_dataset=data, data_collator=DataCollatorWithPadding(self.tokenizer), callbacks=[log],
                processing_class=self.tokenizer).train()
        keys = {"base_model": folder, "task_type": "SEQ_CLS", "problem_type": kind, "num_labels": count,
                "gradient_accumulation_steps": 1}
        self.compare(name, self.ours(name, rows, keys), log.rows)


    def run_distillation(self, name, beta):
        """On the tokens and labels of TRL's collator: it counts other tokens of a template to the answer."""
        student, teacher = (AutoModelForCausalLM.from_pretrained(QWEN, dtype=torch.float32) for _ in range(2))
        torch.manual_seed(9)
        with torch.no_grad():
            for p in teacher.parameters():
                p.add_(0.02 * torch.randn_like(p))
        teacher.save_pretrained(self.path(name + "-teacher"))
        self.tokenizer.save_pretrained(self.path(name + "-teacher"))
        log = Rows()
        trainer = GKDTrainer(model=student, teacher_model=teacher, processing_class=self.tokenizer, callbacks=[log],
                             args=self.args(GKDConfig, name, {"lmbda": 0.0, "beta": beta}),
                             train_dataset=Dataset.from_list([{"messages": x["prompt"] + x["chosen"]} for x in PAIRS]))
        batches = [trainer.data_collator([x]) for x in trainer.train_dataset]
        rows = [{k: b[k][0].tolist() for k in ("input_ids", "labels")} for b in batches]
        trainer.train()
        keys = {"teacher_model": self.path(name + "-teacher"), "kd_beta": beta}
        self.compare(name, self.ours(name, rows, keys), log.rows)


def same(**keys):
    return keys, keys


def scheduled(name, warmup=2, **kwargs):
    return same(lr_scheduler_type=name, warmup_steps=warmup, **({"lr_scheduler_kwargs": kwargs} if kwargs else {}))


def sft_runs():
    packed = {"packing": True, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 1}
    runs = {"plain": same(), "decay": same(weight_decay=0.1), "no-clipping": same(max_grad_norm=0.0),
            "betas": same(adam_beta1=0.8, adam_beta2=0.95, adam_epsilon=1e-6),
            "smoothing": same(label_smoothing_factor=0.1), "dft": same(loss_type="dft"),
            "logging": same(logging_steps=2),
            "packing": ({"max_length": 64, **packed}, {"sequence_len": 64, **packed}),
            "share": ({"warmup_steps": 0.25}, {"warmup_ratio": 0.25})}
    for name in ("adafactor", "lion_32bit", "sgd", "rmsprop", "ademamix", "adagrad", "stable_adamw", "schedule_free_adamw",
                 "schedule_free_radam", "schedule_free_sgd"):
        runs[name] = same(optim=name, learning_rate=1e-4)
    for name, args in (("sgd", "momentum=0.9,nesterov=True"), ("rmsprop", "alpha=0.9,eps=1e-4"),
                       ("adagrad", "lr_decay=0.1,eps=1e-6"), ("ademamix", "beta1=0.8,beta3=0.99,alpha=2"),
                       ("schedule_free_adamw", "r=1,weight_lr_power=1")):
        runs[name + "-args"] = same(optim=name, optim_args=args, learning_rate=1e-4, warmup_steps=2)
    runs["restarts"] = scheduled("cosine_with_restarts", num_cycles=3)
    runs["floor"] = scheduled("cosine_with_min_lr", min_lr_rate=0.1)
    runs["ahead"] = scheduled("cosine_warmup_with_min_lr", min_lr_rate=0.1)
    runs["wsd"] = scheduled("warmup_stable_decay", num_decay_steps=4, decay_type="linear", min_lr_ratio=0.1)
    runs["polynomial"] = scheduled("polynomial", power=2.0, lr_end=1e-4)
    runs["inverse-sqrt"] = scheduled("inverse_sqrt")
    runs["constant"] = scheduled("constant_with_warmup")
    return [("sft-" + k, "sft", *v) for k, v in runs.items()]


def preference_runs():
    runs = []
    for loss in ("sigmoid hinge ipo robust exo_pair nca_pair bco_pair aot aot_unpaired apo_zero apo_down discopop "
                 "sft sigmoid_norm").split():
        smooth = {"label_smoothing": 0.1} if loss in ("robust", "exo_pair", "aot", "aot_unpaired") else {}
        runs.append(("dpo-" + loss, "dpo", *same(loss_type=[loss], **smooth)))
    runs += [("dpo-several", "dpo", *same(loss_type=["sigmoid", "bco_pair", "sft"], loss_weights=[0.8, 0.2, 1.0])),
             *((f"dpo-end-{n}", "dpo", {"max_length": n, "truncation_mode": "keep_end"},
                {"sequence_len": n, "truncation_mode": "keep_end"}) for n in (8, 24)),
             ("dpo-sync", "dpo", *same(sync_ref_model=True, ref_model_sync_steps=2)),
             ("dpo-ld", "dpo", *same(ld_alpha=0.5)), ("dpo-wpo", "dpo", *same(use_weighting=True)),
             *((f"dpo-{kind}", "dpo", *same(f_divergence_type=kind, optim="sgd", learning_rate=0.05))
               for kind in ("forward_kl", "js_divergence", "alpha_divergence")),
             ("kto", "kto", *same(desirable_weight=1.3)), ("orpo", "orpo"),
             ("cpo-hinge", "cpo", *same(loss_type="hinge")), ("cpo-smoothing", "cpo", *same(label_smoothing=0.1)),
             ("simpo", "simpo", {"loss_type": "simpo", "cpo_alpha": 0.0, "beta": 2.0}, {}),
             ("reward", "reward", *same(center_rewards_coefficient=0.01))]
    return runs


def adapter_runs():
    lora = {"target_modules": ["q_proj", "v_proj", "down_proj"]}
    kinds = {"plain": {}, "dora": {"use_dora": True}, "rslora": {"use_rslora": True}, "bias": {"lora_bias": True},
             "saved": {"modules_to_save": ["embed_tokens"]}, "layers": {"layers_to_transform": [1]},
             "patterns": {"rank_pattern": {"down_proj": 2}, "alpha_pattern": {"q_proj": 3}}}
    runs = [("lora-" + k, "sft", {}, {}, {**lora, **v}) for k, v in kinds.items()]
    runs += [(f"lora-{kind}{'-warm' * warm}", kind, {}, {}, lora, warm) for kind in ("dpo", "kto") for warm in (0, 1)]
    return runs + [("lora-reward", "reward", {}, {}, lora)]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("afinar")
    p.add_argument("--only", default="", help="runs whose name contains this")
    p.add_argument("--keep", help="folder for all files")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        if a.keep:
            os.makedirs(a.keep, exist_ok=True)
        judge = Judge(os.path.abspath(a.afinar), a.keep or temporary)
        for run in sft_runs() + preference_runs() + adapter_runs():
            if a.only in run[0]:
                judge.run(*run)
        for beta in (0.0, 0.5, 1.0):
            if a.only in f"distillation-{beta}":
                judge.run_distillation(f"distillation-{beta}", beta)
        for kind, count in (("single_label_classification", 3), ("regression", 1), ("multi_label_classification", 4)):
            if a.only in kind:
                judge.run_labels(kind, kind, count)
    return judge.failed > 0


if __name__ == "__main__":
    sys.exit(main())
