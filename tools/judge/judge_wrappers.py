"""Judge of multimodal folders: every class of transformers that answers images or sound with text, tiny and random; its text model compared
with what afinar reads of the folder. Development only.

    python judge_wrappers.py AFINAR [--only NAME,...] [--layouts published,memory,old] [--keep DIR] [--quick]

Each is written as published, with the names of memory, and with the config of older versions. Per folder: logits and greedy tokens of text; LoRA of one step, loaded by PEFT, merged;
full training of one step; merged and trained folders loaded by transformers, tensors outside the text model with the same bytes.
Refusals of classes whose text model is not known are printed, and must be one sentence. Exits 1 on a difference."""
import argparse, json, os, random, shutil, subprocess, sys, tempfile, warnings

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file
from transformers import CONFIG_MAPPING
from transformers.models.auto import modeling_auto as auto

import judge_models
from judge_models import call, rel

warnings.simplefilter("ignore")
transformers.logging.set_verbosity(50)

# ---- tiny configs ----

SIZES = {
    "hidden_size": 48, "embed_dim": 32, "d_model": 32, "dim": 32, "width": 32, "hidden_dim": 32, "intermediate_size": 56, "mlp_dim": 40,
    "ffn_dim": 40, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40, "num_hidden_layers": 2, "num_layers": 2, "depth": 2, "layers": 2,
    "encoder_layers": 2, "decoder_layers": 2, "n_layers": 2, "num_attention_heads": 4, "num_heads": 4, "n_heads": 4, "heads": 4,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "num_key_value_heads": 2, "n_kv_heads": 2, "vocab_size": 512,
    "max_position_embeddings": 64, "image_size": 28, "patch_size": 14, "out_hidden_size": 48, "output_dim": 48, "projection_dim": 48,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
    "moe_num_experts": 4, "spatial_merge_size": 2,
}
TEXT = {"head_dim": 12, "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2, "initializer_range": .1}
DROP = {"transformers_version", "architectures", "dtype", "torch_dtype", "id2label", "label2id", "_name_or_path"}


def shrink(d, key=""):
    """Sizes of a default config, and of those inside it, made small; lists of layers cut."""
    out = {}
    for k, v in d.items():
        if k in DROP:
            continue
        if isinstance(v, dict) and not k.startswith("rope"):
            out[k] = shrink(v, k)
        elif k in SIZES and isinstance(v, int) and not isinstance(v, bool):
            out[k] = min(v, SIZES[k]) if v else v
        elif k in ("layer_types", "mlp_layer_types", "layers_block_type") and isinstance(v, list):
            out[k] = v[:1] + v[-1:]
        else:
            out[k] = v
    return out


def mrope(*sections, **more):
    return {"text_config.rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": list(sections), **more}}


