"""What a stage did: ``run.json``, the content hash of the code that a stage runs, and the machine it ran on.

``run.json`` is written last, so a folder that has one is complete. Paths in it are relative to the repository root; files
outside it (a checkpoint in a download cache) are named ``external:<file name>``, so that no machine path is recorded.
Only the standard library is imported here: the Snakefile calls :func:`source_hash` for every rule while it is parsed.
"""

from __future__ import annotations

import ast
import importlib.metadata
import math
import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from expertmiss.errors import UserError, suggest
from expertmiss.files import sha256_file, sha256_json, write_json

SCHEMA = 1
VOCABULARY = {
    "substrate": ("real_model", "builtin_trained", "random_weights", "none"),
    "routing": ("own", "synthetic", "none"),
    "time": ("measured", "predicted", "none"),
    "status": ("confirmatory", "exploratory"),
}
PACKAGES = (
    "expertmiss", "numpy", "scipy", "pandas", "pyarrow", "torch", "transformers", "tokenizers", "safetensors", "statsmodels", "matplotlib",
    "seaborn", "hydra-core", "omegaconf", "snakemake", "mlflow", "llama-cpp-python",
)  # fmt: skip

PACKAGE = Path(__file__).parent
# They show, schedule or mirror a stage and cannot change what it computes; their edits must not re-run hours of work.
NOT_HASHED = ("expertmiss.cli", "expertmiss.errors", "expertmiss.progress", "expertmiss.stages", "expertmiss.tracking")
CORE_MODULE = "expertmiss._core"


@dataclass(frozen=True)
class Labels:
    """What a number may be called: see "Labels" in the definitions. ``n`` counts the sample, e.g. documents and tokens.

    Raises:
        UserError: a word outside the vocabulary, an empty host, a count that is not an integer >= 0, a note that is not text.
    """

    substrate: str
    routing: str
    time: str
    host: str
    status: str
    n: dict[str, int] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name, words in VOCABULARY.items():
            value = getattr(self, name)
            if value not in words:
                raise UserError(f"labels.{name}: {value!r} is not a label; {suggest(str(value), words)}")
        if not isinstance(self.host, str) or not self.host.strip():
            raise UserError(f"labels.host: {self.host!r} names no host; give the name of a file under config/host or 'none'")
        if not isinstance(self.n, Mapping) or not self.n:
            raise UserError(f"labels.n: {self.n!r} holds no sample size; give counts, e.g. {{'documents': 40, 'tokens': 20480}}")
        for unit, count in self.n.items():
            if isinstance(count, bool) or not isinstance(count, int) or count < 0:
                raise UserError(f"labels.n.{unit}: {count!r} is not a count; give an integer of at least 0")
        if not isinstance(self.notes, list | tuple) or not all(isinstance(note, str) for note in self.notes):
            raise UserError(f"labels.notes: {self.notes!r} is not a list of sentences")
        object.__setattr__(self, "notes", tuple(self.notes))

    @classmethod
    def of(cls, value: Labels | Mapping[str, Any]) -> Labels:
        """Labels from a plain mapping; an unknown or missing field is a UserError."""
        if isinstance(value, Labels):
            return value
        if not isinstance(value, Mapping):
            raise UserError(f"labels: {value!r} is not a mapping; give the fields {', '.join(item.name for item in fields(cls))}")
        known = {item.name for item in fields(cls)}
        for name in value:
            if name not in known:
                raise UserError(f"labels.{name}: no such field; {suggest(str(name), known)}")
        for name in sorted(known - {"notes"} - set(value)):
            raise UserError(f"labels.{name}: missing; give every field of {', '.join(sorted(known))}")
        return cls(**value)


def repository_root(folder: Path | str) -> Path:
    """Root that recorded paths are relative to: the parent of the innermost ``results`` or ``reports`` folder above
    ``folder`` (itself included), else the current folder. Symbolic links are not followed."""
    absolute = Path(os.path.normpath(Path.cwd() / folder))
    return next((path.parent for path in (absolute, *absolute.parents) if path.name in ("results", "reports")), Path.cwd())


@cache
def _digest(path: str, mtime_ns: int, size: int) -> str:
    return sha256_file(path)


