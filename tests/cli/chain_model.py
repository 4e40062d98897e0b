"""A model that writes what a test wants it to write."""
import array
import json
import os
import struct


def write_model(folder, words, chain, template):
    """Words are tokens; each one of the chain is followed by the next, all others by the first word, the end."""
    follows = {words.index(a): words.index(b) for a, b in zip(chain, chain[1:])}
    v = len(words)
    tokens = [{"id": i, "content": w, "special": w[0] in "<[", "single_word": False, "lstrip": False, "rstrip": False,
               "normalized": False} for i, w in enumerate(words)]
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": v, "hidden_size": v, "intermediate_size": 8,
              "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 128,
              "rms_norm_eps": 1e-5, "eos_token_id": 0, "tie_word_embeddings": False, "torch_dtype": "float32"}
    tokenizer = {"version": "1.0", "added_tokens": tokens, "normalizer": None, "pre_tokenizer": None, "post_processor": None,
                 "decoder": {"type": "Fuse"}, "model": {"type": "BPE", "vocab": {w: i for i, w in enumerate(words)}, "merges": []}}
    for name, value in (("config.json", config), ("tokenizer.json", tokenizer),
                        ("tokenizer_config.json", {"chat_template": template, "eos_token": words[0]})):
        with open(os.path.join(folder, name), "w") as f:
            json.dump(value, f)
    block = "model.layers.0."
    shapes = {"model.embed_tokens.weight": (v, v), "model.norm.weight": (v,), "lm_head.weight": (v, v), block + "input_layernorm.weight": (v,),
              block + "post_attention_layernorm.weight": (v,), block + "self_attn.o_proj.weight": (v, 8), block + "mlp.gate_proj.weight": (8, v),
              block + "mlp.up_proj.weight": (8, v), block + "mlp.down_proj.weight": (v, 8)}
    shapes.update({block + "self_attn.%s_proj.weight" % n: (8, v) for n in "qkv"})
    header, data = {}, b""
    for name, shape in shapes.items():
        a = array.array("f", [0.0]) * (shape[0] * (shape[1] if len(shape) > 1 else 1))
        if len(shape) == 1:
            a = array.array("f", [1.0]) * v
        for i in range(v if name in ("model.embed_tokens.weight", "lm_head.weight") else 0):
            a[(i if "embed" in name else follows.get(i, 0)) * v + i] = 9.0
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(data), len(data) + 4 * len(a)]}
        data += a.tobytes()
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)