GLM = mrope(1, 1, 1, partial_rotary_factor=.5)
# What does not follow from the sizes above. Keys with dots lead inside. Scales of logits: transformers 5.23 forgets those of some text models.
MORE = {
    "aya_vision": {"text_config.logit_scale": 1.0},
    "cohere2_vision": {"text_config.logit_scale": 1.0, "alignment_intermediate_size": 96},
    "glm4v": GLM, "glm46v": GLM, "glmga": GLM, "glm_ocr": GLM, "glm4v_moe": GLM,
    "qwen2_vl": mrope(2, 2, 2), "qwen2_5_vl": mrope(2, 2, 2), "qwen2_5_omni_thinker": mrope(2, 2, 2), "paddleocr_vl": mrope(2, 2, 2),
    "hunyuan_vl": mrope(2, 2, 1, 1), "cosmos3_edge": mrope(2, 2, 2), 
    "ernie4_5_vl_moe": {**mrope(2, 2, 2), "text_config.moe_intermediate_size": [24, 16], "text_config.moe_k": 2},
   
    "qwen2_5_omni": {"thinker_config." + k: v for k, v in mrope(2, 2, 2).items()},
    "emu3": {"text_config.pad_token_id": 0, "text_config.attention_dropout": 0., "vocabulary_map": {"<image>": 5}}, "gemma4": {"text_config.pad_token_id": 0},
    "gemma4_unified": {"text_config.pad_token_id": 0},
    "fun_asr_nano": {"adaptor_config.intermediate_size": 12},
    "mllama": {"text_config.num_hidden_layers": 4, "text_config.cross_attention_layers": [1, 3]},
    "nemo_speechlm": {"audio_config.diarization_config.head_config.audio_hidden_size": 48, "word_timestamp_config.blank_token_id": 0},
    "vibevoice_asr": {x + "_tokenizer_encoder_config." + k: v for x in ("acoustic", "semantic")
                      for k, v in (("num_filters", 4), ("downsampling_ratios", [2, 2]), ("depths", [1, 1, 1]))},
    "kimi_k25": {"vision_config.hidden_size": 128},
    "granite4_vision": {"deepstack_layer_map": [[0, 0]], "downsample_rate": "1/2", "vision_config.hidden_size": 64,
                        "qformer_config.encoder_hidden_size": 64, "qformer_config.hidden_size": 64},
    "qwen3_omni_moe": {"talker_config.text_config.shared_expert_intermediate_size": 24, "talker_config.spatial_merge_size": 2},
    "perception_lm": {"vision_config.model_args": {"embed_dim": 32}},
    "step3p7": {"text_config.pad_token_id": 0},
    "cohere_compass": {"text_config.layer_types": ["sliding_attention", "full_attention"], "text_config.rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 5e4, "mrope_section": [2, 2, 2]}, "full_attention": None},
        "text_config.sliding_window": 5, "text_config.logit_scale": .5},
    "muse_glimmer": {"text_config.num_hidden_layers": 6, "text_config.layer_types": ["sliding_attention"] * 5 + ["full_attention"],
                     "text_config.sliding_window": 5, "text_config.layer_rope_theta": [0, 1e4, 1e4, 0, 1e4, 0], "text_config.post_norm_eps": 1e-3,
                     "text_config.final_logit_softcapping": 3.0, "text_config.output_multiplier": .7, "text_config.qk_scale_factor": 1.7},
    "deepseek_ocr2": {"text_config.num_experts_per_tok": 2, "text_config.mlp_layer_types": ["dense", "sparse"],
                      "text_config.routed_scaling_factor": 1.5},
}
# Text models that afinar does not have, models of both an encoder and a decoder, and such without text
REFUSED = """blip chameleon cosmos3_edge diffusion_gemma dots3_note evolla florence2 git glm5_next
idefics inkling2 inkling_mm_model kosmos-2 kosmos-2.5 kyutai_speech_to_text mistral_large4 molmo2 muse_spark
pi0 pix2struct pp_formulanet qwen4_exp step3p7 t5gemma2 udop unlimited_ocr vision-encoder-decoder voxtral_realtime""".split()
# Made with the names of memory alone: transformers 5.23 writes names of diffusers or of another part, or fails
ODD = ["cosmos3_omni", "kimi_k25", "nemo_speechlm", "qianfan_ocr", "shieldgemma2"]
# Their layers have other names in memory, which are not read
DISK = ["aria", "ernie4_5_vl_moe", "minimax_m3_vl"]
NOT_MADE = ["mistral4"]  # a model of text alone
# Text models of random configs of judge_models.py
FAMILY = {"gemma3n": "gemma3n_text", "gemma4": "gemma4_text", "gemma4_unified": "gemma4_text", "kimi_k25": "deepseek_v3"}


def put(d, path, value):
    *way, last = path.split(".")
    for k in way:
        d = d[k]
    if value is ...:
        d.pop(last, None)
    else:
        d[last] = value


def text_of(d):
    for k in ("text_config", "thinker_config", "llm_config"):
        if isinstance(d.get(k), dict):
            return text_of(d[k])
    return d


def make_config(name):
    cls = CONFIG_MAPPING[name]
    d = shrink(cls().to_dict())
    text = text_of(d)
    for k, v in TEXT.items():
        if k in text:
            text[k] = v
    if name in FAMILY:
        own = judge_models.make_config(FAMILY[name], random.Random(name)).to_dict()
        text.clear()
        text.update({k: v for k, v in own.items() if k not in DROP}, model_type=CONFIG_MAPPING[name]().get_text_config().model_type)
    for path, v in MORE.get(name, {}).items():
        put(d, path, v)
    cfg = cls.from_dict(d)
    cfg._attn_implementation = "eager"
    return cfg


class Stub(transformers.PreTrainedModel):
    """Instead of an image model of timm, which need not be there."""
    config_class = transformers.TimmWrapperConfig

    def __init__(self, config):
        super().__init__(config)
        self.norm = torch.nn.Linear(3, 5)
        self.post_init()


from_config = transformers.AutoModel.from_config
transformers.AutoModel.from_config = staticmethod(
    lambda config, **k: Stub(config) if config.model_type in ("timm_wrapper", "gemma3n_vision") else from_config(config, **k))


def make_model(name, seed=0):
    names = {**auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES, **auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES}
    torch.manual_seed(seed)
    model = getattr(transformers, names[name])(make_config(name)).float().eval()
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for n, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=g) * .1
            p.copy_(p + noise if "norm" in n else noise - 3 if "A_log" in n else noise)
    return model


# ---- the two sides ----

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/golden/gguf_models/llama/hf")


def save(model, path, published):
    model.save_pretrained(path, save_original_format=published)
    torch.save({}, path + "/spk_dict.pt")  # of the talker of qwen2_5_omni
    for f in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(ROOT, f), path)


