#!/usr/bin/env python3
"""make_gguf_types.py LIBGGML FILE.safetensors... - adds the bytes and values of further block types to the rows of
tests/golden/gguf_types. LIBGGML is the libggml-base.so of llama.cpp; values are decoded by the gguf package.
Needs numpy, safetensors, gguf."""
import ctypes
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


def main():
    lib = ctypes.CDLL(sys.argv[1])
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
