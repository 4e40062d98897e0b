"""The optimizers of a judged run: those of torch, transformers and bitsandbytes, with the parameter
groups of the HF trainer and of PEFT's LoRA+."""
import math
import re
import types

import torch

EMBEDDING_RATE = 1e-6
NO_DECAY = re.compile(r"norm|\.bias$")


class NearestAdamW8bit(torch.optim.Optimizer):
    """bitsandbytes' 8-bit AdamW with the nearest codes, as its CUDA kernels take them: those of its CPU
    path are not (a second moment of exactly 0 becomes 1.6e-5 of the block's largest)."""
    BLOCK, SMALL = 256, 4096

    def __init__(self, lists, lr, betas, eps, whole):
        super().__init__(lists, {"lr": lr, "weight_decay": 0.0})
        from bitsandbytes.functional import create_dynamic_map
        self.maps = [create_dynamic_map(signed=True), create_dynamic_map(signed=False)]
        self.betas, self.eps, self.whole = betas, eps, whole

    def pack(self, x, k):
        flat = torch.nn.functional.pad(x.flatten(), (0, -x.numel() % self.BLOCK)).view(-1, self.BLOCK)
        most = flat.abs().amax(1, keepdim=True)
        unit = flat / most.clamp(min=1e-38)
        table = self.maps[k]
        high = torch.searchsorted(table, unit).clamp(1, 255)
        low = high - 1
        code = torch.where(unit - table[low] < table[high] - unit, low, high)
        if k == 0:  # a first moment keeps its sign
            wrong = torch.signbit(table[code]) != torch.signbit(unit)
            code = code + torch.where(wrong, torch.where(unit > 0, 1, -1), 0)
        return (table[code] * most).flatten()[:x.numel()].view_as(x)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                st = self.state.setdefault(p, {"t": 0, "m": torch.zeros_like(p), "v": torch.zeros_like(p)})
                st["t"] += 1
                b1, b2 = self.betas
                m, v = b1 * st["m"] + (1 - b1) * p.grad, b2 * st["v"] + (1 - b2) * p.grad ** 2
                c1, c2 = 1 - b1 ** st["t"], math.sqrt(1 - b2 ** st["t"])
                p.sub_(group["lr"] * c2 / c1 * m / (v.sqrt() + self.eps * c2))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                small = p.numel() < self.SMALL or any(p is w for w in self.whole)
                st["m"], st["v"] = (m, v) if small else (self.pack(m, 0), self.pack(v, 1))


def groups(model, params, c):
    """[(parameters, lr factor, decayed)]"""
    everywhere = c["weight_decay_on"] == "all"
    ratio = c.get("loraplus", 0)
    sorted_out = {}
    for name, p in params:
        magnitude = "lora_magnitude" in name
        decayed = everywhere or magnitude or not NO_DECAY.search(name)
        # peft/optimizers/loraplus.py: adapters of embeddings have a separate rate
        fast = ratio and ("lora_B" in name or p.ndim == 1)
        factor = ratio if fast else 1
        if ratio and "lora_embedding" in name:
            factor = EMBEDDING_RATE / c["learning_rate"]
        sorted_out.setdefault((factor, decayed), []).append(p)
    return [(v, k[0], k[1]) for k, v in sorted_out.items()]


def plain_rest(opt, betas):
    """torch's AdamW for all groups but the first: the package's decays after the step, which shows in the loss."""
    rest = torch.optim.AdamW([dict(g) for g in opt.param_groups[1:]], betas=betas, eps=1e-8, foreach=False)
    first = opt.step

    def step(_):
        groups = opt.param_groups
        for g, ours in zip(rest.param_groups, groups[1:]):
            g["lr"] = ours["lr"]
        opt.param_groups = groups[:1]
        first()
        opt.param_groups = groups
        rest.step()

    opt.step = types.MethodType(step, opt)
    return opt


def make_optimizer(model, params, c):
    lr, wd = c["learning_rate"], c["weight_decay"]
    lists = [{"params": p, "lr": lr * factor, "weight_decay": wd if decayed else 0.0}
             for p, factor, decayed in groups(model, params, c)]
    lists.sort(key=lambda g: abs(g["lr"] - lr))  # the rate of the first group is the rate of the run
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
    if kind == "adam_mini":  # as LLaMA-Factory sets it up; its parameter groups are its own
        from adam_mini import Adam_mini
        return Adam_mini(params, lr=lr, betas=betas, eps=1e-8, weight_decay=wd, dim=model.config.hidden_size,
                         n_heads=model.config.num_attention_heads, n_kv_heads=model.config.num_key_value_heads,
                         verbose=False)
    if kind == "apollo":  # with our projections; 42 is the seed of our runs
        import apollo_draws
        from apollo_torch import APOLLOAdamW
        # after the AdamW of what comes first: the embedding, and norms where they are a group of their own
        apollo_draws.replace(42, first=1 if c["weight_decay_on"] == "all" else 2)
        chosen = [p for name, p in params if re.search(r"layers.*_proj\.weight$", name)]
        rest = [{**g, "params": [p for p in g["params"] if not any(p is x for x in chosen)]} for g in lists]
        own = {"params": chosen, "lr": lr, "weight_decay": wd, "proj": "random", "proj_type": "std",
               "rank": c["apollo_rank"], "scale": c["apollo_scale"], "scale_type": c["apollo_scale_type"],
               "update_proj_gap": c["apollo_update_interval"]}
        return plain_rest(APOLLOAdamW([own, *rest], lr=lr, betas=betas, eps=1e-8), betas)
    if kind == "galore":  # with our signs
        import galore_signs
        from galore_torch import GaLoreAdamW
        galore_signs.replace()
        chosen = [p for name, p in params if re.search(r"layers.*_proj\.weight$", name)]
        rest = [{**g, "params": [p for p in g["params"] if not any(p is x for x in chosen)]} for g in lists]
        own = {"params": chosen, "lr": lr, "weight_decay": wd, "proj_type": c["galore_proj_type"],
               "rank": c["galore_rank"], "scale": c["galore_scale"], "update_proj_gap": c["galore_update_interval"]}
        return plain_rest(GaLoreAdamW([own, *rest], lr=lr, betas=betas, eps=1e-8, no_deprecation_warning=True), betas)
    import bitsandbytes as bnb
    if kind == "lion":
        return bnb.optim.Lion32bit(lists, lr=lr, betas=betas)
    whole = [p for name, p in params if "embed_tokens" in name and "lora_" not in name]  # as the HF trainer does
    if c.get("nearest"):
        return NearestAdamW8bit(lists, lr, betas, 1e-8, whole)
    manager = bnb.optim.GlobalOptimManager.get_instance()
    for p in whole:
        manager.register_parameters([p])
        manager.override_config(p, "optim_bits", 32)
    return bnb.optim.AdamW8bit(lists, lr=lr, betas=betas, eps=1e-8)
