"""Texts, tokens and documents of requests, with the standard library alone."""
import json
import os
import shutil
import tempfile

from serve_start import MODEL, Server, check, finish

CHAT, TEXT, EMBED = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
HI = [{"role": "user", "content": "Hi"}]


def refused(s, path, field, status=400, **body):
    got, r = s.post(path, **body)
    check(got == status and r["error"]["param"] == field, "%s %s: %d %s" % (path, str(body)[:80], got, str(r)[:200]))


def begins(folder):
    """The model with a tokenizer that puts a token at both ends of a text."""
    model = os.path.join(folder, "begins")
    shutil.copytree(MODEL, model)
    path = os.path.join(model, "tokenizer.json")
    t = json.load(open(path))
    mark = next(a for a in t["added_tokens"] if a["content"] == "<|endoftext|>")
    one = {"SpecialToken": {"id": mark["content"], "type_id": 0}}
    both = [one, {"Sequence": {"id": "A", "type_id": 0}}, one]
    t["post_processor"] = {"type": "TemplateProcessing", "single": both, "pair": both + [{"Sequence": {"id": "B", "type_id": 0}}],
                           "special_tokens": {mark["content"]: {"id": mark["content"], "ids": [mark["id"]], "tokens": [mark["content"]]}}}
    json.dump(t, open(path, "w"))
    return model, mark["id"]


def check_special(folder):
    """add_special_tokens, wherever a text is read."""
    model, mark = begins(folder)
    s = Server("--alias", "base", model=model)
    plain = s.post("/tokenize", content="Hi")[1]["tokens"]
    turns = s.post("/tokenize", messages=HI)[1]["tokens"]
    check(mark not in plain + turns, "no special tokens: %s" % plain)
    for path, body, bare, usual in ((TEXT, {"prompt": "Hi"}, plain, True), (CHAT, {"messages": HI}, turns, False)):
        for asked, ids in ((None, [mark] + bare + [mark] if usual else bare), (False, bare), (True, [mark] + bare + [mark])):
            r = s.post(path, max_tokens=1, return_token_ids=True, add_special_tokens=asked, **body)[1]
            got = r.get("prompt_token_ids") or r["choices"][0]["prompt_token_ids"]
            check(got == ids, "%s, add_special_tokens %s: %s, not %s" % (path, asked, got, ids))
        refused(s, path, "add_special_tokens", add_special_tokens="a", **body)

    def vector(**body):
        return s.post(EMBED, **body)[1]["data"][0]["embedding"]

    check(vector(input="Hi", add_special_tokens=False) == vector(input=plain), "an embedding without")
    check(vector(input="Hi") == vector(input="Hi", add_special_tokens=True) == vector(input=[mark] + plain + [mark]), "an embedding with them")
    score = [s.post("/v1/score", text_1="Hi", text_2="a cat", add_special_tokens=a)[1] for a in (True, False, None)]
    check(score[0] == score[2] and score[0]["data"] != score[1]["data"] and score[0]["usage"]["total_tokens"] == score[1]["usage"]["total_tokens"] + 4,
          "scores: %s" % score)

    # Ollama cuts the end of a text off, and the token that ends it stays
    long = "one two three " * 200
    ids = s.post("/tokenize", content=long)[1]["tokens"]
    cut = [mark] + ids[:254] + [mark]
    r = s.post("/api/embed", input=["Hi", long])[1]
    check(r["embeddings"] == [vector(input="Hi"), vector(input=cut)] and r["prompt_eval_count"] == len(plain) + 2 + 256, "a text that is too long")
    check(s.post("/api/embed", input="Hi", truncate=False)[0] == 200, "one that is not")
    check(s.post("/api/embeddings", prompt=long)[1]["embedding"] == r["embeddings"][1], "of /api/embeddings")
    status, r = s.post("/api/embed", input=long, truncate=False)
    check(status == 400 and "the context is 256" in r["error"], "not to be cut: %s" % r)
    check(s.stop()[0] == 0, "exit")


def check_tokens(s):
    for path, body in (("/tokenize", {"content": "Hi"}), ("/tokenize", {"prompt": "Hi"}), ("/detokenize", {"tokens": [39]})):
        check(s.post(path, model="base", **body)[0] == 200, "%s: the model" % path)
        refused(s, path, "model", 404, model="none", **body)
    check(s.post("/detokenize", tokens=[39, 511])[0] == 200, "the last token")
    for tokens in ([512], [39, -1], [39, "a"], [39, 1 << 40], [0.5]):
        refused(s, "/detokenize", "tokens", tokens=tokens)
    r = s.post("/tokenize", prompt="Hello w\u00f6rld", return_token_strs=True)[1]
    check(r["token_strs"] == ["H", "ell", "o", "\u0120w", "\u00c3", "\u00b6", "r", "ld"] and len(r["tokens"]) == r["count"] == 8, "names: %s" % r)
    check("token_strs" not in s.post("/tokenize", prompt="Hello")[1], "no names")


