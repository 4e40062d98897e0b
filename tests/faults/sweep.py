#!/usr/bin/env python3
"""Lets the n-th allocation, thread or file call of every command fail, and checks what comes of it.

A run is clean when it ends with status 1 and one sentence (after a failed allocation: one that says memory) and leaves
no file behind, or with status 0 and exactly the output of an undisturbed run. Never a signal, a hang or a part of a file.

  sweep.py alloc            all n, each once and with all later ones failing as well ("sticky")
  sweep.py alloc --sample 20 --seed 7 --case train_lora
  sweep.py io               the n-th file call: ENOSPC (once, and no space from there on), EIO, a short write, SIGKILL
  sweep.py thread

Needs AFINAR (the program), AF_INJECT (the preloaded library) and AF_GOLDEN (tests/golden)."""
import argparse
import concurrent.futures
import errno
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import cases as table

AFINAR = os.environ["AFINAR"]
INJECT = os.environ["AF_INJECT"]
TIMEOUT = 120  # seconds; a hang, not a slow machine
SAYS_MEMORY = re.compile(r"memory", re.I)
# what differs between two runs of the same bits: times, dates, process numbers, addresses of time
VOLATILE = [
    (re.compile(rb'("[a-z_]*(?:(?:metrics|memory|resident|free)_bytes|_ms|ms_best|ms_per_step|_s|_gb|flop_s|floor_share|seconds'
                rb'|runtime|per_second|_time)": *)(?:-?[0-9][0-9.e+-]*|"[^"]*"|null)'), rb"\1X"),
    (re.compile(rb"[0-9.]+ (?:s|ms|tok/s|tokens/s|GFLOP/s|GiB available|GiB)\b"), b"X"),
    (re.compile(rb"GEMM  .*"), b"X"),
]
TEMPORARY = re.compile(r"(^|/)\.[^/]*\.\d+\.\d+\.(tmp|old)(/|$)")
REMOVES = {"unlink", "rmdir", "opendir", "readdir"}  # when these fail, a temporary file may stay until the next run
SHORT, KILL = 0, -signal.SIGKILL  # instead of an errno: a short write, the end of the process
UNREAD = re.compile(r"report\.html$|tfevents")  # drawn from the other files; dates


def plain(data):
    for pattern, put in VOLATILE:
        data = pattern.sub(put, data)
    return data


def snapshot(folder):
    """relative path -> digest of what may not differ; temporary names keep their suffix only"""
    found = {}
    for at, dirs, files in os.walk(folder):
        if at == folder and "cache" in dirs:
            dirs.remove("cache")  # its readers check what is in it
        for name in dirs:
            found[os.path.relpath(os.path.join(at, name), folder) + "/"] = ""
        for name in files:
            path = os.path.join(at, name)
            rel = os.path.relpath(path, folder)
            rel = re.sub(r"tfevents\..*", "tfevents", rel)
            if UNREAD.search(rel):
                found[rel] = ""
                continue
            with open(path, "rb") as f:
                data = f.read()
            if name == "manifest.json":
                data = re.sub(rb'"(sha256|size)": *("[0-9a-f]*"|[0-9]+)', rb"", data)  # of files with times
            if name == ".afinar-files":
                data = re.sub(rb"tfevents\.\S+", b"tfevents", re.sub(rb" [0-9]+ [0-9a-f-]+ ", b" ", data))
            found[rel] = hashlib.sha256(data if name.endswith((".safetensors", ".gguf")) else plain(data)).hexdigest()
    return found


