"""Judge of all-linear: what PEFT's target_modules="all-linear" adapts in each family, against lora_target_linear.
Development only.

    python judge_all_linear.py AFINAR MODELS [NAME ...]      MODELS: a folder of tiny models

For every model: the names and shapes of the adapter, the logits with a random adapter of PEFT, three steps of training from
it, and the merged model loaded by transformers."""
import json, os, re, subprocess, sys, tempfile, warnings

import numpy as np
import peft
import torch
import transformers
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
STEPS, RATE = 3, 0.01
EPSILON = 1e-3  # of AdamW: with 1e-8 gradients near 0 become steps by their noise, and routers take other experts
UNREACHED = re.compile(r"\.indexer\.|\.router\.classifier\.")  # by gradients: deepseek_v32, glm_moe_dsa; longcat_flash

# What PEFT refuses to adapt, or transformers reads past its adapter.
LEFT_OUT = {"mamba": {"out_proj", "dt_proj"}, "falcon_mamba": {"out_proj", "dt_proj"}, "mamba2": {"out_proj"}, "falcon_h1": {"out_proj"},
            "nemotron_h": {"out_proj"}, "jamba": {"dt_proj"}}


def call(args):
    r = subprocess.run(args, capture_output=True, text=True)
    if r.returncode:
        raise RuntimeError((r.stderr or r.stdout).strip().splitlines()[-1])


def shapes(path):
    with safe_open(path, "np") as f:
        return {k: tuple(f.get_slice(k).get_shape()) for k in f.keys()}


def load(path):
    config = transformers.AutoConfig.from_pretrained(path)
    how = "sdpa" if getattr(config, "alibi", False) else "eager"  # falcon's eager attention adds alibi's biases twice
    return transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation=how,
                                                             experts_implementation="eager")


def afinar_logits(afinar, path, tmp, ids, *more):
    save_file({"input_ids": ids.numpy().astype(np.int32)}, tmp + "/ids.safetensors")
    call([afinar, "logits", path, "--ids", tmp + "/ids.safetensors", "-o", tmp + "/out.safetensors", "--force", "--device", "cpu",
          "--f32", "-q", *more])
    return torch.from_numpy(load_file(tmp + "/out.safetensors")["logits"].copy())


def run_file(tmp, model, out, **keys):
    keys = {"base_model": model, "datasets": [{"path": tmp + "/rows.jsonl", "type": "tokens"}], "adapter": "lora", "lora_r": 2,
            "lora_alpha": 4, "lora_dropout": 0, "micro_batch_size": 2, "gradient_accumulation_steps": 1, "max_steps": STEPS,
            "learning_rate": RATE, "lr_scheduler": "constant", "warmup_steps": 0, "optimizer": "adamw_torch",
            "weight_decay": 0, "adam_epsilon": EPSILON, "max_grad_norm": 1e9, "shuffle": False, "sequence_len": 64, "output_dir": out,
            "sample_packing": False, "bf16": False, **keys}
    with open(tmp + "/run.yaml", "w") as f:
        json.dump(keys, f)
    return tmp + "/run.yaml"


def torch_steps(model, rows):
    params = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(params, lr=RATE, eps=EPSILON, weight_decay=0)
    losses = []
    for s in range(STEPS):
        ids = rows[2 * s:2 * s + 2]
        logits = model(input_ids=ids).logits[:, :-1]
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))
        loss.backward()
        opt.step()
        opt.zero_grad()
        losses.append(float(loss))
    return losses


def reopen(path, adapter):
    """The adapter of a run as PEFT reads it. That of laguna is copied: transformers renames `shared_expert.`, a pattern that
    also takes `shared_experts`, so PEFT leaves those tensors out even of the adapters that it wrote."""
    model = peft.PeftModel.from_pretrained(load(path), adapter).eval()
    if model.config.model_type == "laguna":
        written = load_file(adapter + "/adapter_model.safetensors")
        with torch.no_grad():
            for n, p in model.named_parameters():
                if "lora_" in n:
                    p.copy_(torch.from_numpy(written[n.replace(".default", "")]))
    return model


