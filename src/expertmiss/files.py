"""Files that are either complete or absent: atomic writes and content digests."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from expertmiss.errors import UserError


@contextmanager
def atomic_path(target: Path | str) -> Iterator[Path]:
    """Yield a temporary path beside ``target``; rename it over ``target`` (after fsync) when the block succeeds.

    A killed writer leaves a ``.<name>.*.tmp`` file and never a partial ``target``.

    Raises:
        UserError: the disk is full or the folder cannot be written.
    """
    target = Path(target)
    temporary: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
        os.close(handle)
        temporary = Path(name)
        yield temporary
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except Exception as problem:
        # Not imported: safetensors wraps a failed write in its own kind, and most commands never need the library.
        wrapped = type(problem).__name__ == "SafetensorError" and "os error" in str(problem).lower()
        if not (isinstance(problem, OSError) or wrapped):
            raise
        reason = (getattr(problem, "strerror", None) or str(problem) or type(problem).__name__).splitlines()[0]
        raise UserError(f"{target}: cannot be written ({reason}); free space or choose another folder") from problem
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def clear_parts(out: Path) -> None:
    """Remove a stage's finished parts (files below ``out/.parts``); call it last, when ``run.json`` says that the stage is done.

    A kill before that then costs the joining of the parts, not the work in them.
    """
    for part in sorted((out / ".parts").rglob("*")):
        if part.is_file():
            part.unlink()


def write_text(target: Path | str, text: str) -> None:
    """Write ``text`` as UTF-8, atomically."""
    with atomic_path(target) as path:
        path.write_text(text, encoding="utf-8")


def write_json(target: Path | str, value: Any) -> None:
    """Write ``value`` as readable JSON with sorted keys, atomically; NaN and infinity are refused."""
    write_text(target, json.dumps(value, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n")


def read_json(path: Path | str) -> Any:
    """Read a JSON file.

    Raises:
        UserError: the file is missing or is not JSON.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (ValueError, RecursionError) as problem:  # not UTF-8, not JSON, a number of thousands of digits
        raise UserError(f"{path}: not a JSON file ({problem}); delete it and run the stage that writes it again") from None


def sha256_bytes(data: bytes) -> str:
    """Hexadecimal SHA-256 of ``data``."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path | str) -> str:
    """Hexadecimal SHA-256 of a file's bytes, read in pieces."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sha256_json(value: Any) -> str:
    """Hexadecimal SHA-256 of ``value`` in canonical JSON (sorted keys, no spaces)."""
    return sha256_bytes(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())
