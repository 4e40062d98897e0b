"""Every endpoint, field and error of `afinar serve`, with the standard library alone."""
import base64
import json
import math
import os
import re
import shutil
import signal
import struct
import sys
import tempfile
import threading
import time

from serve_start import AFINAR, MODEL, Server, check, failures, finish, generated, write_adapter

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
HI = [{"role": "user", "content": "Hi"}]


def expect(s, status, path, param=None, code=None, method="POST", headers=None, **body):
    got, answer = s.ask(method, path, body if method == "POST" else None, headers=headers)
    error = (answer or {}).get("error", {})
    check(got == status, "%s %s: %d, not %d: %s" % (path, json.dumps(body)[:80], got, status, answer))
    check(set(error) == {"message", "type", "param", "code"}, "the error of %s has four members" % path)
    check(bool(error.get("message")), "the error of %s has a message" % path)
    check(error.get("param") == param, "%s %s: param is %s" % (path, json.dumps(body)[:80], error.get("param")))
    check(error.get("code") == code, "%s %s: code is %s" % (path, json.dumps(body)[:80], error.get("code")))
    return error


def check_info(s):
    check(s.ask("GET", "/health") == (200, {"status": "ok"}), "health")
    status, models = s.ask("GET", "/v1/models")
    check(status == 200 and models["object"] == "list" and models["data"][0]["id"] == "base", "models")
    check(s.ask("GET", "/v1/models/base")[1]["id"] == "base", "one model")
    check(s.ask("GET", "/v1/models/b%61se")[1]["id"] == "base", "one model, escaped")
    expect(s, 404, "/v1/models/none", "model", "model_not_found", method="GET")
    props = s.ask("GET", "/props")[1]
    check(props["total_slots"] >= 1 and props["default_generation_settings"]["n_ctx"] == 256, "props")
    check("im_start" in props["chat_template"], "props: template")
    text = s.raw("GET", "/metrics")[2].decode()
    for name in ("requests_processing", "requests_deferred", "connections", "prompt_tokens_total",
                 "tokens_predicted_total"):
        check("\nafinar_%s " % name in "\n" + text, "metric " + name)
    check('afinar_requests_total{code="200"}' in text and 'afinar_requests_total{code="404"} 1' in text, "metric of answers")
    status, headers, page = s.raw("GET", "/")
    check(status == 200 and headers["Content-Type"].startswith("text/html"), "the page")
    check("default-src" in headers["Content-Security-Policy"] and headers["X-Frame-Options"] == "DENY" and
          headers["X-Content-Type-Options"] == "nosniff", "headers of the page")
    source = os.path.join(os.environ["AF_SOURCE"], "src", "serve", "page")
    names = re.findall(r'(?:src|href)="([^"#]+)"', page.decode())
    check(sorted(names) == ["app.css", "app.js", "icon.svg"], "files that the page names: %s" % names)
    for name in names:
        status, headers, text = s.raw("GET", "/" + name)
        check(status == 200 and text == open(os.path.join(source, name), "rb").read(), name)
        check("default-src 'self'" in headers["Content-Security-Policy"], "policy of " + name)
    check(s.raw("HEAD", "/health")[0] == 200, "HEAD")


def check_texts(s):
    ids = s.post("/tokenize", content="Hello w\u00f6rld")[1]["tokens"]
    check(ids == [39, 484, 78, 265, 127, 114, 81, 329], "tokenize")
    check(s.post("/detokenize", tokens=ids)[1] == {"content": "Hello w\u00f6rld"}, "detokenize")
    pieces = s.post("/tokenize", content="w\u00f6", with_pieces=True)[1]["tokens"]
    check(pieces[-1]["piece"] == [182] and pieces[0]["piece"] == "w", "pieces")
    check(s.post("/tokenize")[1] == {"tokens": []}, "no content")
    check(s.post("/tokenize", prompt="Hello w\u00f6rld")[1] == {"count": 8, "max_model_len": 256, "tokens": ids}, "tokenize as vLLM")
    want = s.post(CHAT, messages=HI, max_tokens=1, return_token_ids=True)[1]["prompt_token_ids"]
    check(s.post("/tokenize", messages=HI)[1]["tokens"] == want, "tokenize messages as vLLM")
    expect(s, 400, "/tokenize", "prompt", prompt=3)
    status, _, text = s.raw("POST", "/tokenize", b"\x1f\x8b", {"Content-Encoding": "gzip"})
    check(status == 415 and b"gzip" in text, "a compressed body: %s" % text)
    check(s.raw("POST", "/tokenize", b"{}", {"Content-Encoding": "Identity"})[0] == 200, "a body as it is")
    text = s.post("/apply-template", messages=HI)[1]["prompt"]
    check(text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "apply-template: %r" % text)
    parts = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    check("user\na\nb<|im_end|>" in s.post("/apply-template", messages=parts)[1]["prompt"], "parts of text")
    expect(s, 400, "/tokenize", "content", content=3)
    expect(s, 400, "/detokenize", "tokens", tokens=["a"])
    expect(s, 400, "/apply-template", "messages", messages=[])


def check_usage(u, prompt, made, what):
    check((u["prompt_tokens"], u["completion_tokens"], u["total_tokens"]) == (prompt, made, prompt + made), what + ": usage")
    check("cached_tokens" in u["prompt_tokens_details"] and "reasoning_tokens" in u["completion_tokens_details"],
          what + ": details of usage")


