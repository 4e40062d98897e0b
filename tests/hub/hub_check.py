"""afinar pull and push against the hub of stand_in.py: layout of the cache, faults, kills, uploads.

    hub_check.py            all cases, five kills
    hub_check.py kills N    N kills, with the final cache compared with an undisturbed one
"""
import concurrent.futures
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
import time
from pathlib import Path

from stand_in import File, StandIn

AFINAR = os.environ["AFINAR"]
ROOT = Path(tempfile.mkdtemp(prefix="afinar-hub-"))
BIG = random.Random(1).randbytes(9_000_000)  # two ranges at once
SMALL = {"config.json": b'{"a": 1}', "tokenizer.json": b"{}" * 1000, "README.md": b"# x\n"}
MODEL = {**SMALL, "model.safetensors": BIG, "pytorch_model.bin": b"pickle", "notes/a.py": b"x", "\u00fc \"#1\".txt": b"odd", "empty.txt": b""}
NEEDED = {p: d for p, d in MODEL.items() if p not in ("pytorch_model.bin", "notes/a.py")}


class Case:
    """A hub and a cache of their own."""

    def __init__(self, name, **hub):
        self.home = ROOT / name
        self.home.mkdir()
        hub.setdefault("repos", {"models/org/m": {"main": MODEL, "dev": {**MODEL, "config.json": b'{"a": 2}'}}})
        self.hub = StandIn(hub.pop("repos"), **hub)
        self.repo = self.home / "hub/models--org--m"

    def run(self, *words, rc=0, says=(), hides="\0", cwd=None, **env):
        env = {**{k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING")) and "_proxy" not in k.lower()}, "HF_HOME": str(self.home),
               "HF_ENDPOINT": self.hub.url, "HF_HUB_DOWNLOAD_TIMEOUT": "30", **env}
        got = subprocess.run([AFINAR, *words], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=900,
                             cwd=cwd)
        self.hub.settle()  # a client may end before its last request is logged
        text = got.stdout + got.stderr
        assert got.returncode == rc, f"{words}: exit {got.returncode}, not {rc}: {text}"
        for s in [says] if isinstance(says, str) else says:
            assert s in text, f"{words}: no '{s}' in: {text}"
        assert hides not in text, f"{words}: '{hides}' in: {text}"
        for token in ("hf_owner", "hf_reader", "hf_friend", "hf_wrong"):
            assert token not in text, f"{words}: a token is printed"
        assert all(r["auth"] is None for r in self.hub.log if r["side"] == "cdn"), "a token at another host"
        return got.stdout.strip()

    def pull(self, *words, **more):
        return self.run("pull", "org/m", *words, **more)

    def same(self, folder, files=NEEDED):
        have = {p.relative_to(folder).as_posix(): p.read_bytes() for p in Path(folder).rglob("*") if p.is_file()}
        assert have == files, f"{sorted(have)} is not {sorted(files)}, or content differs"

    def nothing_wrong(self):
        """Every blob has the content its name says; no link leads nowhere."""
        for p in (self.home / "hub").glob("*/blobs/*"):
            if ".afinar." not in p.name:
                d = p.read_bytes()
                names = (hashlib.sha256(d).hexdigest(), hashlib.sha1(b"blob %d\0" % len(d) + d).hexdigest())
                assert p.name in names, f"blob {p.name} has another content"
        for p in (self.home / "hub").glob("*/snapshots/*/*"):
            assert p.exists(), f"{p} leads nowhere"


    def body_bytes(self, path):
        return sum(r["sent"] for r in self.hub.log if path in r["path"])


def tree(root):
    return {p.relative_to(root).as_posix(): os.readlink(p) if p.is_symlink() else p.read_bytes() if p.is_file() else None for p in Path(root).rglob("*")}


# --- one function per case

def layout(c):
    out = c.pull()
    sha = c.hub.repos["models/org/m"]["main"]
    assert out == str(c.repo / "snapshots" / sha)
    c.same(out)
    assert (c.repo / "refs/main").read_bytes() == sha.encode()
    assert os.readlink(Path(out) / "model.safetensors") == "../../blobs/" + hashlib.sha256(BIG).hexdigest()
    names = {p.name for p in (c.repo / "blobs").iterdir()}
    assert not any("afinar" in n for n in names) and len(names) == len(NEEDED)
    listed = (c.repo / f"trees/{sha}.json").read_text()
    want = {"format_version": 1, "files": {p: {"size": len(f.data), "blob_id": f.oid, **({"lfs_sha256": f.sha256, "lfs_size": len(f.data)} if f.large else {})}
                                           for p, f in sorted(c.hub.commits[sha].items())}}
    assert listed == json.dumps(want, indent=1), "trees/COMMIT.json"
    assert (c.home / "hub/CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55\n")
    assert len(list((c.home / "hub/.locks/models--org--m").iterdir())) == len(NEEDED)
    assert all(r["agent"].startswith("afinar/") for r in c.hub.log)
    assert len({r["range"] for r in c.hub.log if r["side"] == "cdn"}) == 2, "ranges"
    c.hub.log.clear()
    assert c.pull() == out and len(c.hub.log) == 1, "nothing is fetched twice"
    dev = c.run("pull", "org/m@dev")
    assert (Path(dev) / "config.json").read_bytes() == b'{"a": 2}' and dev != out
    assert c.run("pull", "org/m@" + Path(dev).name) == dev and not (c.repo / "refs" / Path(dev).name).exists()
    assert c.run("pull", "org/m@dev", "--offline") == dev
    c.hub.log.clear()
    c.run("inspect", "org/m@dev", rc=1)  # cached: not even a question
    assert not c.hub.log
    os.unlink(c.repo / "blobs" / hashlib.sha256(BIG).hexdigest())
    c.pull("--offline", rc=1, says="the cache has 'org/m' without 'model.safetensors', and the network is not used")
    c.same(c.pull())


def choice(c):
    out = c.pull("--include", "*.json", "--exclude", "token*")
    c.same(out, {"config.json": SMALL["config.json"]})
    c.same(c.pull("--include", "*.bin"), {"config.json": SMALL["config.json"], "pytorch_model.bin": MODEL["pytorch_model.bin"]})
    c.run("pull", "org/torch", "--include", "*.pt", rc=1, says="'optimizer.pt' is a pickle")
    assert sorted(p.name for p in Path(c.run("pull", "org/torch")).iterdir()) == ["config.json", "pytorch_model-00001-of-00001.bin", "pytorch_model.bin.index.json"]
    c.pull("--include", "*.nope", rc=1, says="org/m has no file that matches '*.nope'")
    c.run("pull", "org/pickles", rc=1, says="org/pickles has its weights as a pickle alone ('consolidated.00.pth')")
    c.run("pull", "org/gguf", rc=1, says="org/gguf has 3 GGUF files; choose one with --gguf TYPE: m-Q4_K_M.gguf, m-Q4_K_S.gguf, m-Q8_0-00001-of-00002.gguf")
    assert sorted(p.name for p in Path(c.run("pull", "org/gguf", "--gguf", "q4_k_m")).iterdir()) == ["config.json", "m-Q4_K_M.gguf"]
    c.run("pull", "org/gguf", "--gguf", "Q8_0")
    assert len(list((c.home / "hub/models--org--gguf/snapshots").glob("*/*Q8_0*"))) == 2
    c.run("pull", "org/gguf", "--gguf", "Q4_K", rc=1, says="org/gguf has no GGUF file of type Q4_K")
    shutil.rmtree(c.home / "hub/models--org--gguf")
    c.run("inspect", "org/gguf", rc=1, says="choose one with --gguf TYPE")
    c.run("pull", "org/gguf", "--gguf", "Q4_K_S")
    c.run("inspect", "org/gguf", rc=1, says="m-Q4_K_S.gguf")  # one byte, but that is the file
    c.run("pull", "org/gguf", "--gguf", "Q4_K_M")
    c.run("inspect", "org/gguf", rc=1, says="'org/gguf' has several GGUF files; name one")
    c.run("pull", "org/data", rc=1, says="there is no model 'org/data'")
    c.same(c.run("pull", "org/data", "--dataset"), {"README.md": b"# d\n", "data/train-0.parquet": b"PAR1", ".gitattributes": b"x"})
    plain = c.home / "plain"
    assert c.pull("-o", str(plain)) == str(plain)
    assert (plain / "model.safetensors").read_bytes() == BIG and not (plain / "model.safetensors").is_symlink()
    (plain / "config.json").write_bytes(b"mine")
    c.pull("-o", str(plain), rc=1, says="config.json' is there already and has another content")
    assert (plain / "config.json").read_bytes() == b"mine"


def attributes(c):
    """.gitattributes: with it, huggingface_hub takes the snapshot for a whole one; here nothing needs it."""
    files = {"config.json": b"{}", "model.safetensors": b"w"}
    both = {**files, ".gitattributes": b"* text\n", "deep/.gitattributes": b"x"}
    for name in ("models/org/g", "datasets/org/g"):
        c.hub.repos[name] = {}
        c.hub.commit(name, "main", {p: File(p, d) for p, d in both.items()})
    whole = {**files, ".gitattributes": b"* text\n"}
    out = c.run("pull", "org/g")
    c.same(out, whole)
    c.same(c.run("pull", "org/g", "--dataset"), whole)
    for words in (["--include", "*.json"], ["--exclude", "model*"]):
        c.run("pull", "org/g", *words, HF_HUB_CACHE=str(c.home / words[0]))
        assert not list((c.home / words[0]).rglob(".gitattributes")), words
    c.run("pull", "org/g", "-o", str(c.home / "plain"))
    assert not list((c.home / "plain").rglob(".gitattributes"))
    (Path(out) / ".gitattributes").unlink()
    assert c.run("pull", "org/g", "--offline") == out


def careful(c):
    """Nothing of the user's is replaced, no path leaves the folder, no secret is shown."""
    c.pull("-o", "", rc=1, says="the name of the output folder is empty")
    plain = c.home / "plain"
    plain.mkdir()
    (plain / "config.json").symlink_to("nowhere")
    c.pull("-o", str(plain), rc=1, says="config.json' is there already and has another content")
    assert os.readlink(plain / "config.json") == "nowhere"
    (plain / "config.json").unlink()
    c.hub.faults.append({"kind": "slow", "path": "/cdn/", "seconds": 0.02, "times": 1})
    with concurrent.futures.ThreadPoolExecutor() as pool:
        done = pool.submit(c.pull, "-o", str(plain), rc=1, says="model.safetensors' is there already, and is kept")
        while not list(plain.glob(".cache/huggingface/download/" + hashlib.sha256(BIG).hexdigest() + "*incomplete")):
            assert not done.done(), done.exception()
            time.sleep(0.01)
        (plain / "model.safetensors").write_bytes(b"mine")
        done.result()
    assert (plain / "model.safetensors").read_bytes() == b"mine"
    c.hub.commit("models/org/m", "main", {p: File(p, d) for p, d in {"a.json": b"same", "b.json": b"same"}.items()})
    for words in ([], ["-o", str(c.home / "twice")]):
        out = c.pull(*words, hides="waiting for another process")
        assert (Path(out) / "b.json").read_bytes() == b"same"
    for bad in (".git/config", "a/.GIT/hooks/x", "../x", "/x", "a//b", "a/./b"):
        c.hub.commit("models/org/m", "main", {bad: File(bad, b"x")})
        c.pull("-o", str(c.home / "bad"), rc=1, says=f"'{bad}' is not a path of a file")
    for bad in ("a\x1b]0;x\x07.json", "a\x7f.json"):  # no terminal obeys a name
        c.hub.commit("models/org/m", "main", {bad: File(bad, b"x")})
        c.pull(rc=1, hides="\x1b", says="'a?")
    c.run("pull", "a--b/c", rc=1, says="'a--b/c' is not the name of a repository")
    c.run("pull", "a/b..c", rc=1, says="'a/b..c' is not the name of a repository")
    c.pull(rc=1, HF_ENDPOINT="https://me:hf_wrong@127.0.0.1", says="HF_ENDPOINT has an '@'")
    c.hub.faults.append({"kind": "status", "path": "/api/models/org/m", "code": 403, "times": 1, "message": "no rights"})
    c.pull(rc=1, says=f"the hub refuses access to 'org/m' (no rights): visit {c.hub.url}/org/m, and set HF_TOKEN")
    c.hub.faults.append({"kind": "status", "path": "/api/models/org/m", "code": 400, "times": 1, "message": "bad header: Bearer hf_owner"})
    c.pull(rc=1, HF_TOKEN="hf_owner", says="answers with status 400")


def push_careful(c):
    folder = c.home / "out"
    folder.mkdir()
    (folder / "config.json").write_bytes(b"{}")
    go = lambda *words, **more: c.run("push", str(folder), "org/m", *words, HF_TOKEN="hf_owner", **more)  # noqa: E731
    before = c.hub.repos["models/org/m"]["main"]
    go("--private", rc=1, says=f"'org/m' exists and is not private: make it private at {c.hub.url}/org/m/settings")
    (folder / "run.yaml").write_bytes(b"token: hf_owner\n")
    go(rc=1, says="run.yaml' holds the token of HF_TOKEN; nothing was uploaded")
    (folder / "run.yaml").unlink()
    os.mkfifo(folder / "pipe")
    go(rc=1, says="pipe' is neither a file nor a folder")
    (folder / "pipe").unlink()
    odd = os.fsencode(folder) + b"/\xff"
    open(odd, "w").close()
    go(rc=1, says="is not UTF-8")
    os.unlink(odd)
    c.hub.faults.append({"kind": "status", "path": "/preupload/", "code": 403, "times": 1})
    go(rc=1, says="the account of HF_TOKEN may not write to 'org/m'")
    assert c.hub.repos["models/org/m"]["main"] == before
    c.hub.faults.append({"kind": "status", "path": "/api/repos/create", "code": 403, "times": 1})
    go()  # a token that may write to this repository and not create others
    assert c.hub.repos["models/org/m"]["main"] != before


def refusals(c):
    hub = c.hub.url
    c.run("pull", "org/gated", rc=1, says=(f"access to 'org/gated' is restricted: visit {hub}/org/gated", "HF_TOKEN", f"{hub}/settings/tokens"))
    c.run("pull", "org/gated", rc=1, HF_TOKEN="hf_reader", says=f"the account of HF_TOKEN does not have it: visit {hub}/org/gated")
    c.run("pull", "org/gated", HF_TOKEN="hf_friend")
    c.run("pull", "org/none", rc=1, says=(f"there is no model 'org/none' ({hub}/org/none)", "HF_TOKEN"))
    c.run("pull", "org/secret", rc=1, says="or it is private: then set HF_TOKEN")
    c.run("pull", "org/secret", rc=1, HF_TOKEN="hf_wrong", says="the hub refuses the token of HF_TOKEN")
    c.run("pull", "org/secret", rc=1, HUGGING_FACE_HUB_TOKEN="hf_wrong", says="the hub refuses the token of HUGGING_FACE_HUB_TOKEN")
    c.run("pull", "org/secret", "-o", str(c.home / "plain"), HUGGING_FACE_HUB_TOKEN="hf_owner")
    c.run("pull", "org/secret", rc=1, HUGGING_FACE_HUB_TOKEN="hf_owner", HF_TOKEN="hf_wrong", says="the token of HF_TOKEN")
    (c.home / "token").write_text("hf_owner\n")
    c.run("pull", "org/secret")
    out = c.run("pull", "org/secret", HOME=str(c.home.parent), HF_HOME=f"~/{c.home.name}", cwd=str(c.home))  # token and cache
    assert out.startswith(f"{c.home}/hub/") and not (c.home / "~").exists(), out
    (c.home / "other").write_text("hf_wrong")
    c.run("pull", "org/secret", "--token-file", str(c.home / "other"), rc=1, says="the hub refuses the token of --token-file")
    c.run("pull", "org/m@nope", rc=1, says="org/m has no revision 'nope'")
    c.run("pull", "../x/y", rc=1, says="'../x/y' is not the name of a repository")
    c.run("pull", "org/absent", rc=1, HF_HUB_OFFLINE="1", says="'org/absent' at revision 'main' is not in the cache")
    c.run("pull", "org/m", rc=1, HF_ENDPOINT="ftp://x", says="HF_ENDPOINT is 'ftp://x', which is not the address of a hub")
    out = c.run("pull", "old/name")  # renamed: kept under the name it was asked for
    c.same(out)
    assert "models--old--name" in out
    tokens = [r["auth"] for r in c.hub.log if r["auth"]]
    assert tokens and all(r["side"] == "hub" for r in c.hub.log if r["auth"])
    c.run("chat", "org/none", rc=1, says="there is no model 'org/none'")


def proxy(c):
    """libcurl's variables: all goes through the proxy, which here is the hub itself."""
    out = c.pull("--include", "*.json", HF_ENDPOINT="http://hub.invalid", http_proxy=c.hub.url, HF_TOKEN="hf_owner")
    c.same(out, {p: d for p, d in SMALL.items() if p.endswith(".json")})
    c.run("pull", "org/m", rc=1, HF_ENDPOINT="http://hub.invalid", http_proxy=c.hub.url, no_proxy="hub.invalid", says="http://hub.invalid:80 does not answer")
    c.pull(rc=1, HF_ENDPOINT="http://hub.invalid", http_proxy="http://me:secret@x:99999", says="http://hub.invalid:80 does not answer", hides="secret")


def disk(c):
    c.hub.faults.append({"kind": "huge", "path": "/tree/", "times": 1})
    c.pull(rc=1, says=("the download needs 1000000000.0 GB, and '", "GB free", "the hub serves files above 50 GB through Xet alone"))
    two = {**MODEL, "model-2.safetensors": b"x"}  # 2^64 - 2 bytes, and a few more: the sum does not begin again
    c.hub.commit("models/org/m", "main", {p: File(p, d) for p, d in two.items()})
    c.hub.faults.append({"kind": "huge", "path": "/tree/", "times": 1, "size": 2**63 - 1})
    c.pull(rc=1, says="the download needs 18446744073.7 GB, and '")
    assert not [r for r in c.hub.log if "resolve" in r["path"]]


def together(c):
    """Several processes pull the same: one downloads a file, the others wait for its lock."""
    c.hub.faults.append({"kind": "slow", "path": "/cdn/", "seconds": 0.001, "times": 1 << 30})
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for out in pool.map(lambda _: c.pull(), range(3)):
            c.same(out)
    assert c.body_bytes("/cdn/") == len(BIG), "a file was downloaded twice"


def heals(c, **fault):
    """A fault that passes: the pull succeeds."""
    c.hub.faults.append(fault)
    c.same(c.pull(**({"HF_HUB_DOWNLOAD_TIMEOUT": "4"} if fault["kind"] == "stall" else {})))
    c.nothing_wrong()
    assert c.hub.faults[0]["times"] <= 0, "the fault did not happen"


def cut(c):
    heals(c, kind="cut", path="cdn GET /cdn", after=1_000_000, times=3)
    assert c.body_bytes("/cdn/") == len(BIG), "what had arrived was fetched again"


def breaks(c, says, **fault):
    """A fault that stays: an error, nothing wrong in the cache; without it the next pull succeeds."""
    c.hub.faults.append({"times": 1000, **fault})
    c.pull(rc=1, says=says)
    c.nothing_wrong()
    assert not (c.repo / "refs/main").exists()
    c.hub.faults.clear()
    c.same(c.pull())


def stays_cut(c):
    """Cut at a byte, then refused for good: the next process goes on from that byte."""
    c.hub.faults += [{"kind": "cut", "path": "cdn GET /cdn", "after": 500_000, "times": 2}, {"kind": "status", "path": "cdn GET /cdn", "code": 404, "skip": 2, "times": 1000}]
    c.pull(rc=1, says="status 404")
    c.nothing_wrong()
    had = c.body_bytes("/cdn/")
    c.hub.faults.clear()
    c.hub.log.clear()
    c.same(c.pull())
    starts = {int(r["range"][6:].split("-")[0]) for r in c.hub.log if r["side"] == "cdn"}
    assert starts == {500_000, (4 << 20) + 500_000}, starts
    assert c.body_bytes("/cdn/") == len(BIG) - 1_000_000 and had < 1_001_000, "the second pull did not resume"


def flip_once(c):
    c.hub.faults.append({"kind": "flip", "path": "cdn GET /cdn", "at": 4_000_000})
    c.same(c.pull(says="model.safetensors arrived with a wrong checksum and is downloaded again"))
    c.nothing_wrong()


def elsewhere(c):
    """Redirects: of files to another host without the token, of questions never, and never in circles."""
    c.hub.faults.append({"kind": "elsewhere", "path": "hub GET /api/models", "to": c.hub.cdn + "/steal", "times": 1})
    c.pull(rc=1, HF_TOKEN="hf_owner", says="redirects a question about a repository to")
    assert not [r for r in c.hub.log if r["side"] == "cdn"]
    c.hub.faults.append({"kind": "loop", "path": "resolve", "times": 100})
    c.pull(rc=1, HF_TOKEN="hf_owner", says="redirects more than 8 times")
    c.hub.faults.clear()
    c.pull(HF_TOKEN="hf_owner")


def model_words(c):
    """Every command that takes MODEL fetches a name; a folder of the same name comes first."""
    golden = Path(os.environ["AF_GOLDEN"]) / "models/qwen2"
    files = {p.name: p.read_bytes() for p in golden.iterdir() if p.is_file()}
    c.hub.repos["models/acme/tiny"] = {}
    c.hub.commit("models/acme/tiny", "main", {p: File(p, d) for p, d in files.items()})
    c.run("inspect", "acme/tiny", "--offline", rc=1, says="download it first: afinar pull acme/tiny")
    assert not c.hub.log
    c.run("template", "acme/tiny")
    assert any("resolve" in r["path"] for r in c.hub.log)
    c.hub.log.clear()
    c.run("generate", "acme/tiny@main", "--prompt", "hi", "--max-new-tokens", "1", "--device", "cpu", "--threads", "1")
    assert not c.hub.log


def train(c):
    """A model and a dataset of parquet files from an empty cache, in one command; then without a network."""
    golden = Path(os.environ["AF_GOLDEN"])
    model = {p.name: p.read_bytes() for p in (golden / "models/qwen2").iterdir() if p.is_file()}
    chat = (golden / "columns/alpaca.fastparquet.zstd.parquet").read_bytes()
    card = b"---\nconfigs:\n- config_name: first\n  data_files:\n  - split: train\n    path: data/train-*.parquet\n  - split: test\n    path: data/test-*.parquet\n---\n"
    for name, files in (("models/acme/tiny", model), ("datasets/acme/chats", {"README.md": card, "data/train-00000-of-00001.parquet": chat, "data/test-00000-of-00001.parquet": chat})):
        c.hub.repos[name] = {}
        c.hub.commit(name, "v1", {p: File(p, d) for p, d in files.items()})
    run = c.home / "run.yaml"
    run.write_text("base_model: acme/tiny@v1\nreport_to: [mlflow, wandb]\ndatasets:\n- {path: acme/chats, name: first, split: train, revision: v1}\nadapter: lora\nlora_r: 2\nsequence_len: 256\n"
                   f"max_steps: 2\nlearning_rate: 1e-3\ndevice: cpu\nthreads: 1\noutput_dir: {c.home}/out\n")
    env = {"XDG_CACHE_HOME": str(c.home / "xdg")}
    c.run("train", str(run), "--offline", rc=1, says="the cache '%s/hub' does not have it at revision v1; download it first: afinar pull acme/tiny@v1" % c.home, **env)
    c.run("train", str(run), says="step 2/2", **env)
    assert not [r for r in c.hub.log if "test-00000" in r["path"]], "files of another split are fetched"
    asked = len(c.hub.log)
    c.run("train", str(run), f"output_dir={c.home}/again", f"lora_model_dir={c.home}/out", "lora_r=2", says="step 2/2", **env)
    assert len(c.hub.log) == asked, "a cached run asked the hub"
    c.run("push", str(c.home / "out"), "me/tuned", HF_TOKEN="hf_owner")
    pushed = c.hub.commits[c.hub.repos["models/me/tuned"]["main"]]
    assert {"adapter_config.json", "adapter_model.safetensors", "README.md", "report.html", "run.yaml"} <= set(pushed) and not any(re.match("checkpoint|mlruns|wandb|trackers", p) for p in pushed)
    config = json.loads(pushed["adapter_config.json"].data)
    assert (config["base_model_name_or_path"], config["revision"]) == ("acme/tiny", "v1"), config  # as PEFT loads it
    readme = pushed["README.md"].data.decode()
    assert 'base_model: "acme/tiny"\n' in readme and 'datasets:\n- "acme/chats"\ntags:' in readme, readme
    assert 'from_pretrained("acme/tiny", revision="v1")' in readme and 'afinar chat "acme/tiny@v1" --adapter "out"' in readme, readme
    c.run("chat", str(c.home / "out"), rc=1, says="pass its base, 'acme/tiny@v1', as the model", **env)
    c.run("generate", "acme/tiny@v1", "--adapter", "me/tuned", "--prompt", "hi", "--max-new-tokens", "1", "--device", "cpu", "--threads", "1", **env)
    c.run("train", str(run), f"output_dir={c.home}/more", "lora_model_dir=me/tuned", says="step 2/2", **env)
    records = c.run("data", "records", "acme/chats@v1", "--config", "first", "--split", "test", "-n", "1", "--json", **env)
    assert json.loads(records), records
    c.hub.repos["datasets/acme/plain"] = {}  # without a card
    c.hub.commit("datasets/acme/plain", "main", {"train.jsonl": File("train.jsonl", b'{"text": "a"}\n')})
    for _ in range(2):
        assert c.run("data", "records", "acme/plain", "--json", **env) == '{"text":"a"}'
        asked = asked if _ else len(c.hub.log)
    assert len(c.hub.log) == asked, "a cached dataset without a card is asked for"
    (c.home / "dataset_info.json").write_text(json.dumps(
        {n: {"hf_hub_url": "acme/chats", "subset": "first", "columns": {"prompt": "instruction", "response": "output"}, **more}
         for n, more in (("all", {}), ("two", {"split": "train[:2]"}), ("folder", {"folder": "data", "subset": None}))}))
    c.hub.commit("datasets/acme/chats", "main", {p: File(p, d) for p, d in (("README.md", card), ("data/train-00000-of-00001.parquet", chat))})
    counts = {}
    for name in ("all", "two", "folder"):
        text = c.run("data", "check", str(run), "datasets=null", f"dataset={name}", f"dataset_dir={c.home}", **env)
        counts[name] = int(re.search(r"^records +(\d+)", text, re.M)[1])
    assert counts["two"] == 2 and counts["all"] == counts["folder"] > 2, counts
    c.run("train", str(run), "datasets=[{path: acme/none}]", f"output_dir={c.home}/none", rc=1, says="there is no dataset 'acme/none'", **env)


def push(c):
    folder = c.home / "out"
    (folder / "checkpoint-2").mkdir(parents=True)
    files = {"adapter_config.json": b'{"base_model_name_or_path": "org/m"}', "adapter_model.safetensors": BIG[:2_500_000], "small.safetensors": b"tiny",
             "deep/x.txt": b"y", "empty": b""}
    for p, d in {**files, "checkpoint-2/state": b"s", ".afinar-files": b"f", "replay-3.json": b"{}"}.items():
        (folder / p).parent.mkdir(exist_ok=True)
        (folder / p).write_bytes(d)
    go = ["push", str(folder), "me/new"]
    c.run(*go, rc=1, says="an upload needs a token that may write: set HF_TOKEN")
    c.run(*go, rc=1, HF_TOKEN="hf_reader", says="the account of HF_TOKEN may not write to 'me/new'")
    c.run("push", str(folder / "none"), "me/new", rc=1, HF_TOKEN="hf_owner", says="there is no folder")
    c.run("push", str(folder), "new", rc=1, HF_TOKEN="hf_owner", says="'new' has no owner")
    c.run(*go, rc=1, HF_TOKEN="hf_owner", HF_HUB_OFFLINE="1", says="nothing can be uploaded")
    c.hub.faults.append({"kind": "status", "path": "hub POST /api/models/me/new/commit", "code": 400, "times": 1})
    c.run(*go, "--private", rc=1, HF_TOKEN="hf_owner", says="status 400")
    puts = [r for r in c.hub.log if r["method"] == "PUT"]
    assert len(puts) == 4, puts  # three parts and one whole
    c.hub.faults.append({"kind": "status", "path": "hub POST /api/models/me/new/preupload", "code": 503, "times": 1})
    out = c.run(*go, "-m", "first", HF_TOKEN="hf_owner")
    sha = c.hub.repos["models/me/new"]["main"]
    assert out == f"{c.hub.url}/models/me/new/commit/{sha}" and c.hub.message == "first"
    assert len([r for r in c.hub.log if r["method"] == "PUT"]) == 4, "sent twice"
    have = {p: f.data for p, f in c.hub.commits[sha].items()}
    card = have.pop("README.md")
    assert have == files and b'base_model: "org/m"' in card and b"library_name: peft" in card
    assert "models/me/new" in c.hub.private
    made = len([r for r in c.hub.log if r["path"].endswith("/commit/main")])
    assert c.run(*go, HF_TOKEN="hf_owner").endswith(f"/commit/{sha}"), "nothing to do"
    assert len([r for r in c.hub.log if r["path"].endswith("/commit/main")]) == made, "a commit without a change"
    (folder / "deep/x.txt").write_bytes(b"z")
    c.run(*go, "--revision", "work", HF_TOKEN="hf_owner")
    assert c.hub.commits[c.hub.repos["models/me/new"]["work"]]["deep/x.txt"].data == b"z"
    c.hub.repos["models/me/new"]["refs/pr/1"] = sha  # a pull request that somebody opened
    c.run(*go, "--revision", "refs/pr/1", HF_TOKEN="hf_owner")
    assert c.hub.commits[c.hub.repos["models/me/new"]["refs/pr/1"]]["deep/x.txt"].data == b"z"
    c.run(*go, "--revision", "refs/pr/2", rc=1, HF_TOKEN="hf_owner", says="me/new has no revision 'refs/pr/2'")
    c.hub.faults.append({"kind": "status", "path": "/preupload/", "code": 403, "times": 1, "message": "Private storage limit reached"})
    c.run(*go, rc=1, HF_TOKEN="hf_owner", says="may not write to 'me/new' (Private storage limit reached)")
    (folder / "deep/x.txt").write_bytes(b"zz")
    c.hub.faults.append({"kind": "terminal", "path": "/commit/work", "times": 1})
    assert not c.run(*go, "--revision", "work", rc=1, HF_TOKEN="hf_owner", says="the hub does not say the address of the commit")
    assert c.hub.repos["models/me/new"]["main"] == sha


def kills(c, count, seed=None):
    """kill -9 at random moments; then one whole pull. The cache equals that of an undisturbed one."""
    seed = seed if seed is not None else random.SystemRandom().randrange(1 << 32)
    print(f"kills: seed {seed}", flush=True)
    dice = random.Random(seed)
    c.hub.faults.append({"kind": "slow", "path": "/cdn/", "seconds": 0.002, "times": 1 << 30})
    env = {**os.environ, "HF_HOME": str(c.home), "HF_ENDPOINT": c.hub.url}
    env.pop("HF_HUB_OFFLINE", None)
    for _ in range(count):
        child = subprocess.Popen([AFINAR, "pull", "org/m", "-q"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(dice.uniform(0.0, 0.4))
        child.send_signal(signal.SIGKILL)
        child.wait()
        c.nothing_wrong()
        if dice.random() < 0.2:  # from the beginning once in a while
            shutil.rmtree(c.repo, ignore_errors=True)
    c.hub.faults.clear()
    c.same(c.pull())
    calm = Case("calm")
    calm.pull()
    assert tree(c.home / "hub") == tree(calm.home / "hub"), "another cache than without kills"
    calm.hub.close()


GGUF = {"config.json": b"{}", "m-Q4_K_M.gguf": b"1", "m-Q4_K_S.gguf": b"2", "m-Q8_0-00001-of-00002.gguf": b"3", "m-Q8_0-00002-of-00002.gguf": b"4"}
SOME = {"models/org/m": {"main": MODEL}, "models/org/pickles": {"main": {"config.json": b"{}", "consolidated.00.pth": b"p"}}, "models/org/gguf": {"main": GGUF},
        "models/org/torch": {"main": {"config.json": b"{}", "pytorch_model-00001-of-00001.bin": b"p", "pytorch_model.bin.index.json": b"{}", "optimizer.pt": b"o", "training_args.bin": b"a"}},
        "models/org/gated": {"main": SMALL}, "models/org/secret": {"main": SMALL},
        "datasets/org/data": {"main": {"README.md": b"# d\n", "data/train-0.parquet": b"PAR1", ".gitattributes": b"x"}}}
CASES = {
    "layout": (layout, {"page": 3}),
    "choice": (choice, {"repos": SOME}),
    "refusals": (refusals, {"repos": SOME, "gated": ["models/org/gated"], "private": ["models/org/secret"], "moved": {"models/old/name": "org/m"}}),
    "attributes": (attributes, {}),
    "careful": (careful, {}),
    "push_careful": (push_careful, {}),
    "model": (model_words, {}),
    "push": (push, {}),
    "train": (train, {}),
    "proxy": (proxy, {}),
    "disk": (disk, {}),
    "together": (together, {}),
    "cut": (cut, {}),
    "stays_cut": (stays_cut, {}),
    "flip_once": (flip_once, {}),
    "elsewhere": (elsewhere, {}),
    "stall": (lambda c: heals(c, kind="stall", path="cdn GET /cdn", after=300_000, seconds=100, times=1), {}),
    "503": (lambda c: heals(c, kind="status", path="cdn GET", code=503, times=2), {}),
    "503_list": (lambda c: heals(c, kind="status", path="/api/models", code=503, times=1), {}),
    "429": (lambda c: heals(c, kind="status", path="resolve", code=429, retry_after=1, times=1), {}),
    "norange": (lambda c: heals(c, kind="norange", path="cdn GET", times=1), {}),
    "expired": (lambda c: heals(c, kind="expired", path="cdn GET", times=1), {}),
    "close": (lambda c: heals(c, kind="close", path="cdn GET", times=1), {}),
    "flip": (lambda c: breaks(c, "model.safetensors has the checksum", kind="flip", path="cdn GET", at=5_000_000), {}),
    "size": (lambda c: breaks(c, "the server has a file of 9000007 bytes, the hub lists 9000000", kind="size", path="model.safetensors"), {}),
    "short": (lambda c: breaks(c, "the server has a file of 8999991 bytes, the hub lists 9000000", kind="short", path="cdn GET", delta=9), {}),
    "more": (lambda c: breaks(c, "bytes for a range of 4", kind="more", path="cdn GET"), {}),
    "etag": (lambda c: breaks(c, "and serves it as 000000", kind="etag", path="model.safetensors"), {}),
    "flood": (lambda c: breaks(c, "lines or 65536 bytes of headers", kind="flood", path="/tree/"), {}),
    "endless": (lambda c: breaks(c, "sends an answer of more than 67108864 bytes", kind="endless", path="/tree/"), {}),
    "kills": (lambda c: kills(c, 5), {}),
}


def run_case(name):
    test, hub = CASES[name]
    c = Case(name, **hub)
    try:
        test(c)
        return True
    except BaseException as e:  # the others run on
        print(f"FAILED {name}: {type(e).__name__}: {e}", flush=True)
        return False
    finally:
        c.hub.close()


def main():
    try:
        if sys.argv[1:2] == ["kills"]:
            c = Case("kills")
            kills(c, int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None)
            return 0
        names = [n for n in CASES if len(sys.argv) < 2 or n in sys.argv[1:]]
        with concurrent.futures.ThreadPoolExecutor(len(names)) as pool:
            good = list(pool.map(run_case, names))
        print(f"{sum(good)} of {len(good)} cases")
        return 0 if all(good) else 1
    finally:
        shutil.rmtree(ROOT, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
