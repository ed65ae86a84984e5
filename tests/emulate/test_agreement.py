"""First differences and their margins, on logs and logits made by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from expertmiss.emulate.agreement import eps, first_differences

HIT, FETCH, SUBSTITUTE = 0, 1, 2
FETCH_ALL: dict[str, Any] = {"miss_rule": {"name": "fetch_all"}}
Z = np.array([[3.0, 2.0, 1.0, 0.0], [3.0, 1.0, 1.0 + 1e-6, 0.0]])
"""Two tokens, four experts, K = 2; at token 1 experts 1 and 2 nearly tie for the second place."""


def log(*layers: list[list[tuple[int, int, int, int]]]) -> dict[str, Any]:
    """Calls (expert, verdict, substitute, victim) by layer and token, K = 2, written layer by layer."""
    rows = [(t, layer, *call) for layer, tokens in enumerate(layers) for t, calls in enumerate(tokens) for call in calls]
    return dict(zip(("t", "layer", "expert", "verdict", "substitute", "victim"), np.array(rows).T, strict=True))


SAME = [[(0, HIT, -1, -1), (1, HIT, -1, -1)], [(0, HIT, -1, -1), (2, HIT, -1, -1)]]
FLIPPED = [[(0, HIT, -1, -1), (1, HIT, -1, -1)], [(0, HIT, -1, -1), (1, HIT, -1, -1)]]


def test_equal_logs_and_another_order_of_equal_answers_are_no_difference() -> None:
    assert first_differences(log(SAME), log(SAME), [Z], FETCH_ALL) == []
    assert first_differences(log(SAME), log([calls[::-1] for calls in SAME]), [Z], FETCH_ALL) == []


def test_a_near_tie_has_its_gap_as_margin() -> None:
    (found,) = first_differences(log(SAME), log(FLIPPED), [Z], FETCH_ALL)
    assert (found.layer, found.token, found.follows) == (0, 1, False)
    assert found.margin == pytest.approx(1e-6, rel=1e-6)


def test_another_victim_without_a_tie_has_no_margin() -> None:
    one, other = [[(0, FETCH, -1, 3), (1, HIT, -1, -1)]], [[(0, FETCH, -1, 2), (1, HIT, -1, -1)]]
    (found,) = first_differences(log(one), log(other), [Z[:1]], FETCH_ALL)
    assert found.margin == math.inf


def test_what_a_lower_layer_may_have_caused_is_not_judged() -> None:
    early = [[(0, HIT, -1, -1), (3, HIT, -1, -1)], SAME[1]]
    at_0_then_1 = first_differences(log(SAME, SAME), log(early, FLIPPED), [Z, Z], FETCH_ALL)
    assert [(one.layer, one.token, one.follows) for one in at_0_then_1] == [(0, 0, False), (1, 1, True)]
    at_1_then_0 = first_differences(log(SAME, SAME), log(FLIPPED, early), [Z, Z], FETCH_ALL)
    assert [(one.layer, one.token, one.follows) for one in at_1_then_0] == [(0, 1, False), (1, 0, False)]


def test_a_rules_own_bound_is_a_tie_too() -> None:
    w = np.exp(Z[0, :2]) / np.exp(Z[0, :2]).sum()
    one = log([[(0, HIT, -1, -1), (1, FETCH, -1, 2)]])
    other = log([[(0, HIT, -1, -1), (1, SUBSTITUTE, 3, -1)]])
    for rule, margin in (
        ({"name": "threshold", "tau": w[1] * math.exp(1e-5)}, 1e-5),
        ({"name": "drop_cold", "F": 2 * w[1] * math.exp(-1e-5)}, 1e-5),
        ({"name": "score_margin", "alpha": math.e - 1 - 1e-5}, 1e-5 / math.e),  # z_1 is z_(K+1) + 1
        ({"name": "threshold", "tau": math.inf}, 2.0),  # experts 1 and 3
    ):
        (found,) = first_differences(one, other, [Z[:1]], {"miss_rule": rule})
        assert found.margin == pytest.approx(margin, rel=1e-3), rule


def test_a_tie_of_cache_prior_is_at_the_raised_logit() -> None:
    """Delta is 3: with lambda 1/3 a resident is raised by 1, to a tie of experts 1 and 2."""
    one, other = log([[(0, HIT, -1, -1), (1, FETCH, -1, 3)]]), log([[(0, HIT, -1, -1), (2, HIT, -1, -1)]])
    (found,) = first_differences(one, other, [Z[:1]], {"miss_rule": {"name": "cache_prior", "lambda": (1 + 1e-6) / 3, "J": 0}})
    assert found.margin == pytest.approx(1e-6, rel=1e-3)


def test_eps_is_the_largest_difference_of_any_layer() -> None:
    one = [[Z[None].astype(np.float32)], [Z[None].astype(np.float32)]]
    other = [[one[0][0].copy()], [one[1][0] + np.float32(0.25)]]
    assert eps(one, other) == pytest.approx(0.25, rel=1e-6)
