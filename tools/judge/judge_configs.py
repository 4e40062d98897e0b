"""Judge of config.json: random changes of its keys, as transformers reads them. A tiny model of every family
(judge_models.py makes its config) gets one to three changes: keys of its configuration class with other values, without
a value or left out, rotations of every type in both spellings, layers of other kinds. transformers reads the changed
file and makes the model; afinar reads the same file. Development only: nothing of this ships or runs in the tests.

    python judge_configs.py AFINAR [--family F] [--seeds 0-9] [--keep DIR] [--grad]

A line per case: ok, BAD (logits beyond 1e-5, gradients beyond 3e-5), refused (with the sentence), other (transformers
refuses it, or the model is too large). Exits 1 when one is BAD. Known differences that are no errors: a
partial_rotary_factor that leaves one pair of a tiny head (torch broadcasts it), rope_scaling of cohere2_moe, which
transformers 5.23 does not read, and an old word of a key next to its new one (transformers takes the last)."""
import argparse, collections, copy, dataclasses, json, os, random, shutil, subprocess, sys, tempfile

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file

import judge_models as j
import published

LARGEST = 20e6  # parameters
FIXED = {"vocab_size", "hidden_size", "num_hidden_layers", "model_type", "architectures", "dtype", "torch_dtype", "bos_token_id",
         "transformers_version", "pad_token_id", "eos_token_id", "use_cache", "return_dict", "output_hidden_states", "id2label",
         "label2id", "output_attentions", "initializer_range", "problem_type", "chunk_size_feed_forward", "is_encoder_decoder",
         "is_decoder", "num_labels", "tokenizer_class", "_name_or_path", "output_router_logits", "rope_theta", "rope_scaling",
         "qk_head_dim", "topk_group", "attention_layers", "layer_types", "rope_parameters"}
