#!/usr/bin/env python3
"""Development only: the floors of a decoder's step on a GPU, and the ratio of measured steps to them.

  python tools/bench/decode_floor.py [--shape 7b] [--rows 1,8,64,256] [--steps 16:bf16.log --steps 4:nf4.log]

Two floors, measured in this run with PyTorch: `read_ms`, the bytes of the weights as they are stored (4 bits: codes and scales of
NF4 with nested scales, the head in bf16) at the bandwidth of a large copy, and `gemm_ms`, the time of all bf16 GEMMs of a step (q|k|v, o,
gate|up and down of every layer, and the head) one after another in a captured graph with that number of rows, over more weights than the
cache holds. With few rows that GEMM is itself bound by reading bf16 weights: for 4 bits `flop_ms`, the same operations at the speed of a
large GEMM, is what remains of it, and the floor is the larger of `read_ms` and `flop_ms`. With the output of decode.c (one JSON object
per line) every line gets its ratios. One JSON object per line."""
import argparse
import json

# layers, width, q rows, k and v rows, ffn, vocabulary
SHAPES = {"1.5b": (28, 1536, 1536, 256, 8960, 151936), "7b": (28, 3584, 3584, 512, 18944, 152064)}
CACHE = 400e6  # bytes of weights between two uses of the same one


def timed(torch, f, ms_at_least=60):
    """The median time of f, captured, in ms."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        f()
        f()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        f()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times, total = [], 0
    for _ in range(3):
        graph.replay()
    while total < ms_at_least or len(times) < 7:
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
        total += times[-1]
    return sorted(times)[len(times) // 2]


def copy_gb_s(torch):
    x = torch.empty(1 << 30, dtype=torch.bfloat16, device="cuda").normal_()
    y = torch.empty_like(x)
    # by a kernel: a captured copy is left to a copy engine, which is slower
    return 2 * x.numel() * 2 / timed(torch, lambda: torch.neg(x, out=y)) * 1e-6


def large_tflops(torch):
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    c = torch.empty_like(a)
    return 2 * 8192**3 / timed(torch, lambda: torch.mm(a, b, out=c), 200) * 1e-9


def gemm_ms(torch, shape, rows):
    """ms of every projection (all layers) and of the head, and of all of them in their order."""
    layers, d, q, k, ffn, vocab = shape
    parts = {"qkv": (q + 2 * k, d), "o": (d, q), "gate_up": (2 * ffn, d), "down": (d, ffn)}
    each = sum(o * i * 2 for o, i in parts.values())
    copies = min(layers, int(CACHE / each) + 1)
    new = lambda *s: torch.randn(*s, device="cuda", dtype=torch.bfloat16)
    w = {n: [new(*s) for _ in range(max(copies, int(CACHE / (s[0] * s[1] * 2)) + 1))] for n, s in parts.items()}
    x = {n: new(rows, s[1]) for n, s in parts.items()}
    y = {n: new(rows, s[0]) for n, s in parts.items()}
    head, logits = new(vocab, d), new(rows, vocab)

    def one(n, layer):
        torch.mm(x[n], w[n][layer % len(w[n])].t(), out=y[n])

    def step():
        for layer in range(layers):
            for n in parts:
                one(n, layer)
        torch.mm(x["qkv"], head.t(), out=logits)

    out = {n: timed(torch, lambda n=n: [one(n, layer) for layer in range(layers)], 20) for n in parts}
    out["head"] = timed(torch, lambda: torch.mm(x["qkv"], head.t(), out=logits), 10)
    out["all"] = timed(torch, step)
    return out


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--shape", choices=SHAPES, default="7b")
    ap.add_argument("--rows", default="1,8,64,256")
    ap.add_argument("--steps", action="append", default=[], help="BITS:FILE, the output of decode.c for weights of so many bits")
    a = ap.parse_args()
    import torch

    shape = SHAPES[a.shape]
    layers, d, q, k, ffn, vocab = shape
    weights, head = layers * d * (2 * q + 2 * k + 3 * ffn), d * vocab
    stored = {16: 2 * weights + 2 * head, 4: weights * (0.5 + 1 / 64 + 4 / 16384) + 2 * head}
    gb_s, tflops = copy_gb_s(torch), large_tflops(torch)
    print(json.dumps({"copy_gb_s": round(gb_s), "large_gemm_tflops": round(tflops)}), flush=True)
    floors = {}
    for rows in map(int, a.rows.split(",")):
        ms = gemm_ms(torch, shape, rows)
        floors[rows] = {"rows": rows, "gemm_ms": round(ms["all"], 3), "flop_ms": round(2 * (weights + head) * rows / tflops * 1e-9, 3),
                        "read_ms_16": round(stored[16] / gb_s * 1e-6, 3), "read_ms_4": round(stored[4] / gb_s * 1e-6, 3),
                        "us_per_layer": {n: round(ms[n] / layers * 1e3, 1) for n in ("qkv", "o", "gate_up", "down")},
                        "head_ms": round(ms["head"], 3)}
        print(json.dumps(floors[rows]), flush=True)
    for spec in a.steps:
        bits, path = spec.split(":", 1)
        for line in open(path):
            if not line.startswith("{"):
                continue
            s = json.loads(line)
            f = floors.get(s["batch"])
            if f:
                read = f["read_ms_" + bits]
                ms = s["step_ms"]
                print(json.dumps({"bits": int(bits), "rows": s["batch"], "step_ms": ms, "of_read_or_gemm": round(ms / max(read, f["gemm_ms"]), 2),
                                  "of_read_or_flop": round(ms / max(read, f["flop_ms"]), 2)}), flush=True)


if __name__ == "__main__":
    main()
