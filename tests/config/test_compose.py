"""Composition: what a person may write, what is refused and how, and what reaches a stage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from expertmiss.config import compose, section
from expertmiss.config.check import check_configuration
from expertmiss.config.compose import SECTIONS, load_policy
from expertmiss.config.document import json_schema, options, readme
from expertmiss.errors import UserError
from expertmiss.stages import STAGES

ROOT = Path(__file__).parents[2]


def test_default_is_plain_and_holds_the_papers_policies() -> None:
    config = compose(ROOT)
    assert json.loads(json.dumps(config)) == config
    assert list(config["policies"]) == ["fetch_all", "substitute_all", "first_choice", "rule_015", "quality_first", "speed_first"]
    assert config["policies"]["rule_015"]["miss_rule"] == {"name": "threshold", "tau": 0.15}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("policy.miss_rule.tau=abc", "configuration: policy.miss_rule.tau: Value 'abc' of type 'str' could not be converted to Float"),
        ("polcy.miss_rule.tau=1", "unknown option 'polcy'; did you mean 'policy'?"),
        ("policy.miss_rule.tua=1", "unknown option 'policy.miss_rule.tua'; did you mean 'tau'?"),
        ("policy=rule_15", "policy=rule_15: no such file in config/policy; did you mean 'rule_015'?"),
        ("policy.miss_rule.name=threshhold", "policy.miss_rule.name: 'threshhold' is not a choice; did you mean 'threshold'?"),
        ("simulate.residency=[a]", "configuration: simulate.residency[0]: Value 'a' of type 'str' could not be converted to Float"),
        ("stats.resamples", "override 'stats.resamples': expected key=value"),
        ("stats.resamples=0", "stats.resamples: 0 is out of range; give a value of at least 100 and at most 1e+06"),
        ("stats.confidence=nan", "stats.confidence: nan is out of range; give a value of at least 0.5 and at most 0.999"),
        ("capture.batch=-3", "capture.batch: -3 is out of range; give a value of at least 1"),
        ("simulate.residency=[]", "simulate.residency: is empty; give at least one value"),
        ("simulate.residency=[0.5,0.5]", "simulate.residency: holds a value twice; give each once"),
        (
            "experiment=tiny",
            "override 'experiment=tiny': results are filed under the experiment; give it by itself (--config experiment=tiny)",
        ),
        ("policy.name=a b", "policy.name: 'a b' cannot be part of paths and run names; use letters, digits, '_', '-' and '.'"),
        ("model.name=x@y", "model.name: 'x@y' cannot be part of paths and run names; use letters, digits, '_', '-' and '.'"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_key(override: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        compose(ROOT, overrides=[override])
    assert str(caught.value) == message


@pytest.mark.parametrize("override", ["stats.resamples={a", "stats.resamples=1=2", "=3", "+stats.more=1", "~stats.seed"])
def test_strange_overrides_are_refused_in_one_line(override: str) -> None:
    with pytest.raises(UserError) as caught:
        compose(ROOT, overrides=[override])
    assert "\n" not in str(caught.value)


def test_values_of_snakemake_config_are_typed_too() -> None:
    assert compose(ROOT, extra={"stats": {"resamples": 700}})["stats"]["resamples"] == 700
    with pytest.raises(UserError, match=r"unknown option 'stats\.resample'; did you mean 'resamples'\?"):
        compose(ROOT, extra={"stats": {"resample": 7}})
    with pytest.raises(UserError, match="Integer"):
        compose(ROOT, extra={"stats": {"resamples": "many"}})


def test_a_changed_policy_stands_beside_the_original() -> None:
    policies = compose(ROOT, overrides=["policy=rule_015", "policy.miss_rule.tau=0.2"])["policies"]
    assert policies["rule_015"]["miss_rule"]["tau"] == 0.15
    assert policies["rule_015_changed"]["miss_rule"]["tau"] == 0.2


def test_a_changed_policy_cannot_take_the_name_of_another() -> None:
    policies = compose(ROOT, overrides=["policy=rule_015", "policy.miss_rule.tau=0.2", "policy.name=fetch_all"])["policies"]
    assert policies["fetch_all"]["miss_rule"] == {"name": "fetch_all"} and policies["fetch_all_changed"]["miss_rule"]["tau"] == 0.2


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["capture.splits=[calibration,exploratory,foo]"],
            "capture.splits: 'foo' is not built (corpus.splits); known: calibration, exploratory, pilot",
        ),
        (
            ["model.path=elsewhere"],
            "model.path: elsewhere is not the built-in model; set model.name, model.substrate and model.title for it too",
        ),
        (["model.path=nowhere", "model.substrate=real_model"], "model.path: nowhere is not a folder; name one with config.json, "),
        (
            ["simulate.policies=[rule_015]", "policy=rule_015"],
            "simulate.policies: fetch_all is missing; every difference is taken against it",
        ),
        (["corpus=hub", "corpus.hub_datasets=[]"], "corpus.hub_datasets: is empty"),
        (["corpus=local"], "corpus.folder: not set holds no .txt or .jsonl file"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_runs(overrides: list[str], message: str) -> None:
    with pytest.raises(UserError) as caught:
        check_configuration(ROOT, compose(ROOT, overrides=overrides))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(("name", "message"), [("all/a.txt", "rename the sub-folder"), ("first/{draft}.txt", "may not hold a brace")])
def test_names_of_local_text_that_would_mislead_are_refused(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / name).parent.mkdir()
    (tmp_path / name).write_text("text")
    with pytest.raises(UserError, match=message):
        check_configuration(ROOT, compose(ROOT, overrides=["corpus=local", f"corpus.folder={tmp_path}"]))


def test_a_section_holds_only_what_the_stage_uses() -> None:
    config = compose(ROOT)
    changed = compose(ROOT, overrides=["stats.resamples=1100"])
    same = [stage for stage in SECTIONS if section(config, stage) == section(changed, stage)]
    assert set(SECTIONS) - set(same) == {
        "analyze_traces",
        "summarize_policies",
        "analyze_e1",
        "analyze_e2",
        "analyze_e4",
        "analyze_e5",
        "compare_answers",
        "render_report",
    }


def test_infinities_survive_json() -> None:
    config = compose(ROOT, overrides=["policy=quality_first", "policy.admission.beta=inf"])
    assert (
        json.loads(json.dumps(section(config, "simulate_policies"), allow_nan=False))["policies"]["quality_first_changed"]["admission"][
            "beta"
        ]
        == "inf"
    )


def test_every_stage_has_a_section() -> None:
    assert set(SECTIONS) == set(STAGES)


def test_every_policy_file_loads_and_is_named_after_its_file() -> None:
    for path in sorted((ROOT / "config" / "policy").glob("*.yaml")):
        assert load_policy(ROOT, path.stem)["name"] == path.stem


def test_generated_documents_are_current() -> None:
    assert (ROOT / "config" / "README.md").read_text() == readme(), "run `make config-docs`"
    assert json.loads((ROOT / "config" / "schema.json").read_text()) == json_schema(), "run `make config-docs`"


def test_every_option_has_a_sentence() -> None:
    for name, _, _, sentence, _ in options():
        assert sentence.endswith("."), name
