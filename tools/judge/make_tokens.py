#!/usr/bin/env python3
"""make_tokens.py AFINAR GOLDEN_DIR: new tokens, judged by transformers + PEFT in float32.

Writes GOLDEN_DIR/tokens: two tiny random models (llama, whose head is its own, and qwen2, whose head is
the embedding) with a byte-level tokenizer, and for each way to train new tokens 20 steps of PEFT from
afinar's initial adapter. Checks on the way: transformers gives the new tokens the same ids, the new rows
are the mean, PEFT loads what afinar wrote and has the same logits, the files have PEFT's names, and llama.cpp
has the same ids and greedy tokens. Needs llama-cpp-python, too."""
import json
import os
import random
import shutil
import subprocess
import sys

import train_judge as tj
import torch
import transformers as tf
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

D, SPECIAL, PLAIN = 16, ["<|im_start|>", "<|im_end|>"], ["qux-token"]
COMMON = dict(hidden_size=D, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=128, bos_token_id=256, eos_token_id=257,
              pad_token_id=None, attention_dropout=0.0)
KEYS = {"special_tokens": {"eos_token": "<|im_end|>", "additional_special_tokens": SPECIAL}, "tokens": PLAIN}
# name, family, rows stored beyond the tokenizer, keys of the run file
CASES = {
    "llama-rows": ("llama", {"adapter": "lora"}),
    "llama-saved": ("llama", {"adapter": "lora", "lora_modules_to_save": ["embed_tokens", "lm_head"]}),
    "llama-full": ("llama", {"adapter": "full", "resize_token_embeddings_to_32x": True}),
    "llama-listed": ("llama", {"adapter": "lora", "trainable_token_indices": {"embed_tokens": [260, 3, 258],
                                                                              "lm_head": [259]}}),
    "qwen2-rows": ("qwen2", {"adapter": "lora"}),
    "qwen2-saved": ("qwen2", {"adapter": "lora", "lora_modules_to_save": ["embed_tokens", "lm_head"]}),
    "qwen2-full": ("qwen2", {"adapter": "full"}),
}
STEPS = {"micro_batch_size": 2, "gradient_accumulation_steps": 2, "max_steps": 20, "learning_rate": 5e-3,
         "weight_decay": 0.1, "weight_decay_on": "all", "max_grad_norm": 0.5, "lr_scheduler": "cosine",
         "warmup_steps": 2, "adam_beta1": 0.9, "adam_beta2": 0.95, "sample_packing": False, "sequence_len": 128,
         "gradient_checkpointing": "auto", "threads": 2, "method": "lora", "loraplus": 0, "optimizer": "adamw"}


def make_tokenizer(folder):
    bytes_ = sorted(pre_tokenizers.ByteLevel.alphabet())
    t = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(bytes_)}, merges=[]))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(x, special=True, normalized=False) for x in ("<s>", "</s>")])
    tf.PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<s>", eos_token="</s>",
                               pad_token="</s>").save_pretrained(folder)


def make_model(family, folder):
    torch.manual_seed({"llama": 3, "qwen2": 5}[family])
    cls = {"llama": tf.LlamaConfig, "qwen2": tf.Qwen2Config}[family]
    c = cls(vocab_size=258, tie_word_embeddings=family == "qwen2", **COMMON)
    m = tf.AutoModelForCausalLM.from_config(c)
    for p in m.parameters():
        torch.nn.init.normal_(p, 1.0 if p.ndim == 1 else 0.0, 0.1 if p.ndim == 1 else 0.3)
    m.save_pretrained(folder)
    make_tokenizer(folder)


def make_records(path):
    r = random.Random(7)
    with open(path, "w") as f:
        for _ in range(20):
            ids = [r.choice([258, 259, 260]) if r.random() < 0.3 else r.randrange(258)
                   for _ in range(r.randint(6, 24))]
            f.write(json.dumps({"input_ids": ids, "labels": [-100] * 2 + ids[2:]}) + "\n")
    return [json.loads(x) for x in open(path)]


