"""Compose the configuration once, check it, and cut out what a stage uses.

The result is plain containers: Snakemake's change detection silently ignores OmegaConf objects, dataclasses and paths in ``params``.
"""

from __future__ import annotations

import dataclasses
import math
import re
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from expertmiss.config import schema
from expertmiss.errors import UserError, suggest

# What a stage reads: dotted paths into the composed configuration. A change elsewhere does not re-run it.
SECTIONS: dict[str, tuple[str, ...]] = {
    "build_corpus": ("corpus",),
    "tokenize_corpus": ("corpus.name", "corpus.tokens", "model.path", "model.revision"),
    "build_topic_shift": (
        "corpus.name",
        "corpus.seed",
        "corpus.shift_split",
        "corpus.shift_streams",
        "corpus.shift_piece_tokens",
        "corpus.shift_topics",
    ),
    "describe_model": (
        "model",
        "card",
        "generate.batch",
        "scored_tasks",
        "sandbox",
        "host.name",
        "corpus.name",
    ),
    "capture_traces": ("model", "capture", "host.name", "corpus.name"),
    "analyze_traces": ("stats",),
    "simulate_policies": ("simulate", "policies"),
    "summarize_policies": ("stats",),
    "emulate_policies": ("model", "host.name", "corpus.name", "emulate"),
    "analyze_e1": ("stats",),
    "analyze_e2": ("stats",),
    "analyze_e4": ("stats",),
    "calibrate_host": ("model", "host.name", "host.assumed", "corpus.name", "engine"),
    "run_engine": ("model", "host.name", "host.assumed", "corpus.name", "engine", "e5"),
    "compare_engine": ("model", "host.name", "corpus.name", "engine", "e5", "emulate.torch_threads"),
    "analyze_e5": ("stats", "model.substrate", "host.name", "corpus.name"),
    "pilot_experiment_b": ("model", "host.name", "corpus.name", "emulate.torch_threads", "b.pilot_documents"),
    "measure_sites": (
        "model",
        "host.name",
        "corpus.name",
        "emulate.torch_threads",
        "b.site_split",
        "b.site_documents",
        "b.sites",
        "b.site_seed",
        "stats.confidence",
    ),
    "run_experiment_b": ("model", "host.name", "corpus.name", "emulate.torch_threads", "profile"),
    "decide_experiment_b": ("model.name", "profile"),
    "judge_claims": ("report.quick", "model.substrate", "model.name", "not_measured"),
    "build_tasks": (
        "tasks",
        "generate.split",
        "generate.problems",
        "corpus.name",
        "corpus.seed",
        "corpus.scored_steps",
        "corpus.scored_largest",
        "corpus.scored_parts",
    ),
    "generate_answers": (
        "model",
        "generate.run_on",
        "generate.residency",
        "generate.samples",
        "generate.temperature",
        "generate.seed",
        "generate.rows",
        "generate.threads",
        "sandbox",
        "host.name",
        "corpus.name",
        "arms",
        "tasks",
        "profile",
    ),
    "compare_answers": ("stats", "report.quick", "generate.pass_at", "model.name", "profile"),
    "make_figures": ("report.quick",),
    "render_report": ("report", "stats", "policies", "model", "corpus", "simulate", "not_measured"),
    "mlflow_sync": (),
}
GROUPS = ("corpus", "experiment", "host", "model", "policy", "profile")
SCORED = ("word_problems", "functions")  # tasks whose problems a corpus holds, for a model's card


