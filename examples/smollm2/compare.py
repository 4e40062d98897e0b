#!/usr/bin/env python3
"""compare.py prompts EVAL.jsonl COUNT OUT.jsonl: the first questions of EVAL, without answers.
compare.py table EVAL.jsonl BEFORE.jsonl AFTER.jsonl METRICS.jsonl: eval loss, format, examples."""
import json
import re
import sys

SHOWN = 2


def rows(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()]


def prompts(source, count, out):
    with open(out, "w", encoding="utf-8") as f:
        for row in rows(source)[:int(count)]:
            f.write(json.dumps({"messages": row["messages"][:-1]}) + "\n")


def answer(row):
    return row["text"].removesuffix("<|im_end|>").strip()


def final(text):
    """N of a last line "#### N", or None."""
    found = re.search(r"(?:^|\n)#### (-?\d+)$", text)
    return found and found[1]


def table(source, before, after, metrics):
    asked, old, new = rows(source), rows(before), rows(after)
    for i in range(SHOWN):
        print("\n--- question: " + asked[i]["messages"][-2]["content"])
        print("--- before:\n" + answer(old[i]))
        print("--- after:\n" + answer(new[i]))
        print("--- expected:\n" + asked[i]["messages"][-1]["content"])
    print()
    for name, got in (("before", old), ("after", new)):
        ends = [final(answer(g)) for g in got]
        right = sum(e is not None and e == final(a["messages"][-1]["content"])
                    for e, a in zip(ends, asked))
        print(f"{name}: of {len(got)} answers {sum('<<' in answer(g) for g in got)} calculate in << >>, "
              f"{sum(e is not None for e in ends)} end in \"#### N\", {right} with the right N")
    for row in rows(metrics):
        if "eval_loss" in row:
            print(f"step {row['step']}: eval loss {row['eval_loss']:.4f}")


def main():
    commands = {"prompts": (prompts, 3), "table": (table, 4)}
    if len(sys.argv) < 2 or sys.argv[1] not in commands or \
            len(sys.argv) != 2 + commands[sys.argv[1]][1]:
        sys.exit(__doc__)
    commands[sys.argv[1]][0](*sys.argv[2:])


if __name__ == "__main__":
    main()
