#!/usr/bin/env python3
"""make_text.py OUT.jsonl [DOCUMENTS] [SEED]: the text the demo's base model is pre-trained on.

Every word is made here, from templates: small stories, notes with questions, index cards, lists
that are repeated, JSON records retold in prose, receipts, chats. So the base model knows the people, the towns, the
punctuation of JSON and the shape of a chat, but it has never seen a sentence turned into JSON: that is what the
demo teaches it. No third-party text is used."""
import json
import random
import sys

from words import (CITIES, COLOURS, DAYS, FOODS, ITEMS, JOBS, MONTHS, NAMES, PLACES, WEATHER)

# Past tense and participle are the same word, so one list serves both.
VERBS = ["bought", "sold", "found", "ordered", "carried", "packed", "picked up", "sent"]


class World:
    """One random draw: a few people, a town, some goods."""

    def __init__(self, r):
        self.r = r
        self.name, self.other = r.sample(NAMES, 2)
        self.city, self.city2 = r.sample(sorted(CITIES), 2)
        self.item, self.item2, self.item3 = r.sample(ITEMS, 3)
        self.day, self.day2 = r.sample(DAYS, 2)
        self.count, self.count2, self.count3 = (number(r) for _ in range(3))
        self.job, self.colour, self.food = r.choice(JOBS), r.choice(COLOURS), r.choice(FOODS)
        self.place, self.place2 = r.sample(PLACES, 2)
        self.weather, self.month = r.choice(WEATHER), r.choice(MONTHS)
        self.verb = r.choice(VERBS)
        self.price = r.randint(2, 99)
        self.age = r.randint(18, 79)


def number(r):
    return r.randint(2, 9) if r.random() < 0.4 else r.randint(10, 99)


def deed(w, name=None, item=None, count=None, city=None, day=None, verb=None):
    """A sentence in which a person does something with a number of things, in some town, on some day."""
    name, item, count = name or w.name, item or w.item, count or w.count
    city, day, verb = city or w.city, day or w.day, verb or w.verb
    return w.r.choice([
        f"{name} {verb} {count} {item} in {city} on {day}.",
        f"On {day} {name} {verb} {count} {item} in {city}.",
        f"In {city}, {name} {verb} {count} {item} on {day}.",
        f"On {day}, in {city}, {name} {verb} {count} {item}.",
        f"{name} was in {city} on {day} and {verb} {count} {item}.",
        f"{name} went to {city} on {day} and {verb} {count} {item}.",
        f"{count} {item} were {verb} by {name} in {city} on {day}.",
        f"It was {day} when {name} {verb} {count} {item} in {city}.",
    ])


def story(w):
    lines = [
        w.r.choice([f"{w.name} is a {w.job} from {w.city}.", f"{w.name} lives in {w.city}.",
                    f"{w.name} the {w.job} came to {w.city} in {w.month}."]),
        w.r.choice([f"It was a {w.weather} {w.day} in {w.city}.",
                    f"{w.city} is a town in {CITIES[w.city]}.",
                    f"The {w.place} of {w.city} is near the {w.place2}."]),
        deed(w),
        w.r.choice([f"The {w.item} were {w.colour}.", f"{w.name} likes {w.item} very much.",
                    f"{w.name} paid {w.price} coins for the {w.item}."]),
        w.r.choice([f"Then {w.name} met {w.other} at the {w.place}.",
                    f"{w.other} gave {w.name} some {w.food}.",
                    f"{w.name} and {w.other} ate {w.food} together."]),
        w.r.choice([f"{w.name} said goodbye to {w.other} and left {w.city} on {w.day2}.",
                    f"In the evening {w.name} put the {w.count} {w.item} on the table.",
                    f"{w.other} wanted the {w.item} too, but {w.name} kept all {w.count}."]),
    ]
    return " ".join(lines[:w.r.randint(3, 6)])


def questions(w):
    asked = [
        (f"Who {w.verb} the {w.item}?", w.name),
        (f"How many {w.item} were there?", str(w.count)),
        (f"What did {w.name} have?", f"{w.count} {w.item}"),
        (f"Where was {w.name}?", w.city),
        ("Which town?", w.city),
        ("Which day was it?", w.day),
        (f"When was {w.name} in {w.city}?", f"on {w.day}"),
        (f"In which country is {w.city}?", CITIES[w.city]),
    ]
    picked = w.r.sample(asked, w.r.randint(5, 7))
    return deed(w) + "\n" + "\n".join(f"Question: {q}\nAnswer: {a}" for q, a in picked)


