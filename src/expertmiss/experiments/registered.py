"""Files of a registered plan: data, and the decision module, which is loaded by path because it lies outside the package."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from expertmiss.errors import UserError


def read_plan(root: Path, plan: str, needed: Sequence[str]) -> dict[str, Any]:
    """The plan file ``plan`` (relative to ``root``) as a plain dict.

    Raises:
        UserError: missing, not YAML, or without one of the keys ``needed``.
    """
    try:
        found = yaml.safe_load((root / plan).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{plan}: no such file; restore it (git checkout {plan})") from None
    except (yaml.YAMLError, UnicodeDecodeError) as problem:
        raise UserError(f"{plan}: not YAML ({str(problem).splitlines()[0]}); restore it (git checkout {plan})") from None
    for key in needed:
        if not isinstance(found, dict) or key not in found:
            raise UserError(f"{plan}: lacks '{key}'; restore it (git checkout {plan})")
    return dict(found)


def read_decision(root: Path, decision: str) -> ModuleType:
    """The module in the file ``decision`` (relative to ``root``).

    Raises:
        UserError: missing, or it does not run.
    """
    spec = importlib.util.spec_from_file_location(Path(decision).stem, root / decision)
    if spec is None or spec.loader is None or not (root / decision).is_file():
        raise UserError(f"{decision}: no such file; restore it (git checkout {decision})")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as problem:  # a damaged file raises nearly every kind
        raise UserError(f"{decision}: cannot be loaded ({problem}); restore it (git checkout {decision})") from problem
    return module
