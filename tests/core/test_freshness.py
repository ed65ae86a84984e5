"""A core older than its sources is noticed; a wheel without sources is not asked."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import expertmiss
from expertmiss import _core
from expertmiss.errors import UserError
from expertmiss.policies import check_core_fresh
from expertmiss.policies.freshness import sources_hash

SOURCES = Path(__file__).parents[2] / "src" / "core"


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installation whose sources may be edited."""
    shutil.copytree(SOURCES, tmp_path / "core")
    monkeypatch.setattr(expertmiss, "__file__", str(tmp_path / "expertmiss" / "__init__.py"))
    return tmp_path / "core"


def test_this_build_is_fresh() -> None:
    assert sources_hash(SOURCES) == _core.source_hash()
    check_core_fresh()


@pytest.mark.parametrize("name", ["step.cpp", "rules/threshold.hpp", "CMakeLists.txt"])
def test_an_edit_is_noticed(copied: Path, name: str) -> None:
    check_core_fresh()
    (copied / name).write_text((copied / name).read_text() + "\n")
    with pytest.raises(UserError, match="the compiled core is older than src/core; run `make setup`"):
        check_core_fresh()


def test_an_added_file_is_noticed_and_other_files_are_not(copied: Path) -> None:
    (copied / "notes.txt").write_text("no source")
    check_core_fresh()
    (copied / "rules" / "new_rule.hpp").write_text("// new")
    with pytest.raises(UserError, match="older than src/core"):
        check_core_fresh()


def test_without_sources_nothing_is_asked(copied: Path) -> None:
    shutil.rmtree(copied)
    check_core_fresh()
