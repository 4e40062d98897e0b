#!/usr/bin/env python3
"""train_judge.py AFINAR TOKENIZER_DIR [--cases N] [--seed S] [--only WORD] [--keep DIR]

Random short training runs: afinar against PyTorch + transformers + PEFT in float32 on the CPU.
Each case draws a tiny model of some family, ragged token records, a method and its settings, and
compares per step loss, gradient norm, learning rate and supervised tokens, and the final weights.
A development tool: neither the program nor its tests need it. Needs torch, transformers, peft,
bitsandbytes, safetensors. One line per case; exit status 1 when a case is outside its tolerance."""
import argparse
import copy
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
warnings.filterwarnings("ignore")
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from transformers.utils import logging as hf_logging

import train_models
from train_optim import make_optimizer

torch.set_num_threads(1)
hf_logging.disable_progress_bar()
IGNORE = -100


# ---- a case: what is drawn ----

def draw_data(r, vocab, longest):
    rows = []
    for _ in range(r.randint(9, 30)):
        n = r.randint(4, longest)
        ids = [r.randrange(vocab) for _ in range(n)]
        prompt = r.randint(0, n - 2)
        labels = [IGNORE] * prompt + ids[prompt:]
        if n > 8 and r.random() < 0.3:  # a second hole
            a = r.randint(prompt, n - 2)
            labels[a:a + 2] = [IGNORE] * 2
        if all(x == IGNORE for x in labels[1:]):
            labels[-1] = ids[-1]
        rows.append({"input_ids": ids, "labels": labels})
    return rows


def draw_targets(r, model, moe):
    linears = sorted({n.split(".")[-1] for n, m in model.named_modules()
                      if isinstance(m, torch.nn.Linear) and "lm_head" not in n})
    if moe:
        linears = [x for x in linears if x in ("q_proj", "k_proj", "v_proj", "o_proj")]
    kind = r.choice(["list", "list", "regex", "all"])
    if kind == "all" and not moe:
        return "all-linear"
    chosen = sorted(r.sample(linears, r.randint(1, len(linears))))
    if kind == "regex":
        return r".*\.(%s)" % "|".join(chosen)
    return chosen


def draw(r, method):
    c = {"method": method,
         "micro_batch_size": r.randint(1, 3), "gradient_accumulation_steps": r.randint(1, 3),
         "max_steps": r.randint(5, 9), "learning_rate": r.choice([1e-3, 5e-4, 2e-3]),
         "weight_decay": r.choice([0, 0.01, 0.1]), "weight_decay_on": r.choice(["all", "matrices"]),
         "max_grad_norm": r.choice([1.0, 0.1, 0.3, 0]),
         "gradient_checkpointing": r.choice(["true", "false", "auto"]), "threads": r.randint(1, 2),
         "adam_beta1": r.choice([0.9, 0.8]), "adam_beta2": r.choice([0.999, 0.95]),
         "optimizer": r.choice(["adamw", "adamw", "adam", "sgd", "lion", "adafactor", "adamw_8bit"]),
         "sample_packing": r.random() < 0.35, "fresh": r.random() < 0.5}
    c["lr_scheduler"] = r.choice(["cosine", "linear", "constant", "constant_with_warmup",
                                  "polynomial", "inverse_sqrt", "cosine_with_restarts",
                                  "cosine_with_min_lr", "warmup_stable_decay"])
    c["warmup_steps"] = 0 if c["lr_scheduler"] == "constant" else r.randint(0, 3)
    if c["optimizer"] == "sgd":
        c["sgd_momentum"] = r.choice([0, 0.9])
        c["learning_rate"] *= 10
    if c["optimizer"] == "lion":
        c["learning_rate"] *= 0.1
    if method != "full":
        c["lora_r"] = r.choice([1, 2, 3, 4, 5, 8, 12, 16])
        c["lora_alpha"] = r.choice([1, 3, 8, 16, 20])
        c["rslora"] = method == "rslora" or r.random() < 0.2
        c["dora"] = method == "dora"
        c["loraplus"] = r.choice([2, 16]) if method == "lora+" else 0
        if c["optimizer"] == "adamw_8bit" and r.random() < 0.7:  # moments under 4096 elements stay f32
            c["lora_r"] = r.choice([50, 66, 91, 128])
    return c


