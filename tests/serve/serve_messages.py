"""/v1/messages of `afinar serve`: blocks, events, tools, counts and errors, with the standard library alone."""
import json
import tempfile
import time

from serve_start import Server, check, finish

PATH, CHAT, KEY = "/v1/messages", "/v1/chat/completions", {"X-Api-Key": "k"}
HI = [{"role": "user", "content": "Hi"}]
SCHEMA = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"], "additionalProperties": False}
TOOL = {"name": "weather", "description": "The weather", "input_schema": SCHEMA}
CHAT_TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather", "parameters": SCHEMA}}
CALL = '<tool_call>{"name": "weather", "arguments": {"city": "%s"}}</tool_call>'
ANSWER = "<think>\nFirst. Then.\n</think>\n\nWait. " + CALL % "Rome" + " " + CALL % "Oslo" + " Then more."
ENABLED = {"type": "enabled", "budget_tokens": 1024}
# one that shows all that a template may look at
TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.reasoning_content or '' }}|{{ m.content }}|{{ m.tool_calls | tojson if "
            "m.tool_calls }}{{ m.tool_call_id }}<|im_end|>\n{% endfor %}{{ tools | tojson if tools }}{{ enable_thinking }}{{ thinking }}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def ask(s, path=PATH, **body):
    return s.ask("POST", path, body, headers=KEY)


def text_of(message):
    return "".join(b["text"] for b in message["content"] if b["type"] == "text")


def literal(text):
    return "root ::= " + json.dumps(text)


def events(s, **body):
    """The data of a stream's events."""
    status, headers, text = s.raw("POST", PATH, json.dumps(dict(body, stream=True)), KEY)
    check(status == 200 and headers["Content-Type"].startswith("text/event-stream"), "a stream: %d %s" % (status, text[:200]))
    out = []
    for event in text.decode().split("\n\n")[:-1]:
        name, data = event.split("\n")
        out.append(json.loads(data[len("data: "):]))
        check(name == "event: " + out[-1]["type"], "an event's name is its type")
    return out


def rebuilt(ev):
    """The message that a client makes of the events."""
    check([e["type"] for e in (ev[0], ev[-2], ev[-1])] == ["message_start", "message_delta", "message_stop"], "first and last events")
    message, texts, is_open = dict(ev[0]["message"]), [], False
    check(message["content"] == [] and message["stop_reason"] is None and message["usage"]["output_tokens"] == 0, "message_start")
    for e in ev[1:-2]:
        check(e["index"] == len(texts) - (e["type"] != "content_block_start") and is_open == (e["type"] != "content_block_start"), "order: %s" % e)
        if e["type"] == "content_block_start":
            message["content"] = message["content"] + [dict(e["content_block"])]
            texts.append("")
            is_open = True
        elif e["type"] == "content_block_delta":
            member = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}[e["delta"]["type"]]
            texts[-1] += e["delta"][member]
        else:
            check(e["type"] == "content_block_stop", "event %s" % e)
            is_open = False
    for block, text in zip(message["content"], texts):
        if block["type"] == "tool_use":
            check(block["input"] == {}, "input comes in deltas")
            block["input"] = json.loads(text)
        else:
            block[block["type"]] = text
    message.update(ev[-2]["delta"], usage=ev[-2]["usage"])
    return message


def same_as_chat(s, said, chat=None, **body):
    """A message has the text of the chat completion that it stands for."""
    a = s.ask("POST", CHAT, dict(messages=said, temperature=0, max_tokens=12, **(chat or {})), headers=KEY)[1]
    b = ask(s, temperature=0, max_tokens=12, **body)[1]
    check("choices" in a and "content" in b, "answers: %s %s" % (a, b))
    check(text_of(b) == a["choices"][0]["message"]["content"], "the text of the chat with %s" % json.dumps(body)[:100])
    n = b["usage"]["input_tokens"] + b["usage"]["cache_read_input_tokens"]
    check(n == a["usage"]["prompt_tokens"], "the prompt of the chat with %s" % json.dumps(body)[:100])
    status, count = ask(s, PATH + "/count_tokens", **{k: v for k, v in body.items() if k != "max_tokens"})
    check((status, count) == (200, {"input_tokens": n}), "tokens of %s: %s" % (json.dumps(body)[:100], count))
    return b


def check_whole(s):
    m = same_as_chat(s, HI, messages=HI, model="base")
    check(m["type"] == "message" and m["role"] == "assistant" and m["id"].startswith("msg_") and m["model"] == "base", "object: %s" % m)
    check(m["stop_reason"] == "max_tokens" and m["stop_sequence"] is None and m["usage"]["output_tokens"] == 12, "the end: %s" % m)
    m = ask(s, messages=HI, logit_bias={"511": 100}, max_tokens=4)[1]
    check(m["content"] == [] and m["stop_reason"] == "end_turn", "the end token: %s" % m)
    m = ask(s, messages=HI, grammar=literal("one two three"), stop_sequences=["x", "three", "two"])[1]
    check(text_of(m) == "one " and (m["stop_reason"], m["stop_sequence"]) == ("stop_sequence", "two"), "a stop string: %s" % m)
    check(rebuilt(events(s, messages=HI, grammar=literal("one two"), stop_sequences=["tw"]))["stop_sequence"] == "tw", "of a stream")
    long = [{"role": "user", "content": "Hi " * 60}]
    ask(s, messages=long, max_tokens=1)
    u = ask(s, messages=long, max_tokens=1)[1]["usage"]
    check(u["cache_read_input_tokens"] == 128 and u["input_tokens"] > 0 and u["cache_creation_input_tokens"] == 0, "usage: %s" % u)
    check(rebuilt(events(s, messages=long, max_tokens=1))["usage"] == u, "usage of a stream")


def check_blocks(s):
    text = lambda t, **more: dict({"type": "text", "text": t}, **more)
    system = {"role": "system", "content": "Be short.\nBe kind."}
    same_as_chat(s, [system] + HI, system="Be short.\nBe kind.", messages=HI)
    same_as_chat(s, [system] + HI, messages=HI, system=[text("x-anthropic-billing-header: v=1; cch=%d;" % id(s)), text("Be short."),
                                                        text("Be kind.", cache_control={"type": "ephemeral"})])
    same_as_chat(s, [system, {"role": "user", "content": "Hi\nNow.\nAnd?"}], system="Be short.",
                 messages=[{"role": "system", "content": "Be kind."}] + HI + [{"role": "system", "content": "Now."},
                                                                              {"role": "user", "content": [text("And?")]}])
    same_as_chat(s, HI + [{"role": "assistant", "content": "The"}], chat={"continue_final_message": True},
                 messages=HI + [{"role": "assistant", "content": [text("The")]}])
    for thinking, on in ((ENABLED, True), ({"type": "disabled"}, False)):
        same_as_chat(s, HI, chat={"chat_template_kwargs": {"enable_thinking": on, "thinking": on}}, messages=HI, thinking=thinking)
    same_as_chat(s, HI, messages=HI, thinking={"type": "adaptive"})
    # calls and their results
    calls = [{"id": "c%d" % i, "type": "function", "function": {"name": "weather", "arguments": {"city": c}}} for i, c in enumerate(("Rome", "Oslo"))]
    messages = HI + [{"role": "assistant", "content": "Wait.", "tool_calls": calls}, {"role": "tool", "tool_call_id": "c0", "content": "sun"},
                     {"role": "tool", "tool_call_id": "c1", "content": ""}, {"role": "user", "content": "And?"}]
    uses = [{"type": "tool_use", "id": "c%d" % i, "name": "weather", "input": {"city": c}} for i, c in enumerate(("Rome", "Oslo"))]
    results = [{"type": "tool_result", "tool_use_id": "c0", "content": [text("sun")]}, {"type": "tool_result", "tool_use_id": "c1", "is_error": True}]
    messages[1]["reasoning_content"] = "Hm. So."
    same_as_chat(s, messages, chat={"tools": [CHAT_TOOL]}, tools=[TOOL, {"type": "web_search_20250305", "name": "web_search"}],
                 messages=HI + [{"role": "assistant", "content": [
                     {"type": "thinking", "thinking": "Hm.", "signature": ""}, {"type": "thinking", "thinking": " So.", "signature": ""},
                     {"type": "redacted_thinking", "data": "x"}, text("Wait.")] + uses},
                                {"role": "user", "content": results + [text("And?")]}])


def check_tools(s):
    for choice in ({"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "weather", "disable_parallel_tool_use": True}):
        m = ask(s, messages=HI, tools=[TOOL], tool_choice=choice)[1]
        use = m["content"][0]
        check(len(m["content"]) == 1 and use["type"] == "tool_use" and use["name"] == "weather" and use["id"] and
              use["input"]["city"] in ("Rome", "Oslo") and m["stop_reason"] == "tool_use" and m["stop_sequence"] is None, "a call: %s" % m)
    body = dict(messages=HI, tools=[TOOL], grammar=literal(ANSWER), thinking=ENABLED, seed=1)
    whole = ask(s, **body)[1]
    strip = lambda m: [{k: v for k, v in b.items() if k != "id"} for b in m["content"]]
    use = lambda city: {"type": "tool_use", "name": "weather", "input": {"city": city}}
    check(strip(whole) == [{"type": "thinking", "thinking": "First. Then.", "signature": ""}, {"type": "text", "text": "Wait."}, use("Rome"),
                           use("Oslo"), {"type": "text", "text": "Then more."}], "blocks: %s" % whole["content"])
    streamed = rebuilt(events(s, **body))
    check(strip(streamed) == strip(whole) and all(streamed[k] == whole[k] for k in ("stop_reason", "stop_sequence", "model")) and
          streamed["usage"]["output_tokens"] == whole["usage"]["output_tokens"], "blocks of a stream: %s" % streamed)
    for off in ({}, {"thinking": {"type": "disabled"}}):
        m = ask(s, messages=HI, grammar=literal("<think>a</think>b"), **off)[1]
        check(text_of(m) == "<think>a</think>b", "without thinking: %s" % m)
    m = ask(s, messages=HI, tools=[TOOL], grammar=literal('<tool_call>{"name": "weather", "arguments": "no"}</tool_call>'))[1]
    check(strip(m) == [{"type": "tool_use", "name": "weather", "input": {}}], "arguments that are no object: %s" % m)


def check_format(s):
    for form in ({"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}, "effort": "low"}},
                 {"output_format": {"type": "json_schema", "schema": SCHEMA}}):
        m = ask(s, messages=HI, max_tokens=64, **form)[1]
        check(json.loads(text_of(m))["city"] in ("Rome", "Oslo"), "a schema: %s" % m)


def check_many(s):
    """Time that grows with the square of their number would be minutes."""
    thought = {"type": "thinking", "thinking": "Be short. " * 6, "signature": ""}
    use = {"type": "tool_use", "id": "c", "name": "weather", "input": {}}
    for many in ([{"role": "assistant", "content": [thought] * 60000}], [{"role": "assistant", "content": [thought]}] * 60000,
                 [{"role": "system", "content": "Be short. " * 6}] * 100000, [{"role": "assistant", "content": [use] * 60000}]):
        begin = time.time()
        status, answer = ask(s, messages=HI + many + HI)
        check(status == 400 and "tokens" in answer["error"]["message"], "the context is too small: %s" % answer)
        check(time.time() - begin < 30, "%s: %.1f s" % (str(many[0])[:60], time.time() - begin))


def check_errors(s):
    def expect(status, kind, says, path=PATH, headers=KEY, **body):
        got, answer = s.ask("POST", path, body, headers=headers)
        check(got == status and answer["type"] == "error" and answer["error"]["type"] == kind and says in answer["error"]["message"],
              "%s: %d %s" % (json.dumps(body)[:100], got, answer))

    expect(401, "authentication_error", "key", headers={"X-Api-Key": "x"}, messages=HI)
    expect(401, "authentication_error", "key", headers={}, messages=HI)
    check(s.ask("POST", PATH, {"messages": HI, "max_tokens": 1}, headers={"Authorization": "Bearer k"})[0] == 200, "a bearer")
    expect(404, "not_found_error", "none", messages=HI, model="none")
    expect(404, "not_found_error", "none", path=PATH + "/count_tokens", messages=HI, model="none")
    expect(404, "not_found_error", "batches", path=PATH + "/batches", messages=HI)
    user = lambda *blocks: [{"role": "user", "content": list(blocks)}]
    for messages, says in ((None, "empty"), ([], "empty"), (3, "array"), ([3], "role"), ([{"role": "user"}], "content"), (user(), "empty"),
                           ([{"role": "tool", "content": "x"}], "role"), (user(3), "type"), (user({"type": "image"}), "image"),
                           (user({"type": "tool_result"}), "tool_use_id"), (user({"type": "tool_use", "id": "x"}), "tool_use"),
                           ([{"role": "assistant", "content": [{"type": "tool_use", "id": "x"}]}], "tool_use"),
                           ([{"role": "user", "content": "Hi " * 1000}], "prompt is too long")):
        expect(400, "invalid_request_error", says, messages=messages)
    for field, value in (("system", 3), ("max_tokens", 0), ("temperature", 9), ("tools", 3), ("tools", [3]), ("tool_choice", "any"),
                         ("tool_choice", {"type": "x"}), ("tool_choice", {"type": "any"}), ("thinking", 3), ("thinking", {"type": "x"}),
                         ("stop_sequences", "x"), ("stop_sequences", [3]), ("mcp_servers", [{}]), ("container", "c"), ("output_config", 3),
                         ("output_config", {"format": {"type": "json_schema"}}), ("stream", 3)):
        expect(400, "invalid_request_error", "", **{"messages": HI, field: value})
    for stops in (["x", 3], ["x%d" % i for i in range(65)]):  # the names of this API
        expect(400, "invalid_request_error", "'stop_sequences' ", messages=HI, stop_sequences=stops)
    expect(400, "invalid_request_error", "'output_config.format' ", messages=HI, output_config={"format": {"type": "x"}})
    check(ask(s, PATH + "/count_tokens", messages=[{"role": "user", "content": "Hi " * 1000}])[1]["input_tokens"] > 400, "a long prompt is counted")
    check(ask(s, messages=HI, max_tokens=1, metadata={"user_id": "u"}, service_tier="auto", context_management={})[0] == 200, "ignored fields")


def main():
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as f:
        f.write(TEMPLATE)
        f.flush()
        s = Server("--alias", "base", "--api-key", "k", "--chat-template", f.name, "-c", "1024")
    for part in (check_whole, check_blocks, check_tools, check_format, check_many, check_errors):
        try:
            part(s)
        except Exception as e:
            check(False, "%s: %r" % (part.__name__, e))
    code, err = s.stop()
    check(code == 0, "exit status %s: %s" % (code, err[-2000:]))
    finish()


main()
