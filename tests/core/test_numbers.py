"""The core's arithmetic: exponential, logarithm, half-life table, draws, rank order."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from itertools import pairwise

import numpy as np
import pytest
from core_helpers import meta, policy, run
from hypothesis import given, settings
from hypothesis import strategies as st

from expertmiss import _core


def exact_exp(x: float) -> Decimal:
    with localcontext() as context:
        context.prec = 60
        return Decimal(x).exp()


def test_exp_is_within_one_ulp() -> None:
    rng = np.random.default_rng(0)
    worst = 0.0
    for x in [*rng.uniform(-708, 709, 3000), *rng.uniform(-1, 1, 3000), *rng.normal(size=500) * 1e-8]:
        got, want = _core.exp(float(x)), exact_exp(float(x))
        worst = max(worst, float(abs(Decimal(got) - want) / Decimal(math.ulp(float(want)))))
    assert worst < 1.0, worst


def test_exp_at_its_ends() -> None:
    assert _core.exp(0.0) == _core.exp(-0.0) == 1.0
    assert _core.exp(-746.0) == _core.exp(-math.inf) == 0.0 and _core.exp(710.0) == _core.exp(math.inf) == math.inf
    assert math.isnan(_core.exp(math.nan))
    assert _core.exp(-744.0) == pytest.approx(5e-324, rel=1) and _core.exp(709.78) == pytest.approx(math.exp(709.78), rel=1e-15)


def test_exp_has_fixed_bits() -> None:
    """The same on every machine: bits recorded once."""
    recorded = {
        -30.0: "0x1.a56e0c2ac7f75p-44",
        -1.0: "0x1.78b56362cef38p-2",
        -0.1: "0x1.cf46d99d52b3ap-1",
        0.5: "0x1.a61298e1e069cp+0",
        1.0: "0x1.5bf0a8b14576ap+1",
        20.25: "0x1.290d76d1966a9p+29",
    }
    assert {x: _core.exp(x).hex() for x in recorded} == recorded


@settings(max_examples=300, deadline=None)
@given(st.floats(-30, 30), st.floats(-30, 30))
def test_exp_is_monotone(a: float, b: float) -> None:
    low, high = min(a, b), max(a, b)
    assert _core.exp(low) <= _core.exp(high)


def test_log_is_within_two_ulp() -> None:
    rng = np.random.default_rng(1)
    for x in [*np.exp(rng.uniform(-600, 600, 2000)), *rng.uniform(0.5, 2.0, 2000), 1.0, 512.0, math.nextafter(1.0, 2.0)]:
        with localcontext() as context:
            context.prec = 60
            want = Decimal(float(x)).ln()
        assert float(abs(Decimal(_core.log(float(x))) - want) / Decimal(math.ulp(float(want)))) <= 2.0, x


@pytest.mark.parametrize("half_life", [1, 2, 3, 7, 128, 1000])
def test_half_life_table_is_correctly_rounded(half_life: int) -> None:
    with localcontext() as context:
        context.prec = 60
        want = [float(Decimal(2) ** (Decimal(j) / Decimal(half_life))) for j in range(half_life)]
    assert _core.half_life_table(half_life).tolist() == want


def signed(value: int) -> int:
    """The int64 of the same 64 bits."""
    return (value + 2**63) % 2**64 - 2**63


def test_draws_are_splitmix64() -> None:
    # the published first outputs of SplitMix64 started at 1234567
    outputs = [_core.draw(signed(1234567 + step * 0x9E3779B97F4A7C15), []) for step in range(3)]
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert _core.draw(5, [7]) == _core.draw(signed(_core.draw(5, []) ^ 7), [])


def test_lse_is_accurate() -> None:
    z = np.random.default_rng(3).normal(size=(50, 200)).astype(np.float32) * 4
    lse = _core.rank_logits(z, 10)[2]
    assert lse == pytest.approx(np.log(np.exp(z.astype(float)).sum(axis=1)), rel=1e-14)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.sampled_from([-1.5, 0.0, -0.0, 0.25, 2.0]), min_size=6, max_size=6), min_size=1, max_size=5), st.integers(1, 6))
def test_rank_order_is_z_falling_then_id_rising(rows: list[list[float]], depth: int) -> None:
    z = np.array(rows, np.float32)
    ids, ranked_z, _, zmin = _core.rank_logits(z, depth)
    for row, (got, value) in enumerate(zip(ids, ranked_z, strict=True)):
        want = sorted(range(6), key=lambda expert: (-z[row, expert], expert))[:depth]
        assert got.tolist() == want and value.tolist() == z[row, want].tolist()
    assert zmin.tolist() == z.min(axis=1).tolist()


def test_a_bias_ranks_by_p_plus_bias() -> None:
    z = np.array([[1.0, 0.5, 0.0, -3.0]], np.float32)
    bias = np.array([0.0, 0.0, 0.9, 0.0])
    assert _core.rank_logits(z, 4)[0].tolist() == [[0, 1, 2, 3]]
    assert _core.rank_logits(z, 4, bias=bias)[0].tolist() == [[2, 0, 1, 3]]
    assert _core.rank_logits(z, 4, bias=bias, gating="sigmoid")[0].tolist() == [[2, 0, 1, 3]]
    assert _core.rank_logits(z, 4, bias=np.array([0.0, 0.2, 0.0, 1.0]), gating="sigmoid")[0].tolist() == [[3, 1, 0, 2]]


@pytest.mark.parametrize(("score", "allowed"), [("max", [0, 1]), ("top2_sum", [4, 5])])
def test_group_limits(score: str, allowed: list[int]) -> None:
    # three groups of two: sigmoid sums favour the last, the single best expert is in the first; ties go to the lower group
    z = np.array([[2.0, -9.0, 0.5, 0.5, 0.9, 0.9]], np.float32)
    groups = {"count": 3, "allowed": 1, "score": score}
    ids = _core.rank_logits(z, 2, top_k=2, gating="sigmoid", groups=groups)[0]
    assert sorted(ids[0].tolist()) == allowed
    tied = np.zeros((1, 6), np.float32)
    assert _core.rank_logits(tied, 2, top_k=2, gating="sigmoid", groups=groups)[0].tolist() == [[0, 1]]
    with pytest.raises(ValueError, match="fewer than top_k = 3"):
        _core.rank_logits(z, 2, top_k=3, groups=groups)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_logits_that_are_not_finite_are_refused(bad: float) -> None:
    z = np.zeros((3, 5), np.float32)
    z[1, 4] = bad
    with pytest.raises(ValueError, match="row 1: the logit of expert 4 is not finite"):
        _core.rank_logits(z, 2)


@pytest.mark.parametrize("expert", [127, 128, 255, 256, 511])
def test_large_ids_survive_everywhere(expert: int) -> None:
    # residents expert, then 3. 510 evicts expert, expert evicts 510, then expert stands in for 7.
    z = np.zeros((3, 512), np.float32)
    z[0, [510, 3]] = z[1, [expert, 3]] = 9.0, 8.0
    z[2, [3, 7, expert]] = 9.0, 8.0, 7.0
    counts = np.zeros((1, 512), np.int64)
    counts[0, [expert, 3]] = [1, 2]
    result = run(z, meta(512, 2), policy("first_choice", initial="warm", eviction="fifo"), 2, counts=counts)
    assert result["initial_order"].tolist() == [[0, expert], [0, 3]]
    calls = result["log"]["calls"]
    assert calls["expert"].tolist() == [510, 3, expert, 3, 3, 7]
    assert calls["victim"].tolist() == [expert, -1, 510, -1, -1, -1]
    assert calls["substitute"].tolist() == [-1, -1, -1, -1, -1, expert]
    admitted = run(z, meta(512, 2), policy("substitute_all", admission="every_miss", initial="warm", eviction="fifo"), 2, counts=counts)
    assert admitted["log"]["landings"]["expert"].tolist() == [510, expert] and admitted["log"]["landings"]["victim"].tolist() == [expert, 3]


def test_trace_with_ids_out_of_range_is_refused() -> None:
    layer = list(_core.rank_logits(np.zeros((2, 4), np.float32), 4))
    layer[0] = np.array([[0, 1, 2, 3], [9, 1, 2, 3]], np.uint16)
    with pytest.raises(ValueError, match="layer 0, token 1: expert id 9 is not below E"):
        _core.simulate([tuple(layer)], np.zeros(2, np.int32), meta(4, 2), policy(), 2)
    layer[0] = np.array([[0, 1, 2, 3], [2, 2, 1, 3]], np.uint16)
    with pytest.raises(RuntimeError, match="duplicate ids"):
        _core.simulate([tuple(layer)], np.zeros(2, np.int32), meta(4, 2), policy(), 2)


def test_arrays_of_another_type_are_refused_not_converted() -> None:
    ids, z, lse, zmin = _core.rank_logits(np.zeros((2, 4), np.float32), 4)
    for wrong in (
        (ids.astype(np.int32), z, lse, zmin),
        (ids, z.astype(float), lse, zmin),
        (ids[:, ::2], z, lse, zmin),
        (ids, z, lse[:1], zmin),
    ):
        with pytest.raises(ValueError, match="layer 0"):
            _core.simulate([wrong], np.zeros(2, np.int32), meta(4, 2), policy(), 2)  # type: ignore[list-item]


def test_traces_may_be_read_only() -> None:
    layer = _core.rank_logits(np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32), 6)
    for array in layer:
        array.flags.writeable = False
    document = np.zeros(8, np.int32)
    document.flags.writeable = False
    assert _core.simulate([layer], document, meta(6, 2), policy(), 3)["meters"]["calls"].sum() == 16


def test_initial_random_follows_the_hash() -> None:
    about, chosen = meta(10, 2, layers=2), policy(initial="random")
    order = _core.initial_order(about, chosen, 3, seed=8)
    want = []
    for layer in range(2):
        ranked = sorted(range(10), key=lambda expert: (_core.draw(8, [layer, expert]), expert))
        want += [[layer, expert] for expert in ranked[-3:]]
    assert order.tolist() == want
    pool = _core.initial_order(about, {**chosen, "scope": "global"}, 3, seed=8).tolist()
    assert sorted(pool) == sorted(want)
    hashes = [_core.draw(8, pair) for pair in pool]
    assert all(a < b for a, b in pairwise(hashes))


def test_initial_warm_of_a_global_pool() -> None:
    counts = np.array([[5, 1, 0, 0], [5, 0, 7, 5]])
    order = _core.initial_order(meta(4, 1, layers=2), policy(initial="warm", scope="global"), 2, counts)
    # per layer the best two: (0,0) 5, (0,1) 1; (1,2) 7, (1,0) 5 before (1,3) 5. Counts rising, then layer falling
    assert order.tolist() == [[0, 1], [1, 0], [0, 0], [1, 2]]
