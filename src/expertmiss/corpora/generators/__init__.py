"""Generated domains: word problems, short functions and structured records, one module each."""

from __future__ import annotations

from expertmiss.corpora.generators import functions, records, word_problems
from expertmiss.corpora.generators.base import Problem, Template, rng

GENERATORS = {"word_problems": word_problems.templates, "functions": functions.templates, "records": records.templates}
HARDER = {"functions": functions.compositions}
"""Templates of problems that are scored but stand in no document."""

__all__ = ["GENERATORS", "HARDER", "Problem", "Template", "rng"]