def check_chat(s):
    want = generated("--chat", "-p", "Hi", "-n", "6")[0]
    status, a = s.post(CHAT, messages=HI, max_tokens=6, temperature=0, return_token_ids=True, logprobs=True, top_logprobs=3)
    check(status == 200 and a["object"] == "chat.completion" and a["id"].startswith("chatcmpl-"), "chat")
    c = a["choices"][0]
    check(a["model"] == "base" and abs(a["created"] - time.time()) < 600, "chat: model and time")
    check(a["prompt_token_ids"] == want["prompt_ids"] and c["token_ids"] == want["ids"], "chat: tokens of generate")
    check(c["message"]["role"] == "assistant" and c["message"]["content"] == want["text"], "chat: text of generate")
    check(c["finish_reason"] == "length" and c["index"] == 0, "chat: finish")
    check_usage(a["usage"], len(want["prompt_ids"]), 6, "chat")
    lp = c["logprobs"]["content"]
    check([t["id"] for t in lp] == want["ids"] and c["logprobs"]["refusal"] is None, "chat: logprobs")
    check(all(len(t["top_logprobs"]) == 3 and t["top_logprobs"][0]["logprob"] == t["logprob"] and t["logprob"] < 0
              for t in lp), "chat: top logprobs")
    check(bytes(b for t in lp for b in t["bytes"]).decode(errors="replace") == c["message"]["content"], "chat: bytes")
    # streamed: the same tokens, text, logprobs
    ev = s.events(CHAT, messages=HI, max_tokens=6, temperature=0, return_token_ids=True, logprobs=True,
                  top_logprobs=3, stream_options={"include_usage": True})
    check(len({e["id"] for e in ev}) == 1, "stream: one id")
    check(ev[0]["choices"][0]["delta"]["role"] == "assistant" and not ev[0]["choices"][0]["delta"].get("content"),
          "stream: first delta")
    check(ev[0]["prompt_token_ids"] == want["prompt_ids"], "stream: prompt ids")
    check(ev[-1]["choices"] == [] and all(e["usage"] is None for e in ev[:-1]), "stream: usage chunk")
    check_usage(ev[-1]["usage"], len(want["prompt_ids"]), 6, "stream")
    last = ev[-2]["choices"][0]
    check(last["delta"] == {} and last["finish_reason"] == "length", "stream: last delta")
    check(all(e["choices"][0]["finish_reason"] is None for e in ev[:-2]), "stream: one finish reason")
    check("".join(e["choices"][0]["delta"].get("content") or "" for e in ev[:-1]) == want["text"], "stream: text")
    check(sum((e["choices"][0].get("token_ids", []) for e in ev[:-1]), []) == want["ids"], "stream: ids")
    check([t for e in ev[:-1] for t in (e["choices"][0]["logprobs"] or {"content": []})["content"]] == lp, "stream: logprobs")
    check(s.post(CHAT, messages=HI, max_completion_tokens=2, max_tokens=9)[1]["usage"]["completion_tokens"] == 2,
          "max_completion_tokens")
    check(s.post(CHAT, messages=HI, n_predict=3, max_tokens=9)[1]["usage"]["completion_tokens"] == 3, "n_predict")
    whole = s.post(CHAT, messages=HI, ignore_eos=True, temperature=0)[1]
    check(whole["usage"]["total_tokens"] == 256, "chat: the rest of the context")


def check_sampling(s):
    def ids(**kw):
        return [c["token_ids"] for c in s.post(TEXT, return_token_ids=True, prompt="Hello", max_tokens=8, **kw)[1]["choices"]]
    for args, kw in (([], {}), (["--top-k", "20"], {"top_k": 20}), (["--top-p", "0.8"], {"top_p": 0.8}),
                     (["--min-p", "0.05"], {"min_p": 0.05}), (["--repeat-penalty", "1.3"], {"repeat_penalty": 1.3})):
        want = generated("-p", "Hello", "-n", "8", "--temperature", "0.9", "--seed", "7", *args)[0]["ids"]
        check(ids(temperature=0.9, seed=7, **kw) == [want], "seed 7 as generate, with %s" % kw)
    both = ids(temperature=1, seed=7, n=2)
    check(both == ids(temperature=1, seed=7) + ids(temperature=1, seed=8), "choice i takes seed + i")
    check(ids(temperature=1) != ids(temperature=1), "no seed: a random one")
    greedy = ids(temperature=0)[0]
    check(ids(temperature=0, logit_bias={str(greedy[0]): -100})[0][0] != greedy[0], "logit_bias forbids")
    check(set(ids(temperature=1, logit_bias={"65": 100})[0]) == {65}, "logit_bias forces")
    two = dict(temperature=0, logit_bias={"65": 100, "66": 100})
    for field in ("frequency_penalty", "presence_penalty"):
        check(len(set(ids(**two)[0])) == 1 and set(ids(**two, **{field: 2})[0]) == {65, 66}, field)
    check(ids(temperature=0, repetition_penalty=3) == ids(temperature=0, repeat_penalty=3) != [greedy], "vLLM's repetition_penalty")
    a = s.post(TEXT, prompt="Hello", temperature=0, return_token_ids=True, stop_token_ids=[511, greedy[2]])[1]
    c = a["choices"][0]
    check(c["token_ids"] == greedy[:3] and c["finish_reason"] == "stop" and a["usage"]["completion_tokens"] == 3, "stop_token_ids: %s" % c)
    check(c["text"] == s.post("/detokenize", tokens=greedy[:2])[1]["content"], "the token that stops is not in the text")
    a = s.post(TEXT, prompt="Hello", max_tokens=-1, ignore_eos=True)[1]
    check(a["usage"]["total_tokens"] == 256, "max_tokens -1: the rest of the context")


