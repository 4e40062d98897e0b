#!/usr/bin/env python3
"""tests/golden/coded/mlx.safetensors: small weights as MLX quantises them, and the values that its own code gives.

Needs mlx (Linux: mlx[cpu]) and numpy. KIND.weight, .scales and .biases are the stored tensors, want.KIND the values."""
import pathlib

import mlx.core as mx
import numpy as np

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/coded/mlx.safetensors"
rng = np.random.default_rng(1)
store = {}


def add(kind, dtype, group, bits, mode="affine"):
    w = mx.array(rng.standard_normal((6, 128), np.float32)).astype(dtype)
    parts = mx.quantize(w, group_size=group, bits=bits, mode=mode)
    store.update(zip((f"{kind}.weight", f"{kind}.scales", f"{kind}.biases"), parts))
    store[f"want.{kind}"] = mx.dequantize(*parts, group_size=group, bits=bits, mode=mode, dtype=dtype)


for bits in (2, 3, 4, 5, 6, 8):
    add(f"affine{bits}", mx.bfloat16, 32, bits)
add("half4", mx.float16, 64, 4)
add("float4", mx.float32, 128, 4)
add("mxfp4", mx.bfloat16, 32, 4, "mxfp4")
mx.save_safetensors(str(OUT), store, metadata={"format": "mlx"})
print({k: (v.dtype, v.shape) for k, v in store.items()})
