"""Mixed load on `afinar serve` for a long time: its memory must become flat.

usage: serve_load.py SECONDS [LOG]      (AFINAR and AF_GOLDEN as for the other scripts; make check-serve-load)

Six clients, a few requests per second each: answers whole and streamed, streams that are left in the middle, several
adapters, some loaded and unloaded all the time, schemas nobody asked for before, tools, embeddings, bad requests. Every
10 s one line of the log has the memory of the server. The pages of the KV cache are planned ahead and touched one by one,
and some grammars and responses are kept, so memory grows at the beginning; the last quarter must not have more than the third."""
import json
import os
import random
import sys
import tempfile
import threading
import time

from serve_start import Server, check, finish, write_adapter

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
WORDS = "the a model answers what is this Hello world time and why not 12 {} \u00f6".split()
RATE = float(os.environ.get("AF_LOAD_RATE", "2"))  # requests per second and client
CLIENTS = 6
counts = {}
lock = threading.Lock()
end_at = time.time() + float(sys.argv[1])


def text_of(r, most=40):
    return " ".join(r.choice(WORDS) for _ in range(r.randint(1, most)))


def model_of(r):
    return r.choice(["base", "base:one", "base:two", "base:three"])


def whole(s, r, folder, me):
    return s.post(TEXT, model=model_of(r), prompt=text_of(r), max_tokens=r.randint(1, 60), n=r.randint(1, 3),
                  logprobs=r.choice([None, 0, 5]), stop=r.choice([None, "a", ["the", "x"]]))[0]


def chat(s, r, folder, me):
    messages = [{"role": "system", "content": "You are a server under load. " * 3}]
    for i in range(r.randint(1, 3)):
        messages += [{"role": "user", "content": text_of(r, 12)}, {"role": "assistant", "content": text_of(r, 6)}]
    return s.post(CHAT, model=model_of(r), messages=messages[:-1], max_tokens=r.randint(1, 40), temperature=r.choice([0, 1]),
                  logprobs=True, top_logprobs=r.randint(0, 20))[0]


def stream(s, r, folder, me):
    s.events(CHAT, model=model_of(r), messages=[{"role": "user", "content": text_of(r)}], max_tokens=r.randint(1, 60),
             stream_options={"include_usage": True})
    return 200


def leave(s, r, folder, me):
    """A stream whose client goes away, or never reads."""
    body = json.dumps({"prompt": text_of(r), "model": model_of(r), "max_tokens": 150, "ignore_eos": True, "n": r.randint(1, 4),
                       "stream": r.random() < 0.7})
    head = "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with s.connect() as c:
        c.sendall((head % (TEXT, len(body)) + body)[:None if r.random() < 0.8 else 150].encode())
        c.settimeout(r.random() * 0.2)
        try:
            c.recv(1 + r.randrange(2000))
        except OSError:
            pass
    return 0


def schema(s, r, folder, me):
    """A new grammar each time: the server may keep a few."""
    properties = {"p%d" % r.randrange(1000): r.choice([
        {"type": "integer", "minimum": r.randrange(9), "maximum": 10 + r.randrange(90)}, {"enum": [text_of(r, 3), "b"]},
        {"type": "string", "maxLength": r.randint(1, 8)}, {"type": "boolean"}]) for _ in range(r.randint(1, 4))}
    form = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return s.post(CHAT, model=model_of(r), messages=[{"role": "user", "content": "x"}], max_tokens=80,
                  response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": form}})[0]


def tools(s, r, folder, me):
    tool = {"type": "function", "function": {"name": "f%d" % r.randrange(50), "parameters": {
        "type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"], "additionalProperties": False}}}
    return s.post(CHAT, messages=[{"role": "user", "content": "x"}], tools=[tool], max_tokens=80, parallel_tool_calls=False,
                  tool_choice=r.choice(["auto", "required"]))[0]


def embed(s, r, folder, me):
    return s.post("/v1/embeddings", model=model_of(r), input=[text_of(r) for _ in range(r.randint(1, 4))],
                  encoding_format=r.choice(["float", "base64"]))[0]


def adapter(s, r, folder, me):
    """Loads one under a name of its own, asks it, unloads it."""
    name = "load%d" % me
    path = os.path.join(folder, r.choice(["one", "two", "three"]))
    check(s.raw("POST", "/v1/load_lora_adapter", json.dumps({"lora_name": name, "lora_path": path}))[0] == 200, "load")
    status = s.post(TEXT, model="base:" + name, prompt=text_of(r), max_tokens=8)[0]
    check(s.raw("POST", "/v1/unload_lora_adapter", json.dumps({"lora_name": name}))[0] == 200, "unload")
    return status


