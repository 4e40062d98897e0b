#!/usr/bin/env python3
"""make_data.py TRAIN.jsonl EVAL.jsonl [RECORDS] [EVALS] [SEED]: word problems in the style of GSM8K.

Each answer proceeds step by step, with the calculation in << >>, and ends in a line "#### N", as the
answers of GSM8K do. The texts are generated here from templates; none is from GSM8K."""
import json
import random
import sys

NAMES = "Ana Ben Carla Dan Elsa Farid Gina Hugo Ines Jack Kira Leo Mona Nils Olga Paul Rosa Sam".split()
GOODS = "apples pencils cookies stickers marbles books shells cards buttons oranges".split()
BOXES = "boxes bags baskets trays shelves".split()


def shop(r):
    n, g = r.choice(NAMES), r.choice(GOODS)
    a, b, c = r.randint(2, 12), r.randint(2, 9), r.randint(5, 60)
    return (f"{n} buys {a} bags of {g}. Each bag costs {b} dollars. {n} also buys a lamp for {c} "
            f"dollars. How much does {n} spend in total?",
            [f"The {g} cost {a} * {b} = <<{a}*{b}={a * b}>>{a * b} dollars.",
             f"In total {n} spends {a * b} + {c} = <<{a * b}+{c}={a * b + c}>>{a * b + c} dollars."],
            a * b + c)


def gifts(r):
    n, m = r.sample(NAMES, 2)
    g, a = r.choice(GOODS), r.randint(30, 90)
    b, c = r.randint(3, 14), r.randint(3, 14)
    left = a - b - c
    return (f"{n} has {a} {g}. {n} gives {b} {g} to {m} and loses {c} of them. How many {g} does "
            f"{n} have left?",
            [f"After the gift {n} has {a} - {b} = <<{a}-{b}={a - b}>>{a - b} {g}.",
             f"After the loss {n} has {a - b} - {c} = <<{a - b}-{c}={left}>>{left} {g}."], left)


def share(r):
    n, g, x = r.choice(NAMES), r.choice(GOODS), r.choice(BOXES)
    k, each, extra = r.randint(2, 9), r.randint(3, 12), r.randint(1, 9)
    return (f"{n} has {k * each} {g} and puts them in {k} {x}, the same number in each. Then {n} adds "
            f"{extra} {g} to the first one. How many {g} are in it now?",
            [f"Each holds {k * each} / {k} = <<{k * each}/{k}={each}>>{each} {g}.",
             f"The first one then holds {each} + {extra} = <<{each}+{extra}={each + extra}>>"
             f"{each + extra} {g}."], each + extra)


def work(r):
    n = r.choice(NAMES)
    h, d, p = r.randint(2, 8), r.randint(2, 6), r.randint(8, 25)
    return (f"{n} works {h} hours a day for {d} days and earns {p} dollars an hour. How many dollars "
            f"does {n} earn?",
            [f"{n} works {h} * {d} = <<{h}*{d}={h * d}>>{h * d} hours.",
             f"{n} earns {h * d} * {p} = <<{h * d}*{p}={h * d * p}>>{h * d * p} dollars."],
            h * d * p)


def ages(r):
    n, m = r.sample(NAMES, 2)
    a, k, y = r.randint(3, 15), r.randint(2, 4), r.randint(2, 20)
    return (f"{n} is {a} years old. {m} is {k} times as old as {n}. How old will {m} be in {y} years?",
            [f"{m} is {a} * {k} = <<{a}*{k}={a * k}>>{a * k} years old.",
             f"In {y} years {m} will be {a * k} + {y} = <<{a * k}+{y}={a * k + y}>>{a * k + y}."],
            a * k + y)


def write(path, r, count, seen):
    with open(path, "w", encoding="utf-8") as f:
        while count:
            question, steps, number = r.choice([shop, gifts, share, work, ages])(r)
            if question in seen:
                continue
            seen.add(question)
            count -= 1
            answer = "\n".join(steps + [f"#### {number}"])
            f.write(json.dumps({"messages": [{"role": "user", "content": question},
                                             {"role": "assistant", "content": answer}]}) + "\n")


def main():
    numbers = [int(a) for a in sys.argv[3:]]
    count, evals, seed = numbers + [500, 20, 11][len(numbers):]
    r, seen = random.Random(seed), set()
    write(sys.argv[1], r, count, seen)
    write(sys.argv[2], r, evals, seen)


if __name__ == "__main__":
    main()
