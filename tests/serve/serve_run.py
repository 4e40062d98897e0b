"""`afinar train --serve`: what it shows, what it obeys, and that it trains the same bytes."""
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time

from serve_start import AFINAR, MODEL, Server, check, finish

DATA = os.path.join(os.environ["AF_GOLDEN"], "models", "data", "train.jsonl")
TEXT = "/v1/completions"


def run_file(folder, name, **keys):
    keys = dict({"base_model": MODEL, "adapter": "lora", "lora_r": 4, "output_dir": os.path.join(folder, name), "sequence_len": 64,
                 "max_steps": 60, "learning_rate": 1e-3, "device": "cpu", "threads": 2, "seed": 3}, **keys)
    text = "datasets: [{path: %s}]\nlora_target_modules: [q_proj, v_proj]\n" % DATA
    path = os.path.join(folder, name + ".yaml")
    open(path, "w").write(text + "".join("%s: %s\n" % kv for kv in keys.items()))
    return path


def train(path, *args):
    return Server(command=[AFINAR, "train", path, "--serve", "0"] + list(args))


def weights(folder, name):
    return open(os.path.join(folder, name, "adapter_model.safetensors"), "rb").read()


def losses(folder, name):
    return [json.loads(l)["loss"] for l in open(os.path.join(folder, name, "metrics.jsonl"))]


def paused(folder):
    """A run that pauses, with its state; one that had ended before it was asked is started again."""
    for _ in range(20):
        s, state = train(run_file(folder, "served"), "-q"), None
        try:
            state = s.post("/v1/run/pause")[1]
        except OSError:
            pass
        if state and state["state"] == "paused":
            return s, state
        check(s.end()[0] == 0, "neither paused nor ended: %s" % state)
        shutil.rmtree(os.path.join(folder, "served"))
    raise RuntimeError("20 runs ended before they could be paused")


def check_bytes(folder):
    subprocess.run([AFINAR, "train", run_file(folder, "plain"), "-q"], check=True, capture_output=True)
    s, state = paused(folder)
    check(s.line == "listening on http://127.0.0.1:%d\n" % s.port, "the line: %r" % s.line)
    check(state["state"] == "paused" and state["max_steps"] == 60, "pause: %s" % state)
    check(set(state) == {"state", "step", "max_steps", "epoch", "loss", "learning_rate", "tok_s", "eta_s", "memory_bytes", "output_dir"},
          "members of /v1/run")
    time.sleep(0.3)
    check(s.ask("GET", "/v1/run")[1]["step"] == state["step"], "a paused run does not move")
    check([m["id"] for m in s.ask("GET", "/v1/models")[1]["data"]] == ["qwen2", "qwen2:current"], "models of a run")
    status, now = s.post("/v1/run/checkpoint")
    if state["step"]:
        check(status == 200 and os.path.isdir(os.path.join(folder, "served", "checkpoint-%d" % state["step"])), "checkpoint")
    else:
        check(status == 400, "no step, no checkpoint: %d" % status)
    base = s.post(TEXT, model="qwen2", prompt="Hello", temperature=0)[1]["choices"][0]["text"]
    want = subprocess.run([AFINAR, "generate", MODEL, "--device", "cpu", "--threads", "2", "-p", "Hello", "-n", "16", "--json"],
                          capture_output=True, text=True, check=True).stdout
    check(base == json.loads(want)["text"], "BASE answers without the adapter")
    current = s.post(TEXT, model="qwen2:current", prompt="Hello", temperature=0, return_token_ids=True)[1]["choices"][0]
    if state["step"]:
        folder_now = os.path.join(folder, "served", "checkpoint-%d" % state["step"])
        want = subprocess.run([AFINAR, "generate", MODEL, "--adapter", folder_now, "--device", "cpu", "--threads", "2", "-p", "Hello", "-n",
                               "16", "--json"], capture_output=True, text=True, check=True).stdout
        check(current["token_ids"] == json.loads(want)["ids"], "BASE:current answers with the weights of the last step")
    check(s.post("/v1/run/resume")[1]["state"] == "running", "resume")
    asked = 0
    while s.process.poll() is None and asked < 10:
        try:
            s.post(TEXT, model="qwen2:current", prompt="Hello", max_tokens=3)
            asked += 1
        except OSError:
            break
    check(s.end()[0] == 0, "exit status 0 at the end")
    check(weights(folder, "plain") == weights(folder, "served"), "the same bytes with a server, pauses and chats")
    check(losses(folder, "plain") == losses(folder, "served"), "the same losses")


def check_rows(folder):
    s = train(run_file(folder, "rows", max_steps=100000, generate_samples='["Hello"]', generate_samples_steps=1000), "-q")
    while s.ask("GET", "/v1/run")[1]["step"] < 5:
        time.sleep(0.01)
    status, headers, text = s.raw("GET", "/v1/run/metrics?since=3")
    rows = [json.loads(l) for l in text.decode().splitlines()]
    check(rows[0]["step"] == 4 and "loss" in rows[0], "rows since a step")
    check(json.loads(s.raw("GET", "/v1/run/metrics")[2].decode().splitlines()[0])["step"] == 1, "all rows")
    samples = s.ask("GET", "/v1/run/samples")[1]["samples"]
    check([(r["step"], r["prompt"]) for r in samples] == [(0, "Hello")] and "answer" in samples[0], "samples: %s" % samples)
    for again in range(2):  # made once, kept
        records = s.ask("GET", "/v1/run/data")[1]["records"]
        check(len(records) == 5 and len(records[0]["ids"]) == len(records[0]["labels"]) and -100 in records[0]["labels"], "records")
    with s.connect() as c:
        c.sendall(b"GET /v1/run/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        text = b""
        while text.count(b"data: ") < 3:
            text += c.recv(4096)
    steps = [json.loads(l[6:])["step"] for l in text.decode().splitlines() if l.startswith("data: ") and l.endswith("}")]
    check(len(steps) >= 2 and steps == list(range(steps[0], steps[0] + len(steps))), "events: one per step: %s" % steps)
    check(s.ask("GET", "/v1/run")[1]["state"] == "running", "running")
    status, state = s.post("/v1/run/stop")
    check(status == 200 and state["state"] == "stopping", "stop: %s" % state)
    check(s.end()[0] == 0, "exit status 0 after stop")
    check(any(n.startswith("checkpoint-") for n in os.listdir(os.path.join(folder, "rows"))), "a checkpoint after stop")


def check_keys(folder):
    s = train(run_file(folder, "keys", max_steps=100000), "-q", "--api-key", "k")
    check(s.ask("GET", "/v1/run")[0] == 401 and s.raw("GET", "/health")[0] == 200, "a key is needed")
    check(s.raw("POST", "/v1/run/pause", headers={"Authorization": "Bearer k"})[0] == 200, "with the key")
    check(s.raw("POST", "/v1/run/pause", headers={"Authorization": "Bearer k", "Origin": "http://evil.example"})[0] == 403, "another page")
    code, err = s.stop(signal.SIGINT)
    check(code == 130, "Ctrl-C while paused: %s %s" % (code, err[-500:]))
    s = train(run_file(folder, "open", max_steps=10), "--serve-host", "0.0.0.0")
    code, err = s.end()
    check(code != 0 and "key" in err, "a host for others needs a key: %s" % code)


def main():
    with tempfile.TemporaryDirectory() as folder:
        for part in (check_bytes, check_rows, check_keys):
            try:
                part(folder)
            except Exception as e:
                check(False, "%s: %r" % (part.__name__, e))
    finish()


main()
