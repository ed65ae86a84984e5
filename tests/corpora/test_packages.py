"""Package lists: form, coverage of the committed ones, and what happens when a wheel cannot be had."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from expertmiss.corpora import packages
from expertmiss.errors import UserError
from tests.corpora.samples import make_wheel, requirement

LISTS = Path(__file__).parents[2] / "config" / "corpus" / "packages"


def test_committed_lists_are_disjoint_and_large_enough() -> None:
    train, evaluation = packages.read_packages(LISTS / "train.txt"), packages.read_packages(LISTS / "evaluation.txt")
    assert {package.split for package in train} == {"train"}
    counts = Counter(package.split for package in evaluation)
    assert set(counts) == set(packages.SPLITS) - {"train"}
    assert counts["exploratory"] >= 40 and counts["confirmatory"] >= 40
    normal = [package.name.lower().replace("_", "-").replace(".", "-") for package in train + evaluation]
    assert len(set(normal)) == len(normal)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("toolz==1.0 --hash=sha256:12  # train\n", ":1: write 'name==version"),
        (f"\ntoolz==1.0 --hash=sha256:{'0' * 64}  # pilt\n", ":2: unknown split 'pilt'; did you mean 'pilot'?"),
        (f"toolz==1.0 --hash=sha256:{'0' * 64}  # pilot\n" * 2, ":2: package 'toolz' is listed twice"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "list.txt").write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        packages.read_packages(tmp_path / "list.txt")
    assert message in str(caught.value)


def test_missing_list(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such package list"):
        packages.read_packages(tmp_path / "none.txt")


def test_unreachable_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = make_wheel(tmp_path / "cache", "held", {"a.py": "x = 1"})
    (tmp_path / "list.txt").write_text(requirement(held, "pilot") + f"gone==2.0 --hash=sha256:{'1' * 64}  # pilot\n", encoding="utf-8")
    monkeypatch.setattr(packages, "_download", lambda wanted, cache: "ERROR: no network")
    with pytest.raises(UserError) as caught:
        packages.fetch_wheels(packages.read_packages(tmp_path / "list.txt"), tmp_path / "cache")
    message = str(caught.value)
    assert "gone==2.0" in message and "no network" in message and "1" * 64 in message and "held" not in message and "\n" not in message


def test_a_wheel_with_other_bytes_is_not_used(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "held", {"a.py": "x = 1"})
    (tmp_path / "list.txt").write_text(requirement(wheel, "pilot"), encoding="utf-8")
    [package] = packages.read_packages(tmp_path / "list.txt")
    assert packages.find_wheel(package, tmp_path) == wheel
    with wheel.open("ab") as stream:
        stream.write(b"x")
    assert packages.find_wheel(package, tmp_path) is None


def test_what_is_there_is_not_downloaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {name: make_wheel(tmp_path / "elsewhere", name, {"a.py": name}) for name in ("first", "second")}
    (tmp_path / "list.txt").write_text("".join(requirement(wheel, "pilot") for wheel in made.values()), encoding="utf-8")
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / made["first"].name).write_bytes(made["first"].read_bytes())
    asked: list[str] = []

    def download(wanted: list[packages.Package], folder: Path) -> str:
        asked.extend(package.name for package in wanted)
        (folder / made["second"].name).write_bytes(made["second"].read_bytes())
        return ""

    monkeypatch.setattr(packages, "_download", download)
    found = packages.fetch_wheels(packages.read_packages(tmp_path / "list.txt"), cache)
    assert asked == ["second"] and sorted(found) == ["first", "second"]


def test_a_build_goes_through_the_splits_before_the_last_one_asked_for(corpus: dict[str, Any]) -> None:
    chosen = packages.select_packages(corpus, ["calibration"])
    assert [package.split for package in chosen] == ["exploratory"] * 2 + ["pilot"] * 2 + ["calibration"] * 2
    assert {package.split for package in packages.select_packages(corpus, ["train"])} == set(packages.SPLITS)


@pytest.mark.slow
def test_download_of_two_pinned_packages(tmp_path: Path) -> None:
    wanted = [
        package for package in packages.read_packages(LISTS / "evaluation.txt") if package.name in ("django-taggit", "django-invitations")
    ]
    assert len(wanted) == 2
    found = packages.fetch_wheels(wanted, tmp_path)
    assert all(packages.find_wheel(package, tmp_path) == found[package.name] for package in wanted)
