"""Refuses a policy that the definitions refuse, with one line that says what is wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from expertmiss import _core
from expertmiss.errors import UserError, suggest
from expertmiss.policies.parameters import LFU_VARIANTS, OTHERS, SECTIONS, WORDS


def validate(policy: Mapping[str, Any], meta: Mapping[str, Any], capacity: int) -> None:
    """Check a policy against a model and a capacity.

    Args:
        policy: policy configuration as a plain dict.
        meta: a trace's metadata; ``depth`` (M), when present, bounds what re-routing rules may look at.
        capacity: C, resident experts per layer.

    Raises:
        UserError: an unknown name or parameter, a missing parameter, a value out of range, or a combination without meaning.
    """
    where = f"policy '{policy.get('name', 'unnamed')}'"
    _check_names(policy.keys(), (*SECTIONS, *WORDS, *OTHERS), where, "option")
    if policy.get("miss_rule") is None:
        raise UserError(f"{where}: miss_rule is missing; name one of {', '.join(SECTIONS['miss_rule'])}")
    for section in SECTIONS:
        _check_section(policy.get(section), section, where)
    for key, words in WORDS.items():
        if policy.get(key) is not None:
            _check_names([policy[key]], words, f"{where}: {key}", "value")
    try:
        _core.check_policy({"layers": 1, **meta}, dict(policy), capacity, meta.get("depth"))
    except ValueError as problem:
        raise UserError(str(problem)) from None


def _check_section(value: Any, section: str, where: str) -> None:
    """Names of one section: ``{name: ..., parameter: ...}``; parameters that are None count as absent."""
    if value is None:
        return
    path = f"{where}: {section}"
    if not isinstance(value, Mapping):
        raise UserError(f"{path} must be a mapping with a name, as in {{name: {next(iter(SECTIONS[section]))}}}; it is {value!r}")
    given = {key for key, item in value.items() if item is not None} - {"name"}
    name = value.get("name")
    if name is None:
        raise UserError(f"{path}: name is missing; known: {', '.join(SECTIONS[section])}")
    _check_names([name], SECTIONS[section], path, "name")
    parameters = SECTIONS[section][name]
    known = parameters.known
    if given - set(known) and not known:
        raise UserError(f"{path}: {name} has no parameter '{min(given)}'; remove it")
    _check_names(given, known, f"{path}: {name}", "parameter")
    for parameter in parameters.required:
        if parameter not in given:
            raise UserError(f"{path}: {name} needs parameter '{parameter}'; add it")
    if name == "lfu":
        _check_names([value["variant"]], LFU_VARIANTS, f"{path}: lfu: variant", "value")
        if "half_life" in given and value["variant"] != "half_life":
            raise UserError(f"{path}: lfu: half_life belongs to variant half_life, not {value['variant']}; remove it or change the variant")


def _check_names(names: Iterable[Any], known: Iterable[str], where: str, kind: str) -> None:
    known = tuple(known)
    for name in sorted(names, key=str):
        if name not in known:
            raise UserError(f"{where}: unknown {kind} '{name}'; {suggest(str(name), known)}")
