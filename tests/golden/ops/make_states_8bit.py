"""Makes values and codes of Lion, RMSprop and AdEMAMix with 8-bit moments: python make_states_8bit.py OUT.

Needs torch and bitsandbytes, whose plain PyTorch version of the update is run. Inputs are those of make.py."""
import math
import os
import sys
from typing import Optional

import bitsandbytes
import bitsandbytes.functional as F
import numpy as np
import torch

OUT, N, STEPS = sys.argv[1], 13 * 321, 5
SIZES = np.array([1, 0.125, 0.015625, 0.001953125], np.float32)[np.arange(N) % 4]

source = open(os.path.dirname(bitsandbytes.__file__) + "/backends/triton/kernels_optim.py").read()
begin, end = source.index("# Pure torch implementation for reference"), source.index("# Mixed torch + triton")
reference = dict(torch=torch, math=math, Optional=Optional)
exec(source[begin:end].replace("@torch.compile", ""), reference)
SIGNED, UNSIGNED = F.create_dynamic_map(True), F.create_dynamic_map(False)


def formula(k, step):
    i = np.arange(N, dtype=np.int64)
    return (((i * 7919 + step * 104729 + k * 15485863) % 2001 - 1000) / 1000.0).astype(np.float32)


def run(name, beta1, beta2, first=(), second=False):
    blocks = (N + 255) // 256
    p = torch.from_numpy(formula(0, 0))
    s1, a1 = torch.zeros(*first, N, dtype=torch.uint8), torch.zeros(*first, blocks)
    s2, a2 = (torch.zeros(N, dtype=torch.uint8), torch.zeros(blocks)) if second else (None, None)
    for step in range(1, STEPS + 1):
        g = torch.from_numpy(formula(2, step) * SIZES)
        reference["optimizer_update_8bit_blockwise_pytorch"](
            p, g, s1, s2, beta1, beta2, 0.9999, 5.0, 1e-8, step, 0.01, SIGNED, UNSIGNED if second else None, a1, a2,
            0.1, 1.0, False, optimizer_name=name)
    p.numpy().astype("<f4").tofile(f"{OUT}/{name}-8bit.f32")
    codes = [s1.numpy().ravel()] + ([s2.numpy()] if second else [])
    np.concatenate(codes).tofile(f"{OUT}/{name}-8bit.u8")
    print(name, p[:3], s1.ravel()[:4])


run("lion", 0.9, 0.99)
run("rmsprop", 0.99, 0.0)
run("ademamix", 0.9, 0.999, first=(2,), second=True)
