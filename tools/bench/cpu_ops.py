#!/usr/bin/env python3
"""Development only: what torch's eager CPU ops take (processor time, one thread) for the maths of the fused kernels, compared
with the same kernels of afinar (`tools/bench/cpu_ops` of the build, see cpu_ops.c there). One JSON object per line.

  python tools/bench/cpu_ops.py [rows] [f32|bf16] [ops whose name begins so]
"""
import json
import sys
import time

import torch
import torch.nn.functional as F

rows = int(sys.argv[1]) if len(sys.argv) > 1 else 512
dtype = torch.bfloat16 if len(sys.argv) > 2 and sys.argv[2] == "bf16" else torch.float32
only = sys.argv[3] if len(sys.argv) > 3 else ""
torch.set_num_threads(1)
torch.manual_seed(0)
D, FF, H, K, E, V = 576, 1536, 9, 3, 64, 49152


def best(fn, seconds=1.0):
    fn()
    least, end = 1e9, time.time() + seconds
    while time.time() < end:
        t = time.process_time()
        fn()
        least = min(least, time.process_time() - t)
    return least * 1e3


def say(op, fn, flops=None):
    if not op.startswith(only):
        return
    ms = best(fn)
    line = {"by": "torch " + torch.__version__, "op": op, "rows": rows, "dtype": str(dtype)[6:], "cpu_ms": round(ms, 4)}
    if flops:
        line["gflops"] = round(flops / ms * 1e-6, 1)
    print(json.dumps(line), flush=True)


def leaf(*shape):
    return torch.randn(*shape, dtype=dtype).requires_grad_()


def both(fn, inputs, dy):
    def run():
        for x in inputs:
            x.grad = None
        fn().backward(dy)
    return run


x, w, dy = leaf(rows, D), leaf(D), torch.randn(rows, D, dtype=dtype)


def rmsnorm():
    h = x.float()
    return w * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-5)).to(dtype)


say("rmsnorm forward+backward", both(rmsnorm, [x, w], dy))
gu, dg = leaf(rows, 2 * FF), torch.randn(rows, FF, dtype=dtype)
say("swiglu forward+backward", both(lambda: F.silu(gu[:, :FF]) * gu[:, FF:], [gu], dg))

q, dq = leaf(1, H + K, rows, E), torch.randn(1, H + K, rows, E, dtype=dtype)
angle = torch.arange(rows)[:, None] * 10000.0 ** (-torch.arange(E // 2) / (E // 2))
cos, sin = torch.cat([angle.cos()] * 2, -1).to(dtype), torch.cat([angle.sin()] * 2, -1).to(dtype)
say("rope forward+backward",
    both(lambda: q * cos + torch.cat((-q[..., E // 2:], q[..., :E // 2]), -1) * sin, [q], dq))

qq, kk, vv = leaf(1, H, rows, E), leaf(1, K, rows, E), leaf(1, K, rows, E)
do = torch.randn(1, H, rows, E, dtype=dtype)
mask = torch.full((rows, rows), float("-inf"), dtype=dtype).triu(1)


def eager():
    k, v = kk.repeat_interleave(H // K, 1), vv.repeat_interleave(H // K, 1)
    s = torch.softmax((qq @ k.transpose(2, 3) * E ** -0.5 + mask).float(), -1).to(dtype)
    return s @ v


say("attention forward+backward", both(eager, [qq, kk, vv], do))
# small, as ours: logits of a hundred would make denormal gradients, with which x86 multiplies twenty times slower
h, head = ((torch.rand(n, D) - 0.5).to(dtype) for n in (rows, V))
h.requires_grad_()
labels = torch.randint(0, V, (rows,))


def loss():
    h.grad = None
    F.cross_entropy((h @ head.T).float(), labels).backward()


say("head and loss forward+backward", loss)
for name, n, k in (("qkv", 960, D), ("gate_up", 2 * FF, D), ("down", D, FF), ("head", V, D)):
    a, b = torch.randn(rows, k, dtype=dtype), torch.randn(n, k, dtype=dtype)
    say("mm " + name, lambda: torch.mm(a, b.T), 2.0 * rows * n * k)
