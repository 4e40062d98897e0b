#!/usr/bin/env python3
"""Compares the cache of `afinar pull` with huggingface_hub's, and lets each read what the other wrote.

    judge_hub.py AFINAR HUB.py [KILLS] [SEED]

HUB.py: a stand-in hub that the real client works with (started as HUB.py ROOT --ready FILE --log FILE). Needs a Python
with huggingface_hub 2.x. Prints one line per comparison; exit 1 when one fails."""
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.update(HF_HUB_DISABLE_XET="1", HF_HUB_DISABLE_PROGRESS_BARS="1", HF_HUB_DISABLE_TELEMETRY="1")
AFINAR, HUB = sys.argv[1], sys.argv[2]
KILLS = int(sys.argv[3]) if len(sys.argv) > 3 else 50
SEED = int(sys.argv[4]) if len(sys.argv) > 4 else random.SystemRandom().randrange(1 << 32)
TMP = Path(tempfile.mkdtemp(prefix="judge-hub-"))
FILES = {"config.json": b'{"a": 1}', "tokenizer.json": b"{}" * 1000, "model-00001-of-00002.safetensors": random.Random(1).randbytes(24_000_000),
         "model-00002-of-00002.safetensors": random.Random(2).randbytes(3_000_000), "sub dir/\u00fc #1.txt": b"odd name", "empty.txt": b"",
         "twice.json": b'{"a": 1}', "data/train.parquet": b"PAR1"}
bad = []


def check(what, good):
    print(("ok      " if good else "FAILED  ") + what, flush=True)
    if not good:
        bad.append(what)


def tree(root):
    return {p.relative_to(root).as_posix(): os.readlink(p) if p.is_symlink() else p.read_bytes() if p.is_file() else None for p in Path(root).rglob("*")}


class Server:
    def __init__(self, *options):
        ready = TMP / "ready.json"
        ready.unlink(missing_ok=True)
        self.log = TMP / "log.jsonl"
        self.log.unlink(missing_ok=True)
        self.child = subprocess.Popen([sys.executable, HUB, str(TMP / "root"), "--ready", str(ready), "--log", str(self.log), *options], stdout=subprocess.DEVNULL)
        while not ready.exists():
            time.sleep(0.02)
        self.url = json.loads(ready.read_text())["hub"]

    def rows(self):
        return [json.loads(x) for x in self.log.read_text().splitlines()]

    def stop(self):
        self.child.terminate()
        self.child.wait()


def env(home, server, **more):
    return {**os.environ, "HF_HOME": str(TMP / home), "HF_ENDPOINT": server.url, **more}


def python(code, home, server, **more):
    got = subprocess.run([sys.executable, "-c", "import huggingface_hub as h\n" + code], env=env(home, server, **more), capture_output=True, text=True)
    return got.stdout.strip() if got.returncode == 0 else "failed: " + got.stderr[-400:]


def pull(home, server, *words, **more):
    got = subprocess.run([AFINAR, "pull", *words], env=env(home, server, **more), capture_output=True, text=True)
    return got.stdout.strip() if got.returncode == 0 else "failed: " + got.stderr[-400:]


