"""Which rows an experiment runs, and that what was fixed beforehand cannot change unnoticed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from expertmiss.config import compose
from expertmiss.errors import UserError
from expertmiss.experiments.lock import lock, locked_digest, verify
from expertmiss.experiments.plans import load_claims, plan, scaled_tau
from expertmiss.policies import validate

ROOT = Path(__file__).parents[2]
CLAIMS = load_claims(ROOT / "config" / "claims.yaml")
QWEN3_NEXT = {"layers": 48, "experts": 512, "top_k": 10, "gating": "softmax", "normalise": True, "scale": 1.0, "bias": None, "groups": None}


@pytest.mark.parametrize("study", ["e1", "e2", "e4"])
@pytest.mark.parametrize("experiment", ["tiny", "default", "study"])
def test_every_row_is_a_policy_the_core_accepts(study: str, experiment: str) -> None:
    config = compose(ROOT, experiment)
    for geometry in (QWEN3_NEXT, {**QWEN3_NEXT, "experts": 256, "top_k": 8}):
        rows = plan(study, config[study], CLAIMS, geometry["experts"], geometry["top_k"])
        assert rows[0].arm == "reference" and rows[0].row.policy["miss_rule"]["name"] == "fetch_all"
        for item in rows:
            validate(item.row.policy, geometry, item.row.capacity)


def test_e2_has_two_policies_of_each_of_five_families_that_protect_the_first_choice() -> None:
    rows = plan("e2", {}, CLAIMS, 512, 10)
    families = [item.family for item in rows if item.arm == "protected"]
    assert len(families) == 10 and {families.count(name) for name in families} == {2} and len(set(families)) == 5
    for item in rows:
        rule = item.row.policy["miss_rule"]
        if item.arm == "protected":
            assert (
                rule["name"] in ("first_choice", "threshold", "cumulative", "cache_prior", "max_rank")
                and rule.get("J", 1) >= 1
                and rule.get("T2", 1) == 1
            )
    assert sum(item.arm == "unprotected" for item in rows) >= CLAIMS["claims"]["C2b"]["min_policies"]


def test_the_paper_threshold_and_its_scaled_form_are_always_there() -> None:
    options = compose(ROOT, "tiny")["e1"]
    taus = {item.row.policy["miss_rule"].get("tau") for item in plan("e1", options, CLAIMS, 256, 8)}
    assert {0.15, scaled_tau(8)} <= taus and scaled_tau(10) == pytest.approx(0.15)


def test_few_residents_are_flagged() -> None:
    options = {**compose(ROOT, "study")["e1"], "residency": [0.02]}
    flags = {item.residency: item.few_residents for item in plan("e1", options, CLAIMS, 512, 10)}
    assert flags == {0.02: True, 0.25: False}


def test_shares_that_cannot_hold_a_token_s_own_experts_are_left_out() -> None:
    options = {**compose(ROOT, "study")["e1"], "residency": [0.125, 0.5]}
    assert {item.residency for item in plan("e1", options, CLAIMS, 32, 8)} == {0.25, 0.5}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "config").mkdir()
    shutil.copy(ROOT / "config" / "claims.yaml", tmp_path / "config")
    return tmp_path


def test_the_repository_is_locked() -> None:
    assert len(verify(ROOT, "claims")) == 64


def test_an_open_plan_is_refused(project: Path) -> None:
    with pytest.raises(UserError, match="not locked"):
        verify(project, "claims")


def test_a_changed_plan_is_refused_and_a_restored_one_is_not(project: Path) -> None:
    entry = lock(project, "claims")
    digest = verify(project, "claims")
    path = project / "config" / "claims.yaml"
    before = path.read_text()
    path.write_text(before.replace("min_loss_spared: 0.5", "min_loss_spared: 0.4"))
    for call in (verify, lock):  # locking again would hide the change
        with pytest.raises(UserError, match=r"claims\.yaml: changed since it was locked"):
            call(project, "claims")
    path.write_text(before)
    assert verify(project, "claims") == digest and lock(project, "claims") == entry


def test_a_missing_plan_file_and_an_unknown_plan_are_refused(project: Path) -> None:
    lock(project, "claims")
    (project / "config" / "claims.yaml").unlink()
    with pytest.raises(UserError, match="no such file"):
        verify(project, "claims")
    with pytest.raises(UserError, match="did you mean 'claims'"):
        verify(project, "claim")


def test_locking_another_plan_re_runs_nothing(project: Path) -> None:
    """Rules depend on what their own plan locked, not on the file that holds all locks."""
    assert locked_digest(project, "claims") == "none"
    lock(project, "claims")
    before = locked_digest(project, "claims")
    assert before == verify(project, "claims")
    (project / "prereg").mkdir(exist_ok=True)
    shutil.copy(ROOT / "prereg" / "e5.yaml", project / "prereg")
    lock(project, "e5")
    assert locked_digest(project, "claims") == before != locked_digest(project, "e5") == verify(project, "e5")
    rules = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "workflow").rglob("*.smk"))
    assert rules.count('"prereg/LOCK.json"') == rules.count('ancient("prereg/LOCK.json")')
