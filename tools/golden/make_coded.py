#!/usr/bin/env python3
"""tests/golden/coded/codes.safetensors: weights as other tools store them, and the values their own code gives.

Needs torch, transformers, compressed-tensors and AutoAWQ's awq/utils/packing_utils.py (its folder as an argument).
KIND.weight* are the stored tensors, want.KIND the values."""
import importlib.util
import pathlib
import sys

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.torch import save_file
from transformers.integrations.bitnet import WeightQuant, pack_weights, unpack_weights
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/coded/codes.safetensors"
torch.manual_seed(1)
ROWS, COLS = 12, 32
store = {}


def fp8(kind, scale, dtype):
    q = torch.randn(ROWS, COLS).to(torch.float8_e4m3fn)
    store[f"{kind}.weight"], store[f"{kind}.weight_scale_inv"] = q, scale
    store[f"want.{kind}"] = Fp8Dequantize(None)._dequantize_one(q, scale, dtype)


def compressed(kind, format, args, scale_shape, zero=None, group=None, **more):
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**args))
    compressor = BaseCompressor.get_value_from_registry(format)
    state = {"weight": torch.randn(ROWS, COLS, dtype=torch.bfloat16),
             "weight_scale": (torch.rand(scale_shape) * 0.2 + 0.1).to(torch.bfloat16), **more}
    if zero is not None:
        state["weight_zero_point"] = torch.randint(-5, 5, scale_shape, dtype=torch.int8)
    packed = compressor.compress(state, scheme)
    for k, v in packed.items():
        store[f"{kind}.{k}"] = v.contiguous()
    store[f"want.{kind}"] = compressor.decompress(packed, scheme)["weight"]


def bits_of(values, bits, dim):
    """Codes as a stream of bits in int32 words along dim, lowest first."""
    values = values.movedim(dim, -1).to(torch.int64)
    stream = ((values[..., None] >> torch.arange(bits)) & 1).flatten(-2)
    words = stream.reshape(*stream.shape[:-1], -1, 32)
    words = (words << torch.arange(32)).sum(-1)
    return (words - ((words >> 31) << 32)).to(torch.int32).movedim(-1, dim).contiguous()


def gptq(kind, bits, v2, order):
    """gptqmodel's dequantize_weight: scales[g_idx] * (codes - zeros[g_idx]) in float16."""
    groups = 4
    codes = torch.randint(0, 2**bits, (COLS, 32))
    zeros = torch.randint(1, 2**bits, (groups, 32))
    scales = (torch.rand(groups, 32) * 0.1).half()
    g_idx = torch.arange(COLS) // (COLS // groups)
    if order:
        g_idx = g_idx[torch.randperm(COLS)]
        store[f"{kind}.g_idx"] = g_idx.to(torch.int32)
    store[f"{kind}.qweight"] = bits_of(codes, bits, 0)
    store[f"{kind}.qzeros"] = bits_of(zeros if v2 else zeros - 1, bits, 1)
    store[f"{kind}.scales"] = scales
    store[f"want.{kind}"] = (scales[g_idx] * (codes - zeros[g_idx])).T.contiguous()


def awq(kind, folder):
    spec = importlib.util.spec_from_file_location("packing", pathlib.Path(folder) / "awq/utils/packing_utils.py")
    packing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(packing)
    qweight = torch.randint(-2**31, 2**31 - 1, (COLS, 4), dtype=torch.int32)
    qzeros = torch.randint(-2**31, 2**31 - 1, (2, 4), dtype=torch.int32)
    scales = (torch.rand(2, 32) * 0.1).half()
    store.update({f"{kind}.qweight": qweight, f"{kind}.qzeros": qzeros, f"{kind}.scales": scales})
    store[f"want.{kind}"] = packing.dequantize_gemm(qweight, qzeros, scales, 4, COLS // 2).T.contiguous()


fp8("fp8", torch.rand(3, 4) * 0.1, torch.bfloat16)
fp8("fp8_tensor", torch.rand(1) * 0.1, torch.bfloat16)
int4 = dict(num_bits=4, type="int", strategy="group", group_size=16)
compressed("int4", "pack-quantized", {**int4, "symmetric": True}, (ROWS, COLS // 16))
compressed("int4_zero", "pack-quantized", {**int4, "symmetric": False}, (ROWS, COLS // 16), zero=True)
compressed("int8", "int-quantized", dict(num_bits=8, type="int", strategy="channel"), (ROWS, 1))
compressed("float8", "float-quantized", dict(num_bits=8, type="float", strategy="channel"), (ROWS, 1))
global_scale = torch.tensor([37.5])
compressed("nvfp4", "nvfp4-pack-quantized", dict(num_bits=4, type="float", strategy="tensor_group", group_size=16,
                                                 scale_dtype="torch.float8_e4m3fn"), (ROWS, COLS // 16),
           weight_global_scale=global_scale)
gptq("gptq", 4, False, False)
gptq("gptq_order", 4, False, True)
gptq("gptq_v2", 8, True, False)
gptq("gptq_3", 3, True, False)
if len(sys.argv) > 1:
    awq("awq", sys.argv[1])
blocks = torch.randint(0, 256, (2, 6, 2, 16), dtype=torch.uint8)
scales = torch.randint(120, 132, (2, 6, 2), dtype=torch.uint8)
store["experts.mxfp4_blocks"], store["experts.mxfp4_scales"] = blocks, scales
want = convert_moe_packed_tensors(blocks, scales, dtype=torch.bfloat16)
store["want.mxfp4"] = want.reshape(2, 64, 6) if want.shape[1] == 64 else want.reshape(2, 6, 64).transpose(1, 2).contiguous()
torch.manual_seed(2)
# BitNet: what AutoBitLinear multiplies with, packed with a scale and from plain weights ("online")
w = torch.randn(ROWS, COLS)
scale = w.abs().mean().to(torch.bfloat16).reshape(1)
store["bitnet.weight"], store["bitnet.weight_scale"] = pack_weights((w / scale).round().clamp(-1, 1)), scale
store["want.bitnet"] = unpack_weights(store["bitnet.weight"], torch.bfloat16) * scale
store["layers.bitnet_online.weight"] = w.to(torch.bfloat16)
store["want.layers.bitnet_online"] = WeightQuant.apply(store["layers.bitnet_online.weight"].float())
OUT.parent.mkdir(exist_ok=True)
save_file({k: v.contiguous() for k, v in store.items()}, OUT)
print(len(store), "tensors,", OUT.stat().st_size, "bytes")
