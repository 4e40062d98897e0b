"""Folders and adapters of families whose code lies in their own repositories, for judge_models.py: published.py."""
import json, os, shutil, tempfile

import numpy as np
import torch
from safetensors.numpy import load_file as load_numpy, save_file as save_numpy
from safetensors.torch import load_file, save_file

import published


def folder_tensors(path):
    out = {}
    for f in sorted(os.listdir(path)):
        if f.endswith(".safetensors"):
            out.update(load_file(os.path.join(path, f)))
    return out


def rewrite(family, config, path):
    """Rewrites a folder as the family's own code has it."""
    tensors = published.publish(family, config, folder_tensors(path))
    for f in os.listdir(path):
        os.remove(os.path.join(path, f))
    save_file(tensors, path + "/model.safetensors", metadata={"format": "pt"})
    json.dump(published.published_config(family, config.to_dict()), open(path + "/config.json", "w"))


def tensors_of(model, after):
    """Such tensors under the names and shapes that transformers writes."""
    with tempfile.TemporaryDirectory() as tmp:
        model.save_pretrained(tmp)
        like = folder_tensors(tmp)
    after = {k: torch.from_numpy(v) for k, v in after.items()}
    return {k: v.numpy() for k, v in published.recover(model.config.published, model.config, after, like).items()}


def check_adapter(j, afinar, path, tmp, model, r):
    """A random adapter on every linear under its published name, as PEFT adds it to the stored matrix: logits, and one step of
    SGD on A and B, whose gradients follow from that of the matrix."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        like = folder_tensors(folder)
    family, config, g = model.config.published, model.config, torch.Generator().manual_seed(7)
    base = published.publish(family, config, like)
    linear = [k for k, v in base.items() if v.ndim == 2 and k.split(".")[-2] not in ("gate", "lm_head", "output", "output_layer") and
              ".experts." not in k and "embed" not in k and "wte" not in k]
    low = {k: (torch.randn(2, base[k].shape[1], generator=g) * .1, torch.randn(base[k].shape[0], 2, generator=g) * .1)
           for k in linear}
    both = published.recover(family, config, {k: v + 2 * low[k][1] @ low[k][0] if k in low else v for k, v in base.items()}, like)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        for f in os.listdir(folder):
            if "safetensors" in f:
                os.remove(os.path.join(folder, f))
        save_file(both, folder + "/model.safetensors", metadata={"format": "pt"})
        merged = type(model).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager").float().eval()
        merged = published.patch(merged)
    os.makedirs(tmp + "/adapter", exist_ok=True)
    name = "base_model.model.{}.lora_{}.weight"
    save_file({name.format(k[:-7], w): v.contiguous() for k, ab in low.items() for w, v in zip("AB", ab)},
               tmp + "/adapter/adapter_model.safetensors")
    json.dump({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "task_type": "CAUSAL_LM", "bias": "none", "lora_dropout": 0.0,
               "target_modules": sorted({k.split(".")[-2] for k in linear})}, open(tmp + "/adapter/adapter_config.json", "w"))
    ids = [r.randrange(3, config.vocab_size) for _ in range(12)]
    save_numpy({"input_ids": np.array([ids], np.int32)}, tmp + "/ids.safetensors")
    j.call([afinar, "logits", path, "--adapter", tmp + "/adapter", "--ids", tmp + "/ids.safetensors", "-o", tmp + "/out.safetensors",
          "--device", "cpu", "--f32", "--force", "-q"])
    logits = j.forward(merged, [ids])[0]
    error = j.rel(load_numpy(tmp + "/out.safetensors")["logits"][0], logits.detach().numpy())
    torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:])).backward()
    with open(tmp + "/d.jsonl", "w") as f:
        f.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")
    json.dump({"base_model": path, "datasets": [{"path": tmp + "/d.jsonl"}], "adapter": "lora", "lora_model_dir": tmp + "/adapter",
               "optimizer": "sgd", "learning_rate": 1.0, "lr_scheduler": "constant", "warmup_steps": 0, "max_steps": 1,
               "sequence_len": 64, "micro_batch_size": 1, "gradient_accumulation_steps": 1, "weight_decay": 0, "max_grad_norm": 0,
               "bf16": False, "device": "cpu", "output_dir": tmp + "/low"}, open(tmp + "/low.yaml", "w"))
    shutil.rmtree(tmp + "/low", ignore_errors=True)
    j.call([afinar, "train", tmp + "/low.yaml", "-q"])
    after, worst = load_file(tmp + "/low/adapter_model.safetensors"), 0
    with tempfile.TemporaryDirectory() as folder:
        merged.save_pretrained(folder, state_dict={k: (p.grad if p.grad is not None else torch.zeros_like(p)).contiguous()
                                                   for k, p in merged.named_parameters()})
        grads = published.publish(family, config, folder_tensors(folder))
    for k, (a, b) in low.items():
        for w, old, want in (("A", a, 2 * b.T @ grads[k]), ("B", b, 2 * grads[k] @ a.T)):
            got = old - after[name.format(k[:-7], w)]
            worst = max(worst, float((got - want).abs().max() / max(float(want.abs().max()), 1e-2)))
    j.call([afinar, "merge", path, "--adapter", tmp + "/adapter", "-o", tmp + "/merged", "-q", "--force"])
    out = folder_tensors(tmp + "/merged")
    want = published.publish(family, config, both)
    assert set(out) == set(want), (set(out) ^ set(want))
    return error, worst, max(float((out[k].float() - want[k]).abs().max()) for k in want)
