#!/usr/bin/env python3
"""Makes tests/golden/peft/types: adapters of other types than LoRA on tests/golden/merge/models/base (ia3_bias:
models/qwen2) as PEFT saves them, with random values, and types.safetensors: NAME.TENSOR, the weights that PEFT's
merge changes. BONE, which PEFT no longer has, is MISS under its former names. Needs torch, transformers, peft and safetensors."""
import json
import os
import pathlib
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
import peft
from peft import AdaLoraConfig, IA3Config, LoHaConfig, LoKrConfig, MissConfig, OFTConfig, VeraConfig
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

for module in list(sys.modules.values()):  # an installed torchao that is too old for PEFT is an error
    if module.__name__.startswith("peft") and hasattr(module, "is_torchao_available"):
        module.is_torchao_available = lambda: False

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"
ONE = dict(target_modules=["k_proj"], layers_to_transform=[0])
PRUNED = {"model.layers.0.self_attn.k_proj.lora_E": [True, False, True],
          "model.layers.0.self_attn.v_proj.lora_E": [False, False, False]}
CASES = {
    "adalora": AdaLoraConfig(target_modules=["k_proj", "v_proj"], layers_to_transform=[0], init_r=3, target_r=1,
                             lora_alpha=6, total_step=10, rank_pattern=PRUNED),
    "vera": VeraConfig(r=3, **ONE),
    "loha": LoHaConfig(r=2, alpha=3, **ONE),
    "lokr": LoKrConfig(r=2, alpha=3, **ONE),
    "lokr_both": LoKrConfig(r=1, alpha=2, decompose_both=True, **ONE),
    "lokr_whole": LoKrConfig(r=4, alpha=2, **ONE),
    "miss": MissConfig(r=5, **ONE),
    "miss_mini": MissConfig(r=4, mini_r=8, init_weights="mini", **ONE),
    "ia3": IA3Config(target_modules=r".*\.0\.self_attn\.k_proj", feedforward_modules=[]),
    "ia3_bias": IA3Config(target_modules=r".*\.0\.self_attn\.k_proj", feedforward_modules=[]),
    "ia3_inputs": IA3Config(target_modules=r".*\.0\.self_attn\.k_proj", feedforward_modules=["k_proj"]),
    "oft": OFTConfig(oft_block_size=8, **ONE),
    "oft_exact": OFTConfig(r=8, oft_block_size=0, use_cayley_neumann=False, coft=True, eps=1, **ONE),
    "oft_share": OFTConfig(oft_block_size=16, block_share=True, num_cayley_neumann_terms=3, **ONE),
}


def save(name, config, values):
    """With the keys that are set, sorted."""
    to = GOLDEN / "peft" / "types" / name
    to.mkdir(parents=True, exist_ok=True)
    save_file(values, str(to / "adapter_model.safetensors"), metadata={"format": "pt"})
    (to / "adapter_config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")


def make(name, config, merged):
    torch.manual_seed(1)
    base = str(GOLDEN / ("models/qwen2" if name == "ia3_bias" else "merge/models/base"))
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    model = peft.get_peft_model(model, config)
    for key, p in model.named_parameters():
        if p.requires_grad and "ranknum" not in key:
            p.data += torch.randn_like(p) * 0.2
    model.save_pretrained("/tmp/peft_type", save_embedding_layers=False)
    values = load_file("/tmp/peft_type/adapter_model.safetensors")
    config = json.loads(pathlib.Path("/tmp/peft_type/adapter_config.json").read_text())
    config = {k: v for k, v in config.items() if v not in (None, {}) and k != "base_model_name_or_path"}
    if isinstance(config["target_modules"], list):
        config["target_modules"].sort()
    save(name, config, values)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    after = peft.PeftModel.from_pretrained(model, "/tmp/peft_type").merge_and_unload().state_dict()
    changed = {k: v for k, v in after.items() if not torch.equal(v, before[k])}
    if name == "ia3_bias":
        changed = {k: v for k, v in changed.items() if k.endswith(".bias")}
    assert changed, name
    merged.update({f"{name}.{k}": v.contiguous() for k, v in changed.items()})
    if name == "miss":
        save("bone", {**config, "peft_type": "BONE"}, {k.replace("miss_", "bone_"): v for k, v in values.items()})


def main():
    merged = {}
    for name, config in CASES.items():
        make(name, config, merged)
    save_file(merged, str(GOLDEN / "peft/types.safetensors"))


main()
