"""Judge of constrained output: random answers under the masks, checked with the jsonschema package (and its format
checker), and the documents of tests/golden/grammar/schemas.json with the verdicts of the same. Development only.

    python judge_grammar.py LIBAFINAR.so [TOKENIZER_DIR] [--answers 50] [--time]

With a tokenizer folder its vocabulary is used, else the one of tests/golden/models/qwen2. --time prints what a mask
costs: the first time in a state, and when it is kept."""
import argparse, ctypes, json, pathlib, random, sys, time

import jsonschema

ROOT = pathlib.Path(__file__).resolve().parents[2]
P = ctypes.c_void_p


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("subject", ctypes.c_char * 32), ("msg", ctypes.c_char * 1024)]


def fail(err):
    raise RuntimeError(err.msg.decode(errors="replace"))


class Lib:
    def __init__(self, path, tokenizer):
        self.c = ctypes.CDLL(path)
        self.c.af_tokenizer_token.restype = ctypes.c_char_p
        for f in ("af_tokenizer_vocab_size", "af_tokenizer_eos"):
            getattr(self.c, f).restype = ctypes.c_int32
        self.c.af_grammar_state_can_end.restype = ctypes.c_bool
        err, self.t, self.v = Error(), P(), P()
        if self.c.af_tokenizer_open(ctypes.byref(self.t), tokenizer.encode(), ctypes.byref(err)):
            fail(err)
        if self.c.af_grammar_vocab_open(ctypes.byref(self.v), self.t, ctypes.byref(err)):
            fail(err)
        self.size = self.c.af_tokenizer_vocab_size(self.t)
        self.eos = self.c.af_tokenizer_eos(self.t)
        self.bytes_of = self.token_bytes()

    def token_bytes(self):
        """The byte-level alphabet undone."""
        keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
        table, n = {chr(b): b for b in keep}, 0
        for b in range(256):
            if b not in keep:
                table[chr(256 + n)] = b
                n += 1
        out = []
        for i in range(self.size):
            s = (self.c.af_tokenizer_token(self.t, i, None) or b"").decode()
            out.append(bytes(table[c] for c in s) if s and all(c in table for c in s) else s.encode())
        return out

    def open(self, kind, text):
        err, g = Error(), P()
        if self.c.af_grammar_open(ctypes.byref(g), kind, text.encode(), ctypes.c_uint64(len(text.encode())), self.v,
                                  ctypes.byref(err)):
            fail(err)
        return g

    def matches(self, g, text):
        err, yes = Error(), ctypes.c_bool()
        if self.c.af_grammar_matches(g, text.encode(), ctypes.c_uint64(len(text.encode())), ctypes.byref(yes),
                                     ctypes.byref(err)):
            fail(err)
        return yes.value


def answer(lib, g, rng, steps, times):
    err, s = Error(), P()
    mask = (ctypes.c_uint32 * ((lib.size + 31) // 32))()
    lib.c.af_grammar_state_new(ctypes.byref(s), g, ctypes.byref(err))
    out = b""
    try:
        for step in range(steps):
            t = time.perf_counter()
            if lib.c.af_grammar_state_mask(s, mask, ctypes.c_int64(lib.size), ctypes.byref(err)):
                fail(err)
            times.append(time.perf_counter() - t)
            bits = int.from_bytes(bytes(mask), "little")
            if bits >> lib.eos & 1 and (rng.random() < .5 or step > steps / 2):
                return out
            close = [i for c in b'"}],:' for i in [lib.one.get(bytes([c]))] if i is not None and bits >> i & 1]
            if close and (rng.random() < .35 or step > steps / 2):
                token = rng.choice(close)
            else:
                while True:  # a random bit that is set
                    token = rng.randrange(lib.size)
                    if bits >> token & 1:
                        break
                    if bin(bits).count("1") < 2000:
                        token = rng.choice([i for i in range(lib.size) if bits >> i & 1])
                        break
            if token == lib.eos:
                return out
            if lib.c.af_grammar_state_accept(s, token, ctypes.byref(err)):
                fail(err)
            out += lib.bytes_of[token]
        return None
    finally:
        lib.c.af_grammar_state_free(s)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("library")
    a.add_argument("tokenizer", nargs="?", default=str(ROOT / "tests/golden/models/qwen2"))
    a.add_argument("--answers", type=int, default=50)
    a.add_argument("--time", action="store_true")
    a.add_argument("--seed", type=int, default=1)
    args = a.parse_args()
    lib = Lib(args.library, args.tokenizer)
    lib.one = {b: i for i, b in enumerate(lib.bytes_of) if len(b) == 1}
    golden = json.loads((ROOT / "tests/golden/grammar/schemas.json").read_text())
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    bad = made = 0
    for case in golden["fits"]:
        schema = case["schema"]
        validator = jsonschema.Draft202012Validator(schema, format_checker=checker)
        g = lib.open(1, json.dumps(schema))
        for doc in case["good"]:
            if not validator.is_valid(json.loads(doc[1:])):
                print(f"{case['name']}: jsonschema refuses {doc[1:]}")
                bad += 1
        rng, times, ended = random.Random(args.seed), [], 0
        for _ in range(args.answers):
            out = answer(lib, g, rng, 200, times)
            if out is None:
                continue
            ended += 1
            try:
                validator.validate(json.loads(out.decode()))
            except Exception as e:
                print(f"{case['name']}: made {out!r}: {type(e).__name__} {str(e)[:200]}")
                bad += 1
        made += ended
        times.sort()
        line = f"{case['name']:20} {ended:4} answers"
        if args.time:
            line += f"  mask: median {times[len(times) // 2] * 1e6:8.1f} us, worst {times[-1] * 1e6:9.1f} us"
        print(line)
        lib.c.af_grammar_close(g)
    print(f"{made} answers, {bad} faults")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
