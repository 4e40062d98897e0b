"""trackers_check.py OUTPUT TRACKER|all STATUS STEPS EXPERIMENT [STORE]: a run's stores against its metrics.jsonl."""
import json
import pathlib
import re
import sys

out, which, status, steps, experiment = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]
store = pathlib.Path(sys.argv[6]) if len(sys.argv) > 6 else out / "mlruns"
rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
assert max(r["step"] for r in rows) == steps
assert any("eval_loss" in r for r in rows)


def mlflow():
    runs = [p.parent for p in store.glob("*/*/meta.yaml")]
    assert len(runs) == 1, runs
    run = runs[0]
    assert json.loads((out / "trackers.json").read_text())["mlflow"] == str(run.resolve())
    meta = (run / "meta.yaml").read_text()
    assert f"\nstatus: {dict(RUNNING=1, FINISHED=3, KILLED=5)[status]}\n" in meta, meta
    assert f"\nexperiment_id: '{run.parent.name}'\n" in meta and f"\nrun_id: '{run.name}'\n" in meta, meta
    assert re.fullmatch(r"\d+", run.parent.name) and re.fullmatch("[0-9a-f]{32}", run.name)
    assert f'\nname: "{experiment}"\n' in (run.parent / "meta.yaml").read_text()
    assert (run.parent.name == "0") == (experiment == "Default")
    assert (run / "tags/mlflow.runName").read_text() == "a: 'run'"
    assert (run / "params/learning_rate").read_text() in ("0.001", "1e-3")
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


CHECKS = {"mlflow": mlflow}
for name, check in CHECKS.items():
    if which in (name, "all"):
        check()