def card(w):
    """Index cards: what the sentence says, a line for each thing, in any order, twice."""
    lines = [("who", w.name), ("how many", w.count), ("what", w.item), ("where", w.city),
             ("when", w.day)]
    cards = ["\nCard\n" + "\n".join(f"{k}: {v}" for k, v in w.r.sample(lines, 5)) for _ in "12"]
    return deed(w) + "".join(cards)


def facts(w):
    """One to three things in a few words, then asked for: the shortest texts, and so the ones from
    which copying is learned first."""
    known = [("who", "name", w.name), ("how many", "count", w.count), ("what", "item", w.item),
             ("where", "city", w.city), ("when", "day", w.day)]
    picked = w.r.sample(known, w.r.choice([1, 1, 2, 3]))
    head = w.r.choice([
        ", ".join(str(v) for _, _, v in picked),
        " ".join(str(v) for _, _, v in picked),
        json.dumps({k: v for _, k, v in picked}),
        "\n".join(f"{k} = {v}" for _, k, v in picked),
    ])
    w.r.shuffle(picked)
    return head + "\n" + "\n".join(f"{q}: {v}" for q, _, v in picked)


def told_again(w):
    """The same event, described three times in different words."""
    return "\n".join(deed(w) for _ in range(3))


def record(w):
    """JSON first, then the same in prose."""
    person = {"name": w.name, "job": w.job, "city": w.city, "age": w.age}
    offer = {"item": w.item, "count": w.count, "price": w.price, "colour": w.colour}
    visit = {"name": w.name, "city": w.city, "day": w.day, "place": w.place}
    stock = {"city": w.city, "item": w.item, "count": w.count, "day": w.day}
    o, text = w.r.choice([
        (person, f"{w.name} is a {w.job} in {w.city} and is {w.age} years old."),
        (offer, f"There are {w.count} {w.colour} {w.item} and they cost {w.price} coins."),
        (visit, f"{w.name} goes to the {w.place} of {w.city} on {w.day}."),
        (stock, f"On {w.day} the shop in {w.city} has {w.count} {w.item}."),
    ])
    return json.dumps(o) + "\n" + text


def table(w):
    rows = [{"item": i, "count": number(w.r), "price": w.r.randint(2, 99)}
            for i in (w.item, w.item2, w.item3)]
    return json.dumps({"name": w.name, "day": w.day, "city": w.city}) + "\n" + \
        "\n".join(json.dumps(x) for x in rows)


def receipt(w):
    return (f"Shop of {w.other}, {w.city}, {w.day}\n{w.count} {w.item}\n{w.count2} {w.item2}\n"
            f"{w.count3} {w.item3}\n"
            f"{w.name} paid for the {w.count} {w.item}, the {w.count2} {w.item2} and the "
            f"{w.count3} {w.item3} in {w.city} on {w.day}.")


def echo(w):
    """A list of words, and the same list again, in words or as JSON."""
    pool = NAMES + ITEMS + sorted(CITIES) + DAYS
    words = [str(number(w.r)) if w.r.random() < 0.2 else w.r.choice(pool)
             for _ in range(w.r.randint(3, 6))]
    as_json = json.dumps([int(x) if x.isdigit() else x for x in words])
    forms = [" ".join(words), ", ".join(words), as_json, "\n".join(words)]
    return "\n".join(w.r.sample(forms, 2))


def turn(role, text):
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


def chat(w):
    """A chat in prose: the user makes a statement, the assistant answers or repeats it."""
    statement = deed(w)
    answer = w.r.choice([
        f"{w.name} has {w.count} {w.item} now.",
        f"{w.city} is in {CITIES[w.city]}.",
        f"So {w.name} was in {w.city} on {w.day}.",
        f"{w.count} {w.item}! {w.name} must be happy.",
        f"I hope {w.name} liked {w.city}.",
    ])
    if w.r.random() < 0.5:
        return turn("user", statement) + turn("assistant", answer)
    q, a = w.r.choice([
        (f"Where is {w.city}?", f"{w.city} is in {CITIES[w.city]}."),
        (f"What does {w.name} eat?", f"{w.name} eats {w.food}."),
        (f"How is the weather in {w.city}?", f"It is {w.weather} in {w.city}."),
    ])
    return turn("user", statement) + turn("assistant", answer) + turn("user", q) + turn("assistant", a)


KINDS = [(facts, 16), (told_again, 3), (card, 5), (questions, 3), (record, 2), (echo, 1), (chat, 2),
         (story, 1), (receipt, 1), (table, 1)]


def main():
    out, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20000
    r = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    kinds, weights = zip(*KINDS)
    with open(out, "w", encoding="utf-8") as f:
        for _ in range(count):
            text = r.choices(kinds, weights)[0](World(r))
            f.write(json.dumps({"text": text}) + "\n")


if __name__ == "__main__":
    main()
