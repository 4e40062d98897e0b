"""The commands that the fault sweeps run, on tiny models: every command of the program, and its main variants.

Each runs in an empty folder of its own (paths are relative to it). `first`: commands that make what it needs, run
once; their folder is copied. `writes`: what may be there afterwards; a failure has to leave it as it was, except for
`train`, whose folder has to hold only whole checkpoints from which a second call completes the run.

`keeps`: what a failed command may leave for the next call, which completes it. `client`: a script and its
arguments, which is given the command, with processes of its own in which nothing fails (AF_SERVED marks the one that
is meant).

Not here: `doctor`. It loads the CUDA libraries where they are installed, and
these abort when memory runs out."""
import os
import re
import sys

GOLDEN = os.environ["AF_GOLDEN"]
QWEN = GOLDEN + "/models/qwen2"  # with tokenizer and template
LLAMA = GOLDEN + "/gguf_models/llama/hf"
ROWS = GOLDEN + "/models/data/train.jsonl"

RUN = f"""base_model: {QWEN}
datasets: [{{path: rows.jsonl}}]
output_dir: out
sequence_len: 48
max_steps: 3
save_steps: 1
save_total_limit: 2
eval_steps: 2
val_set_size: 2
seed: 5
device: cpu
threads: 1
"""


def rows():
    with open(ROWS) as f:
        return "".join(f.readlines()[:8])


def merge_file():
    with open(GOLDEN + "/merge/ties.yml") as f:
        return f.read().replace("models/", GOLDEN + "/merge/models/")


FILES = {
    "run.yaml": RUN + "adapter: lora\nlora_r: 2\n",
    "full.yaml": RUN + "generate_samples: [hello]\ngenerate_samples_tokens: 4\ngenerate_samples_steps: 2\n",
    "qlora.yaml": RUN + "adapter: qlora\nlora_r: 2\nload_in_4bit: true\ngradient_checkpointing: true\n"
                        "sample_packing: true\n",
    "tokens.yaml": RUN + "adapter: lora\nlora_r: 2\ntokens: [<a>]\nspecial_tokens: {pad_token: <p>}\nload_in_8bit: true\n",
    "labels.yaml": RUN.replace("eval_steps: 2\nval_set_size: 2\n", "").replace("rows.jsonl", "labels.jsonl")
                   + "adapter: lora\nlora_r: 2\ntask_type: SEQ_CLS\nnum_labels: 2\n",
    "teacher.yaml": RUN + f"adapter: lora\nlora_r: 2\nteacher_model: {QWEN}\nkd_topk: 4\n",
    "rows.jsonl": rows(),
    "rows.csv": "prompt,completion\nwhat is it,this\n\"and, that\",\"a \"\"b\"\"\"\n",
    "text.jsonl": '{"text": "hello world"}\n{"text": "one, two 345"}\n',
    "ids.jsonl": '{"ids": [257, 276, 78, 265]}\n',
    "chat.jsonl": '{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]}\n',
    # thoughts after the last question alone, which the generation prompt opens: several rows for a record
    "thinks.jinja": "{% set ns = namespace(q=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.q = loop.index0 %}"
                    "{% endif %}{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }} {% if m.role == 'assistant' and "
                    "loop.index0 > ns.q %}T{{ m.reasoning_content }};{% endif %}{{ m.content }}{% for t in m.tool_calls %}"
                    "{{ '!' + t.function.arguments }}{% endfor %}<|im_end|>{% endfor %}"
                    "{% if add_generation_prompt %}<|im_start|>assistant T{% endif %}",
    "thinks.jsonl": '{"messages": [{"role": "user", "content": [{"type": "text", "text": "p"}]}, {"role": "assistant", '
                    '"reasoning_content": "x", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}, '
                    '{"role": "tool", "content": "r"}, {"role": "assistant", "reasoning_content": "y", "content": "A"}, '
                    '{"role": "user", "content": "q"}, {"role": "assistant", "content": "B"}]}\n',
    "forms.jsonl": '{"system": [{"text": "s"}], "tools": [{"name": "f", "input_schema": {}}], "messages": [{"role": "user", "content": "p"}, '
                   '{"role": "assistant", "content": [{"type": "thinking", "thinking": "x"}, {"type": "tool_use", "id": "i", "name": "f", '
                   '"input": {"a": 1}}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "i", "content": [{"json": 1}]}]}, '
                   '{"role": "assistant", "content": [{"text": "A"}]}]}\n'
                   '{"contents": [{"role": "user", "parts": [{"text": "p"}]}, {"role": "model", "parts": [{"text": "A"}]}], "tools": '
                   '[{"functionDeclarations": [{"name": "f", "parameters": {"type": "OBJECT"}}]}]}\n'
                   '{"query": "p", "answers": "[{\\"name\\": \\"f\\", \\"arguments\\": {}}]", "tools": [{"name": "f", "parameters": {"a": '
                   '{"type": "List[int]"}}}]}\n'
                   '{"messages": {"role": ["user", "assistant"], "content": ["p", "A"]}}\n',
    "judged.jsonl": '{"context": [{"role": "user", "content": "p"}], "response1": "A", "response2": "B", "overall_preference": 1}\n',
    "labels.jsonl": '{"text": "good", "label": 1}\n{"text": "bad day", "label": 0}\n{"text": "fine", "label": 1}\n',
    "chat.txt": "hello\n/system be brief\nand again\n",
    "plain.txt": "hello world, this is a text of some words. " * 8,
    "ties.yml": merge_file(),
    # a repository of the hub in the cache
    "hf/hub/models--o--n/refs/main": "0" * 40,
    f"hf/hub/models--o--n/trees/{'0' * 40}.json": '{"format_version": 1, "files": {"config.json": {"size": 2, "blob_id": "%s"}}}' % ("1" * 40),
    f"hf/hub/models--o--n/snapshots/{'0' * 40}/config.json": "{}",
}


