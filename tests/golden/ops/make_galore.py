"""Makes parameters after GaLore's updates: python make_galore.py OUT.

Needs torch, transformers, bitsandbytes and galore-torch 1.0, whose singular vectors get our signs (galore_signs.py).
Computed in float64: a tall matrix, a wide one, and a vector."""
import math
import os
import sys

import numpy as np
import torch
from galore_torch import GaLoreAdamW

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../tools/judge"))
import galore_signs

OUT, STEPS = sys.argv[1], 5
SHAPES = [(24, 7), (7, 24), (13,)]
CASES = [
    dict(rank=4, update_proj_gap=2, scale=0.25, proj_type="std"),
    dict(rank=3, update_proj_gap=200, scale=2.0, proj_type="reverse_std"),
    dict(rank=9, update_proj_gap=3, scale=1.0, proj_type="right"),
    dict(rank=5, update_proj_gap=1, scale=1.0, proj_type="left"),
    dict(rank=5, update_proj_gap=2, scale=1.0, proj_type="full"),
]


def values(k, step):
    i = np.arange(math.prod(SHAPES[k % 3]), dtype=np.int64)
    h = (i * 7919 + step * 104729 + k * 15485863) % 2003
    x = ((h * h % 2003 - 1001) / 1000.0).astype(np.float32)
    return torch.from_numpy(x).reshape(SHAPES[k % 3]).double()


galore_signs.replace()
rows = []
for case in CASES:
    params = [torch.nn.Parameter(values(k, 0)) for k in range(3)]
    opt = GaLoreAdamW([dict(params=params[:2], **case), dict(params=params[2:])], lr=0.01, eps=1e-3, weight_decay=0.1)
    for step in range(1, STEPS + 1):
        for k, p in enumerate(params):
            p.grad = values(k + 3, step)
        opt.step()
    rows.append(np.concatenate([p.detach().numpy().ravel() for p in params[:2]]))
    print(case, rows[-1][:3])
np.stack(rows).astype("<f4").tofile(f"{OUT}/galore.f32")
