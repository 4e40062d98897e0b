#!/usr/bin/env python3
"""What FP8 does to the loss of a run.

    fp8_quality.py AFINAR RUN.yaml [--steps 200] [--seeds 1,2,3] [--out DIR] [key=value ...]

Trains the run file without FP8 with each of the seeds, and with FP8 with the first one, all computing in bf16. Two
things must hold: the mean training loss of every tenth of the run is within 0.5 % of that of the same seed without
FP8, and the last evaluation loss lies within the spread of the seeds, or within 0.5 % of the same seed's where the
seeds differ by less than that. The run file needs evaluation data (val_set_size or test_datasets). Exit status 1:
something does not hold.
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
    fp8 = train(args, "fp8", seeds[0], True)
    off = [a / b - 1 for a, b in zip(tenths(fp8["loss"]), tenths(plain[0]["loss"]))]
    evals = [r["eval"] for r in plain]
    gate = fp8["gate"]
    print(f"products: {gate['fp8_used']} of {gate['fp8_groups']} groups, error against f64 up to "
          f"{100 * gate['fp8_forward_error']:.2f} % forward, {100 * gate['fp8_backward_error']:.2f} % backward; "
          f"without FP8: {', '.join(gate['fp8_over_limit']) or 'none'}")
    print("loss by tenths, bf16: " + " ".join(f"{x:.4f}" for x in tenths(plain[0]["loss"])))
    print("loss by tenths, fp8:  " + " ".join(f"{x:.4f}" for x in tenths(fp8["loss"])))
    print(f"largest difference {100 * max(map(abs, off)):.3f} % (limit {100 * LIMIT} %)")
    print(f"evaluation, bf16 seeds: {' '.join(f'{x:.5f}' for x in evals)}; fp8: {fp8['eval']:.5f} "
          f"({100 * (fp8['eval'] / evals[0] - 1):+.3f} % of the same seed)")
    near = abs(fp8["eval"] / evals[0] - 1) <= LIMIT and max(evals) / min(evals) - 1 < LIMIT
    good = max(map(abs, off)) <= LIMIT and (min(evals) <= fp8["eval"] <= max(evals) or near)
    print("FP8 holds" if good else "FP8 DOES NOT HOLD")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
