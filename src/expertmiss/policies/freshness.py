"""Whether the compiled core was built from the sources beside it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import expertmiss
from expertmiss import _core
from expertmiss.errors import UserError

SUFFIXES = (".cpp", ".hpp", ".cmake")


def sources_hash(folder: Path) -> str:
    """SHA-256 over the core's sources in ``folder``: of one line ``<sha256> <path>`` per file, sorted by path (src/core/source_hash.cmake)."""
    files = [path for path in folder.rglob("*") if path.suffix in SUFFIXES or path == folder / "CMakeLists.txt"]
    names = sorted(path.relative_to(folder).as_posix() for path in files)
    lines = (f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()} {name}\n" for name in names)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def check_core_fresh() -> None:
    """Do nothing where the sources are not beside the package (a wheel).

    Raises:
        UserError: the sources have changed since the core was compiled.
    """
    folder = Path(expertmiss.__file__).parents[1] / "core"
    if (folder / "CMakeLists.txt").is_file() and sources_hash(folder) != _core.source_hash():
        raise UserError("the compiled core is older than src/core; run `make setup`")
