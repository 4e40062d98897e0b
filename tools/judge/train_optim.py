"""The optimizers of a judged run: those of torch, transformers and bitsandbytes, with the parameter
groups of the HF trainer and of PEFT's LoRA+."""
import re

import torch

NO_DECAY = re.compile(r"norm|\.bias$")


def groups(model, params, c):
    """[(parameters, lr factor, decayed)]"""
    everywhere = c["weight_decay_on"] == "all"
    ratio = c.get("loraplus", 0)
    sorted_out = {}
    for name, p in params:
        magnitude = "lora_magnitude" in name
        decayed = everywhere or magnitude or not NO_DECAY.search(name)
        fast = ratio and ("lora_B" in name or p.ndim == 1)  # peft/optimizers/loraplus.py
        sorted_out.setdefault((ratio if fast else 1, decayed), []).append(p)
    return [(v, k[0], k[1]) for k, v in sorted_out.items()]


def make_optimizer(model, params, c):
    lr, wd = c["learning_rate"], c["weight_decay"]
    lists = [{"params": p, "lr": lr * factor, "weight_decay": wd if decayed else 0.0}
             for p, factor, decayed in groups(model, params, c)]
    lists.sort(key=lambda g: g["lr"])  # the first group tells the rate of the run
    betas = (c["adam_beta1"], c["adam_beta2"])
    kind = c["optimizer"]
    if kind == "adamw":
        return torch.optim.AdamW(lists, lr=lr, betas=betas, eps=1e-8, foreach=False)
    if kind == "adam":
        return torch.optim.Adam(lists, lr=lr, betas=betas, eps=1e-8, foreach=False)
    if kind == "sgd":
        return torch.optim.SGD(lists, lr=lr, momentum=c["sgd_momentum"], foreach=False)
    if kind == "adafactor":  # as the HF trainer sets it up
        from transformers.optimization import Adafactor
        return Adafactor(lists, lr=lr, scale_parameter=False, relative_step=False)
    import bitsandbytes as bnb
    if kind == "lion":
        return bnb.optim.Lion32bit(lists, lr=lr, betas=betas)
    manager = bnb.optim.GlobalOptimManager.get_instance()
    for name, p in params:  # as the HF trainer does
        if "embed_tokens" in name and "lora_" not in name:
            manager.register_parameters([p])
            manager.override_config(p, "optim_bits", 32)
    return bnb.optim.AdamW8bit(lists, lr=lr, betas=betas, eps=1e-8)
