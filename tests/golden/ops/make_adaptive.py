"""Makes the trajectories of Adagrad, NAdam, RAdam, ADOPT and StableAdamW, and of RMSprop and AdEMAMix with other
settings: python make_adaptive.py OUT.

Needs torch, pytorch_optimizer (ADOPT), torch-optimi (StableAdamW) and bitsandbytes (AdEMAMix). Inputs are those of make.py; computed in
float64."""
import math
import sys

import numpy as np
import torch
from optimi import StableAdamW
from bitsandbytes.optim.ademamix import _ReferenceAdEMAMix
from pytorch_optimizer import ADOPT

OUT = sys.argv[1]
SHAPES = [(3, 17), (65,)]


def formula(n, k, step):
    i = np.arange(n, dtype=np.int64)
    return (((i * 7919 + step * 104729 + k * 15485863) % 2001 - 1000) / 1000.0).astype(np.float32)


def values(k, step):
    return torch.from_numpy(formula(math.prod(SHAPES[k % 2]), k, step)).reshape(SHAPES[k % 2]).double()


def run(make, steps=10):
    params = [torch.nn.Parameter(values(k, 0)) for k in range(2)]
    opt = make(params)
    rows = []
    for step in range(1, steps + 1):
        for k, p in enumerate(params):
            p.grad = values(k + 2, step)
        opt.step()
        rows.append(np.concatenate([p.detach().numpy().ravel() for p in params]))
    return np.stack(rows)


def save(name, x):
    x.astype("<f4").tofile(f"{OUT}/{name}.f32")
    print(name, x.shape, x[-1][:3])


def as_authors(opt):
    """pytorch_optimizer decays at the first step and clips at step^0.25; the authors' package (and Axolotl's
    copy of it) does not move anything at the first step and clips at (step - 1)^0.25."""
    step, opt.clip_lambda = opt.step, lambda t: (t - 1) ** 0.25

    def first_apart():
        for group in opt.param_groups:
            group["weight_decay"] = 0.1 if group.get("step", 0) else 0.0
        step()

    opt.step = first_apart
    return opt


save("adagrad", run(lambda p: torch.optim.Adagrad(p, lr=0.01, lr_decay=0.1, weight_decay=0.1)))
save("nadam", run(lambda p: torch.optim.NAdam(p, lr=0.01, weight_decay=0.1)))
save("radam", run(lambda p: torch.optim.RAdam(p, lr=0.01, weight_decay=0.1)))
save("adopt", run(lambda p: as_authors(ADOPT(p, lr=0.01, betas=(0.9, 0.999), weight_decouple=True, foreach=False))))
save("rmsprop-alpha", run(lambda p: torch.optim.RMSprop(p, lr=0.01, alpha=0.9, eps=1e-3, weight_decay=0.1)))
save("ademamix-slow", run(lambda p: _ReferenceAdEMAMix(p, lr=0.01, betas=(0.9, 0.999, 0.99), alpha=2.0, weight_decay=0.1)))
save("stable-adamw", run(lambda p: StableAdamW(p, lr=0.01, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1, foreach=False,
                                               triton=False)))
