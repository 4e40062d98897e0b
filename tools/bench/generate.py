#!/usr/bin/env python3
"""Development only: generation on the CPU compared with llama.cpp (the same GGUF) and transformers, one thread, processor time,
taking turns so that all see the same machine; the best of ROUNDS. One JSON object per line.

  python tools/bench/generate.py BENCH GGUF[,GGUF...] [--prompt 256] [--new 32] [--rounds 3] [--torch f32|bf16] [--bf16]

BENCH is generate.c of this folder, built. llama.cpp runs with a cache of f32 and no flash attention."""
import argparse
import json
import subprocess
import time


def llama(path, P, N):
    import llama_cpp

    t0 = time.process_time(), time.monotonic()
    m = llama_cpp.Llama(path, n_ctx=P + N + 8, n_batch=512, n_ubatch=512, n_threads=1, n_threads_batch=1, verbose=False, logits_all=False)
    m.eval([100])
    first = (time.process_time() - t0[0]) * 1e3, (time.monotonic() - t0[1]) * 1e3
    best_p = best_t = 1e30
    for k in range(2):
        m.reset()
        ids = [(i * 7919 + 13 * k + 100) % m.n_vocab() for i in range(P)]
        t = time.process_time()
        m.eval(ids)
        best_p = min(best_p, (time.process_time() - t) * 1e3)
        t = time.process_time()
        for i in range(N - 1):
            m.eval([(i * 31 + 5) % m.n_vocab()])
        best_t = min(best_t, (time.process_time() - t) * 1e3 / (N - 1))
    return {"first_ms": first[0], "first_wall_ms": first[1], "prompt_ms": best_p, "token_ms": best_t}


def torch_run(path, P, N, dtype):
    import torch
    import transformers

    torch.set_num_threads(1)
    d, f = path.rsplit("/", 1)
    m = transformers.AutoModelForCausalLM.from_pretrained(d, gguf_file=f, dtype=torch.bfloat16 if dtype == "bf16" else torch.float32).eval()
    best_p = best_t = 1e30
    with torch.no_grad():
        for k in range(2):
            ids = torch.tensor([[(i * 7919 + 13 * k + 100) % m.config.vocab_size for i in range(P)]])
            t = time.process_time()
            o = m(ids, use_cache=True, logits_to_keep=1)
            best_p = min(best_p, (time.process_time() - t) * 1e3)
            t = time.process_time()
            for i in range(N - 1):
                o = m(o.logits[:, -1].argmax(-1, keepdim=True), past_key_values=o.past_key_values, use_cache=True)
            best_t = min(best_t, (time.process_time() - t) * 1e3 / (N - 1))
    return {"prompt_ms": best_p, "token_ms": best_t}


def main():
    a = argparse.ArgumentParser()
    a.add_argument("bench")
    a.add_argument("gguf")
    a.add_argument("--prompt", type=int, default=256)
    a.add_argument("--new", type=int, default=32)
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--torch", default="")
    a.add_argument("--bf16", action="store_true")
    a.add_argument("--one", help=argparse.SUPPRESS)
    a = a.parse_args()
    if a.one:  # one peer in a separate process
        print(json.dumps(llama(a.gguf, a.prompt, a.new) if a.one == "llama" else torch_run(a.gguf, a.prompt, a.new, a.torch)))
        return
    for path in a.gguf.split(","):
        sides = {"afinar": [a.bench, path, str(a.prompt), str(a.new), "2", "1", "bf16" if a.bf16 else "f32"]}
        import sys
        for who in ["llama"] + (["torch"] if a.torch else []):
            sides[who] = [sys.executable, __file__, "-", path, "--one", who, "--prompt", str(a.prompt), "--new", str(a.new), "--torch", a.torch]
        best = {}
        for _ in range(a.rounds):
            for who, cmd in sides.items():
                out = json.loads(subprocess.run(cmd, capture_output=True, text=True, check=True).stdout.splitlines()[-1])
                best[who] = {k: min(v, best.get(who, out)[k]) for k, v in out.items()}
        for who, r in best.items():
            print(json.dumps({"by": who, "file": path.rsplit("/", 1)[-1], "prompt": a.prompt, **{k: round(v, 2) for k, v in r.items()}}), flush=True)


main()
