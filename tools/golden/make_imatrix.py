#!/usr/bin/env python3
"""Computes tests/golden/imatrix/llama.safetensors and compares it with the one that is there.

usage: make_imatrix.py GOLDEN [--write]

For the tiny Llama of GOLDEN/gguf_models/llama/hf: the sum over tokens of the squared inputs of every linear, over the
first two chunks of 512 tokens of GOLDEN/imatrix/text.txt, in float64. The file in the tree was made by forward hooks in
PyTorch 2.15; this is the same network in numpy. Needs numpy and tokenizers."""
import argparse
import json
import pathlib
import struct
import sys

import numpy as np
import tokenizers

CHUNK, CHUNKS = 512, 2


def read_safetensors(path):
    data = path.read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    out = {}
    for name, t in json.loads(data[8:8 + n]).items():
        if name == "__metadata__":
            continue
        part = data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]]
        if t["dtype"] == "BF16":
            values = (np.frombuffer(part, "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(part, "<f4")
        out[name] = values.reshape(t["shape"]).astype(np.float64)
    return out


def write_safetensors(path, tensors, metadata):
    head, at = {"__metadata__": metadata}, 0
    for name in sorted(tensors):
        size = tensors[name].size * 4
        head[name] = {"dtype": "F32", "shape": list(tensors[name].shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text +
                     b"".join(tensors[n].astype("<f4").tobytes() for n in sorted(tensors)))


def norm(x, w, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def rotate(x, theta):
    """x: [T][heads][E], rotate-half form."""
    half = x.shape[-1] // 2
    angle = np.arange(x.shape[0])[:, None] * theta ** (-np.arange(half) / half)
    c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * c - b * s, b * c + a * s], -1)


def attention(q, k, v):
    """q: [T][H][E], k and v: [T][K][E]; causal."""
    T, H, E = q.shape
    k, v = (np.repeat(t, H // t.shape[1], axis=1) for t in (k, v))
    scores = np.einsum("the,she->hts", q, k) / np.sqrt(E)
    scores = np.where(np.tril(np.ones((T, T), bool)), scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hts,she->the", p / p.sum(-1, keepdims=True), v).reshape(T, H * E)


def forward(w, c, ids, sums):
    def linear(layer, gguf, module, x):
        name = f"blk.{layer}.{gguf}.weight"
        sums[name] = sums.get(name, 0) + (x * x).sum(0)
        return x @ w[f"model.layers.{layer}.{module}.weight"].T

    x, E = w["model.embed_tokens.weight"][ids], c["head_dim"]
    for i in range(c["num_hidden_layers"]):
        h = norm(x, w[f"model.layers.{i}.input_layernorm.weight"], c["rms_norm_eps"])
        q, k, v = (linear(i, g, "self_attn." + m, h).reshape(len(ids), -1, E) for g, m in
                   (("attn_q", "q_proj"), ("attn_k", "k_proj"), ("attn_v", "v_proj")))
        theta = c["rope_parameters"]["rope_theta"]
        x = x + linear(i, "attn_output", "self_attn.o_proj", attention(rotate(q, theta), rotate(k, theta), v))
        h = norm(x, w[f"model.layers.{i}.post_attention_layernorm.weight"], c["rms_norm_eps"])
        gate, up = linear(i, "ffn_gate", "mlp.gate_proj", h), linear(i, "ffn_up", "mlp.up_proj", h)
        x = x + linear(i, "ffn_down", "mlp.down_proj", gate / (1 + np.exp(-gate)) * up)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("golden", type=pathlib.Path)
    p.add_argument("--write", action="store_true", help="replace the file")
    a = p.parse_args()
    model, path = a.golden / "gguf_models/llama/hf", a.golden / "imatrix/llama.safetensors"
    config = json.loads((model / "config.json").read_text())
    weights = read_safetensors(model / "model.safetensors")
    tokenizer = tokenizers.Tokenizer.from_file(str(model / "tokenizer.json"))
    ids = tokenizer.encode((a.golden / "imatrix/text.txt").read_text()).ids
    sums = {}
    for i in range(CHUNKS):
        forward(weights, config, ids[i * CHUNK:(i + 1) * CHUNK], sums)
    old = read_safetensors(path)
    far = max(float(np.max(np.abs(sums[n] - old[n]) / np.abs(old[n]))) for n in old)
    print(f"{path}: {len(old)} tensors, largest relative difference {far:.1e}")
    if a.write:
        write_safetensors(path, sums, {"format": "pt", "tokens": str(CHUNK * CHUNKS)})
    return 1 if far > 1e-6 and not a.write else 0


if __name__ == "__main__":
    sys.exit(main())
