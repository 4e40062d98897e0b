"""Judge of hostile models: a good tiny folder with one thing made wrong, hundreds of times. Every
command must say one sentence, exit 1, and take little memory and time. Development only.

    python judge_hostile.py AFINAR [--seed N] [--rounds 200]"""
import argparse, copy, json, os, random, resource, shutil, struct, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
GOOD = os.path.join(HERE, "../../tests/golden/models")
VALUES = [0, -1, 1, 3, 7, 2**31, 2**31 - 1, 2**63 - 1, -2**63, 1e30, -1e-6, 0.5, float("nan"),
          float("inf"), -float("inf"), None, "x", "", [], {}, [1, 2], True, False, 1e-320, 65536]
FIXED = [("num_attention_heads", 0), ("num_hidden_layers", 2**31), ("head_dim", 7),
         ("rms_norm_eps", -1e-6), ("rms_norm_eps", float("nan")), ("vocab_size", 10),
         ("vocab_size", 2**40), ("intermediate_size", 2**24), ("hidden_size", 2**24),
         ("num_key_value_heads", 3), ("num_key_value_heads", 0), ("rope_theta", float("nan"))]


def run(afinar, cmd, folder, tmp):
    args = {"logits": [afinar, "logits", folder, "--ids", tmp + "/ids.safetensors", "-o", tmp + "/o.safetensors"],
            "generate": [afinar, "generate", folder, "--prompt-ids", "1,2", "-n", "2"],
            "inspect": [afinar, "inspect", folder]}[cmd]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    p = subprocess.Popen(args + ["--device", "cpu"] if cmd != "inspect" else args, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        out, err = p.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        p.kill()
        return 99, "TIMEOUT"
    return p.returncode, err.decode("utf8", "replace")


def mutate_config(r, c):
    if r.random() < .15:
        k, v = r.choice(FIXED)
        c[k] = v
        return f"{k}={v}"
    keys = [k for k in c]
    k = r.choice(keys)
    v = r.choice(VALUES)
    if isinstance(c[k], dict) and c[k] and r.random() < .8:
        k2 = r.choice(list(c[k]))
        c[k][k2] = v
        return f"{k}.{k2}={v!r}"
    if r.random() < .1:
        del c[k]
        return f"no {k}"
    c[k] = v
    return f"{k}={v!r}"


def mutate_tensors(r, path):
    """The header of the safetensors file: wrong shapes, offsets, names, types, lengths."""
    b = bytearray(open(path, "rb").read())
    n = struct.unpack("<Q", b[:8])[0]
    h = json.loads(b[8:8 + n])
    name = r.choice([k for k in h if k != "__metadata__"])
    what = r.randrange(8)
    if what == 0:
        h[name]["shape"] = [r.choice([0, 1, 2**31, 2**62, 3])] * r.choice([0, 1, 2, 9])
    elif what == 1:
        h[name]["data_offsets"] = [r.choice([0, 8, 2**63, -1]), r.choice([0, 4, 2**62, 10**19])]
    elif what == 2:
        h[name]["dtype"] = r.choice(["F8", "I64", "X", "", "F64", "BOOL"])
    elif what == 3:
        h[r.choice(["odd", "model.layers.99.mlp.gate_proj.weight", ""])] = h.pop(name)
    elif what == 4:
        del h[name]
    elif what == 5:
        b = b[:r.randrange(len(b))]
        open(path, "wb").write(b)
        return f"cut at {len(b)}"
    elif what == 6:
        b[:8] = struct.pack("<Q", r.choice([0, 1, 2**40, 2**63, n + 1, n - 1]))
        open(path, "wb").write(b)
        return "header length"
    else:
        h[name]["shape"] = list(reversed(h[name]["shape"])) + [1] * r.randrange(2)
    t = json.dumps(h).encode()
    open(path, "wb").write(struct.pack("<Q", len(t)) + t + b[8 + n:])
    return f"tensor {name} {what}"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("afinar")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--rounds", type=int, default=200)
    a = p.parse_args()
    import numpy as np
    from safetensors.numpy import save_file
    bad = fine = refused = 0
    models = [d for d in sorted(os.listdir(GOOD)) if os.path.exists(f"{GOOD}/{d}/config.json")]
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    for i in range(a.rounds):
        r = random.Random(a.seed * 100000 + i)
        tmp = tempfile.mkdtemp()
        folder = tmp + "/m"
        shutil.copytree(f"{GOOD}/{r.choice(models)}", folder)
        save_file({"input_ids": np.array([[1, 2, 3]], np.int32)}, tmp + "/ids.safetensors")
        if r.random() < .6:
            c = json.load(open(folder + "/config.json"))
            what = mutate_config(r, c)
            json.dump(c, open(folder + "/config.json", "w"))
        else:
            files = [f for f in os.listdir(folder) if f.startswith("model") and f.endswith(".safetensors")]
            what = mutate_tensors(r, folder + "/" + r.choice(files)) if files else "nothing"
        for cmd in ("logits", "generate"):
            rc, err = run(a.afinar, cmd, folder, tmp)
            lines = [l for l in err.splitlines() if l.startswith("afinar") or "error" in l.lower()]
            last = err.strip().splitlines()[-1] if err.strip() else ""
            if rc == 0:
                fine += 1
            elif rc == 1 and last and len(last) < 2000:
                refused += 1
            else:
                bad += 1
                print("BAD", i, cmd, what, "rc", rc, err[-200:], flush=True)
            if rc == 1 and i % 23 == 0 and cmd == "logits":
                print("   ", what, "->", last[:160])
        shutil.rmtree(tmp)
    rss = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(f"{bad} bad, {refused} refused, {fine} ran; largest process {rss // 1024} MiB")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
