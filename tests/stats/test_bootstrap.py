"""Known answers of the cluster bootstrap."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats as scipy_stats

from expertmiss.errors import UserError
from expertmiss.stats.bootstrap import ClusterBootstrap, ratio, ratio_difference


def test_estimate_is_the_ratio_of_sums_and_not_the_mean_of_ratios():
    columns = np.array([[1.0, 2.0], [30.0, 40.0], [0.0, 8.0]])
    interval = ClusterBootstrap(["a", "b", "c"]).interval(ratio, columns)
    assert interval.estimate == 31 / 50
    assert interval.low <= interval.estimate <= interval.high


def test_constant_data_gives_zero_width_at_the_constant():
    calls = np.arange(10.0, 60.0)
    interval = ClusterBootstrap([f"s{i % 45}" for i in range(50)]).interval(ratio, np.stack([0.3 * calls, calls], axis=1))
    assert interval.low == interval.estimate == interval.high == pytest.approx(0.3, abs=1e-15)


def test_a_mean_has_the_closed_form_interval():
    generator = np.random.default_rng(0)
    values = generator.normal(5, 2, 400)
    interval = ClusterBootstrap(np.arange(400), resamples=20_000).interval(ratio, np.stack([values, np.ones(400)], axis=1))
    half = scipy_stats.norm.ppf(0.975) * values.std() / np.sqrt(400)
    assert interval.low == pytest.approx(values.mean() - half, abs=0.05 * half)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.05 * half)


def test_bounds_agree_with_scipy_on_skewed_cluster_totals():
    generator = np.random.default_rng(1)
    numerator, denominator = generator.exponential(3, 60), generator.uniform(50, 100, 60)
    ours = ClusterBootstrap(np.arange(60), resamples=20_000).interval(ratio, np.stack([numerator, denominator], axis=1))

    def statistic(a, b, axis=-1):
        return a.sum(axis=axis) / b.sum(axis=axis)

    theirs = scipy_stats.bootstrap(
        (numerator, denominator), statistic, paired=True, vectorized=True, n_resamples=20_000, batch=2_000, method="BCa",
        rng=np.random.default_rng(2),
    ).confidence_interval  # fmt: skip
    width = theirs.high - theirs.low
    assert ours.low == pytest.approx(theirs.low, abs=0.03 * width)
    assert ours.high == pytest.approx(theirs.high, abs=0.03 * width)


def test_documents_of_one_source_are_drawn_together():
    """Twenty identical documents of a source carry no more information than one, so the interval must not shrink."""
    generator = np.random.default_rng(4)
    values = generator.normal(0, 1, 50)
    one = ClusterBootstrap(np.arange(50)).interval(ratio, np.stack([values, np.ones(50)], axis=1))
    repeated = np.repeat(values, 20)
    many = ClusterBootstrap(np.repeat(np.arange(50), 20)).interval(ratio, np.stack([repeated, np.ones(1000)], axis=1))
    alone = ClusterBootstrap(np.arange(1000)).interval(ratio, np.stack([repeated, np.ones(1000)], axis=1))
    assert many.high - many.low == pytest.approx(one.high - one.low, rel=1e-9)
    assert alone.high - alone.low < 0.4 * (one.high - one.low)


def test_paired_difference_drops_what_policies_share():
    generator = np.random.default_rng(5)
    hard, calls = generator.normal(0.5, 0.2, 80), np.full(80, 100.0)
    policy, base = (hard + 0.01) * calls, hard * calls
    bootstrap = ClusterBootstrap(np.arange(80))
    paired = bootstrap.interval(ratio_difference, np.stack([policy, calls, base, calls], axis=1))
    single = bootstrap.interval(ratio, np.stack([policy, calls], axis=1))
    assert paired.low == pytest.approx(0.01) and paired.high == pytest.approx(0.01)
    assert single.high - single.low > 0.05


def test_any_function_of_totals_such_as_a_perplexity_change():
    generator = np.random.default_rng(6)
    tokens = np.full(60, 500.0)
    reference = generator.normal(3.0, 0.3, 60) * tokens
    columns = np.stack([reference + 0.02 * tokens, tokens, reference, tokens], axis=1)
    interval = ClusterBootstrap(np.arange(60)).interval(lambda totals: np.expm1(ratio_difference(totals)), columns)
    assert interval.estimate == pytest.approx(np.expm1(0.02))


def test_columns_share_resamples_and_shape():
    generator = np.random.default_rng(7)
    columns = np.stack([generator.uniform(0, 9, (50, 3, 2)), np.full((50, 3, 2), 10.0)], axis=1)
    bootstrap = ClusterBootstrap(np.arange(50))
    together = bootstrap.interval(ratio, columns)
    assert together.estimate.shape == together.low.shape == (3, 2)
    single = bootstrap.interval(ratio, columns[:, :, 1, 0])
    assert (together.low[1, 0], together.high[1, 0]) == (pytest.approx(single.low), pytest.approx(single.high))


def test_a_share_of_nothing_is_nan_and_not_a_number_of_its_own():
    columns = np.stack([np.zeros((45, 2)), np.stack([np.zeros(45), np.ones(45)], axis=1)], axis=1)
    interval = ClusterBootstrap(np.arange(45)).interval(ratio, columns)
    assert np.isnan([interval.estimate[0], interval.low[0], interval.high[0]]).all()
    assert interval.estimate[1] == interval.low[1] == interval.high[1] == 0


@pytest.mark.parametrize(("clusters", "reliable"), [(39, "inconclusive: n clusters < 40"), (40, "yes")])
def test_few_clusters_are_said(clusters, reliable):
    interval = ClusterBootstrap(np.repeat(np.arange(clusters), 5)).interval(ratio, np.ones((5 * clusters, 2)))
    assert (interval.reliable, interval.clusters) == (reliable, clusters)


def test_equal_seeds_give_equal_bounds_and_other_seeds_do_not():
    columns = np.random.default_rng(8).uniform(1, 2, (50, 2))
    first, again, other = (ClusterBootstrap(np.arange(50), seed=seed, resamples=200).interval(ratio, columns) for seed in (1, 1, 2))
    assert (first.low, first.high) == (again.low, again.high)
    assert (first.low, first.high) != (other.low, other.high)


@pytest.mark.parametrize("options", [{"resamples": 0}, {"confidence": 1.0}])
def test_senseless_options_are_refused(options):
    with pytest.raises(UserError, match="resamples >= 1"):
        ClusterBootstrap(["a"], **options)
    with pytest.raises(UserError, match="no documents"):
        ClusterBootstrap([])


def test_coverage_on_a_known_distribution():
    """Nominal 95 % intervals of a skewed ratio of sums over 60 clusters contain the truth in 92 to 97 % of 1,500 samples."""
    generator = np.random.default_rng(9)
    samples, clusters, each = 1_500, 60, 3
    effect = generator.gamma(4, 0.25, (samples, clusters, 1))  # mean 1, shared within a cluster
    calls = generator.integers(80, 121, (samples, clusters, each)).astype(float)
    hits = 0.2 * effect * calls * generator.gamma(9, 1 / 9, calls.shape)
    # Samples are independent columns of one call: they share resample counts, not data.
    columns = np.stack([hits, calls]).reshape(2, samples, -1).transpose(2, 0, 1)
    interval = ClusterBootstrap(np.repeat(np.arange(clusters), each), resamples=1_000).interval(ratio, columns)
    coverage = float(((interval.low <= 0.2) & (interval.high >= 0.2)).mean())
    assert 0.92 <= coverage <= 0.97
