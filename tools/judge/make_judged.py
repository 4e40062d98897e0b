#!/usr/bin/env python3
"""make_judged.py GOLDEN_DIR [CASE...]: writes GOLDEN_DIR/judged/*.json, runs of the tiny qwen2 of GOLDEN_DIR by PyTorch +
PEFT that tests/train/test_judged.c repeats: optimizers, LoRA+, whole modules, a padding token in the data."""
import json
import os
import random
import sys

from peft import PeftModel

import train_judge as tj
import train_models as tm

COMMON = {"micro_batch_size": 2, "gradient_accumulation_steps": 3, "max_steps": 8, "learning_rate": 1e-3,
          "weight_decay": 0.1, "weight_decay_on": "all", "max_grad_norm": 0.5, "lr_scheduler": "cosine",
          "warmup_steps": 2, "adam_beta1": 0.9, "adam_beta2": 0.95, "sample_packing": False, "sequence_len": 128,
          "gradient_checkpointing": "auto", "threads": 2, "method": "lora", "loraplus": 0}
CASES = {
    "adafactor-lora": {"optimizer": "adafactor"},
    "loraplus-matrices": {"optimizer": "adamw", "loraplus": 8, "weight_decay_on": "matrices"},
    "sgd-packed": {"optimizer": "sgd", "sgd_momentum": 0.9, "learning_rate": 0.05, "sample_packing": True},
    "adam-inverse-sqrt": {"optimizer": "adam", "lr_scheduler": "inverse_sqrt"},
    "full-padding-token": {"optimizer": "adamw", "method": "full", "pads": True, "lr_scheduler": "polynomial",
                           "power": 2.0},
    "full-adafactor": {"optimizer": "adafactor", "method": "full", "weight_decay_on": "matrices",
                       "gradient_checkpointing": "true"},
    "full-adam-mini": {"optimizer": "adam_mini", "method": "full", "weight_decay_on": "matrices", "max_steps": 20},
    "full-apollo": {"optimizer": "apollo", "method": "full", "weight_decay_on": "matrices", "apollo_rank": 8,
                    "apollo_scale": 2.0, "apollo_scale_type": "channel", "apollo_update_interval": 3},
    "full-apollo-mini": {"optimizer": "apollo", "method": "full", "weight_decay_on": "matrices", "apollo_rank": 1,
                         "apollo_scale": 128.0, "apollo_scale_type": "tensor", "apollo_update_interval": 200},
    "full-galore": {"optimizer": "galore", "method": "full", "weight_decay_on": "matrices", "galore_rank": 8,
                    "galore_scale": 0.25, "galore_update_interval": 3, "galore_proj_type": "std"},
    "full-galore-both": {"optimizer": "galore", "method": "full", "weight_decay_on": "matrices", "galore_rank": 4,
                         "galore_scale": 2.0, "galore_update_interval": 200, "galore_proj_type": "full"},
}


def main():
    golden = sys.argv[1]
    model_dir = os.path.join(golden, "models", "qwen2")
    adapter = os.path.join(golden, "runs", "qwen2", "lora", "initial_adapter")
    with open(os.path.join(golden, "models", "data", "train_tokens.jsonl")) as f:
        records = [json.loads(x) for x in f]
    os.makedirs(os.path.join(golden, "judged"), exist_ok=True)
    r = random.Random(4)
    pads = []
    for x in records[:24]:
        ids = [509 if r.random() < 0.2 else v for v in x["input_ids"]]
        pads.append({"input_ids": ids, "labels": [a if a == tj.IGNORE else b for a, b in zip(x["labels"], ids)]})
    with open(os.path.join(golden, "judged", "pads.jsonl"), "w") as f:
        f.writelines(json.dumps(x) + "\n" for x in pads)
    for name, extra in CASES.items():
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        c = {**COMMON, **extra}
        model = tm.load(model_dir)
        if c["method"] != "full":
            model = PeftModel.from_pretrained(model, adapter, is_trainable=True)
        steps = tj.peer(model, c, pads if c.get("pads") else records)
        y = tj.run_file(c, "", "", "", None)
        for k in ("base_model", "datasets", "output_dir", "lora_r", "lora_alpha", "lora_target_modules",
                  "peft_use_rslora", "peft_use_dora"):
            y.pop(k, None)
        out = {"run": y, "pads": bool(c.get("pads")),
               "steps": [{"loss": a, "grad_norm": b, "lr": x, "label_tokens": n} for a, b, x, n in steps]}
        with open(os.path.join(golden, "judged", name + ".json"), "w") as f:
            json.dump(out, f, indent=1)
        print(name, steps[0][:2], steps[-1][:2])


if __name__ == "__main__":
    main()
