"""A server that behaves as CLI sections 1 and 2 say, for developing the page without a model: a run that makes steps, a chat
that answers at once. Used by judge_page.py.

    python page_mock.py PORT [--serve-only] [--key K] [--rows N]"""
import argparse, http.server, json, math, pathlib, random, threading, time

PAGE = pathlib.Path(__file__).resolve().parents[2] / "src/serve/page"
FILES = {"/": ("index.html", "text/html; charset=utf-8"), "/app.js": ("app.js", "text/javascript; charset=utf-8"),
         "/app.css": ("app.css", "text/css; charset=utf-8"), "/icon.svg": ("icon.svg", "image/svg+xml")}


class Run:
    def __init__(self, rows):
        self.rng, self.rows, self.state, self.max = random.Random(3), [], "running", 1200
        self.lock = threading.Condition()
        for _ in range(rows):
            self.step()

    def step(self):
        s = len([r for r in self.rows if "loss" in r]) + 1
        loss = 0.9 + 2.6 * math.exp(-s / 180) + self.rng.gauss(0, .06)
        lr = 2e-4 * min(1, s / 50) * .5 * (1 + math.cos(math.pi * s / self.max))
        with self.lock:
            self.rows.append(dict(step=s, epoch=s / 400, loss=loss, grad_norm=1.0, learning_rate=lr, tokens=s * 4096,
                                  tok_s=5200 + self.rng.gauss(0, 150), step_ms=780, memory_bytes=11.4 * 2 ** 30))
            if s % 100 == 0:
                self.rows.append(dict(step=s, epoch=s / 400, eval_loss=1.0 + 2.4 * math.exp(-s / 190)))
            self.lock.notify_all()

    def object(self):
        last = next((r for r in reversed(self.rows) if "loss" in r), {})
        return dict(state=self.state, step=last.get("step", 0), max_steps=self.max, epoch=last.get("epoch", 0),
                    loss=last.get("loss"), learning_rate=last.get("learning_rate"), tok_s=last.get("tok_s"),
                    eta_s=(self.max - last.get("step", 0)) * .78, memory_bytes=11.4 * 2 ** 30,
                    output_dir="outputs/qwen2.5-1.5b-support")

    def loop(self):
        while True:
            time.sleep(.3)
            if self.state == "running":
                self.step()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *a):
        pass

    def reply(self, code, body, kind="application/json"):
        body = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def stream(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    def event(self, data):
        self.wfile.write(b"data: " + (data if isinstance(data, str) else json.dumps(data)).encode() + b"\n\n")
        self.wfile.flush()

    def allowed(self):
        key = self.server.key
        if key and self.headers.get("Authorization") != "Bearer " + key:
            self.reply(401, {"error": {"message": "the key is missing or wrong", "type": "invalid_request_error", "param": None,
                                       "code": "invalid_api_key"}})
            return False
        return True

    def do_GET(self):
        run, path = self.server.run, self.path.split("?")[0]
        if path in FILES:
            return self.reply(200, (PAGE / FILES[path][0]).read_bytes(), FILES[path][1])
        if not self.allowed():
            return
        if path == "/v1/models":
            names = ["qwen2.5-1.5b"] + (["qwen2.5-1.5b:current"] if run else ["qwen2.5-1.5b:support", "qwen2.5-1.5b:legal"])
            return self.reply(200, {"object": "list", "data": [{"id": n, "object": "model"} for n in names]})
        if run and path == "/v1/run":
            return self.reply(200, run.object())
        if run and path == "/v1/run/metrics":
            since = int(self.path.split("since=")[1]) if "since=" in self.path else 0
            return self.reply(200, "".join(json.dumps(r) + "\n" for r in run.rows if r["step"] > since), "application/jsonl")
        if run and path == "/v1/run/events":
            self.stream()
            at = len(run.rows)
            while True:
                with run.lock:
                    run.lock.wait_for(lambda: len(run.rows) > at, 1)
                    rows, at = run.rows[at:], len(run.rows)
                try:
                    for r in rows:
                        self.event(r)
                except OSError:
                    return
        if run and path == "/v1/run/samples":
            return self.reply(200, {"samples": [{"step": 100, "prompt": "How do I reset my password?",
                                                 "answer": "Open Settings, choose Account, then Reset password. You will get a message with a link."},
                                                {"step": 200, "prompt": "How do I reset my password?",
                                                 "answer": "Go to Settings > Account > Reset password and follow the link that we send you."}]})
        if run and path == "/v1/run/data":
            return self.reply(200, {"records": [{"record": 1, "text": "", "ids": [1, 2, 3], "labels": [-100, -100, 3]},
                                                {"record": 2, "text": "", "ids": [1, 4, 5], "labels": [-100, 4, 5]}]})
        self.reply(404, {"error": {"message": "there is no '" + path + "'"}})

    def do_POST(self):
        run, body = self.server.run, json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        if not self.allowed():
            return
        if self.path == "/detokenize":
            words = {1: "user\n", 2: "How do I reset my password?\n", 3: "Open Settings, choose Account.", 4: "Where is my order? ", 5: "It left today."}
            return self.reply(200, {"content": "".join(words.get(t, "?") for t in body["tokens"])})
        if run and self.path.startswith("/v1/run/"):
            what = self.path.rsplit("/", 1)[1]
            run.state = {"pause": "paused", "resume": "running", "stop": "done"}.get(what, run.state)
            return self.reply(200, run.object())
        if self.path == "/v1/chat/completions":
            self.stream()
            said = body["messages"][-1]["content"]
            text = f"This is {body['model']}. You wrote <b>{said}</b> at temperature {body.get('temperature')}. " + \
                "Open Settings, choose Account, then Reset password.\n\n1. A message with a link arrives.\n2. Follow it within an hour.\n"
            if "long" in said:
                text *= 40
            base = {"id": "x", "object": "chat.completion.chunk", "model": body["model"]}
            try:
                self.event(dict(base, choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]))
                for i in range(0, len(text), 12):
                    time.sleep(.01)
                    self.event(dict(base, choices=[{"index": 0, "delta": {"content": text[i:i + 12]}, "finish_reason": None}]))
                self.event(dict(base, choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}]))
                self.event(dict(base, choices=[], usage={"prompt_tokens": 12, "completion_tokens": len(text) // 4, "total_tokens": 12}))
                self.event("[DONE]")
            except OSError:
                self.server.cancelled += 1
            return
        self.reply(404, {"error": {"message": "there is no '" + self.path + "'"}})


def serve(port, train=True, key=None, rows=240):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    server.run, server.key, server.cancelled = (Run(rows) if train else None), key, 0
    if train:
        threading.Thread(target=server.run.loop, daemon=True).start()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


if __name__ == "__main__":
    a = argparse.ArgumentParser()
    a.add_argument("port", type=int)
    a.add_argument("--serve-only", action="store_true")
    a.add_argument("--key")
    a.add_argument("--rows", type=int, default=240)
    o = a.parse_args()
    serve(o.port, not o.serve_only, o.key, o.rows)
    threading.Event().wait()
