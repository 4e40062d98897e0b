#!/usr/bin/env python3
"""make_task.py TRAIN.jsonl TEST.jsonl [RECORDS] [TESTS] [SEED]: the task the demo teaches.

A sentence goes in, JSON with five fields comes out:
    Maria bought 3 melons in Lima on Friday.
    {"name": "Maria", "count": 3, "item": "melons", "town": "Lima", "day": "Friday"}
A fifth of the names, goods and towns is kept out of TRAIN; TEST draws from all of them, so most of
its records hold at least one word that fine-tuning never saw, and none repeats a (name, item, city)
of TRAIN."""
import json
import random
import sys

from make_text import World, deed
from words import CITIES, ITEMS, NAMES


def held_out(r, words):
    return set(r.sample(sorted(words), len(words) // 5))


def record(w):
    answer = {"name": w.name, "count": w.count, "item": w.item, "town": w.city, "day": w.day}
    return {"messages": [{"role": "user", "content": deed(w)},
                         {"role": "assistant", "content": json.dumps(answer)}]}


def main():
    train, test = sys.argv[1:3]
    count, tests, seed = (int(a) for a in (sys.argv[3:] + ["1500", "200", "7"][len(sys.argv) - 3:]))
    r = random.Random(seed)
    kept = held_out(r, NAMES) | held_out(r, ITEMS) | held_out(r, CITIES)
    seen = set()
    with open(train, "w", encoding="utf-8") as f:
        while count:
            w = World(r)
            if kept & {w.name, w.item, w.city}:
                continue
            seen.add((w.name, w.item, w.city))
            f.write(json.dumps(record(w)) + "\n")
            count -= 1
    with open(test, "w", encoding="utf-8") as f:
        while tests:
            w = World(r)
            if (w.name, w.item, w.city) in seen:
                continue
            f.write(json.dumps(record(w)) + "\n")
            tests -= 1


if __name__ == "__main__":
    main()