def check_completions(s):
    want = generated("-p", "Hello", "-n", "16")[0]
    status, a = s.post(TEXT, prompt="Hello", temperature=0, logprobs=2, return_token_ids=True)
    c = a["choices"][0]
    check(status == 200 and a["object"] == "text_completion" and c["text"] == want["text"], "completions")
    check_usage(a["usage"], 3, 16, "completions")
    lp = c["logprobs"]
    check(set(lp) == {"tokens", "token_logprobs", "top_logprobs", "text_offset"} and len(lp["tokens"]) == 16, "logprobs")
    check("".join(lp["tokens"]) == c["text"], "tokens of logprobs")
    check(lp["text_offset"] == [len("".join(lp["tokens"][:i])) for i in range(16)], "offsets")
    check(all(len(t) == 2 and math.isclose(max(t.values()), l) for t, l in zip(lp["top_logprobs"], lp["token_logprobs"])), "tops")
    pairs = lambda p: check(len(dict(p)) == len(p), "a name twice: %s" % p) or dict(p)
    text = s.raw("POST", TEXT, json.dumps(dict(prompt="Hello", temperature=2, seed=1, max_tokens=60, logprobs=2)))[2]
    lp = json.loads(text, object_pairs_hook=pairs)["choices"][0]["logprobs"]
    check(all(t in tops and len(tops) <= 3 for t, tops in zip(lp["tokens"], lp["top_logprobs"])), "tops have the chosen token")
    check(max(len(tops) for tops in lp["top_logprobs"]) == 3, "tops: two and the chosen one")
    ev = s.events(TEXT, prompt="Hello", temperature=0)
    check("".join(e["choices"][0]["text"] for e in ev) == want["text"] and ev[-1]["choices"][0]["finish_reason"] == "length",
          "completions: stream")
    many = s.post(TEXT, prompt=["Hello", "What"], n=2, temperature=0, max_tokens=3)[1]
    check([x["index"] for x in many["choices"]] == [0, 1, 2, 3] and many["choices"][0]["text"] == many["choices"][1]["text"],
          "several prompts, several choices")
    check_usage(many["usage"], 3 + len(s.post("/tokenize", content="What")[1]["tokens"]), 12, "several")
    byids = s.post(TEXT, prompt=[39, 484, 78], temperature=0)[1]["choices"][0]["text"]
    check(byids == want["text"] and s.post(TEXT, prompt=[[39, 484, 78]], temperature=0)[1]["choices"][0]["text"] == byids,
          "prompts as ids")
    stop = want["text"][4:6]
    cut = want["text"][:want["text"].index(stop)]
    for stops in (stop, [stop], ["zzz", stop]):
        c = s.post(TEXT, prompt="Hello", temperature=0, stop=stops)[1]["choices"][0]
        check(c["text"] == cut and c["finish_reason"] == "stop", "stop %r: %r" % (stops, c))
    ev = s.events(TEXT, prompt="Hello", temperature=0, stop=stop)
    check("".join(e["choices"][0]["text"] for e in ev) == cut and ev[-1]["choices"][0]["finish_reason"] == "stop", "stream: stop")
    e = s.post(TEXT, prompt="Hello", temperature=0, max_tokens=0, echo=True, logprobs=0)[1]["choices"][0]
    check(e["text"] == "Hello" and e["logprobs"]["tokens"] == ["H", "ell", "o"], "echo alone: %s" % e)
    check(e["logprobs"]["token_logprobs"][0] is None and e["logprobs"]["token_logprobs"][1] < 0, "echo: logprobs")
    for n in (0, 2):  # a prompt of one token
        e = s.post(TEXT, prompt="x", temperature=0, max_tokens=n, echo=True, logprobs=1)[1]["choices"][0]["logprobs"]
        check(e["tokens"][0] == "x" and len(e["tokens"]) == 1 + n and e["token_logprobs"][0] is None and e["text_offset"][:2] == [0, 1][:1 + n],
              "echo of one token: %s" % e)
    e = dict(prompt="a\0b", max_tokens=0, echo=True)
    check(s.post(TEXT, **e)[1]["choices"][0]["text"] == "a\0b" and s.events(TEXT, **e)[0]["choices"][0]["text"] == "a\0b",
          "echo of a NUL")
    # the end token: counted, not in the text
    eos = s.post(TEXT, prompt="Hello", logit_bias={"511": 100}, return_token_ids=True, logprobs=0)[1]
    c = eos["choices"][0]
    check(c["text"] == "" and c["token_ids"] == [511] and c["finish_reason"] == "stop" and
          eos["usage"]["completion_tokens"] == 1, "end token")


def check_cached(s):
    """usage says how much of a prompt was not computed again: whole pages of 128 tokens, of every kind of answer."""
    ids = [(7 * i + 3) % 500 for i in range(200)]
    cached = [s.post(TEXT, prompt=p, max_tokens=1)[1]["usage"]["prompt_tokens_details"]["cached_tokens"]
              for p in (ids, ids, ids[:128], ids[:129] + [9], [1] + ids, [ids, ids[:150], [4]])]
    check(cached == [0, 128, 0, 128, 0, 256], "cached tokens: %s" % cached)
    both = s.post(TEXT, prompt=ids, max_tokens=1, n=2)[1]["usage"]
    check(both["prompt_tokens"] == 200 and both["prompt_tokens_details"]["cached_tokens"] == 128, "cached tokens of two choices: %s" % both)
    long = [{"role": "user", "content": "a b c d e f g " * 22}]
    for path, name, body in ((CHAT, "prompt_tokens_details", {"messages": long, "max_tokens": 1}),
                             ("/v1/responses", "input_tokens_details", {"input": long, "max_output_tokens": 1})):
        first, second = [s.post(path, **body)[1]["usage"][name]["cached_tokens"] for _ in "12"]
        check(second == 128 and first in (0, 128), "cached tokens of %s: %d, %d" % (path, first, second))
    ev = s.events(CHAT, messages=long, max_tokens=1, stream_options={"include_usage": True})
    check(ev[-1]["usage"]["prompt_tokens_details"]["cached_tokens"] == 128, "cached tokens of a stream")


