"""What was fixed beforehand: SHA-256 of plans, recorded in ``prereg/LOCK.json``, checked before evaluation data is touched.

A lock is written once, by ``expertmiss prereg lock NAME``; the commit and the date stand there for the reader and are not compared, so
that a later refactoring does not break a re-computation. A plan that names a sample also locks the documents' contents, the model's weights, the
rows that are run and the numbers they came from, once a profile (key ``NAME/PROFILE``).
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from expertmiss.errors import UserError, suggest
from expertmiss.files import read_json, sha256_file, sha256_json, write_json

LOCK = Path("prereg/LOCK.json")
DEVIATIONS = "prereg/deviations.md"
PLANS = {
    "claims": ("config/claims.yaml",),
    "e5": ("prereg/e5.yaml",),
    "experiment_b": ("prereg/experiment_b.yaml", "prereg/experiment_b.md", "prereg/decide_experiment_b.py"),
    "generation": ("prereg/generation.yaml", "prereg/generation.md", "prereg/decide_generation.py"),
}
"""Name of a plan to the files that it locks, relative to the project's root."""
WITH_SAMPLE = ("experiment_b", "generation")
"""Plans that also lock a sample: documents (or problems), model, rows, numbers."""
CHANGED = "exploratory (plan changed)"


@dataclass(frozen=True)
class Sample:
    """What a plan locks beside its files.

    Attributes:
        documents: id to SHA-256 of its content.
        model: digest of the model's weights and configuration.
        rows: policies and arms that are run, as plain data.
        numbers: what the pilot gave; recorded and part of the digest.
    """

    documents: Mapping[str, str]
    model: str
    rows: list[Any]
    numbers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Standing:
    """A verified plan: ``digest`` is what outputs carry, ``status`` what they may be called, ``entry`` what is recorded."""

    digest: str
    status: str
    entry: Mapping[str, Any]


def lock(root: Path, name: str, profile: str = "builtin", sample: Sample | None = None) -> dict[str, Any]:
    """Record plan ``name`` in ``prereg/LOCK.json`` and return its entry.

    Raises:
        UserError: no such plan, a file is missing, a sample is missing, or the plan is locked already with other contents.
    """
    key = _key(name, profile)
    if (name in WITH_SAMPLE) != (sample is not None):
        raise UserError(f"prereg: plan '{name}' is locked {'with' if name in WITH_SAMPLE else 'without'} a sample")
    files = _digests(root, name)
    entries = read_json(root / LOCK) if (root / LOCK).is_file() else {}
    if key in entries:
        stands(root, name, profile, sample)
        entry: dict[str, Any] = entries[key]
        return entry
    commit = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    entry = {"files": files, "locked": datetime.now(UTC).isoformat(timespec="seconds"), "commit": commit or "none"}
    if sample is not None:
        entry |= {"documents": dict(sample.documents), "model": sample.model, "rows": sample.rows, "numbers": dict(sample.numbers)}
    write_json(root / LOCK, {**entries, key: entry})
    return entry


def verify(root: Path, name: str, *used: Path, profile: str = "builtin") -> str:
    """The digest that outputs made under plan ``name`` carry.

    Args:
        used: files that a stage was given in the role of the plan's; each must be one of the locked ones, byte for byte.

    Raises:
        UserError: as :func:`stands`, or ``used`` holds another file.
    """
    standing = stands(root, name, profile)
    for given in used:
        if not given.is_file() or sha256_file(given) not in standing.entry["files"].values():
            raise UserError(f"{given}: not a file that plan '{name}' locked ({LOCK}); give {', '.join(PLANS[name])}")
    return standing.digest


def stands(root: Path, name: str, profile: str = "builtin", sample: Sample | None = None) -> Standing:
    """Compare a plan's files, and ``sample`` where it is given, with what was locked.

    Raises:
        UserError: the plan is not locked; a file, document, row or the model changed since. A changed file is accepted only after the plan's
            result was, with an entry in ``prereg/deviations.md``.
    """
    key = _key(name, profile)
    if not (root / LOCK).is_file() or key not in (entries := read_json(root / LOCK)):
        raise UserError(f"{LOCK}: plan '{key}' is not locked; run `expertmiss prereg lock {name}` before evaluation data is touched")
    entry = entries[key]
    status = "confirmatory"
    for path, digest in _digests(root, name).items():
        if entry["files"].get(path) != digest:
            _check_deviation(root, name, profile, path, digest)
            status = CHANGED
    if sample is not None:
        _check_sample(sample, entry, key)
    return Standing(digest_of(entry), status, entry)


def is_locked(root: Path, name: str, profile: str = "builtin") -> bool:
    """Whether plan ``name`` is locked, unchanged or not."""
    return (root / LOCK).is_file() and _key(name, profile) in read_json(root / LOCK)


def locked_digest(root: Path, name: str, profile: str = "builtin") -> str:
    """Digest of what plan ``name`` locked; ``none`` where nothing is. A workflow's rules depend on it, so that locking another plan re-runs nothing."""
    entry = read_json(root / LOCK).get(_key(name, profile)) if (root / LOCK).is_file() else None
    return digest_of(entry) if entry else "none"


def digest_of(entry: Mapping[str, Any]) -> str:
    """The digest of an entry's contents, without its date and commit."""
    contents = {part: entry[part] for part in ("documents", "model", "rows", "numbers") if part in entry}
    return sha256_json({"files": entry["files"], **contents}) if contents else sha256_json(entry["files"])


