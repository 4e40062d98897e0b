#!/usr/bin/env python3
"""PEFT adapters on models of make_tiny_models.py: the folder as PEFT saves it, the logits with it,
and the gradients of the mean loss with respect to its tensors (float32).

    python make_tiny_adapters.py [NAME...]   # writes adapters/NAME beside this file

Needs torch, transformers, peft, safetensors."""
import json
import pathlib
import sys

import torch
import transformers as tf
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file

from make_tiny_models import batch

HERE = pathlib.Path(__file__).parent
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ADAPTERS = {
    "lora": ("llama3_tiny", dict(r=4, lora_alpha=8, target_modules=ALL)),
    "rules": ("llama3_tiny", dict(
        r=4, lora_alpha=6, use_rslora=True, target_modules=r".*self_attn\.(q|v)_proj|.*down_proj",
        rank_pattern={r"layers\.0\..*q_proj": 2, "down_proj": 6},
        alpha_pattern={r"layers\.1\.self_attn\.v_proj": 3})),
    "dora": ("qwen2_tiny", dict(r=3, lora_alpha=5, use_dora=True,
                                target_modules=["q_proj", "v_proj", "down_proj"])),
    "saved": ("llama3_tiny", dict(r=2, lora_alpha=2, target_modules=["o_proj"],
                                  modules_to_save=["lm_head", "embed_tokens"])),
    "layers": ("llama3_tiny", dict(r=2, lora_alpha=4, target_modules=["q_proj", "k_proj"],
                                   layers_to_transform=[1], exclude_modules=["k_proj"])),
    "tied_embed": ("qwen2_tiny", dict(r=2, lora_alpha=2, target_modules=["o_proj"],
                                      modules_to_save=["embed_tokens"])),
    "tied_head": ("qwen2_tiny", dict(r=2, lora_alpha=2, target_modules=["o_proj"],
                                     modules_to_save=["lm_head"])),
    "head": ("llama3_tiny", dict(r=3, lora_alpha=4, target_modules=["lm_head", "q_proj"])),
    "embed": ("gemma2_tiny", dict(r=3, lora_alpha=4, target_modules=["embed_tokens", "v_proj"])),
    "fused": ("phi3_longrope", dict(r=3, lora_alpha=3, target_modules="all-linear")),
    "head_dora": ("llama3_tiny", dict(r=3, lora_alpha=4, use_dora=True,
                                      target_modules=["lm_head", "q_proj"])),
    "bias": ("qwen2_tiny", dict(r=3, lora_alpha=5, lora_bias=True,
                                target_modules=["q_proj", "v_proj"])),
    "rows": ("llama3_tiny", dict(r=2, lora_alpha=4, target_modules=["v_proj"],
                                 trainable_token_indices={"embed_tokens": [7, 3, 30],
                                                          "lm_head": [5, 30]})),
    "tied_rows": ("qwen2_tiny", dict(r=2, lora_alpha=4, target_modules=["v_proj"],
                                     trainable_token_indices=[9, 2, 4])),
    "base_bias": ("qwen2_tiny", dict(r=3, lora_alpha=5, bias="all",
                                     target_modules=["q_proj", "v_proj", "down_proj"])),
}


def main():
    torch.set_num_threads(1)
    for k, (name, (base, args)) in enumerate(ADAPTERS.items()):
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        model = tf.AutoModelForCausalLM.from_pretrained(HERE / base, dtype=torch.float32,
                                                        attn_implementation="eager")
        peft = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **args))
        g = torch.Generator().manual_seed(300 + k)
        for n, p in peft.named_parameters():
            if p.requires_grad:
                noise = torch.randn(p.shape, generator=g)
                p.data = p.data * (1 + 0.1 * noise) if "magnitude" in n or "saved" in n else noise * 0.2
        ids, labels, lengths = batch(400 + k)
        peft.train(False)
        n = lengths[0]
        logits = peft(input_ids=ids[:1, :n], use_cache=False).logits[0]
        loss = torch.nn.functional.cross_entropy(logits[:-1], labels[0, 1:n])
        loss.backward()
        folder = HERE / "adapters" / name
        peft.save_pretrained(folder)
        (folder / "README.md").unlink(missing_ok=True)
        path = folder / "adapter_config.json"
        config = json.loads(path.read_text())
        config["base_model_name_or_path"] = base
        if isinstance(config["target_modules"], list):
            config["target_modules"].sort()
        path.write_text(json.dumps(config, indent=2, sort_keys=True))
        t = {"ids": ids[0, :n].int(), "labels": labels[0, :n].int(), "logits": logits.detach(),
             "loss": loss.detach().reshape(1)}
        for pn, p in peft.named_parameters():
            if p.requires_grad:
                key = pn.replace(".default", "").replace(".modules_to_save", "")
                key = key.replace("lora_magnitude_vector.weight", "lora_magnitude_vector")
                t["grad." + key] = p.grad.contiguous()
        save_file({a: b.contiguous() for a, b in t.items()}, folder / "golden.safetensors",
                  metadata={"format": "pt"})
        (folder / "base").write_text(base + "\n")
        print(name, float(loss), sum(f.stat().st_size for f in folder.iterdir()))


if __name__ == "__main__":
    main()
