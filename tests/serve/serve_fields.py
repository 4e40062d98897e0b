"""Fields of requests that OpenAI's API does not have, with the standard library alone."""
import json
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["AF_SOURCE"], "tests", "cli"))
from chain_model import write_model
from serve_start import MODEL, Server, check, finish

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HI = [{"role": "user", "content": "Hi"}]


def check_min_tokens(s):
    def made(**body):
        a = s.post(TEXT, prompt="Hello", temperature=0, max_tokens=20, return_token_ids=True, **body)[1]["choices"][0]
        return a["token_ids"], a["finish_reason"], a["text"]

    end = {"logit_bias": {"511": 100}}  # the model's end token, at once
    check(made(**end)[0] == [511], "the end token")
    ids, finish_reason, _ = made(min_tokens=5, **end)
    check(len(ids) == 6 and ids.index(511) == 5 and finish_reason == "stop", "five tokens, then the end: %s" % ids)
    check(len(made(min_tokens=20, **end)[0]) == 20 and 511 not in made(min_tokens=20, **end)[0], "max_tokens comes first")
    check(made(min_tokens=5, ignore_eos=True, **end)[0] == [511] * 20, "ignore_eos: no token ends")
    stop = made()[0][2]
    ids = made(stop_token_ids=[stop], min_tokens=6)[0]
    check(stop not in ids[:6] and len(ids) >= 6, "stop_token_ids: %s" % ids)
    # stop strings: none in the text of the first tokens, also not one that begins there
    word = "root ::= \"" + "ab" * 20 + "\""
    whole = s.post(TEXT, prompt="Hello", temperature=0, max_tokens=60, grammar=word, stop="ba")[1]["choices"][0]
    check(whole["text"] == "a", "a stop string: %s" % whole)
    for n in (1, 2, 5):
        body = dict(prompt="Hello", temperature=0, max_tokens=60, grammar=word, stop="ba", min_tokens=n, return_token_ids=True)
        c = s.post(TEXT, **body)[1]["choices"][0]
        kept = s.post("/detokenize", tokens=c["token_ids"][:n])[1]["content"]
        want = ("ab" * 20).find("ba", len(kept))
        check(c["text"] == "ab" * 20 if want < 0 else c["text"] == ("ab" * 20)[:want], "after %d tokens (%s): %s" % (n, kept, c["text"]))
        check("".join(e["choices"][0]["text"] for e in s.events(TEXT, **body)) == c["text"], "the same in a stream")
    c = s.post(CHAT, messages=HI, guided_choice=["yes"], min_tokens=30)[1]["choices"][0]
    check(c["message"]["content"] == "yes" and c["finish_reason"] == "stop", "a grammar comes first: %s" % c)
    status, answer = s.post(CHAT, messages=HI, max_tokens=3, min_tokens=4)
    check(status == 400 and answer["error"]["param"] == "min_tokens", "more than max_tokens: %s" % answer)


def check_limits(s):
    def made(**body):
        a = s.post(TEXT, prompt="Hello", temperature=0, max_tokens=12, return_token_ids=True, **body)[1]["choices"][0]
        return a["token_ids"], a["text"]

    free, text = made()
    some = [5, 9, 40]
    ids = made(allowed_token_ids=some)[0]
    check(set(ids) <= set(some) and len(ids) == 12, "allowed_token_ids: %s" % ids)
    check(made(allowed_token_ids=list(range(512)))[0] == free, "all of them: nothing changes")
    check(made(allowed_token_ids=[511])[0] == [511], "the end token alone")
    for tokens in ([5, 512], [-1], [[5], [512]]):  # the model has 512 tokens
        status, r = s.post(TEXT, prompt=tokens, max_tokens=1)
        check(status == 400 and r["error"]["param"] == "prompt", "%s: %s" % (tokens, r))
    check(s.post(TEXT, prompt=[[5], [511]], max_tokens=1)[0] == 200, "the last token")
    for word in (s.post("/detokenize", tokens=free[2:4])[1]["content"], s.post("/detokenize", tokens=free[1:2])[1]["content"]):
        tokens = s.post("/tokenize", content=word.lstrip(" "))[1]["tokens"]
        ids = made(bad_words=[word])[0]
        check(all(ids[i:i + len(tokens)] != tokens for i in range(12)), "bad_words %r: %s" % (word, ids))
    check(made(bad_words=["not in it at all"])[0] == free, "a word that does not come")
    for seed in range(4):
        c = s.post(CHAT, messages=HI, guided_choice=["aab", "c"], bad_words=["c"], seed=seed)[1]["choices"][0]["message"]["content"]
        check(c == "aab", "with a grammar: %s" % c)


def check_best_of(s):
    """The most likely of several answers to each prompt; all are counted."""
    def made(**body):
        r = s.post(TEXT, prompt=["Hello", "The cat"], max_tokens=5, seed=3, **body)[1]
        return [(c["text"], c["index"]) for c in r["choices"]], r

    r = made(n=6, logprobs=0)[1]
    mean = lambda c: sum(c["logprobs"]["token_logprobs"]) / len(c["logprobs"]["token_logprobs"])
    want = [c["text"] for k in (0, 6) for c in sorted(r["choices"][k:k + 6], key=mean, reverse=True)[:2]]
    got, best = made(n=2, best_of=6)
    check(got == list(zip(want, range(4))) and best["usage"] == r["usage"], "best_of: %s %s" % (got, want))
    check([c[0] for c in made(best_of=6)[0]] == want[::2], "one of six")
    check(made(best_of=6, n=6)[0] == made(n=6)[0], "as many as n: in their order")
    for body in (dict(best_of=2, n=3), dict(best_of=3, stream=True), dict(best_of="a")):
        status, r = s.post(TEXT, prompt="Hello", **body)
        check(status == 400 and r["error"]["param"] == "best_of", "%s: %s" % (body, r))
    check(s.post(CHAT, messages=HI, best_of=2)[0] == 400 and s.post(CHAT, messages=HI, best_of=1, max_tokens=1)[0] == 200, "chats")


