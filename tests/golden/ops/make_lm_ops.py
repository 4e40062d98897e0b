#!/usr/bin/env python3
"""Writes lm_ops.safetensors: inputs, results and gradients of the language-model ops, computed by
PyTorch in float64. Development only: the tests read the file. Names: CASE.in.NAME, CASE.out,
CASE.grad.NAME. The loss of a case is sum(out * mix)."""
import os
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

torch.set_default_dtype(torch.float64)
store = {}


class Case:
    def __init__(self, name, seed):
        self.name, self.params = name, {}
        self.gen = torch.Generator().manual_seed(seed)

    def rand(self, *shape):
        return torch.rand(*shape, generator=self.gen) * 3 - 1.5

    def param(self, name, *shape):
        p = self.rand(*shape).requires_grad_()
        self.params[name] = p
        self.keep(name, p)
        return p

    def keep(self, name, t):
        store[f"{self.name}.in.{name}"] = t.detach().clone().contiguous()
        return t

    def ints(self, name, values):
        return self.keep(name, torch.tensor(values, dtype=torch.int32)).long()

    def done(self, out):
        loss = out
        if out.numel() > 1:
            mix = self.keep("mix", self.rand(*out.shape))
            loss = (out * mix).sum()
        loss.sum().backward()
        store[f"{self.name}.out"] = out.detach().clone().contiguous()
        for k, p in self.params.items():
            g = p.grad if p.grad is not None else torch.zeros_like(p)
            store[f"{self.name}.grad.{k}"] = g.clone().contiguous()


def rms(x, w, eps, plus_one):
    return F.rms_norm(x, (x.shape[-1],), 1 + w if plus_one else w, eps)


def embedding():
    c = Case("embedding", 1)
    ids = c.ints("ids", [4, 0, 4, 4, 6, 1, 0, 4])
    c.done(F.embedding(ids, c.param("table", 7, 17)))


def norms():
    for name, N, D, one in (("rmsnorm", 17, 65, False), ("rmsnorm_one", 3, 17, True)):
        c = Case(name, 2)
        c.done(rms(c.param("x", N, D), c.param("w", D), 1e-5, one))
    for name, one in (("rmsnorm_add", False), ("rmsnorm_add_one", True)):
        c = Case(name, 3)
        s = c.param("x", 5, 17) + c.param("r", 5, 17)
        y = rms(s, c.param("w", 17), 1e-6, one)
        c.done(y * 2 + s)


def rotate_half(x):
    h = x.shape[-1] // 2
    return torch.cat((-x[..., h:], x[..., :h]), -1)


def rope_of(x, pos, freq, rotary, scale):
    """x [N, heads, E]"""
    angle = pos[:, None].double() * freq[None]
    emb = torch.cat((angle, angle), -1)[:, None]
    cos, sin = emb.cos() * scale, emb.sin() * scale
    r, p = x[..., :rotary], x[..., rotary:]
    return torch.cat((r * cos + rotate_half(r) * sin, p), -1)


def rope():
    H, K, E, N = 4, 2, 6, 9
    cases = (("rope", 6, 1.0, None, False, True), ("rope_partial", 4, 1.25, None, False, True),
             ("rope_heads", 6, 1.0, "head", False, True), ("rope_whole", 4, 1.0, "whole", False, True),
             ("rope_one", 6, 1.1, "head", True, True), ("rope_none", 6, 1.0, "head", False, False))
    for name, rotary, scale, norm, one, rotates in cases:
        c = Case(name, 4)
        qkv = c.param("qkv", N, (H + 2 * K) * E)
        pos = c.ints("positions", [0, 1, 2, 0, 7, 3000, 5, 1, 131071])
        q, k, v = qkv.split((H * E, K * E, K * E), -1)
        if norm == "whole":
            q = rms(q, c.param("q_norm", H * E), 1e-6, one)
            k = rms(k, c.param("k_norm", K * E), 1e-6, one)
        q, k = q.view(N, H, E), k.view(N, K, E)
        if norm == "head":
            q = rms(q, c.param("q_norm", E), 1e-6, one)
            k = rms(k, c.param("k_norm", E), 1e-6, one)
        if rotates:
            freq = c.keep("freq", (10000.0 ** (-torch.arange(0, rotary, 2) / rotary)).float()).double()
            q, k = rope_of(q, pos, freq, rotary, scale), rope_of(k, pos, freq, rotary, scale)
        c.done(torch.cat((q.reshape(N, -1), k.reshape(N, -1), v), -1))


