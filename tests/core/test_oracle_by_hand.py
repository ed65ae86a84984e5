"""The oracle's steps and rules on cases small enough to be worked out on paper; the working stands in the comments.

Unless said otherwise: one layer, softmax, warm start with counts that rise with the id (see `oracle.hand`).
"""

from __future__ import annotations

import math

import pytest
from oracle.defaults import policy
from oracle.hand import ranked, rows, run
from oracle.run import simulate
from oracle.scores import Model, View
from oracle.step import VERDICTS

HIT, FETCH, SUB, DROP, FALL_FETCH, FALL_DROP = (
    VERDICTS[n] for n in ("hit", "fetch", "substitute", "drop", "fallback_fetch", "fallback_drop")
)


def test_ties_go_to_the_lower_id_and_weights_are_a_softmax_over_s() -> None:
    # z 2 at ids 1 and 3, z 1 at id 0: S = 1, 3, 0; w = 1/(2+1/e), the same, (1/e)/(2+1/e).
    view = View(Model(1, 4, 3), 0, [1.0, 2.0, 0.0, 2.0], math.exp)
    assert view.S == [1, 3, 0]
    assert view.w[1] == view.w[3] == pytest.approx(1 / (2 + math.exp(-1)))
    assert view.w[0] == pytest.approx(math.exp(-1) / (2 + math.exp(-1)))
    assert sum(view.p) == pytest.approx(1)


def test_bias_orders_by_s_but_does_not_enter_w() -> None:
    # p = softmax(0, 0) = .5 each; s = .5, .7: rank order 1, 0; w stays .5 each.
    view = View(Model(1, 2, 2, bias=[[0.0, 0.2]]), 0, [0.0, 0.0], math.exp)
    assert view.S == [1, 0] and view.w == {0: 0.5, 1: 0.5}


def test_groups_by_max_and_by_top2_sum() -> None:
    # sigmoid(0) = .5, sigmoid(1) = .731, sigmoid(-5) = .0067. Group 0 = {1, -5}: max .731, sum .738. Group 1 = {0, 0}: max .5, sum 1.
    z = [1.0, -5.0, 0.0, 0.0]
    groups = {"count": 2, "allowed": 1, "score": "max"}
    assert View(Model(1, 4, 2, "sigmoid", groups=groups), 0, z, math.exp).order == [0, 1]
    assert View(Model(1, 4, 2, "sigmoid", groups={**groups, "score": "top2_sum"}), 0, z, math.exp).order == [2, 3]
    # equal groups: the lower one
    assert View(Model(1, 4, 2, "sigmoid", groups=groups), 0, [0.0] * 4, math.exp).order == [0, 1]
    with pytest.raises(ValueError, match="allowed"):
        View(Model(1, 4, 3, "sigmoid", groups=groups), 0, z, math.exp)


def test_zero_sum_of_sigmoids_and_non_finite_logits_are_refused() -> None:
    with pytest.raises(ValueError, match="zero"):
        View(Model(1, 2, 1, "sigmoid"), 0, [-1e30, -1e30], lambda x: math.inf if x > 700 else math.exp(x))
    with pytest.raises(ValueError, match="finite"):
        View(Model(1, 2, 1), 0, [0.0, math.nan], math.exp)


def test_lru_by_hand() -> None:
    # E 4, K 1, C 2: R = {2, 3} (entered 0, 1; last -1).
    # t0 asks 0: miss, victim 2 (last tie, entered earlier). R = {3, 0}
    # t1 asks 3: hit. t2 asks 1: victim 0 (last 0 < 1). R = {3, 1}. t3 asks 0: victim 3 (last 1 < 2).
    result = run([ranked(4, 0), ranked(4, 3), ranked(4, 1), ranked(4, 0)], policy(), 1, 2)
    assert rows(result) == [(0, 0, FETCH, -1, 2), (1, 3, HIT, -1, None), (2, 1, FETCH, -1, 0), (3, 0, FETCH, -1, 3)]
    value = result.meters[0].value
    # misses: 0 never resident, 1 never resident, 0 again: was evicted without a hit = collision.
    assert (value["compulsory"][0], value["collision"][0], value["capacity"][0]) == (2, 1, 0)
    # evicted without a hit: 2 (warm), 0. Expert 3 had one.
    assert (value["evictions"][0], value["wasted"][0]) == (3, 2)