def draw_odd(r, c):
    """Rare options: drawn separately, so that a seed's other choices stay as they were."""
    if c["warmup_steps"] and r.random() < 0.4:
        c["warmup_ratio"] = r.choice([0.1, 0.25, 0.3])
        c["warmup_steps"] = math.ceil(c["max_steps"] * c["warmup_ratio"])
    if c["method"] == "qlora":
        c["dora"] = r.random() < 0.5
    c["odd_target"] = c["method"] != "full" and r.choice([None, None, "lm_head", "embed_tokens"])
    c["odd_save"] = c["method"] == "qlora" and r.choice([None, None, ["lm_head"], ["embed_tokens"]])
    c["resume_at"] = r.randint(1, c["max_steps"] - 1) if r.random() < 0.4 else 0


# ---- the peer ----

def nf4_folder(afinar, folder, out):
    """Codes as afinar writes them for bf16 weights, dequantised by the formula: what a 4-bit f32 run
    computes with."""
    model = train_models.load(folder)
    folder = out + "-bf16"
    model.to(torch.bfloat16).save_pretrained(folder)
    subprocess.run([afinar, "quantize", folder, "-o", out, "--type", "nf4", "-q"], check=True,
                   capture_output=True)
    t = {}
    for name in sorted(os.listdir(out)):
        if name.endswith(".safetensors"):
            t.update(load_file(os.path.join(out, name)))
    done = {}
    for key in t:
        if not key.endswith(".quant_state.bitsandbytes__nf4"):
            continue
        w = key[:-len(".quant_state.bitsandbytes__nf4")]
        q = json.loads(bytes(t[key].tolist()))
        code = torch.stack([t[w].flatten() >> 4, t[w].flatten() & 15], 1).flatten().long()
        count = math.prod(q["shape"])
        absmax = t[w + ".nested_quant_map"][t[w + ".absmax"].long()]
        absmax = absmax * t[w + ".nested_absmax"].repeat_interleave(256)[:len(absmax)]
        absmax = absmax + torch.tensor(q["nested_offset"], dtype=torch.float32)
        v = t[w + ".quant_map"][code[:count]] * absmax.repeat_interleave(64)[:count]
        done[w] = v.view(q["shape"])
    return done


def lora_config(c):
    from peft import LoraConfig
    return LoraConfig(r=c["lora_r"], lora_alpha=c["lora_alpha"], target_modules=c["targets"],
                      use_rslora=c["rslora"], use_dora=c["dora"], task_type="CAUSAL_LM",
                      modules_to_save=c.get("modules_to_save"),
                      layers_to_transform=c.get("layers"), exclude_modules=c.get("exclude"))


def schedule(opt, c):
    from transformers import get_scheduler
    extra = {"cosine_with_min_lr": {"min_lr_rate": c.get("min_ratio", 0)},
             "cosine_with_restarts": {"num_cycles": c.get("cycles", 1)},
             "polynomial": {"power": c.get("power", 1.0)},
             "warmup_stable_decay": {"num_decay_steps": math.ceil(0.1 * c["max_steps"]),
                                     "decay_type": "cosine"}}
    return get_scheduler(c["lr_scheduler"], opt, num_warmup_steps=c["warmup_steps"],
                         num_training_steps=c["max_steps"],
                         scheduler_specific_kwargs=extra.get(c["lr_scheduler"]))


def items_of(c, rows):
    """An item is a record, or the records of a pack: both are computed record by record."""
    if not c["sample_packing"]:
        return [[x] for x in rows]
    packs, now, used = [], [], 0
    for x in rows:
        if now and used + len(x["input_ids"]) > c["sequence_len"]:
            packs.append(now)
            now, used = [], 0
        now.append(x)
        used += len(x["input_ids"])
    return packs + [now]


def peer(model, c, rows):
    params = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    opt = make_optimizer(model, params, c)
    sched = schedule(opt, c)
    items = items_of(c, rows)
    per = c["micro_batch_size"] * c["gradient_accumulation_steps"]
    model.train()
    steps = []
    for s in range(c["max_steps"]):
        batch = [x for k in range(per) for x in items[(s * per + k) % len(items)]]
        total = sum(sum(y != IGNORE for y in x["labels"][1:]) for x in batch)
        loss = 0.0
        for x in batch:
            ids = torch.tensor([x["input_ids"]])
            labels = torch.tensor(x["labels"])
            logits = model(input_ids=ids, use_cache=False).logits[0]
            one = F.cross_entropy(logits[:-1], labels[1:], ignore_index=IGNORE, reduction="sum") / total
            one.backward()
            loss += float(one.detach())
        plain = [p for _, p in params]
        for p in plain:  # afinar has a gradient for every trained tensor
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        limit = c["max_grad_norm"] or math.inf
        norm = torch.nn.utils.clip_grad_norm_(plain, limit, foreach=False)
        lr = sched.get_last_lr()[0]
        opt.step()
        sched.step()
        opt.zero_grad()
        steps.append((loss, float(norm), lr, total))
    return steps