ACTS = ["silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "quick_gelu", "relu", "relu2", "tanh", "swish", "linear"]
TOKENIZER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/golden/gguf_models/llama/hf")


def rotation(r, c, nested):
    kind = r.choice([*j.ROPES, "proportional"])
    head = c.get("qk_rope_head_dim") or c.get("head_dim") or c.get("hidden_size", 32) // max(1, c.get("num_attention_heads") or 4)
    part = None if c.get("qk_rope_head_dim") else r.choice([None, None, None, 0.25, 0.5, 0.75, 1.0])
    old = c.get("rope_parameters")
    if isinstance(old, dict) and part is None and not c.get("qk_rope_head_dim"):
        part = old.get("partial_rotary_factor")
    if kind == "proportional":
        p = {"rope_type": kind, "rope_theta": r.choice([1e4, 1e6]), "partial_rotary_factor": r.choice([0.25, 0.5, 1.0])}
        return dict(p, factor=r.choice([2.0, 4.0])) if r.random() < .3 else p
    p = j.rope(r, kind, int(head * (part or 1)) // 2, 32, r.choice([1e4, 777.0, 1e6]))
    if part is not None:
        p["partial_rotary_factor"] = part
    if nested:
        p.pop("truncate", None)  # transformers reads it outside of such sets alone
    if kind == "yarn" and r.random() < .2:
        p["mscale"] = 1.0
    if kind in ("yarn", "llama3") and r.random() < .15:
        p.pop("original_max_position_embeddings")
    return p


def old_words(r, c):
    """rope_parameters as rope_theta and rope_scaling, the rest inside or outside of that."""
    p = c.get("rope_parameters")
    if not isinstance(p, dict) or any(isinstance(v, dict) for v in p.values()):
        return None
    p = dict(c.pop("rope_parameters"))
    theta = p.pop("rope_theta", None)
    if theta is not None and r.random() < .85:
        c["rope_theta"] = theta
    if "partial_rotary_factor" in p and r.random() < .8:
        c["partial_rotary_factor"] = p.pop("partial_rotary_factor")
    if "original_max_position_embeddings" in p and r.random() < .3:
        c["original_max_position_embeddings"] = p["original_max_position_embeddings"]
    kind = p.pop("rope_type", "default")
    if kind != "default" or p:
        words = r.choice([["type"], ["rope_type"], ["type", "rope_type"]])
        c["rope_scaling"] = dict(p, **{w: kind for w in words})
    elif r.random() < .5:
        c["rope_scaling"] = None
    return "old words: " + kind


def other_rotation(r, c):
    p = c.get("rope_parameters")
    if isinstance(p, dict) and p and all(v is None or isinstance(v, dict) for v in p.values()):
        kind = r.choice(list(p))
        c["rope_parameters"] = dict(p, **{kind: rotation(r, c, True)})
    else:
        c["rope_parameters"] = rotation(r, c, False)
    return f"rope_parameters={c['rope_parameters']}"


def other_layers(r, c):
    if r.random() < .4:
        c.pop("layer_types", None)
        return "no layer_types"
    kinds = sorted(set(c.get("layer_types") or [])) or ["full_attention"]
    if kinds == ["full_attention"] or kinds == ["sliding_attention"]:
        kinds = ["full_attention", "sliding_attention"]
    c["layer_types"] = [r.choice(kinds) for _ in range(c["num_hidden_layers"])]
    return f"layer_types={c['layer_types']}"


def other_heads(r, c):
    if "num_attention_heads" not in c:
        return None
    c["num_attention_heads"] = r.choice([1, 2, 4, 6, 8])
    if "num_key_value_heads" in c:
        c["num_key_value_heads"] = r.choice([1, c["num_attention_heads"], None])
    return f"heads {c['num_attention_heads']}, {c.get('num_key_value_heads')}"


def other_value(r, c, fields):
    k = r.choice(fields)
    v = c.get(k)
    if k in c and r.random() < .15 and not k.endswith(("size", "dim")):
        c.pop(k)
        return f"no {k}"
    if isinstance(v, bool) or (v is None and k.startswith(("use_", "enable", "is_"))) or (v is None and k.endswith("bias")):
        c[k] = not v
    elif isinstance(v, float):
        some = [0.0] if "drop" in k or "jitter" in k else [v * 2, v / 2, v * 10, 1.0, 0.5, v * 1.3]
        c[k] = r.choice(some)
    elif isinstance(v, int):
        c[k] = r.choice([max(0, v - 1), v + 1, v * 2, max(1, v // 2), 1, 2, 4] + ([] if "window" in k else [0]))
    elif isinstance(v, str) and "act" in k:
        c[k] = r.choice(ACTS)
    elif isinstance(v, list) and v and all(isinstance(x, (str, int, float)) for x in v):
        c[k] = [r.choice(v) for _ in v] if r.random() < .8 else None
    elif v is None:
        c[k] = r.choice([True, False, 1, 2, 4, 8, 0.5, 1.0])
    else:
        return None
    return f"{k}={c[k]}"


def change(r, c, cls):
    fields = [k for k in {**c, **{f.name: 0 for f in dataclasses.fields(cls)}} if k not in FIXED]
    if c.get("qk_rope_head_dim"):
        fields.remove("head_dim") if "head_dim" in fields else None
    w = r.random()
    turns = "rope_parameters" in c
    if turns and w < .3:
        return other_rotation(r, c) if w < .18 else old_words(r, c)
    if w < .37 and "layer_types" in c:
        return other_layers(r, c)
    if w < .44:
        return other_heads(r, c)
    if w < .48:
        c["pad_token_id"] = r.choice([None, 0, 3, -1])
        return f"pad_token_id={c['pad_token_id']}"
    return other_value(r, c, fields)


def config_of(base):
    c, full = json.loads(base.to_json_string(use_diff=True)), json.loads(base.to_json_string(use_diff=False))
    for k in ("num_hidden_layers", "rope_parameters", "layer_types"):
        if full.get(k) is not None and base.to_dict().get(k) is not None:
            c.setdefault(k, full[k])
    for v in (c.get("rope_parameters") or {}).values():
        if isinstance(v, dict):
            v.pop("truncate", None)
    return c


def model_of(path, family, seed):
    cfg = transformers.AutoConfig.from_pretrained(path)
    cfg._attn_implementation = cfg._experts_implementation = "eager"
    if getattr(cfg, "alibi", False):
        cfg._attn_implementation = "sdpa"
    with torch.device("meta"):
        if sum(p.numel() for p in j.causal_lm(copy.deepcopy(cfg)).parameters()) > LARGEST:
            raise OverflowError("too large")
    model = published.patch(j.causal_lm(cfg).float().eval())
    j.fill(model, family, seed)
    return model


def one(a, family, seed, tmp):
    r = random.Random(f"configs {family} {seed}")
    torch.manual_seed(seed)
    base = j.make_config(family, r)
    c = config_of(base)
    notes = "; ".join(filter(None, (change(r, c, type(base)) for _ in range(r.choice([1, 1, 2, 3])))))
    path = os.path.join(tmp, "model")
    os.makedirs(path, exist_ok=True)
    json.dump(c, open(path + "/config.json", "w"), indent=1)
    B, T = 2, r.choice([5, 14, 30, 41])
    try:
        model = model_of(path, family, seed)
        ids = np.array([[r.randrange(4, model.config.vocab_size) for _ in range(T)] for _ in range(B)], np.int32)
        with torch.no_grad():
            ref = j.forward(model, ids).numpy()
        if not np.isfinite(ref).all():
            return "other", notes + ": not finite"
    except Exception as e:  # what transformers refuses, in its many ways
        return "other", f"{notes}: {type(e).__name__} {str(e)[:120]}".replace("\n", " ")
    model.save_pretrained(path, max_shard_size=r.choice(["5GB", "60KB"]))
    json.dump(c, open(path + "/config.json", "w"), indent=1)
    for f in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(TOKENIZER, f), path)
    save_file({"input_ids": ids, "attention_mask": np.ones_like(ids)}, tmp + "/ids.safetensors")
    p = subprocess.run([a.afinar, "logits", path, "--ids", tmp + "/ids.safetensors", "-o", tmp + "/out.safetensors", "--device", "cpu",
                        "--force"], capture_output=True, text=True, timeout=120)
    if p.returncode:
        return ("refused" if p.returncode == 1 else "BAD"), f"{notes}: {p.stderr.strip()[-300:]}".replace("\n", " ")
    far = j.rel(load_file(tmp + "/out.safetensors")["logits"], ref)
    notes = f"{far:.1e} {notes}"
    if a.grad and not far > 1e-5:
        try:
            loss, norm, grad, name = j.check_grad(a.afinar, path, tmp, model, r)
        except RuntimeError as e:
            return "refused", f"{notes}: training: {e}".replace("\n", " ")
        notes += f" loss {loss:.1e} norm {norm:.1e} grad {grad:.1e} {name}"
        far = max(far, loss, norm, grad / (10 if "linear_attn" in name or "A_log" in name else 3))
    return ("ok" if far <= 1e-5 else "BAD"), notes


def main():
    p = argparse.ArgumentParser()
    p.add_argument("afinar")
    p.add_argument("--family")
    p.add_argument("--seeds", default="0-3")
    p.add_argument("--keep")
    p.add_argument("--grad", action="store_true", help="compare the gradients of one step as well")
    a = p.parse_args()
    lo, _, hi = a.seeds.partition("-")
    counts = collections.Counter()
    own = ("bitnet_online", "bitnet_packed", "gemma3n_sizes", *published.CONFIGS)
    for seed in range(int(lo), int(hi or lo) + 1):
        for family in a.family.split(",") if a.family else [f for f in j.FAMILIES if f not in own]:
            tmp = a.keep or tempfile.mkdtemp()
            kind, line = one(a, family, seed, tmp)
            counts[kind] += 1
            print(f"{kind:8s} {family} {seed} {line}", flush=True)
            if not a.keep:
                shutil.rmtree(tmp)
    print(dict(counts))
    return counts["BAD"] > 0


if __name__ == "__main__":
    sys.exit(main())
