#!/usr/bin/env python3
"""Lets the n-th allocation, thread or file call of every command fail, and checks what comes of it.

A run is clean when it ends with status 1 and one sentence (after a failed allocation: one that says memory) and leaves
no file behind, or with status 0 and exactly the output of an undisturbed run. Never a signal, a hang or a part of a file.

  sweep.py alloc            all n, each once and with all later ones failing as well ("sticky")
  sweep.py alloc --stacks 2 two calls of every call stack (return addresses); its others are passed over
  sweep.py alloc --sample 20 --seed 7 --case train_lora
  sweep.py io               the n-th file call: ENOSPC (once, and no space from there on), EIO, a short write, SIGKILL
  sweep.py thread

While a command writes no file and has no threads, its calls fail in copies of one process (copies.py), else in a run
for each.

Needs AFINAR (the program), AF_INJECT (the preloaded library) and AF_GOLDEN (tests/golden)."""
import argparse
import concurrent.futures
import ctypes
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
import copies

AFINAR = os.environ["AFINAR"]
INJECT = os.environ["AF_INJECT"]
TIMEOUT = 120  # seconds; a hang, not a slow machine
SAYS_MEMORY = re.compile(r"memory", re.I)
# what differs between two runs of the same bits: times, dates, process numbers, addresses of time
VOLATILE = [
    (re.compile(rb'("[a-z_]*(?:(?:metrics|memory|resident|free)_bytes|_ms|ms_best|ms_per_step|_s|_gb|flop_s|floor_share|seconds'
                rb'|runtime|per_second|_time)": *)(?:-?[0-9][0-9.e+-]*|"[^"]*"|null)'), rb"\1X"),
    (re.compile(rb'("rank_memory_bytes": *)\[[^]]*\]'), rb"\1X"),
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


def signature(folder):
    """what changes when anything in the folder is written"""
    found = {}
    for at, dirs, files in os.walk(folder):
        for name in dirs + files:
            path = os.path.join(at, name)
            s = os.lstat(path)
            found[os.path.relpath(path, folder)] = (s.st_mode,) if name in dirs else (s.st_mode, s.st_size, s.st_mtime_ns)
    return found


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


def environment(folder, extra):
    env = dict(os.environ, XDG_CACHE_HOME=os.path.join(folder, "cache"), HF_HOME=os.path.join(folder, "hf"),
               LC_ALL="C", TZ="UTC", **extra)
    env.pop("LD_LIBRARY_PATH", None)
    return env


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
        self.before, self.untouched = snapshot(self.start), signature(self.start)
        self.local = threading.local()
        self.slots = iter(range(1000))

    def call(self, folder, args, extra, stdin, check=False):
        with open(os.path.join(folder, stdin) if stdin else os.devnull, "rb") as source:
            r = subprocess.run(self.case.client + [AFINAR] + args, cwd=folder, env=environment(folder, extra), stdin=source,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=TIMEOUT)
        if check and r.returncode != 0:
            sys.exit(f"{self.case.name}: cannot prepare with {args}: {r.stderr.decode(errors='replace')}")
        return r

    def fresh(self):
        if not hasattr(self.local, "folder"):
            self.local.folder = os.path.join(self.base, f"w{next(self.slots)}")
        shutil.rmtree(self.local.folder, ignore_errors=True)
        shutil.copytree(self.start, self.local.folder, symlinks=True)
        return self.local.folder

    def faults_env(self, folder, **fault):
        fault.setdefault("count", folder + ".count")
        if self.case.client:
            fault["only"] = "AF_SERVED=1"
        return dict({"AF_FAULT_" + k.upper(): str(v) for k, v in fault.items()}, LD_PRELOAD=INJECT, AF_FAULT_KIND=self.kind)

    def faulted(self, folder, **fault):
        return self.call(folder, self.case.args, self.faults_env(folder, **fault), self.case.stdin)

    def look(self, folder):
        return self.before if signature(folder) == self.untouched else snapshot(folder)

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
        if os.path.isdir(os.path.join(folder, "out")):
            args = [a for a in args if not a.startswith("resume")] + ["resume_from_checkpoint=auto"]
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
            left = None if self.case.train else self.torn(self.look(folder))
            return left or self.rerun(folder)
        if r.returncode == 0:
            if plain(r.stdout.replace(folder.encode(), b".")) != self.stdout:
                return "status 0 with another output"
            now = dict(self.look(folder))
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
            return self.rerun(folder) if signature(folder) != self.untouched else None
        wrong = self.leftovers(self.look(folder), call in REMOVES)
        again = self.case.keeps or (self.case.writes and (call in REMOVES or self.look(folder) != self.before))
        return wrong or (self.rerun(folder) if again else None)

    def torn(self, now):
        """After a kill: every file is the old or the new one (docs/decisions/0024); a second run repairs the rest."""
        for k, v in now.items():
            if self.case.keeps and self.case.keeps.search(k):
                continue
            if not TEMPORARY.search(k) and not k.endswith(".afinar-files") and v not in (self.before.get(k), self.after.get(k)):
                return "a kill left a part: " + k
        return None

    def leftovers(self, now, temporary):
        """After a failure: every output is as it was before, or whole (one of two that a command writes)."""
        def part(files, top):
            return {k: v for k, v in files.items() if k.split("/")[0] == top and not (
                k.endswith(".afinar-files") or (temporary and TEMPORARY.search(k)) or
                (self.case.keeps and self.case.keeps.search(k)))}
        for top in sorted({k.split("/")[0] for k in list(now) + list(self.before)} ):
            if part(now, top) not in (part(self.before, top), part(self.after, top)):
                return "a failure left a part: " + ", ".join(sorted(part(now, top))[:4])
        return None

    def call_at(self, n):
        """the name of the n-th call in the undisturbed run"""
        return self.trace[n - 1][2] if n <= len(self.trace) else ""

    def verdict(self, folder, r, n, error):
        call = self.call_at(n) if self.kind == "io" else ""
        return self.judge(folder, r, self.kind == "alloc", "killed" if error == KILL else call)

    def one(self, n, sticky, error):
        folder = self.fresh()
        fault = {"at": n, "sticky": int(sticky)}
        if error is not None:
            fault["error"] = error
        try:
            r = self.faulted(folder, **fault)
            wrong = self.verdict(folder, r, n, error)
            text = r.stderr.decode(errors="replace").strip().splitlines()
            code = r.returncode
        except subprocess.TimeoutExpired:
            wrong, text, code = f"no end within {TIMEOUT} s", [], -1
        return (n, sticky, error), wrong, code, text[-1][:300] if text else ""


def faults_of(s, n, opts, rng):
    """the ways in which the n-th call fails: (n, sticky, errno)"""
    modes = [False, True] if opts.mode in ("both", "mixed") else [opts.mode == "sticky"]
    if opts.kind == "io":
        some = [(n, sticky, error) for error in opts.error for sticky in modes
                if not (sticky and error != errno.ENOSPC) and not (error == KILL and not s.case.writes)
                and not (error == SHORT and s.call_at(n) != "write")]
        return rng.sample(some, min(2, len(some))) if opts.mode == "mixed" else some
    if opts.mode == "mixed":
        return [(n, opts.kind == "alloc" and rng.random() < 0.5, None)]
    return [(n, sticky, None) for sticky in (modes if opts.kind == "alloc" else [False])]


def sampled(s, opts, rng):
    """Which n: those named, or the first and last few and a random sample."""
    if opts.at:
        return [n for n in opts.at if n <= s.count]
    every = list(range(1, s.count + 1))
    if not opts.sample or opts.sample >= s.count:
        return every
    edge = 1 if opts.sample < 10 else 3
    ends = set(every[:edge] + every[-edge:])
    return sorted(ends | set(rng.sample(every, max(0, opts.sample - len(ends)))))


def by_stack(s, limit, seen):
    """Of every stack as many calls as are missing to `limit`, spread over the run."""
    places = {}
    for line in s.trace:
        places.setdefault(line[1], []).append(int(line[0]))
    take = set()
    for stack, at in places.items():
        want = min(limit - seen.get(stack, 0), len(at))
        if want > 0:
            take |= {at[(i * (len(at) - 1)) // max(want - 1, 1)] for i in range(want)}
            seen[stack] = seen.get(stack, 0) + want
    return sorted(take)


def order_faults(s):
    """Of the recorded calls: a file is written, synced, renamed, and then its folder synced."""
    top = os.path.join(s.base, "")
    seen = [(line[2], [os.path.normpath(os.path.join(s.traced, p)) for p in line[4:]]) for line in s.trace if len(line) > 4]
    wrong = []
    for i, (call, paths) in enumerate(seen):
        if call not in ("rename", "renameat2") or not paths[1].startswith(top) or TEMPORARY.search(paths[1][len(top):]):
            continue
        source, target = paths
        if any(c in ("rename", "renameat2") and p[0] == os.path.dirname(target) for c, p in seen[i + 1:]):
            continue  # in a folder that has no name yet: judged when it gets one
        inside = source + "/"
        written = {}
        for k, (c, p) in enumerate(seen[:i]):
            if c in ("create", "write", "ftruncate") and (p[0] == source or p[0].startswith(inside)):
                written[p[0]] = k
            if c in ("rename", "renameat2") and p[1].startswith(inside):
                written[source] = k  # a name in the folder
                if p[0] in written and ("fsync", [p[0]]) not in seen[written[p[0]] + 1:k]:
                    written[p[1]] = written[p[0]]  # not synced under its first name
                written.pop(p[0], None)
        for path, k in written.items():
            if ("fsync", [path]) not in seen[k + 1:i]:
                wrong.append(f"{path[len(top):]} is renamed to {target[len(top):]} before it is synced")
        if ("fsync", [os.path.dirname(target)]) not in seen[i + 1:]:
            wrong.append(f"the folder of {target[len(top):]} is not synced after the rename")
    if not any(c in ("rename", "renameat2") for c, _ in seen):
        wrong.append("no rename was recorded")
    return wrong


def name_of(s, job):
    n, sticky, error = job
    kind = "" if error is None else " short" if error == SHORT else " SIGKILL" if error == KILL else " " + errno.errorcode[error]
    at = s.trace[n - 1] if n <= len(s.trace) else []
    return f"{s.case.name} n={n}{' sticky' if sticky else ''}{kind}" + "".join(" " + word for word in at[2:3] + at[4:])


def outcomes(s, opts, rng, seen):
    """Lets calls fail, in copies where they can be made, else in runs; yields each outcome and how it was come by."""
    chosen = by_stack(s, opts.stacks, seen) if opts.stacks and s.trace else sampled(s, opts, rng)
    jobs = {n: faults_of(s, n, opts, rng) for n in chosen}
    done = set()
    for job, found in copies.each(s, jobs) if opts.copies and s.case.copies else ():
        done.add(job)
        yield (found, "copy") if not found[1] else (s.one(*job), "run")  # a copy is no proof of a fault
    rest = [job for n in chosen for job in jobs[n] if job not in done]
    with concurrent.futures.ThreadPoolExecutor(opts.jobs) as pool:
        for found in pool.map(lambda j: s.one(*j), rest):
            yield found, "run"


def sweep_case(case, opts, top, rng, seen, total):
    begun = time.time()
    s = Sweep(case, opts.kind, top, opts.keep)
    s.reference()
    bad, ended = 0, {"copy": 0, "run": 0, 0: 0, 1: 0}
    for line in s.trace:
        total.setdefault(line[2], [0, 0, 0, 0, set()])[0] += 1
        total[line[2]][4].add(line[1])
    if opts.order and case.writes:
        for line in order_faults(s):
            bad += 1
            print(f"  {case.name} order: {line}", flush=True)
    for (job, wrong, code, text), how in outcomes(s, opts, rng, seen):
        ended[how] += 1
        ended[code] = ended.get(code, 0) + 1
        row = total.setdefault(s.call_at(job[0]) or opts.kind, [0, 0, 0, 0, set()])
        row[1 if how == "copy" else 2] += 1
        if wrong:
            bad += 1
            row[3] += 1
            print(f"  {name_of(s, job)}: {wrong} | {text}", flush=True)
    stacks = len({line[1] for line in s.trace})
    print(f"{case.name:20} calls {s.count:6} stacks {stacks:5} copies {ended['copy']:6} runs {ended['run']:6} not clean {bad:4} "
          f"(exit 1: {ended[1]}, exit 0: {ended[0]}) {time.time() - begun:6.1f} s", flush=True)
    if not opts.keep:
        shutil.rmtree(s.base, ignore_errors=True)
    return bad


def fixed_addresses():
    """Programs started from here have the same addresses, so that stacks compare between commands; where forbidden, they do not."""
    no_randomize = 0x0040000
    ctypes.CDLL(None).personality(no_randomize)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("kind", choices=["alloc", "io", "thread"])
    p.add_argument("--case", action="append", help="only these (regular expressions)")
    p.add_argument("--sample", type=int, default=0, help="random calls per command instead of all")
    p.add_argument("--stacks", type=int, default=0, help="so many calls of every call stack, over all commands")
    p.add_argument("--known", action="append", default=[], help="commands whose call stacks were swept before (with --stacks)")
    p.add_argument("--no-copies", dest="copies", action="store_false", help="a run for every call")
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
    total, bad, seen = {}, 0, {}
    fixed_addresses()
    try:
        for case in table.cases():
            if any(re.fullmatch(c, case.name) for c in opts.known):
                s = Sweep(case, opts.kind, top, opts.keep)
                s.reference()
                by_stack(s, opts.stacks, seen)
                continue
            if opts.case and not any(re.fullmatch(c, case.name) for c in opts.case):
                continue
            bad += sweep_case(case, opts, top, random.Random(f"{seed} {case.name}"), seen, total)
    finally:
        if not opts.keep:
            shutil.rmtree(top, ignore_errors=True)
    for call, (calls, copied, runs, wrong, stacks) in sorted(total.items()):
        print(f"{call:15} calls {calls:6} stacks {len(stacks):6} copies {copied:6} runs {runs:6} not clean {wrong:4}", flush=True)
    calls, copied, runs = (sum(row[i] for row in total.values()) for i in range(3))
    print(f"{opts.kind}: {calls} calls, {copied + runs} failed ({copied} in copies, {runs} in runs), "
          f"{copied + runs - bad} clean, {bad} not", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
