"""The closed loop: it is the simulator's step, and its state can be put aside and taken up again."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from core_helpers import counts_of, meta, policy, random_logits, run

from expertmiss._core import Stepper
from expertmiss.policies import initial_digest

EXPERTS, TOP_K, LAYERS, TOKENS, CAPACITY = 16, 3, 2, 60, 5
Z = random_logits(2, LAYERS, TOKENS, EXPERTS)
COUNTS = counts_of(Z, TOP_K)
ABOUT = meta(EXPERTS, TOP_K, LAYERS)
DOCUMENT = np.repeat([5, 6], TOKENS // 2).astype(np.int32)
POLICIES = {
    "background": policy("threshold", tau=0.4, initial="warm", eviction={"name": "lfu", "variant": "half_life", "half_life": 3}, admission={"name": "background", "beta": 0.3, "delay": 3}, upload_cap=1),
    "cache_prior": policy("cache_prior", initial="warm", eviction="lfru", **{"lambda": 0.2, "J": 1}),
    "random": policy("first_choice", initial="random", eviction="fifo", admission="every_miss", chooser={"name": "random"}),
    "global": policy("first_choice", initial="warm", scope="global", admission="every_miss", chooser={"name": "matched_random", "margin": 1.0, "seed": 4}),
    "carry": policy("threshold", tau=0.4, initial="cold", state="carry"),
}  # fmt: skip


def stepper_of(chosen: dict[str, Any], **options: Any) -> Stepper:
    return Stepper(ABOUT, chosen, CAPACITY, COUNTS, 9, check=True, **options)


def walk(stepper: Stepper, tokens: range) -> None:
    for token in tokens:
        if token == 0 or DOCUMENT[token] != DOCUMENT[token - 1]:
            stepper.reset(int(DOCUMENT[token]))
        for layer in range(LAYERS):
            stepper.step(layer, Z[layer, token])


@pytest.mark.parametrize("name", POLICIES)
def test_stepping_is_simulating(name: str) -> None:
    stepper = stepper_of(POLICIES[name], log=True)
    walk(stepper, range(TOKENS))
    log = stepper.take_log()
    result = run(Z, ABOUT, POLICIES[name], CAPACITY, document=DOCUMENT, counts=COUNTS, seed=9)
    for kind in ("calls", "landings"):
        for column, values in result["log"][kind].items():
            assert np.array_equal(values, log[kind][column]), (kind, column)
    for meter, values in stepper.meters().items():
        assert np.array_equal(values, result["meters"][meter][-1]), meter
    assert np.array_equal(stepper.initial_order, result["initial_order"])
    assert len(stepper.take_log()["calls"]["t"]) == 0


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "global"])
def test_layer_by_layer_is_token_by_token(name: str) -> None:
    one, other = stepper_of(POLICIES[name]), stepper_of(POLICIES[name])
    one.reset(5)
    other.reset(5)
    whole = [one.steps(layer, Z[layer, :30]) for layer in range(LAYERS)]
    for token in range(30):
        for layer in range(LAYERS):
            ids, weights = other.step(layer, Z[layer, token].astype(np.float64))
            many_ids, many_weights, count = whole[layer]
            assert np.array_equal(ids, many_ids[token, : count[token]]) and np.array_equal(weights, many_weights[token, : count[token]])
    assert one.snapshot() == other.snapshot()


@pytest.mark.parametrize("name", POLICIES)
def test_a_restored_snapshot_goes_on_the_same(name: str) -> None:
    first = stepper_of(POLICIES[name])
    walk(first, range(20))
    saved = first.snapshot()
    walk(first, range(20, 45))
    second = stepper_of(POLICIES[name])
    second.restore(saved)
    assert second.snapshot() == saved
    walk(second, range(20, 45))
    assert second.snapshot() == first.snapshot() != saved
    for layer in range(LAYERS):
        assert np.array_equal(first.residents(layer), second.residents(layer))


def test_bad_snapshots_are_refused_and_change_nothing() -> None:
    stepper = stepper_of(POLICIES["background"])
    walk(stepper, range(10))
    saved = stepper.snapshot()
    other = Stepper(ABOUT, POLICIES["background"], CAPACITY + 1, COUNTS)
    damaged = bytearray(saved)
    damaged[-1] ^= 0xFF
    for bad in (b"", b"something else", saved[:-3], saved + b"x", other.snapshot()):
        with pytest.raises(ValueError, match="snapshot"):
            stepper.restore(bad)
    assert stepper.snapshot() == saved


def test_a_damaged_snapshot_is_refused_or_harmless() -> None:
    stepper = stepper_of(POLICIES["background"])
    walk(stepper, range(15))
    saved = stepper.snapshot()
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(300):
        damaged = bytearray(saved)
        damaged[rng.integers(len(saved))] ^= 1 << rng.integers(8)
        try:
            stepper.restore(bytes(damaged))
        except ValueError:
            refused += 1
            continue
        for layer in range(LAYERS):
            ids, _ = stepper.step(layer, Z[layer, 15])
            assert set(ids.tolist()) <= set(stepper.residents(layer).tolist())
    assert refused > 0


def test_reset_returns_to_the_initial_state() -> None:
    stepper = stepper_of(POLICIES["background"])
    stepper.reset(5)
    start = stepper.snapshot()
    walk(stepper, range(25))
    stepper.reset(5)
    assert stepper.snapshot() == start
    assert all(values.sum() == 0 for values in stepper.meters().values())


def test_the_initial_digest_is_over_little_endian_pairs() -> None:
    stepper = Stepper(meta(300, 1), policy(initial="warm"), 2, np.arange(300)[None])
    assert stepper.initial_order.tolist() == [[0, 298], [0, 299]]
    # bytes 00 00 2a 01 00 00 2b 01
    assert initial_digest(stepper.initial_order) == hashlib.sha256(bytes.fromhex("00002a0100002b01")).hexdigest()


def test_global_scope_wants_layers_in_order() -> None:
    stepper = stepper_of(POLICIES["global"])
    stepper.reset(0)
    with pytest.raises(ValueError, match="expected layer 0, got 1"):
        stepper.step(1, Z[1, 0])
    stepper.step(0, Z[0, 0])
    with pytest.raises(ValueError, match="expected layer 1, got 0"):
        stepper.step(0, Z[0, 0])
    with pytest.raises(ValueError, match="scope global"):
        stepper.steps(0, Z[0])


def test_bad_calls_are_refused() -> None:
    stepper = stepper_of(POLICIES["background"])
    with pytest.raises(ValueError, match="layer 2 is not between 0 and 1"):
        stepper.step(2, Z[0, 0])
    with pytest.raises(ValueError, match="E = 16 columns, not 15"):
        stepper.step(0, np.ascontiguousarray(Z[0, 0, :15]))
    broken = Z[0, 0].copy()
    broken[7] = np.nan
    with pytest.raises(ValueError, match="expert 7 is not finite"):
        stepper.step(0, broken)
    with pytest.raises(ValueError, match="log=True"):
        stepper.take_log()
    with pytest.raises(ValueError, match="eviction opt"):
        Stepper(ABOUT, policy(eviction="opt"), CAPACITY)


def test_explain_tells_the_whole_step() -> None:
    chosen = POLICIES["background"]
    stepper, silent = stepper_of(chosen), stepper_of(chosen)
    for one in (stepper, silent):
        walk(one, range(12))
    before = stepper.residents(1)
    told = stepper.explain(1, Z[1, 12])
    ids, weights = silent.step(1, Z[1, 12])
    assert stepper.snapshot() == silent.snapshot()
    assert np.array_equal(told["executed"], ids) and np.array_equal(told["weights"], weights)
    assert told["t"] == 12 and told["layer"] == 1 and told["document"] == 5
    assert told["order"].tolist() == sorted(range(EXPERTS), key=lambda expert: (-Z[1, 12, expert], expert))
    assert told["requested"].tolist() == told["order"][:TOP_K].tolist() and told["ranks"].tolist() == [0, 1, 2]
    assert np.array_equal(told["residents_before"], before) and np.array_equal(told["residents_after"], stepper.residents(1))
    assert told["w"][:TOP_K].sum() == pytest.approx(1.0) and told["p"].sum() == pytest.approx(1.0)
    assert np.array_equal(told["s"], told["p"])
    assert len(told["verdicts"]) == TOP_K and len(told["A"]) == EXPERTS
    for queue_layer, expert, due in told["queue"]:
        assert queue_layer == 1 and expert not in told["residents_after"] and due > 12 - TOP_K


def test_scale_is_applied_last() -> None:
    plain, scaled = Stepper(ABOUT, policy(), CAPACITY), Stepper({**ABOUT, "scale": 2.5}, policy(), CAPACITY)
    for layer in range(LAYERS):
        one, other = plain.step(layer, Z[layer, 0]), scaled.step(layer, Z[layer, 0])
        assert np.array_equal(one[1] * 2.5, other[1])


def admitting(delay: int, upload_cap: int | None = None) -> dict[str, Any]:
    """Many admissions."""
    admission = {"name": "background", "beta": 0.1, "delay": delay}
    return policy("first_choice", initial="warm", admission=admission, upload_cap=upload_cap)


def test_arrivals_at_their_due_token_are_scheduled_landings() -> None:
    """Replay: a log's landings, given step by step, lead to the same decisions, also where the due tokens say otherwise."""
    scheduled, replayed = (stepper_of(admitting(delay), log=True) for delay in (3, 9))
    walk(scheduled, range(TOKENS // 2))
    log = scheduled.take_log()
    landings = log["landings"]
    assert len(landings["t"]) > 10
    replayed.reset(5)
    for token in range(TOKENS // 2):
        for layer in range(LAYERS):
            now = (landings["t"] == token) & (landings["layer"] == layer)
            replayed.step(layer, Z[layer, token], landings["expert"][now].tolist())
    again = replayed.take_log()
    for kind in ("calls", "landings"):
        for column, values in log[kind].items():
            assert np.array_equal(values, again[kind][column]), (kind, column)


def test_no_more_arrive_at_once_than_fit() -> None:
    """Where nothing lands for long, more experts wait than the pool holds; what lands must not evict what landed with it."""
    admission = {"name": "background", "beta": 0.0, "delay": TOKENS}
    stepper = stepper_of(policy("substitute_all", initial="warm", admission=admission))
    stepper.reset(5)
    z = np.random.default_rng(0).normal(size=(TOKENS, EXPERTS)).astype(np.float32)
    queue: list[int] = []
    token = 0
    while len(queue) <= CAPACITY:
        queue = [expert for _, expert, _ in stepper.explain(0, z[token])["queue"]]
        token += 1
    with pytest.raises(ValueError, match=f"{CAPACITY + 1} experts cannot land at once, at most {CAPACITY} may"):
        stepper.step(0, z[token], queue[: CAPACITY + 1])
    before = stepper.meters()["landings"][0]
    stepper.step(0, z[token], queue[:CAPACITY])
    assert stepper.meters()["landings"][0] == before + CAPACITY


def test_arrivals_that_cannot_be_are_refused_and_change_nothing() -> None:
    stepper = stepper_of(admitting(9, upload_cap=1))
    stepper.reset(5)
    queue: list[int] = []
    token = 0
    while len(queue) < 2:
        queue = [expert for _, expert, _ in stepper.explain(0, Z[0, token])["queue"]]
        token += 1
    saved = stepper.snapshot()
    absent = next(expert for expert in range(EXPERTS) if expert not in queue)
    for arrived, sentence in (
        ([absent], f"expert {absent} cannot land, it is not in the queue"), ([-1], "expert -1 cannot land"), ([EXPERTS], "cannot land"),
        (queue[:2], "2 experts cannot land at once, at most 1 may"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=sentence):
            stepper.step(0, Z[0, token], arrived)
    assert stepper.snapshot() == saved
    uncapped = stepper_of(admitting(9))
    uncapped.restore(saved)
    with pytest.raises(ValueError, match="cannot land, it is not in the queue"):
        uncapped.step(0, Z[0, token], queue[:1] * 2)
    uncapped.step(0, Z[0, token], queue[1:2])
    assert queue[1] in uncapped.residents(0)
    shared = stepper_of(POLICIES["global"])
    with pytest.raises(ValueError, match="scope global lands admissions at their due token"):
        shared.step(0, Z[0, 0], [])