def compose(
    root: Path, experiment: str = "default", profile: str = "builtin", overrides: Iterable[str] = (), extra: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Compose ``config/`` under ``root``.

    Args:
        root: project folder.
        experiment: a file of config/experiment.
        profile: a file of config/profile.
        overrides: Hydra overrides, e.g. ``["policy=rule_015", "policy.miss_rule.tau=0.2"]``.
        extra: nested values merged last (what ``snakemake --config`` brought), typed like everything else.

    Returns:
        Plain nested dict; besides the schema's keys ``experiment``, ``profile`` ``policies`` (name -> policy, all that
        are simulated), ``arms`` (the same for generation), ``tasks`` (name -> task), ``scored_tasks`` (those that a corpus scores) and
        ``not_measured`` (experiment -> why; empty, the workflow fills it).

    Raises:
        UserError: an unknown key, group or file, a value of the wrong type, a policy that the definitions refuse.
    """
    # Imported here: hydra costs 0.2 s, which commands that never compose should not pay.
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.config_store import ConfigStore
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    overrides = list(overrides)
    for override in overrides:
        _check_override(root, override)
    _check_group(root, "experiment", experiment)
    _check_group(root, "profile", profile)
    ConfigStore.instance().store(name="schema", node=schema.Config)
    try:
        with initialize_config_dir(config_dir=str((root / "config").resolve()), version_base="1.3"):
            composed = hydra_compose("config", overrides=[f"experiment={experiment}", f"profile={profile}", *overrides])
        if extra:
            _check_keys(schema.Config, dict(extra), "")
            merged = OmegaConf.merge(composed, dict(extra))
        else:
            merged = composed
        plain: dict[str, Any] = OmegaConf.to_container(merged, resolve=True, throw_on_missing=True)  # type: ignore[assignment]
    except (HydraException, OmegaConfBaseException) as problem:
        raise UserError(f"configuration: {_first_cause(problem)}") from None
    plain["experiment"], plain["profile"] = experiment, profile
    _check_values(schema.Config, plain, "")
    for group in ("model", "corpus", "host"):
        _check_name(f"{group}.name", plain[group]["name"])
    plain["policies"] = _resolve_policies(root, plain)
    plain["not_measured"] = {}
    plain["arms"] = {name: load_policy(root, name) for name in plain["generate"]["arms"]}
    plain["tasks"] = {name: load_task(root, name) for name in plain["generate"]["tasks"]}
    plain["scored_tasks"] = {name: load_task(root, name) for name in SCORED}
    return plain


def section(config: Mapping[str, Any], stage: str, *more: str) -> dict[str, Any]:
    """The part of ``config`` that ``stage`` uses (see :data:`SECTIONS`), and the paths ``more``, JSON-safe: infinities become ``"inf"``."""
    chosen: dict[str, Any] = {}
    for path in (*SECTIONS[stage], *more):
        value: Any = config
        target = chosen
        *parents, last = path.split(".")
        for key in parents:
            value, target = value[key], target.setdefault(key, {})
        target[last] = value[last]
    return typing.cast("dict[str, Any]", _json_safe(chosen))


def load_policy(root: Path, name: str) -> dict[str, Any]:
    """The policy file ``name`` of config/policy as a plain dict, only with the parameters that are set."""
    return _core_form(_load(root, "policy", name, schema.PolicyConfig))


def load_task(root: Path, name: str) -> dict[str, Any]:
    """The task file ``name`` of config/task as a plain dict."""
    return _load(root, "task", name, schema.TaskConfig)


def _load(root: Path, group: str, name: str, kind: type) -> dict[str, Any]:
    """A file of ``config/GROUP``, typed by ``kind`` and checked."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    _check_group(root, group, name)
    path = root / "config" / group / f"{name}.yaml"
    try:
        loaded = OmegaConf.load(path)
        typed = OmegaConf.merge(OmegaConf.structured(kind), loaded)
        plain: dict[str, Any] = OmegaConf.to_container(typed, resolve=True)  # type: ignore[assignment]
    except (OmegaConfBaseException, ValueError) as problem:
        raise UserError(f"{path}: {_first_cause(problem)}") from None
    _check_values(kind, plain, "")
    return plain


def chosen_policy(root: Path, overrides: Iterable[str] = ()) -> dict[str, Any]:
    """The policy that ``overrides`` choose and change, as the core takes it.

    Raises:
        UserError: an override of something else than the policy, which would have no effect.
    """
    overrides = list(overrides)
    for override in overrides:
        if not override.lstrip("+~").startswith(("policy=", "policy.")):
            raise UserError(f"override '{override}': only policy=NAME and policy.OPTION=VALUE have an effect here")
    return _core_form(compose(root, overrides=overrides)["policy"])


