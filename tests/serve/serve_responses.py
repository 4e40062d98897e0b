"""/v1/responses of `afinar serve`: items, events, conversations that go on, with the standard library alone."""
import json
import time

from serve_start import Server, check, finish

PATH, CHAT = "/v1/responses", "/v1/chat/completions"
HI = [{"role": "user", "content": "Hi"}]
PARAMETERS = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"], "additionalProperties": False}
TOOL = {"type": "function", "name": "weather", "description": "The weather", "parameters": PARAMETERS, "strict": True}
CHAT_TOOL = {"type": "function", "function": {k: v for k, v in TOOL.items() if k != "type"}}
CALL = 'Wait. <tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call> Then more.'


def text_of(response):
    return "".join(p["text"] for i in response["output"] if i["type"] == "message" for p in i["content"])


def events(s, **body):
    """(name, data) of a stream's events."""
    status, headers, text = s.raw("POST", PATH, json.dumps(dict(body, stream=True)))
    check(status == 200 and headers["Content-Type"].startswith("text/event-stream"), "a stream: %d %s" % (status, text[:200]))
    out = []
    for event in text.decode().split("\n\n")[:-1]:
        name, data = event.split("\n")
        out.append((name[len("event: "):], json.loads(data[len("data: "):])))
    check(all(n == d["type"] for n, d in out), "an event's name is its type")
    check([d["sequence_number"] for _, d in out] == list(range(len(out))), "numbers of events")
    return out


def expect(s, status, param, **body):
    got, answer = s.post(PATH, **body)
    error = (answer or {}).get("error") or {}
    check(got == status and error.get("param") == param and error.get("message"), "%s: %d %s" % (json.dumps(body)[:100], got, answer))
    return error.get("message", "")


def same_as_chat(s, messages, chat=None, **body):
    """A response has the text of the chat completion that it stands for."""
    a = s.post(CHAT, messages=messages, temperature=0, max_tokens=12, **(chat or {}))[1]
    b = s.post(PATH, temperature=0, max_output_tokens=12, **body)[1]
    check("choices" in a and "output" in b, "answers: %s %s" % (a, b))
    check(text_of(b) == a["choices"][0]["message"]["content"], "the text of the chat with %s" % json.dumps(body)[:100])
    check(b["usage"]["input_tokens"] == a["usage"]["prompt_tokens"], "the prompt of the chat with %s" % json.dumps(body)[:100])
    return b


def check_whole(s):
    r = same_as_chat(s, HI, input="Hi")
    check(r["object"] == "response" and r["id"].startswith("resp_") and r["model"] == "base" and r["error"] is None, "object")
    check(r["status"] == "incomplete" and r["incomplete_details"] == {"reason": "max_output_tokens"}, "status: %s" % r["status"])
    item = r["output"][0]
    check(item["type"] == "message" and item["role"] == "assistant" and item["id"].startswith("msg_") and
          item["status"] == "incomplete" and item["content"][0]["type"] == "output_text", "item: %s" % item)
    u = r["usage"]
    check(u["output_tokens"] == 12 and u["total_tokens"] == 12 + u["input_tokens"] and "cached_tokens" in u["input_tokens_details"] and
          "reasoning_tokens" in u["output_tokens_details"], "usage")
    check((r["temperature"], r["top_p"], r["tool_choice"], r["tools"], r["parallel_tool_calls"], r["max_output_tokens"]) ==
          (0, 1, "auto", [], True, 12), "what the answer repeats")
    r = s.post(PATH, input="Hi", logit_bias={"511": 100}, metadata={"a": "b"}, instructions="Be short.")[1]
    check(r["status"] == "completed" and r["incomplete_details"] is None and text_of(r) == "" and len(r["output"]) == 1, "the end token")
    check(r["metadata"] == {"a": "b"} and r["instructions"] == "Be short.", "metadata and instructions")
    r = s.post(PATH, input="Hi", max_output_tokens=3, seed=1, top_logprobs=2, include=["message.output_text.logprobs"])[1]
    logprobs = r["output"][0]["content"][0]["logprobs"]
    check(len(logprobs) == 3 and all(len(t["top_logprobs"]) == 2 and t["logprob"] < 0 for t in logprobs), "log-probabilities")