class Case:
    def __init__(self, name, *args, stdin=None, first=(), train=False, device=True, keeps=None, client=None):
        self.name, self.stdin, self.first, self.train = name, stdin, first, train
        self.keeps = re.compile(keeps) if keeps else None
        script, *words = client.split() if client else [None]
        self.client = [sys.executable, os.path.join(os.path.dirname(__file__), script), *words] if client else []
        self.writes = train or "-o" in args
        self.copies = not client
        self.args = list(args) + (["--device", "cpu", "--threads", "1"] if device else [])


def cases():
    lora = ["train", "run.yaml", "-q"]
    return [
        Case("help", "--help", device=False),
        Case("train_help", "train", "--help", device=False),
        Case("tokenize", "tokenize", QWEN, stdin="text.jsonl"),
        Case("tokenize_llama", "tokenize", LLAMA, stdin="text.jsonl"),
        Case("decode", "tokenize", QWEN, "--decode", stdin="ids.jsonl"),
        Case("template", "template", QWEN, stdin="chat.jsonl"),
        Case("init", "init", QWEN, "rows.jsonl", "-o", "new.yaml"),
        Case("init_csv", "init", QWEN, "rows.csv"),
        Case("plan", "plan", "run.yaml"),
        Case("plan_json", "plan", "full.yaml", "--json"),
        Case("data_check", "data", "check", "run.yaml"),
        Case("data_preview", "data", "preview", "run.yaml", "--json"),
        Case("data_rows", "data", "preview", "run.yaml", "datasets=[{path: thinks.jsonl}]", "chat_template=thinks.jinja"),
        Case("data_forms", "data", "preview", "run.yaml", "datasets=[{path: forms.jsonl}]", "chat_template=thinks.jinja"),
        Case("data_judged", "data", "preview", "run.yaml", "datasets=[{path: judged.jsonl}]", "rl=dpo", "chat_template=thinks.jinja"),
        Case("data_csv", "data", "preview", "run.yaml", "datasets=[{path: rows.csv}]"),
        Case("records_parquet", "data", "records", GOLDEN + "/columns/scalars.zstd.v2.parquet", "-n", "0"),
        Case("records_arrow", "data", "records", GOLDEN + "/columns/chat.file.lz4.arrow", "-n", "0"),
        Case("records_folder", "data", "records", GOLDEN + "/columns/hub", "--config", "extra"),
        Case("data_table", "data", "check", "run.yaml", "val_set_size=0",
             "datasets=[{path: " + GOLDEN + "/columns/saveddict, split: test}]"),
        Case("pull_offline", "pull", "o/n", "--offline", "--include", "*.json", device=False),
        Case("generate", "generate", QWEN, "-p", "hello", "-n", "4"),
        Case("generate_chat", "generate", QWEN, "-f", "chat.jsonl", "--chat", "-n", "3", "--json", "--temperature", "1"),
        Case("generate_4bit", "generate", QWEN, "-p", "hello", "-n", "2", "--load-in-4bit"),
        Case("chat", "chat", QWEN, "-n", "3", "--json", stdin="chat.txt"),
        Case("classify", "classify", QWEN, "--adapter", "out", "-p", "hello", "--json",
             first=[["train", "labels.yaml", "-q"]]),
        Case("eval", "eval", QWEN, "--data", "rows.jsonl", "--json"),
        Case("eval_text", "eval", QWEN, "--data", "plain.txt", "--seq", "32"),
        Case("logits", "logits", GOLDEN + "/models/qwen2_tiny", "--ids", GOLDEN + "/models/qwen2_tiny/golden.safetensors",
             "-o", "l.safetensors"),
        Case("inspect", "inspect", QWEN, "--all"),
        Case("inspect_stats", "inspect", QWEN, "--stats", "--json"),
        Case("inspect_diff", "inspect", "--diff", GOLDEN + "/merge/models/a", GOLDEN + "/merge/models/base"),
        Case("inspect_gguf", "inspect", GOLDEN + "/models/gguf/llama3.gguf", "--json"),
        Case("inspect_lora", "inspect", GOLDEN + "/peft/lora"),
        Case("inspect_checkpoint", "inspect", "out/checkpoint-3", first=[lora]),
        Case("quantize_nf4", "quantize", QWEN, "-o", "q", "--type", "nf4", "--json"),
        Case("quantize_over", "quantize", QWEN, "-o", "q", "--type", "int8", "--force",
             first=[["quantize", QWEN, "-o", "q", "--type", "nf4"]]),
        Case("quantize_gguf", "quantize", LLAMA, "-o", "q.gguf", "--type", "q4_k_m"),
        Case("quantize_imatrix", "quantize", LLAMA, "-o", "q.gguf", "--type", "q4_0", "--imatrix-data", "plain.txt",
             "--imatrix-out", "i.dat"),
        Case("quantize_eval", "quantize", QWEN, "-o", "q", "--type", "nf4", "--eval", "rows.jsonl"),
        Case("export", "export", LLAMA, "-o", "e.gguf", "--type", "q8_0"),
        Case("export_adapter", "export", LLAMA, "--adapter", GOLDEN + "/gguf_models/llama/lora", "-o", "a.gguf",
             "--adapter-only"),
        Case("export_mlx", "export", GOLDEN + "/gguf_models/llama/lora", "-o", "x"),
        Case("export_import", "export", "e.gguf", "-o", "back", first=[["export", LLAMA, "-o", "e.gguf", "--no-verify"]]),
        Case("merge", "merge", GOLDEN + "/merge/models/base", "--adapter", GOLDEN + "/peft/lora=0.5", "-o", "m"),
        Case("merge_yaml", "merge", "ties.yml", "-o", "m"),
        Case("merge_plan", "merge", "--plan", "ties.yml"),
        Case("merge_extract", "merge", "--extract-lora", GOLDEN + "/merge/models/base", GOLDEN + "/merge/models/a",
             "--rank", "2", "-o", "x"),
        Case("bench", "bench", "--shape", "tiny", "--batch", "1", "--seq", "8", "--seconds", "0.000001", "--json"),
        Case("serve", "serve", QWEN, "--port", "0", client="served.py"),
        Case("capture", "distill", "capture", "teacher.yaml", "-o", "kd.safetensors", keeps=r"\.part(/|$)"),
        Case("train_lora", "train", "run.yaml", "--json", train=True),
        Case("train_full", "train", "full.yaml", "--json", train=True),
        Case("train_qlora", "train", "qlora.yaml", "--json", train=True),
        Case("train_tokens", "train", "tokens.yaml", "--json", train=True),
        Case("train_resume", "train", "run.yaml", "max_steps=5", "resume_from_checkpoint=auto", "--json", first=[lora],
             train=True),
        Case("train_elsewhere", "train", "run.yaml", "load_best_model_at_end=true", "greater_is_better=true", "max_steps=5",
             "resume_from_checkpoint=before/checkpoint-3", "--json", train=True,
             first=[lora + ["load_best_model_at_end=true", "greater_is_better=true", "max_steps=5", "output_dir=before",
                            "save_total_limit=9"]]),
        *(Case(f"ranks_{rank}", "train", "run.yaml", "--json", f"zero_stage={stage}", "ddp_timeout=10", train=True,
               client=f"ranked.py {rank}") for rank, stage in ((0, 1), (1, 3))),
    ]