def check_adapters(s, folder):
    models = s.ask("GET", "/v1/models")[1]
    check([m["id"] for m in models["data"]] == ["base", "base:one", "base:two"], "adapters among the models")
    check(s.ask("GET", "/v1/models/base:one")[1]["id"] == "base:one", "an adapter")
    check(s.ask("GET", "/v1/models/base%3Aone")[1]["id"] == "base:one", "an adapter, escaped")
    made = [s.post(TEXT, model=m, prompt="Hello", temperature=0, return_token_ids=True)[1]["choices"][0]["token_ids"]
            for m in ("base", "base:one", "base:two")]
    check(made[0] != made[1] != made[2] != made[0], "adapters change the answer")
    for i, name in enumerate(("one", "two")):
        want = generated("-p", "Hello", "-n", "16", "--adapter", os.path.join(folder, name))[0]["ids"]
        check(made[1 + i] == want, "adapter %s as generate" % name)
    # all at once, half of them streamed: the same bits as alone
    jobs = [(m, p) for m in ("base", "base:one", "base:two") for p in ("Hello", "What is", "The")] * 4
    def one(m, p, streamed=False):
        body = dict(model=m, prompt=p, temperature=0.8, seed=5, max_tokens=12, logprobs=1)
        if not streamed:
            c = s.post(TEXT, **body)[1]["choices"][0]
            return c["text"], c["logprobs"]
        pieces = [e["choices"][0] for e in s.events(TEXT, **body)]
        lists = [p["logprobs"] for p in pieces if p["logprobs"]]
        return "".join(p["text"] for p in pieces), {k: sum((l[k] for l in lists), []) for k in lists[0]}
    alone = {j: one(*j) for j in set(jobs)}
    got = [None] * len(jobs)
    def work(i):
        got[i] = one(*jobs[i], streamed=i % 2 == 1)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(jobs))]
    [t.start() for t in threads]
    [t.join() for t in threads]
    check(len(jobs) >= 32 and all(g == alone[j] for g, j in zip(got, jobs)), "the same bits alone and among others")
    # loading and unloading
    write_adapter(os.path.join(folder, "three"), 33)
    path = os.path.join(folder, "three")
    check(s.raw("POST", "/v1/load_lora_adapter", json.dumps({"lora_name": "three", "lora_path": path}))[0] == 200, "load")
    check(s.post(TEXT, model="base:three", prompt="Hello", temperature=0)[0] == 200, "loaded adapter")
    expect(s, 400, "/v1/load_lora_adapter", "lora_name", lora_name="three", lora_path=path)
    expect(s, 400, "/v1/load_lora_adapter", None, lora_name="four", lora_path=path + "/none")
    expect(s, 400, "/v1/load_lora_adapter", "lora_path", lora_name="four")
    check(s.raw("POST", "/v1/unload_lora_adapter", json.dumps({"lora_name": "three"}))[0] == 200, "unload")
    long = "long" * 1000
    for verb in ("load", "unload"):
        status, _, text = s.raw("POST", "/v1/%s_lora_adapter" % verb, json.dumps({"lora_name": long, "lora_path": path}))
        check(status == 200 and text.decode().split("'")[1] == long, "%s an adapter with a long name" % verb)
    expect(s, 404, TEXT, "model", "model_not_found", model="base:three", prompt="Hello")
    expect(s, 404, "/v1/unload_lora_adapter", "lora_name", "model_not_found", lora_name="three")


def check_embeddings(s):
    status, a = s.post("/v1/embeddings", input=["Hello", "What is"])
    check(status == 200 and [d["index"] for d in a["data"]] == [0, 1] and a["object"] == "list", "embeddings")
    first = a["data"][0]["embedding"]
    check(len(first) == 64 and math.isclose(sum(x * x for x in first), 1, rel_tol=1e-5), "embedding of length 1")
    check(s.post("/v1/embeddings", input="Hello")[1]["data"][0]["embedding"] == first, "embedding of a text")
    check(s.post("/v1/embeddings", input=[39, 484, 78])[1]["data"][0]["embedding"] == first, "embedding of ids")
    raw = s.post("/v1/embeddings", input="Hello", encoding_format="base64")[1]["data"][0]["embedding"]
    check(all(abs(x - y) < 1e-7 for x, y in zip(struct.unpack("<64f", base64.b64decode(raw)), first)), "base64")
    short = s.post("/v1/embeddings", input="Hello", dimensions=8)[1]["data"][0]["embedding"]
    scale = math.sqrt(sum(x * x for x in first[:8]))
    check(all(abs(x - y / scale) < 1e-5 for x, y in zip(short, first[:8])), "dimensions")
    expect(s, 400, "/v1/embeddings", "dimensions", input="a", dimensions=65)
    expect(s, 400, "/v1/embeddings", "encoding_format", input="a", encoding_format="x")
    expect(s, 400, "/v1/embeddings", "input")
    expect(s, 400, "/v1/embeddings", "input", input="")


