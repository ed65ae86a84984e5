"""Known answers of the experiments' statistics."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr
from scipy.stats import t as student

from expertmiss.corpora.topic_shift import DOCUMENT_CHANGE, TOPIC_CHANGE, flags
from expertmiss.emulate.attribute import EDGES, SUBSTITUTE, attribute
from expertmiss.experiments.cells import order_reversals
from expertmiss.experiments.e1 import spared
from expertmiss.experiments.e2 import correlations, within_domain_spearman
from expertmiss.experiments.e4 import _adjust, _tests, bin_means, shift_contrast, simultaneous_band, windows
from expertmiss.stats.bootstrap import ClusterBootstrap


def test_shares_spared_by_hand() -> None:
    totals = np.array([[np.log(1.01) * 100, np.log(1.05) * 100, 100.0, 30.0, 40.0]])
    np.testing.assert_allclose(spared(totals), [[0.8, 0.25, 0.55]])


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_correlations_equal_scipy(seed: int) -> None:
    totals = np.random.default_rng(seed).normal(size=(3, 5, 8))
    for row, found in zip(totals, correlations(totals), strict=True):
        np.testing.assert_allclose(found, [pearsonr(row[0], other).statistic for other in row[1:]])


def test_rank_correlation_of_one_domain_is_spearman() -> None:
    draw = np.random.default_rng(3)
    mass, loss = draw.normal(size=(40, 4)), draw.normal(size=(40, 4)).round(1)  # ties
    found = within_domain_spearman(mass, loss, np.zeros(40, dtype=np.int64))
    np.testing.assert_allclose(found, [spearmanr(mass[:, place], loss[:, place]).statistic for place in range(4)])


def test_differences_between_domains_do_not_count() -> None:
    draw = np.random.default_rng(4)
    domains = np.repeat(np.arange(5), 200)
    level = 10.0 * domains[:, None]  # mass and loss both rise from domain to domain
    found = within_domain_spearman(level + draw.normal(size=(1000, 1)), level + draw.normal(size=(1000, 1)), domains)
    assert abs(found[0]) < 0.1
    assert spearmanr(level[:, 0], level[:, 0]).statistic == pytest.approx(1)


def test_windows_end_at_the_next_change() -> None:
    marks = np.array(flags(10, 2), dtype=np.uint8)
    assert windows(marks, TOPIC_CHANGE) == [(20, 30)]
    assert windows(marks, DOCUMENT_CHANGE) == [(10, 20), (30, 39)]  # the last token of a stream has no target


def _effect(near: float, far: float, placebo: float) -> tuple[np.ndarray, np.ndarray]:
    """One stream whose effect is ``near`` in the first 64 tokens after a topic change, ``far`` later, ``placebo`` as near at the others."""
    marks = np.array(flags(192, 2), dtype=np.uint8)
    effect = np.full(len(marks) - 1, far)
    for start in (192, 576):
        effect[start : start + 64] = placebo
    effect[384 : 384 + 64] = near
    return effect[None], marks[None]


def test_the_contrast_subtracts_what_a_document_change_does() -> None:
    effect, marks = _effect(near=-5.0, far=-1.0, placebo=-2.0)
    np.testing.assert_allclose(shift_contrast(effect, marks, 64), [(-5 + 1) - (-2 + 1)])


def test_bins_by_distance() -> None:
    effect, marks = _effect(near=-5.0, far=-1.0, placebo=-2.0)
    np.testing.assert_allclose(bin_means(effect, marks, TOPIC_CHANGE), [[-5, -5, -1, -1]])
    np.testing.assert_allclose(bin_means(effect, marks, DOCUMENT_CHANGE), [[-2, -2, -1, -1]])


def test_the_band_holds_all_bins_at_once() -> None:
    draw = np.random.default_rng(5)
    inside = 0
    for trial in range(200):
        values = draw.normal(size=(60, 4)) * [1, 2, 3, 4]
        _, low, high = simultaneous_band(values, 0.95, 300, trial)
        inside += bool(((low <= 0) & (high >= 0)).all())
    assert 180 <= inside <= 199  # 95 % nominal; pointwise intervals would hold all four in about 163


def test_the_band_is_wider_than_a_pointwise_interval() -> None:
    values = np.random.default_rng(6).normal(size=(80, 4))
    mean, low, high = simultaneous_band(values, 0.95, 4000, 1)
    assert ((high - low) / 2 > 2.2 * values.std(axis=0, ddof=1) / np.sqrt(80)).all()
    np.testing.assert_allclose(mean, values.mean(axis=0))


def test_order_reversals() -> None:
    total = lambda totals: totals[:, 0]
    steady = order_reversals(total, np.ones((80, 1)), 200, 0.125, 1)
    assert steady == {"estimate": 0.0, "full": 80.0, "first": 10.0}
    # 41 documents of +1 and 39 of -1: a sample of 10 is negative in 36 % of orders and zero, neither sign, in 26 %.
    mixed = order_reversals(total, np.array([1.0] * 41 + [-1.0] * 39)[:, None], 4000, 0.125, 1)
    assert 0.55 < mixed["estimate"] < 0.69


def test_a_loss_is_divided_by_weight_and_adds_up() -> None:
    calls = {
        "t": np.array([20, 20, 20, 21, 3]), "rank": np.array([0, 1, 2, 1, 0]), "weight": np.array([0.6, 0.2, 0.2, 0.12, 0.5]),
        "verdict": np.array([SUBSTITUTE, SUBSTITUTE, 0, SUBSTITUTE, SUBSTITUTE]),
    }  # fmt: skip
    change = np.zeros(30)
    change[[3, 20, 21, 25]] = [9.0, 4.0, 2.0, 1.0]
    found = attribute(calls, change, top_k=3, first=16)
    assert found.calls.sum() == 3 and found.calls[:, EDGES.index(0.3)].tolist() == [1, 0, 0, 0]
    np.testing.assert_allclose(found.loss.sum(axis=1), [3.0, 1.0 + 2.0, 0.0, 1.0])  # last: token 25 substituted nothing
    np.testing.assert_allclose(found.loss.sum(), change[16:].sum())
    np.testing.assert_allclose(found.mass.sum(), 0.6 + 0.2 + 0.12)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_attribution_conserves_calls_mass_and_loss(seed: int) -> None:
    draw = np.random.default_rng(seed)
    count = 200
    calls = {
        "t": draw.integers(0, 41, count), "rank": draw.integers(0, 4, count), "weight": draw.uniform(0, 1, count) * draw.integers(0, 2, count),
        "verdict": draw.integers(0, 4, count),
    }  # fmt: skip
    change = draw.normal(size=40)
    found = attribute(calls, change, top_k=4, first=16)
    kept = (calls["verdict"] == SUBSTITUTE) & (calls["t"] >= 16) & (calls["t"] < 40)
    assert found.calls.sum() == kept.sum()
    np.testing.assert_allclose(found.mass.sum(), calls["weight"][kept].sum())
    np.testing.assert_allclose(found.loss.sum(), change[16:].sum())


def test_a_lower_loss_has_a_small_p_and_a_higher_one_a_large_p() -> None:
    values = np.random.default_rng(2).normal(-0.5, 1, 60)
    bootstrap = ClusterBootstrap(np.arange(60), resamples=200)
    rows = _tests("x", values, -values, bootstrap)
    expected = student.cdf(values.mean() / (values.std(ddof=1) / np.sqrt(60)), 59)
    assert rows[0]["p"] == pytest.approx(expected) and rows[0]["p"] < 0.01
    assert rows[1]["p"] == pytest.approx(1 - expected) and rows[0]["estimate"] == pytest.approx(values.mean())


def test_a_rule_needs_both_parts_and_rules_are_corrected_by_holm() -> None:
    frame = pd.DataFrame({"part": list("abab"), "family": ["x", "x", "y", "y"], "p": [0.001, 0.01, 0.04, 0.03]})
    found = _adjust(frame)
    assert found["p_rule"].tolist() == [0.01, 0.01, 0.04, 0.04]
    np.testing.assert_allclose(found["p_holm"], [0.02, 0.02, 0.04, 0.04])


def test_an_undefined_small_sample_has_no_sign() -> None:
    only = lambda totals: np.where(totals[:, 0] > 1, 1.0, np.nan)
    found = order_reversals(only, np.array([[1.0]] * 2 + [[0.0]] * 14), 300, 0.125, 1)
    assert found["estimate"] == 0.0


def test_no_columns_give_no_intervals() -> None:
    found = ClusterBootstrap(np.arange(5), resamples=10).interval(lambda totals: totals[:, 0] / totals[:, 1], np.zeros((5, 2, 0)))
    assert found.estimate.shape == found.low.shape == (0,)
