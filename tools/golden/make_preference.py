#!/usr/bin/env python3
"""Cuts the reference numbers of preference losses (made with TRL 1.16) down to tests/golden.

    make_preference.py SOURCE_FOLDER tests/golden/preference

SOURCE_FOLDER holds units, data and runs; of each file of units two batches are kept, of the runs three."""
import json
import os
import shutil
import sys

source, target = sys.argv[1:]
os.makedirs(os.path.join(target, "units"), exist_ok=True)
for name in ["dpo", "kto", "orpo", "cpo", "reward"]:
    with open(os.path.join(source, "units", name + ".json")) as f:
        data = json.load(f)
    keep = [2, 12]
    data["batches"] = [b for b in data["batches"] if b["batch"] in keep]
    data["results"] = [r for r in data["results"] if r["batch"] in keep]
    with open(os.path.join(target, "units", name + ".json"), "w") as f:
        json.dump(data, f, separators=(",", ":"))
        f.write("\n")

# three runs of the Qwen2 of tests/golden/models, with the adapter they begin with
for path in ["data/preferences.jsonl", "data/kto.jsonl", "runs/initial/qwen2/adapter_config.json",
             "runs/initial/qwen2/adapter_model.safetensors", "runs/kto/final_adapter/adapter_model.safetensors"]:
    os.makedirs(os.path.dirname(os.path.join(target, path)), exist_ok=True)
    shutil.copyfile(os.path.join(source, path), os.path.join(target, path))
for run in ["dpo-ipo", "kto", "simpo"]:
    os.makedirs(os.path.join(target, "runs", run), exist_ok=True)
    for name in ["run.json", "trajectory.json"]:
        shutil.copyfile(os.path.join(source, "runs", run, name), os.path.join(target, "runs", run, name))
