"""The model card: figures worked by hand, and the stage on a tiny model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM

from expertmiss.errors import UserError
from expertmiss.generate import problems as generate_problems
from expertmiss.generate import solve
from expertmiss.models import card
from expertmiss.models.card_figures import miss_rates, ranked, router_load, warm_distances
from expertmiss.stages import Context


def test_ranking_breaks_ties_by_id_and_weights_add_up() -> None:
    ids, weights = ranked(np.log(np.array([[1, 4, 2, 4, 1]], dtype=np.float32)), 3)
    assert ids.tolist() == [[1, 3, 2]]
    np.testing.assert_allclose(weights, [[0.4, 0.4, 0.2]], atol=1e-7)


def test_router_load_by_hand() -> None:
    load = router_load(np.array([[0, 1], [0, 1], [0, 2], [0, 1]]), 4)
    assert load["max_over_mean"] == 2.0 and load["unused"] == 0.25
    shares = np.array([4, 3, 1]) / 8
    assert load["entropy"] == pytest.approx(-(shares * np.log(shares)).sum() / np.log(4))
    assert router_load(np.array([[0, 1], [2, 3]]), 4)["entropy"] == pytest.approx(1.0)


def test_warm_distances_by_hand() -> None:
    """Calibration counts 0: 5, 1: 3, 2: 3, 3: 0; recency before the document, oldest first: 3, 2, 1, 0 (tie of 1 and 2: lower id later)."""
    ids = np.array([[[0], [2], [3], [2], [0]], [[3], [3], [1], [0], [1]]])
    stack = warm_distances(ids, np.array([5, 3, 3, 0]))
    # 0 is on top; 2 lies under 1 and 0; 3 under all; 2 again under 3; 0 under 3 and 2. Second document: the same start.
    assert stack[:, :, 0].tolist() == [[0, 2, 3, 1, 2], [3, 0, 2, 2, 1]]
    assert miss_rates(stack, {"a": 1, "b": 3, "c": 4}) == {"a": 0.8, "b": 0.2, "c": 0.0}


def test_warm_distances_equal_a_plain_lru_cache() -> None:
    draw = np.random.default_rng(0)
    experts, k = 10, 4  # K does not divide E
    ids = np.stack([[np.sort(draw.permutation(experts)[:k]) for _ in range(30)] for _ in range(3)])
    counts = draw.integers(0, 9, experts)
    stack = warm_distances(ids, counts)
    for capacity in (4, 7):
        for document in range(3):
            cache = sorted(range(experts), key=lambda e: (counts[e], -e))[-capacity:]
            for token in range(30):
                for rank in range(k):
                    expert = int(ids[document, token, rank])
                    assert (stack[document, token, rank] >= capacity) == (expert not in cache)
                    cache = [*[e for e in cache if e != expert][-(capacity - 1) :], expert]


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    draw = np.random.default_rng(1)
    rows = [
        {"document": i, "split": split, "domain": ("code", "prose")[i % 2], "source": f"s{i}", "tokens": draw.integers(0, 64, 40).tolist(), "topic_change": [False] * 40}
        for i, split in enumerate(["calibration"] * 4 + ["pilot"] * 6 + ["exploratory"] * 2)
    ]  # fmt: skip
    path = tmp_path / "tokens.parquet"
    pd.DataFrame(rows).to_parquet(path)
    return path


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    rows = [
        {"problem": f"{domain}/{i}", "split": split, "domain": domain, "source": f"template:{domain}{i // 2}", "prompt": f"Ask {i}:\n", "solution": "",
         "answer": "7" if domain == "word_problems" else "", "tests": "[]" if domain == "word_problems" else '["assert False"]', "entry_point": ""}
        for domain in ("word_problems", "functions") for split in ("pilot", "exploratory") for i in range(5)
    ]  # fmt: skip
    path = tmp_path / "problems.parquet"
    pd.DataFrame(rows).to_parquet(path)
    return path


@pytest.fixture(autouse=True)
def no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate_problems, "find_sandbox", lambda limits, allow_weak: (None, "none here"))


def configuration(folder: Path) -> dict[str, Any]:
    model = {
        "name": "tiny",
        "path": str(folder),
        "revision": None,
        "dtype": "float32",
        "device": "cpu",
        "substrate": "random_weights",
        "title": "a test",
    }
    return {
        "model": model, "host": {"name": "this_host"}, "corpus": {"name": "tiny"},
        "card": {"documents": 5, "batch": 2, "threads": 1, "problems": 4},
        "generate": {"batch": 3}, "scored_tasks": {"word_problems": {"tokens": 6}, "functions": {"tokens": 9}},
        "sandbox": {"seconds": 5.0, "memory_mib": 512, "processes": 4, "allow_weak": False},
    }  # fmt: skip


def test_stage_writes_card_and_readme(tiny_folder: Path, tokens: Path, problems: Path, tmp_path: Path) -> None:
    card.run(
        configuration(tiny_folder), out=tmp_path / "results" / "out", context=Context("test", "hash"), tokens=tokens, problems=problems
    )
    written = json.loads((tmp_path / "results" / "out" / "card.json").read_text())
    # 5 of 6 pilot documents, domains taking turns: document ids 4 to 8.
    table = pd.read_parquet(tokens).set_index("document")
    text = torch.tensor(np.stack(table.loc[4:8, "tokens"].tolist()))
    model = AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float32)
    with torch.no_grad():
        logits = model(text).logits
    each = torch.nn.functional.cross_entropy(logits[:, 16:-1].transpose(1, 2), text[:, 17:], reduction="none")
    assert written["held_out"]["all"]["nll"] == pytest.approx(float(each.mean()), abs=1e-5)
    assert written["held_out"]["prose"]["nll"] == pytest.approx(float(each[[1, 3]].mean()), abs=1e-5)
    assert {name: row["documents"] for name, row in written["held_out"].items()} == {"all": 5, "code": 3, "prose": 2}
    assert written["geometry"] == {"layers": 2, "experts": 16, "top_k": 4, "parameters": sum(p.numel() for p in model.parameters())}
    assert written["capacities"] == {"12.5%": 4, "25%": 4, "50%": 8}
    rates = written["lru_miss_rate"]["all"]
    assert 1 > rates["25%"] > rates["50%"] > 0
    assert sum(written["gate_weight_by_rank"]) == pytest.approx(1) and written["gate_weight_by_rank"] == sorted(
        written["gate_weight_by_rank"], reverse=True
    )
    readme = (tmp_path / "results" / "out" / "README.md").read_text()
    assert f"| prose | 2 | {written['held_out']['prose']['nll']:.3f} |" in readme and "random_weights" in readme
    run = json.loads((tmp_path / "results" / "out" / "run.json").read_text())
    assert run["stage"] == "describe_model" and run["labels"]["n"] == {"documents": 5, "tokens": 200, "problems": 8}
    assert run["metrics"]["nll/all"] == pytest.approx(written["held_out"]["all"]["nll"])


def test_missing_split_and_foreign_tokens_are_refused(tiny_folder: Path, tokens: Path, problems: Path, tmp_path: Path) -> None:
    table = pd.read_parquet(tokens)
    table[table["split"] != "pilot"].to_parquet(tmp_path / "no_pilot.parquet")
    with pytest.raises(UserError, match="no document of split 'pilot'"):
        card.run(
            configuration(tiny_folder),
            out=tmp_path / "results" / "out",
            context=Context("test", "hash"),
            tokens=tmp_path / "no_pilot.parquet",
            problems=problems,
        )
    table["tokens"] = [[*row[:-1], 64] for row in table["tokens"]]
    table.to_parquet(tmp_path / "foreign.parquet")
    with pytest.raises(UserError, match="token id 64 does not fit"):
        card.run(
            configuration(tiny_folder),
            out=tmp_path / "results" / "out",
            context=Context("test", "hash"),
            tokens=tmp_path / "foreign.parquet",
            problems=problems,
        )
    assert not (tmp_path / "results" / "out" / "run.json").exists()


def test_tasks_are_solved_and_resumed(
    tiny_folder: Path, tokens: Path, problems: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four of five pilot problems a task, one template after the other; functions are not measured without a sandbox."""
    out, arguments = tmp_path / "results" / "out", {"context": Context("test", "hash"), "tokens": tokens, "problems": problems}
    calls: list[int] = []
    whole = solve.greedy

    def counted(model: Any, prompts: Any, **options: Any) -> Any:
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(len(prompts))
        return whole(model, prompts, **options)

    monkeypatch.setattr(solve, "greedy", counted)
    with pytest.raises(KeyboardInterrupt):
        card.run(configuration(tiny_folder), out=out, **arguments)
    assert calls == [3, 1] and not (out / "run.json").exists() and len(list((out / ".parts").rglob("*.jsonl"))) == 2
    monkeypatch.setattr(solve, "greedy", whole)
    card.run(configuration(tiny_folder), out=out, **arguments)
    resumed = (out / "answers.jsonl").read_text()
    assert not list((out / ".parts").rglob("*.jsonl"))
    card.run(configuration(tiny_folder), out=tmp_path / "results" / "again", **arguments)
    assert (tmp_path / "results" / "again" / "answers.jsonl").read_text() == resumed
    rows = [json.loads(line) for line in resumed.splitlines()]
    assert {row["problem"] for row in rows} == {f"{task}/{i}" for task in ("word_problems", "functions") for i in (0, 1, 2, 4)}
    assert all(len(row["tokens"]) <= (6 if row["task"] == "word_problems" else 9) for row in rows)
    tasks = json.loads((out / "card.json").read_text())["tasks"]
    assert tasks["word_problems"]["by_rule"]["strict-1"]["n"] == 4 and tasks["word_problems"]["token_cap"] == 6
    assert tasks["functions"]["by_rule"] == {} and tasks["functions"]["n"] == 4
    readme = (out / "README.md").read_text()
    assert (
        "| word_problems | strict-1 | 4 | 0.0% | 0.0% to 49.0% | 6 |" in readme
        and "| functions | - | 4 | not measured (none here) |" in readme
    )
    metrics = json.loads((out / "run.json").read_text())["metrics"]
    assert metrics["accuracy/word_problems"] == 0 and "accuracy/functions" not in metrics


def test_no_problems_no_section_and_damaged_ones_are_refused(tiny_folder: Path, tokens: Path, problems: Path, tmp_path: Path) -> None:
    out, context = tmp_path / "results" / "out", Context("test", "hash")
    table = pd.read_parquet(problems)
    table.head(0).to_parquet(tmp_path / "none.parquet")
    card.run(configuration(tiny_folder), out=out, context=context, tokens=tokens, problems=tmp_path / "none.parquet")
    assert json.loads((out / "card.json").read_text())["tasks"] == {} and "## Tasks" not in (out / "README.md").read_text()
    table.drop(columns="tests").to_parquet(tmp_path / "damaged.parquet")
    with pytest.raises(UserError, match="no column 'tests'"):
        card.run(configuration(tiny_folder), out=out, context=context, tokens=tokens, problems=tmp_path / "damaged.parquet")
    changed = configuration(tiny_folder)
    changed["scored_tasks"]["functions"]["tokens"] = 64
    with pytest.raises(UserError, match="the model reads 64; lower the cap of task functions"):
        card.run(changed, out=out, context=context, tokens=tokens, problems=problems)