def test_fifo_and_opt_by_hand() -> None:
    # E 4, K 1, C 2, R = {2, 3}. FIFO: t0 asks 3 (hit), t1 asks 0: victim 2; t2 asks 1: victim 3 although just used at t0 by then oldest entry.
    tokens = [ranked(4, 3), ranked(4, 0), ranked(4, 1), ranked(4, 3)]
    assert rows(run(tokens, policy(eviction={"name": "fifo"}), 1, 2))[2:] == [(2, 1, FETCH, -1, 3), (3, 3, FETCH, -1, 0)]
    # OPT: t1 evicts 2 (never used again; 3 is, at t3), t2 evicts 0 (never used again), t3 hits.
    assert rows(run(tokens, policy(eviction={"name": "opt"}), 1, 2))[1:] == [
        (1, 0, FETCH, -1, 2),
        (2, 1, FETCH, -1, 0),
        (3, 3, HIT, -1, None),
    ]


def test_shield_keeps_a_later_hit_of_the_same_token() -> None:
    # E 4, K 2, C 2: R = {2, 3}, 2 entered first. S = 0, 2: 0 is a miss; without the shield the victim were 2. It is 3.
    assert rows(run([ranked(4, 0, 2)], policy(), 2, 2)) == [(0, 0, FETCH, -1, 3), (0, 2, HIT, -1, None)]


def test_first_choice_substitutes_after_all_fetches() -> None:
    # E 6, K 2, C 3: R = {3, 4, 5}. S = 0, 1; then rank order 3, 2, 4, 5.
    # 0 is fetched: victim 3 (entered first), so the best stand-in 3 is gone; 1 is answered by 4.
    z = ranked(6, 0, 1, 3)
    result = run([z], policy("first_choice"), 2, 3)
    assert rows(result) == [(0, 0, FETCH, -1, 3), (0, 1, SUB, 4, None)]
    # own weights: softmax over z = 0 and z = -14.
    weights = [call.executed_weight for call in result.calls]
    assert weights == pytest.approx([1 / (1 + math.exp(-14)), math.exp(-14) / (1 + math.exp(-14))])
    assert result.meters[0].value["mass"][0] == pytest.approx(math.exp(-1) / (1 + math.exp(-1)))
    assert result.meters[0].value["agreement"][0] == 0.5


def test_weight_conventions() -> None:
    # S = 0, 1 with z = 0, -1 and 1 answered by 4 at z = -14, as above.
    z = ranked(6, 0, 1, 3)
    e1, e14 = math.exp(-1), math.exp(-14)
    scaled = run([z], policy("first_choice", weights={"name": "scaled", "a": 0.5}), 2, 3)
    assert [c.executed_weight for c in scaled.calls] == pytest.approx([1 / (1 + e14 / 2), e14 / 2 / (1 + e14 / 2)])
    inherit = run([z], policy("first_choice", weights={"name": "inherit"}), 2, 3)
    assert [c.executed_weight for c in inherit.calls] == pytest.approx([1 / (1 + e1), e1 / (1 + e1)])
    # a model that does not normalise executes p itself
    p = [math.exp(value) / sum(map(math.exp, z)) for value in z]
    own = run([z], policy("first_choice"), 2, 3, normalise=False)
    assert [c.executed_weight for c in own.calls] == pytest.approx([p[0], p[4]])
    own = run([z], policy("first_choice", weights={"name": "inherit"}), 2, 3, normalise=False)
    assert [c.executed_weight for c in own.calls] == pytest.approx([p[0], p[1]])


