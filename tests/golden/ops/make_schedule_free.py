"""Makes the trajectories of the schedule-free optimizers: python make_schedule_free.py OUT.

Needs torch and schedulefree. Inputs are those of make.py, the rate of step t is 0.01 times 1, 2, 3, 1, ...;
computed in float64. Rows: the values that gradients are taken at after each of ten steps, then the average."""
import math
import sys

import numpy as np
import torch
from schedulefree import AdamWScheduleFree, RAdamScheduleFree, SGDScheduleFree

OUT = sys.argv[1]
SHAPES = [(3, 17), (65,)]


def formula(n, k, step):
    i = np.arange(n, dtype=np.int64)
    return (((i * 7919 + step * 104729 + k * 15485863) % 2001 - 1000) / 1000.0).astype(np.float32)


def values(k, step):
    return torch.from_numpy(formula(math.prod(SHAPES[k % 2]), k, step)).reshape(SHAPES[k % 2]).double()


def run(name, make, steps=10):
    params = [torch.nn.Parameter(values(k, 0)) for k in range(2)]
    opt = make(params)
    rows = []

    def look():
        rows.append(np.concatenate([p.detach().numpy().ravel() for p in params]))

    opt.train()
    for step in range(1, steps + 1):
        for k, p in enumerate(params):
            p.grad = values(k + 2, step)
        for group in opt.param_groups:
            group["lr"] = group.get("factor", 1) * 0.01 * (1 + (step - 1) % 3)
        opt.step()
        look()
    opt.eval()
    look()
    np.stack(rows).astype("<f4").tofile(f"{OUT}/{name}.f32")
    print(name, rows[-2][:3], rows[-1][:3])


run("free-adamw", lambda p: AdamWScheduleFree(p, lr=0.01, weight_decay=0.1, warmup_steps=4))
run("free-adamw-count", lambda p: AdamWScheduleFree(p, lr=0.01, weight_decay=0.1, r=1.0, weight_lr_power=0.5))
run("free-radam", lambda p: RAdamScheduleFree(p, lr=0.01, weight_decay=0.1))
run("free-sgd", lambda p: SGDScheduleFree(p, lr=0.01, weight_decay=0.1, warmup_steps=4))
run("free-adamw-groups", lambda p: AdamWScheduleFree([
    {"params": [p[0]], "weight_decay": 0.1}, {"params": [p[1]], "weight_decay": 0.0, "factor": 0.5}], lr=0.01))
