#!/usr/bin/env python3
"""Development only: tokens per second of many sequences decoded together, and of a prompt of 256 tokens, compared with llama.cpp on
the same GGUF and threads, taking turns. Processor time of the process (with one thread what an idle machine would need), and the
wall's. The best round of each; one JSON object per line, or a table.

  python tools/bench/decode.py BENCH GGUF[,GGUF...] [--batch 1,8,32] [--threads 1] [--steps 16] [--rounds 2] [--compute f32] [--table]

BENCH is decode.c of this folder, built. llama.cpp runs with a cache of f32 and no flash attention."""
import argparse
import json
import statistics
import subprocess
import sys
import time

PROMPT = 32
LONG = 256


def llama(path, batch, steps, threads):
    import llama_cpp as L

    model = L.llama_model_load_from_file(path.encode(), L.llama_model_default_params())
    cp = L.llama_context_default_params()
    cp.n_ctx = batch * (PROMPT + steps + 8) + LONG
    cp.n_batch = cp.n_ubatch = 512
    cp.n_seq_max = batch
    cp.n_threads = cp.n_threads_batch = threads
    cp.type_k = cp.type_v = 0  # f32
    cp.kv_unified = True
    ctx = L.llama_init_from_model(model, cp)
    vocab = L.llama_vocab_n_tokens(L.llama_model_get_vocab(model))
    b = L.llama_batch_init(512, 0, batch)

    def run(rows):  # (token, position, sequence, logits)
        b.n_tokens = len(rows)
        for i, (t, p, s, want) in enumerate(rows):
            b.token[i], b.pos[i], b.n_seq_id[i], b.logits[i] = t, p, 1, want
            b.seq_id[i][0] = s
        at = time.process_time(), time.monotonic()
        assert L.llama_decode(ctx, b) == 0
        L.llama_get_logits(ctx)  # waits
        return (time.process_time() - at[0]) * 1e3, (time.monotonic() - at[1]) * 1e3

    prompt = []
    for k in range(3):
        prompt.append(run([((i * 7919 + 13 * k + 100) % vocab, i, 0, i == LONG - 1) for i in range(LONG)])[0])
        L.llama_memory_clear(L.llama_get_memory(ctx), True)
    for s in range(batch):
        run([((i * 7919 + 13 * s + 100) % vocab, i, s, i == PROMPT - 1) for i in range(PROMPT)])
    times = [run([((k * 31 + s) % vocab, PROMPT + k, s, True) for s in range(batch)]) for k in range(steps)]
    L.llama_batch_free(b)
    L.llama_free(ctx)
    L.llama_model_free(model)
    return {"step_ms": statistics.median(t[0] for t in times), "wall_ms": statistics.median(t[1] for t in times), "prompt_ms": min(prompt)}


def best(rounds):
    return {k: min(r[k] for r in rounds) for k in ("step_ms", "wall_ms", "prompt_ms")}


def measure(o, path, batch):
    ours, theirs = [], []
    for _ in range(o.rounds):
        out = subprocess.run([o.bench, path, "cpu", o.compute, str(o.threads), str(batch), str(o.steps)], capture_output=True, text=True, check=True)
        ours.append(json.loads(out.stdout))
        # a process of its own, as ours has
        out = subprocess.run([sys.executable, __file__, "--llama", path, str(batch), str(o.steps), str(o.threads)], capture_output=True, text=True, check=True)
        theirs.append(json.loads(out.stdout.splitlines()[-1]))
    x, y = best(ours), best(theirs)
    row = {"file": path.rsplit("/", 1)[-1], "sequences": batch}
    for key, name, tokens in (("step_ms", "tok_s", batch), ("wall_ms", "wall_tok_s", batch), ("prompt_ms", "prompt_tok_s", LONG)):
        row[name] = round(tokens / x[key] * 1e3, 1)
        row["llama_" + name] = round(tokens / y[key] * 1e3, 1)
        row["ratio_" + name] = round(y[key] / x[key], 2)
    return row


def main():
    if sys.argv[1:2] == ["--llama"]:
        print(json.dumps(llama(sys.argv[2], *map(int, sys.argv[3:6]))))
        return
    a = argparse.ArgumentParser()
    a.add_argument("bench")
    a.add_argument("gguf")
    a.add_argument("--batch", default="1,8,32")
    a.add_argument("--threads", type=int, default=1)
    a.add_argument("--steps", type=int, default=16)
    a.add_argument("--rounds", type=int, default=2)
    a.add_argument("--compute", default="f32")
    a.add_argument("--table", action="store_true")
    o = a.parse_args()
    for path in o.gguf.split(","):
        for batch in map(int, o.batch.split(",")):
            row = measure(o, path, batch)
            print("| " + " | ".join(str(v) for v in row.values()) + " |" if o.table else json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