def judge(afinar, path):
    tmp = tempfile.mkdtemp()
    torch.manual_seed(1)
    base = load(path)
    vocab = base.get_input_embeddings().weight.shape[0]
    rows = torch.randint(5, vocab, (2 * STEPS, 20))
    with open(tmp + "/rows.jsonl", "w") as f:
        for r in rows.tolist():
            f.write(json.dumps({"input_ids": r, "labels": r}) + "\n")
    random = base.config.model_type == "phimoe"  # in training its routers draw experts; ours take the best
    targets = ["q_proj", "k_proj", "v_proj", "o_proj"] if random else "all-linear"  # PEFT cannot call a wrapped router
    if base.config.model_type in LEFT_OUT:
        linear = {n.rsplit(".", 1)[-1] for n, m in base.named_modules() if isinstance(m, torch.nn.Linear)}
        targets = sorted(linear - LEFT_OUT[base.config.model_type] - {"lm_head"})
    if base.config.model_type == "llama4_text":
        targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    model = peft.get_peft_model(base, peft.LoraConfig(r=2, lora_alpha=4, target_modules=targets, task_type="CAUSAL_LM"))
    with torch.no_grad():
        for n, p in model.named_parameters():
            if "lora_B" in n and not UNREACHED.search(n):
                p.copy_(0.1 * torch.randn(p.shape))
    model.save_pretrained(tmp + "/adapter")
    call([afinar, "train", run_file(tmp, path, tmp + "/own", **({"lora_target_modules": targets} if random else {"lora_target_linear": True})), "--device", "cpu", "-q"])
    own, theirs = (shapes(f"{tmp}/{d}/adapter_model.safetensors") for d in ("own", "adapter"))
    theirs = {k: v for k, v in theirs.items() if not UNREACHED.search(k)}
    same = own == theirs
    if not same:
        print("  only PEFT:", sorted(set(theirs) - set(own))[:6], "only afinar:", sorted(set(own) - set(theirs))[:6])
    model.eval()
    ids = rows[:2]
    with torch.no_grad():
        want = model(input_ids=ids).logits
    diff = float((afinar_logits(afinar, path, tmp, ids, "--adapter", tmp + "/adapter") - want).abs().max())
    call([afinar, "merge", path, "--adapter", tmp + "/adapter", "-o", tmp + "/merged", "-q"])
    with torch.no_grad():
        merged = float((load(tmp + "/merged")(input_ids=ids).logits - want).abs().max())
    still = random or base.config.model_type == "gemma3n_text"  # in training correction_coefs is read past its adapter
    losses = torch_steps(model.train(not still), rows)
    call([afinar, "train", run_file(tmp, path, tmp + "/run", lora_model_dir=tmp + "/adapter"), "--device", "cpu", "-q"])
    with open(tmp + "/run/metrics.jsonl") as f:
        got = [json.loads(x)["loss"] for x in f if '"loss"' in x][:STEPS]
    trained = reopen(path, tmp + "/run")
    model.eval()
    with torch.no_grad():
        end = float((trained(input_ids=ids).logits - model(input_ids=ids).logits).abs().max())
    return same, diff, merged, max(abs(a - b) for a, b in zip(losses, got)), end


def main():
    afinar, models = os.path.abspath(sys.argv[1]), sys.argv[2]
    names = sys.argv[3:] or sorted(n for n in os.listdir(models) if os.path.exists(f"{models}/{n}/config.json"))
    bad = 0
    for n in names:
        try:
            same, diff, merged, loss, end = judge(afinar, f"{models}/{n}")
            ok = same and diff < 2e-4 and merged < 2e-4 and loss < 1e-4 and end < 1e-3
            print(f"{n:20s} names {'equal' if same else 'DIFFER'}  logits {diff:.1e}  merged {merged:.1e}  loss {loss:.1e}  "
                  f"trained {end:.1e} {'' if ok else 'BAD'}", flush=True)
        except Exception as e:
            ok = False
            print(f"{n:20s} BAD: {e!r:.300}", flush=True)
        bad += not ok
    sys.exit(bad > 0)


main()