# ---- ours ----

def run_file(c, folder, data, out, adapter_dir):
    y = {"base_model": folder, "datasets": [{"path": data, "type": "tokens"}], "output_dir": out,
         "shuffle": False, "bf16": False, "device": "cpu", "logging_steps": 1,
         "sequence_len": c["sequence_len"]}
    for k in ("micro_batch_size", "gradient_accumulation_steps", "max_steps", "learning_rate",
              "weight_decay", "weight_decay_on", "max_grad_norm", "gradient_checkpointing",
              "threads", "optimizer", "lr_scheduler", "warmup_steps", "sgd_momentum", "apollo_rank",
              "apollo_scale", "apollo_scale_type", "apollo_update_interval", "galore_rank", "galore_scale",
              "galore_update_interval", "galore_proj_type"):
        if k in c:
            y[k] = c[k]
    if "warmup_ratio" in c:
        del y["warmup_steps"]
        y["warmup_ratio"] = c["warmup_ratio"]
    if c["optimizer"] not in ("sgd", "adafactor"):
        y["adam_beta1"], y["adam_beta2"] = c["adam_beta1"], c["adam_beta2"]
    for k, name in (("min_ratio", "cosine_min_lr_ratio"), ("cycles", "lr_cycles"), ("power", "lr_power")):
        if k in c:
            y[name] = c[k]
    if c["sample_packing"]:
        y["sample_packing"] = y["sample_packing_sequentially"] = True
    if c["method"] != "full":
        y["adapter"] = "qlora" if c["method"] == "qlora" else "lora"
        if c["loraplus"]:
            y["loraplus_lr_ratio"] = c["loraplus"]
        if adapter_dir:
            y["lora_model_dir"] = adapter_dir
        else:
            y.update({"lora_r": c.get("lora_r"), "lora_alpha": c.get("lora_alpha"),
                      "lora_target_modules": c.get("targets"), "peft_use_rslora": c.get("rslora"),
                      "peft_use_dora": c.get("dora")})
            for k, name in (("modules_to_save", "lora_modules_to_save"), ("exclude", "lora_exclude_modules"),
                            ("layers", "lora_layers_to_transform")):
                if c.get(k):
                    y[name] = c[k]
    return y


def afinar_resumed(afinar, y, where, step):
    """A run that has lost everything after a checkpoint in its middle resumes from there."""
    afinar_train(afinar, {**y, "save_steps": step}, where)
    out = y["output_dir"]
    kept = {f"checkpoint-{step}", "metrics.jsonl", "trainer_state.json", "run.yaml"}
    for name in set(os.listdir(out)) - kept:
        path = os.path.join(out, name)
        shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
    return afinar_train(afinar, {**y, "resume_from_checkpoint": "auto"}, where, False)