def digests(paths: Iterable[Path | str], root: Path) -> dict[str, str]:
    """SHA-256 of every file, by path relative to ``root``; a folder stands for all its files but hidden ones and ``run.json``.

    A file is read once per process while its time stamp and size stay the same.

    Raises:
        UserError: a path does not exist.
    """
    found: dict[str, str] = {}
    for path in (Path(os.path.normpath(Path.cwd() / item)) for item in paths):
        if not path.exists():
            raise UserError(f"{path}: no such file or folder; run the stage that writes it first")
        inside = sorted(item for item in path.rglob("*") if item.is_file() and item.name != "run.json" and not item.name.startswith("."))
        for file in inside if path.is_dir() else [path]:
            status = file.stat()
            digest = _digest(str(file), status.st_mtime_ns, status.st_size)
            name = file.relative_to(root).as_posix() if file.is_relative_to(root) else f"external:{file.name}"
            if found.get(name, digest) != digest:  # two files of one name outside the repository
                name = f"{name}#{digest[:8]}"
            found[name] = digest
    return dict(sorted(found.items()))


def plain(value: Any) -> Any:
    """``value`` with every infinity or NaN as text (JSON has none; ``beta: inf`` is a legitimate option) and keys as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def run_key(stage: str, experiment: str, config: Mapping[str, Any], source_hash: str, inputs: Mapping[str, str]) -> str:
    """Identity of a result: what was asked, by which code, of which bytes; never when or where it ran."""
    return sha256_json([stage, experiment, plain(config), source_hash, dict(inputs)])


def write_run(
    out_dir: Path, *, stage: str, experiment: str, name: str, config: Mapping[str, Any], source_hash: str, inputs: Iterable[Path | str],
    outputs: Iterable[Path | str], metrics: Mapping[str, float], timings: Mapping[str, float], labels: Labels | Mapping[str, Any],
    started: datetime, artifacts: Iterable[Path | str] = (),
) -> dict[str, Any]:  # fmt: skip
    """Write ``out_dir/run.json`` atomically, as the last act of a stage, and return its content.

    Args:
        name: speaking name of the run, e.g. ``granite_1b on prose: quality_first``; ``@`` and ``=`` are refused.
        config: the slice of the configuration that the stage used, in plain types.
        artifacts: the outputs (figures, tables) that MLflow should carry; they need not be repeated in ``outputs``.
        timings: seconds by part of the stage.
        started: aware time at which the stage began.

    Raises:
        UserError: a file is missing, a label or a name is not allowed, a metric is not finite.
    """
    if not name.strip() or any(letter in name for letter in "@=\n"):
        raise UserError(f"{out_dir}: run name {name!r} is empty or holds '@', '=' or a line break; use words")
    numbers = {"metrics": {key: float(metrics[key]) for key in metrics}, "timings": {key: float(timings[key]) for key in timings}}
    for group, values in numbers.items():
        for key, value in values.items():
            if not re.fullmatch(r"[\w.\- ]+(/[\w.\- ]+)*", key, re.ASCII):
                raise UserError(f"{out_dir}: {group}: {key!r} is not a name; use letters, digits, '_', '-', '.', ' ' and '/'")
            if not math.isfinite(value):
                raise UserError(f"{out_dir}: {group}.{key} is {value}; a run records finite numbers only, leave out what was not measured")
    root = repository_root(out_dir)
    carried = digests(artifacts, root)
    for path in carried:
        if path.startswith("external:"):
            raise UserError(f"{out_dir}: artifact {path} lies outside the repository; write it under results/ or reports/")
    read, written = digests(inputs, root), digests(outputs, root) | carried
    run = {
        "schema": SCHEMA, "stage": stage, "experiment": experiment, "name": name,
        "run_key": run_key(stage, experiment, config, source_hash, read),
        "config": plain(config), "source_hash": source_hash, "inputs": read, "outputs": dict(sorted(written.items())),
        **numbers, "artifacts": list(carried), "labels": plain(asdict(Labels.of(labels))), "environment": environment(),
        "started": started.astimezone(UTC).isoformat(timespec="seconds"), "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }  # fmt: skip
    write_json(Path(out_dir) / "run.json", run)
    return run


@cache
def environment() -> dict[str, Any]:
    """Python, system, processor, usable cores, memory (GiB) and versions of the main packages; no names of hosts, people or folders."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text(encoding="utf-8").splitlines() if cpu.exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
    return {
        "python": platform.python_version(), "system": platform.system(), "kernel": platform.release(), "machine": platform.machine(),
        "cpu": model, "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1), "packages": versions,
    }  # fmt: skip


