"""Stage capture_traces: which documents, what is recorded, resuming, and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from expertmiss.errors import UserError
from expertmiss.models.load import load_model
from expertmiss.stages import Context
from expertmiss.traces import capture
from expertmiss.traces.format import Trace
from tests.models.tiny import save_tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    save_tiny("qwen3_moe", folder)
    return folder


def tokens_file(path: Path, documents: int = 5, length: int = 12, largest: int = 64) -> Path:
    generator = np.random.default_rng(0)
    pd.DataFrame({
        "document": np.arange(documents), "split": "exploratory", "domain": [f"d{index % 2}" for index in range(documents)],
        "source": [f"s{index // 2}" for index in range(documents)], "tokens": list(generator.integers(0, largest, (documents, length)).astype(np.int32)),
        "topic_change": [[0] * length] * documents,
    }).to_parquet(path)  # fmt: skip
    return path


def configuration(model: Path, **change: Any) -> dict[str, Any]:
    return {
        "model": {"name": "tiny", "path": str(model), "revision": None, "dtype": "float32", "device": "cpu", "substrate": "random_weights", "title": "t"},
        "capture": {"depth": 16, "batch": 2, "threads": 1, "splits": ["exploratory"], "documents": 100, **change},
        "host": {"name": "test"}, "corpus": {"name": "test"},
    }  # fmt: skip


CONTEXT = Context("test", "hash")


def record(cfg: dict[str, Any], out: Path, tokens: Path) -> Trace:
    capture.run(cfg, out=out, context=CONTEXT, tokens=tokens, split="exploratory")
    return Trace.open(out / "trace.safetensors", check_values=True)


def test_rows_are_the_models_own_logits_ranked(model: Path, tmp_path: Path) -> None:
    tokens = tokens_file(tmp_path / "tokens.parquet")
    trace = record(configuration(model), tmp_path / "out", tokens)
    loaded, _ = load_model(model)
    text = torch.from_numpy(np.stack(pd.read_parquet(tokens)["tokens"].to_list()).astype(np.int64))
    with torch.inference_mode():
        answers = loaded(text, output_router_logits=True, use_cache=False).router_logits
    for layer, logits in zip(trace.layers, answers, strict=True):
        logits = logits.numpy()
        np.testing.assert_allclose(
            layer.z, np.take_along_axis(logits, layer.ids.astype(np.int64), axis=1), atol=2e-5
        )  # another batch shape rounds differently
        np.testing.assert_allclose(layer.lse, np.log(np.exp(logits.astype(np.float64)).sum(axis=1)), atol=1e-5)
        np.testing.assert_allclose(layer.zmin, logits.min(axis=1), atol=2e-5)  # another batch shape rounds differently
        assert (np.diff(layer.z, axis=1) <= 0).all()
    assert trace.document.tolist() == np.repeat(np.arange(5), 12).tolist() and trace.source(3) == "s1"
    assert trace.meta.labels["substrate"] == "random_weights" and trace.meta.set_mismatches == 0


def test_a_killed_run_resumes_at_the_first_missing_part(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = tokens_file(tmp_path / "tokens.parquet")
    whole = record(configuration(model), tmp_path / "whole", tokens)
    done: list[int] = []
    original = capture._record

    def dies_at_the_second(*arguments: Any) -> Any:
        if len(done) == 1:
            raise KeyboardInterrupt
        done.append(1)
        return original(*arguments)

    monkeypatch.setattr(capture, "_record", dies_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        record(configuration(model), tmp_path / "out", tokens)
    parts = sorted((tmp_path / "out" / ".parts").rglob("*.safetensors"))
    assert [part.name for part in parts] == ["00000.safetensors"] and not (tmp_path / "out" / "run.json").exists()
    calls: list[int] = []

    def counted(*arguments: Any) -> Any:
        calls.append(1)
        return original(*arguments)

    monkeypatch.setattr(capture, "_record", counted)
    resumed = record(configuration(model), tmp_path / "out", tokens)
    assert len(calls) == 2
    assert resumed.path.read_bytes() == whole.path.read_bytes()
    assert not list((tmp_path / "out" / ".parts").rglob("*.safetensors"))


def test_a_truncated_part_and_parts_of_another_configuration_are_not_used(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = tokens_file(tmp_path / "tokens.parquet")
    original, calls = capture._record, []
    monkeypatch.setattr(capture, "_join", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        record(configuration(model), tmp_path / "out", tokens)
    monkeypatch.undo()
    part = next((tmp_path / "out" / ".parts").rglob("00001.safetensors"))
    part.write_bytes(part.read_bytes()[:100])
    monkeypatch.setattr(capture, "_record", lambda *arguments: calls.append(1) or original(*arguments))
    record(configuration(model), tmp_path / "out", tokens)
    assert len(calls) == 1
    record(configuration(model, depth=8), tmp_path / "out", tokens)
    assert len(calls) == 4


def test_documents_are_spread_over_domains_and_sources() -> None:
    table = pd.DataFrame({
        "document": range(12), "split": "exploratory", "domain": ["a"] * 8 + ["b"] * 4, "source": ["x", "x", "x", "x", "y", "y", "z", "z", "x", "x", "w", "w"],
    })  # fmt: skip
    chosen = capture.choose_documents(table, "exploratory", 5, Path("tokens.parquet"))
    assert chosen["document"].tolist() == [0, 4, 6, 8, 10]
    assert len(capture.choose_documents(table, "exploratory", 100, Path("tokens.parquet"))) == 12
    with pytest.raises(UserError, match=r"tokens\.parquet: no document of split 'pilot' \(present: exploratory\)"):
        capture.choose_documents(table, "pilot", 5, Path("tokens.parquet"))


def test_token_ids_out_of_range_are_refused(model: Path, tmp_path: Path) -> None:
    tokens = tokens_file(tmp_path / "tokens.parquet", largest=900)
    with pytest.raises(UserError, match=r"token id \d+ does not fit the model's vocabulary of 64"):
        record(configuration(model), tmp_path / "out", tokens)


def test_nan_logits_are_refused(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = load_model

    def spoilt(*arguments: Any, **keywords: Any) -> Any:
        loaded, tokenizer = original(*arguments, **keywords)
        with torch.no_grad():
            loaded.model.layers[1].mlp.gate.weight[3] = float("nan")
        return loaded, tokenizer

    monkeypatch.setattr(capture, "load_model", spoilt)
    with pytest.raises(UserError, match=r"layer 1.*expert 3"):
        record(configuration(model), tmp_path / "out", tokens_file(tmp_path / "tokens.parquet"))


@pytest.mark.parametrize("option", ["documents", "batch", "threads", "depth"])
def test_options_out_of_range_are_named(model: Path, tmp_path: Path, option: str) -> None:
    tokens = tokens_file(tmp_path / "tokens.parquet")
    with pytest.raises(UserError, match=rf"capture\.{option}: 0 is too few"):
        record(configuration(model, **{option: 0}), tmp_path / "out", tokens)


def test_a_depth_below_the_chosen_experts_is_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"capture\.depth: 1 is less than the \d+ experts"):
        record(configuration(model, depth=1), tmp_path / "out", tokens_file(tmp_path / "tokens.parquet"))


def test_junk_tokens_are_one_line(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "tokens.parquet"
    good = pd.read_parquet(tokens_file(path))
    junk: list[tuple[Any, str]] = [
        (b"", "not a readable Parquet file"),
        (b"junk" * 40, "not a readable Parquet file"),
        (pd.DataFrame({"x": [1]}), "no column 'document'"),
        (good.head(0).astype({"document": "int64"}), "no document of split"),
        (good.assign(document=["a"] * 5), "whole number"),
        (good.assign(domain=[None] * 5), "whole number"),
        (good.assign(tokens=[[1] * (index + 1) for index in range(5)]), "one length"),
        (good.assign(tokens=[["a"] * 12] * 5), "one length"),
        (good.assign(tokens=[[]] * 5, topic_change=[[]] * 5), "empty or differ"),
        (good.assign(topic_change=[[0]] * 5), "empty or differ"),
        (good.assign(tokens=[[-3] * 12] * 5), "token id -3 does not fit"),
    ]
    for content, message in junk:
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            content.to_parquet(path)
        with pytest.raises(UserError, match=message) as caught:
            record(configuration(model), tmp_path / "out", path)
        assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)
    path.unlink()
    with pytest.raises(UserError, match="no such file; run tokenize_corpus first"):
        record(configuration(model), tmp_path / "out", path)


def test_more_domains_than_a_byte_counts_are_refused(model: Path, tmp_path: Path) -> None:
    path = tokens_file(tmp_path / "tokens.parquet", documents=256, length=2)
    pd.read_parquet(path).assign(domain=[f"d{index}" for index in range(256)]).to_parquet(path)
    with pytest.raises(UserError, match="256 domains, a trace holds at most 255"):
        record(configuration(model, documents=256), tmp_path / "out", path)


def test_digests_cover_every_shard_and_tokenizer_file(tmp_path: Path) -> None:
    names = (
        "config.json",
        "model-1.safetensors",
        "model-2.safetensors",
        "model.safetensors.index.json",
        "tokenizer.json",
        "tokenizer_config.json",
    )
    for name in names:
        (tmp_path / name).write_text("a")
    for name in names:
        before = capture.model_digest(tmp_path, None), capture._tokenizer_digest(tmp_path, None)
        (tmp_path / name).write_text("another")
        after = capture.model_digest(tmp_path, None), capture._tokenizer_digest(tmp_path, None)
        assert [old != new for old, new in zip(before, after, strict=True)] == [not name.startswith("tok"), name.startswith("tok")]
