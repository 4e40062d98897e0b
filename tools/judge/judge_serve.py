#!/usr/bin/env python3
"""Compares `afinar serve` with what the openai package (PyPI) expects: every endpoint, sync, async, streaming.

usage: judge_serve.py AFINAR MODEL [ADAPTER]     (pip install openai; jsonschema for the schemas)

The client validates answers with pydantic; strict mode makes every deviation an error. Tokens are compared with
`afinar generate`, log-probabilities with `afinar logits`."""
import asyncio
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

import openai

afinar, model = sys.argv[1], sys.argv[2]
adapter = sys.argv[3] if len(sys.argv) > 3 else None
failures = 0
HI = [{"role": "user", "content": "Hi"}]


def check(ok, what):
    global failures
    failures += not ok
    print("ok  " if ok else "FAIL", what)


def generated(*args):
    out = subprocess.run([afinar, "generate", model, "--device", "cpu", "--json", *args], capture_output=True, text=True, check=True)
    return json.loads(out.stdout)


def logits(ids):
    """[tokens][vocabulary] of `afinar logits`."""
    with tempfile.TemporaryDirectory() as tmp:
        head = json.dumps({"input_ids": {"dtype": "I64", "shape": [1, len(ids)], "data_offsets": [0, 8 * len(ids)]}}).encode()
        open(tmp + "/in.safetensors", "wb").write(struct.pack("<Q", len(head)) + head + struct.pack("<%dq" % len(ids), *ids))
        subprocess.run([afinar, "logits", model, "--device", "cpu", "--ids", tmp + "/in.safetensors", "-o", tmp + "/out.safetensors"],
                       check=True, capture_output=True)
        data = open(tmp + "/out.safetensors", "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    info = json.loads(data[8:8 + n])["logits"]
    rows, width = info["shape"][-2:]
    begin = 8 + n + info["data_offsets"][0]
    values = struct.unpack("<%df" % (rows * width), data[begin:begin + 4 * rows * width])
    return [values[i * width:(i + 1) * width] for i in range(rows)]


def log_softmax(row, i):
    top = max(row)
    return row[i] - top - math.log(sum(math.exp(x - top) for x in row))


def sync(client, base):
    models = client.models.list()
    check(models.data[0].id == base, "models.list")
    check(client.models.retrieve(base).id == base, "models.retrieve")
    want = generated("--chat", "-p", "Hi", "-n", "12")
    a = client.chat.completions.create(model=base, messages=HI, temperature=0, max_tokens=12, logprobs=True, top_logprobs=5,
                                       extra_body={"return_token_ids": True})
    check(a.choices[0].message.content == want["text"], "chat: the text of generate")
    check(a.choices[0].model_extra["token_ids"] == want["ids"], "chat: the ids of generate")
    rows = logits(want["prompt_ids"] + want["ids"])
    worst = max(abs(t.logprob - log_softmax(rows[len(want["prompt_ids"]) - 1 + i], want["ids"][i]))
                for i, t in enumerate(a.choices[0].logprobs.content))
    check(worst < 1e-4, "chat: log-probabilities of logits, largest difference %.1e" % worst)
    text, finish, usage = "", None, None
    for piece in client.chat.completions.create(model=base, messages=HI, temperature=0, max_tokens=12, stream=True,
                                                stream_options={"include_usage": True}):
        if piece.choices:
            text += piece.choices[0].delta.content or ""
            finish = piece.choices[0].finish_reason or finish
        usage = piece.usage or usage
    check(text == want["text"] and finish == a.choices[0].finish_reason and usage.completion_tokens == len(want["ids"]), "chat: stream")
    with client.chat.completions.stream(model=base, messages=HI, extra_body={"grammar": 'root ::= "yes"'}) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    check(final.choices[0].message.content == "yes", "chat: the client's stream helper")
    c = client.completions.create(model=base, prompt=["Hello", "What"], n=2, seed=3, max_tokens=5, logprobs=3)
    check(len(c.choices) == 4 and c.usage.completion_tokens <= 20, "completions")
    # not strict: the client's type has no value for a piece that is not the last, where OpenAI itself sends null
    plain = openai.OpenAI(base_url=client.base_url, api_key="k")
    pieces = list(plain.completions.create(model=base, prompt="Hello", seed=3, max_tokens=5, stream=True))
    check("".join(p.choices[0].text for p in pieces if p.choices) == c.choices[0].text, "completions: stream")
    ids = [(7 * i + 3) % 100 for i in range(200)]
    cached = [client.completions.create(model=base, prompt=ids, max_tokens=1).usage.prompt_tokens_details.cached_tokens for _ in "12"]
    long = "a b c d e f g " * 22
    for _ in "12":
        chat = client.chat.completions.create(model=base, messages=[{"role": "user", "content": long}], max_tokens=1).usage
        response = client.responses.create(model=base, input=long, max_output_tokens=1).usage
    check(cached == [0, 128] and chat.prompt_tokens_details.cached_tokens >= 128 and
          response.input_tokens_details.cached_tokens == chat.prompt_tokens_details.cached_tokens, "cached tokens")
    if adapter:
        a = client.chat.completions.create(model=base + ":a", messages=HI, temperature=0, max_tokens=12)
        check(a.choices[0].message.content == generated("--chat", "-p", "Hi", "-n", "12", "--adapter", adapter)["text"],
              "adapter: the text of generate")


def embeddings(client, base):
    # not strict: the client asks for base64 by itself, and checks the type before it decodes
    e = openai.OpenAI(base_url=client.base_url, api_key="k").embeddings.create(model=base, input=["Hello", "What is"])
    check(len(e.data) == 2 and abs(sum(x * x for x in e.data[0].embedding) - 1) < 1e-4, "embeddings (base64)")
    e = client.embeddings.create(model=base, input="Hello", encoding_format="float", dimensions=8)
    check(len(e.data[0].embedding) == 8, "embeddings (float, dimensions)")


def errors(client, base):
    for kind, call in ((openai.NotFoundError, lambda: client.chat.completions.create(model="none", messages=HI)),
                       (openai.BadRequestError, lambda: client.chat.completions.create(model=base, messages=HI, temperature=9)),
                       (openai.BadRequestError, lambda: client.completions.create(model=base, prompt="x " * 100000)),
                       (openai.AuthenticationError,
                        lambda: openai.OpenAI(base_url=client.base_url, api_key="wrong").models.list())):
        try:
            call()
            check(False, kind.__name__)
        except kind as e:
            check(bool(e.body["message"]), "%s: %s" % (kind.__name__, e.body["message"][:60]))


TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"], "additionalProperties": False}}}]


def tools(client, base):
    a = client.chat.completions.create(model=base, messages=HI, tools=TOOLS, tool_choice="required", max_tokens=150,
                                       parallel_tool_calls=False)
    call = a.choices[0].message.tool_calls[0]
    check(a.choices[0].finish_reason == "tool_calls" and call.function.name == "weather" and
          json.loads(call.function.arguments)["city"] in ("Rome", "Oslo") and call.id, "tools: required")
    name, arguments, finish = "", "", None
    for p in client.chat.completions.create(model=base, messages=HI, tools=TOOLS, max_tokens=150, stream=True, parallel_tool_calls=False,
                                            tool_choice={"type": "function", "function": {"name": "weather"}}):
        for t in (p.choices[0].delta.tool_calls or []) if p.choices else []:
            name += t.function.name or ""
            arguments += t.function.arguments or ""
        finish = p.choices[0].finish_reason if p.choices else finish
    check(name == "weather" and json.loads(arguments)["city"] in ("Rome", "Oslo") and finish == "tool_calls", "tools: stream")
    messages = HI + [a.choices[0].message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
    b = client.chat.completions.create(model=base, messages=messages, tools=TOOLS, tool_choice="none", max_tokens=5)
    check(b.choices[0].message.content is not None, "tools: an answer to a result")


FUNCTION = dict(TOOLS[0]["function"], type="function", strict=True)


def text_and_calls(response):
    return response.output_text, [(i.name, json.loads(i.arguments)) for i in response.output if i.type == "function_call"]


def responses(client, base):
    want = client.chat.completions.create(model=base, messages=[{"role": "system", "content": "Be short."}] + HI, temperature=0,
                                          max_tokens=12)
    a = client.responses.create(model=base, instructions="Be short.", input="Hi", temperature=0, max_output_tokens=12)
    check(a.output_text == want.choices[0].message.content and a.usage.input_tokens == want.usage.prompt_tokens and
          a.usage.output_tokens == want.usage.completion_tokens, "responses: the text of the chat")
    check(client.responses.retrieve(a.id).output_text == a.output_text, "responses: retrieve")
    b = client.responses.create(model=base, input="And?", previous_response_id=a.id, max_output_tokens=4)
    check(b.previous_response_id == a.id and b.usage.input_tokens > a.usage.input_tokens, "responses: previous_response_id")
    client.responses.delete(a.id)
    names, text = [], ""
    for event in client.responses.create(model=base, instructions="Be short.", input="Hi", temperature=0, max_output_tokens=12, stream=True):
        names.append(event.type)
        text += event.delta if event.type == "response.output_text.delta" else ""
        check(type(event).__name__ != "UnknownEvent" and event.sequence_number == len(names) - 1, "responses: event %s" % event.type)
    check(text == a.output_text and names[-1] == "response." + a.status, "responses: stream")
    # what an agent does: tools, a call, its result, an answer
    items = [{"role": "user", "content": [{"type": "input_text", "text": "The weather in Rome?"}]}]
    with client.responses.stream(model=base, input=items, tools=[FUNCTION], tool_choice="required", parallel_tool_calls=False) as stream:
        for event in stream:
            pass
        first = stream.get_final_response()
    calls = [i for i in first.output if i.type == "function_call"]
    check(len(calls) == 1 and calls[0].name == "weather" and calls[0].parsed_arguments["city"] in ("Rome", "Oslo"), "responses: a call")
    items += [i.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for i in first.output]
    items.append({"type": "function_call_output", "call_id": calls[0].call_id, "output": "rain"})
    c = client.responses.create(model=base, input=items, tools=[FUNCTION], store=False, max_output_tokens=5, parallel_tool_calls=True,
                                include=["reasoning.encrypted_content"], reasoning={"effort": "low"}, prompt_cache_key="k")
    check(c.usage.output_tokens <= 5 and c.output[0].type == "message", "responses: an answer to a result")
    d = client.responses.create(model=base, previous_response_id=first.id, tools=[FUNCTION], max_output_tokens=5,
                                input=[{"type": "function_call_output", "call_id": calls[0].call_id, "output": "rain"}])
    check(d.usage.input_tokens == c.usage.input_tokens, "responses: the same prompt by previous_response_id")

    from pydantic import BaseModel
    class Answer(BaseModel):
        city: str
        sunny: bool
    e = client.responses.parse(model=base, input="Hi", text_format=Answer, max_output_tokens=200, temperature=0.2)
    check(e.status == "incomplete" or isinstance(e.output_parsed, Answer), "responses: parse (%s)" % e.status)
    f = client.responses.create(model=base, input="Hi", max_output_tokens=3, top_logprobs=2, include=["message.output_text.logprobs"])
    check(len(f.output[0].content[0].logprobs) == 3, "responses: log-probabilities")
    try:
        client.responses.create(model=base, input="Hi", previous_response_id=a.id)
        check(False, "responses: deleted")
    except openai.NotFoundError as error:
        check(bool(error.body["message"]), "responses: deleted")


async def async_responses(client, base):
    a = await client.responses.create(model=base, input="Hi", extra_body={"seed": 1}, max_output_tokens=16)
    text = ""
    async for event in await client.responses.create(model=base, input="Hi", extra_body={"seed": 1}, max_output_tokens=16, stream=True):
        text += event.delta if event.type == "response.output_text.delta" else ""
    check(text == a.output_text, "responses: async, async stream")


async def many(url, base):
    client = openai.AsyncOpenAI(base_url=url + "/v1", api_key="k", _strict_response_validation=True)
    async def one(i):
        a = await client.chat.completions.create(model=base, messages=HI, seed=i % 4, max_tokens=16)
        return a.choices[0].message.content
    got = await asyncio.gather(*[one(i) for i in range(32)])
    alone = [await one(i) for i in range(4)]
    check(all(g == alone[i % 4] for i, g in enumerate(got)), "32 at once: the same as alone")
    stream = await client.chat.completions.create(model=base, messages=HI, seed=1, max_tokens=16, stream=True)
    text = "".join([p.choices[0].delta.content or "" async for p in stream if p.choices])
    check(text == alone[1], "async stream")
    await async_responses(client, base)


SCHEMAS = [
    {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
     "required": ["name", "age"], "additionalProperties": False},
    {"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 3},
    {"enum": ["red", "green", 3, None]}, {"const": {"a": [1, 2]}}, {"type": "boolean"},
    {"type": "string", "pattern": "^[a-f]{2,4}$"}, {"type": "string", "format": "date"}, {"type": "string", "format": "uuid"},
    {"anyOf": [{"type": "integer", "minimum": 5, "maximum": 9}, {"type": "null"}]},
    {"type": "object", "properties": {"x": {"$ref": "#/$defs/t"}}, "required": ["x"], "additionalProperties": False,
     "$defs": {"t": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2}}},
]


def schemas(client, base):
    try:
        import jsonschema
    except ImportError:
        print("no jsonschema: schemas are not judged")
        return
    bad = done = 0
    for schema in SCHEMAS:
        for seed in range(3):
            a = client.chat.completions.create(model=base, messages=HI, seed=seed, max_tokens=150,
                                               response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})
            if a.choices[0].finish_reason == "stop":
                done += 1
                try:
                    jsonschema.validate(json.loads(a.choices[0].message.content), schema)
                except Exception as e:
                    bad += 1
                    print("  ", schema, a.choices[0].message.content, str(e)[:100])
    check(bad == 0 and done > 10, "%d finished answers to %d schemas, %d invalid" % (done, len(SCHEMAS), bad))


def main():
    command = [afinar, "serve", model, "--device", "cpu", "--port", "0", "--api-key", "k", "--json"]
    server = subprocess.Popen(command + (["--adapter", "a=" + adapter] if adapter else []), stdout=subprocess.PIPE, text=True)
    try:
        info = json.loads(server.stdout.readline())
        client = openai.OpenAI(base_url=info["url"] + "/v1", api_key="k", _strict_response_validation=True)
        for part in (sync, embeddings, errors, tools, responses, schemas, lambda c, base: asyncio.run(many(info["url"], base))):
            try:
                part(client, info["model"])
            except Exception as e:
                check(False, "%s: %r" % (part.__name__, e))
    finally:
        server.terminate()
        check(server.wait(60) == 0, "exit status 0 after SIGTERM")
    print("%d failures" % failures)
    sys.exit(1 if failures else 0)


main()