def check_count(s):
    for body in (dict(input="Hi"), dict(input=HI, instructions="Be short.", tools=[TOOL])):
        n = s.post(PATH, max_output_tokens=1, **body)[1]["usage"]["input_tokens"]
        check(s.post(PATH + "/input_tokens", **body) == (200, {"object": "response.input_tokens", "input_tokens": n}), "tokens of %s" % body)
    check(s.post(PATH + "/input_tokens", input="Hi " * 400)[1]["input_tokens"] > 400, "a long prompt is counted")
    check(s.post(PATH + "/input_tokens", model="none", input="Hi")[0] == 404, "no model")
    status, answer = s.post(PATH + "/input_tokens", input=[{"role": "user", "content": [{"type": "input_image"}]}])
    check(status == 400 and answer["error"]["param"] == "input", "an image: %s" % answer)


def check_items(s):
    system = {"role": "system", "content": "Be short."}
    same_as_chat(s, [system] + HI, input="Hi", instructions="Be short.")
    same_as_chat(s, [system] + HI, input=[dict(system, role="developer")] + HI)
    same_as_chat(s, [{"role": "system", "content": "Be short.\n\nBe kind.\n\nNow."}] + HI, instructions="Be short.",
                 input=[{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be kind."}]},
                        {"role": "system", "content": "Now."}] + HI)
    same_as_chat(s, HI + [{"role": "assistant", "content": "Hello."}, {"role": "user", "content": "a\nb"}],
                 input=HI + [{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                              "content": [{"type": "output_text", "text": "Hello.", "annotations": []}]},
                             {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]}])
    # calls and their results
    def call(i, city):
        return {"id": "c%d" % i, "type": "function", "function": {"name": "weather", "arguments": json.dumps({"city": city})}}
    messages = HI + [{"role": "assistant", "content": "Wait.", "tool_calls": [call(1, "Rome"), call(2, "Oslo")]},
                     {"role": "tool", "tool_call_id": "c1", "content": "sun"}, {"role": "tool", "tool_call_id": "c2", "content": "snow"}]
    items = HI + [{"role": "assistant", "content": "Wait."}, {"type": "reasoning", "id": "rs_1", "summary": []}]
    items += [{"type": "function_call", "call_id": "c%d" % i, "name": "weather", "arguments": json.dumps({"city": c})}
              for i, c in ((1, "Rome"), (2, "Oslo"))]
    items += [{"type": "function_call_output", "call_id": "c1", "output": "sun"},
              {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "snow"}]}]
    r = same_as_chat(s, messages, chat={"tools": [CHAT_TOOL]}, input=items, tools=[TOOL, {"type": "web_search"}])
    check(r["tools"] == [TOOL], "functions are kept, other tools are not")


