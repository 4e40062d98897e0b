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


JUDGES = {"mlflow": mlflow}
for name in sys.argv[2:] or JUDGES:
    print(name, JUDGES[name](ids[name]))
