"""Judge of one device by the other: random run files, on the CPU and on a GPU. Every run has a few steps on a small model;
its keys are drawn from methods, bases, optimizers, losses, layouts of rows and precisions. Development only, on a machine
with a GPU.

    python judge_devices.py make MODELS ../../tests/golden/models/qwen2
    python judge_devices.py AFINAR MODELS OUT [--seeds 0-199] [--workers 12] [--decode]

The first line makes a folder of models with a tokenizer of 512 tokens (transformers does). OUT gets a line of JSON per case:
  twice   the same run twice on the GPU: the same losses and the same bytes of weights
  kept    gradient_checkpointing true and false on the GPU: the same bytes
  split   stopped after half of the steps and resumed: the same bytes
  cpu     the CPU's losses, f32 within 2e-4 of each (first step 2e-5); bf16 of the first step within 1 %: later ones go apart,
          most with experts and with rewards, whose losses are near zero
--decode: bases as they are, of bitsandbytes and of GGUF types, adapters, several prompts, draws, grammars, in f32: the same
tokens from the CPU, twice, and of the first prompt alone; loss of eval within 1e-5, and in bf16 within 2 %.
Prints what disagrees and exits 1."""
import argparse, concurrent.futures, hashlib, json, os, random, shutil, subprocess, sys, tempfile

STEPS = 4


def make_models(out, tokenizer):
    import torch, transformers as t
    base = dict(vocab_size=512, hidden_size=256, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, max_position_embeddings=512, bos_token_id=0, eos_token_id=0, pad_token_id=0)
    wide = dict(base, num_attention_heads=2, num_key_value_heads=1, head_dim=128)
    experts = dict(num_experts=8, num_local_experts=8, num_experts_per_tok=2, moe_intermediate_size=128)
    linear = dict(linear_num_value_heads=4, linear_num_key_heads=2, linear_key_head_dim=32, linear_value_head_dim=32)
    configs = {
        "llama": t.LlamaConfig(**base), "llama_wide": t.LlamaConfig(**wide, tie_word_embeddings=True),
        "qwen2": t.Qwen2Config(**base), "qwen3": t.Qwen3Config(**dict(wide, head_dim=64)),
        "gemma3": t.Gemma3TextConfig(**dict(base, head_dim=64), sliding_window=32, layer_types=["sliding_attention", "full_attention"]),
        "gemma2": t.Gemma2Config(**dict(base, head_dim=128), sliding_window=32), "phi3": t.Phi3Config(**base),
        "qwen3_moe": t.Qwen3MoeConfig(**dict(base, head_dim=64), **experts),
        "gpt_oss": t.GptOssConfig(**dict(base, head_dim=64), **experts, sliding_window=32),
        "qwen3_5": t.Qwen3_5TextConfig(**dict(base, head_dim=64), **linear, layer_types=["linear_attention", "full_attention"]),
        "deepseek": t.DeepseekV3Config(**dict(base, num_key_value_heads=4), n_routed_experts=8, num_experts_per_tok=2, n_group=2,
                                       topk_group=1, moe_intermediate_size=128, q_lora_rank=64, kv_lora_rank=64, qk_rope_head_dim=32,
                                       qk_nope_head_dim=64, v_head_dim=64, first_k_dense_replace=1),
        "mamba2": t.Mamba2Config(vocab_size=512, hidden_size=256, num_hidden_layers=2, num_heads=8, head_dim=64, state_size=64,
                                 n_groups=1, bos_token_id=0, eos_token_id=0, pad_token_id=0),
        "gpt2": t.GPT2Config(vocab_size=512, n_embd=256, n_layer=2, n_head=4, n_positions=512, bos_token_id=0, eos_token_id=0),
        "lfm2": t.Lfm2Config(**dict(base, layer_types=["conv", "full_attention"])),
    }
    for name, c in configs.items():
        torch.manual_seed(len(name))
        d = os.path.join(out, name)
        model = t.AutoModelForCausalLM.from_config(c)
        for p in model.parameters():  # larger than initial ones: the losses differ where a step is wrong
            p.data.mul_(2.0) if p.dim() > 1 else None
        model.to(torch.bfloat16).save_pretrained(d)
        for f in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            shutil.copy(os.path.join(tokenizer, f), d)
    print(len(configs), "models")


def text(r, words):
    alphabet = "the answer is one two three what how many Natalia clips 0 1 2 7 9 12 , . ? $".split()
    return " ".join(r.choice(alphabet) for _ in range(r.randint(2, words)))