TOP = ("qwen2_vl", "qwen2_5_vl")  # had their text keys at the top


def old_spelling(name, path):
    """Rewrites config.json as versions 4 of transformers had it: rope_theta and rope_scaling, keys that are defaults left out."""
    f = path + "/config.json"
    c = json.load(open(f))
    text = text_of(c)
    p = text.pop("rope_parameters", None) or {}
    if "full_attention" in p:
        text["rope_parameters"] = p
    elif p:
        text["rope_theta"] = p.pop("rope_theta", 1e4)
        if "partial_rotary_factor" in p:
            text["partial_rotary_factor"] = p.pop("partial_rotary_factor")
        kind = "mrope" if "mrope_section" in p and name in TOP else p.pop("rope_type", "default")
        text["rope_scaling"] = dict(p, type=kind) if p else None
    c["torch_dtype"] = c.pop("dtype", "float32")
    for k in ("layer_types", "mlp_layer_types", "dtype"):
        if name in TOP:
            text.pop(k, None)
    if name in TOP:
        own = c.pop("text_config")
        c = {**own, **c, "model_type": name}
    json.dump(c, open(f, "w"))


def load(model, path):
    """The folder by the class that wrote it; names that are missing or left over are an error."""
    if model.config.model_type == "qwen2_5_omni":  # with a talker, whose voices are a file; the report of names breaks on them
        return type(model).from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    m, info = type(model).from_pretrained(path, output_loading_info=True, dtype=torch.float32, attn_implementation="eager")
    wrong = {k: v for k, v in info.items() if v}
    if wrong:
        raise RuntimeError(f"loaded with {str(wrong)[:200]}")
    return m.eval()


def forward(model, ids):
    """Of text alone: by the whole model, or by the part of it that answers."""
    inner = getattr(model, "base_model", model) if hasattr(model, "peft_config") else model
    inner = inner.model if hasattr(model, "peft_config") else inner
    name = inner.config.model_type
    part = inner.thinker if name in ("qwen2_5_omni", "qwen3_omni_moe") else inner.language_model if "blip" in name else inner
    with torch.no_grad():
        return part(input_ids=torch.as_tensor(np.asarray(ids)).long(), use_cache=False).logits.float().numpy()


def ours(afinar, path, tmp, ids, *more):
    save_file({"input_ids": np.asarray(ids, np.int32)}, tmp + "/ids.safetensors")
    call([afinar, "logits", path, "--ids", tmp + "/ids.safetensors", "-o", tmp + "/out.safetensors", "--device", "cpu", "--f32", "--force",
          "-q", *more])
    return load_file(tmp + "/out.safetensors")["logits"]


def tensors(path):
    out = {}
    for f in sorted(os.listdir(path)):
        if f.endswith(".safetensors"):
            out.update(load_file(os.path.join(path, f)))
    return out


def train(afinar, path, tmp, ids, out, adapter, rate=.05):
    with open(tmp + "/d.jsonl", "w") as f:
        f.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")
    with open(tmp + "/run.yaml", "w") as f:
        f.write(f"base_model: {path}\ndatasets:\n  - path: {tmp}/d.jsonl\noptimizer: sgd\nlearning_rate: {rate}\nlr_scheduler: constant\n"
                f"warmup_steps: 0\nmax_steps: 1\nsequence_len: 64\nmicro_batch_size: 1\nweight_decay: 0\nmax_grad_norm: 0\nbf16: false\n"
                f"device: cpu\noutput_dir: {out}\n" + (f"adapter: lora\nlora_r: 4\nlora_alpha: 64\n" if adapter else ""))
    shutil.rmtree(out, ignore_errors=True)
    call([afinar, "train", tmp + "/run.yaml", "-q"])


def adapted(model, path, adapter):
    """By PEFT, with its own names. For deepseek_ocr2 transformers' renaming of `model.layers.` also takes `language_model.layers.`, so that
    PEFT leaves out all tensors, even of adapters that it wrote: they are copied."""
    import peft
    m = peft.PeftModel.from_pretrained(load(model, path), adapter).eval()
    if m.config.model_type == "deepseek_ocr2":
        written = load_file(adapter + "/adapter_model.safetensors")
        with torch.no_grad():
            for n, p in m.named_parameters():
                if "lora_" in n and ".language_model." in n:
                    p.copy_(torch.from_numpy(written[n.replace(".default", "")]))
    return m


