#!/usr/bin/env python3
"""Dataset folders of many layouts: `afinar data records FOLDER --config C --split S` has to give the rows of datasets.load_dataset.

judge_layouts.py AFINAR: exit 0 when all agree. Folders by names, by folders of splits, with cards; saved with save_to_disk; in the cache of datasets."""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = tempfile.TemporaryDirectory()
os.environ["HF_HOME"], os.environ["HF_HUB_OFFLINE"] = FOLDER.name + "/home", "1"
import datasets  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402


def card(configs):
    return "---\nlicense: mit\nconfigs:\n" + configs + "---\n# A card\n"


# files with their number of rows; the configurations to ask for
LAYOUTS = [
    ({"train.jsonl": 3, "test.jsonl": 2}, [None]),
    ({"data/train-00000-of-00002.parquet": 3, "data/train-00001-of-00002.parquet": 2, "data/test-00000-of-00001.parquet": 4}, [None]),
    ({"train/x.parquet": 3, "train/y.parquet": 1, "test/y.parquet": 2}, [None]),
    ({"data/train/x.parquet": 3, "data/validation/y.parquet": 2}, [None]),
    ({"foo_train.jsonl": 3, "foo_val.jsonl": 2, "README.md": "hi"}, [None]),
    ({"a.jsonl": 3, "b.jsonl": 2}, [None]),
    ({"train.jsonl": 2, "dev.jsonl": 1, "eval.jsonl": 3}, [None]),
    ({"x-train-0.parquet": 2, "x-training.parquet": 1, "x-test.parquet": 3}, [None]),
    ({"my_data.train.jsonl": 2, "my_data.test.jsonl": 3}, [None]),
    ({"train0.jsonl": 2, "train1.jsonl": 3, "test0.jsonl": 1}, [None]),
    ({"mytrain.jsonl": 2, "mytest.jsonl": 3}, [None]),
    ({"a/b/c.parquet": 2, "a/d.parquet": 1}, [None]),
    ({"en/train.parquet": 2, "fr/train.parquet": 3, "fr/test.parquet": 1, "README.md": card("- {config_name: en, data_dir: en}\n- {config_name: fr, data_dir: fr}\n")}, ["en", "fr"]),
    ({"en.parquet": 2, "fr.parquet": 3, "README.md": card("- {config_name: en, data_files: en.parquet}\n- {config_name: fr, data_files: [fr.parquet]}\n")}, ["en", "fr"]),
    ({"d/1.parquet": 2, "d/2.parquet": 3, "e/f/3.parquet": 1,
      "README.md": card("- config_name: default\n  data_files:\n  - split: train\n    path: [d/1.parquet, '**/3.parquet']\n  - {split: extra, path: d/2*}\n")}, [None]),
    ({"a-1.parquet": 2, "b-1.parquet": 3, "README.md": card("- {config_name: a, data_files: 'a-*'}\n- {config_name: b, default: true, data_files: 'b-*'}\n")}, [None, "a", "b"]),
]


def write(root, files):
    for name, n in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [] if isinstance(n, str) else [f"{name} {i}" for i in range(n)]
        if isinstance(n, str):
            path.write_text(n)
        elif name.endswith(".jsonl"):
            path.write_text("".join(json.dumps({"text": x}) + "\n" for x in rows))
        else:
            pq.write_table(pa.table({"text": rows}), path)


def records(program, root, config, split):
    more = [x for k, v in (("--config", config), ("--split", split)) if v for x in (k, v)]
    done = subprocess.run([program, "data", "records", str(root), "-n", "0", *more], capture_output=True)
    return [json.loads(x)["text"] for x in done.stdout.decode().split("\n") if x] if done.returncode == 0 else done.stderr.decode()


def main():
    datasets.disable_progress_bars()
    program, asked, bad = os.path.abspath(sys.argv[1]), 0, 0

    def compare(what, root, config, split, want):
        nonlocal asked, bad
        got, asked = records(program, root, config, split), asked + 1
        if got != list(want):
            bad += 1
            print(f"{what}, config {config}, split {split}: {list(want)[:5]}, not {got[:5] if isinstance(got, list) else got}")

    for k, (files, configs) in enumerate(LAYOUTS):
        root = Path(FOLDER.name) / str(k)
        write(root, files)
        for config in configs:
            found = datasets.load_dataset(str(root), config)
            for split in found:
                compare(f"layout {k}", root, config, split, found[split]["text"])
            compare(f"layout {k}", root, config, None, found["train"]["text"])
            found.save_to_disk(str(root) + ".saved")
            for split in found:
                compare(f"layout {k} saved", str(root) + ".saved", None, split, found[split]["text"])
                cached = Path(found[split].cache_files[0]["filename"]).parent
                compare(f"layout {k} cached", cached, None, split, found[split]["text"])
    print(f"{asked} folders and splits, {bad} differ")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