class Sweep:
    def __init__(self, case, kind, top, keep):
        self.case, self.kind, self.keep = case, kind, keep
        if kind == "thread" and "--threads" in case.args:
            case.args[-1] = "3"
        self.base = os.path.join(top, case.name)
        self.start = os.path.join(self.base, "start")
        os.makedirs(self.start)
        for name, text in table.FILES.items():
            os.makedirs(os.path.dirname(os.path.join(self.start, name)), exist_ok=True)
            with open(os.path.join(self.start, name), "w") as f:
                f.write(text)
        for args in case.first:
            self.call(self.start, args, {}, None, check=True)
        self.before = snapshot(self.start)
        self.local = threading.local()
        self.slots = iter(range(1000))

    def call(self, folder, args, extra, stdin, check=False):
        env = dict(os.environ, XDG_CACHE_HOME=os.path.join(folder, "cache"), HF_HOME=os.path.join(folder, "hf"),
                   LC_ALL="C", TZ="UTC", **extra)
        env.pop("LD_LIBRARY_PATH", None)
        with open(os.path.join(folder, stdin) if stdin else os.devnull, "rb") as source:
            r = subprocess.run([AFINAR] + args, cwd=folder, env=env, stdin=source, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, timeout=TIMEOUT)
        if check and r.returncode != 0:
            sys.exit(f"{self.case.name}: cannot prepare with {args}: {r.stderr.decode(errors='replace')}")
        return r

    def fresh(self):
        if not hasattr(self.local, "folder"):
            self.local.folder = os.path.join(self.base, f"w{next(self.slots)}")
        shutil.rmtree(self.local.folder, ignore_errors=True)
        shutil.copytree(self.start, self.local.folder, symlinks=True)
        return self.local.folder

    def faulted(self, folder, **fault):
        fault.setdefault("count", folder + ".count")
        env = {"AF_FAULT_" + k.upper(): str(v) for k, v in fault.items()}
        return self.call(folder, self.case.args, dict(env, LD_PRELOAD=INJECT, AF_FAULT_KIND=self.kind), self.case.stdin)

    def reference(self):
        """The undisturbed run, twice: what differs there is no fault of ours to find."""
        folder = self.fresh()
        self.call(folder, self.case.args, {}, self.case.stdin, check=True)
        self.after = snapshot(folder)
        folder = self.fresh()
        trace, count = os.path.join(self.base, "trace"), os.path.join(self.base, "count")
        r = self.faulted(folder, trace=trace, count=count)
        if r.returncode != 0:
            sys.exit(f"{self.case.name}: fails undisturbed: {r.stderr.decode(errors='replace')}")
        again = snapshot(folder)
        if again != self.after:
            sys.exit(f"{self.case.name}: two runs differ in " +
                     ", ".join(sorted(set(again.items()) ^ set(self.after.items()))[0]))
        self.stdout = plain(r.stdout.replace(folder.encode(), b"."))
        with open(count) as f:
            self.count, self.live = map(int, f.read().split())
        self.traced = folder
        with open(trace) as f:
            self.trace = [line.split() for line in f]
        return self.count

    def sites(self):
        """First and last call of every distinct call stack."""
        first, last = {}, {}
        for number, stack in (line[:2] for line in self.trace):
            first.setdefault(stack, int(number))
            last[stack] = int(number)
        return sorted(set(first.values()) | set(last.values()))

    def rerun(self, folder):
        """After a failed run of `train`: the same command completes it, with the same result."""
        args = self.case.args
        if not self.case.train:
            r = self.call(folder, args + (["--force"] if self.case.writes else []), {}, self.case.stdin)
            now = snapshot(folder)
            if r.returncode != 0:
                return f"a second run fails: {r.stderr.decode(errors='replace').strip()[-300:]}"
            left = {k for k, _ in set(now.items()) ^ set(self.after.items())}
            return "after a second run: " + ", ".join(sorted(left)[:4]) if left else None
        if not any(a.startswith("resume") for a in args) and os.path.isdir(os.path.join(folder, "out")):
            args = args + ["resume_from_checkpoint=auto"]
        r = self.call(folder, args, {}, self.case.stdin)
        if r.returncode != 0:
            return f"the run cannot be resumed: {r.stderr.decode(errors='replace').strip()[-300:]}"
        now = snapshot(folder)
        for rel, digest in self.after.items():
            if rel.startswith("out/") and rel.endswith(".safetensors") and now.get(rel) != digest:
                return f"after resuming, {rel} differs"
        return None

    def checkpoints(self, folder):
        """Every checkpoint that can be seen is whole."""
        out = os.path.join(folder, "out")
        for name in sorted(os.listdir(out)) if os.path.isdir(out) else []:
            if not re.fullmatch(r"checkpoint-\d+", name):
                continue
            try:
                with open(os.path.join(out, name, "manifest.json")) as f:
                    files = json.load(f)["files"]
                for inner, entry in files.items():
                    with open(os.path.join(out, name, inner), "rb") as f:
                        if hashlib.sha256(f.read()).hexdigest() != entry["sha256"]:
                            return f"{name}/{inner} is damaged"
            except (OSError, ValueError, KeyError) as e:
                return f"{name} is not whole: {e}"
        return None

    def judge(self, folder, r, sentence, call):
        text = r.stderr.decode(errors="replace")
        torn = self.checkpoints(folder) if self.case.train else None
        if torn:
            return torn
        if r.returncode == KILL and call == "killed":
            left = None if self.case.train else self.torn(snapshot(folder))
            return left or self.rerun(folder)
        if r.returncode == 0:
            if plain(r.stdout.replace(folder.encode(), b".")) != self.stdout:
                return "status 0 with another output"
            now = snapshot(folder)
            if "no samples at step" in text:  # a run of hours goes on without them, and says so
                now["out/samples.jsonl"] = self.after.get("out/samples.jsonl")
            if call in REMOVES:
                now = {k: v for k, v in now.items() if not TEMPORARY.search(k)}
            if now != self.after:
                return "status 0, but other files: " + ", ".join(
                    sorted({k for k, _ in set(now.items()) ^ set(self.after.items())})[:4])
            return None
        if r.returncode != 1:
            return f"status {r.returncode}"
        lines = [line for line in text.splitlines() if line.startswith("afinar")]
        if not lines:
            return "no sentence"
        if sentence and not SAYS_MEMORY.search(lines[-1]):
            return "the sentence does not say memory"
        with open(folder + ".count") as f:
            leaked = int(f.read().split()[1]) - self.live
        if sentence and leaked > 0:
            return f"leaks: {leaked} blocks of memory more than without the failure"
        if self.case.train:
            return self.rerun(folder)
        wrong = self.leftovers(snapshot(folder), call in REMOVES)
        return wrong or (self.rerun(folder) if call in REMOVES and self.case.writes else None)

    def torn(self, now):
        """After a kill: every file is the old or the new one (docs/decisions/0024); a second run repairs the rest."""
        for k, v in now.items():
            if not TEMPORARY.search(k) and not k.endswith(".afinar-files") and v not in (self.before.get(k), self.after.get(k)):
                return "a kill left a part: " + k
        return None

    def leftovers(self, now, temporary):
        """After a failure: every output is as it was before, or whole (one of two that a command writes)."""
        def part(files, top):
            return {k: v for k, v in files.items() if k.split("/")[0] == top and not (
                k.endswith(".afinar-files") or (temporary and TEMPORARY.search(k)))}
        for top in sorted({k.split("/")[0] for k in list(now) + list(self.before)} ):
            if part(now, top) not in (part(self.before, top), part(self.after, top)):
                return "a failure left a part: " + ", ".join(sorted(part(now, top))[:4])
        return None

    def one(self, n, sticky, error):
        folder = self.fresh()
        fault = {"at": n, "sticky": int(sticky)}
        if error is not None:
            fault["error"] = error
        try:
            r = self.faulted(folder, **fault)
            call = self.trace[n - 1][1] if self.kind == "io" and n <= self.count else ""
            wrong = self.judge(folder, r, self.kind == "alloc", "killed" if error == KILL else call)
            text = r.stderr.decode(errors="replace").strip().splitlines()
            code = r.returncode
        except subprocess.TimeoutExpired:
            wrong, text, code = f"no end within {TIMEOUT} s", [], -1
        return n, sticky, error, wrong, code, text[-1][:300] if text else ""


