"""Makes the trajectories of RMSprop, AdEMAMix, Muon and torchao's low-bit AdamW: python make_torchao.py OUT.

Needs torch, bitsandbytes and torchao. Inputs are those of make.py. Muon is written out in float64 (the
tools it comes from iterate in bfloat16); its vectors are updated by AdamW with betas 0.95."""
import math
import sys

import numpy as np
import torch
from bitsandbytes.optim.ademamix import _ReferenceAdEMAMix
from torchao.optim.adam import single_param_adam
from torchao.optim.subclass_4bit import OptimState4bit
from torchao.optim.subclass_8bit import OptimState8bit

OUT = sys.argv[1]
SHAPES = [(3, 17), (65,)]


def formula(n, k, step):
    i = np.arange(n, dtype=np.int64)
    return (((i * 7919 + step * 104729 + k * 15485863) % 2001 - 1000) / 1000.0).astype(np.float32)


def values(k, step):
    return torch.from_numpy(formula(math.prod(SHAPES[k % 2]), k, step)).reshape(SHAPES[k % 2])


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


def orthogonal(g):
    """The quintic iteration; a tall matrix is turned."""
    x = g.T if g.shape[0] > g.shape[1] else g
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if g.shape[0] > g.shape[1] else x


def muon(shape=(3, 17), lr=0.01, decay=0.1, mu=0.95, steps=10):
    w, m, rows = values(0, 0).double().reshape(shape), torch.zeros(shape, dtype=torch.float64), []
    vector = torch.nn.Parameter(values(1, 0).double())
    adam = torch.optim.AdamW([vector], lr=lr, weight_decay=decay, betas=(0.95, 0.95))
    for step in range(1, steps + 1):
        g = values(2, step).double().reshape(shape)
        m = mu * m + g
        w = w * (1 - lr * decay) - lr * 0.2 * math.sqrt(max(shape)) * orthogonal(g + mu * m)
        vector.grad = values(3, step).double()
        adam.step()
        rows.append(np.concatenate([w.numpy().ravel(), vector.detach().numpy()]))
    return np.stack(rows)


def low_bit(state_class, block, n=34 * 128, steps=5):
    p = torch.from_numpy(formula(n, 0, 0))
    m, v = state_class.zeros((n,), True, block, "cpu"), state_class.zeros((n,), False, block, "cpu")
    sizes = np.array([1, 0.125, 0.015625, 0.001953125], np.float32)[np.arange(n) % 4]
    for step in range(1, steps + 1):
        g = torch.from_numpy(formula(n, 2, step) * sizes)
        single_param_adam(p, g, torch.tensor(float(step)), m, v, None, torch.tensor(0.01), 0.9, 0.999, 0.1, 1e-8,
                          True, False)
    return p.numpy(), np.concatenate([m.codes.numpy().ravel(), v.codes.numpy().ravel()])


def save(name, x):
    x.astype("<f4").tofile(f"{OUT}/{name}.f32")
    print(name, x.shape, x.ravel()[:3])


save("rmsprop", run(lambda p: torch.optim.RMSprop(p, lr=0.01, weight_decay=0.1)))
save("ademamix", run(lambda p: _ReferenceAdEMAMix(p, lr=0.01, weight_decay=0.1)))
save("muon", muon())
save("muon-tall", muon(shape=(17, 3)))
for name, cls, block in [("adamw-4bit", OptimState4bit, 128), ("adamw-torch-8bit", OptimState8bit, 256)]:
    p, codes = low_bit(cls, block)
    save(name, p)
    codes.tofile(f"{OUT}/{name}.u8")
