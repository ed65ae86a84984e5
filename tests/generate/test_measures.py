"""Measures against SciPy and by enumeration."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.stats import kendalltau, mannwhitneyu, norm

from expertmiss.generate.decode import drawn
from expertmiss.generate.measures import auc, concordant, detectable, order_of_arms, survival, unbiased_pass
from expertmiss.stats.bootstrap import ClusterBootstrap

DRAW = np.random.default_rng(5)


def test_auc_is_that_of_mann_whitney_and_shows_an_effect() -> None:
    n = 300
    sources = [f"t{i // 5}" for i in range(n)]
    flipped = DRAW.random(n) < 0.3
    scores = np.round(DRAW.normal(size=n) + 0.8 * flipped, 1)  # ties
    bootstrap = ClusterBootstrap(sources, resamples=500)
    found = auc(bootstrap, sources, scores, flipped)
    assert found is not None
    expected = mannwhitneyu(scores[flipped], scores[~flipped]).statistic / (flipped.sum() * (~flipped).sum())
    assert float(found.estimate) == pytest.approx(expected) and found.clusters == 60
    assert 0.5 < float(found.low) < expected < float(found.high) < 0.9
    assert auc(bootstrap, sources, scores, np.zeros(n, bool)) is None and auc(bootstrap, sources, scores, np.ones(n, bool)) is None


def test_auc_interval_covers_nothing_to_see() -> None:
    """Coverage over 60 draws without an effect; 95 % nominal, so that 48 of 60 or fewer has a chance below 1e-6."""
    covered = 0
    sources = [f"t{i // 4}" for i in range(200)]
    for seed in range(60):
        draw = np.random.default_rng(seed)
        found = auc(ClusterBootstrap(sources, resamples=200), sources, draw.normal(size=200), draw.random(200) < 0.3)
        assert found is not None
        covered += bool(found.low <= 0.5 <= found.high)
    assert covered > 48


def test_concordance_is_kendalls_tau_where_nothing_ties() -> None:
    masses, agreements = DRAW.random(7), DRAW.random(7)
    tau = kendalltau(-masses, agreements).statistic
    assert concordant(masses[None], agreements[None])[0] == pytest.approx((tau + 1) / 2)
    assert concordant(np.array([[1.0, 1.0]]), np.array([[0.2, 0.4]]))[0] == 0.5
    assert concordant(np.array([[1.0, 2.0]]), np.array([[0.4, 0.2]]))[0] == 1.0


def test_order_of_arms_weighs_problems_alike() -> None:
    references = [{"text": "a"} for _ in range(40)]
    arms = [
        [{"meters": {"mass": mass, "tokens": 10}, "text": "a" if i % 4 < agree else "b"} for i in range(40)]
        for mass, agree in ((1.0, 3), (2.0, 2), (3.0, 1))
    ]
    bootstrap = ClusterBootstrap([f"t{i // 4}" for i in range(40)], resamples=200, min_clusters=2)
    found = order_of_arms(bootstrap, arms, references)
    assert float(found.estimate) == float(found.low) == 1.0
    assert float(order_of_arms(bootstrap, arms[::-1], references).estimate) == 1.0
    wrong = [[{**row, "meters": {"mass": 4 - row["meters"]["mass"], "tokens": 10}} for row in rows] for rows in arms]
    assert float(order_of_arms(bootstrap, wrong, references).estimate) == 0.0


@pytest.mark.parametrize(("right", "samples", "k"), [(0, 5, 1), (2, 5, 1), (2, 5, 3), (5, 5, 5), (1, 6, 4)])
def test_pass_at_k_by_enumeration(right: int, samples: int, k: int) -> None:
    answers = [True] * right + [False] * (samples - right)
    chosen = [any(answer) for answer in combinations(answers, k)]
    assert unbiased_pass(right, samples, k) == pytest.approx(np.mean(chosen))


def test_pass_at_k_needs_k_samples() -> None:
    with pytest.raises(ValueError, match="pass@3 needs at least 3 samples"):
        unbiased_pass(1, 2, 3)


def test_survival() -> None:
    assert survival([None, 0, 2, None], 3).tolist() == [1.0, 0.75, 0.75, 0.5]


def test_detectable_effect_of_a_normal_interval() -> None:
    error = 0.01
    half = norm.ppf(0.975) * error
    effect = detectable(0.2 - half, 0.2 + half, 0.95)
    assert norm.sf(norm.ppf(0.975) - effect / error) == pytest.approx(0.8)
    assert np.isnan(detectable(0.0, 0.0, 0.95))  # no width, no test


def test_draws_follow_the_distribution_and_their_key_alone() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0]]).repeat(4000, 1)
    pick = drawn(0.7, [(3, row, 0) for row in range(4000)])
    found = pick(logits, range(4000), 2)
    expected = torch.softmax(logits[0].double() / 0.7, -1)
    assert torch.allclose(torch.bincount(found, minlength=4) / 4000, expected.float(), atol=0.03)
    assert torch.equal(pick(logits[:5], [9, 8, 7, 6, 5], 2), found[[9, 8, 7, 6, 5]])  # not the place in the batch
    assert not torch.equal(pick(logits, range(4000), 3), found)
    assert drawn(1e-6, [(0,)])(logits[:1], [0], 0).item() == 2