def chosen(sweep, opts, rng):
    """Which n: all, or the first and last few and a random sample, or one per call stack."""
    if opts.at:
        return [n for n in opts.at if n <= sweep.count]
    if opts.sites:
        return sweep.sites()
    every = list(range(1, sweep.count + 1))
    if not opts.sample or opts.sample >= sweep.count:
        return every
    edge = 1 if opts.sample < 10 else 3
    ends = set(every[:edge] + every[-edge:])
    return sorted(ends | set(rng.sample(every, max(0, opts.sample - len(ends)))))


def order_faults(s):
    """Of the recorded calls: a file is written, synced, renamed, and then its folder synced."""
    top = os.path.join(s.base, "")
    seen = [(line[1], [os.path.normpath(os.path.join(s.traced, p)) for p in line[3:]]) for line in s.trace if len(line) > 3]
    wrong = []
    for i, (call, paths) in enumerate(seen):
        if call not in ("rename", "renameat2") or not paths[1].startswith(top) or TEMPORARY.search(paths[1][len(top):]):
            continue
        source, target = paths
        inside = source + "/"
        written = {}
        for k, (c, p) in enumerate(seen[:i]):
            if c in ("create", "write", "ftruncate") and (p[0] == source or p[0].startswith(inside)):
                written[p[0]] = k
            if c in ("rename", "renameat2") and p[1].startswith(inside):
                written[source] = k  # a name in the folder; the file was judged when it was renamed
                written.pop(p[0], None)
        for path, k in written.items():
            if ("fsync", [path]) not in seen[k + 1:i]:
                wrong.append(f"{path[len(top):]} is renamed to {target[len(top):]} before it is synced")
        if ("fsync", [os.path.dirname(target)]) not in seen[i + 1:]:
            wrong.append(f"the folder of {target[len(top):]} is not synced after the rename")
    if not any(c in ("rename", "renameat2") for c, _ in seen):
        wrong.append("no rename was recorded")
    return wrong