def check_others(s):
    """Fields of other servers that change an answer there: none is passed over, and their neutral values are fine."""
    neutral = {"modalities": ["text"], "mirostat": 0, "typical_p": 1, "dry_multiplier": 0.0, "xtc_probability": 0, "dynatemp_range": 0,
               "top_n_sigma": -1.0, "n_probs": 0, "prompt_logprobs": None, "truncate_prompt_tokens": None, "include_stop_str_in_output": False,
               "logits_processors": [], "audio": None, "chat_template": None, "grammar": "", "web_search_options": None}
    both = {"modalities": ["text", "audio"], "mirostat": 2, "typical_p": 0.5, "dry_multiplier": 0.8, "xtc_probability": 0.1, "dynatemp_range": 0.2,
            "top_n_sigma": 1.5, "n_probs": 2, "prompt_logprobs": 1, "truncate_prompt_tokens": 3, "include_stop_str_in_output": True,
            "logits_processors": ["x"], "audio": {"voice": "x"}, "chat_template": "x", "use_beam_search": True, "web_search_options": {}}
    for path, body in ((CHAT, {"messages": HI}), (TEXT, {"prompt": "a"})):
        status, r = s.post(path, max_tokens=1, **body, **neutral)
        check(status == 200, "neutral values: %s" % r)
        for field, value in both.items():
            status, r = s.post(path, max_tokens=1, **body, **{field: value})
            check(status == 400 and r["error"]["param"] == field, "%s %s: %s" % (path, field, r))
    status, r = s.post(CHAT, messages=HI, max_tokens=1, logprobs=False, top_logprobs=0)
    check(status == 200 and r["choices"][0]["logprobs"] is None, "no top_logprobs: %s" % r)
    status, r = s.post(CHAT, messages=HI, max_tokens=1, echo=True)
    check(status == 400 and r["error"]["param"] == "echo", "echo in chats: %s" % r)
    # what the answer may be is said once
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": [1]}}}
    for field, body in (("structured_outputs", {"structured_outputs": {}}), ("structured_outputs", {"structured_outputs": {"schema": {}}}),
                        ("structured_outputs", {"structured_outputs": {"json": {}, "regex": "a"}}),
                        ("structured_outputs", {"structured_outputs": {"json": {}, "json_object": True}}),
                        ("guided_regex", {"guided_json": {}, "guided_regex": "a"}), ("response_format", {"guided_regex": "a", "response_format": form}),
                        ("response_format", {"grammar": "root ::= \"a\"", "response_format": form}),
                        ("grammar", {"grammar": "root ::= \"a\"", "json_schema": {}}), ("json_schema", {"guided_regex": "a", "json_schema": {}})):
        status, r = s.post(CHAT, messages=HI, max_tokens=1, **body)
        check(status == 400 and r["error"]["param"] == field, "%s: %s" % (body, r))
    c = s.post(CHAT, messages=HI, max_tokens=9, guided_regex="a", response_format={"type": "text"})[1]["choices"][0]["message"]["content"]
    check(c == "a", "a format of text says nothing: %s" % c)


def check_infill(s):
    """The tokens of these names are 509 to 511 here."""
    def prompt(**body):
        return s.post(TEXT, temperature=0, max_tokens=1, return_token_ids=True, **body)[1]["choices"][0]["prompt_token_ids"]

    ids = {t: s.post("/tokenize", content=t)[1]["tokens"] for t in ("def f(", "\n    return x")}
    want = [509] + ids["def f("] + [510] + ids["\n    return x"] + [511]
    check(prompt(prompt="def f(", suffix="\n    return x") == want, "the prompt: %s" % want)
    check(prompt(prompt="def f(", suffix="") == ids["def f("], "no suffix")
    check(s.post(TEXT, prompt="a", suffix="b", max_tokens=2, temperature=0, stream=False)[1]["choices"][0]["text"] ==
          s.post(TEXT, prompt=prompt(prompt="a", suffix="b"), max_tokens=2, temperature=0)[1]["choices"][0]["text"], "the same as its tokens")
    r = s.post(TEXT, prompt=["a", "b"], suffix="c", max_tokens=1)[1]
    check(len(r["choices"]) == 2, "two prompts: %s" % r)
    for field, body in (("prompt", {"prompt": [1, 2]}), ("echo", {"prompt": "a", "echo": True}), ("suffix", {"prompt": "a", "suffix": 3})):
        status, r = s.post(TEXT, **dict({"suffix": "b"}, **body))
        check(status == 400 and r["error"]["param"] == field, "%s: %s" % (field, r))


