"""Judge of the conversions: random tiny models of every family, exported to GGUF and read by
llama.cpp, back to a folder and read by transformers, quantised and read by transformers with
bitsandbytes, adapters merged and compared with PEFT and as LoRA files in llama.cpp. Development only: nothing of this ships or runs in the tests.

    python judge_convert.py AFINAR [--family F] [--seeds 0-9] [--only gguf,back,bnb,peft,lora]

One line per case: relative L2 of the logits against transformers in float32. Exits 1 when an f32 file
is beyond 1e-4, when a smaller type is beyond what its bits allow, or when something does not load."""
import argparse, json, os, re, shutil, sys, tempfile

import numpy as np
import torch
import transformers
import llama_cpp
from safetensors.torch import load_file

from judge_models import FAMILIES, call, forward, make_model, rel, save

ALLOWED = {"f32": 2e-4, "f16": 0.02, "bf16": 0.04, "q8_0": 0.12, "q6_k": 0.25, "q5_1": 0.3, "q5_0": 0.3, "q5_k_m": 0.3,
           "q4_0": 0.7, "q4_1": 0.6, "q4_k_m": 0.7, "q4_k_s": 0.7, "iq4_nl": 0.6, "iq4_xs": 0.6, "q3_k_m": 0.9,
           "q2_k": 1.3}

# The head, routers, indexers, out_proj of Mamba: PEFT refuses them, or no gradient reaches them.
REFUSED = re.compile(r"lm_head|\.(gate|router|classifier)$|\.router\.|\.indexer\.|\.(mamba|mixer)\.out_proj$")

# What the file says: llama-cpp-python's own defaults of these replace it.
OF_FILE = {"yarn_" + k: -1.0 for k in ("beta_fast", "beta_slow", "ext_factor", "attn_factor")}

TEXT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/golden/gguf_models/llama/hf")


def llama_logits(path, ids):
    m = llama_cpp.Llama(path, logits_all=True, n_ctx=64, verbose=False, n_threads=1, type_k=0,
                        type_v=0, flash_attn=False, **OF_FILE)
    m.eval([int(i) for i in ids])
    out = np.array(m.scores[:len(ids)])
    m.close()
    return out


def our_logits(afinar, path, tmp, ids):
    call([afinar, "logits", path, "--ids", ids_file(tmp, torch.tensor(ids)[None]), "-o",
          tmp + "/o.st", "--device", "cpu", "--force", "-q"])
    return load_file(tmp + "/o.st")["logits"][0].numpy()


def refused(afinar, path, out, *more):
    """Exports to GGUF. The reason when the format cannot have the model; any other failure is raised."""
    try:
        call([afinar, "export", path, "-o", out, *more, "--force", "-q"])
    except RuntimeError as e:
        if not re.search("GGUF|llama.cpp", str(e)):
            raise
        return "refused: " + str(e)[-120:]
    return None


def is_longrope(c):
    return (getattr(c, "rope_parameters", None) or {}).get("rope_type") == "longrope"


def gguf(afinar, path, tmp, model, r):
    c = model.config
    ids = np.array([r.randrange(c.vocab_size) for _ in range(3)])  # windows are 3 and more
    if is_longrope(c):
        return "longrope: llama.cpp takes the long factors by its context, 256 at least", True
    with torch.no_grad():
        want = forward(model, ids[None])[0].numpy()
    parts = []
    for t in ["f32"] + r.sample(list(ALLOWED)[1:], 3):
        out = f"{tmp}/{t}.gguf"
        why = refused(afinar, path, out, "--type", t, "--no-verify")
        if why:
            return why, True
        try:
            e = rel(llama_logits(out, ids), want)
        except Exception as x:
            return f"{t}: llama.cpp {x!r}"[:150], False
        parts.append(f"{t} {e:.1e}")
        allowed = 1e-3 if t == "f32" and "gelu" in str(c.to_dict()) else ALLOWED[t]
        if not e < allowed and t != "f32":
            o = our_logits(afinar, out, tmp, ids)  # llama.cpp fails on some odd sizes, as with its own files
            parts[-1] += f" (ours {rel(o, want):.1e})"
            e = rel(o, want)
        if not e < allowed:
            return " ".join(parts) + " TOO FAR", False
    return " ".join(parts), True


def back(afinar, path, tmp, model, r):
    why = refused(afinar, path, tmp + "/x.gguf", "--type", "f32", "--no-verify")
    if why:
        return why, True
    call([afinar, "export", tmp + "/x.gguf", "-o", tmp + "/b", "--no-verify", "-q"])
    m = transformers.AutoModelForCausalLM.from_pretrained(tmp + "/b", dtype=torch.float32)
    a, b = dict(model.state_dict()), dict(m.state_dict())
    bad = [k for k in a if k not in b or not torch.equal(a[k], b[k])]
    x, y = (json.load(open(d + "/config.json")) for d in (path, tmp + "/b"))
    keys = [k for k in set(x) | set(y) if x.get(k) != y.get(k)]
    return f"tensors that differ {bad[:3]} keys {keys}", not bad and not keys


def bnb(afinar, path, tmp, model, r):
    parts, ok = [], True
    ids = torch.tensor([[r.randrange(model.config.vocab_size) for _ in range(9)]])
    with torch.no_grad():
        want = forward(model, ids)[0].numpy()
    for t, far in (("nf4", 0.9), ("int8", 0.1), ("fp4", 1.2)):
        call([afinar, "quantize", path, "-o", tmp + "/" + t, "--type", t, "-q"])
        m = transformers.AutoModelForCausalLM.from_pretrained(tmp + "/" + t, device_map="cpu")
        kinds = {type(x).__name__ for x in m.modules() if "bit" in type(x).__name__}
        with torch.no_grad():
            e = rel(m(ids).logits[0].float().numpy(), want)
        call([afinar, "logits", tmp + "/" + t, "--ids", ids_file(tmp, ids), "-o", tmp + "/o.st", "--force", "-q"])
        o = rel(load_file(tmp + "/o.st")["logits"][0].numpy(), want)
        parts.append(f"{t} {e:.2f} (ours {o:.2f}) {'+'.join(kinds)}")
        ok &= e < far and o < far and bool(kinds)
    return " ".join(parts), ok


