#!/usr/bin/env python3
"""Makes tests/golden/runs/qwen2/NAME for training methods: python make_method_runs.py [NAME ...].

Each run is 30 (or fewer) steps of the tiny Qwen2 of tests/golden/models in float32 on the CPU, in plain
PyTorch: micro batches in file order, the loss of a step over all its label tokens, gradients clipped to
norm 1, a cosine with three steps of warm-up. run.json has the keys that the run file adds, trajectory.json
loss, gradient norm, learning rate and label tokens of each step. Needs torch, transformers, peft and
bitsandbytes; torchao and safetensors for some."""
import json
import math
import os
import pathlib
import re
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
from peft import LoraConfig, OFTConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, get_cosine_schedule_with_warmup

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"
SEVEN = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
PAD = 509
torch.set_num_threads(1)
plain_clamp = torch.clamp
torch.use_deterministic_algorithms(True)


def base():
    model = AutoModelForCausalLM.from_pretrained(str(GOLDEN / "models" / "qwen2"), dtype=torch.float32,
                                                 attn_implementation="eager")
    model.config.use_cache = False
    return model


def batches(micro=2, accumulate=2):
    records = [json.loads(x) for x in (GOLDEN / "models/data/train_tokens.jsonl").read_text().splitlines()]
    at = 0
    while True:
        step = []
        for _ in range(accumulate):
            step.append([records[(at + i) % len(records)] for i in range(micro)])
            at += micro
        yield step


def padded(items):
    length = max(len(x["input_ids"]) for x in items)
    ids = torch.full((len(items), length), PAD)
    labels = torch.full((len(items), length), -100)
    mask = torch.zeros((len(items), length), dtype=torch.long)
    for i, x in enumerate(items):
        n = len(x["input_ids"])
        ids[i, :n], labels[i, :n], mask[i, :n] = torch.tensor(x["input_ids"]), torch.tensor(x["labels"]), 1
    return ids, labels, mask


def token_losses(logits, labels, keys):
    nll = torch.nn.functional.cross_entropy(logits, labels, ignore_index=-100, reduction="none",
                                            label_smoothing=keys.get("label_smoothing_factor", 0.0))
    if keys.get("use_eaft") or keys.get("use_eaft_loss"):  # eaft_loss of Axolotl, eaft_loss_func of LLaMA-Factory
        best = torch.topk(logits.detach(), keys.get("eaft_k", 20), dim=-1).values.softmax(-1)
        entropy = -(best * torch.log(best + (1e-10 if "use_eaft" in keys else 0))).sum(-1)
        return nll * torch.pow(entropy if "use_eaft" in keys else entropy / 3.0, keys.get("eaft_alpha", 1.0))
    weighed = nll * torch.exp(-nll.detach())  # TRL's loss_type "dft"
    if keys.get("use_asft_loss"):  # asft_loss_func of LLaMA-Factory
        kl = torch.nn.functional.kl_div(logits.log_softmax(-1), keys["reference"].softmax(-1), reduction="none").sum(-1)
        return weighed + keys.get("asft_alpha", 0.1) * kl * (labels != -100)
    return weighed if keys.get("use_dft_loss") else nll


def train(model, keys, rate, steps=30):
    params = [p for p in model.parameters() if p.requires_grad]
    opt = adamw(model, params, rate, keys)
    schedule = get_cosine_schedule_with_warmup(opt, 3, keys.get("max_steps", 30))
    model.train()
    start = base().eval() if keys.get("use_asft_loss") else None
    rows, stream = [], batches()
    for number in range(steps):
        micros = next(stream)
        total = sum(x != -100 for m in micros for r in m for x in r["labels"][1:])
        loss = 0.0
        for items in micros:
            ids, labels, mask = padded(items)
            logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1]
            if start:
                with torch.no_grad():
                    keys["reference"] = start(input_ids=ids, attention_mask=mask).logits[:, :-1].reshape(-1, logits.shape[-1])
            value = token_losses(logits.reshape(-1, logits.shape[-1]), labels[:, 1:].reshape(-1), keys).sum() / total
            value.backward()
            loss += float(value.detach())
        norm = torch.nn.utils.clip_grad_norm_(params, 1.0, foreach=False)
        rows.append({"step": number + 1, "loss": loss, "grad_norm": float(norm), "lr": schedule.get_last_lr()[0],
                     "label_tokens": total})
        opt.step()
        schedule.step()
        opt.zero_grad()
    return rows


