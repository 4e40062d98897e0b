"""Makes parameters after APOLLO's updates: python make_apollo.py OUT.

Needs torch, transformers and apollo-torch 1.0.3, whose random projections are replaced by ours (apollo_draws.py).
Computed in float64: a tall matrix, a wide one, and a vector."""
import math
import os
import sys

import numpy as np
import torch
from apollo_torch import APOLLOAdamW

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../tools/judge"))
import apollo_draws

OUT, SEED, STEPS = sys.argv[1], 42, 5
SHAPES = [(24, 7), (7, 24), (13,)]
SIZE = [1, 3, 0.5, 8, 1]  # of the gradients of each step: some updates grow too fast
CASES = [
    dict(rank=4, update_proj_gap=2, scale=1.0, scale_type="channel"),
    dict(rank=1, update_proj_gap=200, scale=128.0, scale_type="tensor"),
    dict(rank=9, update_proj_gap=3, scale=32.0, scale_type="channel", front=True),
]


def values(k, step):
    i = np.arange(math.prod(SHAPES[k % 3]), dtype=np.int64)
    x = (((i * 7919 + step * 104729 + k * 15485863) % 2001 - 1000) / 1000.0).astype(np.float32)
    return torch.from_numpy(x).reshape(SHAPES[k % 3]).double()


apollo_draws.replace(SEED, first=0)
rows = []
for case in CASES:
    case = dict(case, proj="random", proj_type="std")
    front = case.pop("front", False)
    params = [torch.nn.Parameter(values(k, 0)) for k in range(3)]
    opt = APOLLOAdamW([dict(params=params[:2], **case), dict(params=params[2:])], lr=0.01, eps=1e-3, weight_decay=0.1,
                      scale_front=front)
    for step in range(1, STEPS + 1):
        for k, p in enumerate(params):
            p.grad = values(k + 3, step) * SIZE[step - 1]
        opt.step()
    rows.append(np.concatenate([p.detach().numpy().ravel() for p in params[:2]]))
    print(case, rows[-1][:3], [opt.state[p]["scaled_grad"].item() for p in params[:2]])
np.stack(rows).astype("<f4").tofile(f"{OUT}/apollo.f32")