def write_data(d, r, kind):
    path = os.path.join(d, "data.jsonl")
    with open(path, "w") as f:
        for _ in range(40):
            turn = {"role": "user", "content": text(r, 20)}
            if kind == "chat":
                row = {"messages": [turn, {"role": "assistant", "content": text(r, 30)}] * r.randint(1, 2)}
            elif kind == "pairs":
                row = {"prompt": [turn], "chosen": [{"role": "assistant", "content": text(r, 20)}],
                       "rejected": [{"role": "assistant", "content": text(r, 20)}]}
            elif kind == "labels":
                row = {"prompt": [turn], "completion": [{"role": "assistant", "content": text(r, 20)}], "label": r.random() < .5}
            elif kind == "classes":
                row = {"text": text(r, 20), "label": r.randrange(3)}
            else:
                row = {"text": text(r, 60)}
            f.write(json.dumps(row) + "\n")
    return path


def draw(seed, models, d):
    """A run and what it has."""
    r = random.Random(seed)
    model = r.choice(models)
    k = {"base_model": model, "seed": seed, "max_steps": STEPS, "logging_steps": 1, "learning_rate": r.choice([1e-3, 3e-4]),
         "micro_batch_size": r.choice([1, 2, 3, 5]), "gradient_accumulation_steps": r.choice([1, 1, 2, 3]),
         "sequence_len": r.choice([48, 64, 128, 200]), "warmup_steps": 1, "lr_scheduler": r.choice(["constant", "cosine", "linear"]),
         "save_strategy": "no", "overwrite_output_dir": True}
    stage = r.choices(["sft", "text", "dpo", "orpo", "simpo", "kto", "reward", "classify", "ipo", "cpo"], [8, 4, 3, 1, 1, 2, 1, 1, 1, 1])[0]
    kind = {"sft": "chat", "text": "text", "kto": "labels", "classify": "classes"}.get(stage, "pairs")
    k["datasets"] = [{"path": write_data(d, r, kind)}]
    if stage == "text":
        k["datasets"][0]["type"] = "completion"
    elif stage == "classify":
        k.update(task_type="SEQ_CLS", num_labels=3)
    elif stage != "sft":
        k["rl"] = stage
    method = r.choices(["lora", "qlora", "dora", "full", "oft", "freeze"], [6, 4, 2, 5, 1, 1])[0]
    adapters = method in ("lora", "qlora", "dora")
    if method == "dora":
        k.update(adapter="lora", peft_use_dora=True)
        k.update({"load_in_4bit": True} if r.random() < .3 else {})
    elif method == "freeze":
        k.update(adapter="freeze", freeze_trainable_layers=1)
    elif method != "full":
        k["adapter"] = method
    if method == "lora" and r.random() < .15:
        k["load_in_8bit"] = True
    if adapters:
        k.update(lora_r=r.choice([1, 4, 8, 16, 24, 64]), lora_alpha=r.choice([8, 32]), lora_dropout=r.choice([0, 0, .1]))
        for key, value, p in [("peft_use_rslora", True, .2), ("loraplus_lr_ratio", 4, .2), ("lora_bias", True, .1),
                              ("peft_init_lora_weights", r.choice(["gaussian", "pissa", "orthogonal", "olora"]), .2),
                              ("lora_modules_to_save", ["lm_head"], .1), ("lora_modules_to_save", ["embed_tokens"], .1)]:
            k.update({key: value} if r.random() < p else {})
    names = ["adamw", "adamw_8bit", "adam_mini", "ademamix", "adopt", "nadam", "radam", "adagrad", "stable_adamw", "lion", "adafactor",
             "rmsprop", "sgd", "muon", "apollo", "galore", "schedule_free_adamw", "lion_8bit", "adamw_4bit"]
    k["optimizer"] = r.choices(names, [12] + [1] * (len(names) - 1))[0]
    if method not in ("full", "freeze") and k["optimizer"] in ("apollo", "galore", "adam_mini"):
        k["optimizer"] = "adamw"
    if k["optimizer"] == "apollo":
        k["apollo_rank"] = 4
    if k["optimizer"] == "galore":
        k.update(galore_rank=4, galore_update_interval=2)
    if stage in ("sft", "text"):
        for key, value, p in [("sample_packing", True, .4), ("neftune_noise_alpha", 5, .1), ("label_smoothing_factor", .1, .1),
                              ("use_dft_loss", True, .1), ("train_on_inputs", True, .2)]:
            k.update({key: value} if r.random() < p else {})
    k.update({"weight_decay": .1} if r.random() < .4 else {})
    k.update({"max_grad_norm": r.choice([0, .3])} if r.random() < .3 else {})
    k.update({"attention_dropout": 0} if "gpt2" in model else {})
    k["bf16"] = r.random() < .6
    if k["bf16"] and method == "full" and k["optimizer"] in ("adamw", "adamw_8bit") and r.random() < .3:
        k["bf16_stochastic_round"] = True
    return k, {"model": os.path.basename(model), "stage": stage, "method": method, "optimizer": k["optimizer"], "bf16": k["bf16"]}