def adamw(model, params, rate, keys):
    if "embedding_lr" in keys:
        table = [p for n, p in model.named_parameters() if "embed_tokens" in n or "lm_head" in n]
        rest = [p for p in params if not any(p is t for t in table)]
        return torch.optim.AdamW([{"params": rest, "weight_decay": 0.01},
                                  {"params": table, "weight_decay": 0.0, "lr": keys["embedding_lr"]}], lr=rate,
                                 foreach=False)
    return torch.optim.AdamW(params, lr=rate, weight_decay=0.01, foreach=False)


def adapter(model):
    """The adapter every LoRA run here continues."""
    return PeftModel.from_pretrained(model, str(GOLDEN / "runs/qwen2/lora/initial_adapter"), is_trainable=True)


# ---- the runs ----

def int8():
    """Linear8bitLt of bitsandbytes, which on a CPU trains with dequantised weights."""
    import bitsandbytes as bnb
    model = base()
    for name, layer in list(model.named_modules()):
        if isinstance(layer, torch.nn.Linear) and name.split(".")[-1] in SEVEN:
            new = bnb.nn.Linear8bitLt(layer.in_features, layer.out_features, layer.bias is not None,
                                      has_fp16_weights=False, threshold=6.0)
            new.weight = bnb.nn.Int8Params(layer.weight.data, requires_grad=False, has_fp16_weights=False)
            if layer.bias is not None:
                new.bias = layer.bias
            new = new.to("cpu")
            parent = model.get_submodule(name.rsplit(".", 1)[0])
            setattr(parent, name.rsplit(".", 1)[1], new)
    for p in model.parameters():
        p.requires_grad_(False)
    return adapter(model), {"adapter": "lora", "load_in_8bit": True, "learning_rate": 1e-3}


def unfreeze(model, trained, rows=None):
    for name, p in model.named_parameters():
        p.requires_grad_(trained(name))
        if name in (rows or {}):
            first, last = rows[name]
            keep = torch.zeros(p.shape[0], 1)
            keep[first:last] = 1
            p.register_hook(lambda g, keep=keep: g * keep)
    return model


def unfrozen():
    names = ["model.embed_tokens.weight$[100:400]", "^model.layers.1.mlp", "model.layers.[01].self_attn.q_proj.+$"]
    model = unfreeze(base(), lambda n: n == "model.embed_tokens.weight" or n.startswith("model.layers.1.mlp")
                     or re.match(r"model\.layers\.[01]\.self_attn\.q_proj\.", n) is not None,
                     {"model.embed_tokens.weight": (100, 400)})
    return model, {"unfrozen_parameters": names, "learning_rate": 3e-4}


def freeze():
    model = unfreeze(base(), lambda n: ".1.mlp" in n or ".1.input_layernorm" in n or "norm" in n)
    return model, {"adapter": "freeze", "freeze_trainable_layers": 1,
                   "freeze_trainable_modules": ["mlp", "input_layernorm"], "freeze_extra_modules": ["norm"],
                   "learning_rate": 3e-4}


def freeze_first():
    model = unfreeze(base(), lambda n: ".0." in n)
    return model, {"adapter": "freeze", "freeze_trainable_layers": -1, "learning_rate": 3e-4}


def start(kind, **more):
    """A LoRA run that PEFT starts from the base: rank 4 on all linears."""
    def make():
        torch.manual_seed(3)
        config = LoraConfig(r=4, lora_alpha=8, target_modules=SEVEN, init_lora_weights=kind, **more)
        keys = {"adapter": "lora", "lora_r": 4, "lora_alpha": 8, "peft_init_lora_weights": kind, "learning_rate": 1e-3}
        if more.get("use_rslora"):
            keys["peft_use_rslora"] = True
        if more.get("use_dora"):
            keys["peft_use_dora"] = True
        return get_peft_model(base(), config), keys
    return make


def nf4_base():
    """The base with its linears as bitsandbytes rounded them to nf4 (runs/qwen2/qlora/quantized.safetensors)."""
    from safetensors.torch import load_file
    stored, model = load_file(str(GOLDEN / "runs/qwen2/qlora/quantized.safetensors")), base()
    for name, p in model.named_parameters():
        if name not in stored:
            continue
        state = json.loads(bytes(stored[name + ".quant_state.bitsandbytes__nf4"].tolist()))
        outer = stored[name + ".nested_absmax"].repeat_interleave(state["nested_blocksize"])
        absmax = stored[name + ".nested_quant_map"][stored[name + ".absmax"].long()]
        absmax = absmax * outer[:len(absmax)] + state["nested_offset"]
        codes = stored[name].flatten().long()
        values = stored[name + ".quant_map"][torch.stack([codes >> 4, codes & 15], 1).flatten()]
        p.data = (values.view(-1, state["blocksize"]) * absmax[:, None]).view(p.shape)
    return model


