#!/usr/bin/env python3
"""make_base.py FOLDER [SEED]: writes config.json and a randomly initialised model.safetensors.

make_base.py --round MODEL.safetensors OUT.safetensors: the same tensors rounded to bf16.

The model is a small Llama: 4 layers of width 192, tied embeddings, 1.8 million parameters. Embeddings
are N(0, 0.1^2), large on purpose: with 0.02 the words of one kind fall together into one vector before
the model has learned to copy a word, and it had not learned it after a million tokens. Matrices are
N(0, 1 / inputs), the variance of those that write into the residual stream over 2 * layers; norms 1.
Standard library only."""
import array
import json
import random
import struct
import sys

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 928,
    "hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 4,
    "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 32, "hidden_act": "silu",
    "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": True,
    "bos_token_id": None, "eos_token_id": 927, "pad_token_id": 925,
}


def shapes(c):
    d, f, e = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    h, k = c["num_attention_heads"] * e, c["num_key_value_heads"] * e
    yield "model.embed_tokens.weight", [c["vocab_size"], d]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        yield p + "input_layernorm.weight", [d]
        yield p + "self_attn.q_proj.weight", [h, d]
        yield p + "self_attn.k_proj.weight", [k, d]
        yield p + "self_attn.v_proj.weight", [k, d]
        yield p + "self_attn.o_proj.weight", [d, h]
        yield p + "post_attention_layernorm.weight", [d]
        yield p + "mlp.gate_proj.weight", [f, d]
        yield p + "mlp.up_proj.weight", [f, d]
        yield p + "mlp.down_proj.weight", [d, f]
    yield "model.norm.weight", [d]


def values(r, name, shape, layers):
    n = shape[0] * (shape[1] if len(shape) > 1 else 1)
    if len(shape) == 1:
        return array.array("f", [1.0]) * n
    sigma = 0.1 if "embed" in name else shape[1] ** -0.5
    if "o_proj" in name or "down_proj" in name:
        sigma /= (2 * layers) ** 0.5
    return array.array("f", (r.gauss(0, sigma) for _ in range(n)))


def write(path, tensors, dtype):
    """tensors: [(name, shape, bytes)]"""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors:
            f.write(data)


def to_bf16(data):
    """Nearest, ties to even; our weights are finite."""
    words = array.array("I")
    words.frombytes(data)
    return array.array("H", ((w + 0x7FFF + (w >> 16 & 1)) >> 16 for w in words)).tobytes()


def round_file(source, out):
    with open(source, "rb") as f:
        size, = struct.unpack("<Q", f.read(8))
        header, body = json.loads(f.read(size)), f.read()
    tensors = []
    for name, t in header.items():
        if name == "__metadata__":
            continue
        data = body[slice(*t["data_offsets"])]
        tensors.append((name, t["shape"], to_bf16(data) if t["dtype"] == "F32" else data))
    write(out, tensors, "BF16")


def main():
    if sys.argv[1] == "--round":
        return round_file(sys.argv[2], sys.argv[3])
    folder, r = sys.argv[1], random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    layers = CONFIG["num_hidden_layers"]
    with open(f"{folder}/config.json", "w", encoding="utf-8") as f:
        json.dump(CONFIG | {"dtype": "float32"}, f, indent=2)
        f.write("\n")
    write(f"{folder}/model.safetensors",
          [(n, s, values(r, n, s, layers).tobytes()) for n, s in shapes(CONFIG)], "F32")


if __name__ == "__main__":
    main()