def check_custom_tools(s):
    """Tools that take a text: to the model they are functions with one parameter."""
    tool = {"type": "custom", "name": "sql", "description": "Runs SQL.", "format": {"type": "grammar", "syntax": "regex", "definition": "SELECT [0-9]"}}
    for choice in ("required", {"type": "custom", "name": "sql"}):
        r = s.post(PATH, input="Hi", tools=[tool, TOOL] if choice != "required" else [tool], tool_choice=choice, parallel_tool_calls=False)[1]
        call = r["output"][0]
        check(call["type"] == "custom_tool_call" and call["name"] == "sql" and call["id"].startswith("ctc_") and call["call_id"] and
              call["input"][:7] == "SELECT " and call["input"][7:].isdigit(), "a call: %s" % r)
        check(r["tools"][0] == tool and "arguments" not in call, "the tool: %s" % r)
    rules = "root ::= " + json.dumps('<tool_call>{"name": "sql", "arguments": {"input": "a \\"b\\""}}</tool_call>')
    names, data = zip(*events(s, input="Hi", tools=[tool], grammar=rules))
    item = data[-1]["response"]["output"][0]
    check(item["input"] == 'a "b"' and [d["item"] for d in data if d["type"] == "response.output_item.done"] == [item], "a stream: %s" % item)
    inputs = [d for d in data if d["type"].startswith("response.custom_tool_call_input")]
    check([d.get("delta") or d.get("input") for d in inputs] == ['a "b"'] * 2 and all(d["item_id"] == item["id"] for d in inputs), "its events: %s" % inputs)
    called = {"id": "c1", "type": "function", "function": {"name": "sql", "arguments": json.dumps({"input": "x"})}}
    same_as_chat(s, HI + [{"role": "assistant", "content": "", "tool_calls": [called]}, {"role": "tool", "tool_call_id": "c1", "content": "sun"}],
                 input=HI + [{"type": "custom_tool_call", "call_id": "c1", "name": "sql", "input": "x"},
                             {"type": "custom_tool_call_output", "call_id": "c1", "output": "sun"}])
    # in chats
    chat = {"type": "custom", "custom": {"name": "sql", "format": {"type": "grammar", "grammar": {"syntax": "regex", "definition": "SELECT [0-9]"}}}}
    for choice in ("required", {"type": "custom", "custom": {"name": "sql"}}):
        c = s.post(CHAT, messages=HI, tools=[chat] + [CHAT_TOOL] * (choice != "required"), tool_choice=choice, parallel_tool_calls=False)[1]["choices"][0]
        call = c["message"]["tool_calls"][0]
        check(c["finish_reason"] == "tool_calls" and call["type"] == "custom" and call["custom"]["name"] == "sql" and
              call["custom"]["input"].startswith("SELECT ") and "function" not in call, "a call in a chat: %s" % c)
    deltas = [e["choices"][0]["delta"] for e in s.events(CHAT, messages=HI, tools=[chat, CHAT_TOOL], grammar=rules)]
    calls = [c for d in deltas for c in d.get("tool_calls", [])]
    check([(c["index"], c["type"], c["custom"]) for c in calls] == [(0, "custom", {"name": "sql", "input": 'a "b"'})], "a stream: %s" % calls)
    for bad in ({"type": "custom"}, {"type": "custom", "name": 3}):
        status, answer = s.post(PATH, input="Hi", tools=[bad])
        check(status == 400 and answer["error"]["param"] == "tools", "a tool without a name: %s" % answer)
    status, answer = s.post(PATH, input=[{"type": "custom_tool_call", "call_id": "c1", "name": "sql"}])
    check(status == 400 and "custom_tool_call without" in answer["error"]["message"], "a call without a text: %s" % answer)