def check_output(path: Path, made_under: str, standing: Standing) -> None:
    """Refuse an output that was made under another lock.

    Raises:
        UserError: the hashes differ.
    """
    if made_under != standing.digest:
        raise UserError(
            f"{path}: made under another lock ({str(made_under)[:12]}) than the one in force ({standing.digest[:12]}); run its stage again"
        )


def profiles(root: Path, name: str) -> list[str]:
    """Profiles that plan ``name`` is locked under, ``builtin`` always among them."""
    entries = read_json(root / LOCK) if (root / LOCK).is_file() else {}
    return ["builtin", *sorted(key.partition("/")[2] for key in entries if key.startswith(f"{name}/") and key != f"{name}/builtin")]


def result_path(name: str, profile: str) -> str:
    """Where a plan's first accepted result lies, relative to the root."""
    return f"prereg/{name}.result.json" if profile == "builtin" else f"prereg/{name}.{profile}.result.json"


def accept(root: Path, name: str, profile: str, result: Mapping[str, Any], tolerance: float = 1e-4) -> str:
    """Keep the first result of a plan; compare a later one with it.

    Args:
        result: ``lock``, ``verdict``, ``estimate`` and more.

    Returns:
        ``accepted``, or ``agrees`` with the difference of the estimates.

    Raises:
        UserError: made under another lock; another verdict, or an estimate further away than ``tolerance``.
    """
    standing = stands(root, name, profile)
    path = result_path(name, profile)
    if not isinstance(result, Mapping) or not {"lock", "verdict", "estimate"} <= set(result):
        raise UserError("the result lacks 'lock', 'verdict' or 'estimate'; give the result.json that the decision's stage wrote")
    check_output(Path("the result"), str(result["lock"]), standing)
    if not (root / path).is_file():
        write_json(root / path, dict(result))
        return "accepted"
    return f"agrees ({compare(result, read_json(root / path), path, tolerance):.1e} apart)"


def compare(result: Mapping[str, Any], first: Mapping[str, Any], path: str, tolerance: float = 1e-4) -> float:
    """Distance of a re-computation's estimate from the accepted one's.

    Raises:
        UserError: another lock, another verdict, or further away than ``tolerance``.
    """
    if first["lock"] != result["lock"]:
        raise UserError(
            f"{path}: of another lock ({first['lock'][:12]}) than this result ({str(result['lock'])[:12]}); restore {path} or {LOCK}"
        )
    if first["verdict"] != result["verdict"]:
        raise UserError(f"{path}: the accepted verdict is {first['verdict']}, this run's is {result['verdict']}; find out what differs")
    if first.get("estimate") is None or result.get("estimate") is None:
        return 0.0
    apart = abs(float(first["estimate"]) - float(result["estimate"]))
    if not apart <= tolerance:
        raise UserError(f"{path}: this run's effect is {apart:.2e} from the accepted one, {tolerance:g} is allowed; find out what differs")
    return apart


def _key(name: str, profile: str) -> str:
    if name not in PLANS:
        raise UserError(f"prereg: no plan '{name}'; {suggest(name, PLANS)}")
    return f"{name}/{profile}" if name in WITH_SAMPLE else name


def _check_deviation(root: Path, name: str, profile: str, path: str, digest: str) -> None:
    """Refuse a changed file of a plan, unless its result was accepted and the change is written down."""
    problem = f"{path}: changed since it was locked ({LOCK}, plan '{name}')"
    if not (root / result_path(name, profile)).is_file():
        raise UserError(f"{problem}; restore the file (git checkout {path})")
    written = (root / DEVIATIONS).read_text(encoding="utf-8") if (root / DEVIATIONS).is_file() else ""
    wanted = rf"^- \d{{4}}-\d\d-\d\d {re.escape(name)} {re.escape(path)} {digest[:12]}: \S"
    if not re.search(wanted, written, re.M):
        raise UserError(f"{problem} after its result; restore the file, or add '- DATE {name} {path} {digest[:12]}: WHY' to {DEVIATIONS}")


def _check_sample(sample: Sample, entry: Mapping[str, Any], key: str) -> None:
    where = f"({LOCK}, plan '{key}')"
    if sample.model != entry["model"]:
        raise UserError(
            f"the model is another one ({sample.model[:12]}) than was locked ({entry['model'][:12]}) {where}; restore its files"
        )
    missing = sorted(set(entry["documents"]) - set(sample.documents))
    if missing:
        raise UserError(f"document {missing[0]} is locked {where} and missing ({len(missing)} in all); build the locked corpus again")
    changed = sorted(name for name, digest in entry["documents"].items() if sample.documents[name] != digest)
    if changed:
        raise UserError(f"document {changed[0]} differs from the locked one {where} ({len(changed)} in all); build the locked corpus again")
    if sha256_json(sample.rows) != sha256_json(entry["rows"]):
        raise UserError(f"the policies and arms are others than were locked {where}; restore the plan and its numbers")


def _digests(root: Path, name: str) -> dict[str, str]:
    for path in PLANS[name]:
        if not (root / path).is_file():
            raise UserError(f"{path}: no such file; plan '{name}' locks it")
    return {path: sha256_file(root / path) for path in PLANS[name]}