def train(afinar, base, data, out, keys, steps):
    y = {k: v for k, v in {**STEPS, **steps, **KEYS, **keys}.items() if k not in ("method", "loraplus")}
    y.update(base_model=base, datasets=[{"path": data, "type": "tokens"}], output_dir=out, shuffle=False,
             logging_steps=1, lora_r=4, lora_alpha=8, lora_target_modules=["q_proj", "v_proj"])
    y = {k: v for k, v in y.items() if y["adapter"] != "full" or not k.startswith("lora")}
    shutil.rmtree(out, ignore_errors=True)
    with open(out + ".yaml", "w") as f:
        f.writelines("%s: %s\n" % (k, json.dumps(v)) for k, v in y.items())
    p = subprocess.run([afinar, "train", out + ".yaml"], capture_output=True, text=True)
    if p.returncode:
        sys.exit(p.stderr)
    rows = [json.loads(x) for x in open(os.path.join(out, "metrics.jsonl"))]
    return [x for x in rows if "grad_norm" in x]


def grown(base, rows):
    torch.manual_seed(0)
    m = tf.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    means = [m.get_input_embeddings().weight.detach().mean(0), m.get_output_embeddings().weight.detach().mean(0)]
    if rows > m.config.vocab_size:
        old = m.config.vocab_size
        m.resize_token_embeddings(rows, mean_resizing=True)
        for w, mean in zip((m.get_input_embeddings().weight, m.get_output_embeddings().weight), means):
            far = float((w[old:].detach() - mean).abs().max())
            assert far < 1e-3, far  # drawn around the mean with a billionth of the covariance
            w.data[old:] = mean
    return m


def check_tokenizer(base, out):
    want = tf.PreTrainedTokenizerFast.from_pretrained(base)  # without the rules of a family
    want.add_special_tokens({"eos_token": AddedToken("<|im_end|>", normalized=False)})
    want.add_tokens([AddedToken(x, normalized=False) for x in PLAIN])
    want.add_special_tokens({"additional_special_tokens": SPECIAL})
    has = tf.PreTrainedTokenizerFast.from_pretrained(out)
    for text in ("<|im_start|>user\nqux-tokens a qux-token<|im_end|> </s>", "x<|im_end|>y"):
        assert has(text)["input_ids"] == want(text)["input_ids"], text
        assert has.decode(has(text)["input_ids"]) == want.decode(want(text)["input_ids"])
    assert (has.eos_token, has.eos_token_id, len(has)) == ("<|im_end|>", want.eos_token_id, len(want))
    assert set(has.all_special_tokens) == set(want.all_special_tokens), has.all_special_tokens
    assert has.convert_tokens_to_ids(PLAIN[0]) == want.convert_tokens_to_ids(PLAIN[0])


def check_gguf(afinar, base, out, tmp, name):
    """Merged and exported, llama.cpp reads the new tokens as one id each and has the same greedy tokens."""
    import numpy
    from llama_cpp import Llama
    merged, gguf = os.path.join(tmp, name + "-merged"), os.path.join(tmp, name + "-gguf", "m.gguf")
    for d in (merged, os.path.dirname(gguf)):
        shutil.rmtree(d, ignore_errors=True)
    os.makedirs(os.path.dirname(gguf))
    subprocess.run([afinar, "merge", base, "--adapter", out, "-o", merged, "-q"], check=True, capture_output=True)
    subprocess.run([afinar, "export", merged, "-o", gguf, "--type", "f32", "-q"], check=True, capture_output=True)
    m = Llama(gguf, n_ctx=128, logits_all=True, verbose=False, n_threads=1)
    for token, want in zip(("<|im_end|>", PLAIN[0], "<|im_start|>"), (258, 259, 260)):
        assert m.tokenize(token.encode(), add_bos=False, special=True) == [want], token
    p = subprocess.run([afinar, "generate", gguf, "-p", "hi" + PLAIN[0], "-n", "10", "--device", "cpu", "--json", "-q"],
                       capture_output=True, text=True, check=True)
    mine = json.loads(p.stdout)
    m.eval(mine["prompt_ids"])
    for t in mine["ids"]:
        scores = m.scores[m.n_tokens - 1]  # its cache is in half precision: a near tie may fall the other way
        assert scores.max() - scores[t] <= 0.02, (scores.max(), int(numpy.argmax(scores)), scores[t], t)
        m.eval([t])
    assert m.token_eos() == 258 and m.n_vocab() == 261
    print("  llama.cpp: same tokens", mine["ids"])