def check_tools(s):
    for choice in ("required", {"type": "function", "name": "weather"}):
        r = s.post(PATH, input="Hi", tools=[TOOL], tool_choice=choice, parallel_tool_calls=False)[1]
        call = r["output"][0]
        check(len(r["output"]) == 1 and call["type"] == "function_call" and call["name"] == "weather" and call["call_id"] and
              call["id"].startswith("fc_") and json.loads(call["arguments"])["city"] in ("Rome", "Oslo"), "a call: %s" % r["output"])
        check(r["status"] == "completed" and r["tool_choice"] == choice, "status of a call")
    rules = "root ::= " + json.dumps(CALL)
    whole = s.post(PATH, input="Hi", tools=[TOOL], grammar=rules)[1]
    check([i["type"] for i in whole["output"]] == ["message", "function_call", "message"], "items in order: %s" % whole["output"])
    check([i["content"][0]["text"] for i in whole["output"][::2]] == ["Wait.", "Then more."], "text around a call: %s" % whole["output"])
    names, data = zip(*events(s, input="Hi", tools=[TOOL], grammar=rules))
    expected = ["response.created", "response.in_progress"]
    for item in whole["output"]:
        expected.append("response.output_item.added")
        if item["type"] == "message":
            expected += ["response.content_part.added", "response.output_text.delta", "response.output_text.done", "response.content_part.done"]
        else:
            expected += ["response.function_call_arguments.delta", "response.function_call_arguments.done"]
        expected.append("response.output_item.done")
    once = [n for i, n in enumerate(names) if not (n.endswith("text.delta") and names[i - 1] == n)]
    check(once == expected + ["response.completed"], "events in order: %s" % once)
    final = data[-1]["response"]
    strip = lambda items: [{k: v for k, v in i.items() if k not in ("id", "call_id")} for i in items]
    check(strip(final["output"]) == strip(whole["output"]), "a stream's items are those of the whole answer")
    check([d["item"] for d in data if d["type"] == "response.output_item.done"] == final["output"], "items of the events")
    for d in data:
        if "item_id" in d:
            check(final["output"][d["output_index"]]["id"] == d["item_id"], "%s: its item" % d["type"])
    call = final["output"][1]
    check("".join(d["delta"] for d in data if d["type"] == "response.function_call_arguments.delta") == call["arguments"], "arguments")
    two = [TOOL, dict(TOOL, name="clock")]
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "clock"}]}
    for seed in range(4):
        r = s.post(PATH, input="Hi", tools=two, tool_choice=allowed, parallel_tool_calls=False, seed=seed)[1]
        check([i["name"] for i in r["output"]] == ["clock"] and r["tools"] == two and r["tool_choice"] == allowed, "allowed tools: %s" % r)
    auto = dict(allowed, mode="auto")
    same_as_chat(s, HI, chat={"tools": [dict(CHAT_TOOL, function=dict(CHAT_TOOL["function"], name="clock"))]}, input="Hi", tools=two,
                 tool_choice=auto)
    for wrong in ({"mode": "any"}, {"tools": []}, {"tools": [{"type": "function", "name": "x"}]}, {"tools": [3]},
                  {"tools": allowed["tools"] + [{"type": "function", "name": "x"}]}, {"mode": None}):
        expect(s, 400, "tool_choice", input="Hi", tools=two, tool_choice=dict(allowed, **wrong))
    expect(s, 400, "tool_choice", input="Hi", tool_choice=allowed)
    expect(s, 400, "tool_choice", input="Hi", tools=[{"type": "web_search"}], tool_choice="required")
    expect(s, 400, "tool_choice", input="Hi", tools=[TOOL], tool_choice={"type": "function", "name": "x"})
    expect(s, 400, "tools", input="Hi", tools=[{"type": "function"}])
    expect(s, 400, "tools", input="Hi", tools=[3])


def check_reasoning(s):
    text = "<think>\nFirst. Then.\n</think>\n\n"
    for end, kinds in (("Yes.", ["reasoning", "message"]), ('<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>',
                                                            ["reasoning", "function_call"])):
        body = dict(input="Hi", tools=[TOOL], grammar="root ::= " + json.dumps(text + end), reasoning_format="auto")
        whole = s.post(PATH, **body)[1]
        item = whole["output"][0]
        check([i["type"] for i in whole["output"]] == kinds and item["id"].startswith("rs_") and item["status"] == "completed" and
              item["summary"] == [] and item["content"] == [{"type": "reasoning_text", "text": "First. Then."}], "items: %s" % whole["output"])
        check(0 < whole["usage"]["output_tokens_details"]["reasoning_tokens"] < whole["usage"]["output_tokens"], "tokens of the reasoning")
        ev = events(s, **body)
        once = [n for i, (n, _) in enumerate(ev) if not (n.endswith(".delta") and ev[i - 1][0] == n)]
        check(once[2:9] == ["response.output_item.added", "response.content_part.added", "response.reasoning_text.delta",
                            "response.reasoning_text.done", "response.content_part.done", "response.output_item.done",
                            "response.output_item.added"], "events: %s" % once)
        check("".join(d["delta"] for n, d in ev if n == "response.reasoning_text.delta") == "First. Then.", "deltas of the reasoning")
        check(ev[-1][1]["response"]["output"][0]["content"] == item["content"] and
              all(d.get("item_id", "rs_").startswith("rs_") for n, d in ev if d.get("output_index") == 0), "the item of the stream")
    b = s.post(PATH, input="And?", previous_response_id=whole["id"], max_output_tokens=1)
    check(b[0] == 200, "goes on after reasoning: %s" % (b,))
    r = s.post(PATH, input="Hi", grammar="root ::= \"<think>And so on\"", reasoning_format="auto")[1]
    check([i["status"] for i in r["output"]] == ["incomplete"], "reasoning without an end: %s" % r["output"])