def afinar_train(afinar, y, where, afresh=True):
    path = os.path.join(where, "run.yaml")
    with open(path, "w") as f:
        for k, v in y.items():
            f.write(f"{k}: {json.dumps(v)}\n" if not isinstance(v, str) or v not in ("true", "false", "auto")
                    else f"{k}: {v}\n")
    if afresh:
        shutil.rmtree(y["output_dir"], ignore_errors=True)
    p = subprocess.run([afinar, "train", path, "-q"], capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError(p.stderr.strip())
    with open(os.path.join(y["output_dir"], "metrics.jsonl")) as f:
        return [r for r in map(json.loads, f) if "loss" in r]


# ---- comparing ----

def named(model):
    from peft import PeftModel, get_peft_model_state_dict
    if isinstance(model, PeftModel):
        return {k: v for k, v in get_peft_model_state_dict(model).items() if ".base_layer." not in k}
    return train_models.disk_names(dict(model.named_parameters()))


def compare(ours, theirs, ours_w, theirs_w, c):
    """Worst differences over what the tolerances allow; every figure above 1 is a failure."""
    sign = c["optimizer"] in ("lion", "adamw_8bit")  # a rounding can flip a sign, or a code
    full = c["method"] == "full"
    loose = 200 if sign else 1
    worst = {"loss": 0.0, "norm": 0.0, "lr": 0.0, "weight": 0.0}
    for s, (a, b) in enumerate(zip(ours, theirs)):
        worst["loss"] = max(worst["loss"], abs(a["loss"] - b[0]) / (1e-5 * loose))
        worst["norm"] = max(worst["norm"], abs(a["grad_norm"] - b[1]) /
                            ((5e-5 if full else 1e-5) * max(1, b[1]) * loose))
        worst["lr"] = max(worst["lr"], abs(a["learning_rate"] - b[2]) / 1e-9)
        if a["supervised_tokens"] != b[3]:
            raise RuntimeError(f"step {s + 1}: {a['supervised_tokens']} supervised tokens, not {b[3]}")
    missing, extra = sorted(set(theirs_w) - set(ours_w)), sorted(set(ours_w) - set(theirs_w))
    if missing or extra:
        raise RuntimeError(f"tensors missing {missing[:3]} ({len(missing)}), too many {extra[:3]} ({len(extra)})")
    for k, t in theirs_w.items():
        d = (ours_w[k].float() - t.detach().float()).abs()
        if sign:
            v = float(d.mean()) / (0.02 * c["learning_rate"] * c["max_steps"])
        else:
            v = float(d.max()) / (5e-5 if full else 4e-5)
        worst["weight"] = max(worst["weight"], v)
    return worst


def one_case(afinar, tokenizer, seed, where):
    r = random.Random(seed)
    torch.manual_seed(seed)
    method = r.choice(["lora", "rslora", "dora", "lora+", "qlora", "full"])
    c = draw(r, method)
    draw_odd(random.Random(seed * 7919 + 1), c)
    c["family"] = r.choice(sorted(train_models.FAMILIES))
    folder = os.path.join(where, "model")
    model = train_models.make(r, c["family"], seed, folder, tokenizer)
    longest = r.choice([24, 60, 90])
    c["sequence_len"] = r.choice([longest, longest + 40])
    if c["lr_scheduler"] == "cosine_with_min_lr":
        c["min_ratio"] = 0.1
    if c["lr_scheduler"] == "cosine_with_restarts":
        c["cycles"] = r.choice([1, 2])
    if c["lr_scheduler"] == "polynomial":
        c["power"] = r.choice([1.0, 2.0])
    rows = draw_data(r, 512, longest)
    data = os.path.join(where, "data.jsonl")
    with open(data, "w") as f:
        f.writelines(json.dumps(x) + "\n" for x in rows)
    out, adapter_dir = os.path.join(where, "out"), None
    if method == "qlora":
        for k, v in nf4_folder(afinar, folder, os.path.join(where, "nf4")).items():
            if ".experts." not in k:  # bitsandbytes leaves 3-D tensors alone, and so does a run
                train_models.put(model, k, v)
    if method != "full":
        from peft import PeftModel, get_peft_model
        moe = c["family"] == "qwen3_moe"
        c["targets"] = draw_targets(r, model, moe)
        layers = model.config.num_hidden_layers
        if isinstance(c["targets"], list) and layers > 1 and r.random() < 0.25:
            c["layers"] = sorted(r.sample(range(layers), r.randint(1, layers - 1)))
        elif isinstance(c["targets"], list) and len(c["targets"]) > 1 and r.random() < 0.15:
            c["exclude"] = [c["targets"][0]]
        if method != "qlora" and r.random() < 0.25:
            c["modules_to_save"] = r.choice([["lm_head"], ["embed_tokens"], ["lm_head", "embed_tokens"],
                                             ["norm"], ["input_layernorm"] if "olmo2" not in c["family"]
                                             else ["post_attention_layernorm"]])
        if c["odd_save"]:
            c["modules_to_save"] = c["odd_save"]
        saved = c.get("modules_to_save") or []
        tied = model.config.tie_word_embeddings
        if c["dora"]:
            c["odd_target"] = None  # afinar refuses it
        if c["odd_target"] and isinstance(c["targets"], list) and not c.get("layers") and not tied and \
                c["odd_target"] not in saved:
            c["targets"] = c["targets"] + [c["odd_target"]]
        adapter_dir = os.path.join(where, "initial")
        theirs = get_peft_model(model, lora_config(c))
        for n, p in theirs.named_parameters():  # B not zero, magnitudes off the row norms
            if p.requires_grad and "lora_" in n and r.random() < 0.7:
                p.data.add_(torch.randn_like(p) * 0.02)
        if c["fresh"]:  # afinar makes the adapter by its keys; both continue from there
            y = run_file({**c, "max_steps": 2}, folder, data, adapter_dir, None)
            afinar_train(afinar, y, where)
            names = set(load_file(os.path.join(adapter_dir, "adapter_model.safetensors")))
            want = set(named(theirs))
            if names != want:
                raise RuntimeError(f"a new adapter lacks {sorted(want - names)[:3]}, has {sorted(names - want)[:3]}")
            model = theirs.unload()
            for p in model.parameters():
                p.requires_grad_(False)
        else:
            theirs.save_pretrained(adapter_dir)
            model = theirs.unload()
        model = PeftModel.from_pretrained(train_models.reload(folder, model), adapter_dir, is_trainable=True)
    exact = copy.deepcopy(model)
    steps = peer(model, c, rows)
    y = run_file(c, folder, data, out, adapter_dir)
    ours = afinar_resumed(afinar, y, where, c["resume_at"]) if c["resume_at"] else afinar_train(afinar, y, where)
    name = "adapter_model.safetensors" if method != "full" else "model.safetensors"
    if os.environ.get("JUDGE_STEPS"):
        for a, b in zip(ours, steps):
            print(a["loss"], b[0], a["grad_norm"], b[1], a["learning_rate"], b[2])
    final = load_file(os.path.join(out, name))
    worst = compare(ours, steps, final, named(model), c)
    if all(v <= 1 for v in worst.values()):
        return c, worst
    if c["optimizer"] == "adamw_8bit":  # codes of bitsandbytes on a CPU are not the nearest ones
        steps = peer(exact, {**c, "nearest": True}, rows)
        return c, compare(ours, steps, final, named(exact), c)
    exact = exact.double()
    # an unstable run is not a fault: PyTorch's own float32 may be as far from float64
    truth = peer(exact, c, rows)
    rows32 = [{"loss": a[0], "grad_norm": a[1], "learning_rate": a[2], "supervised_tokens": a[3]} for a in steps]
    noise = compare(rows32, truth, named(model), named(exact), c)
    worst = compare(ours, truth, final, named(exact), c)
    return c, {k: v / max(1, 8 * noise[k]) for k, v in worst.items()}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("afinar")
    ap.add_argument("tokenizer")
    ap.add_argument("--cases", type=int, default=20)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--only", help="regular expression over family, method and optimizer")
    ap.add_argument("--keep", help="work here and leave the files of the last case")
    a = ap.parse_args()
    bad = 0
    for seed in range(a.seed, a.seed + a.cases):
        where = a.keep or tempfile.mkdtemp(prefix="judge-")
        shutil.rmtree(where, ignore_errors=True)
        os.makedirs(where)
        r = random.Random(seed)
        words = ""
        try:
            if a.only:
                method = r.choice(["lora", "rslora", "dora", "lora+", "qlora", "full"])
                c = draw(r, method)
                family = r.choice(sorted(train_models.FAMILIES))
                if not re.search(a.only, f"{family} {method} {c['optimizer']}"):
                    continue
            c, worst = one_case(a.afinar, a.tokenizer, seed, where)
            words = f"{c['family']} {c['method']} {c['optimizer']} {c['lr_scheduler']} pack={c['sample_packing']}" \
                f" resume={c['resume_at']}" + " dora" * bool(c.get("dora"))
            fail = any(not v <= 1 for v in worst.values())
            text = " ".join(f"{k} {v:.2g}" for k, v in worst.items())
            if fail:
                text += " " + json.dumps(c)
        except Exception as e:  # a failed case is a line, not the end
            fail, text = True, f"{type(e).__name__}: {e}"
        bad += fail
        print(f"{'FAIL' if fail else 'ok  '} {seed} {words} {text}", flush=True)
        if not a.keep:
            shutil.rmtree(where, ignore_errors=True)
    print(f"{bad} failed")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
