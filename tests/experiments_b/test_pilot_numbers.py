"""Numbers that the pilot proposes, from invented cells with known effects; power and error rates of the decision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from expertmiss.errors import UserError
from expertmiss.experiments.b.arms import Classes
from expertmiss.experiments.b.emulate import REFERENCE
from expertmiss.experiments.b.levels import Levels
from expertmiss.experiments.b.pilot import propose
from expertmiss.experiments.b.plan import kind, load_decision, load_plan, plan_arms
from expertmiss.experiments.b.power import find_size, quotas, verdict_shares
from expertmiss.experiments.b.tables import decision_rules, effects_table, mean_loss, outcomes_of, pairs

ROOT = Path(__file__).parents[2]
DECISION = load_decision(ROOT)
PLAN = {**load_plan(ROOT), "simulations": 150, "sizes": [40, 80, 160, 320]}
MU = {"mu_1": [0.01, 0.03], "mu_2": [0.02, 0.06], "mu_3": [0.03, 0.09]}  # means .02, .04, .06
LEVELS = Levels([Classes(0.1, 0.2), Classes(0.08, 0.1)], {"heavy": np.array([0.1, 0.09]), "light": np.array([0.08, 0.2])}, MU)
AVAILABLE = {"a": 160, "b": 160}  # documents of the study by domain
LOSS = {"heavy": 1.0, "random": 0.6, "light": 0.5}  # nats per unit of mass


def cells(noise: float, documents: int = 60, factor: float = 1.0, short: float = 0.0) -> pd.DataFrame:
    """Loss proportional to mass; ``noise`` is the sd of a document's losses; ``short`` is missing of the heavy arm's mass."""
    draw = np.random.default_rng(4)
    rows: list[dict[str, Any]] = []
    for document in range(documents):
        about = {
            "document": document,
            "domain": "ab"[document % 2],
            "source": f"s{document // 2}",
            "digest": f"d{document}",
            "calls": 800,
            "token_layers": 100,
        }
        rows.append(
            {
                **about,
                "arm": REFERENCE,
                "order": "none",
                "level": "",
                "kind": REFERENCE,
                "mu": 0.0,
                "nll": 2.0,
                "mass": 0.0,
                "least_mass": 0.0,
                "substituted": 0,
            }
        )
        for arm in plan_arms(PLAN, MU):
            mass = arm.target * (1 - short * (arm.order == "heavy"))
            rows.append({
                **about, "arm": arm.name, "order": arm.order, "level": arm.level, "kind": kind(arm), "mu": arm.target, "mass": mass, "least_mass": mass,
                "nll": 2.0 + factor * LOSS[arm.order] * arm.target + draw.normal(0, noise), "substituted": 20,
            })  # fmt: skip
    return pd.DataFrame(rows)


def test_delta_is_a_quarter_of_the_arms_mean_loss() -> None:
    numbers, tables = propose(cells(0.001), LEVELS, PLAN, DECISION, AVAILABLE)
    assert numbers["delta"] == pytest.approx(0.25 * 0.75 * 0.04, rel=0.02) and numbers["refusal"] == ""
    assert numbers["n"] == 40 and numbers["classes"] == [[0.1, 0.2], [0.08, 0.1]] and numbers["mu"] == MU
    effect = tables["b_effects"].iloc[0]
    assert effect["role"] == "primary" and effect["level"] == "mu_2" and effect["kind"] == "natural"
    assert effect["estimate"] == pytest.approx(0.5 * 0.04, rel=0.05) and effect["low"] > 0
    assert set(tables["b_effects"]["comparison"]) == {
        "mu_1, natural", "mu_2, natural", "mu_3, natural", "mu_2, forced", "mu_2, random chooser",
    }  # fmt: skip
    secondary = tables["b_effects"][1:]
    assert (secondary["p_holm"] >= secondary["p"]).all() and np.isnan(effect["p_holm"])
    arms = tables["b_arms"].set_index("arm")
    assert arms.loc["heavy/mu_2", "weight"] == pytest.approx(0.04 * 100 / 20) and arms.loc[
        "heavy/mu_2", "substituted_share"
    ] == pytest.approx(0.025)
    assert tables["b_plan"].set_index("name")["value"]["mu_3"] == pytest.approx(0.06)


def test_domains_weigh_as_in_the_study() -> None:
    """With the pilot's own shares mean and interval are the decision's; with others each domain's mean has the study's weight."""
    pilot = cells(0.002)
    pilot = pilot[(pilot["domain"] == "a") | (pilot["document"] < 20)]
    pilot.loc[(pilot["domain"] == "b") & (pilot["arm"] != REFERENCE), "nll"] += 0.01
    arms = pilot[(pilot["kind"] == "natural") & (pilot["level"] == "mu_2") & pilot["order"].isin(["heavy", "light"])]
    lossless = pilot[pilot["arm"] == REFERENCE].set_index("document")
    loss = arms.groupby("document")["nll"].mean() - lossless["nll"]
    estimate, error, freedom = DECISION.clustered_mean(loss, lossless["source"], lossless["domain"])
    own = mean_loss(pilot, PLAN, DECISION, {"a": 30, "b": 10})
    assert own == pytest.approx((estimate, *DECISION.bounds(estimate, error, freedom, 0.95)))
    by_domain = loss.groupby(lossless["domain"]).mean()
    assert mean_loss(pilot, PLAN, DECISION, {"a": 7, "b": 7})[0] == pytest.approx(by_domain.mean())
    assert mean_loss(pilot, PLAN, DECISION, {"b": 5})[0] == pytest.approx(by_domain["b"])


def test_quotas_take_turns() -> None:
    assert quotas({"a": 5, "b": 2, "c": 9}, 10) == {"a": 4, "b": 2, "c": 4}
    assert quotas({"a": 5, "b": 2}, 99) == {"a": 5, "b": 2}


def test_too_few_documents_for_any_size() -> None:
    numbers, tables = propose(cells(0.001), LEVELS, PLAN, DECISION, {"a": 30, "b": 9})
    assert "there are 39 documents, fewer than the smallest size, 40" in numbers["refusal"] and set(tables["b_power"]["documents"]) == {39}


@pytest.mark.parametrize("factor", [0.0, -1.0])
def test_no_clear_loss_locks_nothing(factor: float) -> None:
    numbers, tables = propose(cells(0.01, factor=factor), LEVELS, PLAN, DECISION, AVAILABLE)
    assert "not clearly above 0" in numbers["refusal"] and numbers["n"] == 0 and tables["b_power"].empty


def test_a_check_that_fails_in_the_pilot_locks_nothing() -> None:
    numbers, tables = propose(cells(0.001, short=0.2), LEVELS, PLAN, DECISION, AVAILABLE)
    assert "passes in 0 % of the pilot documents, 80 % are needed" in numbers["refusal"] and numbers["n"] == 0
    power = tables["b_power"]
    assert set(power.loc[power["share"] > 0, "verdict"]) == {"no_verdict"}


def test_no_size_suffices() -> None:
    numbers, tables = propose(cells(0.05, documents=120), LEVELS, PLAN, DECISION, AVAILABLE)
    assert "nothing can be locked" in numbers["refusal"] and numbers["n"] == 0
    assert set(tables["b_power"]["documents"]) == {320}


def test_power_and_error_rates_by_simulation() -> None:
    """A noisier pilot needs more documents; at delta ``equivalent`` is rare, at 0 a direction is, and a failing check answers nothing."""
    rules = decision_rules(PLAN, MU, 0.0075)
    quiet, loud = (pairs(cells(noise), PLAN, DECISION) for noise in (0.008, 0.014))
    quiet, loud = (part[(part["kind"] == "natural") & (part["level"] == "mu_2")] for part in (quiet, loud))
    assert find_size(DECISION, PLAN, lambda quota: rules, quiet, AVAILABLE) < find_size(
        DECISION, PLAN, lambda quota: rules, loud, AVAILABLE
    )
    at_zero = verdict_shares(DECISION, rules, loud, quotas(AVAILABLE, 80), 0.0, 400, 1)
    at_delta = verdict_shares(DECISION, rules, loud, quotas(AVAILABLE, 80), rules["delta"], 400, 1)
    assert sum(at_zero.values()) == pytest.approx(1)
    assert at_delta["equivalent"] < 0.09 and at_zero["heavy_worse"] + at_zero["light_worse"] < 0.09
    short = pairs(cells(0.001, short=0.2), PLAN, DECISION)
    assert verdict_shares(DECISION, rules, short[short["level"] == "mu_2"], {"a": 20, "b": 20}, 0.0, 20, 1)["no_verdict"] == 1
    with pytest.raises(UserError, match="nothing can be locked"):
        find_size(DECISION, {**PLAN, "sizes": [40]}, lambda quota: rules, loud, AVAILABLE)


def test_domains_of_unequal_size_and_effect_are_centred() -> None:
    """A pilot with few documents of a domain whose differences are large: at an effect of 0 a direction stays rare."""
    own = pairs(cells(0.01, documents=80), PLAN, DECISION)
    own = own[(own["kind"] == "natural") & (own["level"] == "mu_2")]
    own = own[(own["domain"] == "a") | (own["document"] < 20)]
    own = own.assign(difference=own["difference"] + 0.05 * (own["domain"] == "b"))
    at_zero = verdict_shares(DECISION, decision_rules(PLAN, MU, 0.0075), own, {"a": 60, "b": 60}, 0.0, 300, 1)
    assert at_zero["heavy_worse"] + at_zero["light_worse"] < 0.1


def test_what_is_decided_is_what_is_shown() -> None:
    paired = pairs(cells(0.004), PLAN, DECISION)
    effect = effects_table(paired, PLAN, DECISION).iloc[0]
    outcomes = outcomes_of(paired, PLAN)
    registered = dict(zip(outcomes["document"], outcomes["digest"], strict=True))
    found = DECISION.decide({**decision_rules(PLAN, MU, 0.0075), "documents": registered}, outcomes)
    assert found["verdict"] == "heavy_worse"
    for name in ("estimate", "low", "high", "low_equivalence", "high_equivalence", "share_passed", "mass_heavy", "mass_light"):
        assert found[name] == pytest.approx(effect[name]), name


def test_an_arm_without_its_partner_is_refused() -> None:
    frame = cells(0.001)
    with pytest.raises(UserError, match="lack the heavy or the light arm"):
        pairs(frame[~((frame["arm"] == "light/mu_2") & (frame["document"] == 3))], PLAN, DECISION)
