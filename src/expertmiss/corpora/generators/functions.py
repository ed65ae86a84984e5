"""Short Python functions in the form of HumanEval: signature and docstring as the prompt, a body of one to five lines, tests beside.

A template is select x change x combine over a list of integers or over the words of a string; the body's style (comprehension,
loop, two steps) varies inside a template, so that a held-out description was never seen with any body. Compositions change each element
twice, which no function of the training text does: they are only scored. Expected values in docstring examples and tests come from the table's own Python callables, not from the generated body: a body
that disagrees with its description fails its tests.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from expertmiss.corpora.generators.base import Problem, Template


@dataclass(frozen=True)
class Select:
    """Which elements count: name part, description, Python condition on the element ``x`` and constant ``k``, and the same as code here."""

    name: str
    words: str
    code: str
    test: Callable[[Any, int], bool]


@dataclass(frozen=True)
class Change:
    """What is done to each element; ``code`` is an expression in ``x`` and the constant ``k``."""

    name: str
    words: str
    code: str
    apply: Callable[[Any, int], Any]


@dataclass(frozen=True)
class Combine:
    """How the changed elements become the result; ``loop`` is (first value, statement on the changed element ``{}``)."""

    name: str
    words: str
    code: str
    loop: tuple[str, str]
    apply: Callable[[list[Any]], Any]


NUMBER_SELECTS = (
    Select("", "all numbers", "", lambda x, k: True),
    Select("even", "the even numbers", "x % 2 == 0", lambda x, k: x % 2 == 0),
    Select("odd", "the odd numbers", "x % 2 == 1", lambda x, k: x % 2 == 1),
    Select("positive", "the positive numbers", "x > 0", lambda x, k: x > 0),
    Select("negative", "the negative numbers", "x < 0", lambda x, k: x < 0),
    Select("nonzero", "the numbers that are not zero", "x != 0", lambda x, k: x != 0),
    Select("large", "the numbers greater than {k}", "x > {k}", lambda x, k: x > k),
    Select("small", "the numbers less than {k}", "x < {k}", lambda x, k: x < k),
    Select("divisible", "the numbers divisible by {k}", "x % {k} == 0", lambda x, k: x % k == 0),
)
NUMBER_CHANGES = (
    Change("", "", "x", lambda x, k: x),
    Change("doubled", "doubled", "2 * x", lambda x, k: 2 * x),
    Change("squared", "squared", "x * x", lambda x, k: x * x),
    Change("negated", "negated", "-x", lambda x, k: -x),
    Change("increased", "increased by {k}", "x + {k}", lambda x, k: x + k),
    Change("decreased", "decreased by {k}", "x - {k}", lambda x, k: x - k),
    Change("scaled", "multiplied by {k}", "{k} * x", lambda x, k: k * x),
    Change("absolute", "as absolute values", "abs(x)", lambda x, k: abs(x)),
)
NUMBER_COMBINES = (
    Combine("list", "a list of {}", "[{}]", ("[]", "result.append({})"), list),
    Combine("sum", "the sum of {}", "sum({})", ("0", "result += {}"), sum),
    Combine("largest", "the largest of {}, or 0 if there are none", "max([{}], default=0)", ("", ""), lambda v: max(v, default=0)),
    Combine("smallest", "the smallest of {}, or 0 if there are none", "min([{}], default=0)", ("", ""), lambda v: min(v, default=0)),
    Combine("count_distinct", "how many different values there are among {}", "len(set({}))", ("", ""), lambda v: len(set(v))),
    Combine("sorted", "a sorted list of {}", "sorted({})", ("", ""), sorted),
    Combine("reversed", "a list of {}, last one first", "[{}][::-1]", ("[]", "result.insert(0, {})"), lambda v: v[::-1]),
)
WORD_SELECTS = (
    Select("", "all words", "", lambda x, k: True),
    Select("long", "the words longer than {k} letters", "len(x) > {k}", lambda x, k: len(x) > k),
    Select("short", "the words of at most {k} letters", "len(x) <= {k}", lambda x, k: len(x) <= k),
    Select("exact", "the words of exactly {k} letters", "len(x) == {k}", lambda x, k: len(x) == k),
    Select("with_a", "the words that contain an a", '"a" in x', lambda x, k: "a" in x),
    Select("without_e", "the words that contain no e", '"e" not in x', lambda x, k: "e" not in x),
    Select("starting_with_s", "the words that start with s", 'x.startswith("s")', lambda x, k: x.startswith("s")),
    Select("ending_in_t", "the words that end in t", 'x.endswith("t")', lambda x, k: x.endswith("t")),
)
WORD_CHANGES = (
    Change("", "", "x", lambda x, k: x),
    Change("upper", "in capital letters", "x.upper()", lambda x, k: x.upper()),
    Change("capitalized", "with a capital first letter", "x.capitalize()", lambda x, k: x.capitalize()),
    Change("reversed", "spelled backwards", "x[::-1]", lambda x, k: x[::-1]),
    Change("first_letters", "cut to the first letter", "x[0]", lambda x, k: x[0]),
    Change("doubled", "written twice", "x + x", lambda x, k: x + x),
    Change("lengths", "replaced by the length", "len(x)", lambda x, k: len(x)),
)
WORD_COMBINES = (
    Combine("list", "a list of {}", "[{}]", ("[]", "result.append({})"), list),
    Combine("sorted", "a sorted list of {}", "sorted({})", ("", ""), sorted),
    Combine("count", "the number of {}", "len([{}])", ("0", "result += 1"), len),
    Combine("reversed", "a list of {}, last one first", "[{}][::-1]", ("[]", "result.insert(0, {})"), lambda v: v[::-1]),
    Combine("distinct", "the set of {}", "set({})", ("set()", "result.add({})"), set),
)
WORDS = [
    "sun",
    "tree",
    "river",
    "stone",
    "cat",
    "house",
    "seat",
    "bread",
    "light",
    "door",
    "start",
    "table",
    "apple",
    "grass",
    "wind",
    "snow",
    "east",
    "north",
    "boat",
    "salt",
    "paint",
    "sand",
    "green",
    "silver",
    "street",
    "forest",
    "rabbit",
    "planet",
    "garden",
    "window",
    "summer",
    "market",
    "basket",
    "ticket",
    "yellow",
    "orange",
]
OPENINGS = ("Return {}.", "Compute {} and return it.", "Given {arg}, return {}.")
NUMBER_ARGUMENTS = ("numbers", "values", "items", "data", "nums")
WORD_ARGUMENTS = ("text", "sentence", "line", "phrase", "s")
STYLES = ("comprehension", "loop", "two_steps")


def _body(select: Select, change: Change, combine: Combine, style: str, elements: str, k: int) -> str:
    condition = select.code.format(k=k)
    expression = change.code.format(k=k)
    where = f" if {condition}" if condition else ""
    generator = f"{expression} for x in {elements}{where}"
    if style == "comprehension":
        return f"    return {combine.code.format(generator)}\n"
    if style == "two_steps":
        return f"    chosen = [x for x in {elements}{where}]\n    return {combine.code.format(f'{expression} for x in chosen')}\n"
    first, statement = combine.loop
    step = statement.format(expression)
    inner = f"        if {condition}:\n            {step}\n" if condition else f"        {step}\n"
    return f"    result = {first}\n    for x in {elements}:\n{inner}    return result\n"


def _described(select: Select, change: Change, combine: Combine, k: int) -> str:
    return combine.words.format(f"{select.words.format(k=k)} {change.words.format(k=k)}".strip())


def _problem(r: random.Random, kind: str, select: Select, change: Change, combine: Combine) -> Problem:
    style = r.choice(STYLES if combine.loop[0] else ("comprehension", "two_steps"))
    numbers = kind == "numbers"
    k = r.randint(2, 9) if numbers else r.randint(3, 5)
    argument = r.choice(NUMBER_ARGUMENTS if numbers else WORD_ARGUMENTS)
    name = "_".join(part for part in (combine.name, select.name, change.name, "numbers" if numbers else "words") if part)
    examples = [_example(r, numbers, k) for _ in range(5)]
    results = [_expected(select, change, combine, numbers, example, k) for example in examples]
    description = OPENINGS[r.randrange(len(OPENINGS))].format(_described(select, change, combine, k), arg=argument)
    shown = "".join(
        f"\n    >>> {name}({example!r})\n    {_shown(result)}" for example, result in zip(examples[:2], results[:2], strict=True)
    )
    prompt = f'def {name}({argument}):\n    """{description}\n{shown}\n    """\n'
    elements = argument if numbers else f"{argument}.split()"
    tests = tuple(f"assert {name}({example!r}) == {_shown(result)}" for example, result in zip(examples, results, strict=True))
    return Problem(prompt, _body(select, change, combine, style, elements, k) + "\n\n", "", tests, name)


def _example(r: random.Random, numbers: bool, k: int) -> Any:
    if numbers:  # a third are multiples of k, or the answer for "divisible by k" would mostly be empty
        return [k * r.randint(-1, 3) if r.random() < 0.33 else r.randint(-9, 19) for _ in range(r.randint(3, 6))]
    return " ".join(r.choice(WORDS) for _ in range(r.randint(2, 5)))


def _expected(select: Select, change: Change, combine: Combine, numbers: bool, example: Any, k: int) -> Any:
    elements = example if numbers else example.split()
    return combine.apply([change.apply(x, k) for x in elements if select.test(x, k)])


def _shown(result: Any) -> str:
    """``repr`` with the elements of a set in order, so that it does not depend on string hashing."""
    if isinstance(result, set) and result:
        return "{" + ", ".join(repr(element) for element in sorted(result)) + "}"
    return repr(result)


def templates() -> list[Template]:
    """Every select x change x combine, over numbers and over words; no count of changed words (the change would not matter)."""
    kinds = {"numbers": (NUMBER_SELECTS, NUMBER_CHANGES, NUMBER_COMBINES), "words": (WORD_SELECTS, WORD_CHANGES, WORD_COMBINES)}
    return [
        Template(
            f"functions/{kind}-{select.name or 'all'}-{change.name or 'same'}-{combine.name}",
            partial(_problem, kind=kind, select=select, change=change, combine=combine),
        )
        for kind, (selects, changes, combines) in kinds.items()
        for select in selects
        for change in changes
        for combine in combines
        if not (combine.name == "count" and change.name)
    ]


def _composed(first: Change, second: Change) -> Change:
    """``second`` after ``first``."""
    return Change(
        f"{first.name}_{second.name}",
        f"{first.words} and then {second.words}",
        re.sub(r"\bx\b", first.code if first.code.endswith(")") else f"({first.code})", second.code),
        lambda x, k: second.apply(first.apply(x, k), k),
    )


def compositions() -> list[Template]:
    """Every select x two changes that follow one another in the table x combine; words are not changed further once they are lengths."""
    kinds = {"numbers": (NUMBER_SELECTS, NUMBER_CHANGES, NUMBER_COMBINES), "words": (WORD_SELECTS, WORD_CHANGES, WORD_COMBINES)}
    return [
        Template(
            f"functions/{kind}-{select.name or 'all'}-{first.name}+{second.name}-{combine.name}",
            partial(_problem, kind=kind, select=select, change=_composed(first, second), combine=combine),
        )
        for kind, (selects, changes, combines) in kinds.items()
        for select in selects
        for first, second in pairwise(changes[1:])
        for combine in combines
        if combine.name != "count"
    ]
