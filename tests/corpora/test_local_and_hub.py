"""Your own text and data sets of a hub: what is read, how it is split, and one clear line for every mistake."""

from __future__ import annotations

import json
import sys
import types
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from expertmiss.corpora import build, hub, local, store
from expertmiss.corpora.duplicates import shingles
from expertmiss.errors import UserError
from expertmiss.stages import Context
from tests.corpora.samples import sentences


def local_corpus(folder: Path | str, **changes: Any) -> dict[str, Any]:
    return {"name": "local", "kind": "local", "folder": str(folder), "characters": 600, "near_duplicate_threshold": 0.3, **changes}


def test_folder_of_texts(tmp_path: Path, context: Context) -> None:
    folder = tmp_path / "text"
    (folder / "letters").mkdir(parents=True)
    for number in range(4):
        (folder / "letters" / f"{number}.txt").write_text(sentences(f"letter{number}", 20), encoding="utf-8")
    (folder / "copy.txt").write_text(sentences("letter0", 20), encoding="utf-8")
    lines = [json.dumps({"text": sentences(f"line{number}", 4)}) for number in range(12)]
    (folder / "notes.jsonl").write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    (folder / "ignored.csv").write_text("a,b", encoding="utf-8")
    build.run({"corpus": {**local_corpus(folder), "splits": []}}, out=tmp_path / "out", context=context)
    table = store.read_documents(tmp_path / "out" / "documents.parquet")
    assert set(table["split"]) == {"calibration", "exploratory"} and set(table["domain"]) == {"letters", "local"}
    assert (table.groupby("source")["split"].nunique() == 1).all()
    assert (table["text"].str.len() >= 599).all()
    copies = [source for source in table["source"] if source in ("file:copy.txt", "file:letters/0.txt")]
    assert len(set(copies)) == 1
    assert any(source.startswith("file:notes.jsonl:1-") for source in table["source"])
    assert len(pd.read_parquet(tmp_path / "out" / "problems.parquet")) == 0


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "holds no .txt or .jsonl file"),
        ({"a.md": b"text"}, "holds no .txt or .jsonl file"),
        ({"a.txt": b"caf\xe9 " * 400}, "a.txt: not UTF-8 text (byte 3)"),
        ({"a.jsonl": b'{"text": "x"}\n{"body": "x"}\n'}, "a.jsonl:2: write one JSON object with a string field 'text'"),
        ({"a.jsonl": b"not json\n"}, "a.jsonl:1: write one JSON object"),
        ({"a.jsonl": b'{"text": 5}\n'}, "a.jsonl:1: write one JSON object"),
        ({"a.txt": b"short", "b.txt": b"short"}, "gives 0 source(s) of at least 600 characters"),
    ],
)
def test_mistakes_in_the_folder(tmp_path: Path, files: dict[str, bytes], message: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as caught:
        local.read_documents(local_corpus(tmp_path))
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_one_source_in_five_is_calibration(tmp_path: Path) -> None:
    for number in range(11):
        (tmp_path / f"{number}.txt").write_text(sentences(str(number), 20), encoding="utf-8")
    splits = {document.source: document.split for document in local.read_documents(local_corpus(tmp_path))}
    assert len(splits) == 11 and sum(split == "calibration" for split in splits.values()) == 2


def test_one_source_is_too_few(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(sentences("a", 60), encoding="utf-8")
    with pytest.raises(UserError, match=r"gives 1 source\(s\)"):
        local.read_documents(local_corpus(tmp_path))


@pytest.mark.parametrize("folder", ["", "/nowhere/at/all"])
def test_no_folder(folder: str) -> None:
    with pytest.raises(UserError, match="is no folder"):
        local.read_documents(local_corpus(folder))


def hub_corpus(**changes: Any) -> dict[str, Any]:
    spec = {
        "domain": "prose",
        "path": "someone/books",
        "configuration": None,
        "revision": "abc",
        "split": "test",
        "fields": ["title", "body"],
        **changes,
    }
    splits = ["calibration", "exploratory", "confirmatory"]
    return {"splits": splits, "characters": 600, "documents_per_domain": 5, "near_duplicate_threshold": 0.3, "hub_datasets": [spec]}


def fake_datasets(monkeypatch: pytest.MonkeyPatch, load: Any) -> None:
    module = types.ModuleType("datasets")
    module.load_dataset = load  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)


def test_rows_of_a_data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def load(path: str, configuration: str | None, *, split: str, revision: str | None) -> list[dict[str, str]]:
        asked.append((path, configuration, split, revision))
        return [{"title": f"Book {i}", "body": sentences(f"row{i}", 3)} for i in range(120)]

    fake_datasets(monkeypatch, load)
    documents = hub.read_documents(hub_corpus())
    assert set(asked) == {("someone/books", None, "test", "abc")}
    assert {document.split for document in documents} == {"calibration", "exploratory", "confirmatory"}
    assert all(len(document.text) >= 599 and document.text.startswith("Book ") for document in documents)
    by_source: dict[str, set[str]] = {}
    for document in documents:
        by_source.setdefault(document.source, set()).add(document.split)
    assert all(len(splits) == 1 for splits in by_source.values())
    assert max(sum(document.split == split for document in documents) for split in ("exploratory", "confirmatory")) <= 5


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"'someone/books' needs the package 'datasets'.*expertmiss\[hub\]"):
        hub.read_documents(hub_corpus())


def test_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*words: Any, **options: Any) -> None:
        raise ConnectionError("no route\nmore")

    fake_datasets(monkeypatch, load)
    with pytest.raises(UserError) as caught:
        hub.read_documents(hub_corpus())
    assert "'someone/books' cannot be loaded (no route)" in str(caught.value) and "\n" not in str(caught.value)


def test_missing_field(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_datasets(monkeypatch, lambda *words, **options: [{"title": "x", "text": "y"}])
    with pytest.raises(UserError, match="has no text field 'body'; its fields are: title, text"):
        hub.read_documents(hub_corpus())


def test_copies_are_dropped_and_counted(tmp_path: Path) -> None:
    """Short repetitive text has no shingle to compare: exact copies are found all the same."""
    folder = tmp_path / "text"
    folder.mkdir()
    assert len(shingles("la la " * 150)) == 0
    for name, text in {"a": "la la " * 150, "b": "la la " * 150, "c": sentences("c", 20), "d": sentences("c", 20)}.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    dropped: Counter[tuple[str, str]] = Counter()
    documents = local.read_documents(local_corpus(folder), dropped)
    assert {document.source for document in documents} == {"file:a.txt", "file:c.txt"}
    assert len({document.text for document in documents}) == len(documents)
    assert dropped["none", "local"] == dropped.total() == len(documents)  # as many as were kept, for each has one copy
