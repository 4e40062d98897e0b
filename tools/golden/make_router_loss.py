#!/usr/bin/env python3
"""Makes tests/golden/judged/router-*.json: python make_router_loss.py [NAME ...].

Five steps of the tiny Qwen3-MoE of tests/golden/models with output_router_logits by the Trainer of transformers in
float32 on the CPU: loss (auxiliary loss included), gradient norm, learning rate and label tokens of each step.
Micro-batches of two records of different lengths are padded, so that the attention mask matters."""
import json
import os
import pathlib
import random
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Qwen3MoeConfig, Trainer, TrainingArguments

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"
COMMON = {"shuffle": False, "bf16": False, "device": "cpu", "logging_steps": 1, "sequence_len": 32,
          "micro_batch_size": 2, "max_steps": 5, "learning_rate": 0.002, "weight_decay": 0.0, "max_grad_norm": 0.5,
          "lr_scheduler": "constant", "warmup_steps": 0, "optimizer": "adamw", "adam_epsilon": 1e-6, "threads": 2}
LORA = {"adapter": "lora", "lora_r": 4, "lora_alpha": 8, "lora_target_modules": ["q_proj", "v_proj"]}
CASES = {
    "router-full": {"router_aux_loss_coef": 0.5, "gradient_accumulation_steps": 1},
    "router-full-accumulated": {"router_aux_loss_coef": 0.2, "gradient_accumulation_steps": 3,
                                "gradient_checkpointing": True},
    "router-full-layers": {"base": "judged/router-model", "router_aux_loss_coef": 0.5, "gradient_accumulation_steps": 2},
    "router-experts": {**LORA, "base": "judged/router-model", "router_aux_loss_coef": 0.5,
                       "gradient_accumulation_steps": 2,
                       "lora_target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]},
    "router-qlora": {**LORA, "adapter": "qlora", "base": "judged/router-model", "router_aux_loss_coef": 0.5,
                     "gradient_accumulation_steps": 2,
                     "lora_target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]},
    "router-linear": {**LORA, "lora_r": 2, "lora_target_modules": "all-linear", "base": "judged/router-model",
                      "router_aux_loss_coef": 0.5, "gradient_accumulation_steps": 2},
    "router-lora": {**LORA, "router_aux_loss_coef": 0.5, "gradient_accumulation_steps": 2},
}


class Ordered(Trainer):
    def _get_train_sampler(self, *args, **kwargs):
        return None


def collate(items):
    length = max(len(x["input_ids"]) for x in items)
    out = {"input_ids": [], "labels": [], "attention_mask": []}
    for x in items:
        pad = length - len(x["input_ids"])
        out["input_ids"].append(x["input_ids"] + [0] * pad)
        out["labels"].append(x["labels"] + [-100] * pad)
        out["attention_mask"].append([1] * len(x["input_ids"]) + [0] * pad)
    return {k: torch.tensor(v) for k, v in out.items()}


def records():
    r = random.Random(7)
    rows = []
    for i in range(30):
        ids = [r.randrange(3, 32) for _ in range(r.randrange(6, 24))]
        rows.append({"input_ids": ids, "labels": [-100] * 2 + ids[2:]})
    return rows


def adapter_of(keys):
    """B of the one on experts is not zero, so that the order of its columns matters from the first step."""
    if keys["lora_target_modules"] == "all-linear":
        return "linear-adapter"
    return "experts-adapter" if "lora_target_parameters" in keys else "router-adapter"


def quantise(model):
    """Linears and experts through bitsandbytes' NF4 with double quantisation; each parameter is one tensor."""
    import bitsandbytes.functional as bnb
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim == 3 or "self_attn" in name and "_proj" in name:
                codes, state = bnb.quantize_4bit(p.bfloat16().contiguous(), blocksize=64, quant_type="nf4",
                                                 compress_statistics=True)
                state.dtype = torch.float32
                p.copy_(bnb.dequantize_4bit(codes, state).reshape(p.shape))


def judge(keys, rows, base):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(str(GOLDEN / base), dtype=torch.float32, attn_implementation="eager",
                                                 output_router_logits=True,
                                                 router_aux_loss_coef=keys["router_aux_loss_coef"])
    assert model.config.output_router_logits and model.router_aux_loss_coef == keys["router_aux_loss_coef"]
    if keys.get("adapter") == "qlora":
        quantise(model)
    if "adapter" in keys:
        torch.manual_seed(0)
        model = get_peft_model(model, LoraConfig(r=keys["lora_r"], lora_alpha=keys["lora_alpha"],
                                                 target_modules=keys["lora_target_modules"],
                                                 target_parameters=keys.get("lora_target_parameters"),
                                                 init_lora_weights=adapter_of(keys) == "router-adapter"))
        folder = GOLDEN / "judged" / adapter_of(keys)
        model.save_pretrained(str(folder))
        (folder / "README.md").unlink()
    accumulate = keys["gradient_accumulation_steps"]
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(), per_device_train_batch_size=2, gradient_accumulation_steps=accumulate,
        max_steps=keys["max_steps"], learning_rate=keys["learning_rate"], weight_decay=0.0, max_grad_norm=0.5,
        lr_scheduler_type="constant", optim="adamw_torch", adam_epsilon=1e-6, logging_steps=1, use_cpu=True,
        report_to=[], save_strategy="no", remove_unused_columns=False, disable_tqdm=True)
    t = Ordered(model=model, args=args, train_dataset=rows, data_collator=collate)
    t.train()
    labels = [sum(v != -100 for v in x["labels"][1:]) for x in rows]
    per = 2 * accumulate
    logs = [x for x in t.state.log_history if "loss" in x]
    return [{"loss": x["loss"], "grad_norm": float(x["grad_norm"]), "lr": x["learning_rate"],
             "label_tokens": sum(labels[(i * per + k) % len(rows)] for k in range(per))}
            for i, x in enumerate(logs)]


def make_model():
    """models/qwen3_moe has one layer with a router; this has three, with different loads."""
    torch.manual_seed(3)
    config = Qwen3MoeConfig(
        vocab_size=32, hidden_size=8, intermediate_size=8, moe_intermediate_size=4, num_hidden_layers=3, head_dim=4,
        num_attention_heads=2, num_key_value_heads=1, num_experts=5, num_experts_per_tok=2, norm_topk_prob=True,
        max_position_embeddings=64, initializer_range=0.4, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(str(GOLDEN / "judged/router-model"))


def main():
    make_model()
    rows = records()
    out = GOLDEN / "judged"
    (out / "router.jsonl").write_text("".join(json.dumps(x) + "\n" for x in rows))
    for name, extra in CASES.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        keys = {**COMMON, **extra}
        base = keys.pop("base", "models/qwen3_moe")
        steps = judge(keys, rows, base)
        adapter = {"start": "judged/" + adapter_of(keys)} if "adapter" in keys else {}
        for k in list(keys):
            if k.startswith("lora_"):
                del keys[k]  # the stored adapter has them
        (out / (name + ".json")).write_text(json.dumps({"run": keys, "router": base, **adapter, "steps": steps}, indent=1) + "\n")
        print(name, steps[0], steps[-1])


if __name__ == "__main__":
    main()