def test_threshold_compares_w_not_p() -> None:
    # S = 0, 1 with equal z: w = .5 each, fetched at tau = .5 exactly; p < .5, so a rule on p would substitute.
    z = [0.0, 0.0, -1.0, -1.0, -1.0]
    half = run([z], policy("threshold", miss_rule={"tau": 0.5}), 2, 3)
    assert [row[2] for row in rows(half)] == [FETCH, FETCH]
    more = run([z], policy("threshold", miss_rule={"tau": 0.51}), 2, 3)
    assert [row[2] for row in rows(more)] == [FETCH, SUB]


def test_cumulative_counts_hits_before() -> None:
    # K 4 with equal z, w = .25 each; R = {3..7} of E 8: rank 3 = expert 3 is a hit.
    # sums before: 0, .25, .5, .75. T1 = .25: fetch 0, 1; T2 = .5: 2 substituted.
    z = [0.0] * 4 + [-1.0, -2.0, -3.0, -4.0]
    result = run([z], policy("cumulative", miss_rule={"T1": 0.25, "T2": 0.5}), 4, 5)
    assert [row[2] for row in rows(result)] == [FETCH, FETCH, SUB, HIT]
    result = run([z], policy("cumulative", miss_rule={"T1": 0.0, "T2": 0.3}), 4, 5)
    assert [row[2] for row in rows(result)] == [FETCH, SUB, DROP, HIT]


def test_drop_cold_runs_without_anything() -> None:
    # w = .5 each, K = 2: F/K = .5 fetches both at F = 1; at F = 1.1 rank 1 is dropped.
    z = [0.0, 0.0, -1.0, -1.0]
    assert [row[2] for row in rows(run([z], policy("drop_cold", miss_rule={"F": 1.0}), 2, 2))] == [FETCH, FETCH]
    dropped = run([z], policy("drop_cold", miss_rule={"F": 1.1}), 2, 2)
    assert [row[2] for row in rows(dropped)] == [FETCH, DROP]
    assert [c.executed_weight for c in dropped.calls] == [1.0, 0.0]
    kept = run([z], policy("drop_cold", miss_rule={"F": 1.1}, weights={"name": "inherit"}), 2, 2)
    assert [c.executed_weight for c in kept.calls] == [0.5, 0.0]


def test_score_margin() -> None:
    # K 2; rank order 0 (z = 0), 1 (-1), 2 (-1.1), 3 (-1.2), 4 (-4). s_(K+1) is expert 2's. Ratios: e^1.1 = 3, e^.1 = 1.105, 1, e^-.1 = .905, ...
    z = [0.0, -1.0, -1.1, -1.2, -4.0]
    # alpha .2: 0 fetched (3 >= 1.2); 1 is not; allowed stand-ins have ratio in (.8, 1]: 2 and 3. R = {3, 4}: 0 evicts 3 (entered first).
    # Left: 4, ratio .055: none. Fallback, always fetch: 4 goes.
    result = run([z], policy("score_margin", miss_rule={"alpha": 0.2}, fallback="drop"), 2, 2)
    assert rows(result) == [(0, 0, FETCH, -1, 3), (0, 1, FALL_FETCH, -1, 4)]
    # C 3: R = {2, 3, 4}: 0 evicts 2, 1 is answered by 3.
    assert rows(run([z], policy("score_margin", miss_rule={"alpha": 0.2}), 2, 3)) == [(0, 0, FETCH, -1, 2), (0, 1, SUB, 3, None)]
    # alpha .05: 1.105 >= 1.05, both fetched.
    assert [r[2] for r in rows(run([z], policy("score_margin", miss_rule={"alpha": 0.05}), 2, 3))] == [FETCH, FETCH]
    # K = E: no (K+1)-th expert.
    full = run([[0.0, 0.0]], policy("score_margin", miss_rule={"alpha": 9.0}, initial="cold"), 2, 2)
    assert [r[2] for r in rows(full)] == [FETCH, FETCH]


