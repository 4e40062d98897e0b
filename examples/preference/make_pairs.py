#!/usr/bin/env python3
"""make_pairs.py TRAIN.jsonl TEST.jsonl [PAIRS] [TESTS] [SEED]: pairs for the preference example.

The base model of the demo has only ever read sentences that name the town before the day:
    Maria bought 3 melons in Lima on Friday.
The chosen answer names the day first, the rejected one the town. A fifth of the names, goods and
towns is kept out of TRAIN; TEST draws from all of them."""
import json
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "demo"))
from make_text import World  # noqa: E402
from words import CITIES, ITEMS, NAMES  # noqa: E402


def held_out(r, words):
    return set(r.sample(sorted(words), len(words) // 5))


def pair(w):
    return {"prompt": f"{w.name} {w.verb} {w.count} {w.item}",
            "chosen": f" on {w.day} in {w.city}.",
            "rejected": f" in {w.city} on {w.day}."}


def main():
    train, test = sys.argv[1:3]
    count, tests, seed = (int(a) for a in (sys.argv[3:] + ["600", "100", "11"][len(sys.argv) - 3:]))
    r = random.Random(seed)
    kept = held_out(r, NAMES) | held_out(r, ITEMS) | held_out(r, CITIES)
    seen = set()
    with open(train, "w", encoding="utf-8") as f:
        while count:
            w = World(r)
            if kept & {w.name, w.item, w.city}:
                continue
            seen.add((w.name, w.item))
            f.write(json.dumps(pair(w)) + "\n")
            count -= 1
    with open(test, "w", encoding="utf-8") as f:
        while tests:
            w = World(r)
            if (w.name, w.item) in seen:
                continue
            f.write(json.dumps(pair(w)) + "\n")
            tests -= 1


if __name__ == "__main__":
    main()