def check_written(model, before, path, ids, want, same):
    """A folder that afinar wrote: loaded by transformers, other tensors as they were."""
    after = tensors(path)
    if set(before) - set(after):
        raise RuntimeError(f"not written: {sorted(set(before) - set(after))[:3]}")
    changed = {k for k in before if before[k].tobytes() != after[k].tobytes()}
    kept = [k for k in changed if not same(k)]
    if kept:
        raise RuntimeError(f"changed: {kept[:3]}")
    if not changed:
        raise RuntimeError("nothing changed")
    return rel(want, forward(load(model, path), ids))


def refused(a, name):
    """One sentence for a folder whose text model is not known."""
    tmp = tempfile.mkdtemp()
    CONFIG_MAPPING[name]().save_pretrained(tmp)
    save_file({"x": np.zeros(1, np.float32)}, tmp + "/model.safetensors")
    save_file({"input_ids": np.ones((1, 1), np.int32)}, tmp + "/ids.safetensors")
    done = subprocess.run([a.afinar, "logits", tmp, "--ids", tmp + "/ids.safetensors", "-o", tmp + "/out.safetensors", "-q"], capture_output=True, text=True)
    why = done.stderr.strip().split("\n")[-1].split(": ", 1)[-1].replace(tmp + "/", "") if done.returncode == 1 else ""
    shutil.rmtree(tmp)
    print(f"{name:24s} {'refused: ' + why[:150] if why else 'READ, BAD'}", flush=True)
    return not why


def one(a, name, layout):
    tmp = tempfile.mkdtemp(dir=a.keep)
    path = tmp + "/base"
    line = f"{name:24s} {layout:10s}"
    try:
        model = make_model(name)
        save(model, path, layout != "memory")
        if layout == "old":
            old_spelling(name, path)
            model = load(model, path)
        rng = np.random.default_rng(0)
        ids = rng.integers(10, 400, (1, 13)).tolist()
        e = rel(ours(a.afinar, path, tmp, ids), forward(model, ids))
        line += f" logits {e:.1e}"
        worst = e
        if a.quick:
            print(line + (" BAD" if worst > 1e-5 else ""), flush=True)
            return worst > 1e-5
        out = json.loads(call([a.afinar, "generate", path, "--prompt-ids", ",".join(map(str, ids[0])), "-n", "6", "--ignore-eos", "--json",
                               "--device", "cpu", "-q"]))["ids"]
        text = ids[0] + out
        best = forward(model, [text])[0, len(ids[0]) - 1:-1].argmax(-1).tolist()
        if best != out:
            raise RuntimeError(f"greedy {out} against {best}")
        before = tensors(path)
        outside = {v.tobytes() for v in parts_outside(model)}
        same = lambda k: before[k].tobytes() not in outside
        train(a.afinar, path, tmp, text, tmp + "/lora", True)
        want = ours(a.afinar, path, tmp, ids, "--adapter", tmp + "/lora")
        e = rel(want, forward(adapted(model, path, tmp + "/lora"), ids))
        call([a.afinar, "merge", path, "--adapter", tmp + "/lora", "-o", tmp + "/merged", "-q"])
        m = check_written(model, before, tmp + "/merged", ids, want, same)
        train(a.afinar, path, tmp, text, tmp + "/full", False)
        f = check_written(model, before, tmp + "/full", ids, ours(a.afinar, tmp + "/full", tmp, ids), same)
        moved = rel(want, forward(model, ids))
        line += f" peft {e:.1e} merged {m:.1e} full {f:.1e} moved {moved:.0e}"
        worst = max(worst, e, m, f)
        print(line + (" BAD" if worst > 1e-5 or moved < 1e-4 else ""), flush=True)
        return worst > 1e-5
    except Exception as e:
        print(f"{line} FAILED {type(e).__name__} {str(e)[:300]}", flush=True)
        return True
    finally:
        if not a.keep:
            shutil.rmtree(tmp)


def parts_outside(model):
    """Values outside the text model and its head."""
    part = model.thinker if hasattr(model, "thinker") else model.language_model if "blip" in model.config.model_type else model
    text, head = part.get_decoder(), part.get_output_embeddings()
    own = {id(p) for m in (text, head) if m is not None for p in list(m.parameters()) + list(m.buffers())}
    return [p.detach().numpy() for p in list(model.parameters()) + list(model.buffers()) if id(p) not in own and p.numel() > 1]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("afinar")
    p.add_argument("--only")
    p.add_argument("--keep")
    p.add_argument("--layouts", default="published,memory,old")
    p.add_argument("--quick", action="store_true", help="logits alone")
    a = p.parse_args()
    names = list({**auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES, **auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES})
    names = a.only.split(",") if a.only else [n for n in names if n not in NOT_MADE]
    bad = sum(refused(a, n) for n in names if n in REFUSED)
    layouts = a.layouts.split(",")
    bad += sum(one(a, n, x) for n in names if n not in REFUSED for x in layouts if n not in (DISK if x == "memory" else ODD))
    print(f"{bad} bad")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