def test_cache_prior_uses_the_running_mean() -> None:
    # E 4, K 1, C 2, R = {2, 3}, J 0, lambda .5. t0: z = 0, -1, -2, -9: Delta 9, bonus 4.5: raised 0, -1, 2.5, -4.5: X = {2}, a hit; S = {0}.
    # t1: z = 0, -1, -1, -1: Delta (9 + 1)/2 = 5, bonus 2.5: 2 and 3 tie at 1.5, equal z, lower id: 2.
    # t2: z = 0, -8, -7, -9: Delta 19/3, bonus 3.17: raised 0, -8, -3.8, -5.8: X = S = {0}, fetched; victim 3 (2 was used).
    tokens = [[0.0, -1.0, -2.0, -9.0], [0.0, -1.0, -1.0, -1.0], [0.0, -8.0, -7.0, -9.0]]
    result = run(tokens, policy("cache_prior", miss_rule={"lambda": 0.5, "J": 0}), 1, 2)
    assert rows(result) == [(0, 2, HIT, -1, None), (1, 2, HIT, -1, None), (2, 0, FETCH, -1, 3)]
    assert [c.rank for c in result.calls] == [2, 2, 0]
    # the replaced calls carry their true w = 1 (K = 1) into m
    value = result.meters[0].value
    assert (value["mass"][0], value["substituted"][0], value["hits"][0]) == (2.0, 2, 2)
    # J = 1 raises rank 0 as well: nothing is replaced
    assert [c.rank for c in run(tokens, policy("cache_prior", miss_rule={"lambda": 0.5, "J": 1}), 1, 2).calls] == [0, 0, 0]


def test_max_rank() -> None:
    # E 6, K 3, C 3, R = {3, 4, 5}. Rank order 0, 1, 2, 4, 3, 5. J 1, M 5: 0; residents of rank < 5: 4, 3; full.
    z = ranked(6, 0, 1, 2, 4, 3)
    result = run([z], policy("max_rank", miss_rule={"J": 1, "M": 5}), 3, 3)
    assert [(c.rank, c.expert, c.verdict) for c in result.calls] == [(0, 0, FETCH), (3, 4, HIT), (4, 3, HIT)]
    # M 4: only 4 stands in; the next true rank fills up. Victims spare S and X: 0 evicts 3 (entered first), 1 evicts 5.
    result = run([z], policy("max_rank", miss_rule={"J": 1, "M": 4}), 3, 3)
    assert [(c.expert, c.victim) for c in result.calls] == [(0, (0, 3)), (1, (0, 5)), (4, None)]


def test_every_miss_lands_at_the_next_token_and_spares_what_landed() -> None:
    # E 6, K 2, C 2, R = {4, 5}. t0: S = 0, 1 substituted by 4, 5 in rank order. Both pushed, due 1.
    # t1 lands 0: victim by lru: last of 4, 5 is -1 (requests count, not executions): 4 (entered first); 1: victim 5, 0 just landed.
    result = run([ranked(6, 0, 1, 4, 5), ranked(6, 1, 0)], policy("substitute_all", admission={"name": "every_miss"}), 2, 2)
    assert rows(result) == [(0, 0, SUB, 4, None), (0, 1, SUB, 5, None), (1, 1, HIT, -1, None), (1, 0, HIT, -1, None)]
    assert [(x.t, x.key, x.victim) for x in result.landings] == [(1, (0, 0), (0, 4)), (1, (0, 1), (0, 5))]


def test_upload_cap_makes_the_rest_wait() -> None:
    chosen = policy("substitute_all", admission={"name": "every_miss"}, upload_cap=1)
    result = run([ranked(6, 0, 1, 4, 5), ranked(6, 4, 5), ranked(6, 4, 5)], chosen, 2, 2)
    # t1: only 0 lands, victim 4. 4 is then a miss (substituted by 0) and is queued after 1. t2: only 1 lands; 5's last is 1: victim 0.
    assert [(x.t, x.key, x.victim) for x in result.landings] == [(1, (0, 0), (0, 4)), (2, (0, 1), (0, 0))]
    # t2: R = {5, 1}; 4 waits still, is substituted by 1; already queued: not pushed again.
    assert rows(result)[4:] == [(2, 4, SUB, 1, None), (2, 5, HIT, -1, None)]