def check_formats(s):
    rules = {"grammar": 'root ::= "yes" | "no"'}
    for _ in range(3):
        c = s.post(CHAT, messages=HI, **rules)[1]["choices"][0]
        check(c["message"]["content"] in ("yes", "no") and c["finish_reason"] == "stop", "grammar")
    schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1, "maximum": 99}, "b": {"enum": ["x", "y"]}},
              "required": ["a", "b"], "additionalProperties": False}
    for seed in range(3):
        c = s.post(CHAT, messages=HI, seed=seed,
                   response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}})[1]["choices"][0]
        value = json.loads(c["message"]["content"])
        check(set(value) == {"a", "b"} and 1 <= value["a"] <= 99 and value["b"] in "xy", "schema: %s" % value)
    bad = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "minProperties": 3}}}
    check("minProperties" in expect(s, 400, CHAT, "response_format", messages=HI, response_format=bad)["message"], "the keyword is named")
    names = [str(i) for i in range(100000)]  # refused at once: 80000 values took 17 s
    for words, schema in (("an enum has more than", {"enum": names}), ("an object has more than", {"properties": dict.fromkeys(names, True)}),
                          ("an object has more than", {"required": names}),
                          ("the schema needs more than", {"allOf": [{"properties": {n: {}}} for n in names[:10000]]})):
        bad["json_schema"]["schema"] = schema
        begin = time.time()
        check(words in expect(s, 400, CHAT, "response_format", messages=HI, response_format=bad)["message"], words)
        check(time.time() - begin < 10, "%s: after %.1f s" % (words, time.time() - begin))
    lists = [{"enum": [kind + str(i) for i in range(16000)]} for kind in "abcdefgh"]
    for schema in ({"anyOf": lists}, {"oneOf": lists}):  # which no value fits twice: all pairs of values took 40 s
        begin, bad["json_schema"]["schema"] = time.time(), schema
        check("readings" in expect(s, 400, CHAT, messages=HI, response_format=bad)["message"], "too many readings while it is written")
        check(time.time() - begin < 20, "%s of long enums: after %.1f s" % (list(schema)[0], time.time() - begin))
    c = s.post(CHAT, messages=HI, temperature=0.3, max_tokens=200, response_format={"type": "json_object"})[1]["choices"][0]
    check(c["message"]["content"].lstrip().startswith("{"), "json_object")
    if c["finish_reason"] == "stop":
        json.loads(c["message"]["content"])
    # in the words of vLLM
    form = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
    words = ["Rome", "a \"b\"\\\n|\u00e9\x01\b\f"]
    for body in ({"structured_outputs": {"json": form}}, {"structured_outputs": {"json": json.dumps(form)}}, {"guided_json": form}):
        c = s.post(CHAT, messages=HI, **body)[1]["choices"][0]
        check(json.loads(c["message"]["content"])["a"] in (1, 2), "%s: %s" % (body, c))
    for body in ({"structured_outputs": {"choice": words}}, {"guided_choice": words}):
        got = {s.post(CHAT, messages=HI, seed=i, temperature=2, **body)[1]["choices"][0]["message"]["content"] for i in range(20)}
        check(got == set(words), "choices: %s" % got)
    for body in ({"structured_outputs": {"grammar": "root ::= \"yes\""}}, {"guided_grammar": "root ::= \"yes\""}):
        check(s.post(CHAT, messages=HI, **body)[1]["choices"][0]["message"]["content"] == "yes", "rules")
    for i, body in enumerate(({"structured_outputs": {"regex": r"(ab|\d{2})+-[^x]"}}, {"guided_regex": r"(ab|\d{2})+-[^x]"})):
        c = s.post(CHAT, messages=HI, seed=i, **body)[1]["choices"][0]
        check(c["finish_reason"] == "stop" and re.fullmatch(r"(ab|\d{2})+-[^x]", c["message"]["content"]), "a regular expression: %s" % c)
    c = s.post(CHAT, messages=HI, structured_outputs={"json_object": True})[1]["choices"][0]
    check(c["message"]["content"].lstrip().startswith("{"), "any object")
    for field, value in (("structured_outputs", {"regex": "a("}), ("structured_outputs", {"choice": []}), ("structured_outputs", {"json": "{"}),
                         ("structured_outputs", 3), ("guided_regex", 3), ("guided_choice", [3])):
        expect(s, 400, CHAT, field, messages=HI, **{field: value})
    expect(s, 400, CHAT, "grammar", messages=HI, grammar="root ::= (")
    for kind in ({"type": "what"}, {"type": 3}, {}):
        expect(s, 400, CHAT, "response_format", messages=HI, response_format=kind)


TOOLS = [{"type": "function", "function": {"name": name, "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"], "additionalProperties": False}}}
    for name in ("weather", "time")]


