"""Slot-by-slot comparison of the oracle with the compiled core, which gets the same logits as a ranked trace or step by step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from expertmiss import _core

from . import run
from .cases import Case, cases
from .meters import COUNTS, SUMS, Meters
from .scores import Model
from .state import Key, insertion_digest
from .step import Call, Landing

QUICK = settings(max_examples=100, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
COMPARED = {"cases": 0, "calls": 0, "landings": 0}


@pytest.fixture(scope="module", autouse=True)
def report_counts(request: pytest.FixtureRequest) -> Iterator[None]:
    """Say after each module how much was compared."""
    before = dict(COMPARED)
    yield
    counts = ", ".join(f"{COMPARED[name] - before[name]} {name}" for name in COMPARED)
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(f"\n{request.node.name}: {counts} compared")


def meta(model: Model) -> dict[str, Any]:
    """The routing part of a trace's metadata."""
    names = ("layers", "experts", "top_k", "gating", "normalise", "scale", "bias", "groups")
    return {name: getattr(model, name) for name in names}


def full_depth(model: Model) -> int:
    """All experts that can ever be candidates."""
    return model.experts if model.groups is None else model.experts // model.groups["count"] * model.groups["allowed"]


def ranked_layers(case: Case, depth: int) -> list[_core.Layer]:
    """The trace that the core replays."""
    model = case.model
    return [
        _core.rank_logits(
            np.ascontiguousarray(case.z[:, layer]),
            depth,
            top_k=model.top_k,
            gating=model.gating,
            bias=None if model.bias is None else np.asarray(model.bias[layer]),
            groups=model.groups,
        )
        for layer in range(model.layers)
    ]


def core_simulate(case: Case, depth: int | None = None, mutant: str | None = None, **options: Any) -> _core.Result:
    """The core's run of a case."""
    return _core.simulate(
        ranked_layers(case, depth or full_depth(case.model)),
        np.asarray(case.documents, dtype=np.int32),
        meta(case.model),
        case.policy,
        case.capacity,
        np.asarray(case.counts, dtype=np.int64),
        case.seed,
        log=True,
        check=mutant is None,
        mutant=mutant,
        **options,
    )


def core_stepper(case: Case, mutant: str | None = None) -> _core.Stepper:
    """The core's closed loop for a case."""
    counts = np.asarray(case.counts, dtype=np.int64)
    return _core.Stepper(meta(case.model), case.policy, case.capacity, counts, case.seed, log=True, check=mutant is None, mutant=mutant)


def lse_of(case: Case) -> list[list[float]]:
    """[T][L]: the core's log-sum-exp, as a trace carries it (its own accuracy is tested by itself)."""
    columns = [_core.rank_logits(np.ascontiguousarray(case.z[:, layer]), case.model.top_k)[2] for layer in range(case.model.layers)]
    return [[float(value) for value in row] for row in zip(*columns, strict=True)]


def oracle_simulate(case: Case) -> run.Result:
    """The oracle's run of a case, on all logits."""
    return run.simulate(
        case.z.tolist(), case.documents, case.model, case.policy, case.capacity, _core.exp, case.counts, case.seed, lse_of(case)
    )


def _slot(case: Case, key: Key | None) -> int:
    if key is None:
        return -1
    return key[1] if case.policy["scope"] == "layer" else key[0] * case.model.experts + key[1]


def assert_log(case: Case, calls: list[Call], landings: list[Landing], log: _core.Log | None) -> None:
    """Every field of every call and landing, weights to the bit."""
    assert log is not None
    expected: list[dict[str, Any]] = [
        {
            "document": call.document,
            "t": call.t,
            "layer": call.layer,
            "rank": call.rank,
            "expert": call.expert,
            "verdict": call.verdict,
            "substitute": call.substitute,
            "victim": _slot(case, call.victim),
            "weight": call.weight,
            "executed_weight": call.executed_weight,
        }
        for call in calls
    ]
    _assert_rows("call", expected, log["calls"])
    expected = [
        {"document": at.document, "t": at.t, "layer": at.key[0], "expert": at.key[1], "victim": _slot(case, at.victim)} for at in landings
    ]
    _assert_rows("landing", expected, log["landings"])


