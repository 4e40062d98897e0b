"""Judge of adapters: random PEFT adapters on random tiny models, logits of PEFT compared with afinar's.
Development only.

    python judge_adapters.py AFINAR [--seeds 0-19] [--types]

Also: an adapter with B = 0 changes no bit, and an adapter with a weight (next to another one) is scaled by it.
--types: adapters of the other types that are read or merged."""
import argparse, json, os, random, shutil, subprocess, sys, tempfile

import numpy as np
import peft
import torch
from safetensors.numpy import load_file, save_file

import judge_models as jm

for module in list(sys.modules.values()):  # an installed torchao that is too old for PEFT is an error
    if module.__name__.startswith("peft") and hasattr(module, "is_torchao_available"):
        module.is_torchao_available = lambda: False

FAMILIES = ["llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi3", "smollm3", "olmo2", "granite"]


def config(r, fam, layers):
    lin = ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"] if fam == "phi3" else \
        ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    kind = r.choice(["list", "regex", "all", "one"])
    t = {"list": r.sample(lin, r.randint(1, len(lin))), "all": "all-linear", "one": [r.choice(lin)],
         "regex": r.choice([r".*\.self_attn\.(o_proj|q_proj|qkv_proj)", r".*layers\.[01]\..*_proj",
                            r"model\.layers\.\d+\.mlp\.(down|up|gate_up)_proj"])}[kind]
    c = dict(r=r.choice([1, 2, 4, 7, 8]), lora_alpha=r.choice([1, 4, 16, 5.5]), target_modules=t,
             use_rslora=r.random() < .3, use_dora=r.random() < .3, task_type="CAUSAL_LM")
    if r.random() < .3:
        k = r.choice(lin)
        c["rank_pattern"] = {k: r.choice([1, 3, 5])}
        if r.random() < .5:
            c["alpha_pattern"] = {r"layers.0.*" + r.choice(lin): r.choice([2, 9])}
    if r.random() < .3:
        c["modules_to_save"] = r.choice([["lm_head"], ["embed_tokens"], ["lm_head", "embed_tokens"]])
    if kind in ("list", "one") and r.random() < .3:
        c["layers_to_transform"] = r.sample(range(layers), r.randint(1, layers))
    if kind == "list" and not c["use_dora"] and "modules_to_save" not in c and r.random() < .2:
        c["target_modules"] = c["target_modules"] + ["embed_tokens"]
    return peft.LoraConfig(**c)


def other(r, lora):
    """An adapter of another type on the targets of a LoRA config."""
    k = dict(target_modules=lora.target_modules, task_type="CAUSAL_LM")
    if lora.layers_to_transform is not None:
        k["layers_to_transform"] = lora.layers_to_transform
    patterns = dict(rank_pattern=lora.rank_pattern, alpha_pattern=lora.alpha_pattern)
    kind = r.choice(["adalora", "vera", "loha", "lokr", "miss", "oft", "ia3"])
    if kind == "adalora":
        return peft.AdaLoraConfig(init_r=lora.r, lora_alpha=lora.lora_alpha, total_step=9, **k)
    if kind == "vera":
        return peft.VeraConfig(r=lora.r, **k)
    if kind == "loha":
        return peft.LoHaConfig(r=min(lora.r, 4), alpha=lora.lora_alpha, **k, **patterns)
    if kind == "lokr":
        return peft.LoKrConfig(r=lora.r, alpha=lora.lora_alpha, decompose_both=r.random() < .5,
                               decompose_factor=r.choice([-1, 2, 4]), **k, **patterns)
    if kind == "miss":
        return peft.MissConfig(r=lora.r, **k)
    if kind == "oft":
        return peft.OFTConfig(oft_block_size=r.choice([2, 4, 8, 10]), use_cayley_neumann=r.random() < .5,
                              num_cayley_neumann_terms=r.choice([1, 2, 3, 4, 5, 8]), block_share=r.random() < .3,
                              coft=r.random() < .3, eps=.5, **k)
    k.pop("layers_to_transform", None)
    inputs = [t for t in k["target_modules"] if r.random() < .5] if isinstance(k["target_modules"], set) else []
    return peft.IA3Config(feedforward_modules=inputs, **k)


