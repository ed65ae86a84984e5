"""What all generators share: problems, templates with stable ids, and seeds that depend on names alone."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Problem:
    """One generated item; ``prompt + solution`` is its full text.

    ``answer`` is the expected final answer (word problems), ``tests`` are assert statements for the completed function, and
    ``entry_point`` is that function's name; all three are empty for records.
    """

    prompt: str
    solution: str
    answer: str = ""
    tests: tuple[str, ...] = field(default=())
    entry_point: str = ""

    @property
    def text(self) -> str:
        """Prompt and solution, as they stand in a document."""
        return self.prompt + self.solution


@dataclass(frozen=True)
class Template:
    """A family of problems that differ in names and numbers only: the unit that splits keep apart."""

    id: str
    make: Callable[[random.Random], Problem]

    def problems(self, count: int, seed: int, accept: Callable[[Problem], bool] | None = None) -> list[Problem]:
        """``count`` problems, the same for the same template id and seed, each text once; of those that ``accept`` says yes to, if given.

        Fewer where a template has not as many: 20 tries a problem are made, 500 with ``accept``.
        """
        source = rng(self.id, seed)
        problems: list[Problem] = []
        texts: set[str] = set()
        for _ in range((20 if accept is None else 500) * count):
            if len(problems) == count:
                break
            problem = self.make(source)
            if problem.text not in texts and (accept is None or accept(problem)):
                texts.add(problem.text)
                problems.append(problem)
        return problems


def rng(*names: object) -> random.Random:
    """A generator seeded by the SHA-256 of its names (independent of process, platform and order of use)."""
    digest = hashlib.sha256("/".join(map(str, names)).encode()).digest()
    return random.Random(int.from_bytes(digest[:8], "big"))
