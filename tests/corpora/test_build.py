"""The corpus as a whole: disjoint sources, the same bytes twice, a manifest that notices edits, no training text in evaluation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from expertmiss.corpora import build, store, training
from expertmiss.corpora.duplicates import SeenText
from expertmiss.errors import UserError
from expertmiss.stages import Context

ALL = ["train", "calibration", "pilot", "exploratory", "confirmatory", "generation"]


def built(corpus: dict[str, Any], out: Path, context: Context) -> pd.DataFrame:
    build.run({"corpus": corpus}, out=out, context=context)
    return store.read_documents(out / "documents.parquet")


def test_sources_are_disjoint_across_all_splits(corpus: dict[str, Any], tmp_path: Path, context: Context) -> None:
    table = built({**corpus, "splits": ALL}, tmp_path / "out", context)
    assert set(table["split"]) == set(ALL)
    evaluation = table[table["split"] != "train"]
    assert (evaluation.groupby("source")["split"].nunique() == 1).all()
    packages = table[table["source"].str.contains("==")]
    assert (packages.groupby("source")["split"].nunique() == 1).all()
    assert (table["text"].str.len() >= corpus["characters"] - 1).all()
    generated = evaluation[evaluation["source"].str.startswith("template:")]
    assert generated["source"].is_unique


def test_no_evaluation_text_in_training(corpus: dict[str, Any], tmp_path: Path, context: Context) -> None:
    table = built({**corpus, "splits": ALL}, tmp_path / "out", context)
    assert {"exploratory0==1.0", "train0==1.0"} <= set(table["source"])
    # Documents are the first ones of a package: what training may share with it is text that is in no evaluation document.
    seen = SeenText(corpus["near_duplicate_threshold"])
    text = table[table["source"].str.contains("==")]
    for document in text.loc[text["split"] != "train", "text"]:
        seen.admit(document)
    overlaps = [seen.overlap(document) for document in text.loc[text["split"] == "train", "text"]]
    assert overlaps and max(overlaps) <= 0.3
    problems = {text for split in ("train", "exploratory") for text in _problems(table, split)}
    assert len(problems) == sum(len(_problems(table, split)) for split in ("train", "exploratory"))


def _problems(table: pd.DataFrame, split: str) -> set[str]:
    chosen = table[(table["split"] == split) & (table["domain"] == "word_problems")]
    return {problem for text in chosen["text"] for problem in text.split("\n\n") if problem}


def test_two_builds_are_equal_and_later_splits_change_nothing(corpus: dict[str, Any], tmp_path: Path, context: Context) -> None:
    first, again = built(corpus, tmp_path / "a", context), built(corpus, tmp_path / "b", context)
    assert first.equals(again)
    for name in ("documents.parquet", "problems.parquet", "manifest.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    whole = built({**corpus, "splits": ALL}, tmp_path / "c", context)
    part = whole[whole["split"].isin(corpus["splits"])].drop(columns="document").reset_index(drop=True)
    assert part.equals(first.drop(columns="document"))


def test_the_manifest_notices_an_edited_document(corpus: dict[str, Any], tmp_path: Path, context: Context) -> None:
    table = built(corpus, tmp_path, context)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert len(manifest["documents"]) == len(table) and set(manifest["wheels"]) == {
        f"{s}{i}==1.0" for s in corpus["splits"] for i in range(2)
    }
    for column, row in (("text", 3), ("split", 5)):
        edited = table.copy()
        edited.loc[row, column] = (
            "pilot" if column == "split" and edited.loc[row, column] != "pilot" else str(edited.loc[row, column]) + "x"
        )
        edited.to_parquet(tmp_path / "documents.parquet", index=False)
        with pytest.raises(UserError, match=f"document {row} differs from manifest.json"):
            store.read_documents(tmp_path / "documents.parquet")
    with pytest.raises(UserError, match="build the corpus first"):
        store.read_documents(tmp_path / "none" / "documents.parquet")


def test_problems_for_scoring_are_not_those_of_the_documents(corpus: dict[str, Any], tmp_path: Path, context: Context) -> None:
    table = built({**corpus, "splits": ["generation"], "documents_per_domain": 40, "problems_per_template": 4}, tmp_path, context)
    problems = pd.read_parquet(tmp_path / "problems.parquet")
    assert set(problems["domain"]) == {"word_problems", "functions"} and set(problems["split"]) == {"generation"}
    assert problems["problem"].is_unique and problems["source"].nunique() >= 80
    functions = problems[problems["domain"] == "functions"]
    assert all(len(json.loads(tests)) == 5 for tests in functions["tests"]) and functions["entry_point"].str.len().min() > 0
    documents = dict(zip(table["source"], table["text"], strict=True))
    beside = problems[problems["source"].isin(documents)]
    repeated = sum(row.prompt in documents[row.source] for row in beside.itertuples())
    assert len(beside) == 320 and repeated <= 0.02 * len(beside)  # small numbers meet by chance


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"splits": ["exploratry"]}, "corpus.splits: unknown value 'exploratry'; did you mean 'exploratory'?"),
        ({"splits": []}, "corpus.splits is empty"),
        ({"domains": ["poems"]}, "corpus.domains: unknown value 'poems'"),
        ({"kind": "web"}, "corpus.kind: unknown kind 'web'"),
    ],
)
def test_mistakes_in_options_are_named(
    corpus: dict[str, Any], tmp_path: Path, context: Context, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError) as caught:
        build.run({"corpus": {**corpus, **change}}, out=tmp_path, context=context)
    assert str(caught.value).startswith(message)


def test_training_tokens(corpus: dict[str, Any], tmp_path: Path) -> None:
    corpus = {**corpus, "domains": ["code", "prose", "word_problems"]}
    training.prepare(corpus, corpus["cache"], tmp_path / "tokenizer", tmp_path / "data")
    index = json.loads((tmp_path / "data" / "index.json").read_text())
    assert set(index) == set(corpus["domains"])
    for domain, entry in index.items():
        tokens = np.memmap(tmp_path / "data" / f"{domain}.bin", dtype=np.uint16, mode="r")
        assert len(tokens) == entry["train_tokens"] and int((tokens == 0).sum()) == entry["train_documents"] > 0 and tokens[0] == 0
        held_out = np.fromfile(tmp_path / "data" / f"{domain}.val.bin", dtype=np.uint16).reshape(-1, corpus["tokens"])
        assert len(held_out) == entry["val_documents"] > 0 and (held_out[:, 0] == 0).all() and (held_out[:, 1:] != 0).all()
    assert set(store.read_documents(tmp_path / "data" / "documents" / "documents.parquet")["split"]) == {"train", "pilot"}


def test_dropped_duplicates_are_counted(corpus: dict[str, Any], tmp_path: Path, context: Context) -> None:
    for splits in (ALL, corpus["splits"]):
        built({**corpus, "splits": splits}, tmp_path, context)
        counted = json.loads((tmp_path / "manifest.json").read_text())["dropped_duplicates"]
        metrics = json.loads((tmp_path / "run.json").read_text())["metrics"]
        assert metrics["dropped_duplicates"] == sum(counted.values())
        assert set(counted) == ({"train/code"} if splits == ALL else set())  # prose that train_copy repeats is stripped as blocks before
