"""A pytest plugin (run_sanitized.sh): ``expertmiss._core`` is the build that EXPERTMISS_SANITIZED_CORE names, not the installed one."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path

import pytest

NAME = "expertmiss._core"
MODULE = Path(os.environ["EXPERTMISS_SANITIZED_CORE"])


class SanitizedCore(importlib.abc.MetaPathFinder):
    """Comes before the finders of installed packages."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.util.spec_from_file_location(NAME, MODULE) if name == NAME else None


sys.meta_path.insert(0, SanitizedCore())


def pytest_sessionstart() -> None:
    """Stop the whole run, workers included, unless the loaded core is the named one and carries ASan's and UBSan's checks."""
    from expertmiss import _core

    if Path(_core.__file__) != MODULE:
        pytest.exit(f"the core under test is {_core.__file__}, not the sanitized {MODULE}", returncode=3)
    code = MODULE.read_bytes()
    missing = [check for check in (b"__asan_report_load8", b"__ubsan_handle_pointer_overflow") if check not in code]
    if missing:
        pytest.exit(f"{MODULE} was built without sanitizers: it never calls {missing[0].decode()}", returncode=3)


def pytest_report_header() -> str:
    """Which core is tested."""
    return f"sanitized core: {sys.modules[NAME].__file__}"
