"""The built-in model for the engine's tests: its GGUF files, and texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from expertmiss.engine.convert import convert

ROOT = Path(__file__).parents[2]
BUILTIN = ROOT / "models" / "builtin"
DOCUMENTS = [
    (ROOT / "README.md").read_text(encoding="utf-8")[:900],
    (ROOT / "src" / "expertmiss" / "files.py").read_text(encoding="utf-8")[:900],
    (ROOT / "docs" / "definitions.md").read_text(encoding="utf-8")[2000:2900],
]


_made: dict[str, Path] = {}


def builtin_file(factory: pytest.TempPathFactory, kind: str) -> Path:
    """The built-in model as GGUF, made once a run."""
    if kind not in _made:
        _made[kind] = convert(BUILTIN, factory.mktemp("builtin") / f"builtin-{kind}.gguf", kind)
    return _made[kind]
