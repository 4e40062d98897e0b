#!/usr/bin/env python3
"""Streams a generated jsonl file through reading, rendering, tokenising and packing with `afinar data check --stats`.

  bench_data.py [--afinar build/afinar] --model DIR [--mb 2048] [--keep FILE]

Prints tokens/s, the share of each stage and the peak of resident memory. Needs nothing but Python and the program;
the file and the cache live in a temporary folder that is removed."""
import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import tempfile
import time

WORDS = ("the of and to in is that it was for on are as with his they at be this from have or by one had not but what "
         "all were when we there can an your which their said if do will each about how up out them then she many some "
         "so these would other into has more her two like him see time could no make than first been its who now people "
         "my made over did down only way find use may water long little very after words called just where most know "
         "temperature, 42 don't \"quoted\" naïve Übergröße 東京 data\\n").split()


def sentence(rng, n):
    return " ".join(rng.choice(WORDS) for _ in range(n)).replace("\\n", "\n")


def write(path, size, seed=1):
    """Chat records of 1 to 4 turns until the file has `size` bytes."""
    rng = random.Random(seed)
    pool = [sentence(rng, rng.randint(5, 200)) for _ in range(4000)]
    done = records = 0
    with open(path, "w", encoding="utf-8") as f:
        while done < size:
            messages = [{"role": "system", "content": "You are a careful assistant."}] if rng.random() < 0.3 else []
            for _ in range(rng.randint(1, 3)):
                messages.append({"role": "user", "content": rng.choice(pool) + f" {records}"})
                messages.append({"role": "assistant", "content": rng.choice(pool) + f" {rng.random()}"})
            line = json.dumps({"messages": messages}, ensure_ascii=False) + "\n"
            f.write(line)
            done += len(line.encode())
            records += 1
    return done, records


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--afinar", default="build/afinar")
    ap.add_argument("--model", required=True, help="folder with tokenizer files and a chat template")
    ap.add_argument("--mb", type=int, default=2048)
    ap.add_argument("--sequence-len", type=int, default=2048)
    a = ap.parse_args()
    folder = tempfile.mkdtemp(prefix="afinar-bench-")
    try:
        data, run = os.path.join(folder, "data.jsonl"), os.path.join(folder, "run.yaml")
        size, records = write(data, a.mb << 20)
        with open(run, "w") as f:
            f.write(f"base_model: {os.path.abspath(a.model)}\nsample_packing: true\nsequence_len: {a.sequence_len}\n"
                    f"datasets:\n  - path: {data}\n")
        env = dict(os.environ, XDG_CACHE_HOME=os.path.join(folder, "cache"))
        start = time.time()
        p = subprocess.run([a.afinar, "data", "check", run, "--stats", "--json"], env=env, capture_output=True, text=True)
        wall = time.time() - start
        if p.returncode:
            raise SystemExit(p.stderr)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        r = json.loads(p.stdout)
        s = r["seconds"]
        print(f"{size / 1e6:.0f} MB, {records} records, {r['tokens']} tokens, {r['packs']} packs {100 * r['pack_fill']:.1f} % full")
        print(f"{wall:.1f} s, {r['tokens'] / wall:.0f} tokens/s, {size / wall / 1e6:.1f} MB/s, peak resident memory {peak:.0f} MB")
        work = sum(v for k, v in s.items() if k != "all")  # of all threads
        print("share of the work: " + ", ".join(f"{k} {100 * v / work:.1f} %" for k, v in s.items() if k != "all"))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