def train(afinar, d, name, keys, **more):
    out = os.path.join(d, name)
    path = os.path.join(d, name + ".yaml")
    with open(path, "w") as f:
        json.dump({**keys, "output_dir": out, **more}, f)
    env = dict(os.environ, XDG_CACHE_HOME=os.path.join(d, "cache"))
    p = subprocess.run([afinar, "train", path], capture_output=True, text=True, timeout=300, env=env, errors="replace")
    if p.returncode:
        return None, "exit %d: %s" % (p.returncode, (p.stderr.strip() or p.stdout.strip()).split("\n")[-1][:300])
    rows = [json.loads(l) for l in open(os.path.join(out, "metrics.jsonl"))]
    return out, [(x["step"], x["loss"], x.get("grad_norm")) for x in rows if "loss" in x]


def weights(out):
    h = hashlib.sha256()
    for f in sorted(os.listdir(out)):
        if f.endswith(".safetensors"):
            h.update(open(os.path.join(out, f), "rb").read())
    return h.hexdigest()


def apart(a, b):
    if [x[0] for x in a] != [x[0] for x in b]:
        return float("inf"), float("inf")
    rel = [abs(x[1] - y[1]) / max(1e-3, abs(x[1])) for x, y in zip(a, b)]
    return rel[0], max(rel)