def main():
    print(f"seed {SEED}")
    for kind, repo in (("models", "org/m"), ("datasets", "org/d"), ("models", "org/m@dev")):
        for name, data in FILES.items():
            path = TMP / "root" / kind / repo / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data + (b"dev" if "@" in repo and name == "config.json" else b""))
    for name in (".gitattributes", "config.json", "model.safetensors"):
        path = TMP / "root/models/org/u" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    s = Server()
    everything = ("--include", "*")
    real = [python("print(h.snapshot_download('org/m'))", "real", s), python("print(h.snapshot_download('org/m', revision='dev'))", "real", s),
            python("print(h.snapshot_download('org/d', repo_type='dataset'))", "real", s)]
    ours = [pull("ours", s, "org/m", *everything), pull("ours", s, "org/m@dev", *everything), pull("ours", s, "org/d", "--dataset", *everything)]
    check("the same folders: " + ours[0].rsplit("/hub/")[-1], [r.replace("/real/", "/ours/") for r in real] == ours)
    check("the same cache, byte for byte", tree(TMP / "real/hub") == tree(TMP / "ours/hub"))

    check("the client uses a usual pull offline", pull("usual", s, "org/u") == python("print(h.snapshot_download('org/u'))", "usual", s, HF_HUB_OFFLINE="1"))
    before = len(s.rows())
    check("the client uses ours offline", python("print(h.snapshot_download('org/m'))", "ours", s, HF_HUB_OFFLINE="1") == ours[0])
    check("afinar uses the client's offline", pull("real", s, "org/m@dev", "--offline", *everything) == real[1])
    check("neither asked", len(s.rows()) == before)
    python("h.snapshot_download('org/m')", "ours", s)
    pull("real", s, "org/m", *everything)
    check("neither fetched again", not [r for r in s.rows()[before:] if r["server"] == "cdn" or "resolve" in r["path"]])
    check("the client knows no corruption", "[]" in python("print([str(w) for w in h.scan_cache_dir().warnings])", "ours", s))
    s.stop()

    # kill -9 at random moments
    s = Server("--fault", "slow path=cdn rate=20000000")
    dice, moments = random.Random(SEED), []
    for _ in range(KILLS):
        child = subprocess.Popen([AFINAR, "pull", "org/m", "-q", *everything], env=env("killed", s), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait = dice.uniform(0, 0.9)
        time.sleep(wait)
        child.send_signal(signal.SIGKILL)
        child.wait()
        have = sum(p.stat().st_blocks * 512 for p in (TMP / "killed").rglob("*.afinar.incomplete"))
        moments.append((round(wait, 2), have // 1_000_000))
        if (TMP / "killed/hub/models--org--m/refs/main").exists():  # it was done: from the beginning
            shutil.rmtree(TMP / "killed")
    print("        killed after seconds, MB there:", moments[:12], "...")
    pull("killed", s, "org/m", *everything)
    pull("calm", s, "org/m", *everything)
    shutil.rmtree(TMP / "real")
    s.stop()
    s = Server()
    python("h.snapshot_download('org/m')", "real", s)
    check(f"after {KILLS} kills the cache is the client's, byte for byte", tree(TMP / "killed/hub") == tree(TMP / "real/hub"))

    # the cache-wide store of 2.x: blobs/HH/HASH, two links to follow
    cache, name = TMP / "real/hub", hashlib.sha256(FILES["model-00002-of-00002.safetensors"]).hexdigest()
    blob, xet = cache / "models--org--m/blobs" / name, "ab" + "0" * 62
    store = cache / "blobs/ab" / xet
    store.parent.mkdir(parents=True)
    (cache / "blobs/.huggingface-shared-blobs").write_text("1\n")
    shutil.move(blob, store)
    (cache / "blobs/ab" / (xet + ".refs")).write_text(f"models--org--m/blobs/{name}\n")
    os.symlink(f"../../blobs/ab/{xet}", blob)
    before = len(s.rows())
    out = Path(pull("real", s, "org/m", *everything))
    check("shared blobs are read", (out / "model-00002-of-00002.safetensors").read_bytes() == FILES["model-00002-of-00002.safetensors"] and
          not [r for r in s.rows()[before:] if r["server"] == "cdn"])
    check("and stay links", blob.is_symlink())
    s.stop()

    # uploads: what afinar pushed, the client downloads
    s = Server("--part-size", "5000000")
    got = subprocess.run([AFINAR, "push", str(TMP / "root/models/org/m"), "me/new", "-m", "one"], env=env("ours", s, HF_TOKEN="hf_owner"), capture_output=True, text=True)
    check("push: " + (got.stdout or got.stderr).strip(), got.returncode == 0)
    there = Path(python("print(h.snapshot_download('me/new'))", "up", s))
    same = all((there / n).read_bytes() == d for n, d in FILES.items())
    check("the client reads it back", same and (there / "README.md").is_file())
    puts = [r for r in s.rows() if r["method"] == "PUT"]
    check(f"in {len(puts)} parts, none with a token", len(puts) == 7 and not any(r["auth"] for r in puts))
    s.stop()
    shutil.rmtree(TMP)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
