"""Background admission, the queue and landings, worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from core_helpers import DROP, FETCH, HIT, SUBSTITUTE, logits_of, meta, policy, run, totals

# E = 6, K = 2, C = 2, residents 4 and 5 (5 most requested); weights .7 and .3
COUNTS = np.array([[0, 0, 0, 0, 1, 2]])


def run_steps(steps: list[list[int]], rule: str, admission: Any, weights: tuple[float, float] = (0.7, 0.3), **changes: Any) -> Any:
    z = logits_of(steps, 6, weights)
    return run(z, meta(6, 2), policy(rule, admission=admission, initial="warm", **changes), 2, counts=COUNTS)


def landings_of(result: Any) -> list[tuple[int, int, int]]:
    rows = result["log"]["landings"]
    return list(zip(rows["t"].tolist(), rows["expert"].tolist(), rows["victim"].tolist(), strict=True))


def verdicts_of(result: Any) -> list[int]:
    return result["log"]["calls"]["verdict"].tolist()


def test_every_miss_lands_at_the_next_token() -> None:
    result = run_steps([[0, 1], [0, 1], [0, 1]], "substitute_all", "every_miss")
    assert landings_of(result) == [(1, 0, 4), (1, 1, 5)]
    assert verdicts_of(result) == [SUBSTITUTE, SUBSTITUTE, HIT, HIT, HIT, HIT]


def test_background_accumulates_mass_up_to_beta() -> None:
    # 0 carries .3 (rank 1) each token: .3, .6 >= .5 at t = 1, due t + delay = 3
    result = run_steps([[5, 0]] * 5, "substitute_all", {"name": "background", "beta": 0.5, "delay": 2})
    assert landings_of(result) == [(3, 0, 4)]
    # tokens 0 to 2 substitute; the token in the queue does not accumulate; from 3 on a hit
    assert verdicts_of(result)[1::2] == [SUBSTITUTE, SUBSTITUTE, SUBSTITUTE, HIT, HIT]


def test_a_fetch_clears_mass_and_queue() -> None:
    # 0: .3 at t = 0, fetched as first choice at t = 1 (A = 0), evicted at t = 3, .3 at t = 4: no admission before .6
    steps = [[5, 0], [0, 5], [1, 5], [2, 5], [5, 0], [5, 0]]
    background = {"name": "background", "beta": 0.5, "delay": 1}
    assert landings_of(run_steps(steps, "first_choice", background)) == []
    z = logits_of(steps, 6, (0.7, 0.3))
    stale = run(
        z, meta(6, 2), policy("first_choice", admission=background, initial="warm"), 2, counts=COUNTS, mutant="stale_mass", check=False
    )
    assert landings_of(stale) == [(5, 0, 2)]  # the seeded defect counts the mass from before the fetch
    # a queued expert that is fetched meanwhile does not land
    result = run_steps([[5, 0], [0, 5], [5, 1], [5, 1]], "first_choice", {"name": "background", "beta": 0.1, "delay": 3})
    assert landings_of(result) == []


def test_dropped_and_fallback_calls_do_not_accumulate() -> None:
    result = run_steps([[5, 0]] * 4, "cumulative", {"name": "background", "beta": 0.1, "delay": 1}, T1=0.0, T2=0.5)
    assert verdicts_of(result)[1::2] == [DROP] * 4 and landings_of(result) == []


def test_the_upload_cap_makes_entries_wait() -> None:
    result = run_steps([[0, 1], [2, 3], [4, 5], [4, 5]], "substitute_all", "every_miss", upload_cap=1)
    # t1 lands 0 (evicts 4, the older), 1 waits; t2 lands 1 (0 was not requested since t0 and entered after 5: 5 leaves); ...
    assert [(t, expert) for t, expert, _ in landings_of(result)] == [(1, 0), (2, 1), (3, 2)]


def test_a_landing_does_not_evict_what_has_just_landed() -> None:
    result = run_steps([[0, 1], [2, 3]], "substitute_all", "every_miss")
    assert landings_of(result) == [(1, 0, 4), (1, 1, 5)]


def test_late_landing_mutant_is_one_token_late() -> None:
    z = logits_of([[0, 1]] * 3, 6, (0.7, 0.3))
    chosen = policy("substitute_all", admission="every_miss", initial="warm")
    late = run(z, meta(6, 2), chosen, 2, counts=COUNTS, mutant="late_landing", check=False)
    assert landings_of(late) == [(2, 0, 4), (2, 1, 5)]


def test_landing_leaves_last_alone() -> None:
    # 0 lands at t = 1 with last = 0; at t = 1 a fetch of 1 needs room: R = {5 (last 0), 0 (last 0)}; 5 entered first and is not needed
    result = run_steps([[5, 0], [1, 2]], "first_choice", "every_miss")
    calls = result["log"]["calls"]
    assert calls["verdict"].tolist()[:3] == [HIT, SUBSTITUTE, FETCH]
    assert landings_of(result) == [(1, 0, 4)]
    assert calls["victim"].tolist()[2] == 5


def test_update_by_requests_touches_substituted_experts() -> None:
    # t0: 0 asked and substituted by 4. requests: last(4) stays -1, so 4 leaves at t1; executed: 4 and 5 both ran at t0, 4 entered first.
    steps = [[5, 0], [1, 2]]
    assert run_steps(steps, "first_choice", "fetched_only")["log"]["calls"]["victim"].tolist()[2] == 4
    steps = [[4, 0], [1, 2]]  # requests: 5 was never asked (last -1) and leaves; executed: 5 stood in for 0, so 4 entered first and leaves
    assert run_steps(steps, "first_choice", "fetched_only")["log"]["calls"]["victim"].tolist()[2] == 5
    assert run_steps(steps, "first_choice", "fetched_only", update="executed")["log"]["calls"]["victim"].tolist()[2] == 4


def test_miss_classes_wasted_and_reswaps() -> None:
    # C = 2, every miss fetched, K = 1: 0 1 fill (compulsory); 2 evicts 0 unhit (wasted); 0 again: collision, evicts 1 unhit;
    # 0 hit; 1: collision, evicts 2; 2: collision (2 had no hit), evicts 0, which had a hit; 0: capacity
    result = run(logits_of([[0], [1], [2], [0], [0], [1], [2], [0]], 6), meta(6, 1), policy(), 2)
    meters = totals(result)
    assert (meters["compulsory"], meters["collision"], meters["capacity"]) == (3, 3, 1)
    assert (meters["evictions"], meters["wasted"]) == (5, 4)
    swaps = run_steps([[5, 0]] + [[5, 4]] * 15 + [[5, 0]] + [[5, 4]] * 16 + [[5, 0]], "first_choice", "fetched_only")
    assert totals(swaps)["reswaps"] == 1  # 16 tokens apart counts, 17 does not


def test_warm_residents_are_no_compulsory_misses() -> None:
    result = run_steps([[0, 1], [4, 5]], "fetch_all", "fetched_only")
    meters = totals(result)
    assert (meters["compulsory"], meters["collision"], meters["capacity"]) == (2, 2, 0)


def test_documents_start_over_and_carry_does_not() -> None:
    steps = [[0, 1], [0, 1]]
    z = logits_of(steps, 6, (0.7, 0.3))
    reset = run(z, meta(6, 2), policy(initial="cold"), 2, document=[7, 8])
    assert reset["documents"].tolist() == [7, 8]
    assert reset["meters"]["fetches"].tolist() == [[2], [2]] and reset["log"]["calls"]["t"].tolist() == [0, 0, 0, 0]
    carry = run(z, meta(6, 2), policy(initial="cold", state="carry"), 2, document=[7, 8])
    assert carry["meters"]["hits"].tolist() == [[0], [2]] and carry["log"]["calls"]["t"].tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("fallback", ["fetch", "drop"])
def test_global_landing_comes_once_a_token_before_layer_0(fallback: str) -> None:
    z = np.stack([logits_of([[0], [0]], 4), logits_of([[2], [2]], 4)])
    counts = np.array([[0, 9, 0, 0], [0, 0, 0, 9]])
    chosen = policy("substitute_all", admission="every_miss", scope="global", initial="warm", fallback=fallback)
    result = run(z, meta(4, 1, layers=2), chosen, 1, counts=counts)
    landed = result["log"]["landings"]
    assert landed["layer"].tolist() == [0, 1] and landed["t"].tolist() == [1, 1] and landed["victim"].tolist() == [7, 1]
    assert result["log"]["calls"]["verdict"].tolist() == [SUBSTITUTE, SUBSTITUTE, HIT, HIT]
