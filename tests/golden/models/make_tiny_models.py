#!/usr/bin/env python3
"""Tiny random models of families that need a golden of their own, and what transformers computes
for them in float32: logits, token losses, gradients of the mean loss, greedy tokens.

    python make_tiny_models.py            # writes one folder each beside this file

Needs torch, transformers (5.x), safetensors. Weights, layout and names of golden.safetensors are
those of test_golden_models.c: input_ids [B,T] right padded, labels unshifted, lengths."""
import json
import pathlib

import torch
import transformers as tf
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
V, PAD = 32, 0
COMMON = dict(vocab_size=V, hidden_size=16, intermediate_size=12, num_hidden_layers=2,
              num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
              pad_token_id=PAD, bos_token_id=1, eos_token_id=2, attention_dropout=0.0)


def rope(kind, **more):
    return dict(rope_type=kind, rope_theta=10000.0, **more)


MODELS = {
    "llama3_tiny": (tf.LlamaConfig, dict(head_dim=8, rope_parameters=rope(
        "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=32))),
    "qwen2_tiny": (tf.Qwen2Config, dict(tie_word_embeddings=True)),
    "qwen3_tiny": (tf.Qwen3Config, dict(head_dim=8, tie_word_embeddings=True)),
    "mistral_tiny": (tf.MistralConfig, dict(head_dim=8, sliding_window=4)),
    "gemma2_tiny": (tf.Gemma2Config, dict(
        head_dim=8, sliding_window=4, query_pre_attn_scalar=12, attn_logit_softcapping=2.0,
        final_logit_softcapping=3.0)),
    "gemma": (tf.GemmaConfig, dict(head_dim=8, num_key_value_heads=1)),
    "gemma3_text": (tf.Gemma3TextConfig, dict(
        head_dim=8, num_hidden_layers=3, sliding_window=5, query_pre_attn_scalar=12,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        rope_parameters={"full_attention": dict(rope_type="linear", factor=8.0, rope_theta=1e6),
                         "sliding_attention": rope("default")})),
    "smollm3": (tf.SmolLM3Config, dict(num_hidden_layers=4, no_rope_layers=[1, 0, 1, 0])),
    "olmo2": (tf.Olmo2Config, dict()),
    "granite": (tf.GraniteConfig, dict(embedding_multiplier=3.0, attention_multiplier=0.3,
                                       residual_multiplier=0.7, logits_scaling=2.5)),
    "qwen3_moe": (tf.Qwen3MoeConfig, dict(
        head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8,
        norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[1], num_hidden_layers=2)),
    "qwen3_moe_raw": (tf.Qwen3MoeConfig, dict(
        head_dim=8, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=8,
        norm_topk_prob=False, decoder_sparse_step=2, num_hidden_layers=2)),
    "phi3_longrope": (tf.Phi3Config, dict(
        hidden_size=32, original_max_position_embeddings=8, partial_rotary_factor=0.75,
        rope_parameters=rope("longrope", short_factor=[1.0, 1.1, 1.3],
                             long_factor=[1.0, 2.5, 6.0], partial_rotary_factor=0.75,
                             original_max_position_embeddings=8))),
    "yarn": (tf.LlamaConfig, dict(head_dim=8, rope_parameters=rope(
        "yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=8.0, beta_slow=1.0))),
    "dynamic": (tf.LlamaConfig, dict(head_dim=8, max_position_embeddings=8,
                                     rope_parameters=rope("dynamic", factor=3.0))),
    "linear": (tf.LlamaConfig, dict(head_dim=8, attention_bias=True, mlp_bias=True,
                                    rope_parameters=rope("linear", factor=2.5))),
}


def randomise(model, seed):
    g = torch.Generator().manual_seed(seed)
    plus_one = model.config.model_type.startswith("gemma")
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=g)
        if "norm" in name:
            p.data = noise * 0.1 + (0.0 if plus_one else 1.0)
        elif p.dim() == 1:
            p.data = noise * 0.1
        else:
            p.data = noise * 0.2


def batch(seed):
    g = torch.Generator().manual_seed(seed)
    lengths = [14, 6, 9]
    ids = torch.full((3, 14), PAD)
    labels = torch.full((3, 14), -100)
    for b, n in enumerate(lengths):
        ids[b, :n] = torch.randint(3, V, (n,), generator=g)
        labels[b, n // 3:n] = ids[b, n // 3:n]
    return ids, labels, lengths


def main():
    torch.set_num_threads(1)
    for k, (name, (kind, more)) in enumerate(MODELS.items()):
        config = kind(**{**COMMON, **more}, attn_implementation="eager", dtype="float32")
        model = tf.AutoModelForCausalLM.from_config(config).float()
        randomise(model, 100 + k)
        model.train(False)
        ids, labels, lengths = batch(200 + k)
        out, loss_rows = [], torch.zeros(ids.shape)
        total, count = 0.0, 0
        for b, n in enumerate(lengths):  # one row at a time: padding must not change the rope
            logits = model(input_ids=ids[b:b + 1, :n], use_cache=False).logits[0]
            ce = torch.nn.functional.cross_entropy(logits[:-1], labels[b, 1:n], reduction="none")
            loss_rows[b, 1:n] = ce.detach()
            total = total + ce.sum()
            count += int((labels[b, 1:n] != -100).sum())
            full = torch.zeros(ids.shape[1], V)
            full[:n] = logits.detach()
            out.append(full)
        (total / count).backward()
        t = {"input_ids": ids.int(), "labels": labels.int(),
             "lengths": torch.tensor(lengths, dtype=torch.int32), "logits": torch.stack(out),
             "token_loss": loss_rows}
        for pname, p in model.named_parameters():
            t["grad." + pname] = p.grad.contiguous()
        prompt = ids[0, :5]
        seq = prompt.clone()
        for _ in range(12):
            seq = torch.cat([seq, model(input_ids=seq[None], use_cache=False).logits[0, -1]
                             .argmax()[None]])
        t["greedy_prompt_ids"] = prompt.int()
        t["greedy_ids"] = seq[5:].int()
        folder = HERE / name
        model.save_pretrained(folder)
        save_file({k2: v.contiguous() for k2, v in t.items()}, folder / "golden.safetensors",
                  metadata={"format": "pt"})
        print(name, float(total / count), sum(f.stat().st_size for f in folder.iterdir()))


if __name__ == "__main__":
    main()