def check_documents(s):
    body = dict(query="a", documents=["b", {"text": "c"}])
    full, bare = s.post("/v1/rerank", **body)[1]["results"], s.post("/v1/rerank", return_documents=False, **body)[1]["results"]
    check([set(r) for r in full] == [{"index", "document", "relevance_score"}] * 2, "documents: %s" % full)
    check(bare == [{"index": r["index"], "relevance_score": r["relevance_score"]} for r in full], "without documents: %s" % bare)
    check(s.post("/v1/rerank", return_documents=True, **body)[1]["results"] == full, "with them")
    refused(s, "/v1/rerank", "return_documents", return_documents=3, **body)
    for path, body in ((EMBED, {"input": "a"}), ("/v1/score", {"text_1": "a", "text_2": "b"}), ("/v1/rerank", body)):
        check(s.post(path, normalize=True, truncate_prompt_tokens=None, **body)[0] == 200, "%s: of length 1" % path)
        refused(s, path, "normalize", normalize=False, **body)
        check(s.post(path, embd_normalize=2, **body)[0] == 200, "%s: llama-server's name of it" % path)
        refused(s, path, "embd_normalize", embd_normalize=-1, **body)
        refused(s, path, "truncate_prompt_tokens", truncate_prompt_tokens=3, **body)


def check_last_tokens(s):
    """repeat_last_n: how many tokens back a penalty looks. Without a word all, and 64 where llama-server's and Ollama's words are used."""
    def ids(path=TEXT, **body):
        r = s.post(path, temperature=0, max_tokens=8, return_token_ids=True, return_tokens=True, **body)[1]
        return r["tokens"] if path == "/completion" else r["choices"][0]["token_ids"]

    two = dict(prompt="Hello", logit_bias={"65": 100, "66": 100}, presence_penalty=2)
    plain = ids(**dict(two, presence_penalty=0))
    check(len(set(plain)) == 1 and ids(repeat_last_n=0, **two) == plain, "no token counts")
    one = ids(repeat_last_n=1, **two)
    check(set(one) == {65, 66} and all(a != b for a, b in zip(one, one[1:])), "the last one: %s" % one)
    check(ids(repeat_last_n=-1, **two) == ids(**two) != plain, "all of them")
    far = dict(prompt=[65] + [70] * 99, repeat_penalty=2)
    for path, bias, usual in ((TEXT, {"65": 100, "66": 80}, 66), ("/completion", [[65, 100], [66, 80]], 65)):
        first = [ids(path, logit_bias=bias, **far, **last)[0] for last in ({}, {"repeat_last_n": 64}, {"repeat_last_n": 99}, {"repeat_last_n": 100},
                                                                            {"repeat_last_n": -1})]
        check(first == [usual, 65, 65, 66, 66], "%s: a token that is 100 back: %s" % (path, first))
    text = "The quick brown fox jumps over the lazy dog, and what is it to you? abcdefghijklmnopqrstuvwxyz. " + "a cat " * 35
    long = dict(prompt=text, temperature=0, max_tokens=30, repeat_penalty=2)
    want = [s.post(TEXT, repeat_last_n=n, **long)[1]["choices"][0]["text"] for n in (64, -1)]
    got = [s.post("/api/generate", prompt=text, raw=True, stream=False, options=dict(temperature=0, num_predict=30, repeat_penalty=2, **last))[1]["response"]
           for last in ({}, {"repeat_last_n": -1})]
    check(got == want and want[0] != want[1], "Ollama: %s, not %s" % (got, want))
    for value in (-2, "a", 1.5):
        refused(s, TEXT, "repeat_last_n", prompt="a", repeat_last_n=value)


def check_responses(s):
    for field, value, own in (("max_tokens", 3, "max_output_tokens"), ("max_completion_tokens", 3, "max_output_tokens"),
                              ("response_format", {"type": "json_object"}, "text.format"), ("messages", HI, "input")):
        refused(s, "/v1/responses", own, input="Hi", **{field: value})  # which is named in its place
    name = s.post("/v1/responses", input="Hi", max_output_tokens=16, max_tokens=None)[1]["id"]
    for query, want in (("", 200), ("?stream=false", 200), ("?stream=true", 400), ("?include=a&stream=True", 400)):
        status, r = s.ask("GET", "/v1/responses/" + name + query)
        check(status == want and (want == 200 or r["error"]["param"] == "stream"), "%s: %s" % (query, r))


def main():
    s = Server("--alias", "base")
    for part in (check_tokens, check_documents, check_last_tokens, check_responses):
        try:
            part(s)
        except Exception as e:
            check(False, "%s: %r" % (part.__name__, e))
    code, err = s.stop()
    check(code == 0, "exit status: %s %s" % (code, err[-2000:]))
    with tempfile.TemporaryDirectory() as folder:
        check_special(folder)
    finish()


main()
