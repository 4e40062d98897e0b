#!/usr/bin/env python3
"""Development only: tokens per second of many sequences decoded together, compared with llama.cpp on the same GGUF and threads,
taking turns, processor time. One JSON object per line.

  python tools/bench/decode.py BENCH GGUF[,GGUF...] [--batch 1,8,32] [--threads 2] [--steps 16] [--rounds 2]

BENCH is decode.c of this folder, built. llama.cpp runs with a cache of f32 and no flash attention."""
import argparse
import json
import statistics
import subprocess
import time

PROMPT = 32


def llama(path, batch, steps, threads):
    import llama_cpp as L

    mp = L.llama_model_default_params()
    model = L.llama_model_load_from_file(path.encode(), mp)
    cp = L.llama_context_default_params()
    cp.n_ctx = batch * (PROMPT + steps + 8)
    cp.n_batch = cp.n_ubatch = 512
    cp.n_seq_max = batch
    cp.n_threads = cp.n_threads_batch = threads
    cp.type_k = cp.type_v = 0  # f32
    ctx = L.llama_init_from_model(model, cp)
    vocab = L.llama_vocab_n_tokens(L.llama_model_get_vocab(model))
    b = L.llama_batch_init(512, 0, batch)

    def run(rows):  # (token, position, sequence, logits)
        b.n_tokens = len(rows)
        for i, (t, p, s, want) in enumerate(rows):
            b.token[i], b.pos[i], b.n_seq_id[i], b.logits[i] = t, p, 1, want
            b.seq_id[i][0] = s
        assert L.llama_decode(ctx, b) == 0

    for s in range(batch):
        run([((i * 7919 + 13 * s + 100) % vocab, i, s, i == PROMPT - 1) for i in range(PROMPT)])
    times = []
    for k in range(steps):
        t = time.process_time()
        run([((k * 31 + s) % vocab, PROMPT + k, s, True) for s in range(batch)])
        times.append((time.process_time() - t) * 1e3)
    L.llama_batch_free(b)
    L.llama_free(ctx)
    L.llama_model_free(model)
    return statistics.median(times)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("bench")
    a.add_argument("gguf")
    a.add_argument("--batch", default="1,8,32")
    a.add_argument("--threads", type=int, default=1)
    a.add_argument("--steps", type=int, default=16)
    a.add_argument("--rounds", type=int, default=2)
    a.add_argument("--compute", default="f32")
    o = a.parse_args()
    for path in o.gguf.split(","):
        for batch in map(int, o.batch.split(",")):
            ours, theirs = [], []
            for _ in range(o.rounds):
                out = subprocess.run([o.bench, path, "cpu", o.compute, str(o.threads), str(batch), str(o.steps)], capture_output=True, text=True, check=True)
                ours.append(json.loads(out.stdout)["step_ms"])
                theirs.append(llama(path, batch, o.steps, o.threads))
            x, y = min(ours), min(theirs)
            print(json.dumps({"file": path.rsplit("/", 1)[-1], "batch": batch, "afinar_tok_s": round(batch / x * 1e3, 1), "llama_tok_s": round(batch / y * 1e3, 1), "ratio": round(y / x, 2)}), flush=True)


if __name__ == "__main__":
    main()
