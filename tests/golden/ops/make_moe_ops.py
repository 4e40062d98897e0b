#!/usr/bin/env python3
"""Writes moe_ops.safetensors: mixtures of experts with the routers of DeepSeek V3 (sigmoid, choice
bias, groups by their two best) and V2 (softmax, groups by their best), biases, adapters and the
clamped unit of gpt-oss, computed by PyTorch in float64. Names as in make_lm_ops.py."""
import os
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

torch.set_default_dtype(torch.float64)
store, N, D, X, FF, K, R = {}, 9, 5, 8, 3, 3, 2
gen = torch.Generator().manual_seed(12)


def case(name, sigmoid, clamp, bias):
    params = {}

    def param(key, *shape):
        p = (torch.rand(*shape, generator=gen) * 3 - 1.5).requires_grad_()
        params[key] = p
        store[f"{name}.in.{key}"] = p.detach().clone()
        return p

    def keep(key, t):
        store[f"{name}.in.{key}"] = t.clone()
        return t

    x, logits = param("x", N, D), param("logits", N, X)
    w = [(param("gate_up", X, 2 * FF, D), param("gu_a", X, R, D), param("gu_b", X, 2 * FF, R)),
         (param("down", X, D, FF), param("d_a", X, R, FF), param("d_b", X, D, R))]
    b = [param("gu_bias", X, 2 * FF), param("d_bias", X, D)] if bias else [None, None]
    if sigmoid:
        s = torch.sigmoid(logits)
        choice = s + keep("choice", torch.rand(X, generator=gen) - 0.5)
        best = choice.view(N, 4, 2).topk(2, -1)[0].sum(-1)
    else:
        s = torch.softmax(logits, -1)
        choice = s
        best = choice.view(N, 4, 2).max(-1)[0]
    mask = torch.zeros(N, 4).scatter_(1, best.topk(2, -1)[1], 1).repeat_interleave(2, 1)
    idx = choice.detach().masked_fill(mask == 0, -torch.inf).topk(K, -1)[1]
    weight = s.gather(1, idx)
    if sigmoid:
        weight = weight / (weight.sum(-1, keepdim=True) + 1e-20)
    weight = weight * 1.75

    def linear(i, e, v):
        m, a, c = w[i]
        y = torch.einsum("noi,ni->no", m[e] + 0.5 * c[e] @ a[e], v)
        return y + b[i][e] if bias else y

    out = torch.zeros(N, D)
    for j in range(K):
        gate, up = linear(0, idx[:, j], x).chunk(2, -1)
        if clamp:
            gate, up = gate.clamp(max=clamp), up.clamp(-clamp, clamp)
            h = (up + 1) * gate * torch.sigmoid(1.702 * gate)
        else:
            h = F.silu(gate) * up
        out = out + weight[:, j:j + 1] * linear(1, idx[:, j], h)
    mix = keep("mix", torch.rand(N, D, generator=gen) * 3 - 1.5)
    (out * mix).sum().backward()
    store[f"{name}.out"] = out.detach().clone()
    for k, p in params.items():
        store[f"{name}.grad.{k}"] = p.grad.clone()


case("experts_v3", True, 0.75, True)
case("experts_v2", False, 0, False)
save_file(store, os.path.join(os.path.dirname(os.path.abspath(__file__)), "moe_ops.safetensors"))
