"""Starts `afinar serve` on a free port and asks it, with the standard library alone."""
import array
import http.client
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile

AFINAR = os.environ["AFINAR"]
MODEL = os.path.join(os.environ["AF_GOLDEN"], "models", "qwen2")
failures = []


def check(ok, what):
    if not ok:
        failures.append(what)
        print("FAIL:", what, file=sys.stderr)


def finish():
    print("%d failures" % len(failures))
    sys.exit(1 if failures else 0)


class Server:
    def __init__(self, *args, model=MODEL, env=None, command=None):
        command = command or [AFINAR, "serve", model, "--device", "cpu", "--threads", "2", "--port", "0"]
        self.log = tempfile.TemporaryFile("w+")  # a pipe that nobody reads would stop it after 64 KiB
        self.process = subprocess.Popen(command + list(args), stdout=subprocess.PIPE, stderr=self.log,
                                        text=True, env=dict(os.environ, **(env or {})))
        self.line = self.process.stdout.readline()
        self.url = json.loads(self.line)["url"] if self.line.startswith("{") else self.line.split()[-1] if self.line else ""
        self.port = int(self.url.rsplit(":", 1)[1]) if self.url else 0

    def raw(self, method, path, body=None, headers=None, timeout=300):
        """(status, headers, bytes)"""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            head = {"Content-Type": "application/json"} if body is not None else {}
            head.update(headers or {})
            c.request(method, path, body, head)
            r = c.getresponse()
            return r.status, r.headers, r.read()
        finally:
            c.close()

    def ask(self, method, path, body=None, **kw):
        """(status, JSON)"""
        status, _, text = self.raw(method, path, None if body is None else json.dumps(body), **kw)
        return status, json.loads(text) if text else None

    def post(self, path, **body):
        return self.ask("POST", path, body)

    def events(self, path, **body):
        """The data of a stream's events, [DONE] as a string."""
        body["stream"] = True
        status, headers, text = self.raw("POST", path, json.dumps(body))
        check(status == 200 and headers["Content-Type"].startswith("text/event-stream"), "stream of " + path)
        out = []
        for event in text.decode().split("\n\n")[:-1]:
            check(event.startswith("data: "), "an event begins with data:")
            out.append("[DONE]" if event == "data: [DONE]" else json.loads(event[6:]))
        check(out and out[-1] == "[DONE]", "the stream ends with [DONE]")
        return out[:-1]

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=300)

    def send(self, data, wait=300):
        """Sends bytes as they are; the status of the answer, 0 when there is none."""
        with self.connect() as s:
            s.settimeout(wait)
            try:
                s.sendall(data)
                first = s.recv(4096)
            except OSError:
                return 0
        return int(first.split()[1]) if first.startswith(b"HTTP/1.1 ") else 0

    def metric(self, name):
        text = self.raw("GET", "/metrics")[2].decode()
        return int([l for l in text.splitlines() if l.startswith(name + " ")][0].split()[1])

    def stop(self, sig=signal.SIGTERM, wait=300):
        """(exit status, stderr); one that does not listen ends by itself."""
        if self.port:
            self.process.send_signal(sig)
        return self.end(wait)

    def end(self, wait=300):
        """(exit status, stderr) of one that ends."""
        try:
            self.process.wait(wait)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.log.seek(0)
        return self.process.returncode, self.log.read()


def write_adapter(folder, seed, base="qwen2", rank=2, targets=("q_proj", "v_proj"), dora=False):
    """A PEFT folder for the model of these tests, with weights of a small generator."""
    config = json.load(open(os.path.join(MODEL, "config.json")))
    wide, heads, kv = config["hidden_size"], config["num_attention_heads"], config["num_key_value_heads"]
    sizes = {"q_proj": wide, "k_proj": wide // heads * kv, "v_proj": wide // heads * kv, "o_proj": wide}
    sizes = {name: sizes[name] for name in targets}
    os.makedirs(folder, exist_ok=True)
    json.dump({"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": base, "r": rank, "lora_alpha": 8,
               "target_modules": sorted(sizes), "bias": "none", "lora_dropout": 0.0, "fan_in_fan_out": False,
               "use_dora": dora},
              open(os.path.join(folder, "adapter_config.json"), "w"))
    header, data, state = {}, b"", seed
    for layer in range(config["num_hidden_layers"]):
        for name, out in sizes.items():
            parts = [("lora_A.weight", [rank, wide]), ("lora_B.weight", [out, rank])]
            for part, shape in parts + ([("lora_magnitude_vector", [out])] if dora else []):
                values = array.array("f")
                for _ in range(shape[0] * shape[-1] if len(shape) > 1 else out):
                    state = (state * 1103515245 + 12345) % (1 << 31)
                    values.append((state / (1 << 30) - 1) * 0.5 + 2 * (len(shape) == 1))
                key = "base_model.model.model.layers.%d.self_attn.%s.%s" % (layer, name, part)
                header[key] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * len(values)]}
                data += values.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "adapter_model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def generated(*args):
    """What `afinar generate --json` says."""
    out = subprocess.run([AFINAR, "generate", MODEL, "--device", "cpu", "--threads", "2", "--json"] + list(args),
                         capture_output=True, text=True, check=True).stdout
    return [json.loads(l) for l in out.splitlines()]