def check_logprobs(s):
    """Those of a message are those of its tokens, in deltas as in the whole."""
    call = '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>'
    for begin, end in (("", "Yes."), ("<think>\nFirst.\n</think>\n\n", "Yes."), ("<think>First.</think>" + call + "\n", "Yes.")):
        body = dict(input="Hi", tools=[TOOL], grammar="root ::= " + json.dumps(begin + end), reasoning_format="auto", top_logprobs=1)
        of = lambda r: [t for i in r["output"] if i["type"] == "message" for t in i["content"][0]["logprobs"]]
        whole, ev = s.post(PATH, seed=2, **body)[1], events(s, seed=2, **body)
        tokens = "".join(t["token"] for t in of(whole))
        check(tokens.endswith(end + "<|im_end|>") and "think" not in tokens and "weather" not in tokens, "of %r: %r" % (begin + end, tokens))
        parts = [t for n, d in ev if n == "response.output_text.delta" for t in d["logprobs"]]
        check(parts == of(ev[-1][1]["response"]) == of(whole), "of the deltas: %r" % "".join(t["token"] for t in parts))


def check_stream(s):
    whole = s.post(PATH, input="Hi", seed=4, max_output_tokens=20, top_logprobs=1)[1]
    ev = events(s, input="Hi", seed=4, max_output_tokens=20, top_logprobs=1)
    names = [n for n, _ in ev]
    check(names[:4] == ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"] and
          names[-4:-1] == ["response.output_text.done", "response.content_part.done", "response.output_item.done"], "events: %s" % names)
    check(names[-1] == "response." + whole["status"] and set(names[4:-4]) == {"response.output_text.delta"}, "the last event: %s" % names[-1])
    check("".join(d["delta"] for n, d in ev if n.endswith("text.delta")) == text_of(whole), "deltas")
    final = ev[-1][1]["response"]
    check(text_of(final) == text_of(whole) and final["usage"] == whole["usage"], "the last response")
    check(final["output"][0]["content"][0]["logprobs"] == whole["output"][0]["content"][0]["logprobs"] and
          len(whole["output"][0]["content"][0]["logprobs"]) == whole["usage"]["output_tokens"], "log-probabilities of a stream")
    first = ev[0][1]["response"]
    check(first["status"] == "in_progress" and first["output"] == [] and first["usage"] is None and
          len({d["response"]["id"] for _, d in ev if "response" in d}) == 1, "the first response")


def check_cut_off(s):
    """An answer whose client went away is not one that can be continued."""
    body = json.dumps(dict(input="Hi", stream=True, ignore_eos=True)).encode()
    for _ in range(3):
        with s.connect() as c:
            c.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" %
                      (PATH.encode(), len(body), body))
            text = b""
            while b"output_text.delta" not in text:
                text += c.recv(4096)
        end = time.time() + 20
        while s.metric("afinar_requests_processing") and time.time() < end:
            time.sleep(0.01)
        id = text.decode(errors="replace").split('"id":"')[1].split('"')[0]
        status, r = s.ask("GET", PATH + "/" + id)
        check(id.startswith("resp_") and (status == 404 or r["status"] == "incomplete"), "cut off: %s %s" % (status, r))


def check_fields(s):
    """Fields of chat completions that change an answer do so here, or are refused."""
    for path, text, body in ((PATH, "Hi", dict(input="Hi", max_output_tokens=40)), ("/v1/messages", "Hi", dict(messages=HI, max_tokens=40))):
        for field, value in (("n", 2), ("best_of", 2), ("mirostat", 2), ("typical_p", 0.3), ("dry_multiplier", 1), ("xtc_probability", 0.5),
                             ("dynatemp_range", 1), ("top_n_sigma", 1), ("use_beam_search", True), ("modalities", ["audio"]),
                             ("truncate_prompt_tokens", 3), ("include_stop_str_in_output", True), ("chat_template", "x")):
            status, r = s.post(path, **body, **{field: value})
            check(status == 400 and field in r["error"]["message"], "%s of %s: %s %s" % (field, path, status, r))
            check(s.post(path, **dict(body, max_tokens=1) if "input" not in body else body, **{field: None})[0] == 200, "no %s" % field)
        for field, value in (("guided_choice", ["ab"]), ("guided_regex", "ab"), ("json_schema", {"const": "ab"})):
            r = s.post(path, **body, **{field: value})[1]
            got = (text_of(r) if "output" in r else r["content"][0]["text"]).strip('"')
            check(got == "ab", "%s of %s: %s" % (field, path, got))


