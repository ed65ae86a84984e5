"""Victims worked out by hand: K = 1 and C = 2 unless said otherwise, cold start, every miss fetched."""

from __future__ import annotations

import numpy as np
import pytest
from core_helpers import logits_of, meta, policy, run, totals, victims

from expertmiss import _core


def victims_of(stream: list[int], eviction: object, capacity: int = 2, **changes: object) -> list[int]:
    chosen = policy(eviction=eviction, **changes)
    return victims(run(logits_of([[expert] for expert in stream], 6), meta(6, 1), chosen, capacity))


def test_lru_evicts_the_longest_unused() -> None:
    # 0 1 | 0 hit | 2 evicts 1 | 1 evicts 0 | 2 hit | 3 evicts 1
    assert victims_of([0, 1, 0, 2, 1, 2, 3], "lru") == [-1, -1, 1, 0, 1]


def test_fifo_ignores_hits() -> None:
    # 0 1 | 0 hit | 2 evicts 0 | 1 hit | 0 evicts 1
    assert victims_of([0, 1, 0, 2, 1, 0], "fifo") == [-1, -1, 0, 1]


def test_lfu_lifetime_remembers_evicted_counts() -> None:
    # 0 0 1 | 2 evicts 1 (2 against 1) | 1 (count 1, again 2) evicts 2 | 2 (now 2): 0 and 1 both count 2, 0 is older
    assert victims_of([0, 0, 1, 2, 1, 2], {"name": "lfu", "variant": "lifetime"}) == [-1, -1, 1, 2, 0]


def test_lfu_in_cache_forgets_them() -> None:
    # ... | 1 evicts 2 | 2: 0 counts 2, 1 counts 1 since it entered
    assert victims_of([0, 0, 1, 2, 1, 2], {"name": "lfu", "variant": "in_cache"}) == [-1, -1, 1, 2, 1]


def test_lfu_half_life_prefers_recent_requests() -> None:
    # h = 1: request at t adds 2^t. 0 0 0 counts 1 + 2 + 4 = 7, 1 counts 8: 2 evicts 0, where lifetime evicts 1.
    stream = [0, 0, 0, 1, 2]
    assert victims_of(stream, {"name": "lfu", "variant": "half_life", "half_life": 1}) == [-1, -1, 0]
    assert victims_of(stream, {"name": "lfu", "variant": "lifetime"}) == [-1, -1, 1]


def test_lfu_half_life_breaks_an_exact_tie_by_last() -> None:
    # h = 2: T = 1, sqrt 2. 0 at t = 0 and 2 counts 1 + 2 = 3; 1 at t = 1 and 3 counts sqrt 2 + 2 sqrt 2 > 3.
    assert victims_of([0, 1, 0, 1, 2], {"name": "lfu", "variant": "half_life", "half_life": 2}) == [-1, -1, 0]


def test_half_life_counts_survive_rescaling() -> None:
    # h = 1 rescales every 512 tokens. Expert 0 fills 1,100 tokens; 1 came last before: 2 must evict 0 only if it is lighter.
    stream = [0] * 1100 + [1, 2]
    assert victims_of(stream, {"name": "lfu", "variant": "half_life", "half_life": 1}) == [-1, -1, 0]
    # counts of both lie below 2^-1000 of the increment after 2,100 tokens of 2 alone: both 0, so the older one leaves
    stream = [1, 0, 0, *[2] * 2100, 3]
    assert victims_of(stream, {"name": "lfu", "variant": "half_life", "half_life": 1}, capacity=3) == [-1, -1, -1, 1]


def test_lfru_divides_frequency_by_age() -> None:
    # before t = 5: 0 requested at 0, 1, 2 (3 / (5 - 2 + 1) = .75), 1 at 3, 4 (2 / 2 = 1): 2 evicts 0, where in_cache lfu evicts 1
    assert victims_of([0, 0, 0, 1, 1, 2], "lfru") == [-1, -1, 0]
    assert victims_of([0, 0, 0, 1, 1, 2], {"name": "lfu", "variant": "in_cache"}) == [-1, -1, 1]


