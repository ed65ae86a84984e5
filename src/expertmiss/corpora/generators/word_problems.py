"""Arithmetic word problems in the form of GSM8K: a question, worked steps, and ``#### answer``.

A template is scene x plan x wording. Scenes give nouns and verbs, plans the arithmetic (one to three operations, results below
100, most of them small), wordings the surface. Templates held out from training share scenes, plans and wordings with training
templates, but never all three. Difficulty is for a model of some 30 million parameters whose tokenizer splits numbers into digits.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from expertmiss.corpora.generators.base import Problem, Template

NAMES = [
    "Anna",
    "Ben",
    "Carla",
    "David",
    "Emma",
    "Felix",
    "Greta",
    "Hugo",
    "Iris",
    "Jonas",
    "Klara",
    "Leo",
    "Mia",
    "Noah",
    "Olga",
    "Paul",
    "Rosa",
    "Sam",
    "Tina",
    "Umar",
    "Vera",
    "Will",
    "Yara",
    "Zoe",
    "Amir",
    "Bella",
    "Chen",
    "Dora",
    "Elif",
    "Farid",
    "Gina",
    "Hana",
    "Ivan",
    "Julia",
    "Kofi",
    "Lena",
    "Marco",
    "Nina",
    "Oscar",
    "Priya",
]


@dataclass(frozen=True)
class Scene:
    """``gain`` and ``lose`` are verbs, singular; ``box`` holds several ``items``."""

    items: str
    gain: str
    lose: str
    box: str
    boxes: str


SCENES = {
    "apples": Scene("apples", "picks", "eats", "basket", "baskets"),
    "books": Scene("books", "buys", "gives away", "shelf", "shelves"),
    "coins": Scene("coins", "finds", "spends", "jar", "jars"),
    "pencils": Scene("pencils", "gets", "loses", "box", "boxes"),
    "cards": Scene("cards", "wins", "trades away", "pack", "packs"),
    "stickers": Scene("stickers", "collects", "uses", "sheet", "sheets"),
    "cookies": Scene("cookies", "bakes", "sells", "tray", "trays"),
    "eggs": Scene("eggs", "collects", "breaks", "carton", "cartons"),
    "flowers": Scene("flowers", "plants", "cuts", "row", "rows"),
    "marbles": Scene("marbles", "wins", "drops", "bag", "bags"),
    "stamps": Scene("stamps", "receives", "sticks on letters", "page", "pages"),
    "shells": Scene("shells", "gathers", "throws back", "bucket", "buckets"),
    "chairs": Scene("chairs", "brings in", "takes out", "table", "tables"),
    "bottles": Scene("bottles", "fills", "empties", "crate", "crates"),
    "photos": Scene("photos", "takes", "deletes", "album", "albums"),
    "bricks": Scene("bricks", "adds", "removes", "pile", "piles"),
    "fish": Scene("fish", "catches", "releases", "tank", "tanks"),
    "tickets": Scene("tickets", "prints", "sells", "roll", "rolls"),
}

Sentence = tuple[str, str]  # the question's text and the worked steps
Plan = Callable[[random.Random, Scene, str, str, int], tuple[str, str, int]]


def _number(r: random.Random, low: int, high: int) -> int:
    """A number in ``low .. high``, small ones more often: the upper end of a uniform draw is itself drawn uniformly."""
    return r.randint(low, r.randint(low, high))


def _add(r: random.Random, s: Scene, n: str, m: str, w: int) -> tuple[str, str, int]:
    a, b = _number(r, 2, 60), _number(r, 2, 35)
    q = (
        f"{n} has {a} {s.items}. Then {n} {s.gain} {b} more. How many {s.items} does {n} have now?",
        f"There are {a} {s.items} at first. {n} {s.gain} another {b}. How many {s.items} are there in total?",
        f"{n} {s.gain} {a} {s.items} on Monday and {b} on Tuesday. How many {s.items} is that altogether?",
    )[w]
    return q, f"{a} + {b} = {a + b}.", a + b


def _subtract(r: random.Random, s: Scene, n: str, m: str, w: int) -> tuple[str, str, int]:
    b, c = _number(r, 2, 35), _number(r, 1, 60)
    a = b + c
    q = (
        f"{n} has {a} {s.items} and {s.lose} {b} of them. How many {s.items} are left?",
        f"Of the {a} {s.items}, {n} {s.lose} {b}. How many {s.items} remain?",
        f"There were {a} {s.items}. After {n} {s.lose} {b}, how many {s.items} does {n} still have?",
    )[w]
    return q, f"{a} - {b} = {c}.", c


def _multiply(r: random.Random, s: Scene, n: str, m: str, w: int) -> tuple[str, str, int]:
    a, b = _number(r, 2, 9), _number(r, 2, 9)
    q = (
        f"{n} has {a} {s.boxes} with {b} {s.items} in each. How many {s.items} does {n} have?",
        f"Each {s.box} holds {b} {s.items}. How many {s.items} are there in {a} {s.boxes}?",
        f"{n} fills {a} {s.boxes}, each with {b} {s.items}. How many {s.items} is that in total?",
    )[w]
    return q, f"{a} * {b} = {a * b}.", a * b


def _divide(r: random.Random, s: Scene, n: str, m: str, w: int) -> tuple[str, str, int]:
    b, c = _number(r, 2, 9), _number(r, 2, 9)
    a = b * c
    q = (
        f"{n} puts {a} {s.items} into {b} {s.boxes}, the same number in each. How many {s.items} are in each {s.box}?",
        f"{a} {s.items} are shared equally among {b} {s.boxes}. How many {s.items} does each {s.box} get?",
        f"{n} splits {a} {s.items} evenly over {b} {s.boxes}. How many {s.items} go into one {s.box}?",
    )[w]
    return q, f"{a} / {b} = {c}.", c


def _add_add(r: random.Random, s: Scene, n: str, m: str, w: int) -> tuple[str, str, int]:
    a, b, c = _number(r, 2, 30), _number(r, 2, 30), _number(r, 2, 30)
    q = (
        f"{n} has {a} {s.items}. {n} {s.gain} {b} in the morning and {c} in the evening. How many {s.items} does {n} have now?",
        f"{n} {s.gain} {a} {s.items} on Monday, {b} on Tuesday and {c} on Friday. How many {s.items} is that altogether?",
        f"There are {a} {s.items} in the first {s.box}, {b} in the second and {c} in the third. How many {s.items} are there?",
    )[w]
    return q, f"{a} + {b} = {a + b}. {a + b} + {c} = {a + b + c}.", a + b + c


def _add_subtract(r: random.Random, s: Scene, n: str, m: str, w: int) -> tuple[str, str, int]:
    a, b = _number(r, 5, 60), _number(r, 2, 35)
    c = _number(r, 2, min(30, a + b - 1))
    q = (
        f"{n} has {a} {s.items}. {n} {s.gain} {b} more and then {s.lose} {c}. How many {s.items} does {n} have in the end?",
        f"There are {a} {s.items}. First {n} {s.gain} {b}, later {n} {s.lose} {c}. How many {s.items} are there now?",
        f"{n} {s.gain} {a} {s.items}, {m} {s.gain} {b}, and {n} {s.lose} {c}. How many {s.items} do they have together?",
    )[w]
    return q, f"{a} + {b} = {a + b}. {a + b} - {c} = {a + b - c}.", a + b - c


def _subtract_subtract(r: random.Random, s: Scene, n: str, m: str, w: int) -> tuple[str, str, int]:
    b, c, d = _number(r, 2, 25), _number(r, 2, 25), _number(r, 1, 45)
    a = b + c + d
    q = (
        f"{n} has {a} {s.items}. {n} {s.lose} {b} today and {c} tomorrow. How many {s.items} are left after that?",
        f"Of {a} {s.items}, {n} {s.lose} {b} and {m} {s.lose} {c}. How many {s.items} remain?",
        f"There were {a} {s.items}. {n} {s.lose} {b}, then another {c}. How many {s.items} are still there?",
    )[w]
    return q, f"{a} - {b} = {a - b}. {a - b} - {c} = {d}.", d


def _multiply_add(r: random.Random, s: Scene, n: str, m: str, w: int) -> tuple[str, str, int]:
    a, b, c = _number(r, 2, 8), _number(r, 2, 8), _number(r, 2, 30)
    q = (
        f"{n} has {a} {s.boxes} of {b} {s.items} and {c} more {s.items}. How many {s.items} does {n} have?",
        f"Each of {a} {s.boxes} holds {b} {s.items}. Then {n} {s.gain} {c} more. How many {s.items} are there altogether?",
        f"{n} {s.gain} {c} {s.items} and also gets {a} {s.boxes} with {b} {s.items} in each. How many {s.items} is that?",
    )[w]
    return q, f"{a} * {b} = {a * b}. {a * b} + {c} = {a * b + c}.", a * b + c


def _multiply_subtract(r: random.Random, s: Scene, n: str, m: str, w: int) -> tuple[str, str, int]:
    a, b = _number(r, 2, 9), _number(r, 2, 9)
    c = _number(r, 1, a * b - 1)
    q = (
        f"{n} has {a} {s.boxes} of {b} {s.items} and {s.lose} {c}. How many {s.items} are left?",
        f"Each of {a} {s.boxes} holds {b} {s.items}. {n} {s.lose} {c} of them. How many {s.items} remain?",
        f"{n} fills {a} {s.boxes} with {b} {s.items} each, then {s.lose} {c}. How many {s.items} are still there?",
    )[w]
    return q, f"{a} * {b} = {a * b}. {a * b} - {c} = {a * b - c}.", a * b - c


def _divide_add(r: random.Random, s: Scene, n: str, m: str, w: int) -> tuple[str, str, int]:
    b, c, d = _number(r, 2, 9), _number(r, 2, 9), _number(r, 2, 30)
    a = b * c
    q = (
        f"{n} shares {a} {s.items} equally among {b} friends. {m} is one of them and had {d} {s.items} before. "
        f"How many {s.items} does {m} have now?",
        f"{a} {s.items} are split evenly over {b} {s.boxes}. {n} adds {d} to the first {s.box}. How many {s.items} are in it?",
        f"{b} children share {a} {s.items} equally, and {n}, one of them, {s.gain} {d} more. How many {s.items} does {n} have?",
    )[w]
    return q, f"{a} / {b} = {c}. {c} + {d} = {c + d}.", c + d


def _twice(r: random.Random, s: Scene, n: str, m: str, w: int) -> tuple[str, str, int]:
    a = _number(r, 2, 32)
    q = (
        f"{n} has {a} {s.items}. {m} has twice as many. How many {s.items} do they have together?",
        f"{n} {s.gain} {a} {s.items} and {m} {s.gain} two times that number. How many {s.items} is that in total?",
        f"The first {s.box} holds {a} {s.items} and the second holds double. How many {s.items} are in both {s.boxes}?",
    )[w]
    return q, f"2 * {a} = {2 * a}. {a} + {2 * a} = {3 * a}.", 3 * a


def _half(r: random.Random, s: Scene, n: str, m: str, w: int) -> tuple[str, str, int]:
    b = _number(r, 2, 30)
    a = 2 * b
    q = (
        f"{n} has {a} {s.items}. {m} has half as many. How many {s.items} do they have together?",
        f"{n} {s.gain} {a} {s.items} on Monday and half that number on Tuesday. How many {s.items} is that in total?",
        f"One {s.box} holds {a} {s.items}, another holds half of that. How many {s.items} are in both {s.boxes}?",
    )[w]
    return q, f"{a} / 2 = {b}. {a} + {b} = {a + b}.", a + b


def _more_than(r: random.Random, s: Scene, n: str, m: str, w: int) -> tuple[str, str, int]:
    a, b = _number(r, 2, 35), _number(r, 2, 20)
    q = (
        f"{n} has {a} {s.items}. {m} has {b} more than {n}. How many {s.items} do they have together?",
        f"{n} {s.gain} {a} {s.items}, and {m} {s.gain} {b} more than that. How many {s.items} is that in total?",
        f"One {s.box} holds {a} {s.items}, the next holds {b} more. How many {s.items} are in both {s.boxes}?",
    )[w]
    return q, f"{a} + {b} = {a + b}. {a} + {a + b} = {2 * a + b}.", 2 * a + b


def _two_products(r: random.Random, s: Scene, n: str, m: str, w: int) -> tuple[str, str, int]:
    a, b, c, d = _number(r, 2, 7), _number(r, 2, 7), _number(r, 2, 7), _number(r, 2, 7)
    q = (
        f"{n} has {a} {s.boxes} of {b} {s.items} and {m} has {c} {s.boxes} of {d} {s.items}. How many {s.items} are there?",
        f"There are {a} {s.boxes} with {b} {s.items} each and {c} {s.boxes} with {d} each. How many {s.items} is that?",
        f"{n} fills {a} {s.boxes} with {b} {s.items} each, then {c} more with {d} each. How many {s.items} does {n} use?",
    )[w]
    return q, f"{a} * {b} = {a * b}. {c} * {d} = {c * d}. {a * b} + {c * d} = {a * b + c * d}.", a * b + c * d


PLANS: dict[str, Plan] = {
    "add": _add, "subtract": _subtract, "multiply": _multiply, "divide": _divide, "add_add": _add_add, "add_subtract": _add_subtract,
    "subtract_subtract": _subtract_subtract, "multiply_add": _multiply_add, "multiply_subtract": _multiply_subtract,
    "divide_add": _divide_add, "twice": _twice, "half": _half, "more_than": _more_than, "two_products": _two_products,
}  # fmt: skip
WORDINGS = 3


def _problem(r: random.Random, scene: Scene, plan: Plan, wording: int) -> Problem:
    name, other = r.sample(NAMES, 2)
    question, steps, answer = plan(r, scene, name, other, wording)
    return Problem(f"Question: {question}\nAnswer:", f" {steps}\n#### {answer}\n\n", str(answer))


def templates() -> list[Template]:
    """Every scene x plan x wording."""
    return [
        Template(f"word_problems/{name}-{plan}-{wording}", partial(_problem, scene=scene, plan=PLANS[plan], wording=wording))
        for name, scene in SCENES.items()
        for plan in PLANS
        for wording in range(WORDINGS)
    ]
