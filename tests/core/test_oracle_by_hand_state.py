"""The oracle's starts, draws, frequencies, evictions and refusals, worked out by hand."""

from __future__ import annotations

import hashlib
import math
from fractions import Fraction
from typing import Any

import pytest
from oracle.defaults import policy
from oracle.evictions import begin_token, count_request, half_life_table, victim
from oracle.hand import ranked, rows, run
from oracle.state import Pool, draw, finalise, insertion_digest, insertion_orders


def test_splitmix_known_values_and_draws() -> None:
    # The first two outputs of the published generator with seed 0.
    assert finalise(0) == 0xE220A8397B1DCDAF and finalise(0x9E3779B97F4A7C15) == 0x6E789E6AA1B965F4
    assert draw(5, 1, 2) == finalise(finalise(finalise(5) ^ 1) ^ 2)


def test_random_choosers() -> None:
    # Rank order 0, 5, 4, 3 (z = 0, -1, -2, -13); 0 substituted; R = {3, 4, 5}.
    z, seed = ranked(6, 0, 5, 4), 11
    expected = [3, 4, 5][draw(seed, 0, 0, 0, 0) % 3]
    random = policy("substitute_all", admission={"name": "every_miss"}, chooser={"name": "random", "seed": seed})
    assert run([z], random, 1, 3).calls[0].substitute == expected
    for margin, among in ((0.0, [5]), (0.999, [5]), (1.0, [4, 5]), (12.0, [3, 4, 5])):
        chosen = {**random, "chooser": {"name": "matched_random", "margin": margin, "seed": seed}}
        assert run([z], chosen, 1, 3).calls[0].substitute == among[draw(seed, 0, 0, 0, 0) % len(among)]


def test_starts() -> None:
    # warm: count rising, id falling; the last two. Counts 3, 1, 3, 0: order 3, 1, 2, 0: last two 2, 0.
    assert insertion_orders("warm", "layer", 1, 4, 2, [[3, 1, 3, 0]], 0) == [[(0, 2), (0, 0)]]
    # global: count rising, layer falling, id falling.
    both = insertion_orders("warm", "global", 2, 3, 2, [[1, 2, 2], [2, 0, 2]], 0)
    assert both == [[(1, 2), (1, 0), (0, 2), (0, 1)]]
    by_draw = sorted(range(5), key=lambda expert: draw(3, 0, expert))
    assert insertion_orders("random", "layer", 1, 5, 2, None, 3) == [[(0, expert) for expert in by_draw[-2:]]]
    assert insertion_digest([[(0, 2)], [(1, 300)]]) == hashlib.sha256(bytes([0, 0, 2, 0, 1, 0, 44, 1])).hexdigest()


def test_lfu_variants() -> None:
    # K 1, C 2, R = {2, 3}. Requests 0, 0, 3, 3, 1, ...: substitute nothing (fetch_all).
    tokens = [ranked(4, expert) for expert in (0, 0, 2, 3)]
    # t0: 0 in, victim 2. freq 0: 2 after t1. t2: 2 asks: lifetime: R = {3: 0, 0: 2}: victim 3. t3: 3 asks: R = {0: 2, 2: 1}: victim 2.
    for variant in ("lifetime", "in_cache"):
        result = run(tokens, policy(eviction={"name": "lfu", "variant": variant}), 1, 2)
        assert [row[4] for row in rows(result)] == [2, None, 3, 2]
    # 0 0 3 3 3 1 0 2: t5: 1 evicts 0 (2 < 3). t6: 0 evicts 1; lifetime count of 0 is then 3, in_cache 1.
    # t7: 2 asks, R = {3: 3, 0: lifetime 3 | in_cache 1}: lifetime tie: last of 3 is 4 < 6: victim 3; in_cache: victim 0.
    tokens = [ranked(4, expert) for expert in (0, 0, 3, 3, 3, 1, 0, 2)]
    for variant, gone in (("lifetime", 3), ("in_cache", 0)):
        result = run(tokens, policy(eviction={"name": "lfu", "variant": variant}), 1, 2)
        assert [row[4] for row in rows(result)][5:] == [0, 1, gone]


