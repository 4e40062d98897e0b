"""Judge of the models: random tiny models of every family made with transformers, and what it
computes in float32 compared with what afinar computes. Development only: nothing of this ships or runs in
the tests.

    python judge_models.py AFINAR [--family F] [--seeds 0-9] [--keep DIR] [--make DIR] [--grad] [--old] [--gguf [--llama]]

Prints one line per case: relative L2 of the logits, of the loss, of all gradients (--grad), and
whether the greedy tokens agree. Exits 1 when a case is beyond 1e-5 (gradients 2e-5)."""
import argparse, copy, json, os, random, shutil, subprocess, sys, tempfile

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file
from safetensors.torch import load_file as torch_file, save_file as save_torch

from family_configs import CONFIGS
import published
import published_folders

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

# ---- configs ----


def rope(r, kind, pairs, maxpos, theta):
    """A rope_parameters object of this kind; short original lengths so that tests go beyond."""
    orig = r.choice([8, 16, 24])
    p = {"rope_type": kind, "rope_theta": theta}
    if kind == "linear":
        p["factor"] = r.choice([2.0, 3.5])
    elif kind == "dynamic":
        p["factor"] = r.choice([2.0, 4.0])
    elif kind == "llama3":
        p.update(factor=r.choice([4.0, 8.0]), low_freq_factor=1.0,
                 high_freq_factor=r.choice([3.0, 4.0]), original_max_position_embeddings=orig)
    elif kind == "yarn":
        p.update(factor=r.choice([2.0, 4.0]), original_max_position_embeddings=orig)
        if r.random() < .3:
            p.update(beta_fast=r.choice([16.0, 64.0]), beta_slow=r.choice([0.5, 2.0]))
        if r.random() < .3:
            p.update(mscale=r.choice([0.7, 1.0]), mscale_all_dim=r.choice([0.5, 1.2]))
        if r.random() < .3:
            p["attention_factor"] = r.choice([0.9, 1.3])
        if r.random() < .3:
            p["truncate"] = False
    elif kind == "longrope":
        p.update(short_factor=[round(r.uniform(1, 1.5), 4) for _ in range(pairs)],
                 long_factor=[round(r.uniform(1.5, 6), 4) for _ in range(pairs)],
                 original_max_position_embeddings=orig)
        if r.random() < .3:
            p["attention_factor"] = r.choice([1.1, 1.25])
        if r.random() < .3:
            p["factor"] = r.choice([2.0, 8.0])
    return p


ROPES = ["default", "linear", "dynamic", "llama3", "yarn", "longrope"]