def check_tools(s):
    def good(call):
        return (call["type"] == "function" and call["function"]["name"] in ("weather", "time") and call["id"] and
                json.loads(call["function"]["arguments"])["city"] in ("Rome", "Oslo"))
    a = s.post(CHAT, messages=HI, tools=TOOLS, tool_choice="required", parallel_tool_calls=False)[1]["choices"][0]
    check(a["finish_reason"] == "tool_calls" and a["message"]["content"] is None, "tools: finish")
    check(len(a["message"]["tool_calls"]) == 1 and good(a["message"]["tool_calls"][0]), "tools: a call")
    one = {"type": "function", "function": {"name": "time"}}
    a = s.post(CHAT, messages=HI, tools=TOOLS, tool_choice=one, parallel_tool_calls=False)[1]["choices"][0]["message"]
    check(a["tool_calls"][0]["function"]["name"] == "time", "tools: the function that was chosen")
    ev = s.events(CHAT, messages=HI, tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
    calls = [c for e in ev for c in e["choices"][0]["delta"].get("tool_calls", [])]
    check(len(calls) == 1 and calls[0]["index"] == 0 and good(calls[0]), "tools: stream")
    check(ev[-1]["choices"][0]["finish_reason"] == "tool_calls", "tools: finish of a stream")
    # text that is written as a call, and text around it
    text = 'Wait. <tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>'
    rules = "root ::= " + json.dumps(text)
    a = s.post(CHAT, messages=HI, tools=TOOLS, grammar=rules)[1]["choices"][0]
    check(a["message"]["content"] == "Wait." and len(a["message"]["tool_calls"]) == 1 and a["finish_reason"] == "tool_calls",
          "tools: text around a call: %s" % a)
    a = s.post(CHAT, messages=HI, tools=TOOLS, tool_choice="none", grammar=rules)[1]["choices"][0]
    check(a["message"]["content"] == text and "tool_calls" not in a["message"], "tools: none")
    for seed in range(4):  # a model of noise makes special tokens: they are no text, with tools neither
        a = s.post(CHAT, messages=HI, tools=TOOLS, seed=seed, max_tokens=60)[1]["choices"][0]["message"]["content"]
        check("<|" not in (a or ""), "tools: special tokens in %r" % a)
    back = HI + [{"role": "assistant", "content": None, "tool_calls": [
        {"id": "x", "type": "function", "function": {"name": "time", "arguments": "{\"city\": \"Rome\"}"}}]},
        {"role": "tool", "tool_call_id": "x", "content": "noon"}]
    check(s.post(CHAT, messages=back, tools=TOOLS, max_tokens=2)[0] == 200, "tools: a result")
    expect(s, 400, CHAT, "tool_choice", messages=HI, tool_choice="required")
    expect(s, 400, CHAT, "tool_choice", messages=HI, tools=TOOLS, tool_choice={"type": "function", "function": {"name": "x"}})


def check_template(folder):
    """--chat-template: a name, a file, what is neither."""
    s = Server("--chat-template", "gemma")
    prompt = s.post("/apply-template", messages=HI)[1]["prompt"]
    check(prompt.endswith("<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n"), "by name: %r" % prompt)
    rules = "root ::= \"So.<end_of_turn>\\nMore\""
    for stop in (None, ["z%d" % i for i in range(64)]):
        c = s.post(CHAT, messages=HI, grammar=rules, stop=stop)[1]["choices"][0]
        check(c["message"]["content"] == "So." and c["finish_reason"] == "stop", "the end of a turn: %s" % c)
    check(s.post(TEXT, prompt="x", grammar=rules, max_tokens=60)[1]["choices"][0]["text"].endswith("More"), "completions have none")
    check(s.stop()[0] == 0, "exit")
    path = os.path.join(folder, "own.jinja")
    with open(path, "w") as f:
        f.write("{% for m in messages %}[{{ m.content }}]{% endfor %}{{ eos_token }}")
    s = Server("--chat-template", path)
    check(s.post("/apply-template", messages=HI)[1]["prompt"] == "[Hi]<|im_end|>", "a file, with the model's tokens")
    check(s.stop()[0] == 0, "exit")
    with open(path, "w") as f:
        f.write("{% for")
    for wanted in (path, "/nonexistent.jinja", "nonsense"):
        code, err = Server("--chat-template", wanted).stop()
        check(code == 1 and wanted in err and "pull" not in err, "%s: %s" % (wanted, err))


def check_reasoning(s, folder):
    def whole(text, server=s, **kw):
        a = server.post(CHAT, messages=HI, grammar="root ::= " + json.dumps(text), **kw)[1]
        return a["choices"][0]["message"], a["usage"]["completion_tokens_details"]["reasoning_tokens"]

    def streamed(text, **kw):
        ev = s.events(CHAT, messages=HI, grammar="root ::= " + json.dumps(text), **kw)
        deltas = [e["choices"][0]["delta"] for e in ev]
        return ["".join(d.get(k) or "" for d in deltas) for k in ("reasoning_content", "content")]
    call = '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>'
    for text, reasoning, content in (("<think>\nA < b.\n</thin> ok\n</think>\n\nYes.", "A < b.\n</thin> ok", "Yes."),
                                     (" [THINK]So[/THINK]No </think>", "So", "No </think>"), ("<think></think>x", "", "x"),
                                     ("Plain <think>x</think>", "", "Plain <think>x</think>"), ("\n<thin", "", "\n<thin"),
                                     ("<think>It never ends ", "It never ends", ""), ("<think>a</think>\n ", "a", ""),
                                     ("<think>a </thi", "a </thi", "")):
        m, tokens = whole(text, reasoning_format="auto")
        check((m.get("reasoning_content", ""), m["content"]) == (reasoning, content), "reasoning of %r: %s" % (text, m))
        check((tokens > 0) == text.lstrip().startswith(("<think>", "[THINK]")), "tokens of %r: %d" % (text, tokens))
        got = streamed(text, reasoning_format="deepseek")
        check(got == [reasoning, content], "stream of %r: %s" % (text, got))
        check(whole(text)[0]["content"] == text and whole(text, reasoning_format="none")[0]["content"] == text, "as it is: %r" % text)
    m = whole("<think>Call.</think>\n" + call, tools=TOOLS, reasoning_format="auto")[0]
    check(m["reasoning_content"] == "Call." and m["content"] is None and m["tool_calls"][0]["function"]["name"] == "weather", "a call: %s" % m)
    expect(s, 400, CHAT, "reasoning_format", messages=HI, reasoning_format="x")
    # a template that begins it, and the server's option
    model = os.path.join(folder, "thinks")
    shutil.copytree(MODEL, model)
    path = os.path.join(model, "chat_template.jinja")
    text = open(path).read()
    open(path, "w").write(text.replace("assistant\\n' }}", "assistant\\n<think>\\n' }}"))
    check(open(path).read() != text, "the template")
    t = Server("--reasoning-format", "auto", model=model)
    kw = dict(messages=HI, seed=1, max_tokens=8)
    plain = t.post(CHAT, reasoning_format="none", **kw)[1]["choices"][0]["message"]["content"]
    m = t.post(CHAT, **kw)[1]["choices"][0]["message"]
    check(m["content"] == "" and m["reasoning_content"] == plain.strip() != "", "a prompt that begins it: %s, %r" % (m, plain))
    m = whole('{"a": 1}', t)[0]
    check(m["content"] == '{"a": 1}' and "reasoning_content" not in m, "a constrained answer is content: %s" % m)
    check(t.stop()[0] == 0, "exit")
    code, err = Server("--reasoning-format", "x").stop()
    check(code == 2 and "--reasoning-format" in err, "an unknown format: %s" % err)


def check_special(folder):
    """A tokenizer with a beginning of text: which requests get it."""
    model = os.path.join(folder, "begins")
    shutil.copytree(MODEL, model)
    path = os.path.join(model, "tokenizer.json")
    t = json.load(open(path))
    bos = next(a for a in t["added_tokens"] if a["content"] == "<|endoftext|>")
    both = [{"SpecialToken": {"id": bos["content"], "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    t["post_processor"] = {"type": "TemplateProcessing", "single": both, "pair": both + [{"Sequence": {"id": "B", "type_id": 0}}],
                           "special_tokens": {bos["content"]: {"id": bos["content"], "ids": [bos["id"]], "tokens": [bos["content"]]}}}
    json.dump(t, open(path, "w"))
    s = Server(model=model)
    plain = s.post("/tokenize", content="Hi")[1]["tokens"]
    turns = s.post("/tokenize", content=s.post("/apply-template", messages=HI)[1]["prompt"])[1]["tokens"]
    for body, ids in (({"content": "Hi", "add_special": True}, [bos["id"]] + plain), ({"prompt": "Hi"}, [bos["id"]] + plain),
                      ({"prompt": "Hi", "add_special_tokens": False}, plain), ({"messages": HI}, turns),
                      ({"messages": HI, "add_special_tokens": True}, [bos["id"]] + turns)):
        got = s.post("/tokenize", **body)[1]
        check(got["tokens"] == ids and got.get("count", len(ids)) == len(ids) and bos["id"] not in plain + turns, "%s: %s" % (body, got))
    check(s.stop()[0] == 0, "exit")


def check_errors(s):
    says = expect(s, 404, CHAT, "model", "model_not_found", model="none", messages=HI)["message"]
    check("'none'" in says and "'base'" in says, "what there is: " + says)
    expect(s, 400, CHAT, "messages")
    expect(s, 400, CHAT, "messages", messages="Hi")
    expect(s, 400, CHAT, "messages", messages=[{"content": "x"}])
    expect(s, 400, CHAT, "messages", messages=[{"role": "user", "content": [{"type": "image_url"}]}])
    for field, values in (("temperature", [-1, 3, "x"]), ("top_p", [-0.1, 1.5]), ("n", [0, 1000, "a"]), ("max_tokens", [0, "x"]),
                          ("stop", [3, [3]]), ("seed", ["a", 1.5]), ("logit_bias", [3, {"a": 1}, {"9999": 1}, {"5": 200}]),
                          ("stream", ["yes"]), ("top_k", ["a"]), ("min_p", [2]), ("logprobs", [3]), ("tools", [3, [{}]]),
                          ("chat_template_kwargs", [3]), ("frequency_penalty", [3, "x"]), ("presence_penalty", [-3]),
                          ("stream_options", [{}, 3]), ("stop_token_ids", [3, ["a"], [9999], [512], [-1]]), ("min_tokens", [-1, "x"]),
                          ("suffix", ["x"]), ("bad_words", ["x", [3], [""]]), ("allowed_token_ids", [3, [], ["a"], [512]]), ("max_completion_tokens", [-2])):
        for v in values:
            expect(s, 400, CHAT, field, messages=HI, **{field: v})
    expect(s, 400, CHAT, "top_logprobs", messages=HI, logprobs=True, top_logprobs=21)
    expect(s, 400, CHAT, "top_logprobs", messages=HI, top_logprobs=2)
    expect(s, 400, TEXT, "prompt")
    expect(s, 400, TEXT, "prompt", prompt=[39, 5000])
    expect(s, 400, TEXT, "prompt", prompt=[])
    expect(s, 400, TEXT, "n", prompt=["a"] * 600, n=2)
    expect(s, 400, TEXT, "prompt", "context_length_exceeded", prompt=[39] * 256)
    expect(s, 400, CHAT, "messages", "context_length_exceeded", messages=[{"role": "user", "content": "Hi " * 400}])
    check(s.post(CHAT, messages=HI, max_tokens=1, unknown_field=3)[0] == 200, "unknown fields are ignored")
    for body in (b"", b"{", b"[1]", b'"x"', b"{\"prompt\": \"\xff\"}", b"{\"a\": 1} x", b"\x00"):
        status, _, text = s.raw("POST", TEXT, body)
        check(status == 400 and json.loads(text)["error"]["type"] == "invalid_request_error", "body %r: %d" % (body, status))
    expect(s, 404, "/v1/none")
    expect(s, 405, "/health")
    expect(s, 405, CHAT, method="GET")
    status, headers, _ = s.raw("GET", CHAT)
    check(headers["Allow"] == "POST", "405 says what is allowed")
    check(s.raw("POST", CHAT, "{}", {"Content-Type": "text/plain"})[0] == 415, "415")
    check(s.raw("POST", CHAT, "{}", {"Content-Type": "application/json; charset=utf-8"})[0] == 400, "a charset is fine")


def check_access(folder):
    keys = os.path.join(folder, "keys")
    open(keys, "w").write("filekey\nother\n")
    s = Server("--api-key", "k1,k2", "--api-key-file", keys, "--cors-origins", "https://good.example", "--allowed-host",
               "my.host", "--json", env={"AFINAR_API_KEY": "envkey"})
    check(json.loads(s.line) == {"url": s.url, "model": "qwen2", "adapters": []}, "--json: " + s.line)
    check(s.raw("GET", "/health")[0] == 200 and s.raw("GET", "/")[0] == 200, "open paths")
    for key in ("k1", "k2", "filekey", "other", "envkey"):
        check(s.raw("GET", "/v1/models", headers={"Authorization": "Bearer " + key})[0] == 200, "key " + key)
    for value in ("Bearer k", "Bearer k1k", "Bearer ", "Basic k1", "k1"):
        expect(s, 401, "/v1/models", None, "invalid_api_key", method="GET", headers={"Authorization": value})
    expect(s, 401, "/nothing", None, "invalid_api_key", method="GET")
    own = {"Authorization": "Bearer k1"}
    for host, want in (("127.0.0.1:%d" % s.port, 200), ("localhost", 200), ("[::1]:80", 200), ("my.host", 200), ("my.host:99", 200),
                       ("evil.example", 403), ("127.0.0.1.evil.example", 403), ("localhost.evil.example:80", 403), ("", 403)):
        check(s.raw("GET", "/v1/models", headers=dict(own, Host=host))[0] == want, "Host %r" % host)
    for origin, want in (("http://127.0.0.1:%d" % s.port, 200), ("https://good.example", 200), ("https://evil.example", 403),
                         ("null", 403), ("http://127.0.0.1:1", 403)):
        status, headers, _ = s.raw("GET", "/v1/models", headers=dict(own, Origin=origin))
        check(status == want, "Origin %s: %d" % (origin, status))
        allow = headers.get("Access-Control-Allow-Origin")
        check(allow == ("https://good.example" if origin == "https://good.example" else None), "CORS header for " + origin)
    status, headers, _ = s.raw("OPTIONS", CHAT, headers={"Origin": "https://good.example", "Access-Control-Request-Method": "POST",
                                                         "Access-Control-Request-Headers": "authorization"})
    check(status == 204 and headers["Access-Control-Allow-Headers"] == "authorization", "preflight")
    code, err = s.stop()
    check(code == 0 and "k1" not in err and "envkey" not in err, "no key on stderr")


def check_drain():
    s = Server("-v", "-np", "2", "-a", "other name", "--header-timeout", "3600")
    check(s.line == "listening on http://127.0.0.1:%d\n" % s.port, "the line")
    got = []
    t = threading.Thread(target=lambda: got.append(s.post(TEXT, prompt="Hello", max_tokens=240, ignore_eos=True, n=8)))
    before, half = s.connect(), s.connect()
    half.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: loc")
    t.start()
    while s.metric("afinar_requests_processing") == 0 and t.is_alive():
        pass
    code, err = s.stop()
    t.join()
    check(code == 0 and got and got[0][0] == 200, "drained: %s %s" % (code, str(got)[:200]))
    check(got[0][1]["model"] == "other name", "alias")
    check("POST /v1/completions 200" in err and "Hello" not in err, "one line per request, no texts: " + err)
    check(half.recv(4096).startswith(b"HTTP/1.1 503 "), "a head that was not complete does not hold up the end")
    before.close()
    half.close()


def check_disconnect(s):
    body = json.dumps({"prompt": "Hello", "max_tokens": 250, "ignore_eos": True, "n": 64, "stream": True})
    before = s.metric("afinar_tokens_predicted_total")
    with s.connect() as c:
        c.sendall(("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" %
                   (TEXT, len(body), body)).encode())
        c.recv(100)
    begin = time.time()
    while s.metric("afinar_requests_processing") and time.time() - begin < 300:
        time.sleep(0.01)
    made = s.metric("afinar_tokens_predicted_total") - before
    check(made < 64 * 250 / 2, "a closed connection frees its slot: %d tokens were made for nobody" % made)


def check_slots():
    """One slot: a client that goes away, streaming or not, lets the next one in."""
    s = Server("-np", "1")
    for stream in (True, False):
        body = json.dumps({"prompt": "Hello", "max_tokens": 250, "ignore_eos": True, "n": 100, "stream": stream})
        before = s.metric("afinar_tokens_predicted_total")
        with s.connect() as c:
            c.sendall(("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" %
                       (TEXT, len(body), body)).encode())
            while s.metric("afinar_requests_processing") == 0:
                time.sleep(0.001)
        check(s.post(TEXT, prompt="Hello", max_tokens=2)[0] == 200, "the next request")
        made = s.metric("afinar_tokens_predicted_total") - before
        check(made < 100 * 250 / 2, "one slot: %d tokens were made for nobody" % made)
    check(s.stop()[0] == 0, "one slot")


def check_long_context():
    for args, said in ((["--ctx-size", "256"], False), (["--ctx-size", "257"], True), ([], False)):
        s = Server(*args)
        s.post(TEXT, prompt="Hello", max_tokens=1)
        code, err = s.stop()
        check(code == 0 and ("a context of 257 tokens is more than the 256" in err) == said, "%s: %s" % (args, err))


def check_usage_errors():
    s = Server("--host", "0.0.0.0")
    code, err = s.stop()
    check(code == 2 and "key" in err, "a host for others needs a key: %s %s" % (code, err))
    for args, words in ((["--adapter", "x"], "NAME=DIR"), (["--pooling", "max"], "--pooling"), (["--port", "70000"], "--port"),
                        (["--cors-origins", "https://a,https://b/"], "--cors-origins"), (["--cors-origins", "localhost:3000"], "--cors-origins"),
                        (["--max-body", "x"], "--max-body"), (["--api-key", ""], "--api-key is empty"),
                        (["--api-key", " ,"], "--api-key is empty")):
        code, err = Server(*args).stop()
        check(code == 2 and words in err, "%s: %d %s" % (args, code, err))
    code, err = Server(command=[AFINAR, "train", "none.yaml", "--api-key", ""]).stop()
    check(code == 2 and "--api-key is empty" in err, "train with an empty key: %d %s" % (code, err))
    code, err = Server("--api-key-file", os.devnull).stop()
    check(code == 1 and "has no key" in err, "an empty file of keys: %d %s" % (code, err))
    code, err = Server("--adapter", "a=/nonexistent").stop()
    check(code == 1 and "a" in err, "an adapter that is not there")


def main():
    with tempfile.TemporaryDirectory() as folder:
        write_adapter(os.path.join(folder, "one"), 11)
        write_adapter(os.path.join(folder, "two"), 22, rank=5, targets=("v_proj", "k_proj", "o_proj"), dora=True)
        adapters = [a for name in ("one", "two") for a in ("--adapter", name + "=" + os.path.join(folder, name))]
        s = Server("--alias", "base", *adapters)
        if not s.port:
            print(s.stop())
            sys.exit("the server does not start")
        parts = [check_info, check_texts, check_chat, check_sampling, check_completions, check_cached, check_embeddings,
                 check_formats, check_tools, check_errors, check_disconnect]
        for part in parts + [lambda s: check_adapters(s, folder), lambda s: check_reasoning(s, folder)]:
            try:
                part(s)
            except Exception as e:
                check(False, "%s: %r" % (part.__name__, e))
        code, err = s.stop(signal.SIGINT)
        check(code == 0, "exit status after Ctrl-C: %s %s" % (code, err[-2000:]))
        check_access(folder)
        check_template(folder)
        check_special(folder)
    check_slots()
    check_drain()
    check_long_context()
    check_usage_errors()
    finish()


main()
