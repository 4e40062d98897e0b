#!/usr/bin/env python3
"""Cuts the reference numbers of preference losses (made with TRL 1.16) down to tests/golden.

    make_preference.py SOURCE_FOLDER tests/golden/preference

SOURCE_FOLDER holds units/*.json; of each file two batches are kept."""
import json
import os
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
