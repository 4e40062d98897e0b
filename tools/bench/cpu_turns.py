#!/usr/bin/env python3
"""Development only: a CPU step of afinar and of PyTorch + PEFT in turns of a few seconds, for machines whose speed changes while one looks at it.

  python tools/bench/cpu_turns.py PEFT_STEP.py [--binary build/afinar ...] [--mode lora] [--dtype f32] [--threads 2] [--cpus 0-1 [--probe CMD]] [--turns 5] [--limit 0]

The peer starts once and is stopped (SIGSTOP) while ours runs; of each of its turns the first interval, in which it was stopped, is left out. With several
binaries each has its turn. With --probe CMD (a command that prints a speed) every turn, ours and the peer's, has those of --cpus that CMD finds the
fastest just before it, the nearest to a machine of one's own where others work too; --cpus must then name one processor of each core, or two of them may
be halves of the same. One JSON line: medians (of all steps; of ours, of the turns'), the best, both turn by turn, processor time where the peer tells it.
"""
import argparse
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import time

p = argparse.ArgumentParser()
p.add_argument("peft_step")
p.add_argument("--binary", action="append")
p.add_argument("--mode", default="lora")
p.add_argument("--dtype", default="f32")
p.add_argument("--batch", type=int, default=2)
p.add_argument("--seq", type=int, default=512)
p.add_argument("--shape", default="135m")
p.add_argument("--threads", type=int, default=2)
p.add_argument("--cpus", default="")
p.add_argument("--probe", default="")
p.add_argument("--turns", type=int, default=5)
p.add_argument("--limit", type=float, default=0, help="seconds after which no turn begins, the peer's start-up included (0: none)")
p.add_argument("--steps", type=int, default=3, help="of the peer in a turn")
p.add_argument("--seconds", type=float, default=1, help="of ours, at least three steps")
o = p.parse_args()
if o.probe and not o.cpus:
    p.error("--probe needs --cpus, the processors to choose from")

# stamps the end of every optimizer step, then runs the peer's script as it is
STAMP = """
import runpy, sys, time, torch
plain = torch.optim.AdamW.step
def step(self, *a, **k):
    r = plain(self, *a, **k)
    print("step", time.perf_counter(), time.process_time(), file=sys.stderr, flush=True)
    return r
torch.optim.AdamW.step = step
sys.argv = sys.argv[1:]
sys.path.insert(0, sys.argv[0].rpartition("/")[0] or ".")
runpy.run_path(sys.argv[0], run_name="__main__")
"""
SAME = ["--shape", o.shape, "--dtype", o.dtype, "--batch", str(o.batch), "--seq", str(o.seq), "--threads", str(o.threads), "--device", "cpu"]
probed = []  # of each turn: its processors, and the speed of the slower one
PIN = ["taskset", "-c", o.cpus] if o.cpus else []


def numbers(cpus):
    spans = [[int(v) for v in part.split("-")] for part in cpus.split(",")]
    return [k for span in spans for k in range(span[0], span[-1] + 1)]


def idlest():
    """The processors for the next turn; None: as they are."""
    if not o.probe:
        return None
    def speed(cpu):
        out = subprocess.run(shlex.split(o.probe), stdout=subprocess.PIPE, text=True, check=True, preexec_fn=lambda: os.sched_setaffinity(0, {cpu})).stdout
        return float(out.split()[0])
    found = sorted(((speed(cpu), cpu) for cpu in numbers(o.cpus)), reverse=True)[:o.threads]
    probed.append([sorted(cpu for _, cpu in found), round(found[-1][0])])
    return {cpu for _, cpu in found}


def move(pid, cpus):
    for task in os.listdir(f"/proc/{pid}/task") if cpus else []:
        os.sched_setaffinity(int(task), cpus)


def stamp(peer):
    for line in peer.stderr:
        if line.startswith("step"):
            return [float(v) for v in line.split()[1:]]
    raise SystemExit("the peer ended")


def peer_turn(peer):
    """Seconds and processor seconds of some whole steps."""
    move(peer.pid, idlest())
    begin = time.perf_counter()
    peer.send_signal(signal.SIGCONT)
    at = [stamp(peer)]
    while at[0][0] < begin:  # it ended a step just before it was stopped
        at = [stamp(peer)]
    at += [stamp(peer) for _ in range(o.steps)]
    peer.send_signal(signal.SIGSTOP)
    return [(b[0] - a[0], b[1] - a[1]) for a, b in zip(at, at[1:])]


def our_turn(binary):
    cpus = idlest()
    pin = ["taskset", "-c", ",".join(map(str, cpus))] if cpus else PIN
    run = subprocess.run([*pin, binary, "bench", *SAME, "--method", o.mode, "--seconds", str(o.seconds), "--json"], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(run.stdout)


def peak_gb(pid):
    with open(f"/proc/{pid}/status") as f:
        return int(next(line for line in f if line.startswith("VmHWM")).split()[1]) * 1024e-9


def main():
    binaries, begin = o.binary or ["build/afinar"], time.time()
    env = dict(os.environ, OMP_NUM_THREADS=str(o.threads), CUDA_VISIBLE_DEVICES="")
    peer = subprocess.Popen([*PIN, sys.executable, "-c", STAMP, o.peft_step, *SAME, "--mode", o.mode, "--warm", "2", "--steps", "100000"],
                            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=env)
    ours, theirs = [[] for _ in binaries], []
    try:
        for _ in range(3):
            stamp(peer)
        peer.send_signal(signal.SIGSTOP)
        while len(theirs) < o.turns and not (theirs and o.limit and time.time() - begin > o.limit):
            for turn, b in zip(ours, binaries):
                turn.append(our_turn(b))
            theirs.append(peer_turn(peer))
        gb = peak_gb(peer.pid)
    finally:  # or it would stay, stopped, with all its memory
        peer.kill()
    steps = [1e3 * s for turn in theirs for s, _ in turn]
    line = {"mode": o.mode, "dtype": o.dtype, "batch": o.batch, "seq": o.seq, "threads": o.threads, "peer_ms": statistics.median(steps), "peer_best": min(steps),
            "peer_cpu_ms": 1e3 * statistics.mean(c for turn in theirs for _, c in turn), "peer_gb": gb}
    for b, turns in zip(binaries, ours):
        ms = statistics.median(t["ms_per_step"] for t in turns)
        line[b] = {"ms": ms, "best": min(t["ms_best"] for t in turns), "cpu_ms": statistics.mean(t["cpu_ms"] for t in turns), "gb": turns[0]["peak_gb"],
                   "first_s": max(t["startup_s"] + t["first_step_s"] for t in turns), "ratio": line["peer_ms"] / ms, "of_best": line["peer_best"] / min(t["ms_best"] for t in turns),
                   "turns": [[round(t["ms_per_step"]), round(1e3 * statistics.median(s for s, _ in q))] for t, q in zip(turns, theirs)]}
    if probed:
        line["probed"] = probed
    print(json.dumps(line), flush=True)


main()