def attend(qkv, bounds, H, K, E, causal=True, window=0, cap=0.0, scale=None):
    N = qkv.shape[0]
    out = torch.zeros(N, H * E)
    q, k, v = qkv.split((H * E, K * E, K * E), -1)
    q, k, v = q.view(N, H, E), k.view(N, K, E), v.view(N, K, E)
    parts = []
    at = 0
    for a, b in zip(bounds[:-1], bounds[1:]):
        T = b - a
        if T == 0:
            continue
        i = torch.arange(T)
        mask = torch.ones(T, T, dtype=torch.bool)
        if causal:
            mask &= i[:, None] >= i[None]
        if window:
            mask &= i[:, None] - i[None] < window
        Q, Kk, V = (t[a:b].transpose(0, 1) for t in (q, k, v))
        Kk, V = Kk.repeat_interleave(H // K, 0), V.repeat_interleave(H // K, 0)
        if cap:
            s = Q @ Kk.transpose(1, 2) * (scale or E ** -0.5)
            s = cap * torch.tanh(s / cap)
            o = torch.softmax(s.masked_fill(~mask, float("-inf")), -1) @ V
        else:
            o = F.scaled_dot_product_attention(Q[None], Kk[None], V[None], mask, scale=scale)[0]
        parts.append((a, b, o.transpose(0, 1).reshape(T, H * E)))
    rows = []
    for a, b, o in parts:
        rows.append(torch.zeros(a - at, H * E))
        rows.append(o)
        at = b
    rows.append(torch.zeros(N - at, H * E))
    return torch.cat(rows, 0)


def attention():
    bounds = [0, 0, 1, 4, 4, 21]
    cases = (("attention", 4, 2, {}), ("attention_mha", 3, 3, dict(scale=0.4)),
             ("attention_mqa", 4, 1, dict(window=4)), ("attention_cap", 4, 2, dict(cap=1.5, window=7)),
             ("attention_full", 2, 1, dict(causal=False)), ("attention_full_cap", 2, 2, dict(causal=False, cap=2.0)))
    for name, H, K, o in cases:
        c = Case(name, 5)
        qkv = c.param("qkv", 23, (H + 2 * K) * 5)
        c.ints("bounds", bounds)
        c.done(attend(qkv, bounds, H, K, 5, **o))


def glu():
    acts = {"silu": F.silu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "gelu": F.gelu, "relu": F.relu}
    for k, act in acts.items():
        c = Case("glu_" + k, 6)
        gate, up = c.param("x", 3, 34).chunk(2, -1)
        c.done(act(gate) * up)


def adapter(c, I, parts):
    """parts: (out_from, out_rows, rank, scale) -> (a, b, O x I delta function)"""
    a = c.param("a", sum(p[2] for p in parts), I)
    b = c.param("b", sum(p[1] * p[2] for p in parts))

    def delta(O):
        w, rank, at = torch.zeros(O, I), 0, 0
        for start, rows, r, scale in parts:
            B = b[at:at + rows * r].view(rows, r)
            w = w + F.pad(scale * B @ a[rank:rank + r], (0, 0, start, O - start - rows))
            rank, at = rank + r, at + rows * r
        return w
    return delta


def linear():
    for name, N, I, rows, biases, parts in (
            ("linear", 5, 17, (3,), (), ()),
            ("linear_bias", 65, 3, (17, 1), (0, 1), ()),
            ("linear_lora", 33, 17, (5, 2, 4), (0, 2), ((0, 5, 3, 0.5), (7, 4, 2, 2.0))),
            ("linear_only", 3, 5, (), (), ((2, 4, 2, 0.25),))):
        c = Case(name, 7)
        x = c.param("x", N, I)
        w = [c.param(f"w{i}", r, I) for i, r in enumerate(rows)]
        bias = [c.param(f"bias{i}", r) if i in biases else torch.zeros(r) for i, r in enumerate(rows)]
        O = sum(rows) or 7
        W = torch.cat(w) if w else torch.zeros(O, I)
        if parts:
            W = W + adapter(c, I, parts)(O)
        c.done(F.linear(x, W, torch.cat(bias) if bias else None))
    c = Case("dora_norm", 8)
    W = torch.cat([c.keep("w0", c.rand(5, 9)), c.keep("w1", c.rand(3, 9))])
    delta = adapter(c, 9, ((0, 5, 2, 0.5), (6, 2, 3, 1.5)))
    with torch.no_grad():
        store["dora_norm.out"] = (W + delta(8)).norm(dim=1)


def head():
    for name, N, D, V, cap, factor, smooth, scale in (
            ("head", 37, 5, 17, 0, 1, 0, None), ("head_full", 35, 3, 65, 2.5, 0.75, 0.125, 0.0625)):
        c = Case(name, 9)
        h, w = c.param("h", N, D), c.param("w", V, D)
        labels = [(i * 7) % V if i % 4 else -100 for i in range(N)]
        lab = c.ints("labels", labels)
        z = F.linear(h, w) * factor
        if cap:
            z = cap * torch.tanh(z / cap)
        loss = F.cross_entropy(z, lab, ignore_index=-100, reduction="sum", label_smoothing=smooth)
        if scale:
            c.keep("scale", torch.tensor([scale], dtype=torch.float32))
            loss = loss * scale
        c.done(loss.view(1))
        row = F.cross_entropy(z, lab, ignore_index=-100, reduction="none", label_smoothing=smooth)
        hit = (z.argmax(-1) == lab).double()
        store[name + ".rows"] = torch.stack((row, hit), -1).detach().float()


def moe():
    for name, norm, act in (("moe", False, F.silu), ("moe_norm", True, F.gelu), ("moe_frozen", True, F.silu)):
        c = Case(name, 10)
        N, D, X, Ff, k = 17, 5, 6, 3, 2
        x, logits = c.param("x", N, D), c.param("logits", N, X)
        make = c.param if name != "moe_frozen" else (lambda n, *s: c.keep(n, c.rand(*s)))
        gu, down = make("gate_up", X, 2 * Ff, D), make("down", X, D, Ff)
        probs = torch.softmax(logits, -1)
        w, idx = probs.topk(k, -1)
        if norm:
            w = w / w.sum(-1, keepdim=True)
        out = torch.zeros(N, D)
        for j in range(k):
            g, u = torch.einsum("nfd,nd->nf", gu[idx[:, j]], x).chunk(2, -1)
            out = out + w[:, j:j + 1] * torch.einsum("ndf,nf->nd", down[idx[:, j]], act(g) * u)
        c.done(out)


def block():
    """Two decoder layers (GQA, q/k norm, LoRA on qkv, SwiGLU), head and loss."""
    c = Case("block", 11)
    V, D, H, K, E, Ff, N = 11, 8, 4, 2, 4, 12, 10
    ids = c.ints("ids", [1, 5, 2, 9, 10, 0, 3, 3, 7, 1])
    labels = c.ints("labels", [5, 2, -100, 10, 0, 4, 3, 7, 1, -100])
    pos = c.ints("positions", [0, 1, 2, 3, 4, 0, 1, 2, 3, 0])
    bounds = [0, 5, 9, 10]
    c.ints("bounds", bounds)
    freq = c.keep("freq", (10000.0 ** (-torch.arange(0, E, 2) / E)).float()).double()
    table = c.param("table", V, D)
    x = F.embedding(ids, table)
    for l in range(2):
        h = rms(x, c.param(f"n1{l}", D), 1e-5, False)
        W = torch.cat([c.param(f"wq{l}", H * E, D), c.param(f"wk{l}", K * E, D), c.param(f"wv{l}", K * E, D)])
        a, b = c.param(f"a{l}", 4, D), c.param(f"b{l}", H * E * 2 + K * E * 2)
        delta = torch.cat([0.5 * b[:H * E * 2].view(-1, 2) @ a[:2], torch.zeros(K * E, D),
                           0.5 * b[H * E * 2:].view(-1, 2) @ a[2:]])
        qkv = F.linear(h, W + delta)
        q, k, v = qkv.split((H * E, K * E, K * E), -1)
        qn, kn = c.param(f"qn{l}", E), c.param(f"kn{l}", E)
        q = rope_of(rms(q.view(N, H, E), qn, 1e-5, False), pos, freq, E, 1.0)
        k = rope_of(rms(k.view(N, K, E), kn, 1e-5, False), pos, freq, E, 1.0)
        o = attend(torch.cat((q.reshape(N, -1), k.reshape(N, -1), v), -1), bounds, H, K, E)
        x = x + F.linear(o, c.param(f"wo{l}", D, H * E))
        h = rms(x, c.param(f"n2{l}", D), 1e-5, False)
        gate, up = F.linear(h, torch.cat([c.param(f"wg{l}", Ff, D), c.param(f"wu{l}", Ff, D)])).chunk(2, -1)
        x = x + F.linear(F.silu(gate) * up, c.param(f"wd{l}", D, Ff))
    z = F.linear(rms(x, c.param("nf", D), 1e-5, False), table)
    c.keep("scale", torch.tensor([0.125], dtype=torch.float32))
    c.done((F.cross_entropy(z, labels, ignore_index=-100, reduction="sum") * 0.125).view(1))


for f in (embedding, norms, rope, attention, glu, linear, head, moe, block):
    f()
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lm_ops.safetensors")
save_file(store, path)
print(path, os.path.getsize(path), "bytes,", len(store), "tensors")
