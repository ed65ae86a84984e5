"""Generate config/README.md and config/schema.json from the dataclasses; a test fails when they drift."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from pathlib import Path
from typing import Any

from expertmiss.config import schema
from expertmiss.files import write_text

HEADER = """# Configuration

Generated from `src/expertmiss/config/schema.py` by `make config-docs`; do not edit.

Change a value for one run with Hydra's grammar, for good with a YAML file in the group's folder:

    snakemake --cores all --config experiment=default 'overrides=["policy=rule_015", "policy.miss_rule.tau=0.2"]'
    expertmiss config policy=rule_015            # print what a call would use

Groups, one file per choice: `experiment/` and `profile/` (set values anywhere), `model/`, `corpus/`, `policy/`, `host/`; `task/` is chosen by
`generate.tasks`.

| option | type | default | meaning |
|---|---|---|---|
"""


def options(kind: type = schema.Config, prefix: str = "") -> list[tuple[str, str, Any, str, tuple[str, ...]]]:
    """Every leaf option: dotted name, type, default, sentence, choices."""
    hints = typing.get_type_hints(kind)
    found = []
    for item in dataclasses.fields(kind):
        name, hint = prefix + item.name, hints[item.name]
        if dataclasses.is_dataclass(hint):
            found += options(typing.cast(type, hint), name + ".")
        else:
            default = getattr(kind(), item.name)
            found.append((name, _type_name(hint), default, item.metadata["help"], item.metadata["choices"]))
    return found


def readme() -> str:
    """The table of all options, as Markdown."""
    rows = []
    for name, kind, default, sentence, choices in options():
        shown = "" if default is None else f"`{json.dumps(default)}`"
        listed = f" One of {', '.join(f'`{choice}`' for choice in choices)}." if choices else ""
        rows.append(f"| `{name}` | {kind} | {shown} | {sentence}{listed} |")
    return HEADER + "\n".join(rows) + "\n"


def json_schema() -> dict[str, Any]:
    """JSON schema (draft 2020-12) of the composed configuration."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "expertmiss configuration", **_object(schema.Config)}


def write_documents(folder: Path) -> None:
    """Write both files into ``folder``."""
    write_text(folder / "README.md", readme())
    write_text(folder / "schema.json", json.dumps(json_schema(), indent=2) + "\n")


def _object(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    properties: dict[str, Any] = {}
    for item in dataclasses.fields(kind):
        hint = hints[item.name]
        if dataclasses.is_dataclass(hint):
            properties[item.name] = _object(typing.cast(type, hint))
        else:
            properties[item.name] = _leaf(hint)
            if item.metadata["choices"]:
                holder = properties[item.name]
                holder.get("items", holder)["enum"] = list(item.metadata["choices"])
        properties[item.name]["description"] = item.metadata["help"]
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _leaf(hint: Any) -> dict[str, Any]:
    simple = {str: "string", int: "integer", float: "number", bool: "boolean"}
    if hint in simple:
        return {"type": simple[hint]}
    arguments = typing.get_args(hint)
    if types.NoneType in arguments:
        inner = _leaf(next(kind for kind in arguments if kind is not types.NoneType))
        return {**inner, "type": [inner["type"], "null"]}
    if typing.get_origin(hint) is dict:
        return {"type": "object", "additionalProperties": _leaf(arguments[1])}
    item = arguments[0]
    return {"type": "array", "items": _object(typing.cast(type, item)) if dataclasses.is_dataclass(item) else _leaf(item)}


def _type_name(hint: Any) -> str:
    arguments = typing.get_args(hint)
    if types.NoneType in arguments:
        return _type_name(next(kind for kind in arguments if kind is not types.NoneType)) + " or none"
    if typing.get_origin(hint) is dict:
        return f"table of {_type_name(arguments[1])}"
    return f"list of {_type_name(arguments[0])}" if arguments else str(hint.__name__)