def test_background_accumulates_to_beta_and_delays() -> None:
    # K 2, equal z: w = .5. R = {2, 3} of E 4; 1 is substituted each token (rank 1), 0 fetched at t0.
    # A_1: t0 .5, t1 1.0 >= 1: pushed with due 1 + 2 = 3. t2: in Q, nothing. t3: lands, a hit.
    z = [0.0, 0.0, -1.0, -2.0]
    result = run([z] * 4, policy("first_choice", admission={"name": "background", "beta": 1.0, "delay": 2}), 2, 2)
    assert [c.verdict for c in result.calls if c.expert == 1] == [SUB, SUB, SUB, HIT]
    assert [(x.t, x.key, x.victim) for x in result.landings] == [(3, (0, 1), (0, 3))]


def test_a_fetch_clears_the_accumulated_mass_and_the_queue() -> None:
    # w = .5. 1 is substituted at t0 (A = .5), fetched as first choice at t1 (A = 0), then evicted and substituted at t3: A = .5 again, below 1.
    a, b = [0.0, 0.0, -1.0, -2.0], [-1.0, 0.0, 0.0, -2.0]
    chosen = policy("first_choice", admission={"name": "background", "beta": 1.0, "delay": 1})
    result = run([a, b, [0.0, -2.0, -1.5, 0.0], a, a], chosen, 2, 2)
    # t0: 0 fetched (victim 2), 1 by 3. t1: S = 1, 2: 1 fetched: R = {3, 0}, last -1, 0: victim 3; 2 by 0. t2: S = 0, 3: 0 hit; 3 by 1.
    # t3: S = 0, 1: both hits (1 is resident).
    assert [c.verdict for c in result.calls if c.t >= 3] == [HIT, HIT, HIT, HIT]
    assert result.landings == []


def test_fallback_in_a_cold_cache() -> None:
    # K 2, C 3, cold: t0 rank 0 fetched, rank 1 finds nobody: fallback. Not in m, not accumulated.
    z = ranked(6, 0, 1)
    fetched = run([z, z], policy("first_choice", initial="cold"), 2, 3)
    assert [c.verdict for c in fetched.calls] == [FETCH, FALL_FETCH, HIT, HIT]
    dropped = run([z, z], policy("first_choice", initial="cold", fallback="drop"), 2, 3)
    assert [c.verdict for c in dropped.calls] == [FETCH, FALL_DROP, HIT, FALL_DROP]
    assert dropped.meters[0].value["mass"][0] == 0.0
    assert [c.executed_weight for c in dropped.calls] == [1.0, 0.0, 1.0, 0.0]


def test_update_by_requests_or_by_execution() -> None:
    # K 1, C 2, R = {2, 3}. substitute_all: t0 asks 0, answered by 2. t1 lands 0: by requests victim 2; by execution last_2 = 0: victim 3.
    tokens = [ranked(4, 0, 2, 3), ranked(4, 0)]
    for update, gone in (("requests", 2), ("executed", 3)):
        result = run(tokens, policy("substitute_all", admission={"name": "every_miss"}, update=update), 1, 2)
        assert result.landings[0].victim == (0, gone)