def randomise(m, seed):
    g = torch.Generator().manual_seed(seed)
    lora = m.peft_config["default"].peft_type == "LORA"
    with torch.no_grad():
        for n, p in m.named_parameters():
            if not lora:
                p.add_(torch.randn(p.shape, generator=g) * (.1 if p.requires_grad and "ranknum" not in n else 0))
            elif "lora_" in n and "magnitude" not in n:
                p.copy_(torch.randn(p.shape, generator=g) * .15)
            elif "magnitude" in n:
                p.mul_(1 + .1 * torch.randn(p.shape, generator=g))
            elif "modules_to_save" in n:
                p.add_(torch.randn(p.shape, generator=g) * .02)


def logits(afinar, path, tmp, ids, adapters=()):
    save_file({"input_ids": ids}, tmp + "/ids.safetensors")
    jm.call([afinar, "logits", path, "--ids", tmp + "/ids.safetensors", "-o", tmp + "/out.safetensors", "--device",
             "cpu", "-q", "--force"] + [x for a in adapters for x in ("--adapter", a)])
    return load_file(tmp + "/out.safetensors")["logits"]


def one(a, seed):
    r = random.Random(seed)
    fam = r.choice(FAMILIES)
    tmp = tempfile.mkdtemp()
    path = tmp + "/base"
    try:
        model, dtype, rr = jm.make_model(fam, seed % 7)
        if jm.rope_depends(model.config):
            model, dtype, rr = jm.make_model(fam, 100 + seed % 7)
        jm.save(model, dtype, path, rr)
        ids = np.array([[r.randrange(model.config.vocab_size) for _ in range(11)]], np.int32)
        base = logits(a.afinar, path, tmp, ids)
        cfg = config(r, fam, model.config.num_hidden_layers)
        while a.types and cfg.target_modules and "embed_tokens" in cfg.target_modules:
            cfg = config(r, fam, model.config.num_hidden_layers)
        cfg = other(r, cfg) if a.types else cfg
        m = peft.get_peft_model(model, cfg).eval()
        randomise(m, seed)
        m.save_pretrained(tmp + "/ad")
        with torch.no_grad():
            ref = m(torch.tensor(ids).long(), use_cache=False).logits.numpy()
        ours = logits(a.afinar, path, tmp, ids, [tmp + "/ad"])
        err, moved = jm.rel(ours, ref), jm.rel(base, ref)
        bad = err > 1e-5
        kind = cfg.peft_type.value if a.types else f"dora {cfg.use_dora:d} rs {cfg.use_rslora:d}"
        line = (f"{seed:3d} {fam:11s} {kind} save {cfg.modules_to_save} "
                f"target {str(sorted(cfg.target_modules) if isinstance(cfg.target_modules, set) else cfg.target_modules)[:60]} "
                f"err {err:.1e} (moved {moved:.1e})")
        if not a.types and not cfg.use_dora and not cfg.modules_to_save:
            shutil.copytree(tmp + "/ad", tmp + "/zero")
            f = tmp + "/zero/adapter_model.safetensors"
            t = load_file(f)
            save_file({k: (v * 0 if "lora_B" in k or "embedding_B" in k else v) for k, v in t.items()}, f)
            same = np.array_equal(logits(a.afinar, path, tmp, ids, [tmp + "/zero"]), base)
            bad |= not same
            line += f" zero {'same' if same else 'CHANGED'}"
            w = r.choice([0.5, 2.0, -1.0])
            mixed = logits(a.afinar, path, tmp, ids, [tmp + "/ad=" + str(w), tmp + "/zero"])
            with torch.no_grad():
                for n, mod in m.named_modules():
                    if isinstance(getattr(mod, "scaling", None), dict) and "default" in mod.scaling:
                        mod.scaling["default"] *= w
                want = m(torch.tensor(ids).long(), use_cache=False).logits.numpy()
            e2 = jm.rel(mixed, want)
            bad |= e2 > 1e-5
            line += f" weight {w} {e2:.1e}"
        print(line + (" BAD" if bad else ""), flush=True)
        return bad
    except Exception as e:
        print(f"{seed:3d} {fam} FAILED {type(e).__name__} {str(e)[:300]} BAD", flush=True)
        return True
    finally:
        shutil.rmtree(tmp)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("afinar")
    p.add_argument("--seeds", default="0-19")
    p.add_argument("--types", action="store_true")
    a = p.parse_args()
    lo, _, hi = a.seeds.partition("-")
    bad = sum(one(a, s) for s in range(int(lo), int(hi or lo) + 1))
    print(bad, "bad")
    sys.exit(bad > 0)