def case(afinar, models, seed):
    d = tempfile.mkdtemp(prefix="judge-devices-")
    try:
        keys, what = draw(seed, models, d)
        res = {"seed": seed, **what, "bad": []}
        gpu, losses = train(afinar, d, "gpu", keys, device="cuda")
        cpu, expected = train(afinar, d, "cpu", keys, device="cpu", threads=2)
        if gpu is None or cpu is None:
            res["refused"] = [losses if gpu is None else "", expected if cpu is None else ""]
            first, second = [x.split(".yaml", 1)[-1] for x in res["refused"]]
            same = first == second and res["refused"][0].startswith("exit 1:")
            res["bad"] = [] if same else ["refused on one device, or not with exit 1"]
            return dict(res, keys=keys) if res["bad"] else res
        res["first"], res["most"] = apart(expected, losses)
        res["losses"] = [losses, expected]
        first, most = (1e-2, 1e9) if keys["bf16"] else (2e-5, 2e-4)
        if not (res["first"] <= first and res["most"] <= most):
            res["bad"].append("cpu")
        digest = weights(gpu)
        for name, more in [("twice", {}), ("kept", {"gradient_checkpointing": seed % 2 == 0})]:
            again, _ = train(afinar, d, name, keys, device="cuda", **more)
            if again is None or weights(again) != digest:
                res["bad"].append(name)
        half = dict(device="cuda", output_dir=os.path.join(d, "split"), save_strategy="steps", save_steps=STEPS // 2)
        whole, _ = train(afinar, d, "split", keys, **half)
        if whole is None or weights(whole) != digest:
            res["bad"].append("saves")
        else:
            for f in os.listdir(whole):  # all after the first checkpoint is lost
                if f != "checkpoint-%d" % (STEPS // 2):
                    p = os.path.join(whole, f)
                    shutil.rmtree(p) if os.path.isdir(p) else os.remove(p)
            whole, said = train(afinar, d, "split", keys, **half, auto_resume_from_checkpoints=True)
            if whole is None or weights(whole) != digest:
                res["bad"].append("split: " + (said if whole is None else "other bytes"))
        return dict(res, keys=keys) if res["bad"] else res
    except subprocess.TimeoutExpired:
        return {"seed": seed, **what, "bad": ["more than 300 s"], "keys": keys}
    finally:
        shutil.rmtree(d, ignore_errors=True)


def call(afinar, *args, **env):
    p = subprocess.run([afinar, *map(str, args)], capture_output=True, text=True, timeout=300, errors="replace", env=dict(os.environ, **env))
    if p.returncode:
        raise RuntimeError("%s: exit %d: %s" % (args[0], p.returncode, p.stderr.strip().split("\n")[-1][:300]))
    return [json.loads(l) for l in p.stdout.splitlines() if l.startswith("{")]


def decode(afinar, models, seed):
    r = random.Random(seed)
    d = tempfile.mkdtemp(prefix="judge-devices-")
    model = r.choice(models)
    res = {"seed": seed, "model": os.path.basename(model), "bad": []}
    env = {"XDG_CACHE_HOME": os.path.join(d, "cache")}
    try:
        base, more = model, []
        kind = r.choice(["plain", "plain", "load-in-4bit", "nf4", "int8", "q8_0", "q4_k_m", "q6_k", "q5_0", "q4_0", "iq4_xs", "q3_k_m", "q2_k", "f16"])
        res["base"] = kind
        if kind == "load-in-4bit":
            more.append("--load-in-4bit")
        elif kind != "plain":
            base = os.path.join(d, "base" if kind in ("nf4", "int8") else "base.gguf")
            call(afinar, "quantize", model, "-o", base, "--type", kind, "--device", "cpu", "-q", **env)
        if kind in ("plain", "load-in-4bit") and r.random() < .4:
            keys = {"base_model": model, "adapter": "lora", "lora_r": r.choice([4, 16]), "max_steps": 3, "learning_rate": 1e-2,
                    "peft_use_dora": r.random() < .3, "datasets": [{"path": write_data(d, r, "text"), "type": "completion"}], "bf16": False}
            keys.update({"lora_modules_to_save": ["lm_head"]} if r.random() < .2 else {})
            out, said = train(afinar, d, "adapter", keys, device="cpu", threads=2)
            if out is None:
                return dict(res, refused=said)
            more += ["--adapter", out]
            res["adapter"] = True
        prompts = [",".join(str(r.randrange(3, 500)) for _ in range(r.choice([1, 2, 7, 30, 70, 140]))) for _ in range(r.choice([1, 2, 3, 8, 9, 17]))]
        draws = ["--temperature", ".9", "--seed", seed, "--top-k", r.choice([0, 20]), "--top-p", r.choice([1, .9])] if r.random() < .4 else []
        draws += ["--repeat-penalty", "1.2"] if r.random() < .2 else []
        asked = ["-n", r.choice([1, 5, 20, 60]), "--ignore-eos", "--json", *draws, *more]
        res["asked"] = [len(prompts), *map(str, asked)]

        def tokens(device, prompts, *how):
            words = [w for p in prompts for w in ("--prompt-ids", p)]
            return [x["ids"] for x in call(afinar, "generate", base, *words, *asked, "--device", device, *how, **env)]
        cpu, gpu = tokens("cpu", prompts, "--f32"), tokens("cuda", prompts, "--f32")
        if gpu != cpu:
            res["bad"].append("cpu: %d of %d prompts" % (sum(a != b for a, b in zip(gpu, cpu)), len(cpu)))
        if tokens("cuda", prompts, "--f32") != gpu:
            res["bad"].append("twice")
        if not draws and tokens("cuda", prompts[:1], "--f32") != gpu[:1]:
            res["bad"].append("alone")
        tokens("cuda", prompts, "--bf16")
        data = write_data(d, r, "text")
        loss = {(dev, how): call(afinar, "eval", base, "--data", data, "--json", "--device", dev, how, *more, **env)[0]["loss"]
                for dev in ("cpu", "cuda") for how in ("--f32", "--bf16")}
        for how, limit in (("--f32", 1e-5), ("--bf16", 2e-2)):
            a, b = loss["cpu", how], loss["cuda", how]
            res[how] = abs(a - b) / max(1e-3, abs(a))
            if not res[how] <= limit:
                res["bad"].append("eval %s: %r, not %r" % (how, b, a))
    except RuntimeError as e:
        res["refused"] = str(e)
    except subprocess.TimeoutExpired:
        res["bad"].append("more than 300 s")
    finally:
        shutil.rmtree(d, ignore_errors=True)
    return res


def main():
    if sys.argv[1:2] == ["make"]:
        return make_models(*sys.argv[2:4])
    p = argparse.ArgumentParser()
    p.add_argument("afinar"), p.add_argument("models"), p.add_argument("out")
    p.add_argument("--seeds", default="0-199"), p.add_argument("--workers", type=int, default=12)
    p.add_argument("--decode", action="store_true")
    a = p.parse_args()
    models = sorted(os.path.join(a.models, m) for m in os.listdir(a.models))
    first, last = map(int, a.seeds.split("-"))
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(a.workers) as pool, open(a.out, "w") as f:
        jobs = [pool.submit(decode if a.decode else case, a.afinar, models, s) for s in range(first, last + 1)]
        for j in concurrent.futures.as_completed(jobs):
            res = j.result()
            f.write(json.dumps(res) + "\n"), f.flush()
            if res["bad"]:
                bad += 1
                print(json.dumps({k: v for k, v in res.items() if k != "keys"}), flush=True)
    print(bad, "of", len(jobs), "disagree")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
