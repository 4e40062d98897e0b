#!/usr/bin/env python3
"""Development only: a DPO step with LoRA, afinar next to TRL + PEFT, in turns.

  python tools/bench/dpo_step.py make DIR --tokenizer FOLDER [--shape 135m] [--prompt 256] [--answer 128] [--pairs 16]
  python tools/bench/dpo_step.py turns DIR [--binary build/afinar] [--batch 1] [--threads 2] [--dtype f32] [--device cpu] [--turns 3] [--steps 4] [--precompute]
  python tools/bench/dpo_step.py trl DIR [the same options]        TRL alone
  python tools/bench/dpo_step.py ours DIR [the same options] [--sft]   afinar alone; --sft: supervised training of the same unique tokens

`make` writes a model of random weights with the shape of SmolLM2-135M (or 1.5b: Qwen2.5-1.5B), `pairs.jsonl` of prompts and answers of exactly these numbers of
tokens, and `texts.jsonl` with prompt, chosen and rejected of each pair in one text. Both programs train rank 16 on the seven linears from the same texts. Ours
has the values of the reference in its cache (a run before the first turn fills it); TRL's live reference is its default, --precompute keeps its values, too.
TRL runs without gradient checkpointing, its faster way; --checkpointing is its default. One JSON line per turn: median ms of a step, processor ms of a step.
A GPU: `make DIR --shape 1.5b --prompt 512 --answer 256 --pairs 64`, then `turns` with --device cuda --dtype bf16 --batch 4, and `ours --sft` for the step that a
DPO step is to be compared with. Where the package `datasets` is missing (it needs pyarrow), TRL gets a list in its place: see `fake_datasets`.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import types

SHAPES = {
    "135m": dict(model_type="llama", hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3, vocab_size=49152),
    "1.5b": dict(model_type="qwen2", hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12, num_key_value_heads=2, vocab_size=151936),
}
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def options():
    p = argparse.ArgumentParser()
    p.add_argument("what", choices=["make", "turns", "trl", "ours"])
    p.add_argument("dir")
    p.add_argument("--tokenizer")
    p.add_argument("--shape", default="135m", choices=SHAPES)
    p.add_argument("--prompt", type=int, default=256)
    p.add_argument("--answer", type=int, default=128)
    p.add_argument("--pairs", type=int, default=16)
    p.add_argument("--binary", default="build/afinar")
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--dtype", default="f32", choices=["f32", "bf16"])
    p.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    p.add_argument("--turns", type=int, default=3)
    p.add_argument("--steps", type=int, default=4)
    p.add_argument("--precompute", action="store_true")
    p.add_argument("--checkpointing", action="store_true")
    p.add_argument("--sft", action="store_true")
    return p.parse_args()


# ---- model and data


def make(o):
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(o.tokenizer)
    config = transformers.AutoConfig.for_model(**SHAPES[o.shape], tie_word_embeddings=True, max_position_embeddings=4096, eos_token_id=tokenizer.eos_token_id,
                                               bos_token_id=None, pad_token_id=tokenizer.pad_token_id)
    torch.manual_seed(1)
    dtype = torch.bfloat16 if o.shape != "135m" else torch.float32
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.save_pretrained(f"{o.dir}/model")
    tokenizer.save_pretrained(f"{o.dir}/model")
    words = [t for t in tokenizer.get_vocab() if t.startswith("Ġ") and t[1:].isascii() and t[1:].isalpha()]
    words = sorted(tokenizer.convert_tokens_to_string([t]) for t in words)
    state = 1
    with open(f"{o.dir}/sizes.json", "w") as f:
        json.dump({"prompt": o.prompt, "answer": o.answer}, f)
    with open(f"{o.dir}/pairs.jsonl", "w") as pairs, open(f"{o.dir}/texts.jsonl", "w") as texts:
        for _ in range(o.pairs):
            part = []
            for n in (o.prompt, o.answer - 1, o.answer - 1):  # the end token is the answer's last
                chosen = []
                for _ in range(n):
                    state = state * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
                    chosen.append(words[(state >> 33) % len(words)])
                part.append("".join(chosen))
            assert [len(tokenizer(t)["input_ids"]) for t in part] == [o.prompt, o.answer - 1, o.answer - 1]
            pairs.write(json.dumps(dict(prompt=part[0], chosen=part[1], rejected=part[2])) + "\n")
            texts.write(json.dumps(dict(text="".join(part))) + "\n")


# ---- TRL


def fake_datasets():
    """What TRL's DPO trainer needs of `datasets`, over a list of dicts."""

    class Dataset:
        def __init__(self, rows):
            self.rows = rows
            self.features = {k: None for k in rows[0]} if rows else {}

        column_names = property(lambda self: list(self.rows[0]))
        num_rows = property(lambda self: len(self.rows))
        cache_files = property(lambda self: [])

        def __len__(self):
            return len(self.rows)

        def __iter__(self):
            return iter(self.rows)

        def __getitem__(self, i):
            return [r[i] for r in self.rows] if isinstance(i, str) else self.rows[i]

        def __getitems__(self, many):
            return [self.rows[i] for i in many]

        def map(self, f, remove_columns=None, fn_kwargs=None, **_):
            rows = [{**r, **f(r, **(fn_kwargs or {}))} for r in self.rows]
            return Dataset([{k: v for k, v in r.items() if k not in (remove_columns or [])} for r in rows])

        def filter(self, f, **_):
            return Dataset([r for r in self.rows if f(r)])

        def add_column(self, name, column):
            return Dataset([{**r, name: v} for r, v in zip(self.rows, column)])

        def select_columns(self, names):
            return Dataset([{k: r[k] for k in names} for r in self.rows])

        def remove_columns(self, names):
            return Dataset([{k: v for k, v in r.items() if k not in names} for r in self.rows])

        @property
        def info(self):
            return types.SimpleNamespace(dataset_name=None)

    class Anything(types.ModuleType):  # every other name: a class that nothing is an instance of
        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (), {"hash": staticmethod(str)})

    import importlib.machinery
    for name in ("datasets", "datasets.fingerprint", "datasets.distributed", "datasets.features", "datasets.arrow_writer", "datasets.table"):
        m = Anything(name)
        m.__path__, m.__spec__ = [], importlib.machinery.ModuleSpec(name, None)
        m.__version__ = "5.2.0"
        sys.modules[name] = m
    sys.modules["datasets"].Dataset = Dataset
    return Dataset


