"""Fields of requests that OpenAI's API does not have, with the standard library alone."""
from serve_start import Server, check, finish

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


def main():
    s = Server("--alias", "base")
    for part in (check_min_tokens,):
        try:
            part(s)
        except Exception as e:
            check(False, "%s: %r" % (part.__name__, e))
    code, err = s.stop()
    check(code == 0, "exit status %s: %s" % (code, err[-2000:]))
    finish()


main()
