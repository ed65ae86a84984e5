"""Generation on the engine: plain greedy text under `fetch_all`, the emulator's answers under the others, the same start before every problem."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from expertmiss.emulate.rows import Row
from expertmiss.engine.session import Engine, EngineOptions
from expertmiss.errors import UserError
from expertmiss.generate import problems as generate_problems
from expertmiss.generate import stage
from expertmiss.generate.arms import ArmDecoder
from expertmiss.generate.on_engine import EngineDecoder
from expertmiss.models.load import load_model
from expertmiss.stages import Context
from tests.engine.builtin import BUILTIN, builtin_file
from tests.engine.test_policies import named
from tests.generate.conftest import answers_section, calibration, problems

__all__ = ["calibration", "problems"]

PROMPTS = [
    "Question: Ann has 3 apples and buys 4 more. How many apples does she have?\nAnswer:",
    'def add(a, b):\n    """Return the sum."""\n',
    "Question: A box holds 12 pens. Tom takes 5. How many are left?\nAnswer:",
]
NAMES = ("fetch_all", "rule_015", "quality_first", "substitute_all")
LENGTH, CAPACITY = 20, 64


def arms() -> list[Row]:
    return [Row(name, named(name), CAPACITY) for name in NAMES]


def ended(row: int, made: list[int]) -> bool:
    return False


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    torch.set_num_threads(1)
    model, tokenizer = load_model(BUILTIN)
    prompts = [tokenizer(text)["input_ids"] for text in PROMPTS]
    counts = np.random.default_rng(0).integers(0, 99, (6, 256))
    engine = Engine(builtin_file(tmp_path_factory, "F32"), EngineOptions(store="mapped", cache_type="f32", context=128))
    options: dict[str, Any] = {"cap": LENGTH, "eos": None, "ended": ended}
    return {
        "prompts": prompts, "engine": engine, "counts": counts,
        "there": EngineDecoder(engine, arms(), counts, log=True).run(prompts, [5, 6, 7], **options),
        "here": ArmDecoder(model, arms(), 3, counts, log=True).run(prompts, [5, 6, 7], **options),
    }  # fmt: skip


def test_fetch_all_is_stock_greedy_decoding(answered: dict[str, Any]) -> None:
    engine: Engine = answered["engine"]
    for prompt, made in zip(answered["prompts"], answered["there"], strict=True):
        engine.start_stock()
        logits, tokens = engine.prefill(prompt), list[int]()
        while len(tokens) < LENGTH:
            tokens.append(int(logits.argmax()))
            logits = engine.step(tokens[-1])
        assert made[0].tokens == tokens


def test_the_answers_are_the_emulators(answered: dict[str, Any]) -> None:
    """Tokens and meters; near-ties may part a few of them."""
    same = 0
    for ours, theirs in zip(answered["there"], answered["here"], strict=True):
        assert ours[0].tokens == theirs[0].tokens
        for one, other in zip(ours, theirs, strict=True):
            assert one.tokens[0] == other.tokens[0] and len(one.tokens) == LENGTH  # prompts are lossless
            assert (one.meters["tokens"] == LENGTH - 1).all()
            if one.tokens == other.tokens:
                counted = ("calls", "hits", "fetches", "substituted")
                same += all(np.array_equal(one.meters[name], other.meters[name]) for name in counted)
                np.testing.assert_allclose(one.masses(6), other.masses(6), atol=0.05)
    assert same >= 9  # of 12
    assert len({tuple(one.tokens) for one in answered["there"][0]}) > 1  # policies do change what is written


def test_every_problem_starts_from_the_same_state(answered: dict[str, Any]) -> None:
    """In another order, after other problems: the same tokens, meters and masses."""
    prompts = answered["prompts"][::-1]
    again = EngineDecoder(answered["engine"], arms(), answered["counts"], log=True).run(
        prompts, [7, 6, 5], cap=LENGTH, eos=None, ended=ended
    )
    for one, other in zip(chain(*again[::-1]), chain(*answered["there"]), strict=True):
        assert one.tokens == other.tokens and one.masses(6) == other.masses(6)
        for name, values in one.meters.items():
            np.testing.assert_array_equal(values, other.meters[name])


def test_answers_end_where_they_should(answered: dict[str, Any]) -> None:
    decoder = EngineDecoder(answered["engine"], arms()[:1], answered["counts"])
    whole = answered["there"][0][0].tokens
    run: dict[str, Any] = {"prompts": answered["prompts"][:1], "documents": [5], "cap": LENGTH}
    assert decoder.run(**run, eos=whole[4], ended=ended)[0][0].tokens == whole[: whole.index(whole[4]) + 1]
    assert decoder.run(**run, eos=None, ended=lambda row, made: len(made) == 3)[0][0].tokens == whole[:3]


def test_a_state_that_outlives_a_problem_is_refused(answered: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="outlives a problem"):
        EngineDecoder(answered["engine"], [Row("keeps", {**named("rule_015"), "state": "keep"}, CAPACITY)])


@pytest.fixture
def tiny_folder() -> Path:
    """The model of the borrowed fixtures: one that has a GGUF file."""
    return BUILTIN


def test_the_stage_answers_on_the_engine(
    calibration: Path, problems: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The emulator's answers again, labelled as the engine's, with file and build among the inputs."""
    monkeypatch.setattr(generate_problems, "find_sandbox", lambda limits, allow_weak: (None, "none here"))
    gguf, build = builtin_file(tmp_path_factory, "F32"), tmp_path / "build.json"
    build.write_text("{}")
    found: dict[str, dict[str, Any]] = {}
    for run_on, more in (("emulator", {}), ("engine", {"gguf": gguf, "engine": build})):
        cfg = answers_section(BUILTIN, NAMES, run_on=run_on)
        cfg |= {"engine": {"type": "F32", "store": "mapped", "device": "cpu", "threads": 1, "io_threads": 2}} if more else {}
        out = tmp_path / "results" / run_on
        stage.run(cfg, out=out, context=Context("test", "hash"), problems=problems, calibration=calibration, **more)
        rows = [json.loads(line) for line in (out / "answers.jsonl").read_text().splitlines()]
        found[run_on] = {
            "rows": {(row["problem"], row["arm"]): row["tokens"] for row in rows},
            **json.loads((out / "run.json").read_text()),
        }
    ours, theirs = found["engine"]["rows"], found["emulator"]["rows"]
    assert ours.keys() == theirs.keys() and sum(ours[key] == theirs[key] for key in ours) >= 0.9 * len(ours)
    assert (
        "engine, F32, store mapped, device cpu" in found["engine"]["labels"]["notes"] and "emulator" in found["emulator"]["labels"]["notes"]
    )
    with pytest.raises(UserError, match="so --input gguf="):
        stage.run(cfg, out=tmp_path / "results" / "lacking", context=Context("test", "hash"), problems=problems, calibration=calibration)
