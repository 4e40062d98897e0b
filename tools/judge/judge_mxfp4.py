"""Judge of gpt-oss folders whose experts are MXFP4: read as they are, trained by LoRA, merged, exported. Development only.

    python judge_mxfp4.py AFINAR

One line per step: what is compared with whom, and the difference (relative L2 of logits, losses absolute)."""
import json, os, shutil, subprocess, sys, tempfile, warnings

import gguf
import llama_cpp
import numpy as np
import peft
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import GptOssConfig, Mxfp4Config

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
torch.set_num_threads(1)
STEPS, RATE = 3, 0.01
TEXTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/golden/gguf_models/llama/hf")


def rel(a, b):
    return float(np.linalg.norm(np.asarray(a, np.float64) - np.asarray(b, np.float64)) / np.linalg.norm(b))


def make(folder):
    """Experts of random codes: any of the sixteen values, scales around 2^-6."""
    torch.manual_seed(0)
    c = GptOssConfig(vocab_size=512, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, head_dim=16, num_local_experts=4, num_experts_per_tok=2, sliding_window=8,
                     max_position_embeddings=64, rope_parameters={"rope_type": "default", "rope_theta": 1e4},
                     bos_token_id=1, eos_token_id=2, pad_token_id=None, tie_word_embeddings=False)
    model = transformers.AutoModelForCausalLM.from_config(c).float()
    with torch.no_grad():
        for n, p in model.named_parameters():
            p.copy_(torch.randn(p.shape) * .1 + ("norm" in n))
    model.save_pretrained(folder)
    w = load_file(folder + "/model.safetensors")
    for k in [k for k in w if k.endswith(("gate_up_proj", "down_proj"))]:
        X, ins, outs = w.pop(k).shape
        w[k + "_blocks"] = torch.randint(0, 256, (X, outs, ins // 32, 16), dtype=torch.uint8)
        w[k + "_scales"] = torch.randint(120, 123, (X, outs, ins // 32), dtype=torch.uint8)
    save_file({k: v.contiguous() for k, v in w.items()}, folder + "/model.safetensors", metadata={"format": "pt"})
    with open(folder + "/config.json") as f:
        config = json.load(f)
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
    with open(folder + "/config.json", "w") as f:
        json.dump(config, f)
    for f in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(TEXTS, f), folder)


def load(folder, coded=False):
    more = {"quantization_config": Mxfp4Config(dequantize=True)} if coded else {}
    m = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", **more)
    m.config._experts_implementation = "eager"
    return m.float().eval()


def call(*args):
    p = subprocess.run(args, capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError(p.stderr.strip()[-300:])


def logits(afinar, model, ids, tmp, *more):
    save_file({"input_ids": ids.to(torch.int32)}, tmp + "/ids.safetensors")
    call(afinar, "logits", model, "--ids", tmp + "/ids.safetensors", "-o", tmp + "/out.safetensors", "--force", "--device", "cpu",
         "--f32", "-q", *more)
    return load_file(tmp + "/out.safetensors")["logits"].numpy()


def llama(path, ids):
    m = llama_cpp.Llama(path, logits_all=True, n_ctx=64, verbose=False, n_threads=1, type_k=0, type_v=0, flash_attn=False)
    m.eval(ids[0].tolist())
    out = np.array(m.scores[:ids.shape[1]])
    m.close()
    return out[None]


def theirs(model, ids):
    with torch.no_grad():
        return model(input_ids=ids).logits.numpy()


def expert_types(path):
    return sorted({t.tensor_type.name for t in gguf.GGUFReader(path).tensors if "_exps.weight" in t.name})


def expert_difference(path, base):
    """Of down_proj, whose order is the same in both."""
    ours = {t.name: gguf.dequantize(t.data, t.tensor_type) for t in gguf.GGUFReader(path).tensors if "ffn_down_exps.weight" in t.name}
    state = load(base, True).state_dict()
    return max(float(np.abs(v - state[f"model.layers.{k.split('.')[1]}.mlp.experts.down_proj"].numpy().transpose(0, 2, 1)).max())
               for k, v in ours.items())


def train(afinar, base, tmp, rows):
    """Both sides from one adapter on attention and on the experts' parameters."""
    model = peft.get_peft_model(load(base, True), peft.LoraConfig(
        r=2, lora_alpha=4, target_modules=["q_proj", "o_proj"], task_type="CAUSAL_LM",
        target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]))
    with torch.no_grad():
        for n, p in model.named_parameters():
            if "lora_B" in n:
                p.copy_(.1 * torch.randn(p.shape))
    model.save_pretrained(tmp + "/first")
    with open(tmp + "/rows.jsonl", "w") as f:
        for r in rows.tolist():
            f.write(json.dumps({"input_ids": r, "labels": r}) + "\n")
    run = {"base_model": base, "datasets": [{"path": tmp + "/rows.jsonl", "type": "tokens"}], "adapter": "lora",
           "lora_model_dir": tmp + "/first", "micro_batch_size": 2, "gradient_accumulation_steps": 1, "max_steps": STEPS,
           "learning_rate": RATE, "lr_scheduler": "constant", "warmup_steps": 0, "optimizer": "adamw_torch", "weight_decay": 0,
           "max_grad_norm": 1e9, "shuffle": False, "sequence_len": 64, "output_dir": tmp + "/own", "sample_packing": False,
           "bf16": False}
    with open(tmp + "/run.yaml", "w") as f:
        json.dump(run, f)
    call(afinar, "train", tmp + "/run.yaml", "--device", "cpu", "-q")
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=RATE, weight_decay=0)
    losses = []
    for s in range(STEPS):
        ids = rows[2 * s:2 * s + 2]
        out = model(input_ids=ids).logits[:, :-1]
        loss = torch.nn.functional.cross_entropy(out.reshape(-1, out.shape[-1]), ids[:, 1:].reshape(-1))
        loss.backward()
        opt.step()
        opt.zero_grad()
        losses.append(float(loss.detach()))
    with open(tmp + "/own/metrics.jsonl") as f:
        own = [json.loads(x)["loss"] for x in f if '"loss"' in x][:STEPS]
    return model, max(abs(a - b) for a, b in zip(losses, own))


def main():
    afinar, tmp, bad = os.path.abspath(sys.argv[1]), tempfile.mkdtemp(), 0
    base = tmp + "/base"
    make(base)
    rows = torch.randint(5, 512, (2 * STEPS, 20))
    ids = rows[:1]
    own_base = logits(afinar, base, ids, tmp)

    def line(what, value, limit):
        nonlocal bad
        bad += not value < limit
        print(f"{what:90s} {value:.1e} {'' if value < limit else 'BAD'}", flush=True)

    line("the folder as it is, by transformers (dequantised)", rel(own_base, theirs(load(base, True), ids)), 2e-6)
    model, loss = train(afinar, base, tmp, rows)
    line("losses of 3 steps, LoRA on attention and experts, by PEFT on the dequantised model", loss, 5e-6)
    want = theirs(model.eval(), ids)
    line("our adapter over the folder, by what PEFT trained", rel(logits(afinar, base, ids, tmp, "--adapter", tmp + "/own"), want),
         1e-4)
    again = peft.PeftModel.from_pretrained(load(base, True), tmp + "/own").eval()
    line("our adapter loaded by PEFT", rel(theirs(again, ids), want), 1e-4)
    call(afinar, "merge", base, "--adapter", tmp + "/own", "-o", tmp + "/merged", "-q")
    line("merged folder, loaded by transformers", rel(theirs(load(tmp + "/merged"), ids), want), 1e-2)
    call(afinar, "export", base, "-o", tmp + "/base.gguf", "-q", "--force")
    print("experts of the exported base:", *expert_types(tmp + "/base.gguf"))
    line("exported base, by ourselves", rel(logits(afinar, tmp + "/base.gguf", ids, tmp), own_base), 2e-6)
    line("values of its experts, dequantised by gguf-py, by transformers'", expert_difference(tmp + "/base.gguf", base), 1e-30)
    line("exported base, by llama.cpp", rel(llama(tmp + "/base.gguf", ids), logits(afinar, tmp + "/base.gguf", ids, tmp)), 2e-2)
    merged = logits(afinar, tmp + "/merged", ids, tmp)
    for kind in ("f32", "mxfp4_moe"):
        path = f"{tmp}/{kind}.gguf"
        call(afinar, "export", tmp + "/merged", "-o", path, "--type", kind, "-q", "--force")
        print(f"experts of the exported merge ({kind}):", *expert_types(path))
        own = logits(afinar, path, ids, tmp)
        line(f"exported merge ({kind}), by the merged folder", rel(own, merged), 1e-5 if kind == "f32" else 9)
        line(f"exported merge ({kind}), by llama.cpp", rel(llama(path, ids), own), 2e-2)
    shutil.rmtree(tmp)
    sys.exit(bad > 0)


main()