def make_adapter(model, path, r, plain):
    """A random PEFT adapter on the model, saved in path; returns the PeftModel. plain: what a LoRA
    GGUF file can hold."""
    from peft import LoraConfig, get_peft_model
    kinds = (torch.nn.Linear, transformers.pytorch_utils.Conv1D)
    linears = sorted({n.split(".")[-1] for n, m in model.named_modules() if isinstance(m, kinds) and not REFUSED.search(n)})
    some = r.sample(linears, r.randint(1, len(linears)))
    experts = any("experts." in n for n, _ in model.named_parameters())
    if experts and {"gate_proj", "up_proj"} & set(some):  # PEFT adapts stacked experts by both or not at all
        some = sorted({*some, "gate_proj", "up_proj"})
    kw = dict(r=r.choice([2, 4, 8]), lora_alpha=r.choice([3, 8, 16.5]), target_modules=some,
              use_rslora=r.random() < .5)
    if r.random() < .5:
        kw["rank_pattern"] = {r.choice(some): r.choice([1, 3, 6])}
    if r.random() < .5:
        kw["alpha_pattern"] = {r.choice(some): r.choice([2, 7])}
    if r.random() < .3:
        kw["layers_to_transform"] = [0]
    if not plain:
        kw["use_dora"] = r.random() < .4 and not experts  # nor has it DoRA of them
        if not kw["use_dora"] and r.random() < .3:
            kw["lora_bias"] = all(m.bias is not None for n, m in model.named_modules()
                                  if n.split(".")[-1] in some)
        if r.random() < .25 and not model.config.tie_word_embeddings:
            kw["modules_to_save"] = ["lm_head"]
    p = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **kw))
    with torch.no_grad():
        for n, x in p.named_parameters():
            if "lora_" in n and "magnitude" not in n or "modules_to_save" in n:
                x.copy_(torch.randn(x.shape) * .1)
            elif "magnitude" in n:
                x.mul_(1 + .2 * torch.randn(x.shape))
    p.save_pretrained(path)
    return p.eval(), kw


def peft(afinar, path, tmp, model, r):
    """afinar merge of an adapter compared with merge_and_unload."""
    m = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    p, kw = make_adapter(m, tmp + "/a", r, False)
    want = p.merge_and_unload().state_dict()
    call([afinar, "merge", path, "--adapter", tmp + "/a", "-o", tmp + "/o", "--type", "f32", "-q"])
    got = transformers.AutoModelForCausalLM.from_pretrained(tmp + "/o", dtype=torch.float32).state_dict()
    worst = max(float((got[k] - want[k]).abs().max()) for k in want)
    return f"{worst:.1e} {kw}", worst < 1e-6 and set(got) == set(want)


def lora(afinar, path, tmp, model, r):
    """An adapter as LoRA GGUF in llama.cpp compared with PEFT."""
    why = refused(afinar, path, tmp + "/m.gguf", "--type", "f32", "--no-verify")
    if why or is_longrope(model.config):
        return why or "longrope: as in gguf", True
    ids = [r.randrange(model.config.vocab_size) for _ in range(3)]
    with torch.no_grad():
        plain = forward(model, np.array(ids)[None])[0].numpy()
    q, kw = make_adapter(model, tmp + "/a", r, True)
    with torch.no_grad():
        want = forward(q, np.array(ids)[None])[0].numpy()
    why = refused(afinar, path, tmp + "/l.gguf", "--adapter", tmp + "/a", "--adapter-only")
    if why:
        return why, True
    m = llama_cpp.Llama(tmp + "/m.gguf", logits_all=True, n_ctx=64, verbose=False, n_threads=1,
                        type_k=0, type_v=0, flash_attn=False, **OF_FILE, lora_path=tmp + "/l.gguf")
    m.eval(ids)
    e = rel(np.array(m.scores[:3]), want)
    m.close()
    return f"{e:.1e} (without {rel(plain, want):.1e}) {kw}", e < 1e-3


def ids_file(tmp, ids):
    from safetensors.numpy import save_file
    save_file({"input_ids": ids.numpy().astype(np.int32)}, tmp + "/ids.st")
    return tmp + "/ids.st"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("afinar")
    p.add_argument("--family", default=",".join(FAMILIES))
    p.add_argument("--seeds", default="0-4")
    p.add_argument("--only", default="gguf,back,bnb,peft,lora")
    o = p.parse_args()
    lo, hi = (o.seeds + "-" + o.seeds).split("-")[:2]
    failed = 0
    for f in o.family.split(","):
        for seed in range(int(lo), int(hi) + 1):
            for check in o.only.split(","):
                with tempfile.TemporaryDirectory() as tmp:
                    model, dtype, r = make_model(f, seed)
                    path = tmp + "/m"
                    save(model, dtype, path, r)
                    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
                        shutil.copy(os.path.join(TEXT, name), path)
                    try:
                        text, ok = globals()[check](o.afinar, path, tmp, model, r)
                    except Exception as x:
                        text, ok = repr(x)[-250:], False
                print(f, seed, str(dtype)[6:], check, "ok" if ok else "BAD", text, flush=True)
                failed += not ok
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