def test_global_scope_shares_one_pool_and_lands_before_layer_0() -> None:
    # Two layers, E 4, K 1, C 1: one pool of 2. Counts: layer 0: 5 for id 3; layer 1: 9 for id 3. Order: (0,3), (1,3).
    model = Model(2, 4, 1)
    counts = [[0, 0, 0, 5], [0, 0, 0, 9]]
    # t0: layer 0 asks 0: fetch, victim (0,3) (entered first). layer 1 asks 3: hit. t1: layer 0 asks 1: victim (0,0): last 0 = last of (1,3), but
    # (1,3) entered before: (1,3) it is.
    z = [[ranked(4, 0), ranked(4, 3)], [ranked(4, 1), ranked(4, 2)]]
    result = simulate(z, [0, 0], model, policy(scope="global"), 1, math.exp, counts)
    assert [c.victim for c in result.calls] == [(0, 3), None, (1, 3), (0, 0)]
    chosen = policy("substitute_all", scope="global", admission={"name": "every_miss"})
    result = simulate(z, [0, 0], model, chosen, 1, math.exp, counts)
    # t0: (0,0) by 3; (1,3) hit. t1, before layer 0: (0,0) lands, victim (0,3) (last -1). Layer 0 asks 1: by 0. Layer 1 asks 2: by 3.
    assert [(x.t, x.key, x.victim) for x in result.landings] == [(1, (0, 0), (0, 3))]
    assert [(c.layer, c.substitute) for c in result.calls] == [(0, 3), (1, -1), (0, 0), (1, 3)]


def test_global_fallback_takes_its_victim_from_the_whole_pool() -> None:
    # Pool of 2 holds only layer 0's experts (counts 9): layer 1 has nobody.
    counts = [[0, 0, 0, 5], [0, 0, 0, 9]]
    z = [[ranked(4, 0), ranked(4, 3)], [ranked(4, 1), ranked(4, 2)], [ranked(4, 2), ranked(4, 1)]]
    result = simulate(z, [0] * 3, Model(2, 4, 1), policy(scope="global"), 1, math.exp, counts)
    assert [c.verdict for c in result.calls] == [FETCH, HIT, FETCH, FETCH, FETCH, FETCH]
    chosen = policy("substitute_all", scope="global", initial="cold", admission={"name": "every_miss"})
    result = simulate(z, [0] * 3, Model(2, 4, 1), chosen, 1, math.exp)
    # cold: (0,0) and (1,3) by fallback; then layer 0's 1 by 0, layer 1's 2 by 3; both land at t2: victims (0,0), (1,3) by entered.
    assert [c.verdict for c in result.calls] == [FALL_FETCH, FALL_FETCH, SUB, SUB, SUB, SUB]
    assert [(x.key, x.victim) for x in result.landings] == [((0, 1), (0, 0)), ((1, 2), (1, 3))]


def test_reset_and_carry() -> None:
    tokens, documents = [[ranked(4, 0)], [ranked(4, 0)]], [7, 8]
    for state, verdicts, ts in (("reset", [FETCH, FETCH], [0, 0]), ("carry", [FETCH, HIT], [0, 1])):
        result = simulate(tokens, documents, Model(1, 4, 1), policy(state=state), 2, math.exp, [[0, 1, 2, 3]])
        assert [c.verdict for c in result.calls] == verdicts and [c.t for c in result.calls] == ts
        assert [c.document for c in result.calls] == [7, 8]
        assert result.documents == [7, 8]


def test_reswap_within_16_tokens() -> None:
    # K 2, C 2; expert 1 is substituted at t0 and t16 (counts), and at t33 (17 later: does not).
    z, other = ranked(6, 4, 1, 5), ranked(6, 4, 5)
    tokens = [z] + [other] * 15 + [z] + [other] * 16 + [z]
    assert run(tokens, policy("first_choice"), 2, 2).meters[0].value["reswaps"][0] == 1


def test_kl_of_fetch_all_is_minus_log_of_the_mass_in_s() -> None:
    # q = p / sum_S p, so KL = -log sum_S p.
    z = [0.0, -0.5, -1.0, -1.5]
    p = [math.exp(value) / sum(map(math.exp, z)) for value in z]
    assert run([z], policy(), 2, 2).meters[0].value["kl"][0] == pytest.approx(-math.log(p[0] + p[1]))