def check_infill_of_editors(s):
    """The prompt of /infill is seen in its answers alone: those of the same tokens."""
    ids = lambda text: s.post("/tokenize", content=text)[1]["tokens"]
    line, a = s.post("/infill", input_prefix="def f(", input_suffix="\n", prompt="x", n_predict=4, temperature=0, return_tokens=True)
    want = [509] + ids("def f(") + ids("x") + [510] + ids("\n") + [511]
    same = s.post("/completion", prompt=want, n_predict=4, temperature=0, return_tokens=True)[1]
    check(line == 200 and a["tokens"] == same["tokens"] and a["tokens_evaluated"] == len(want), "prefix, line, suffix: %s %s" % (a, same))
    extra = [{"filename": "a.c", "text": "int a;"}, {"text": "int b;"}]
    want = ids("\n\n--- snippet ---\n\n") + ids("int a;") + ids("\n\n--- snippet ---\n\n") + ids("int b;") + [509] + ids("a") + [510, 511]
    a = s.post("/infill", input_prefix="a", input_suffix="", input_extra=extra, n_predict=3, temperature=0, return_tokens=True)[1]
    same = s.post("/completion", prompt=want, n_predict=3, temperature=0, return_tokens=True)[1]
    check(a["tokens"] == same["tokens"] and a["tokens_evaluated"] == len(want), "other texts: %s %s" % (a, same))
    # of what does not fit, the nearest remains: 256 tokens of context
    status, a = s.post("/infill", input_prefix="x " * 400, input_suffix="y " * 400, input_extra=extra, n_predict=8)
    check(status == 200 and 200 < a["tokens_evaluated"] <= 248, "long texts: %s" % a)
    before, after = "abcdefgh " * 100, "tuvwxyz " * 100
    room = 256 - 8 - 8  # without the answer and the marks
    want = [509] + ids(before)[-(room - room // 4):] + [510] + ids(after)[:room // 4] + [511]
    same = s.post("/completion", prompt=want, n_predict=8, temperature=0, return_tokens=True)[1]
    a = s.post("/infill", input_prefix=before, input_suffix=after, n_predict=8, temperature=0, return_tokens=True, echo=True)[1]
    check((a["tokens"], a["tokens_evaluated"], a["timings"]["cache_n"]) == (same["tokens"], len(want), 128), "what is cut off: %s %s" % (a, same))
    status, r = s.post(TEXT, prompt=["a"] * 2049, suffix="b")
    check(status == 400 and "at most 2048" in r["error"]["message"], "many prompts: %s" % r)
    for field, body in (("input_prefix", {"input_prefix": 3}), ("input_extra", {"input_extra": [1]}), ("n_predict", {"n_predict": "a"})):
        status, r = s.post("/infill", **body)
        check(status == 400 and r["error"]["param"] == field, "%s: %s" % (field, r))


def check_infill_of_projects(s):
    """Tokens between files, or before a project; the suffix comes first. 510 is that token here, and ends a text, too."""
    ids = lambda text: s.post("/tokenize", content=text)[1]["tokens"]
    if s.post("/detokenize", tokens=[510])[1]["content"] == "<|file_sep|>":
        first, rest = [510] + ids("a.c\n"), [510] + ids("tmp\n") + ids("int b;") + [510] + ids("filename\n")
    else:
        cut = ids("\n\n--- snippet ---\n\n")
        first, rest = [510] + ids("myproject\n") + cut, cut + ids("int b;")
    body = dict(input_prefix="a", input_suffix="b", input_extra=[{"filename": "a.c", "text": "int a;"}, {"text": "int b;"}], n_predict=4,
                temperature=0, return_tokens=True)
    gap = [511] + ids("b") + [509] + ids("a")
    for text in ("int a;", "int a; " * 300):  # of a long one the end remains
        body["input_extra"][0]["text"] = text
        want = [509] + (first + ids(text) + rest)[-(256 - 4 - 8 - 2):] + gap
        a, same = s.post("/infill", **body)[1], s.post("/completion", prompt=want, n_predict=4, temperature=0, return_tokens=True)[1]
        check((a["tokens"], a["tokens_evaluated"]) == (same["tokens"], len(want)), "files: %s %s" % (a, same))
    a = s.post("/infill", logit_bias=[[510, 100]], **body)[1]
    check((a["stop_type"], a["content"]) == ("eos", ""), "the next file is not the answer: %s" % a)


def check_llama_completion(s):
    """llama-server's own endpoint for text."""
    a = s.post("/completion", prompt="Hello", n_predict=5, temperature=0, return_tokens=True)[1]
    same = s.post(TEXT, prompt="Hello", max_tokens=5, temperature=0, return_token_ids=True)[1]["choices"][0]
    check((a["content"], a["tokens"]) == (same["text"], same["token_ids"]), "the same text: %s %s" % (a, same))
    check((a["stop"], a["stop_type"], a["tokens_predicted"], a["tokens_evaluated"], a["timings"]["predicted_n"]) == (True, "limit", 5, 3, 5), "its end: %s" % a)
    stop = a["content"][-3:]
    b = s.post("/completion", prompt="Hello", temperature=0, stop=[stop])[1]
    check(b["stop_type"] == "word" and b["stopping_word"] == stop and stop not in b["content"], "a stop: %s" % b)
    b = s.post("/completion", prompt="Hello", logit_bias=[[511, 100], [3, False]], temperature=0)[1]
    check((b["stop_type"], b["content"]) == ("eos", ""), "the end token: %s" % b)
    text = s.raw("POST", "/completion", json.dumps(dict(prompt="Hello", n_predict=5, temperature=0, stream=True)))[2].decode()
    events = [json.loads(e[6:]) for e in text.split("\n\n")[:-1]]
    check("".join(e["content"] for e in events) == a["content"] and [e["stop"] for e in events] == [False] * (len(events) - 1) + [True] and
          events[-1]["content"] == "" and events[-1]["stop_type"] == "limit", "a stream: %s" % text)
    two = s.post("/completions", prompt=["Hello", "a"], n_predict=5, temperature=0)[1]
    check([x["index"] for x in two] == [0, 1] and two[0]["content"] == a["content"], "two prompts: %s" % two)
    b = s.post("/completion", prompt="Hello", n_predict=0, response_fields=["content", "timings/prompt_n", "no", "no/no"])[1]
    check(b == {"content": "", "timings/prompt_n": 3}, "the prompt alone, some fields: %s" % b)
    # a limit on the time, once there is a line
    for first, less in (("a\n", True), ("ab", False)):
        b = s.post("/completion", prompt="Hello", n_predict=200, t_max_predict_ms=1, grammar="root ::= " + json.dumps(first) + " [c-z]*", logit_bias=[[511, -100]])[1]
        check((b["tokens_predicted"] < 200) == less and b["stop_type"] == "limit", "t_max_predict_ms: %s" % b)
    for path, seed in (("/completion", -1), ("/completion", (1 << 32) - 1), ("/api/generate", -1)):
        draws = {json.dumps([r.get("content"), r.get("response")]) for r in (s.post(
            path, prompt="Hello", raw=True, stream=False, n_predict=8, seed=seed, options={"num_predict": 8, "seed": seed})[1] for _ in range(4))}
        check(len(draws) > 1, "a random seed: %s" % draws)
    # limits
    long = s.post("/completion", prompt="Hello", temperature=0, logit_bias=[[511, False]])[1]
    check(long["tokens_predicted"] == 253 and long["generation_settings"]["n_predict"] == -1, "no limit: %s" % long)
    check(s.post("/completion", prompt="Hello", max_tokens=3, temperature=0, logit_bias=[[511, False]])[1]["tokens_predicted"] == 3, "max_tokens")
    check("timings" in s.post("/completion", prompt="Hello", n_predict=1, response_fields=[])[1], "no fields: all")
    for n in (5, 0):
        text = s.raw("POST", "/completion", json.dumps(dict(prompt="Hello", n_predict=n, temperature=0, stream=True, return_tokens=True)))[2].decode()
        got = [json.loads(e[6:]) for e in text.split("\n\n")[:-1]]
        check(sum((e["tokens"] for e in got), []) == a["tokens"][:n] and got[-1]["stop"], "tokens of a stream: %s" % text)
    for _ in range(2):
        t = s.post("/completion", prompt="Hello there, " * 40, n_predict=1)[1]
    check(t["timings"]["cache_n"] > 0 and t["timings"]["cache_n"] + t["timings"]["prompt_n"] == t["tokens_evaluated"], "kept tokens: %s" % t)
    g = s.post("/completion", prompt="Hello", n_predict=1, samplers=["top_k"], min_p=0.2)[1]["generation_settings"]
    check((g["temperature"], g["top_k"], g["top_p"], g["min_p"]) == (1, 40, 1, 0), "samplers: %s" % g)
    for field, body in (("mirostat", {"mirostat": 2}), ("n_predict", {"n_predict": -5}), ("logit_bias", {"logit_bias": [["a", 1]]}), ("temperature", {"temperature": "a"})):
        status, r = s.post("/completion", prompt="Hello", **body)
        check(status == 400 and r["error"]["param"] == field, "%s: %s" % (field, r))
    check(s.post("/chat/completions", messages=HI, max_tokens=1)[0] == 200 and s.ask("GET", "/models") == s.ask("GET", "/v1/models"), "paths without /v1")


def infill_model(folder, names=("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")):
    for name in os.listdir(MODEL):
        if name != "tokenizer.json":
            os.symlink(os.path.abspath(os.path.join(MODEL, name)), os.path.join(folder, name))
    with open(os.path.join(MODEL, "tokenizer.json")) as f:
        text = f.read()
    for old, new in zip(("<|endoftext|>", "<|im_start|>", "<|im_end|>"), names):
        text = text.replace(old, new)
    tokenizer = json.loads(text)
    if names[0] == "[PREFIX]":  # every text begins with it
        mark, rest = {"SpecialToken": {"id": names[0], "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
        tokenizer["post_processor"] = {"type": "TemplateProcessing", "single": [mark, rest], "pair": [mark, rest, dict(Sequence={"id": "B", "type_id": 1})],
                                       "special_tokens": {names[0]: {"id": names[0], "ids": [509], "tokens": [names[0]]}}}
    with open(os.path.join(folder, "tokenizer.json"), "w") as f:
        json.dump(tokenizer, f)
    return folder


TEMPLATE = """{# <|channel|> #}{% for m in messages %}<|start|>{{ m.role }}{% if m.thinking %}[{{ m.thinking }}]{% endif %}<|message|>
{{- m.content }}<|end|>{% endfor %}{{ reasoning_effort | default('') }}{% if add_generation_prompt %}<|start|>assistant{% endif %}"""
CALLS = """{% for m in messages %}<|im_start|>{{ m.role }}{{ m.tool_call_id | default('') }}{{ m.name | default('') }}:{{ m.reasoning_content | default('') }}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c | tojson }}
{%- endfor %}<|im_end|>{% endfor %}<|im_start|>assistant:"""
WEATHER = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"]}}
TOOLS = [{"type": "function", "function": WEATHER}]


def check_functions(s):
    """Tools as OpenAI's first API had them."""
    other = dict(WEATHER, name="other")
    calls = {"name": "weather", "arguments": "{\"city\": \"Rome\"}"}
    answer = {"grammar": "root ::= " + json.dumps("<tool_call>" + json.dumps({"name": "weather", "arguments": {"city": "Rome"}}) + "</tool_call>")}
    for body in (dict(functions=[other, WEATHER], function_call={"name": "weather"}), dict(functions=[WEATHER], **answer)):
        c = s.post(CHAT, messages=HI, seed=1, **body)[1]["choices"][0]
        m = c["message"]
        check(c["finish_reason"] == "function_call" and "tool_calls" not in m and m["content"] is None, "a call: %s" % c)
        check(m["function_call"]["name"] == "weather" and json.loads(m["function_call"]["arguments"])["city"] in ("Rome", "Oslo"), "its arguments: %s" % m)
        chunks = [e["choices"][0] for e in s.events(CHAT, messages=HI, seed=1, **body)]
        check([d["delta"]["function_call"] for d in chunks if "function_call" in d["delta"]] == [m["function_call"]] and
              chunks[-1]["finish_reason"] == "function_call", "in a stream: %s" % chunks)
    c = s.post(CHAT, messages=HI, functions=[WEATHER], function_call="none", max_tokens=2, **answer)[1]["choices"][0]
    check("function_call" not in c["message"] and c["message"]["content"], "none: %s" % c)
    old = HI + [{"role": "assistant", "content": None, "function_call": calls}, {"role": "function", "name": "weather", "content": "sunny"}]
    new = HI + [{"role": "assistant", "content": "", "tool_calls": [{"id": "call00001", "type": "function", "function": calls}]},
                {"role": "tool", "tool_call_id": "call00001", "name": "weather", "content": "sunny"}]
    prompts = [s.post("/apply-template", messages=m)[1]["prompt"] for m in (old, new)]
    check(prompts[0] == prompts[1] and "Rome" in prompts[0] and "sunny" in prompts[0], "earlier calls: %s" % prompts)
    one = {"id": "c", "type": "function", "function": {"name": "sql", "arguments": {"input": "x"}}}
    two = {"id": "c", "type": "custom", "custom": {"name": "sql", "input": "x"}}
    prompts = [s.post("/apply-template", messages=HI + [{"role": "assistant", "content": "", "tool_calls": [c]}])[1]["prompt"] for c in (one, two)]
    check(prompts[0] == prompts[1] and "sql" in prompts[0], "an earlier call of a custom tool: %s" % prompts)
    for field, body in (("function_call", {"function_call": {"name": "x"}, "functions": [WEATHER]}), ("functions", {"functions": [WEATHER], "tools": TOOLS}),
                        ("functions", {"functions": {}}), ("function_call", {"function_call": 3})):
        status, r = s.post(CHAT, messages=HI, **body)
        check(status == 400 and r["error"]["param"] == field, "%s: %s" % (field, r))


def check_ollama(s):
    """Ollama's API says the same in its own words."""
    def lines(path, **body):
        status, head, text = s.raw("POST", path, json.dumps(dict(body, model="base")))
        check(status == 200 and head["Content-Type"] == "application/x-ndjson", "lines of %s" % path)
        return [json.loads(l) for l in text.decode().splitlines()]

    few = {"num_predict": 6, "temperature": 0}
    want = s.post(CHAT, messages=HI, max_tokens=6, temperature=0)[1]
    text = want["choices"][0]["message"]["content"]
    a = s.post("/api/chat", model="base:latest", messages=HI, stream=False, options=few)[1]
    check(a["message"] == {"role": "assistant", "content": text} and (a["done"], a["done_reason"]) == (True, "length"), "chat: %s" % a)
    check((a["prompt_eval_count"], a["eval_count"]) == (want["usage"]["prompt_tokens"], 6) and a["total_duration"] > a["eval_duration"] > 0, "counts: %s" % a)
    got = lines("/api/chat", messages=HI, options=few)
    check("".join(l["message"]["content"] for l in got) == text and [l["done"] for l in got] == [False] * (len(got) - 1) + [True], "a stream: %s" % got)
    got = lines("/api/generate", prompt="Hi", options=few)
    check("".join(l["response"] for l in got) == text and got[-1]["done_reason"] == "length", "generate: %s" % got)
    raw = s.post(TEXT, prompt="Hi", max_tokens=6, temperature=0)[1]["choices"][0]["text"]
    check(s.post("/api/generate", prompt="Hi", raw=True, stream=False, options=few)[1]["response"] == raw, "raw")
    a = s.post("/api/generate", prompt="Hi", raw=True, stream=False, options={"num_predict": 20, "seed": 5})[1]["response"]
    check(a == s.post(TEXT, prompt="Hi", max_tokens=20, seed=5, temperature=0.8, top_k=40, top_p=0.9)[1]["choices"][0]["text"], "its own sampling: %s" % a)
    check(s.post("/api/generate", prompt="Hi", raw=True, stream=False, options={"num_predict": -2, "temperature": 0})[1]["eval_count"] > 20, "no limit")
    a = s.post("/api/generate", prompt="Hi", system="Be brief.", format="", stream=False, options=few)[1]
    b = s.post(CHAT, messages=[{"role": "system", "content": "Be brief."}] + HI, max_tokens=6, temperature=0)[1]
    check((a["response"], a["prompt_eval_count"]) == (b["choices"][0]["message"]["content"], b["usage"]["prompt_tokens"]), "system: %s %s" % (a, b))
    for path in ("/api/generate", "/api/chat"):
        for empty in ({}, {"messages": [], "prompt": ""}):
            check(s.post(path, model="base", **empty)[1]["done_reason"] == "load", "%s without a text" % path)
    schema = {"type": "object", "properties": {"city": {"enum": ["Rome"]}}, "required": ["city"]}
    check(json.loads(s.post("/api/chat", messages=HI, format=schema, stream=False)[1]["message"]["content"]) == {"city": "Rome"}, "a schema")
    # ids of earlier calls follow their order
    f = {"function": {"name": "weather", "arguments": {"city": "Oslo"}}}
    old = HI + [{"role": "assistant", "content": "", "thinking": "Which one?", "tool_calls": [f, f]}] + [{"role": "tool", "tool_name": "weather", "content": "snow"}] * 2
    new = HI + [{"role": "assistant", "content": "", "reasoning_content": "Which one?", "tool_calls": [dict({"id": "call0000%d" % i, "type": "function"}, **f) for i in (0, 1)]}]
    new += [{"role": "tool", "tool_call_id": "call0000%d" % i, "name": "weather", "content": "snow"} for i in (0, 1)]
    a = s.post("/api/chat", messages=old, stream=False, options=few)[1]
    b = s.post(CHAT, messages=new, max_tokens=6, temperature=0)[1]
    check((a["message"]["content"], a["prompt_eval_count"]) == (b["choices"][0]["message"]["content"], b["usage"]["prompt_tokens"]), "earlier calls: %s" % a)
    models = s.ask("GET", "/api/tags")[1]["models"]
    names = [m["name"] for m in models]
    check(s.ask("GET", "/api/ps")[1]["models"][0]["expires_at"][:4] > models[0]["modified_at"][:4], "a model stays")
    check(names == ["base"] and s.ask("GET", "/api/ps")[1]["models"][0]["context_length"] == 256 and "version" in s.ask("GET", "/api/version")[1], "models: %s" % names)
    show = s.post("/api/show", name="base")[1]
    check(show["model_info"]["qwen2.context_length"] == 256 and show["details"]["parameter_size"] == "0.1M", "show: %s" % show)
    check(show["capabilities"] == ["embedding", "completion"], "the template has calls, no tools: %s" % show["capabilities"])
    check(s.post("/api/embed", input=["a", "b"])[1]["prompt_eval_count"] == 2, "tokens of embeddings")
    for field, body in (("context", {"context": [1]}), ("suffix", {"suffix": "b"})):
        code, r = s.post("/api/generate", prompt="a", **body)
        check(code == 400 and field in r["error"], "%s: %s" % (field, r))
    vectors = [d["embedding"] for d in s.post("/v1/embeddings", input=["a", "b"])[1]["data"]]
    check(s.post("/api/embed", input=["a", "b"])[1]["embeddings"] == vectors and s.post("/api/embeddings", prompt="b")[1]["embedding"] == vectors[1], "embeddings")
    code, r = s.post("/api/embeddings", prompt=["a", "b"])
    check(code == 400 and "prompt" in r["error"], "two prompts of /api/embeddings: %s" % r)
    form = {"Content-Type": "application/x-www-form-urlencoded"}  # curl -d
    page = dict(form, Origin="http://127.0.0.1:%d" % s.port)
    for path, head, status in (("/api/show", form, 200), ("/api/show", page, 415), (CHAT, form, 415)):
        code = s.raw("POST", path, json.dumps({"model": "base"}), head)[0]
        check(code == status, "%s with %s: %d" % (path, head, code))
    for word, status, body in (("model 'x'", 404, {"model": "x"}), ("mirostat", 400, {"options": {"mirostat": 1}}), ("images", 400, {"messages": [dict(HI[0], images=["a"])]}),
                               ("format", 400, {"format": 3}), ("think", 400, {"think": 3})):
        code, r = s.post("/api/chat", **dict({"messages": HI}, **body))
        check(code == status and word in r["error"], "%s: %s" % (word, r))


def check_channels(s):
    """Messages of gpt-oss: a constrained answer begins in the last one, which the grammar ends here."""
    next_one = "<|end|><|start|>assistant<|channel|>"
    answer = ("One." + next_one + "analysis<|message|>Two." + next_one + "analysis<|message|>Three." + next_one +
              "commentary to=functions.weather <|constrain|>json<|message|>{\"city\": \"Rome\"}")
    body = dict(messages=HI, tools=TOOLS, grammar="root ::= " + json.dumps(answer))
    c = s.post(CHAT, **body)[1]["choices"][0]
    m = c["message"]
    check((m["content"], m["reasoning_content"], c["finish_reason"]) == ("One.", "Two.\nThree.", "tool_calls"), "channels: %s" % c)
    check([t["function"] for t in m["tool_calls"]] == [{"name": "weather", "arguments": "{\"city\": \"Rome\"}"}], "a call: %s" % m)
    deltas = [e["choices"][0]["delta"] for e in s.events(CHAT, **body)]
    for name in ("content", "reasoning_content"):
        check("".join(d.get(name) or "" for d in deltas) == m[name], "%s of a stream" % name)
    check([t["function"] for d in deltas for t in d.get("tool_calls", [])] == [t["function"] for t in m["tool_calls"]], "calls of a stream")
    r = s.post("/v1/responses", input="Hi", tools=[dict(WEATHER, type="function")], grammar=body["grammar"])[1]
    check([i["type"] for i in r["output"]] == ["message", "reasoning", "reasoning", "function_call"] and
          [i["content"][0]["text"] for i in r["output"][:3]] == ["One.", "Two.", "Three."], "items: %s" % r["output"])
    check(0 < r["usage"]["output_tokens_details"]["reasoning_tokens"] < r["usage"]["output_tokens"], "tokens: %s" % r["usage"])
    r = s.post("/v1/messages", messages=HI, max_tokens=900, tools=[{"name": "weather", "input_schema": WEATHER["parameters"]}],
               grammar=body["grammar"])[1]
    check([b["type"] for b in r["content"]] == ["text", "thinking", "thinking", "tool_use"], "blocks: %s" % r)
    c = s.post(CHAT, messages=HI, grammar="root ::= \"So" + next_one + "analysis<|message|>and so on\"")[1]["choices"][0]["message"]
    check((c["content"], c["reasoning_content"]) == ("So", "and so on"), "cut off: %s" % c)
    for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
        c = s.post(CHAT, messages=HI, tools=TOOLS, tool_choice=choice, seed=3)[1]["choices"][0]
        check(c["finish_reason"] == "tool_calls" and len(c["message"]["tool_calls"]) == 1 and c["message"]["content"] is None and
              json.loads(c["message"]["tool_calls"][0]["function"]["arguments"])["city"] in ("Rome", "Oslo"), "a forced call: %s" % c)


def check_call_or_format(s):
    """A response format is for texts: the model may call a tool instead, and a forced call comes first."""
    schema = {"type": "object", "properties": {"a": {"enum": [7]}}, "required": ["a"], "additionalProperties": False}
    body = dict(messages=HI, tools=TOOLS, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}, max_tokens=150)
    first = {c: s.post("/tokenize", content=c)[1]["tokens"][0] for c in "<[{"}
    seen = set()
    for bias in ("{", "<"):
        c = s.post(CHAT, seed=1, logit_bias={str(first[bias]): 30}, **body)[1]["choices"][0]["message"]["content"]
        text = c.split("<|message|>")[-1]
        check(c.startswith("<") if bias == "<" else json.loads(text) == {"a": 7}, "%s: %r" % (bias, c))
        seen.add(c[:1])
    check(len(seen) == 2, "a text and a call: %s" % seen)
    c = s.post(CHAT, seed=1, tool_choice="required", parallel_tool_calls=False, **body)[1]["choices"][0]
    check(c["finish_reason"] == "tool_calls" and c["message"]["tool_calls"][0]["function"]["name"] == "weather", "forced: %s" % c)
    c = s.post(CHAT, seed=1, tool_choice="none", **body)[1]["choices"][0]["message"]["content"]
    check(json.loads(c) == {"a": 7}, "none: %s" % c)
    status, r = s.post(CHAT, messages=HI, tools=TOOLS, tool_choice="required", grammar="root ::= \"a\"")
    check(status == 400 and r["error"]["param"] == "tool_choice", "a grammar and a forced call: %s" % r)


def check_thinking(s):
    """What templates are told of reasoning."""
    def prompt(**body):
        return s.post("/apply-template", **dict(dict(messages=HI), **body))[1]["prompt"]

    check(prompt().endswith("<|end|><|start|>assistant"), "no effort")
    check("<|end|>low<|start|>" in prompt(reasoning_effort="low"), "reasoning_effort")
    check("<|end|>high<|start|>" in prompt(reasoning_effort="low", chat_template_kwargs={"reasoning_effort": "high"}), "the variable itself")
    call = {"role": "assistant", "content": "I look.", "tool_calls": [{"type": "function", "function": {"name": "weather", "arguments": "{}"}}]}
    for name in ("reasoning_content", "reasoning"):
        check("<|start|>assistant[Hm.]<|message|><|end|>" in prompt(messages=HI + [dict(call, **{name: "Hm."})]), "reasoning before a call")
    parts = [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "No."}]
    check("<|message|>a\nNo.<|end|>" in prompt(messages=HI + [{"role": "assistant", "content": parts}]), "a refusal")
    tokens = s.post("/v1/responses/input_tokens", input="Hi")[1]["input_tokens"]
    for body in ({"reasoning": {"effort": "low"}},
                 {"input": [{"role": "user", "content": "Hi"}, {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text",
                  "text": "Hm."}]}, {"type": "function_call", "call_id": "1", "name": "weather", "arguments": "{}"}]}):
        more = s.post("/v1/responses/input_tokens", **dict({"input": "Hi"}, **body))[1]["input_tokens"]
        chat = {"messages": HI, "reasoning_effort": "low"} if "reasoning" in body else \
            {"messages": HI + [dict(call, content="", reasoning_content="Hm.")]}
        check(more > tokens and more == len(s.post("/tokenize", content=prompt(**chat))[1]["tokens"]), "of a response: %s" % body)
    low = s.post("/v1/messages/count_tokens", messages=HI, output_config={"effort": "low"})[1]["input_tokens"]
    check(low == len(s.post("/tokenize", content=prompt(reasoning_effort="low"))[1]["tokens"]), "of a message")