def test_lfu_half_life_forgets() -> None:
    # h = 1: increments 1, 2, 4, 8, 16: two requests at t0, t1 weigh 3, one at t2 weighs 4.
    tokens = [ranked(4, expert) for expert in (2, 2, 3, 0)]
    assert rows(run(tokens, policy(eviction={"name": "lfu", "variant": "half_life", "half_life": 1}), 1, 2))[3][4] == 2
    assert rows(run(tokens, policy(eviction={"name": "lfu", "variant": "lifetime"}), 1, 2))[3][4] == 3


def test_half_life_table_is_correctly_rounded() -> None:
    # T^h lies closest to 2^j: compare the exact powers of the half-way points to both neighbours.
    for h in (1, 2, 3, 7, 128):
        for j, value in enumerate(half_life_table(h)):
            below = (Fraction(value) + Fraction(math.nextafter(value, 0.0))) / 2
            above = (Fraction(value) + Fraction(math.nextafter(value, 4.0))) / 2
            assert below**h < 2**j < above**h or value**h == 2**j


def test_half_life_rescaling_is_exact_and_flushes() -> None:
    eviction, pool, old, fresh = {"name": "lfu", "variant": "half_life", "half_life": 2}, Pool(4), (0, 0), (0, 1)
    count_request(eviction, pool, old, 0)  # 1
    count_request(eviction, pool, fresh, 1023)  # 2^511 sqrt 2
    begin_token(eviction, pool, 1024)  # both times 2^-512
    assert pool.freq == {old: 2.0**-512, fresh: math.sqrt(2) / 2}
    count_request(eviction, pool, fresh, 1024)  # the increment is 1 again
    assert pool.freq[fresh] == 1 + math.sqrt(2) / 2
    count_request(eviction, pool, (0, 2), 1024 + 2 * 24)  # 2^24
    begin_token(eviction, pool, 2048)
    assert pool.freq[old] == 0.0 and pool.freq[(0, 2)] == 2.0 ** (24 - 512)


def test_lfru() -> None:
    # t = 10. a: freq 3, last 1: 3/10; b: freq 1, last 8: 1/3; c: freq 2, last 4: 2/7 = .2857: the victim.
    pool = Pool(3, freq={(0, 0): 3.0, (0, 1): 1.0, (0, 2): 2.0}, last={(0, 0): 1, (0, 1): 8, (0, 2): 4})
    pool.entered = {(0, 0): 0, (0, 1): 1, (0, 2): 2}
    assert victim({"name": "lfru"}, pool, list(pool.entered), 10, None) == (0, 2)


@pytest.mark.parametrize(
    "chosen",
    [
        policy("substitute_all"),
        policy("substitute_all", admission={"name": "background", "beta": math.inf, "delay": 1}),
        policy("cumulative", miss_rule={"T1": 0.5, "T2": 0.4}),
        policy("max_rank", miss_rule={"J": 3, "M": 4}),
        policy("max_rank", miss_rule={"J": 1, "M": 9}),
        policy("cache_prior", miss_rule={"lambda": 0.1, "J": 1}, weights={"name": "inherit"}),
        policy("first_choice", eviction={"name": "opt"}),
        policy("first_choice", admission={"name": "background", "beta": 1.0, "delay": 0}),
        policy("first_choice", upload_cap=0),
    ],
)
def test_refusals(chosen: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="refused"):
        run([ranked(6, 0)], chosen, 2, 3)


def test_refusals_that_depend_on_the_model() -> None:
    bias = [[0.0] * 6]
    with pytest.raises(ValueError, match="refused"):
        run([ranked(6, 0)], policy("score_margin", miss_rule={"alpha": 0.1}), 2, 3, bias=bias)
    with pytest.raises(ValueError, match="refused"):
        run([ranked(6, 0)], policy("cache_prior", miss_rule={"lambda": 0.1, "J": 1}), 2, 3, bias=bias)
    with pytest.raises(ValueError, match="refused"):
        run([ranked(6, 0)], policy(), 2, 1)