def _resolve_policies(root: Path, plain: Mapping[str, Any]) -> dict[str, Any]:
    """Policies by name. A changed policy does not keep the name of the file it was made from: names are what reports speak of."""
    policies = {name: load_policy(root, name) for name in plain["simulate"]["policies"]}
    own = _core_form(plain["policy"])
    _check_name("policy.name", own["name"])
    if (root / "config" / "policy" / f"{own['name']}.yaml").is_file() and own != load_policy(root, own["name"]):
        own["name"] += "_changed"
    policies[own["name"]] = own
    return policies


def _check_name(option: str, name: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
        raise UserError(f"{option}: '{name}' cannot be part of paths and run names; use letters, digits, '_', '-' and '.'")


def _core_form(policy: Mapping[str, Any]) -> dict[str, Any]:
    """Drop parameters that are not set; `lam` becomes `lambda`, a word Python keeps for itself."""
    cleaned: dict[str, Any] = {}
    for key, value in policy.items():
        if isinstance(value, Mapping):
            value = {("lambda" if name == "lam" else name): item for name, item in value.items() if item is not None}
        cleaned[key] = value
    return cleaned


def _json_safe(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _json_safe(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_json_safe(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _first_cause(problem: BaseException) -> str:
    while problem.__cause__ is not None:
        problem = problem.__cause__
    text = str(problem)
    key = re.search(r"full_key: (\S+)", text)
    first = text.strip().splitlines()[0]
    return f"{key.group(1)}: {first}" if key else first


def _check_group(root: Path, group: str, name: str) -> None:
    folder = root / "config" / group
    if "/" in name or not (folder / f"{name}.yaml").is_file():
        raise UserError(f"{group}={name}: no such file in config/{group}; {suggest(name, (path.stem for path in folder.glob('*.yaml')))}")


def _check_override(root: Path, override: str) -> None:
    key, equals, value = override.lstrip("+~").partition("=")
    if not equals and not override.startswith("~"):
        raise UserError(f"override '{override}': expected key=value")
    if key in ("experiment", "profile"):
        raise UserError(f"override '{override}': results are filed under the experiment; give it by itself (--config {override})")
    if key in GROUPS:
        return _check_group(root, key, value)
    nested: Any = None
    for part in reversed(key.split(".")):
        nested = {part: nested}
    _check_keys(schema.Config, nested, "")


def _field_types(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _check_keys(kind: type, values: Mapping[str, Any], where: str) -> None:
    types = _field_types(kind)
    for key, value in values.items():
        if key not in types:
            raise UserError(f"unknown option '{where}{key}'; {suggest(key, types)}")
        if dataclasses.is_dataclass(types[key]) and isinstance(value, Mapping):
            _check_keys(typing.cast(type, types[key]), value, f"{where}{key}.")


def _check_values(kind: type, values: Mapping[str, Any], where: str) -> None:
    types = _field_types(kind)
    for item in dataclasses.fields(kind):
        value = values.get(item.name)
        if dataclasses.is_dataclass(types[item.name]):
            _check_values(typing.cast(type, types[item.name]), typing.cast("Mapping[str, Any]", value), f"{where}{item.name}.")
        elif value is not None:
            _check_value(f"{where}{item.name}", value, item.metadata)


def _check_value(name: str, value: Any, allowed: Mapping[str, Any]) -> None:
    for word in value if isinstance(value, list) else [value]:
        if allowed["choices"] and word not in allowed["choices"]:
            raise UserError(f"{name}: '{word}' is not a choice; {suggest(str(word), allowed['choices'])}")
    if allowed["filled"] and not value:
        raise UserError(f"{name}: is empty; give at least one value")
    if allowed["filled"] and len(set(value)) < len(value):
        raise UserError(f"{name}: holds a value twice; give each once")
    for number in value if isinstance(value, list) else [value]:
        below = allowed["low"] is not None and not number >= allowed["low"]  # `not >=` also catches NaN
        if below or (allowed["high"] is not None and not number <= allowed["high"]):
            span = f"at least {allowed['low']:g}" + ("" if allowed["high"] is None else f" and at most {allowed['high']:g}")
            raise UserError(f"{name}: {number:g} is out of range; give a value of {span}")
