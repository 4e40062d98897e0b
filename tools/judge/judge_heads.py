"""Judge models that classify: train heads with afinar, open the results with transformers and PEFT, compare the scores.

    python judge_heads.py AFINAR MODEL_FOLDER        (a small model, for example tests/golden/models/qwen2)

Full and LoRA, one label of several, several labels, numbers, and a reward model; the largest difference of a score is
printed for each, and the script fails above 1e-4.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from peft import PeftModel
from transformers import AutoModelForSequenceClassification, AutoTokenizer

afinar, model = sys.argv[1:3]
tmp = pathlib.Path(tempfile.mkdtemp())
texts = [f"{a} {b} {c}" for a in ("the old lamp", "a new door") for b in ("stands", "falls") for c in ("here.", "there!", "?")]
KINDS = {
    "single": ("task_type: SEQ_CLS\nnum_labels: 3\n", lambda i: i % 3),
    "multi": ("task_type: SEQ_CLS\nclass_names: [a, b, c]\nproblem_type: multi_label_classification\n",
              lambda i: [["a"], ["b", "c"], []][i % 3]),
    "numbers": ("task_type: SEQ_CLS\nnum_labels: 1\n", lambda i: i / 7 - 1),
    "reward": ("rl: reward\n", None),
}
worst = 0.0
for kind, (keys, label) in KINDS.items():
    data = tmp / f"{kind}.jsonl"
    with open(data, "w") as f:
        for i, t in enumerate(texts):
            row = {"text": t, "label": label(i)} if label else {"prompt": "Say. ", "chosen": t, "rejected": texts[i - 1]}
            f.write(json.dumps(row) + "\n")
    for method in ("full", "lora"):
        out = tmp / f"{kind}-{method}"
        run = tmp / "run.yaml"
        run.write_text(f"base_model: {model}\ndatasets: [{{path: {data}}}]\noutput_dir: {out}\n{keys}micro_batch_size: 4\n"
                       f"max_steps: 6\nlearning_rate: 0.002\ndevice: cpu\n" + ("adapter: lora\n" if method == "lora" else ""))
        subprocess.run([afinar, "train", run, "-q"], check=True, stdout=subprocess.DEVNULL)
        args = [model, "--adapter", out] if method == "lora" else [out]
        (tmp / "t.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
        shown = subprocess.run([afinar, "classify", *args, "-f", tmp / "t.jsonl", "--json", "-q"], check=True,
                               capture_output=True, text=True).stdout
        ours = torch.tensor([json.loads(line)["scores"] for line in shown.splitlines()])
        tokenizer = AutoTokenizer.from_pretrained(model)
        if method == "full":
            theirs = AutoModelForSequenceClassification.from_pretrained(out, dtype=torch.float32)
        else:
            base = AutoModelForSequenceClassification.from_pretrained(model, num_labels=ours.shape[1], dtype=torch.float32)
            theirs = PeftModel.from_pretrained(base, out)
        theirs.config.pad_token_id = tokenizer.pad_token_id
        theirs.eval()
        with torch.no_grad():
            want = torch.cat([theirs(**tokenizer(t, return_tensors="pt")).logits for t in texts])
        difference = (ours - want).abs().max().item()
        worst = max(worst, difference)
        print(f"{kind:8} {method:5} {difference:.2e}")
print("worst", worst)
sys.exit(worst > 1e-4)
