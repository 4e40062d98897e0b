#!/usr/bin/env python3
"""Writes oft_ops.safetensors: rotations of orthogonal fine-tuning by PEFT's module in float64, their
results and gradients. Development only: the tests read the file. Names as in make_lm_ops.py:
CASE.in.NAME, CASE.out, CASE.grad.NAME; the loss of a case is sum(out * mix)."""
import os
import torch
from peft.tuners.oft.layer import OFTRotationModule
from safetensors.torch import save_file

torch.set_default_dtype(torch.float64)
ROWS = 7
# name, blocks, inputs of a block, terms (0: exact), one rotation for all blocks
CASES = (
    ("oft", 3, 8, 5, False),
    ("oft_exact", 2, 6, 0, False),
    ("oft_share", 4, 5, 5, True),
    ("oft_2", 2, 4, 2, False),
    ("oft_3", 2, 4, 3, False),
    ("oft_7", 2, 4, 7, False),
)
store = {}
for seed, (name, blocks, n, terms, share) in enumerate(CASES):
    gen = torch.Generator().manual_seed(seed)
    rand = lambda *shape: torch.rand(*shape, generator=gen) * 1.2 - 0.6
    module = OFTRotationModule(1 if share else blocks, n * (n - 1) // 2, n, blocks * n, block_share=share,
                               use_cayley_neumann=terms > 0, num_cayley_neumann_terms=terms)
    q, x = rand(*module.weight.shape), rand(ROWS, blocks * n).requires_grad_()
    module.weight.data = q.clone()
    out = module(x)
    mix = rand(*out.shape)
    (out * mix).sum().backward()
    for key, value in {"in.q": q, "in.x": x, "in.mix": mix, "out": out, "grad.q": module.weight.grad,
                       "grad.x": x.grad}.items():
        store[f"{name}.{key}"] = value.detach().clone().contiguous()
save_file(store, os.path.join(os.path.dirname(__file__), "oft_ops.safetensors"))
