#!/usr/bin/env python3
"""judge_trackers.py OUTPUT [TRACKER ...]: opens what report_to wrote into a run's output folder with the trackers' own
packages (mlflow, wandb, trackio) and compares every value with metrics.jsonl. Exits 1 at the first difference."""
import json
import os
import pathlib
import sys

out = pathlib.Path(sys.argv[1])
ids = json.loads((out / "trackers.json").read_text())
rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def mlflow(run_dir):
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow import MlflowClient

    root = pathlib.Path(run_dir).parent.parent
    client = MlflowClient(tracking_uri=root.as_uri())
    runs = client.search_runs([e.experiment_id for e in client.search_experiments()])
    run = next(r for r in runs if r.info.run_id == pathlib.Path(run_dir).name)
    assert run.info.status == "FINISHED" and run.info.end_time >= run.info.start_time, run.info
    for key in {k for r in rows for k in r} - {"step"}:
        history = [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, key)]
        assert history == [(r["step"], r[key]) for r in rows if key in r], (key, history)
    assert run.data.metrics["loss"] == [r["loss"] for r in rows if "loss" in r][-1]
    return f"{len(runs)} runs, {len(run.data.metrics)} metrics, {len(run.data.params)} parameters"


def wandb(path):
    """With the reader of wandb 0.19 (later ones have it in Go only): WANDB_DATASTORE names its datastore.py."""
    import importlib.util

    import wandb as package
    from wandb.proto import wandb_internal_pb2

    package._assert_is_internal_process = True
    spec = importlib.util.spec_from_file_location("datastore", os.environ["WANDB_DATASTORE"])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    store, log = module.DataStore(), []
    store.open_for_scan(path)
    while (data := store.scan_data()) is not None:
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        log.append(record)
    kinds = [r.WhichOneof("record_type") for r in log]
    assert kinds == ["header", "run"] + ["history"] * len(rows) + ["summary", "exit"], kinds
    assert log[-1].exit.exit_code == 0 and log[1].run.run_id in path
    config = {u.key: json.loads(u.value_json) for u in log[1].run.config.update}
    for i, (record, row) in enumerate(zip(log[2:], rows)):
        got = {item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
        assert record.history.step.num == i == got["_step"] and got["train/global_step"] == row["step"]
        for key, value in row.items():
            name = "eval/" + key[5:] if key.startswith("eval_") else "train/" + key
            assert key == "step" or got[name] == value, (key, got)
    return f"{len(log)} records, {len(config)} settings"


def trackio(run_id):
    """TRACKIO_DIR and, unless it is the default one, TRACKIO_PROJECT as in the run."""
    from trackio.sqlite_storage import SQLiteStorage

    project = os.environ.get("TRACKIO_PROJECT", "huggingface")
    assert project in SQLiteStorage.get_projects()
    records = SQLiteStorage.get_run_records(project)
    assert any(r["id"] == run_id for r in records), records
    logs = SQLiteStorage.get_logs(project, run_id=run_id)
    assert len(logs) == len(rows), logs
    for got, row in zip(logs, rows):
        for key, value in row.items():
            name = "step" if key == "step" else "eval/" + key[5:] if key.startswith("eval_") else "train/" + key
            assert got[name] == value, (name, got)
    return f"{len(records)} runs, {len(logs)} rows"


JUDGES = {"mlflow": mlflow, "wandb": wandb, "trackio": trackio}
for name in sys.argv[2:] or JUDGES:
    print(name, JUDGES[name](ids[name]))