def texts(s, r, folder, me):
    ids = s.post("/tokenize", content=text_of(r, 200))[1]["tokens"]
    s.ask("GET", "/props")
    return s.post("/detokenize", tokens=ids)[0]


def bad(s, r, folder, me):
    body = r.choice([b"{", b"", b"[1]", b'{"prompt": "\xff"}', b'{"prompt": 3}', b'{"model": "none", "prompt": "x"}',
                     b'{"prompt": "' + b"x " * 3000 + b'"}', b'{"prompt": "x", "temperature": 9}',
                     b'{"prompt": "x", "grammar": "root ::= ("}'])
    status = s.raw(r.choice(["POST", "POST", "PUT"]), r.choice([TEXT, TEXT, "/v1/%d" % r.randrange(10**6)]), body)[0]
    check(400 <= status < 500, "a bad request: %d" % status)
    return 0


def response(s, r, folder, me):
    """A conversation of two turns, which the server keeps for a while."""
    answer = {}
    for _ in range(2):
        status, answer = s.post("/v1/responses", model=model_of(r), input=text_of(r), max_output_tokens=r.randint(1, 20),
                                previous_response_id=answer.get("id"))
        if status != 200:
            return status
    return status


KINDS = [whole, chat, stream, leave, schema, tools, embed, adapter, texts, bad, response]
KINDS = [k for k in KINDS if k.__name__ in os.environ.get("AF_LOAD_KINDS", k.__name__).split()]


def client(s, folder, me):
    r = random.Random(me)
    while time.time() < end_at:
        kind = r.choice(KINDS)
        begin = time.time()
        try:
            status = kind(s, r, folder, me)
            check(status in (0, 200), "%s: %s" % (kind.__name__, status))
        except Exception as e:
            check(False, "%s: %r" % (kind.__name__, e))
        with lock:
            counts[kind.__name__] = counts.get(kind.__name__, 0) + 1
        time.sleep(max(0, begin + 1 / RATE - time.time()))


def memory(pid):
    """(resident, of it not from files), KiB"""
    lines = dict(l.split(":", 1) for l in open("/proc/%d/status" % pid))
    return int(lines["VmRSS"].split()[0]), int(lines["RssAnon"].split()[0])


def settled(rows):
    """Means of the third and of the last quarter, KiB."""
    quarter = max(1, len(rows) // 4)
    mean = lambda part: sum(part) / max(1, len(part))
    return mean(rows[-2 * quarter:-quarter]), mean(rows[-quarter:])


def main():
    log = open(sys.argv[2], "w") if len(sys.argv) > 2 else sys.stdout
    with tempfile.TemporaryDirectory() as folder:
        for i, name in enumerate(("one", "two", "three")):
            write_adapter(os.path.join(folder, name), 11 * (i + 1), rank=2 << i)
        given = [a for name in ("one", "two", "three") for a in ("--adapter", name + "=" + os.path.join(folder, name))]
        s = Server("--alias", "base", *given)
        threads = [threading.Thread(target=client, args=(s, folder, i)) for i in range(CLIENTS)]
        [t.start() for t in threads]
        begin, rows = time.time(), []
        while time.time() < end_at:
            time.sleep(min(10, max(0.1, end_at - time.time())))
            rows.append(memory(s.process.pid))
            print("%6.0f s  rss %7d KiB  anonymous %7d KiB  %s" % (time.time() - begin, *rows[-1], json.dumps(counts)), file=log, flush=True)
        [t.join() for t in threads]
        idle = [s.metric("afinar_" + n) for n in ("requests_processing", "requests_deferred")]
        check(idle == [0, 0], "requests that are left: %s" % idle)
        code, err = s.stop()
        check(code == 0, "exit status %s: %s" % (code, err[-500:]))
    before, after = settled([r[1] for r in rows])
    print("anonymous memory: %.0f KiB in the third quarter, %.0f KiB in the last; %d requests" % (before, after, sum(counts.values())), file=log)
    check(after < before * 1.01 + 256, "memory grows: %.0f KiB, then %.0f KiB" % (before, after))
    finish()


main()
