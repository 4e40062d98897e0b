#!/usr/bin/env python3
"""score.py prompts TEST.jsonl OUT.jsonl: the prompts of TEST.
score.py table TEST.jsonl BEFORE.jsonl AFTER.jsonl: the win rate before and after: the share of
answers that name a day before a town. Exit 1 unless it rose from under 5 % to over 90 %.

Standard library only."""
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "demo"))
from words import CITIES, DAYS  # noqa: E402

BEFORE_MOST, AFTER_LEAST = 5.0, 90.0
EXAMPLES = 3
WINS = re.compile(rf"^ on ({'|'.join(DAYS)}) in ({'|'.join(sorted(CITIES))})\.")


def rows(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()]


def prompts(test, out):
    with open(out, "w", encoding="utf-8") as f:
        for row in rows(test):
            f.write(json.dumps({"prompt": row["prompt"]}) + "\n")


def table(test, before, after):
    asked = rows(test)
    old, new = ([r["text"] for r in rows(p)] for p in (before, after))
    if not len(asked) == len(old) == len(new):
        sys.exit(f"score.py: {len(asked)} prompts, {len(old)} and {len(new)} answers")
    for i in range(0, len(asked), max(1, len(asked) // EXAMPLES))[:EXAMPLES]:
        print(f"\n  prompt    {asked[i]['prompt']}")
        print(f"  before   {old[i].splitlines()[0] if old[i] else ''}")
        print(f"  after    {new[i].splitlines()[0] if new[i] else ''}")
    rates = [100.0 * sum(bool(WINS.match(t)) for t in x) / len(asked) for x in (old, new)]
    print(f"\nwin rate on {len(asked)} held-out prompts: before {rates[0]:.1f} %, after {rates[1]:.1f} %")
    if rates[0] >= BEFORE_MOST or rates[1] <= AFTER_LEAST:
        sys.exit(f"the example failed: it should rise from under {BEFORE_MOST:g} % "
                 f"to over {AFTER_LEAST:g} %")


def main():
    commands = {"prompts": (prompts, 2), "table": (table, 3)}
    if len(sys.argv) < 2 or sys.argv[1] not in commands or len(sys.argv) != 2 + commands[sys.argv[1]][1]:
        sys.exit(__doc__)
    commands[sys.argv[1]][0](*sys.argv[2:])


if __name__ == "__main__":
    main()