def source_hash(target: str | Iterable[str]) -> str:
    """Content hash of the modules that a stage runs.

    Args:
        target: a stage of ``expertmiss.stages.STAGES``, or the names of modules of this package.

    Imports are followed inside the package without executing anything, imports within functions and package ``__init__``
    files included. A module that imports by computed name stands for every module of its folder; data files beside a
    module (templates, word lists) count; ``src/core`` and CMakeLists.txt count for users of the C++ core. Every byte counts,
    comments too. ``NOT_HASHED`` modules count only where they are the target themselves.

    Raises:
        UserError: unknown stage or module.
    """
    if isinstance(target, str) and not target.startswith("expertmiss"):
        from expertmiss.stages import STAGES

        if target not in STAGES:
            raise UserError(f"source_hash: no stage {target!r} in expertmiss/stages.py; {suggest(target, STAGES)}")
        target = STAGES[target]
    return _hash_modules(tuple(sorted({target} if isinstance(target, str) else set(target))))


def modules_of(targets: Iterable[str]) -> set[str]:
    """The modules whose bytes :func:`source_hash` counts, ``expertmiss._core`` among them where it is imported."""
    entries = tuple(targets)
    skipped = tuple(name for name in NOT_HASHED if not any(_within(entry, name) for entry in entries))
    waiting, reached = list(entries), set()
    while waiting:
        module = waiting.pop()
        if module in reached or any(_within(module, name) for name in skipped):
            continue
        reached.add(module)
        if module != CORE_MODULE:
            waiting += _imports(module)
    return reached


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


@cache
def _file(module: str) -> Path | None:
    base = PACKAGE.parent.joinpath(*module.split("."))
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


@cache
def _imports(module: str) -> tuple[str, ...]:
    """Names of the modules of this package that ``module`` imports, with their parents' ``__init__``."""
    file = _file(module)
    if file is None:
        raise UserError(f"source_hash: no module {module!r} in the package; correct its name in expertmiss/stages.py or in the import")
    text = file.read_text(encoding="utf-8")
    here = module.split(".") if file.name == "__init__.py" else module.split(".")[:-1]
    names: set[str] = set()
    tree = ast.parse(text, filename=file.name)
    blocks: list[Any] = [tree]
    while blocks:  # statements only: an import is never inside an expression, and expressions are most of a file
        node = blocks.pop()
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = here[: len(here) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names |= {base} | {f"{base}.{alias.name}" for alias in node.names}
        else:
            for part in ("body", "orelse", "finalbody", "handlers", "cases"):
                blocks += getattr(node, part, [])
    if "import_module" in text and any(isinstance(node, ast.Call) and "import_module" in ast.dump(node.func) for node in ast.walk(tree)):
        beside = (path.relative_to(PACKAGE.parent).with_suffix("").parts for path in file.parent.rglob("*.py"))
        names |= {".".join(parts).removesuffix(".__init__") for parts in beside}
    names |= {".".join(name.split(".")[:depth]) for name in (*names, module) for depth in range(1, name.count(".") + 1)}
    return tuple(sorted(name for name in names if _within(name, "expertmiss") and (name == CORE_MODULE or _file(name)) and name != module))


@cache
def _hash_modules(targets: tuple[str, ...]) -> str:
    files: set[Path] = set()
    for module in modules_of(targets):
        if module == CORE_MODULE:
            core = [*(PACKAGE.parent / "core").rglob("*"), PACKAGE.parent.parent / "CMakeLists.txt"]
            files |= {path for path in core if path.is_file()}
        elif file := _file(module):
            files |= {file, *_data_files(file.parent)}
    return sha256_json(sorted(_name_and_digest(path) for path in files))


@cache
def _name_and_digest(path: Path) -> tuple[str, str]:
    return path.relative_to(PACKAGE.parent.parent).as_posix(), sha256_file(path)


@cache
def _data_files(folder: Path) -> tuple[Path, ...]:
    """Files beside the modules of a folder, below it too unless that is a package of its own; bytecode and libraries are not."""
    found: list[Path] = []
    for path in folder.iterdir():
        if path.is_dir() and path.name != "__pycache__" and not (path / "__init__.py").exists() and folder != PACKAGE:
            found += _data_files(path)
        elif path.is_file() and path.suffix not in (".py", ".pyi", ".pyc", ".so", ".tmp") and not path.name.startswith("."):
            found.append(path)
    return tuple(found)
