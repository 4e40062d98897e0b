"""Makes fake-float.f32, values rounded to small float types and back by torchao: python make_fake_float.py OUT.

x is f32 [4][64], by the formula of test_values_general.c. The file has nvfp4, mxfp4 and fp8 of it, then fp8 of x in bf16, whose
scales are bf16, too."""
import sys

import numpy as np
import torch
from torchao.prototype.mx_formats import nvfp4_tensor as nv
from torchao.prototype.mx_formats.config import ScaleCalculationMode
from torchao.prototype.mx_formats.mx_tensor import MXTensor
from torchao.quantization.qat.fake_quantize_config import Float8FakeQuantizeConfig
from torchao.quantization.qat.fake_quantizer import Float8FakeQuantizer

TIES = [6, -5, 3.5, -2.5, 1.75, -1.25, 0.75, -0.25]  # halfway between two e2m1


def values():
    i = np.arange(256, dtype=np.int64)
    x = ((i * 7919 + 104729) % 2001 - 1000) / 1000.0 * 2.0 ** -(i // 16 % 5)
    x[:8] = TIES
    return torch.from_numpy(x.astype(np.float32)).reshape(4, 64)


def nvfp4(x):
    return nv.NVFP4Tensor.to_nvfp4(x, per_tensor_scale=nv.per_tensor_amax_to_scale(x.abs().max())).dequantize()


def mxfp4(x):
    return MXTensor.to_mx(x, torch.float4_e2m1fn_x2, 32, scaling_mode=ScaleCalculationMode.RCEIL).dequantize()


def main():
    fp8, x = Float8FakeQuantizer(Float8FakeQuantizeConfig()), values()
    rounded = [nvfp4(x), mxfp4(x), fp8(x), fp8(x.bfloat16()).float()]
    np.concatenate([y.numpy().ravel() for y in rounded]).astype("<f4").tofile(sys.argv[1] + "/fake-float.f32")


if __name__ == "__main__":
    main()