def sweep_case(case, opts, top, rng):
    begun = time.time()
    s = Sweep(case, opts.kind, top, opts.keep)
    s.reference()
    jobs = []
    for n in chosen(s, opts, rng):
        modes = [False, True] if opts.mode == "both" else [opts.mode == "sticky"]
        if opts.kind != "io":
            some = [(n, sticky, None) for sticky in (modes if opts.kind == "alloc" else [False])]
        else:
            some = [(n, sticky, error) for error in opts.error for sticky in modes
                    if not (sticky and error != errno.ENOSPC) and not (error == KILL and not case.writes)
                    and not (error == SHORT and s.trace[n - 1][1] != "write")]
        if opts.mode == "mixed" and opts.kind == "alloc":
            some = [(n, rng.random() < 0.5, None)]
        elif opts.mode == "mixed":
            some = rng.sample(some, min(2, len(some)))
        jobs += some
    bad = failed = 0
    if opts.order and case.writes:
        wrong = order_faults(s)
        bad += len(wrong)
        for line in wrong:
            print(f"  {case.name} order: {line}", flush=True)
    with concurrent.futures.ThreadPoolExecutor(opts.jobs) as pool:
        for n, sticky, error, wrong, code, text in pool.map(lambda j: s.one(*j), jobs):
            failed += code == 1
            if wrong:
                bad += 1
                name = "" if error is None else " short" if error == SHORT else " SIGKILL" if error == KILL else " " + errno.errorcode[error]
                at = s.trace[n - 1] if opts.kind == "io" and n <= s.count else []
                call = "".join(" " + word for word in at[1:2] + at[3:])
                print(f"  {case.name} n={n}{' sticky' if sticky else ''}{name}{call}: {wrong} | {text}", flush=True)
    print(f"{case.name:20} calls {s.count:6} runs {len(jobs):6} clean {len(jobs) - bad:6} "
          f"(exit 1: {failed}, exit 0: {len(jobs) - failed - bad if not bad else '-'}) {time.time() - begun:6.1f} s", flush=True)
    if not opts.keep:
        shutil.rmtree(s.base, ignore_errors=True)
    return s.count, len(jobs), bad


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("kind", choices=["alloc", "io", "thread"])
    p.add_argument("--case", action="append", help="only these (regular expressions)")
    p.add_argument("--sample", type=int, default=0, help="random calls per command instead of all")
    p.add_argument("--sites", action="store_true", help="first and last call of every call stack (alloc)")
    p.add_argument("--at", type=int, action="append", help="these calls only")
    p.add_argument("--seed", type=int, default=None)
    p.add_argument("--mode", choices=["once", "sticky", "both", "mixed"], default="both")
    p.add_argument("--error", type=int, action="append", help="errno of io calls; 0 = a short write, -9 = SIGKILL")
    p.add_argument("--order", action="store_true", help="also check the order of write, sync and rename (io)")
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    p.add_argument("--keep", action="store_true", help="keep the folders")
    opts = p.parse_args()
    opts.error = opts.error or [errno.ENOSPC, errno.EIO, SHORT, KILL]
    seed = opts.seed if opts.seed is not None else random.randrange(1 << 31)
    print(f"seed {seed}", flush=True)
    top = tempfile.mkdtemp(prefix="afinar-faults-")
    total = [0, 0, 0]
    try:
        for case in table.cases():
            if opts.case and not any(re.fullmatch(c, case.name) for c in opts.case):
                continue
            found = sweep_case(case, opts, top, random.Random(f"{seed} {case.name}"))
            total = [a + b for a, b in zip(total, found)]
    finally:
        if not opts.keep:
            shutil.rmtree(top, ignore_errors=True)
    print(f"{opts.kind}: {total[0]} calls, {total[1]} runs, {total[1] - total[2]} clean, {total[2]} not", flush=True)
    return 1 if total[2] else 0


if __name__ == "__main__":
    sys.exit(main())