def _assert_rows(kind: str, expected: list[dict[str, Any]], columns: Any) -> None:
    got = list(zip(*(columns[name].tolist() for name in expected[0]), strict=True)) if expected else []
    if not expected:
        assert len(columns["t"]) == 0, f"the core logged {len(columns['t'])} {kind}s, the oracle none"
    for row, (want, have) in enumerate(zip(expected, got, strict=False)):
        assert tuple(want.values()) == have, f"{kind} {row}: oracle {want}, core {dict(zip(want, have, strict=True))}"
    assert len(expected) == len(got), f"oracle has {len(expected)} {kind}s, core {len(got)}"


def assert_meters(case: Case, expected: Meters, got: dict[str, Any]) -> None:
    """Counts exactly, sums to rounding. got: name -> [L]."""
    for name in (*COUNTS, *SUMS):
        for layer in range(case.model.layers):
            want, have = expected.value[name][layer], got[name][layer]
            if name in COUNTS:
                assert want == have, f"meter {name}, layer {layer}: oracle {want}, core {have}"
            elif name == "kl" and not math.isfinite(want):
                assert not math.isfinite(have), f"meter kl, layer {layer}: oracle {want}, core {have}"
            else:
                assert have == pytest.approx(want, rel=1e-9, abs=1e-9), f"meter {name}, layer {layer}: oracle {want}, core {have}"


def compare_simulate(case: Case, mutant: str | None = None) -> None:
    """AssertionError at the first difference between the oracle and `_core.simulate`."""
    want, have = oracle_simulate(case), core_simulate(case, mutant=mutant)
    order = have["initial_order"].tolist()
    assert insertion_digest([[(layer, expert) for layer, expert in order]]) == want.digest
    assert have["documents"].tolist() == want.documents
    assert_log(case, want.calls, want.landings, have["log"])
    for segment, meters in enumerate(want.meters):
        assert_meters(case, meters, {name: have["meters"][name][segment] for name in (*COUNTS, *SUMS)})  # type: ignore[literal-required]
    assert int(have["meters"]["past_depth"].sum()) == 0
    _count(want.calls, want.landings)


def compare_stepper(case: Case, mutant: str | None = None, arrives: Callable[[list[Key]], list[Key]] | None = None) -> None:
    """The same against `_core.Stepper`, with executed experts and weights step by step. `arrives`: what of a layer's queue lands, by the clock."""
    oracle = run.Oracle(case.model, case.policy, case.capacity, _core.exp, case.counts, case.seed)
    stepper = core_stepper(case, mutant)
    lse = lse_of(case)
    calls: list[Call] = []
    landings: list[Landing] = []
    for token, document in enumerate(case.documents):
        if token == 0 or document != case.documents[token - 1]:
            if token:
                assert_meters(case, oracle.meters, stepper.meters())
            oracle.reset(document)
            stepper.reset(document)
        for layer in range(case.model.layers):
            arrived = None if arrives is None else arrives([key for key, _ in oracle.pools[layer].Q])
            outcome = oracle.step(layer, case.z[token, layer].tolist(), lse[token][layer], arrived)
            experts = None if arrived is None else [expert for _, expert in arrived]
            ids, weights = stepper.step(layer, case.z[token, layer], experts)
            assert ids.tolist() == outcome.executed, f"token {token}, layer {layer}: oracle executes {outcome.executed}, core {ids}"
            assert weights.tolist() == [weight * case.model.scale for weight in outcome.weights]
            calls += outcome.calls
            landings += outcome.landings
    assert_meters(case, oracle.meters, stepper.meters())
    assert_log(case, calls, landings, stepper.take_log())
    _count(calls, landings)


def explore(compare: Callable[[Case], None], examples: int, **pinned: Any) -> None:
    """Run a comparison on `examples` drawn cases, the same ones every time."""

    @settings(QUICK, max_examples=examples)
    @given(case=cases(**pinned))
    def check(case: Case) -> None:
        compare(case)

    check()


def _count(calls: list[Call], landings: list[Landing]) -> None:
    COMPARED["cases"] += 1
    COMPARED["calls"] += len(calls)
    COMPARED["landings"] += len(landings)