def common(r, kinds=ROPES, partial=None, dims=(8, 12, 16, 24)):
    kv = r.choice([1, 2, 3])
    heads = kv * r.choice([1, 2, 3, 4])
    E = r.choice(dims)
    hidden = r.choice([heads * E, heads * r.choice([6, 10, 14])])
    maxpos = r.choice([16, 32, 64, 128])
    theta = r.choice([1e4, 5e5, 1234.5])
    rot = int(E * (partial or 1))
    kind = r.choice(kinds)
    if kind in ("dynamic", "longrope"):
        maxpos = r.choice([16, 32])
    c = dict(vocab_size=r.choice([512, 517, 600]), hidden_size=hidden, head_dim=E,
             intermediate_size=r.choice([36, 64, 97, 130]), num_hidden_layers=r.choice([2, 3, 4]),
             num_attention_heads=heads, num_key_value_heads=kv, max_position_embeddings=maxpos,
             rms_norm_eps=r.choice([1e-6, 1e-5, 1e-3]), tie_word_embeddings=r.random() < .5,
             rope_parameters=rope(r, kind, rot // 2, maxpos, theta), pad_token_id=None,
             bos_token_id=1, eos_token_id=2)
    return c


def acts(r, c):
    c["hidden_act"] = r.choice(["silu", "silu", "gelu", "relu", "gelu_pytorch_tanh"])


def layer_types(r, c):
    return [r.choice(["full_attention", "sliding_attention"])
            for _ in range(c["num_hidden_layers"])]


def make_config(family, r):
    T = transformers
    if family == "llama":
        c = common(r)
        acts(r, c)
        return T.LlamaConfig(**c, attention_bias=r.random() < .4, mlp_bias=r.random() < .4)
    if family == "mistral":
        c = common(r)
        acts(r, c)
        return T.MistralConfig(**c, sliding_window=r.choice([None, 3, 8, 100]))
    if family == "qwen2":
        c = common(r)
        c.pop("head_dim")
        c["hidden_size"] = c["num_attention_heads"] * r.choice([8, 12, 16])
        kind = r.choice(["default", "linear", "dynamic", "yarn", "llama3"])
        c["rope_parameters"] = rope(r, kind, 0, 32, 1e4)
        use = r.random() < .5
        return T.Qwen2Config(**c, use_sliding_window=use, sliding_window=r.choice([4, 9]),
                             max_window_layers=r.choice([0, 1, 2]))
    if family == "qwen3":
        c = common(r)
        return T.Qwen3Config(**c, attention_bias=r.random() < .4,
                             use_sliding_window=r.random() < .4, sliding_window=5,
                             max_window_layers=r.choice([0, 1, 2]))
    if family == "qwen3_moe":
        c = common(r)
        X = r.choice([4, 6, 8])
        return T.Qwen3MoeConfig(**c, attention_bias=r.random() < .4, num_experts=X,
                                num_experts_per_tok=r.choice([1, 2, 3]),
                                moe_intermediate_size=r.choice([24, 40]),
                                norm_topk_prob=r.random() < .5,
                                decoder_sparse_step=r.choice([1, 1, 2]),
                                mlp_only_layers=r.choice([[], [0]]),
                                use_sliding_window=r.random() < .3, sliding_window=6)
    if family == "gemma":
        c = common(r)
        return T.GemmaConfig(**c, attention_bias=r.random() < .3)
    if family == "gemma2":
        c = common(r)
        c.update(sliding_window=r.choice([4, 7]), query_pre_attn_scalar=r.choice([16, 24, 40]),
                 attn_logit_softcapping=r.choice([None, 2.0, 50.0]),
                 final_logit_softcapping=r.choice([None, 3.0, 30.0]))
        if r.random() < .5:
            c["layer_types"] = layer_types(r, c)
        return T.Gemma2Config(**c, attention_bias=r.random() < .3)
    if family == "gemma3_text":
        c = common(r)
        full = c.pop("rope_parameters")
        c.update(sliding_window=r.choice([4, 7]), query_pre_attn_scalar=r.choice([16, 24, 40]),
                 attn_logit_softcapping=r.choice([None, None, 2.0]),
                 final_logit_softcapping=r.choice([None, 3.0]), layer_types=layer_types(r, c),
                 rope_parameters={"full_attention": full,
                                  "sliding_attention": {"rope_type": "default",
                                                        "rope_theta": 1e4}})
        return T.Gemma3TextConfig(**c, attention_bias=r.random() < .3)
    if family == "phi3":
        part = r.choice([1.0, 0.75, 0.5])
        E = r.choice([16, 24, 32])
        c = common(r, kinds=["default", "longrope"], partial=part, dims=(E,))
        c.pop("head_dim")
        c["hidden_size"] = c["num_attention_heads"] * E
        c["rope_parameters"]["partial_rotary_factor"] = part
        orig = c["rope_parameters"].get("original_max_position_embeddings", 16)
        return T.Phi3Config(**c, sliding_window=r.choice([None, 5, 50]),
                            original_max_position_embeddings=orig)
    if family == "smollm3":
        c = common(r)
        c.pop("head_dim")
        c["hidden_size"] = c["num_attention_heads"] * r.choice([8, 12, 16])
        c["rope_parameters"] = rope(r, r.choice(["default", "linear", "yarn", "llama3"]), 0, 32, 5e4)
        if r.random() < .5:
            c["no_rope_layers"] = [r.choice([0, 1]) for _ in range(c["num_hidden_layers"])]
        else:
            c["no_rope_layer_interval"] = r.choice([2, 3])
        return T.SmolLM3Config(**c, attention_bias=r.random() < .3, mlp_bias=r.random() < .3,
                               use_sliding_window=r.random() < .3, sliding_window=6)
    if family == "olmo2":
        c = common(r)
        c.pop("head_dim")
        c["hidden_size"] = c["num_attention_heads"] * r.choice([8, 12, 16])
        c["rope_parameters"] = rope(r, r.choice(["default", "linear", "dynamic", "yarn"]), 0, 32, 1e4)
        return T.Olmo2Config(**c, attention_bias=r.random() < .3)
    if family == "granite":
        c = common(r)
        c.pop("head_dim")
        c["hidden_size"] = c["num_attention_heads"] * r.choice([8, 12, 16])
        c["rope_parameters"] = rope(r, r.choice(["default", "linear", "dynamic", "yarn"]), 0, 32, 1e4)
        return T.GraniteConfig(**c, attention_bias=r.random() < .3, mlp_bias=r.random() < .3,
                               embedding_multiplier=r.choice([1.0, 12.0]),
                               attention_multiplier=r.choice([1.0, 0.0625]),
                               residual_multiplier=r.choice([1.0, 0.22]),
                               logits_scaling=r.choice([1.0, 8.0]))
    if family in published.CONFIGS:
        return published.CONFIGS[family](sys.modules[__name__], r)
    if family in CONFIGS:
        return CONFIGS[family](sys.modules[__name__], r)
    raise SystemExit(f"no family {family}")


FAMILIES = ["llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3_text",
            "phi3", "smollm3", "olmo2", "granite", *CONFIGS, *published.CONFIGS]


# Younger than transformers 5, and those that have a scaling where the old spelling says nothing
NEW_SPELLING = ("apertus", "cwm", "gemma4_text", "gemma4_unified_text", "gpt_oss", "laguna", "lfm3", "mimo_v2_flash", "cohere_compass_text")


def old_spelling(path):
    """Rewrites config.json as transformers 4 wrote it: rope_theta, rope_scaling, torch_dtype."""
    f = os.path.join(path, "config.json")
    c = json.load(open(f))
    p = c.pop("rope_parameters", None)
    if p and "full_attention" in p:
        c["rope_local_base_freq"] = p["sliding_attention"]["rope_theta"]
        p = p["full_attention"]
    if p:
        c["rope_theta"] = p.pop("rope_theta", 1e4)
        if c["model_type"] == "gpt_neox":  # its own words
            c["rotary_emb_base"] = c.pop("rope_theta")
        if "partial_rotary_factor" in p:
            c["rotary_pct" if c["model_type"] == "gpt_neox" else "partial_rotary_factor"] = p.pop("partial_rotary_factor")
        kind = p.pop("rope_type", "default")
        if c["model_type"] == "phi3" and "original_max_position_embeddings" in p:
            c["original_max_position_embeddings"] = p.pop("original_max_position_embeddings")
        c["rope_scaling"] = None if kind == "default" else dict(p, type=kind)
    if "dtype" in c:
        c["torch_dtype"] = c.pop("dtype")
    json.dump(c, open(f, "w"))


# ---- the two sides ----


def causal_lm(cfg):
    if cfg.model_type == "mistral4":  # only part of a multimodal model there
        from transformers.models.mistral4.modeling_mistral4 import Mistral4ForCausalLM
        return Mistral4ForCausalLM(cfg)
    return transformers.AutoModelForCausalLM.from_config(cfg)


def fill(model, family, seed):
    """Random weights that make all parts of the model count."""
    g = torch.Generator().manual_seed(seed)
    plus_one = "gemma" in family or family in ("nemotron", "qwen3_5_text", "qwen3_next", "minimax_m3_vl_text")
    with torch.no_grad():
        for n, p in model.named_parameters():
            if "norm" in n.replace("norm_attn_norm", ""):
                one = not plus_one or "linear_attn.norm" in n
                p.copy_(torch.randn(p.shape, generator=g) * .1 + one)
            elif "A_log" in n:
                p.copy_(torch.rand(p.shape, generator=g) * 4 - 5)
            elif n.endswith("bias") or "sinks" in n:
                p.copy_(torch.randn(p.shape, generator=g) * .1)
            else:
                p.copy_(torch.randn(p.shape, generator=g) * .1)
        for n, b in model.named_buffers():
            if "e_score" in n or "expert_bias" in n:
                b.copy_(torch.randn(b.shape, generator=g) * .1)
            elif "layer_scalar" in n:
                b.fill_(.8)


def make_model(family, seed):
    r = random.Random(f"{family}{seed}")
    torch.manual_seed(seed)
    cfg = make_config(family, r)
    for v in (getattr(cfg, "rope_parameters", None) or {}).values():  # read outside of these alone
        if isinstance(v, dict):
            v.pop("truncate", None)
    cfg._attn_implementation = cfg._experts_implementation = "eager"
    if getattr(cfg, "alibi", False):  # falcon's eager attention adds the biases twice
        cfg._attn_implementation = "sdpa"
    model = published.patch(causal_lm(cfg).float().eval())
    fill(model, family, seed)
    dtype = r.choice([torch.float32, torch.float32, torch.bfloat16, torch.float16])
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.to(dtype).float())
        for n, b in model.named_buffers():
            if "layer_scalar" in n or "e_score" in n or "expert_bias" in n:
                b.copy_(b.to(dtype).float())
    return model, dtype, r


