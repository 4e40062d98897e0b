#!/usr/bin/env python3
"""make_gguf_types.py LIBGGML FILE.safetensors... - adds the bytes and values of further block types to the rows of
tests/golden/gguf_types. LIBGGML is the libggml-base.so of llama.cpp; values are decoded by the gguf package. Writes
read_only.safetensors there, too: random blocks of types that are not written, and the values that ggml gives.
Needs numpy, safetensors, gguf."""
import ctypes
import pathlib
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T
from safetensors.numpy import load_file, save_file

PLAIN = ["MXFP4", "NVFP4", "TQ1_0", "TQ2_0", "IQ2_S", "IQ3_XXS", "IQ3_S"]
WEIGHTED = ["IQ2_S", "IQ3_XXS", "IQ3_S"]


def quantise(lib, x, name, weights):
    x = np.ascontiguousarray(x)
    elements, size = gguf.GGML_QUANT_SIZES[T[name]]
    out = np.zeros((x.shape[0], x.shape[1] // elements * size), np.uint8)
    f = lib.ggml_quantize_chunk
    f.restype = ctypes.c_size_t
    f.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    done = f(int(T[name]), x.ctypes.data, out.ctypes.data, 0, x.shape[0], x.shape[1], None if weights is None else weights.ctypes.data)
    assert done == out.size, (name, done, out.size)
    return out


def read_only(lib, path):
    """Two super-blocks of each; scales are the middle of what f16 has."""
    rng = np.random.default_rng(3)
    tensors = {}
    for name, elements, size, scale in (("iq1_s", 256, 50, 0), ("iq1_m", 256, 56, None), ("iq2_xxs", 256, 66, 0),
                                        ("iq2_xs", 256, 74, 0), ("q1_0", 128, 18, 0), ("q2_0", 64, 18, 0)):
        q = rng.integers(0, 256, (512 // elements, size), dtype=np.uint8)
        if scale is not None:
            q[:, scale:scale + 2] = rng.uniform(0.01, 1, q.shape[0]).astype(np.float16).view(np.uint8).reshape(-1, 2)
        else:  # iq1_m: the upper half bytes of its last words
            d = rng.uniform(0.01, 1, q.shape[0]).astype(np.float16).view(np.uint16)
            for i in range(4):
                q[:, -7 + 2 * i] = (q[:, -7 + 2 * i] & 15) | ((d >> (4 * i) & 15) << 4).astype(np.uint8)
        x = np.zeros(512, np.float32)
        getattr(lib, "dequantize_row_" + name)(q.ctypes.data_as(ctypes.c_void_p), x.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(512))
        tensors[f"{name}.bytes"], tensors[f"{name}.dequant"] = q, x
    save_file(tensors, path)


def main():
    lib = ctypes.CDLL(sys.argv[1])
    read_only(lib, pathlib.Path(__file__).resolve().parents[2] / "tests/golden/gguf_types/read_only.safetensors")
    for path in sys.argv[2:]:
        tensors = load_file(path)
        x, weights = tensors["input"], np.ascontiguousarray(tensors["imatrix"])
        for name in PLAIN:
            tensors[f"{name}.bytes"] = q = quantise(lib, x, name, None)
            if "normal" in path:
                tensors[f"{name}.dequant"] = gguf.quants.dequantize(q, T[name]).astype(np.float32)
            if name in WEIGHTED:
                tensors[f"{name}.imatrix.bytes"] = quantise(lib, x, name, weights)
        save_file(tensors, path)


main()
