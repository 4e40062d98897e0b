#!/usr/bin/env python3
"""What FP8 does to the loss of a run.

    fp8_quality.py AFINAR RUN.yaml [--steps 200] [--seeds 1,2,3] [--out DIR] [key=value ...]

Trains the run file without FP8 and with FP8 with each of the seeds, all computing in bf16. Two things must hold: the
mean training loss of every tenth of a run is within 0.5 % of that of the same seed without FP8, and the mean of the last
evaluation losses with FP8 lies within the spread of those without, or within 0.5 % of their mean where the seeds differ by
less than that. The mean, because a single FP8 run whose seed is the edge of the spread lies outside of it half of the
time even if FP8 changes nothing; runs outside of the spread are named. The run file needs evaluation data (val_set_size
or test_datasets). Exit status 1: something does not hold.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

LIMIT = 0.005


def train(args, name, seed, fp8):
    out = pathlib.Path(args.out) / name
    done = out / "train_results.json"
    if not done.exists():
        subprocess.run([args.afinar, "train", args.run, "-q", f"output_dir={out}", f"max_steps={args.steps}",
                        f"seed={seed}", f"fp8={'true' if fp8 else 'false'}", "bf16=true", "logging_steps=1",
                        f"eval_steps={args.steps}", *args.keys], check=True)
    rows = [json.loads(line) for line in open(out / "metrics.jsonl")]
    return {"gate": next((r for r in rows if "fp8_used" in r), None),
            "loss": [r["loss"] for r in rows if "loss" in r],
            "eval": [r["eval_loss"] for r in rows if "eval_loss" in r][-1]}


def tenths(loss):
    n = max(len(loss) // 10, 1)
    return [sum(loss[i:i + n]) / len(loss[i:i + n]) for i in range(0, len(loss), n)]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("afinar")
    p.add_argument("run")
    p.add_argument("keys", nargs="*")
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--seeds", default="1,2,3")
    p.add_argument("--out", help="keep the runs here; those that are there are not repeated")
    args = p.parse_intermixed_args()
    temp = tempfile.TemporaryDirectory()
    args.out = args.out or temp.name
    seeds = [int(s) for s in args.seeds.split(",")]
    plain = [train(args, f"bf16-{s}", s, False) for s in seeds]
    fp8 = [train(args, f"fp8-{s}", s, True) for s in seeds]
    evals = [r["eval"] for r in plain]
    low, high = min(evals), max(evals)
    worst = 0
    for seed, a, b in zip(seeds, plain, fp8):
        gate = b["gate"]
        off = max(abs(y / x - 1) for x, y in zip(tenths(a["loss"]), tenths(b["loss"])))
        worst = max(worst, off)
        print(f"seed {seed}: FP8 in {gate['fp8_used']} of {gate['fp8_groups']} groups, error against f64 up to "
              f"{100 * gate['fp8_forward_error']:.2f} % forward, {100 * gate['fp8_backward_error']:.2f} % backward; "
              f"over the limit: {', '.join(gate['fp8_over_limit']) or 'none'}")
        print("  loss by tenths, bf16: " + " ".join(f"{x:.4f}" for x in tenths(a["loss"])))
        print("  loss by tenths, fp8:  " + " ".join(f"{x:.4f}" for x in tenths(b["loss"])))
        print(f"  largest difference {100 * off:.3f} % (limit {100 * LIMIT} %); evaluation {a['eval']:.5f}, fp8 "
              f"{b['eval']:.5f} ({100 * (b['eval'] / a['eval'] - 1):+.3f} %)"
              + ("" if low <= b["eval"] <= high else ", outside of the spread"))
    mean, plain_mean = (sum(r["eval"] for r in runs) / len(runs) for runs in (fp8, plain))
    near = abs(mean / plain_mean - 1) <= LIMIT and high / low - 1 < LIMIT
    good = worst <= LIMIT and (low <= mean <= high or near)
    print(f"evaluation, mean of fp8 {mean:.5f}, spread of bf16 {low:.5f} to {high:.5f}, mean {plain_mean:.5f}")
    print("FP8 holds" if good else "FP8 DOES NOT HOLD")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
