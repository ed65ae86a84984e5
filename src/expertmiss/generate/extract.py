"""Rules that read an answer out of generated text, by name and version, and the comparison of two answers.

A rule never changes: another reading gets another version, so that figures say by which rule they were made.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation

_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
MARKER = "####"


def strict(text: str) -> str | None:
    """The rest of the line after the first ``####``, None where there is no marker or nothing behind it."""
    _, marker, rest = text.partition(MARKER)
    answer = rest.split("\n", 1)[0].strip()
    return answer if marker and answer else None


def last_number(text: str) -> str | None:
    """The last number of the text, a marker or not; None where there is no digit."""
    found = _NUMBER.findall(text)
    return found[-1] if found else None


EXTRACTIONS: dict[str, Callable[[str], str | None]] = {"strict-1": strict, "last_number-1": last_number}


def same_answer(given: str | None, expected: str) -> bool:
    """Whether two answers are the same number (separators of thousands, a dollar sign and a full stop at the end do not count) or,
    where one is no number, the same text."""
    if given is None:
        return False
    first, second = (_plain(text) for text in (given, expected))
    try:
        return Decimal(first) == Decimal(second)
    except InvalidOperation:
        return first == second


def _plain(text: str) -> str:
    return text.strip().removeprefix("$").removesuffix(".").replace(",", "")
