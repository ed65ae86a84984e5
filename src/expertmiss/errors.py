"""The one exception that reaches a person without a traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A mistake the reader can repair: one line that says what is wrong, where, and what to do.

    The command line prints it as ``error: <message>`` and exits with status 2. Anything else that escapes is a
    defect of the program and keeps its traceback. Line breaks and other unprintable characters, which a damaged file may have put
    into the message, are shown as escapes.
    """

    def __init__(self, message: str) -> None:
        super().__init__("".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in message))


def suggest(word: str, known: Iterable[str]) -> str:
    """``did you mean 'x'?`` for the closest of ``known``, else the list of what is known."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1)
    return f"did you mean '{close[0]}'?" if close else "known: " + ", ".join(names)
