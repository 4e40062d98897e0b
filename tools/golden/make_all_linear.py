#!/usr/bin/env python3
"""tests/golden/families/all_linear.txt: what PEFT's target_modules="all-linear" adapts in each family.

A line per golden of make_families.py: its name, then the adapted modules without the numbers of layers and experts, as they are
called in the adapter's file. Read by tests/train/test_all_linear.c.

    make_all_linear.py        (needs torch, transformers and peft)"""
import json
import pathlib
import re
import tempfile
import warnings

import peft
import torch
import transformers

import make_families
from make_families import class_of, repositories

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
FAMILIES = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/families"

UNREACHED = re.compile(r"\.indexer\.|\.router\.classifier\.")  # by gradients: deepseek_v32, glm_moe_dsa; longcat_flash


def names(config):
    kind = class_of(config)
    model = (kind.from_config if hasattr(kind, "from_config") else kind)(config)
    targets = "all-linear"
    if config.model_type in ("nemotron_h", "mamba", "falcon_mamba", "mamba2", "falcon_h1"):  # out_proj is refused, and all-linear names it
        leaves = {k.rsplit(".", 1)[-1] for k, m in model.named_modules() if isinstance(m, torch.nn.Linear)}
        targets = sorted(leaves - {"out_proj", "dt_proj", "lm_head"})
    if config.model_type == "jamba":  # the weight of dt_proj is read past an adapter
        targets = sorted({k.rsplit(".", 1)[-1] for k, m in model.named_modules() if isinstance(m, torch.nn.Linear)} - {"dt_proj", "lm_head"})
    if config.model_type in ("llama4_text", "phimoe"):  # their routers give two tensors, which an adapter of PEFT cannot follow
        targets = sorted({k.rsplit(".", 1)[-1] for k, m in model.named_modules() if isinstance(m, torch.nn.Linear)} - {"router", "lm_head"})
    model = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=targets, task_type="CAUSAL_LM"))
    keys = peft.get_peft_model_state_dict(model)
    short = {re.sub(r"\.\d+(?=\.)", "", k[len("base_model.model."):]).removesuffix(".lora_A.weight")
             for k in keys if k.endswith(".lora_A.weight") and not UNREACHED.search(k)}
    return " ".join(sorted(short))


lines = []
for path in sorted(FAMILIES.glob("*.json")):
    kind, changes, options = make_families.FAMILIES.get(path.stem, (None, {}, {}))
    if "published" in options:  # the class with equal formulas, whose modules have other names
        config = getattr(transformers, kind)(**{**make_families.BASE, **changes})
        linear = {re.sub(r"\.\d+(?=\.)", "", n) for n, m in class_of(config).from_config(config).named_modules()
                  if isinstance(m, torch.nn.Linear)}
        own = {repositories.rename(options["published"], n) for n in linear} - {None, "lm_head", "output", "transformer.output_layer"}
        lines.append(f"{path.stem} {' '.join(sorted(own))}\n")
        continue
    if "model_type" in options.get("hub", {}):  # a class of make_families.py
        lines.append(f"{path.stem} {names(getattr(transformers, kind)(**{**make_families.BASE, **changes}))}\n")
        continue
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "config.json").write_text(json.dumps(json.loads(path.read_text())["config"]))
        config = transformers.AutoConfig.from_pretrained(folder)
    lines.append(f"{path.stem} {names(config)}\n")
(FAMILIES / "all_linear.txt").write_text("".join(lines))
print(len(lines), "families")