def oft(make=base, **keys):
    """Orthogonal fine-tuning of all linears: by default blocks of 32, of which the inputs of some need others."""
    def run():
        config = OFTConfig(target_modules=SEVEN, r=keys.get("oft_r", 0),
                           oft_block_size=0 if "oft_r" in keys else keys.get("oft_block_size", 32),
                           block_share=keys.get("oft_block_share", False),
                           use_cayley_neumann=keys.get("use_cayley_neumann", True),
                           num_cayley_neumann_terms=keys.get("num_cayley_neumann_terms", 5))
        return get_peft_model(make(), config), {"adapter": "oft", "learning_rate": 1e-3, **keys}
    return run


def oft_continued():
    """From an adapter of PEFT whose rotations are random."""
    folder = GOLDEN / "runs/qwen2/oft-continued/initial_adapter"
    torch.manual_seed(5)
    config = OFTConfig(target_modules=["q_proj", "o_proj", "down_proj"], oft_block_size=8, init_weights=False)
    get_peft_model(base(), config).save_pretrained(str(folder))
    (folder / "README.md").unlink()
    config = json.loads((folder / "adapter_config.json").read_text())
    config.update(base_model_name_or_path=None, target_modules=sorted(config["target_modules"]))
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=1) + "\n")
    model = PeftModel.from_pretrained(base(), str(folder), is_trainable=True)
    return model, {"adapter": "oft", "learning_rate": 1e-3}


def embedding_lr():
    return base(), {"embedding_lr": 5e-5, "learning_rate": 3e-4}


def smoothed():
    return base(), {"label_smoothing_factor": 0.1, "learning_rate": 3e-4}


def dft():
    return base(), {"use_dft_loss": True, "learning_rate": 1e-3}


def eaft():
    return base(), {"use_eaft": True, "eaft_k": 9, "eaft_alpha": 0.7, "learning_rate": 3e-4}


def eaft_third():
    return base(), {"use_eaft_loss": True, "learning_rate": 3e-4}


def asft():
    return base(), {"use_asft_loss": True, "asft_alpha": 0.4, "learning_rate": 1e-3}


def asft_lora():
    return adapter(base()), {"use_asft_loss": True, "adapter": "lora", "learning_rate": 3e-3}


class Clamp(torch.autograd.Function):
    """Passes the gradient at the bounds, too, as torch.clamp did before torch 2.15 and as torchao's mask says."""
    @staticmethod
    def forward(ctx, x, low, high):
        ctx.save_for_backward((x >= low) & (x <= high))
        return torch.minimum(torch.maximum(x, torch.tensor(float(low))), torch.tensor(float(high)))

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.saved_tensors[0], None, None


def qat(**more):
    """torchao's fake quantizers, as prepare_model_for_qat of Axolotl 0.19 chooses them."""
    def make():

        torch.clamp = torch.Tensor.clamp = lambda x, min=None, max=None: (
            plain_clamp(x, min, max) if min is None or max is None else Clamp.apply(x, min, max))
        from torchao.quantization import quantize_
        from torchao.quantization.qat import IntxFakeQuantizeConfig, QATConfig
        from torchao.quantization.qat.fake_quantize_config import Int4WeightFakeQuantizeConfig
        keys = {"weight_dtype": "int4", **more}
        model = base()
        weight = Int4WeightFakeQuantizeConfig(group_size=keys.get("group_size", 32), activation_dtype=torch.bfloat16)
        inputs = IntxFakeQuantizeConfig(torch.int8, "per_token", is_symmetric=False)
        quantize_(model, QATConfig(weight_config=weight, activation_config=inputs if "activation_dtype" in keys else None))
        if keys.get("quantize_embedding"):
            quantize_(model, QATConfig(weight_config=weight), filter_fn=lambda m, _: isinstance(m, torch.nn.Embedding))
        return model, {"qat": keys, "learning_rate": 1e-4}
    return make


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, to):
        return x.to(to).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        return dy, None