def save(model, dtype, path, r):
    m = copy.deepcopy(model).to(dtype)  # a copy: the rotary tables would be rounded too
    m.save_pretrained(path, max_shard_size=r.choice(["5GB", "40KB", "200KB"]))
    family = getattr(model.config, "published", None)
    if family:
        published_folders.rewrite(family, model.config, path)
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/golden/gguf_models/llama/hf")
    for f in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(root, f), path)


def quantised(family, path):
    """The folder as one of BitNet's, and transformers' model of it."""
    from transformers.integrations.bitnet import pack_weights
    f = os.path.join(path, "config.json")
    c = json.load(open(f))
    mode = "online" if family == "bitnet_online" else "offline"
    c["quantization_config"] = {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": mode}
    json.dump(c, open(f, "w"))
    if mode == "offline":
        whole = {}
        for name in [n for n in os.listdir(path) if n.startswith("model")]:
            if name.endswith(".safetensors"):
                whole.update({k: v.float() for k, v in torch_file(os.path.join(path, name)).items()})
            os.remove(os.path.join(path, name))
        for n in [n for n in whole if "layers." in n and whole[n].ndim == 2]:
            w = whole[n].float()
            scale = w.abs().mean()
            whole[n] = pack_weights((w / scale).round().clamp(-1, 1))
            whole[n + "_scale"] = scale.to(torch.bfloat16).float().reshape(1)
        save_torch(whole, os.path.join(path, "model.safetensors"), metadata={"format": "pt"})
    return transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()


def forward(model, ids):
    """Logits of [B][T]; transformers keeps the tables of a longer sequence before, we do not."""
    for m in model.modules():
        if hasattr(m, "max_seq_len_cached"):
            m.max_seq_len_cached = m.original_max_seq_len
            for n in list(vars(m)) + list(m._buffers):
                if n.endswith("original_inv_freq"):
                    setattr(m, n.replace("original_inv_freq", "inv_freq"), getattr(m, n).clone())  # written in place
                elif n.endswith("_max_seq_len_cached"):
                    setattr(m, n, m.original_max_seq_len)
    return model(torch.as_tensor(ids).long(), use_cache=False).logits


def rel(a, b):
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if not np.isfinite(a).all():
        return float("inf")
    return float(np.linalg.norm(a - b) / (np.linalg.norm(b) + 1e-30))


def call(args):
    p = subprocess.run(args, capture_output=True, text=True, timeout=120)
    if p.returncode:
        raise RuntimeError(p.stderr.strip()[-300:])
    return p.stdout


def greedy(model, ids, n):
    ids = list(ids)
    margin = 9.0
    for _ in range(n):
        with torch.no_grad():
            last = forward(model, [ids])[0, -1]
        top = last.topk(2).values
        margin = min(margin, float(top[0] - top[1]))
        ids.append(int(last.argmax()))
    return ids[-n:], margin


def check_logits(afinar, path, tmp, model, r):
    B, T = r.choice([1, 2, 3]), r.choice([7, 12, 20, 33, 50])
    V = model.config.vocab_size
    rows = []
    lens = [T] + [r.randint(2, T) for _ in range(B - 1)]
    dep = rope_depends(model.config)
    ids = np.zeros((B, T), np.int32)
    mask = np.zeros((B, T), np.int32)
    for b, n in enumerate(lens):
        ids[b, :n] = [r.randrange(V) for _ in range(n)]
        mask[b, :n] = 1
    save_file({"input_ids": ids, "attention_mask": mask}, tmp + "/ids.safetensors")
    call([afinar, "logits", path, "--ids", tmp + "/ids.safetensors", "-o",
          tmp + "/out.safetensors", "--device", "cpu", "--force", "-q"])
    ours = load_file(tmp + "/out.safetensors")["logits"]
    worst = 0
    for b, n in enumerate(lens):
        with torch.no_grad():  # a sequence of length T's table for dynamic ropes: the whole batch's
            ref = forward(model, ids[b:b + 1] if dep else ids[b:b + 1, :n])[0, :n].numpy()
        if getattr(model, "hf_quantizer", None):  # BitNet: a value on the edge of two codes changes its token and later ones
            keep = max(1, n // 4)
            worst = max(worst, np.sort([rel(ours[b, t], ref[t]) for t in range(n)])[keep - 1])
            continue
        worst = max(worst, rel(ours[b, :n], ref))
    return worst


def check_gguf(afinar, path, tmp, model, r):
    """Our own export read back; what GGUF cannot express is refused with a reason."""
    n = 3 if getattr(model.config, "sliding_window", None) else 13  # a window may be left out, with a warning
    ids = np.array([[r.randrange(model.config.vocab_size) for _ in range(n)]], np.int32)
    try:
        call([afinar, "export", path, "-o", tmp + "/x.gguf", "--type", "f32", "--no-verify", "--force", "-q"])
    except RuntimeError as e:
        return "refused: " + str(e).split(": ", 1)[-1][:110]
    save_file({"input_ids": ids}, tmp + "/ids.safetensors")
    call([afinar, "logits", tmp + "/x.gguf", "--ids", tmp + "/ids.safetensors", "-o",
          tmp + "/out.safetensors", "--device", "cpu", "--force", "-q"])
    with torch.no_grad():
        ref = forward(model, ids)[0].numpy()
    return rel(load_file(tmp + "/out.safetensors")["logits"][0], ref)


def check_llama(tmp, model, r):
    """The same file by llama.cpp; three tokens, so that no window bites."""
    import llama_cpp
    ids = [r.randrange(model.config.vocab_size) for _ in range(3)]
    m = llama_cpp.Llama(tmp + "/x.gguf", logits_all=True, n_ctx=64, verbose=False, n_threads=1, type_k=0, type_v=0,
                        flash_attn=False)
    m.eval(ids)
    out = np.array(m.scores[:3])
    m.close()
    std = torch.std
    if model.config.model_type == "gemma3n_text":  # llama.cpp divides by n - 1
        torch.std = lambda x, unbiased, **k: std(x, **k)
    with torch.no_grad():
        e = rel(out, forward(model, [ids])[0].numpy())
    torch.std = std
    return e


def rope_depends(c):
    p = getattr(c, "rope_parameters", None) or {"rope_type": "default"}
    if c.model_type == "hunyuan_v1_dense":
        return False
    kinds = [p.get("rope_type")] if "rope_type" in p else [q["rope_type"] for q in p.values() if q]
    return any(k in ("dynamic", "longrope") for k in kinds)


def check_greedy(afinar, path, model, r):
    ids = [r.randrange(model.config.vocab_size) for _ in range(r.choice([3, 6, 14, 30]))]
    out = json.loads(call([afinar, "generate", path, "--prompt-ids", ",".join(map(str, ids)), "-n",
                           "12", "--ignore-eos", "--json", "--device", "cpu", "-q"]))
    ref, margin = greedy(model, ids, 12)
    return ("same" if out["ids"] == ref else f"DIFF margin {margin:.1e}"), margin


def check_grad(afinar, path, tmp, model, r):
    """One step of SGD over one or more records, packed into a row or side by side; transformers sees each alone."""
    V = model.config.vocab_size
    rows = []
    for _ in range(r.choice([1, 2, 3])):
        ids = [r.randrange(3, V) for _ in range(r.choice([5, 9, 21, 40]))]
        rows.append((ids, [(-100 if i < len(ids) // 3 else t) for i, t in enumerate(ids)]))
    if rope_depends(model.config):
        rows = rows[:1]
    pack = r.random() < .6
    with open(tmp + "/d.jsonl", "w") as f:
        for ids, labels in rows:
            f.write(json.dumps({"input_ids": ids, "labels": labels}) + "\n")
    model.zero_grad()
    total = count = 0
    for ids, labels in rows:
        target = torch.tensor(labels)[1:]
        total = total + torch.nn.functional.cross_entropy(forward(model, [ids])[0, :-1], target, reduction="sum")
        count += int((target != -100).sum())
    loss = total / count
    loss.backward()
    lr = 1.0
    open(tmp + "/run.yaml", "w").write(f"""base_model: {path}
datasets:
  - path: {tmp}/d.jsonl
optimizer: sgd
learning_rate: {lr}
lr_scheduler: constant
warmup_steps: 0
max_steps: 1
sequence_len: 128
sample_packing: {str(pack).lower()}
micro_batch_size: {1 if pack else len(rows)}
gradient_accumulation_steps: 1
weight_decay: 0
max_grad_norm: 0
bf16: false
device: cpu
output_dir: {tmp}/run
""")
    shutil.rmtree(tmp + "/run", ignore_errors=True)
    call([afinar, "train", tmp + "/run.yaml", "-q"])
    m = [json.loads(x) for x in open(tmp + "/run/metrics.jsonl")][0]
    gn = float(torch.sqrt(sum((p.grad.double() ** 2).sum() for p in model.parameters()
                              if p.grad is not None)))
    after = {}
    for f in os.listdir(tmp + "/run"):
        if f.endswith(".safetensors") and f.startswith("model"):
            after.update(load_file(tmp + "/run/" + f))
    if model.config.model_type in ("kimi_linear", "bailing_hybrid"):  # other names in its files: transformers reads them
        trained = transformers.AutoModelForCausalLM.from_pretrained(tmp + "/run", dtype=torch.float32)
        after = {n: p.detach().numpy() for n, p in trained.named_parameters()}
    if getattr(model.config, "published", None):
        after = published_folders.tensors_of(model, after)
    worst, name = 0, ""
    for n, p in model.named_parameters():
        if p.grad is None or float(p.grad.abs().max()) == 0:
            continue
        ours = grads_of(after, n, p, lr)
        if ours is None:
            continue
        ref = p.grad.numpy()
        e = float(np.abs(ours - ref).max() / max(np.abs(ref).max(), 1e-2))
        if e > worst:
            worst, name = e, n
    return rel([m["loss"]], [float(loss.detach())]), abs(m["grad_norm"] - gn) / gn, worst, name


def grads_of(after, name, p, lr):
    w = p.detach().numpy()
    if name not in after and any(k.startswith("backbone.") for k in after):  # nemotron_h, in its files
        name = name.replace("model.", "backbone.", 1)
    if "linear_attn.conv1d" in name and name not in after:  # olmo_hybrid, in its files
        parts = [after[name.replace("conv1d", c + "_conv1d")] for c in "qkv"]
        return (w - np.concatenate(parts, 0)) / lr
    if name not in after:  # lfm3 and aria, in their files
        old = name.replace(".g_proj", ".gate_proj").replace("experts.gate_up_proj", "experts.fc1.weight")
        old = old if "experts." not in old or ".fc1" in old else old.replace("experts.down_proj", "experts.fc2.weight")
        name = old if old in after else name
    if name not in after:
        name = name.replace("input_layernorm", "attention_layer_norm").replace("post_attention_layernorm", "feedforward_layer_norm")
    if name in after and after[name].dtype == np.float32:
        return (w - after[name]) / lr
    if any("experts." + k in name for k in ("gate_up_proj", "up_proj", "down_proj")) and w.ndim == 3:
        base = name.rsplit(".", 1)[0]
        rows = []
        for x in range(w.shape[0]):
            key = (["gate_proj", "up_proj"] if "gate_up" in name else [name.rsplit(".", 1)[-1]])
            parts = [after.get(f"{base}.{x}.{k}.weight") for k in key]
            if any(q is None or q.dtype != np.float32 for q in parts):
                return None
            rows.append(np.concatenate(parts, 0))
        return (w - np.stack(rows)) / lr
    return None


def one(a, family, seed):
    tmp = a.keep or tempfile.mkdtemp()
    path = os.path.join(tmp, f"{family}-{seed}")
    try:
        model, dtype, r = make_model(family, seed)
        save(model, dtype, path, r)
        if family in ("bitnet_online", "bitnet_packed"):
            model = quantised(family, path)
        if (a.old or r.random() < .4) and not getattr(model.config, "published", None) and family not in NEW_SPELLING:
            old_spelling(path)
        err = check_logits(a.afinar, path, tmp, model, r)
        word, margin = check_greedy(a.afinar, path, model, r)
        line = f"{family:12s} {seed:3d} {str(dtype)[6:]:8s} logits {err:.1e} greedy {word}"
        bad = err > 1e-5 or (word != "same" and margin > 1e-4)
        if a.gguf:
            g = check_gguf(a.afinar, path, tmp, model, r)
            line += f" gguf {g if isinstance(g, str) else format(g, '.1e')}"
            bad |= not isinstance(g, str) and g > 1e-5
            if a.llama and not isinstance(g, str):
                e = check_llama(tmp, model, r)
                line += f" llama.cpp {e:.1e}"
                bad |= not e < 1e-3
        if a.grad and dtype == torch.float32 and family != "bitnet_packed":  # of which adapters alone are trained
            l, gn, ge, name = check_grad(a.afinar, path, tmp, model, r)
            line += f" loss {l:.1e} norm {gn:.1e} grad {ge:.1e} {name if ge > 1e-5 else ''}"
            far = 1e-4 if "linear_attn" in name else 2e-5  # delta nets: float32 itself is 3e-5 away from float64
            far = 1e-4 if "A_log" in name else far  # small gradients of numbers up to 5, which the step rounds
            bad |= l > 1e-5 or gn > 1e-5 or ge > far
        if a.grad and dtype == torch.float32 and getattr(model.config, "published", None):
            e, low, m = published_folders.check_adapter(sys.modules[__name__], a.afinar, path, tmp, model, r)
            line += f" adapter {e:.1e} its gradients {low:.1e} merged {m:.1e}"
            bad |= e > 1e-5 or low > 2e-5 or m > 1e-6
        print(line + (" BAD" if bad else ""), flush=True)
        return bad
    except Exception as e:  # a case that cannot be made is a finding too
        print(f"{family:12s} {seed:3d} FAILED {type(e).__name__} {e} BAD", flush=True)
        return True
    finally:
        if not a.keep:
            shutil.rmtree(tmp)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("afinar")
    p.add_argument("--family")
    p.add_argument("--seeds", default="0-3")
    p.add_argument("--keep")
    p.add_argument("--make", help="only write the models to this folder, for judge_all_linear.py")
    p.add_argument("--grad", action="store_true")
    p.add_argument("--old", action="store_true")
    p.add_argument("--gguf", action="store_true", help="export to GGUF and read it back as well")
    p.add_argument("--llama", action="store_true", help="with --gguf: read it with llama.cpp, too")
    a = p.parse_args()
    lo, _, hi = a.seeds.partition("-")
    if a.make:
        for f in a.family.split(",") if a.family else FAMILIES:
            for s in range(int(lo), int(hi or lo) + 1):
                model, _, r = make_model(f, s)
                save(model, torch.float32, os.path.join(a.make, f"{f}-{s}"), r)
        return 0
    bad = sum(one(a, f, s) for f in (a.family.split(",") if a.family else FAMILIES)
              for s in range(int(lo), int(hi or lo) + 1))
    print(f"{bad} bad")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
