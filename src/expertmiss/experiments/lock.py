"""What was fixed beforehand: SHA-256 of plans, recorded in ``prereg/LOCK.json``, checked before evaluation data is touched.

A lock is written once, by ``expertmiss prereg lock NAME``; the commit and the date stand there for the reader and are not compared, so
that a later refactoring does not break a re-computation.
"""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from expertmiss.errors import UserError, suggest
from expertmiss.files import read_json, sha256_file, sha256_json, write_json

LOCK = Path("prereg/LOCK.json")
PLANS = {"claims": ("config/claims.yaml",)}
"""Name of a plan to the files that it locks, relative to the project's root."""


def lock(root: Path, name: str) -> dict[str, Any]:
    """Record the digests of plan ``name`` in ``prereg/LOCK.json`` and return its entry.

    Raises:
        UserError: no such plan, a file is missing, or the plan is locked already with other bytes.
    """
    if name not in PLANS:
        raise UserError(f"prereg: no plan '{name}'; {suggest(name, PLANS)}")
    found = _digests(root, name)
    entries = read_json(root / LOCK) if (root / LOCK).is_file() else {}
    if name in entries:
        verify(root, name)
        entry: dict[str, Any] = entries[name]
        return entry
    commit = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    entry = {"files": found, "locked": datetime.now(UTC).isoformat(timespec="seconds"), "commit": commit or "none"}
    write_json(root / LOCK, {**entries, name: entry})
    return entry


def verify(root: Path, name: str) -> str:
    """The digest that outputs made under plan ``name`` carry.

    Raises:
        UserError: the plan is not locked, or a file of it changed since.
    """
    if name not in PLANS:
        raise UserError(f"prereg: no plan '{name}'; {suggest(name, PLANS)}")
    if not (root / LOCK).is_file() or name not in (entries := read_json(root / LOCK)):
        raise UserError(f"{LOCK}: plan '{name}' is not locked; run `expertmiss prereg lock {name}` before evaluation data is touched")
    for path, digest in _digests(root, name).items():
        if entries[name]["files"].get(path) != digest:
            raise UserError(f"{path}: changed since it was locked ({LOCK}, plan '{name}'); restore the file (git checkout {path})")
    return sha256_json(entries[name]["files"])


def _digests(root: Path, name: str) -> dict[str, str]:
    for path in PLANS[name]:
        if not (root / path).is_file():
            raise UserError(f"{path}: no such file; plan '{name}' locks it")
    return {path: sha256_file(root / path) for path in PLANS[name]}