def float_qat(**keys):
    """torchao's QAT in small float types. Its linears in 4 bits give biases no gradient, those in nvfp4 need a Blackwell GPU and
    have no form for weights alone: here they multiply the same dequantized values, and biases are added afterwards. Rows of
    padding, which would count in the scale of a whole tensor, are left out. Gradients that pass its fp8 codes are cast to fp8
    without a scale, where most of them are 0: here they stay f32."""
    def make():
        from torchao.prototype.qat import MXFakeQuantizeConfig, MXFakeQuantizedLinear, NVFP4FakeQuantizeConfig
        from torchao.prototype.qat import NVFP4FakeQuantizedLinear, mx, nvfp4
        from torchao.quantization import quant_primitives, quantize_
        from torchao.quantization.qat import QATConfig
        from torchao.quantization.qat.fake_quantize_config import Float8FakeQuantizeConfig
        kind, function = {"nvfp4": (NVFP4FakeQuantizeConfig(), nvfp4._NVFP4QuantizedForwardFakeQuantizedBackward),
                          "mxfp4": (MXFakeQuantizeConfig(), mx._MXQuantizedForwardFakeQuantizedBackward),
                          "fp8": (Float8FakeQuantizeConfig(), None)}[keys["weight_dtype"]]
        nvfp4._addmm_nvfp4_dispatch = lambda a, b, op, bias: a.dequantize() @ b.dequantize()
        quant_primitives._RoundToFloat8 = Straight
        kept = {}

        def forward(layer, x):
            weight, rows = layer.weight, x.flatten(0, 1)[kept["rows"]]
            if keys["weight_dtype"] == "mxfp4" or "activation_dtype" in keys:
                y = function.apply(rows, weight, None, kind, kind)
            else:
                scale = nvfp4.per_tensor_amax_to_scale(weight.detach().abs().max())
                there = nvfp4.NVFP4Tensor.to_nvfp4(weight.detach(), per_tensor_scale=scale).dequantize()
                y = rows @ (weight + (there - weight).detach()).t()
            y = y if layer.bias is None else y + layer.bias
            return y.new_zeros(x.shape[0] * x.shape[1], y.shape[1]).index_copy(0, kept["rows"], y).view(*x.shape[:2], -1)
        model = base()
        quantize_(model, QATConfig(weight_config=kind, activation_config=kind))
        if function:
            MXFakeQuantizedLinear.forward = NVFP4FakeQuantizedLinear.forward = forward
            model.register_forward_pre_hook(lambda m, args, more: kept.update(
                rows=more["attention_mask"].flatten().nonzero().flatten()), with_kwargs=True)
        if keys.get("quantize_embedding"):
            quantize_(model, QATConfig(weight_config=kind), filter_fn=lambda m, _: isinstance(m, torch.nn.Embedding))
        return model, {"qat": keys, "learning_rate": 1e-4, "max_steps": 4}
    return make


RUNS = {"eaft": eaft, "eaft-third": eaft_third, "asft": asft, "asft-lora": asft_lora, "qat": qat(activation_dtype="int8"), "qat-weights": qat(group_size=16, quantize_embedding=True), "qat-nvfp4": float_qat(weight_dtype="nvfp4", activation_dtype="nvfp4"), "qat-nvfp4-weights": float_qat(weight_dtype="nvfp4"), "qat-mxfp4": float_qat(weight_dtype="mxfp4"), "qat-fp8": float_qat(weight_dtype="fp8", activation_dtype="fp8", quantize_embedding=True), "label-smoothing": smoothed, "dft": dft, "embedding-lr": embedding_lr, "pissa": start("pissa"), "pissa-rslora": start("pissa", use_rslora=True), "olora": start("olora"), "pissa-dora": start("pissa", use_dora=True), "olora-dora": start("olora", use_dora=True), "orthogonal-dora": start("orthogonal", use_dora=True), "oft": oft(), "oft-exact": oft(use_cayley_neumann=False, oft_r=4), "oft-4bit": oft(nf4_base, load_in_4bit=True), "oft-continued": oft_continued, "oft-share": oft(oft_block_size=10, oft_block_share=True, num_cayley_neumann_terms=3), "int8": int8, "unfrozen": unfrozen, "freeze": freeze, "freeze-first": freeze_first}


def main():
    for name in sys.argv[1:] or RUNS:
        torch.manual_seed(7)
        model, keys = RUNS[name]()
        steps = 30 if name == "int8" else 2 if "max_steps" in keys else 12
        rows = train(model, keys, keys["learning_rate"], steps)
        keys.pop("reference", None)
        folder = GOLDEN / "runs" / "qwen2" / name
        folder.mkdir(exist_ok=True)
        (folder / "run.json").write_text(json.dumps(keys, indent=1) + "\n")
        (folder / "trajectory.json").write_text(json.dumps({"run": name, "model": "qwen2", "steps": rows}, indent=1)
                                                + "\n")
        print(name, rows[0]["loss"], rows[-1]["loss"], rows[-1]["grad_norm"])


if __name__ == "__main__":
    main()
