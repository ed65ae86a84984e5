"""Made-up text and wheels for the tests of corpora."""

from __future__ import annotations

import random
import zipfile
from collections.abc import Mapping
from pathlib import Path

from expertmiss.files import sha256_file

WORDS = [
    "value",
    "list",
    "index",
    "table",
    "row",
    "cell",
    "name",
    "size",
    "count",
    "total",
    "node",
    "edge",
    "path",
    "file",
    "line",
    "text",
    "word",
    "item",
    "key",
    "part",
]


def sentences(seed: str, count: int) -> str:
    """Distinct random prose; the same for the same seed."""
    source = random.Random(seed)
    return "\n".join(
        " ".join(source.choice(WORDS) + source.choice("abcdefgh") + source.choice("ijklmnop") for _ in range(12)) + "."
        for _ in range(count)
    )


def module(seed: str, functions: int) -> str:
    """A Python module without docstrings."""
    source = random.Random(seed)
    parts = [
        f"def {source.choice(WORDS)}_{i}({source.choice(WORDS)}):\n    return {' + '.join(source.choices(WORDS, k=9))}\n"
        for i in range(functions)
    ]
    return "\n".join(parts)


def make_wheel(folder: Path, name: str, members: Mapping[str, str], version: str = "1.0") -> Path:
    """A py3-none-any wheel with text members."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in members.items():
            archive.writestr(zipfile.ZipInfo(member), text)
    return path


def requirement(wheel: Path, split: str) -> str:
    """The wheel's line in a package list."""
    name, version = wheel.name.split("-")[:2]
    return f"{name}=={version} --hash=sha256:{sha256_file(wheel)}  # {split}\n"