def case(name, afinar, golden, tmp, records, data):
    family, keys = CASES[name]
    base = os.path.join(golden, family)
    init, out = os.path.join(tmp, name + "-init"), os.path.join(tmp, name)
    train(afinar, base, data, init, keys, {"learning_rate": 0, "max_steps": 1, "warmup_steps": 0,
                                            "lr_scheduler": "constant"})
    mine = train(afinar, base, data, out, keys, {})
    check_tokenizer(base, out)
    rows = 288 if keys.get("resize_token_embeddings_to_32x") else 261
    if keys["adapter"] == "full":
        model = grown(base, rows)
    else:
        model = PeftModel.from_pretrained(grown(base, rows), init, is_trainable=True)
    c = {**STEPS, "method": "full" if keys["adapter"] == "full" else "lora"}
    steps = tj.peer(model, c, records)
    worst = max(abs(a["loss"] - b[0]) for a, b in zip(mine, steps))
    norm = max(abs(a["grad_norm"] - b[1]) for a, b in zip(mine, steps))
    model.eval()
    if keys["adapter"] == "full":
        again = tf.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
    else:
        again = PeftModel.from_pretrained(grown(base, rows), out)
        own = os.path.join(tmp, name + "-peft")
        model.save_pretrained(own)
        a, b = load_file(own + "/adapter_model.safetensors"), load_file(out + "/adapter_model.safetensors")
        print("  only PEFT:", sorted(set(a) - set(b)), "only afinar:", sorted(set(b) - set(a)))
        far = max(float((a[k].float() - b[k].float()).abs().max()) for k in a if k in b)
        print("  weights after 20 steps: %.2g" % far)
        x, y = (json.load(open(d + "/adapter_config.json")) for d in (own, out))
        check_gguf(afinar, base, out, tmp, name)
        print("  config:", {k: (x[k], y.get(k)) for k in x if x[k] != y.get(k) and k != "target_modules"})
    ids = torch.tensor([records[0]["input_ids"]])
    with torch.no_grad():
        far = float((again(ids).logits - model(ids).logits).abs().max())
    print("%s: loss %.2g, norm %.2g, reloaded logits %.2g" % (name, worst, norm, far))
    return {"family": family, "keys": {**KEYS, **keys},
            "steps": [{"loss": a, "grad_norm": b, "lr": x, "label_tokens": n} for a, b, x, n in steps]}


def main():
    afinar, golden = os.path.abspath(sys.argv[1]), os.path.join(os.path.abspath(sys.argv[2]), "tokens")
    tmp = "/tmp/afinar-make-tokens"
    os.makedirs(tmp, exist_ok=True)
    os.makedirs(golden, exist_ok=True)
    for family in ("llama", "qwen2"):
        if not os.path.exists(os.path.join(golden, family)):
            make_model(family, os.path.join(golden, family))
    data = os.path.join(golden, "records.jsonl")
    records = make_records(data)
    for name in CASES if len(sys.argv) < 4 else sys.argv[3:]:
        out = case(name, afinar, golden, tmp, records, data)
        with open(os.path.join(golden, name + ".json"), "w") as f:
            json.dump(out, f, indent=1)


if __name__ == "__main__":
    main()