def embedding_model(folder):
    """The model without a head, as sentence-transformers writes it with mean pooling."""
    path = os.path.join(folder, "embeds")
    shutil.copytree(MODEL, path)
    with open(os.path.join(path, "config.json")) as f:
        config = json.load(f)
    config["tie_word_embeddings"] = False
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(config, f)
    os.mkdir(os.path.join(path, "1_Pooling"))
    with open(os.path.join(path, "1_Pooling", "config.json"), "w") as f:
        json.dump({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, f)
    with open(os.path.join(path, "modules.json"), "w") as f:
        json.dump([{"path": p, "type": "sentence_transformers.models." + t}
                   for p, t in (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense"))], f)
    return path


def check_embedding_models():
    def vector(s):
        return s.post("/v1/embeddings", input="Hello, what is")[1]["data"][0]["embedding"]
    with tempfile.TemporaryDirectory() as folder:
        path = embedding_model(folder)
        with_head, own, last = Server("--pooling", "mean"), Server(model=path), Server("--pooling", "last", model=path)
        check(vector(own) == vector(with_head) != vector(last), "pooling of the model's folder")
        status, answer = own.post("/v1/chat/completions", messages=HI)
        check(status == 400 and "no head" in answer["error"]["message"], "a chat without a head: %s" % answer)
        code, err = own.stop()
        check(code == 0 and "has no head" in err and "2_Dense" in err, "warnings: %s" % err)
        with_head.stop()
        last.stop()
        with open(os.path.join(path, "1_Pooling", "config.json"), "w") as f:
            json.dump({"pooling_mode": "max"}, f)
        code, err = Server(model=path).stop()
        check(code == 1 and "pooling max is not supported" in err, "another pooling: %s" % err)


def check_marks(folder):
    """Marks of reasoning that are special tokens: they stay in the text, or the reasoning is taken out."""
    for thought in (["[THINK]", "Hm.", "[/THINK]"], ["<|channel>", "thought\n", "Hm.", "<channel|>"]):
        words = ["<|endoftext|>", "user", "assistant", "Hi", "Yes."] + thought
        write_model(folder, words, ["assistant"] + thought + ["Yes."], "{% for m in messages %}{{ m.content }}{% endfor %}assistant")
        s = Server("--alias", "base", model=folder)
        whole = "".join(thought) + "Yes."
        for body, want in (({}, (whole, None)), ({"reasoning_format": "auto"}, ("Yes.", "Hm.")), ({"skip_special_tokens": False}, (whole, None))):
            m = s.post(CHAT, messages=HI, temperature=0, max_tokens=20, **body)[1]["choices"][0]["message"]
            check((m["content"], m.get("reasoning_content")) == want, "%s with %s: %s" % (whole, body, m))
        for skip, want in ((True, "".join(w for w in thought if w[0] not in "<[") + "Yes."), (False, whole)):
            c = s.post(TEXT, prompt="assistant", temperature=0, skip_special_tokens=skip)[1]["choices"][0]
            check(c["text"] == want, "skip_special_tokens %s: %s" % (skip, c))
        check(s.stop()[0] == 0, "exit status")


def check_ollama_parts(folder):
    """Thoughts and calls; these have objects."""
    call = ["<tool_call>", '{"name": "weather", "arguments": {"city": "Rome"}}', "</tool_call>"]
    thought = ["<think>", "Hm.", "</think>"]
    words = ["<|endoftext|>", "user", "assistant", "Hi", "Yes."] + thought + call
    write_model(folder, words, ["assistant"] + thought + ["Yes."] + call, "{% for m in messages %}{{ m.content }}{% endfor %}assistant")
    s = Server("--alias", "base", model=folder)
    body = dict(messages=HI, tools=TOOLS, options={"temperature": 0})
    m = s.post("/api/chat", stream=False, **body)[1]["message"]
    check((m["thinking"], m["content"]) == ("Hm.", "Yes.") and
          [c["function"] for c in m["tool_calls"]] == [{"name": "weather", "arguments": {"city": "Rome"}}], "thought, text, call: %s" % m)
    got = [json.loads(l)["message"] for l in s.raw("POST", "/api/chat", json.dumps(body))[2].decode().splitlines()]
    for name in ("thinking", "content"):
        check("".join(l.get(name, "") for l in got) == m[name], "%s of a stream: %s" % (name, got))
    b = s.post("/completion", prompt="assistant", n_predict=1, temperature=0, logit_bias=[[words.index("<think>"), False]], return_tokens=True)[1]
    check(b["tokens"] != [words.index("<think>")], "a token that is not allowed: %s" % b)
    check([c["function"] for l in got for c in l.get("tool_calls", [])] == [c["function"] for c in m["tool_calls"]], "calls of a stream: %s" % got)
    check(s.stop()[0] == 0, "exit status")


def check_scores(s):
    """Cosines of the vectors of /v1/embeddings."""
    texts = ["Hello there", "a cat", "the dog and the cat", "a cat"]
    vectors = [d["embedding"] for d in s.post("/v1/embeddings", input=texts)[1]["data"]]
    cosine = [sum(a * b for a, b in zip(vectors[0], v)) for v in vectors]

    def near(a, b):
        return len(a) == len(b) and all(abs(x - y) < 1e-6 for x, y in zip(a, b))

    for path in ("/v1/score", "/score"):
        status, r = s.post(path, text_1=texts[0], text_2=texts[1:])
        check(status == 200 and near([d["score"] for d in r["data"]], cosine[1:]) and r["model"] == "base", "%s: %s" % (path, r))
    r = s.post("/v1/score", queries=texts[:2], documents=[texts[0], texts[3]])[1]
    check(near([d["score"] for d in r["data"]], [1, 1]) and r["usage"]["total_tokens"] > 4, "pairs: %s" % r)
    order = sorted(range(3), key=lambda i: -cosine[1 + i])
    for path, documents in (("/v1/rerank", texts[1:]), ("/v2/rerank", [{"text": t} for t in texts[1:]]), ("/rerank", texts[1:])):
        r = s.post(path, query=texts[0], documents=documents)[1]["results"]
        check([d["index"] for d in r] == order and near([d["relevance_score"] for d in r], [cosine[1 + i] for i in order]) and
              r[0]["document"] == {"text": texts[1 + order[0]]}, "%s: %s" % (path, r))
    check(len(s.post("/v1/rerank", query="a", documents=texts, top_n=2)[1]["results"]) == 2, "top_n")
    for path, field, body in (("/v1/score", "text_2", {"text_1": "a"}), ("/v1/score", "text_2", {"text_1": ["a", "b"], "text_2": ["c"] * 3}),
                              ("/v1/score", "text_1", {"text_1": 3, "text_2": "a"}), ("/v1/rerank", "query", {"documents": ["a"]}),
                              ("/v1/rerank", "documents", {"query": "a", "documents": []}), ("/v1/rerank", "documents", {"query": "a", "documents": [3]})):
        status, r = s.post(path, **body)
        check(status == 400 and r["error"]["param"] == field, "%s %s: %s" % (path, body, r))


def check_pings(s):
    """A stream that has nothing to say for a while says so; here at once."""
    call = json.dumps("<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}</tool_call>")
    body = dict(messages=HI, grammar="root ::= " + call, stream=True, max_tokens=200)
    text = s.raw("POST", CHAT, json.dumps(dict(body, tools=TOOLS)))[2].decode()
    events = [e for e in text.split("\n\n") if e != ": ping"]
    check(": ping\n\n" in text and all(e.startswith("data: ") for e in events[:-1]) and events[-2] == "data: [DONE]", "comments: %s" % text)
    text = s.raw("POST", "/v1/messages", json.dumps(dict(body, tools=[{"name": "weather", "input_schema": {}}])))[2].decode()
    check("event: ping\ndata: {\"type\":\"ping\"}\n\n" in text and text.count("message_stop") == 2, "pings of messages: %s" % text)


def run(parts, *args, model=MODEL):
    s = Server("--alias", "base", *args, model=model)
    for part in parts:
        try:
            part(s)
        except Exception as e:
            check(False, "%s: %r" % (part.__name__, e))
    code, err = s.stop()
    check(code == 0, "exit status %s: %s" % (code, err[-2000:]))


def main():
    run((check_min_tokens, check_limits, check_others, check_best_of, check_call_or_format, check_scores, check_llama_completion))
    run((check_pings,), "--sse-ping-interval", "1e-9")
    check_embedding_models()
    with tempfile.TemporaryDirectory() as folder:
        run((check_infill, check_infill_of_editors), model=infill_model(folder))
    for mark in ("<|file_sep|>", "<|repo_name|>"):
        with tempfile.TemporaryDirectory() as folder:
            run((check_infill_of_projects,), model=infill_model(folder, ("[PREFIX]", mark, "[SUFFIX]")))
    with tempfile.TemporaryDirectory() as folder:
        check_marks(folder)
        check_ollama_parts(folder)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "own.jinja")
        for template, parts in ((TEMPLATE, (check_channels, check_thinking)), (CALLS, (check_functions, check_ollama))):
            with open(path, "w") as f:
                f.write(template)
            run(parts, "--chat-template", path)
    finish()


main()
