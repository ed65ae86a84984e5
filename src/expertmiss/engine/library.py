"""Finding and loading the compiled engine, ``expertmiss._engine``; everything else of the package works without it."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from expertmiss.errors import UserError
from expertmiss.files import read_json, sha256_file, sha256_json
from expertmiss.paths import project_root
from expertmiss.policies.freshness import sources_hash

HOW = "run `make setup-engine`"


def build_folder() -> Path:
    """Where ``expertmiss engine build`` compiles."""
    return project_root() / "build" / "engine"


def llama_root() -> Path:
    """The folder with llama-cpp-python's ``include`` and ``lib``.

    Raises:
        UserError: llama-cpp-python is not installed, or without headers.
    """
    found = importlib.util.find_spec("llama_cpp")
    if found is None or found.origin is None:
        raise UserError(f"the engine needs llama-cpp-python, which is not installed; {HOW}")
    root = Path(found.origin).parents[1]
    if not (root / "include" / "llama.h").is_file():
        raise UserError(f"{root}: llama-cpp-python came without include/llama.h; {HOW}")
    return root


def engine_sources_hash() -> str:
    """Content hash of everything that is compiled into the engine."""
    source = project_root() / "src"
    headers = [sha256_file(path) for path in sorted((source / "engine").rglob("*.h"))]
    return sha256_json([sources_hash(source / "engine"), sources_hash(source / "core"), *headers])


@cache
def library() -> ModuleType:
    """The compiled module.

    Raises:
        UserError: it was never compiled, is older than its sources, or cannot be loaded.
    """
    llama_root()
    stamp = build_folder() / "build.json"
    if not stamp.is_file():
        raise UserError(f"the engine is not compiled; {HOW}")
    built: dict[str, Any] = read_json(stamp)
    if built.get("sources") != engine_sources_hash():
        raise UserError(f"the compiled engine is older than src/engine or src/core; {HOW}")
    name = "expertmiss._engine"
    loader = importlib.machinery.ExtensionFileLoader(name, str(build_folder() / built["module"]))
    spec = importlib.util.spec_from_file_location(name, loader.path, loader=loader)
    assert spec is not None
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as problem:
        raise UserError(f"the compiled engine cannot be loaded ({problem}); {HOW}") from None
    sys.modules[name] = module
    return module