def run_trl(o):
    os.environ.update(OMP_NUM_THREADS=str(o.threads), TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1")
    if o.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    rows = [json.loads(line) for line in open(f"{o.dir}/pairs.jsonl")]
    try:
        if os.environ.get("FAKE_DATASETS"):
            raise ImportError
        import datasets
        data = datasets.Dataset.from_list(rows)
    except ImportError:
        data = fake_datasets()(rows)
    import peft
    import torch
    import transformers
    import trl

    torch.set_num_threads(o.threads)
    dtype = torch.float32 if o.dtype == "f32" else torch.bfloat16
    model = transformers.AutoModelForCausalLM.from_pretrained(f"{o.dir}/model", dtype=dtype)
    times, losses = [], []

    class Clock(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            if o.device == "cuda":
                torch.cuda.synchronize()
            times.append((time.perf_counter(), time.process_time()))

        def on_log(self, args, state, control, logs=None, **_):
            losses.append(logs.get("loss"))

    with tempfile.TemporaryDirectory() as out:
        args = trl.DPOConfig(output_dir=out, per_device_train_batch_size=o.batch, max_steps=o.steps + 2, learning_rate=1e-5, logging_steps=1, report_to=[], bf16=o.dtype == "bf16",
                             use_cpu=o.device == "cpu", gradient_checkpointing=o.checkpointing, precompute_ref_log_probs=o.precompute, save_strategy="no", max_length=None,
                             warmup_steps=0, seed=1, disable_tqdm=True)
        lora = peft.LoraConfig(r=16, lora_alpha=32, target_modules=LINEARS, task_type="CAUSAL_LM")
        trainer = trl.DPOTrainer(model, args=args, train_dataset=data, peft_config=lora, callbacks=[Clock()],
                                 processing_class=transformers.AutoTokenizer.from_pretrained(f"{o.dir}/model"))
        trainer.train()
    steps = [(b[0] - a[0], b[1] - a[1]) for a, b in zip(times[1:], times[2:])]
    peak = torch.cuda.max_memory_allocated() if o.device == "cuda" else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"who": "trl", "ms": 1e3 * statistics.median(s for s, _ in steps), "cpu_ms": 1e3 * statistics.mean(c for _, c in steps), "first_loss": losses[0], "peak_gb": peak * 1e-9}


# ---- ours


def our_run(o, steps, out):
    sizes = json.load(open(f"{o.dir}/sizes.json"))
    keys = [f"base_model: {o.dir}/model", f"output_dir: {out}", f"datasets: [{{path: {o.dir}/{'texts' if o.sft else 'pairs'}.jsonl}}]", "adapter: lora", "lora_r: 16",
            "lora_alpha: 32", f"lora_target_modules: [{', '.join(LINEARS)}]", "learning_rate: 1.0e-5", f"micro_batch_size: {o.batch}", f"max_steps: {steps}",
            f"bf16: {'true' if o.dtype == 'bf16' else 'false'}", f"device: {o.device}", f"threads: {o.threads}", "logging_steps: 1", f"sequence_len: {sizes['prompt'] + 2 * sizes['answer'] + 8}",
            "warmup_steps: 0", "shuffle: false", "save_strategy: 'no'"]
    keys += [] if o.sft else ["rl: dpo"]
    with open(f"{out}.yaml", "w") as f:
        f.write("\n".join(keys) + "\n")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([o.binary, "train", f"{out}.yaml"], check=True, stdout=subprocess.DEVNULL, env=dict(os.environ, XDG_CACHE_HOME=f"{o.dir}/cache"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    rows = [json.loads(line) for line in open(f"{out}/metrics.jsonl")]
    return rows, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run_ours(o, warm):
    with tempfile.TemporaryDirectory() as t:
        if warm:
            our_run(o, o.steps + 2, f"{t}/warm")
        short = our_run(o, 2, f"{t}/short")[1]
        rows, cpu = our_run(o, o.steps + 2, f"{t}/long")
    rows = [r for r in rows if "step_ms" in r]
    return {"who": "afinar" + ("-sft" if o.sft else ""), "ms": statistics.median(r["step_ms"] for r in rows[2:]), "cpu_ms": 1e3 * (cpu - short) / o.steps,
            "first_loss": rows[0]["loss"], "peak_gb": 1e-9 * max(r.get("memory_bytes", 0) for r in rows)}


def main():
    o = options()
    if o.what == "make":
        os.makedirs(o.dir, exist_ok=True)
        return make(o)
    if o.what == "trl":
        return print(json.dumps(run_trl(o)), flush=True)
    if o.what == "ours":
        return print(json.dumps(run_ours(o, True)), flush=True)
    ours, theirs = [], []
    for i in range(o.turns):
        ours.append(run_ours(o, i == 0))
        print(json.dumps(ours[-1]), flush=True)
        line = subprocess.run([sys.executable, *sys.argv[:1], "trl", *sys.argv[2:]], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1]
        theirs.append(json.loads(line))
        print(line, flush=True)
    print(json.dumps({"ratio": statistics.median(t["ms"] for t in theirs) / statistics.median(t["ms"] for t in ours),
                      "ratio_cpu": statistics.median(t["cpu_ms"] for t in theirs) / statistics.median(t["cpu_ms"] for t in ours)}))


main()