def test_opt_evicts_the_farthest_next_use() -> None:
    # 0 1 | 2: 0 comes at 3, 1 at 5: evicts 1 | 0 hit | 2 hit | 1: neither comes again, 0 was used first
    assert victims_of([0, 1, 2, 0, 2, 1], "opt") == [-1, -1, 1, 0]


def test_opt_sees_no_further_than_the_next_reset() -> None:
    z = logits_of([[0], [1], [2], [1]], 6)
    one = run(z, meta(6, 1), policy(eviction="opt"), 2, document=[0, 0, 0, 0])
    two = run(z, meta(6, 1), policy(eviction="opt"), 2, document=[0, 0, 0, 1])
    assert victims(one) == [-1, -1, 0]  # 1 comes again
    assert victims(two) == [-1, -1, 0, -1]  # nothing comes again: the oldest leaves; then a cold start
    carried = run(z, meta(6, 1), policy(eviction="opt", state="carry"), 2, document=[0, 0, 0, 1])
    assert victims(carried) == [-1, -1, 0]


def test_ties_of_last_go_to_the_first_entered() -> None:
    counts = np.array([[5, 1, 4, 3, 0, 0]])
    # warm C = 3: counts rising 3 (3), 2 (4), 0 (5); none requested yet, so they leave in that order
    z = logits_of([[1], [4], [5]], 6)
    result = run(z, meta(6, 1), policy(initial="warm"), 3, counts=counts)
    assert result["initial_order"].tolist() == [[0, 3], [0, 2], [0, 0]]
    assert victims(result) == [3, 2, 0]


def test_equal_counts_at_a_warm_start_keep_the_lower_id() -> None:
    order = _core.initial_order(meta(6, 1), policy(initial="warm"), 2, np.array([[1, 7, 7, 7, 0, 0]]))
    assert order.tolist() == [[0, 2], [0, 1]]  # id falling among equals, the last two inserted


def test_a_fetch_never_evicts_what_the_step_needs() -> None:
    # C = K = 2. Residents 0 (older) and 1; the step asks 0 and 2: 0 is the LRU victim but shielded, so 1 leaves.
    z = logits_of([[0, 1], [0, 2]], 6)
    shielded = run(z, meta(6, 2), policy(), 2)
    assert victims(shielded) == [-1, -1, 1]
    defective = run(z, meta(6, 2), policy(), 2, mutant="no_shield", check=False)
    assert victims(defective) == [-1, -1, 0]


@pytest.mark.parametrize("eviction", ["lru", "fifo", {"name": "lfu", "variant": "lifetime"}, "lfru", "opt"])
def test_a_global_pool_evicts_across_layers(eviction: object) -> None:
    # two layers, C = 1 each: one pool of two; layer 0 asks 0 then 1, layer 1 always 2
    z = np.stack([logits_of([[0], [1]], 4), logits_of([[2], [2]], 4)])
    result = run(z, meta(4, 1, layers=2), policy(eviction=eviction, scope="global"), 1)
    calls = result["log"]["calls"]
    assert calls["layer"].tolist() == [0, 1, 0, 1]
    evicted = calls["victim"].tolist()
    # at token 1 expert 1 of layer 0 needs room: (0, 0) was used before (1, 2) in the same token and entered first
    assert evicted == [-1, -1, 0, -1]
    assert totals(result)["hits"] == 1


def test_global_victims_are_keys() -> None:
    # both layers keep asking new experts, so layer 1's expert is evicted for layer 0: key = layer * E + expert
    z = np.stack([logits_of([[0], [0], [1]], 4), logits_of([[2], [3], [3]], 4)])
    result = run(z, meta(4, 1, layers=2), policy(scope="global"), 1)
    fetches = result["log"]["calls"]["victim"].tolist()
    # t0: 0, (1,2) fill; t1: 0 hit, (1,3) evicts (1,2) = 6; t2: 1 evicts: (0,0) last 1, (1,3) last 1, (0,0) entered first
    assert fetches == [-1, -1, -1, 6, 0, -1]
    assert result["meters"]["evictions"].tolist() == [[1, 1]]
