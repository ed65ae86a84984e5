"""One option: a field of a dataclass with its default, its limits and one sentence."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def opt(
    default: Any, sentence: str, choices: tuple[str, ...] = (), *, low: float | None = None, high: float | None = None, filled: bool = False
) -> Any:
    """A field with ``default``, documented by ``sentence``.

    ``choices`` restrict a string or every string of a list, ``low`` and ``high`` (inclusive) a number or every number of a list, ``filled`` asks a list to hold
    something, each thing once.
    """
    metadata = {"help": sentence, "choices": choices, "low": low, "high": high, "filled": filled}
    if isinstance(default, list | dict) or callable(default):
        factory = default if callable(default) else lambda: type(default)(default)
        return field(default_factory=factory, metadata=metadata)
    return field(default=default, metadata=metadata)