def check_format(s):
    schema = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"], "additionalProperties": False}
    form = {"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}}
    r = s.post(PATH, input="Hi", text=form)[1]
    check(json.loads(text_of(r))["a"] in "xy" and r["text"] == form, "json_schema")
    bad = dict(schema, **{"not": {}})
    check("'not'" in expect(s, 400, "text.format", input="Hi", text={"format": dict(form["format"], schema=bad)}), "the keyword")
    check(expect(s, 400, "text.format", input="Hi", text={"format": {"type": "x"}}).startswith("'text.format' "), "the name of this API")
    check(s.post(PATH, input="Hi", text={"format": {"type": "text"}, "verbosity": "low"}, max_output_tokens=1)[0] == 200, "text")


def check_store(s):
    a = s.post(PATH, input="Hi", temperature=0, max_output_tokens=8, instructions="Be short.")[1]
    b = s.post(PATH, input="And?", temperature=0, max_output_tokens=8, previous_response_id=a["id"])[1]
    messages = HI + [{"role": "assistant", "content": text_of(a)}, {"role": "user", "content": "And?"}]
    want = s.post(CHAT, messages=messages, temperature=0, max_tokens=8)[1]
    check(text_of(b) == want["choices"][0]["message"]["content"] and b["usage"]["input_tokens"] == want["usage"]["prompt_tokens"] and
          b["previous_response_id"] == a["id"] and b["instructions"] is None, "a conversation goes on, its instructions do not")
    streamed = events(s, input="Hi", temperature=0, max_output_tokens=8, instructions="Be short.")[-1][1]["response"]
    c = s.post(PATH, input="And?", temperature=0, max_output_tokens=8, previous_response_id=streamed["id"])[1]
    check(text_of(c) == text_of(b), "after a stream")
    alone = s.post(PATH, temperature=0, max_output_tokens=8, previous_response_id=a["id"])
    check(alone[0] == 200 and alone[1]["usage"]["input_tokens"] < b["usage"]["input_tokens"], "without 'input': %s" % (alone,))
    expect(s, 400, "input", max_output_tokens=8)
    check(s.ask("GET", PATH + "/" + a["id"]) == (200, a), "a stored response")
    check(s.ask("DELETE", PATH + "/" + a["id"]) == (200, {"id": a["id"], "object": "response", "deleted": True}), "deleted")
    check(s.ask("GET", PATH + "/" + a["id"])[0] == 404 and s.ask("DELETE", PATH + "/" + a["id"])[0] == 404, "no more")
    expect(s, 404, "previous_response_id", input="And?", previous_response_id=a["id"])
    d = s.post(PATH, input="And?", temperature=0, max_output_tokens=8, previous_response_id=b["id"])[1]
    check(d["usage"]["input_tokens"] > b["usage"]["input_tokens"], "what continued it is still there")
    off = s.post(PATH, input="Hi", max_output_tokens=1, store=False)[1]
    check(off["store"] is False and s.ask("GET", PATH + "/" + off["id"])[0] == 404, "store: false")
    for i in range(1024):
        s.post(PATH, input="a", max_output_tokens=1, temperature=0)
    check(s.ask("GET", PATH + "/" + d["id"])[0] == 404, "the oldest make space")


def check_input_items(s):
    items = [{"role": "user", "content": "Hi"}, {"type": "function_call", "id": "fc_own", "call_id": "c", "name": "weather", "arguments": "{}"},
             {"type": "function_call_output", "call_id": "c", "output": "sun"}]
    a = s.post(PATH, input=items, temperature=0, max_output_tokens=2, instructions="Be short.")[1]
    b = s.post(PATH, input="And?", temperature=0, max_output_tokens=2, previous_response_id=a["id"])[1]
    path = PATH + "/%s/input_items" % b["id"]
    page = s.ask("GET", path + "?order=asc")[1]
    data = page["data"]
    check(page["object"] == "list" and not page["has_more"] and page["first_id"] == data[0]["id"] and page["last_id"] == data[-1]["id"], "list")
    check([i["type"] for i in data] == ["message", "function_call", "function_call_output", "message", "message"] and data[3] == a["output"][0],
          "the items of both turns: %s" % data)
    check(data[0]["content"] == [{"type": "input_text", "text": "Hi"}] and data[0]["status"] == "completed" and data[1]["id"] == "fc_own" and
          len({i["id"] for i in data}) == 5, "items are complete: %s" % data)
    check(s.ask("GET", path)[1]["data"] == data[::-1], "the newest first")
    odd = s.post(PATH, input=[dict(i, id="a b&\u00e9 %d" % n) for n, i in enumerate(items)], max_output_tokens=1)[1]["id"]
    page = s.ask("GET", PATH + "/%s/input_items?after=a%%20b%%26%%c3%%A9%%200&order=asc" % odd)[1]
    check([i["id"] for i in page["data"]] == ["a b&\u00e9 1", "a b&\u00e9 2"], "an id that is escaped: %s" % page)
    for order, whole in (("asc", data), ("desc", data[::-1])):
        got, after, more = [], "", True
        while more and len(got) < 9:
            page = s.ask("GET", path + "?limit=2&order=" + order + after)[1]
            got, after, more = got + page["data"], "&after=" + page["last_id"], page["has_more"]
        check(got == whole, "pages, %s" % order)
    for query, field in (("limit=0", "limit"), ("limit=101", "limit"), ("limit=x", "limit"), ("limit=2x", "limit"), ("order=up", "order"), ("after=none", "after")):
        status, answer = s.ask("GET", path + "?" + query)
        check(status == 400 and answer["error"]["param"] == field, "%s: %s" % (query, answer))
    check(s.ask("GET", PATH + "/resp_none/input_items")[0] == 404 and s.ask("GET", path + "/x")[0] == 404, "items of no response")


def check_many_items(s):
    """Time that grows with the square of their number would be minutes."""
    begin = time.time()
    many = [{"role": "system", "content": "Be short. " * 6}] * 100000
    check("tokens" in expect(s, 400, "input", input=many + HI), "the context is too small")
    check(time.time() - begin < 30, "100000 system messages take %.1f s" % (time.time() - begin))


def check_errors(s):
    expect(s, 400, "input")
    expect(s, 400, "input", input=3)
    expect(s, 400, "input", input=[])
    expect(s, 400, "input", input=[3])
    check("item_reference" in expect(s, 400, "input", input=[{"type": "item_reference", "id": "x"}]), "the type is named")
    expect(s, 400, "input", input=[{"role": "user"}])
    expect(s, 400, "input", input=[{"role": "user", "content": [{"type": "input_image"}]}])
    expect(s, 400, "input", input=HI + [{"type": "function_call", "name": "x"}])
    expect(s, 400, "input", input=HI + [{"type": "function_call_output", "call_id": "x"}])
    expect(s, 400, "input", input="Hi " * 400)
    expect(s, 404, "model", input="Hi", model="none")
    for field, value in (("instructions", 3), ("max_output_tokens", 0), ("temperature", 9), ("background", True), ("truncation", "auto"),
                         ("conversation", "c"), ("prompt", {"id": "p"}), ("store", 3), ("metadata", 3), ("text", 3), ("tools", 3),
                         ("include", 3), ("previous_response_id", 3), ("top_logprobs", 21), ("stream", 3), ("reasoning", 3)):
        expect(s, 400, field, **{"input": "Hi", field: value})
    status, headers, _ = s.raw("PUT", PATH + "/x", "{}")
    check(status == 405 and headers["Allow"] == "GET", "another method")
    check(s.post(PATH, input="Hi", max_output_tokens=1, reasoning={"effort": "low"}, prompt_cache_key="k", user="u")[0] == 200, "ignored fields")


def main():
    s = Server("--alias", "base")
    for part in (check_whole, check_count, check_items, check_tools, check_custom_tools, check_reasoning, check_logprobs, check_stream, check_cut_off, check_fields, check_format, check_errors, check_input_items, check_many_items, check_store):
        try:
            part(s)
        except Exception as e:
            check(False, "%s: %r" % (part.__name__, e))
    code, err = s.stop()
    check(code == 0, "exit status %s: %s" % (code, err[-2000:]))
    finish()


main()
