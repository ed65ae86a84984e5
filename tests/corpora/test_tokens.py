"""The tokenizer, documents of equal length, and streams that change topic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expertmiss.corpora import store, tokenize, tokenizer, topic_shift
from expertmiss.corpora.store import Document
from expertmiss.corpora.topic_shift import Piece
from expertmiss.errors import UserError
from expertmiss.stages import Context
from tests.corpora.samples import module, sentences


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer")
    tokenizer.train([sentences("a", 60), module("b", 40), "Grüße, 1234 and 1234 " * 9], path, vocab=400)
    return path


@pytest.fixture(scope="module")
def encoder(folder: Path) -> Any:
    return tokenizer.load(folder)


def test_special_token_and_size(encoder: Any) -> None:
    assert len(encoder) == 400 and encoder.eos_token == "<|endoftext|>" and encoder.eos_token_id == tokenizer.start_token(encoder) == 0


@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60))
def test_round_trip(encoder: Any, text: str) -> None:
    ids = encoder(text.replace("<|endoftext|>", ""), add_special_tokens=False)["input_ids"]
    assert encoder.decode(ids) == text.replace("<|endoftext|>", "")


@given(number=st.integers(0, 10**12))
def test_every_digit_is_one_token(encoder: Any, number: int) -> None:
    tokens = encoder.convert_ids_to_tokens(encoder(f"x = {number}", add_special_tokens=False)["input_ids"])
    assert tokens[-len(str(number)) :] == list(str(number))


def test_training_twice_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    tokenizer.train([sentences("a", 60), module("b", 40), "Grüße, 1234 and 1234 " * 9], tmp_path, vocab=400)
    assert (tmp_path / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no tokenizer can be loaded.*place tokenizer\.json"):
        tokenizer.load(tmp_path)


def config(folder: Path, **changes: Any) -> dict[str, Any]:
    shift = {"shift_split": "exploratory", "shift_streams": 3, "shift_piece_tokens": 20, "shift_topics": 2}
    return {"corpus": {"name": "demo", "tokens": 50, "seed": 0, **shift, **changes}, "model": {"path": str(folder), "revision": None}}


def write(out: Path, texts: dict[tuple[str, str], list[str]]) -> Path:
    documents = [
        Document(split, domain, f"{split}-{domain}-{i}", text) for (split, domain), found in texts.items() for i, text in enumerate(found)
    ]
    store.write_documents(documents, out)
    return out / "documents.parquet"


def test_equal_length_and_counts(folder: Path, encoder: Any, tmp_path: Path, context: Context) -> None:
    texts = {("exploratory", "prose"): [sentences("a", 9), "too short", sentences("b", 9)], ("pilot", "code"): [module("c", 9)]}
    tokenize.run(config(folder), out=tmp_path / "out", context=context, documents=write(tmp_path, texts))
    table = pd.read_parquet(tmp_path / "out" / "tokens.parquet")
    assert table["document"].tolist() == [0, 2, 3] and [len(row) for row in table["tokens"]] == [50] * 3
    assert table["tokens"][0].tolist() == [0, *encoder(sentences("a", 9))["input_ids"][:49]]
    assert not any(row.any() for row in table["topic_change"])
    counts = json.loads((tmp_path / "out" / "counts.json").read_text())
    assert counts == {"tokens": 50, "kept": {"exploratory/prose": 2, "pilot/code": 1}, "too_short": {"exploratory/prose": 1}}
    assert (tmp_path / "out" / "run.json").is_file()


def test_a_split_without_long_documents_is_an_error(folder: Path, tmp_path: Path, context: Context) -> None:
    path = write(tmp_path, {("exploratory", "prose"): [sentences("a", 9)], ("calibration", "prose"): ["too short"]})
    with pytest.raises(UserError, match="none of the 1 calibration documents has 50 tokens"):
        tokenize.run(config(folder), out=tmp_path / "out", context=context, documents=path)


def test_topic_changes_stand_where_the_flags_say(folder: Path, tmp_path: Path, context: Context) -> None:
    texts = {("exploratory", domain): [sentences(f"{domain}{i}", 9) for i in range(6)] for domain in ("a", "b", "c")}
    texts["pilot", "a"] = [sentences("pilot", 9)]
    tokenize.run(config(folder), out=tmp_path / "tokens", context=context, documents=write(tmp_path, texts))
    topic_shift.run(config(folder), out=tmp_path / "shift", context=context, tokens=tmp_path / "tokens" / "tokens.parquet")
    documents = pd.read_parquet(tmp_path / "tokens" / "tokens.parquet").set_index("source")
    streams = pd.read_parquet(tmp_path / "shift" / "tokens.parquet")
    assert len(streams) == 3 and set(streams["split"]) == {"exploratory"}
    used = [source for row in streams["source"] for source in row.split("+")]
    assert len(used) == len(set(used)) == 12
    for row in streams.itertuples():
        pieces = row.source.split("+")
        domains = [documents.loc[source, "domain"] for source in pieces]
        assert row.domain == f"{domains[0]}>{domains[2]}" and domains[0] == domains[1] != domains[2] == domains[3]
        assert {place: flag for place, flag in enumerate(row.topic_change) if flag} == {20: 2, 40: 1, 60: 2}
        assert row.tokens.tolist() == [token for source in pieces for token in documents.loc[source, "tokens"][:20]]


def test_topic_and_document_changes_have_the_same_mean_position() -> None:
    for topics in (2, 3, 4):
        flags = topic_shift.flags(10, topics)
        means = [sum(i for i, flag in enumerate(flags) if flag == kind) / flags.count(kind) for kind in (1, 2)]
        assert means[0] == means[1] and flags.count(1) == topics - 1 and flags.count(2) == topics


def test_too_few_documents_for_the_streams() -> None:
    pieces = [Piece(domain, f"{domain}{i}", [i]) for domain in "ab" for i in range(4)]
    assert len(topic_shift.join_streams(pieces, 2, 2, 0)) == 2
    assert len(topic_shift.join_streams(pieces, 3, 2, 0)) == 2
    with pytest.raises(UserError, match="leave e4 out of `experiments`"):
        topic_shift.join_streams([piece for piece in pieces if piece.domain == "a"], 3, 2, 0)


def test_too_short_documents_for_a_piece(folder: Path, tmp_path: Path, context: Context) -> None:
    path = write(tmp_path, {("exploratory", domain): [sentences(domain + str(i), 9) for i in range(2)] for domain in "ab"})
    tokenize.run(config(folder), out=tmp_path / "tokens", context=context, documents=path)
    with pytest.raises(UserError, match="shift_piece_tokens = 51"):
        topic_shift.run(
            config(folder, shift_piece_tokens=51), out=tmp_path / "s", context=context, tokens=tmp_path / "tokens" / "tokens.parquet"
        )
