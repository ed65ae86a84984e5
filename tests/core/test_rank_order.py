"""Rank order on rows that are hard to deal into buckets, and steps that order only as many ranks as they look at."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.core.core_helpers import meta, policy, ranked

from expertmiss import _core

EXPERTS, TOKENS = 96, 40
RNG = np.random.default_rng(0)
PLAIN = RNG.normal(size=(TOKENS, EXPERTS))
ROWS: dict[str, NDArray[Any]] = {
    "plain": PLAIN,
    "equal": np.zeros((TOKENS, EXPERTS)),
    "few values": np.round(PLAIN),
    "zeros of both signs": np.where(RNG.random(PLAIN.shape) < 0.5, 0.0, -0.0),
    "one far above": np.concatenate([PLAIN[:, :-1] * 1e-3, np.full((TOKENS, 1), 1e4)], axis=1),
    "one far below": np.concatenate([np.full((TOKENS, 1), -1e30), PLAIN[:, 1:]], axis=1),
    "subnormal range": PLAIN * 1e-42,
    "range beyond float32": np.concatenate([np.full((TOKENS, 1), -3e38), np.full((TOKENS, 1), 3e38), PLAIN[:, 2:]], axis=1),
    "two clusters": PLAIN * 1e-6 + np.where(np.arange(EXPERTS) % 2, 5.0, -5.0),
}
POLICIES = {
    "fetch_all": policy("fetch_all"),
    "first_choice": policy("first_choice", admission="every_miss"),
    "substitute_all": policy("substitute_all", admission="every_miss", upload_cap=1),
    "threshold": policy("threshold", tau=0.2, eviction={"name": "lfu", "variant": "half_life"}, admission={"name": "background", "beta": 0.3}),
    "cumulative": policy("cumulative", T1=0.2, T2=0.7, fallback="drop"),
    "score_margin": policy("score_margin", alpha=0.4),
    "cache_prior": policy("cache_prior", J=1, **{"lambda": 0.3}),
    "max_rank": policy("max_rank", J=1, M=20),
    "drop_cold": policy("drop_cold", F=1.0),
    "random": policy("first_choice", chooser={"name": "random", "seed": 1}, admission="every_miss"),
    "matched_random": policy("first_choice", chooser={"name": "matched_random", "margin": 0.5, "seed": 1}, admission="every_miss"),
}  # fmt: skip


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("depth", [4, 33, EXPERTS])
def test_ranks_fall_and_ties_go_to_the_lower_id(kind: str, dtype: type, depth: int) -> None:
    z = ROWS[kind].astype(dtype)
    ids, sorted_z, _, zmin = _core.rank_logits(z, depth)
    expected = np.argsort(-z.astype(np.float64), axis=1, kind="stable")[:, :depth]
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_array_equal(sorted_z, np.take_along_axis(z, expected, axis=1).astype(np.float32))
    np.testing.assert_array_equal(zmin, z.min(axis=1).astype(np.float32))


def test_a_range_beyond_float64_is_ranked() -> None:
    z = np.concatenate([np.full((1, 1), -1.7e308), PLAIN[:1, 1:-1], np.full((1, 1), 1.7e308)], axis=1)
    ids, *_ = _core.rank_logits(z, EXPERTS)
    np.testing.assert_array_equal(ids[0], np.argsort(-z[0], kind="stable"))


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_first_logit_that_is_not_finite_is_named(bad: float, dtype: type) -> None:
    z = PLAIN[:2].astype(dtype)
    z[1, 40:] = bad
    with pytest.raises(ValueError, match="row 1: the logit of expert 40 is not finite"):
        _core.rank_logits(z, 4)
    stepper = _core.Stepper(meta(EXPERTS, 4), policy("fetch_all"), 8)
    stepper.reset(0)
    with pytest.raises(ValueError, match="the logit of expert 40 is not finite"):
        stepper.steps(0, z)


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("name", POLICIES)
def test_a_step_that_orders_few_ranks_decides_as_one_that_has_all(kind: str, name: str) -> None:
    """The simulator reads rows that are in order throughout. Capacities: the residents of C = K fill S, so that a substitute lies deep."""
    z = ROWS[kind].astype(np.float32)
    about = meta(EXPERTS, 4, normalise=False)
    for capacity in (4, 5, 24, EXPERTS):
        try:
            stepper = _core.Stepper(about, {**POLICIES[name], "initial": "random"}, capacity, seed=3, log=True)
        except ValueError as problem:
            assert "C" in str(problem) or "capacity" in str(problem)
            continue
        stepper.reset(0)
        stepper.steps(0, z)
        stepped = stepper.take_log()
        arguments = ([ranked(z, about)], np.zeros(TOKENS, np.int32), about, {**POLICIES[name], "initial": "random"}, capacity)
        result = _core.simulate(*arguments, seed=3, log=True)
        assert result["log"] is not None
        for part in ("calls", "landings"):
            for column, values in result["log"][part].items():  # type: ignore[literal-required]
                np.testing.assert_array_equal(stepped[part][column], values, err_msg=f"{part} {column}")
        for meter, values in stepper.meters().items():
            np.testing.assert_array_equal(values, result["meters"][meter][0], err_msg=meter)
