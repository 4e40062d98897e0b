"""trackers_check.py OUTPUT TRACKER|all STATUS STEPS EXPERIMENT [STORE]: a run's stores against its metrics.jsonl."""
import json
import pathlib
import os
import re
import sqlite3
import sys

from wandb_file import fields, records

out, which, status, steps, experiment = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]
store = pathlib.Path(sys.argv[6]) if len(sys.argv) > 6 else out / "mlruns"
rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
assert max(r["step"] for r in rows) == steps
assert any("eval_loss" in r for r in rows)
rate = float(re.search(r"^learning_rate: (\S+)", (out / "run.yaml").read_text(), re.M)[1])


def mlflow():
    runs = [p.parent for p in store.glob("*/*/meta.yaml")]
    assert len(runs) == 1, runs
    run = runs[0]
    assert json.loads((out / "trackers.json").read_text())["mlflow"] == str(run.resolve())
    meta = (run / "meta.yaml").read_text()
    assert f"\nstatus: {dict(RUNNING=1, FINISHED=3, FAILED=4, KILLED=5)[status]}\n" in meta, meta
    assert f"\nexperiment_id: '{run.parent.name}'\n" in meta and f"\nrun_id: '{run.name}'\n" in meta, meta
    assert re.fullmatch(r"\d+", run.parent.name) and re.fullmatch("[0-9a-f]{32}", run.name)
    assert f'\nname: "{experiment}"\n' in (run.parent / "meta.yaml").read_text()
    assert (run.parent.name == "0") == (experiment == "Default")
    assert (run / "tags/mlflow.runName").read_text() == "a: 'run'"
    assert float((run / "params/learning_rate").read_text()) == rate
    assert (run / "params/output_dir").read_text() == out.name
    wanted = {}
    for row in rows:
        for key, value in row.items():
            if key != "step":
                wanted.setdefault(key, []).append((value, row["step"]))
    found = {}
    for path in (run / "metrics").iterdir():
        lines = [line.split(" ") for line in path.read_text().splitlines()]
        assert all(1.5e12 < int(a) < 1e13 for a, _, _ in lines), lines
        found[path.name] = [(float(b), int(c)) for _, b, c in lines]
    assert found.keys() == wanted.keys(), found.keys()
    for key in wanted:
        assert found[key] == wanted[key], (key, found[key], wanted[key])


def hf_names(row):
    """As the callbacks of transformers rewrite them."""
    return {("eval/" + k[5:] if k.startswith("eval_") else "train/" + k): v for k, v in row.items() if k != "step"}


def items(message, key_field):
    pairs = [dict(fields(v)) for f, v in fields(message) if f == 1]
    return {p[key_field].decode(): json.loads(p[16]) for p in pairs}


def wandb():
    paths = list((out / "wandb").glob("offline-run-*/run-*.wandb"))
    assert len(paths) == 1, paths
    path = paths[0]
    assert re.fullmatch(r"offline-run-\d{8}_\d{6}-idOne", path.parent.name) and path.name == "run-idOne.wandb"
    log = [list(fields(r)) for r in records(path)]
    assert [r[0] for r in log] == [(1, i + 1) for i in range(len(log))]
    kinds = [r[1][0] for r in log]
    assert kinds == [21, 17] + [2] * len(rows) + [3, 18], kinds
    run = dict(fields(log[1][1][1]))
    assert (run[1], run[3], run[8]) == (b"idOne", b"proj", b"a: 'run'"), run
    assert items(run[4], 1)["learning_rate"] == rate and len(items(run[4], 1)) > 40
    for i, row in enumerate(rows):
        got = items(log[2 + i][1][1], 2)
        assert got.pop("_step") == i and got.pop("train/global_step") == row["step"]
        assert got.pop("_timestamp") > 1.5e9 and got.pop("_runtime") >= 0
        assert got == hf_names(row), (got, row)
    assert items(log[-2][1][1], 2)["eval/loss"] == [r["eval_loss"] for r in rows if "eval_loss" in r][-1]
    assert dict(fields(log[-1][1][1]))[1] == dict(FINISHED=0, FAILED=1, KILLED=255)[status]
    assert f"learning_rate:\n    value: {rate:g}" in (path.parent / "files/config.yaml").read_text()
    assert json.loads((path.parent / "files/wandb-metadata.json").read_text())["program"] == "afinar"


def trackio():
    db = sqlite3.connect(os.environ["TRACKIO_DIR"] + "/myproj.db")
    run = json.loads((out / "trackers.json").read_text())["trackio"]
    found = list(db.execute("SELECT step, metrics, run_name, timestamp FROM metrics WHERE run_id = ? ORDER BY id", (run,)))
    assert db.execute("SELECT COUNT(*) FROM metrics").fetchone()[0] == len(found) == len(rows), found
    for (step, text, name, time), row in zip(found, rows):
        assert step == row["step"] and name == "a: 'run'" and re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}\.\d{6}\+00:00", time)
        assert json.loads(text) == hf_names(row), (text, row)
    configs = list(db.execute("SELECT run_id, config FROM configs"))
    assert len(configs) == 1 and configs[0][0] == run and json.loads(configs[0][1])["learning_rate"] == rate


CHECKS = {"mlflow": mlflow, "wandb": wandb, "trackio": trackio}
for name, check in CHECKS.items():
    if which in (name, "all"):
        check()
