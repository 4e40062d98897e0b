#!/usr/bin/env python3
"""Development only: GEMMs of the 135M model compared with torch.mm and oneDNN with packed weights (the one inside torch:
ACL kernels on aarch64, AMX on x86), GFLOP/s, ours and the peers in turn: by processor time on one core, by wall time with --threads.

  python tools/bench/cpu_gemm.py [--binary build/cpu_gemm ...] [--rows 256,512] [--types bf16,f32] [--seconds 0.3] [--rounds 3] [--threads 1]

With one thread the process pins itself to one core: torch's aarch64 kernels start a second thread even when configured to use one.
"""
import argparse
import os
import subprocess
import time

p = argparse.ArgumentParser()
p.add_argument("--binary", action="append")
p.add_argument("--rows", default="256,512")
p.add_argument("--types", default="bf16,f32")
p.add_argument("--forms", default="forward,dx,dw")
p.add_argument("--seconds", type=float, default=0.3)
p.add_argument("--rounds", type=int, default=3)
p.add_argument("--shapes", default="")
p.add_argument("--threads", type=int, default=1)
o = p.parse_args()

os.environ["OMP_NUM_THREADS"] = str(o.threads)
if o.threads == 1:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
import torch  # noqa: E402

torch.set_num_threads(o.threads)
clock = time.process_time if o.threads == 1 else time.perf_counter
SHAPES = ((576, 576), (192, 576), (1536, 576), (576, 1536), (960, 576), (3072, 576), (49152, 576))  # out, in


def best(fn, seconds):
    fn()
    least, end, runs = 1e9, time.time() + seconds, 0
    while runs < 3 or time.time() < end:
        t = clock()
        fn()
        least = min(least, clock() - t)
        runs += 1
    return least


def peers(form, T, O, I, dtype):
    x, w, y = torch.randn(T, I, dtype=dtype), torch.randn(O, I, dtype=dtype), torch.randn(T, O, dtype=dtype)
    if form == "forward":
        mm, a, b = (lambda: torch.mm(x, w.T)), x, w
    elif form == "dx":
        mm, a, b = (lambda: torch.mm(y, w)), y, w.T.contiguous()
    else:
        return [lambda: torch.mm(y.T, x)]
    packed = torch.ops.mkldnn._reorder_linear_weight(b, T)
    return [mm, lambda: torch.ops.mkldnn._linear_pointwise(a, packed, None, "none", [], "")]


def main():
    binaries = o.binary or ["build/cpu_gemm"]
    shapes = [tuple(map(int, s.split("x"))) for s in o.shapes.split(",")] if o.shapes else SHAPES
    print("torch", torch.__version__, "| rows out in type form |", *binaries, "| torch.mm | packed | ours/mm | ours/packed")
    for kind in o.types.split(","):
        dtype = torch.bfloat16 if kind == "bf16" else torch.float32
        for form in o.forms.split(","):
            for T in map(int, o.rows.split(",")):
                for O, I in shapes:
                    ours, them = [0.0] * len(binaries), [0.0, 0.0]
                    fns = peers(form, T, O, I, dtype)
                    for _ in range(o.rounds):
                        for i, b in enumerate(binaries):
                            run = subprocess.run([b, str(T), str(O), str(I), kind, form, str(o.seconds), "auto", "1", str(o.threads)],
                                                 capture_output=True, text=True)
                            ours[i] = max(ours[i], float(run.stdout or 0))
                        for i, fn in enumerate(fns):
                            them[i] = max(them[i], 2e-9 * T * O * I / best(fn, o.seconds))
                    top = max(ours)
                    ratios = [f"{top / t:.2f}" if t else "-" for t in them]
                    print(T, O, I, kind, form, *[f"{v:.0f}" for v in ours], "|", *[f"{v:.0f}" for v in them], "|", *ratios, flush=True)


main()
