#!/usr/bin/env python3
"""score.py prompts TEST.jsonl OUT.jsonl: the questions of TEST without their answers.
score.py table TEST.jsonl BEFORE.jsonl AFTER.jsonl: exact match before and after, three examples;
exit 1 unless the score rose from under 5 % to over 90 %.

An answer is right when its text is the expected text, to the letter. Standard library only."""
import json
import sys

BEFORE_MOST, AFTER_LEAST = 5.0, 90.0
EXAMPLES = 3


def rows(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()]


def prompts(test, out):
    with open(out, "w", encoding="utf-8") as f:
        for row in rows(test):
            f.write(json.dumps({"messages": row["messages"][:-1]}) + "\n")


def answer(row):
    return row["text"].removesuffix("<|im_end|>")


def one_line(text):
    return text.replace("\n", "\\n")


def percent(right, expected):
    return 100.0 * sum(right) / len(expected)


def table(test, before, after):
    asked = rows(test)
    expected = [r["messages"][-1]["content"] for r in asked]
    old, new = ([answer(r) for r in rows(p)] for p in (before, after))
    if not len(expected) == len(old) == len(new):
        sys.exit(f"score.py: {len(expected)} questions, {len(old)} and {len(new)} answers")
    for i in range(0, len(expected), max(1, len(expected) // EXAMPLES))[:EXAMPLES]:
        print(f"\n  prompt    {asked[i]['messages'][-2]['content']}")
        print(f"  before    {one_line(old[i])}")
        print(f"  after     {one_line(new[i])}")
        print(f"  expected  {expected[i]}")
    scores = [percent([a == b for a, b in zip(x, expected)], expected) for x in (old, new)]
    print(f"\nexact match on {len(expected)} held-out sentences: "
          f"before {scores[0]:.1f} %, after {scores[1]:.1f} %")
    if scores[0] >= BEFORE_MOST or scores[1] <= AFTER_LEAST:
        sys.exit(f"the demo failed: it should rise from under {BEFORE_MOST:g} % "
                 f"to over {AFTER_LEAST:g} %")


def main():
    commands = {"prompts": (prompts, 2), "table": (table, 3)}
    if len(sys.argv) < 2 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    f, count = commands[sys.argv[1]]
    if len(sys.argv) != 2 + count:
        sys.exit(__doc__)
    f(*sys.argv[2:])


if __name__ == "__main__":
    main()
