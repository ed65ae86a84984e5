"""What types cannot say: whether the chosen policies, model and text go together. Called before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from expertmiss.corpora.packages import SPLITS
from expertmiss.errors import UserError, suggest
from expertmiss.experiments.e5.plan import RULES, load_rules
from expertmiss.experiments.e5.plan import plan as plan_e5
from expertmiss.experiments.lock import verify
from expertmiss.experiments.plans import load_claims, plan
from expertmiss.files import read_json
from expertmiss.generate.plan import lock_in_force
from expertmiss.policies import validate
from expertmiss.simulate.capacity import resident_experts

BUILTIN = "models/builtin"


def check_configuration(root: Path, config: Mapping[str, Any]) -> None:
    """Refuse what a later stage would refuse, while nothing has been computed yet.

    Args:
        root: project folder.
        config: result of :func:`expertmiss.config.compose`.

    Raises:
        UserError: C < K or C > E, a policy that the definitions refuse, a calibration split that is not recorded,
            claims that changed since they were locked, an experiment's split that is not built, a generation test that is not the locked one, a `local` corpus whose folder is missing or holds no text.
    """
    splits, corpus = config["capture"]["splits"], config["corpus"]
    for needed in ("calibration", "exploratory"):
        if needed not in splits:
            raise UserError(f"capture.splits: '{needed}' is missing; simulate_policies needs it")
    built = corpus["splits"] if corpus["kind"] == "builtin" else SPLITS
    for split in splits:
        if split not in built:
            raise UserError(f"capture.splits: '{split}' is not built (corpus.splits); {suggest(split, built)}")
    if not any(policy["name"] == "fetch_all" for policy in config["policies"].values()):
        raise UserError("simulate.policies: fetch_all is missing; every difference is taken against it")
    if config["host"]["assumed"]:
        raise UserError(f"host '{config['host']['name']}': is assumed, so nothing can be measured on it; use it with `expertmiss predict`")
    _check_model(root, config["model"])
    geometry = _geometry(root / config["model"]["path"])
    if geometry is not None:
        for residency in config["simulate"]["residency"]:
            capacity = resident_experts(residency, geometry["experts"], geometry["top_k"])
            for policy in config["policies"].values():
                validate(policy, geometry, capacity)
    _check_experiments(root, config, geometry, built)
    _check_generation(root, config, geometry)
    if corpus["kind"] == "hub" and not corpus["hub_datasets"]:
        raise UserError("corpus.hub_datasets: is empty; name at least one data set (config/corpus/hub.yaml shows how)")
    if corpus["kind"] == "local":
        files = [path for path in (root / corpus["folder"]).rglob("*") if path.suffix in (".txt", ".jsonl")] if corpus["folder"] else []
        if not files:
            raise UserError(
                f"corpus.folder: {corpus['folder'] or 'not set'} holds no .txt or .jsonl file; put text there or choose another corpus"
            )
        for path in files:
            if path.relative_to(root / corpus["folder"]).parts[0] == "all":
                raise UserError(f"corpus.folder: {corpus['folder']}/all: tables use 'all' for every domain together; rename the sub-folder")
            if "{" in path.name or "}" in path.name:
                raise UserError(f"corpus.folder: {path}: a file name may not hold a brace here; rename the file")


def _check_experiments(root: Path, config: Mapping[str, Any], geometry: Mapping[str, Any] | None, built: Sequence[str]) -> None:
    """Plans of the emulated experiments: their claims are locked, their splits are built, the core takes every policy."""
    if not config["experiments"]:
        return
    verify(root, "claims")
    verify(root, "e5")
    claims = load_claims(root / "config" / "claims.yaml")
    rules = load_rules(root / RULES)
    for study in config["experiments"]:
        split = config["corpus"]["shift_split"] if study == "e4" else config[study]["split"]
        if split not in built:
            raise UserError(f"{study}: split '{split}' is not built (corpus.splits); {suggest(split, built)}")
        if geometry is not None:
            try:
                shape = (geometry["experts"], geometry["top_k"])
                rows = plan_e5(config["e5"], rules, claims, *shape) if study == "e5" else plan(study, config[study], claims, *shape)
                for item in rows:
                    validate(item.row.policy, geometry, item.row.capacity)
            except UserError as problem:
                raise UserError(f"{study} cannot run on this model: {problem}; or leave {study} out of `experiments`") from None


def _check_generation(root: Path, config: Mapping[str, Any], geometry: Mapping[str, Any] | None) -> None:
    """Arms and options of the generation test; under a lock also that they are the registered ones."""
    options = config["generate"]
    if not options["tasks"]:
        return
    if "fetch_all" not in options["arms"]:
        raise UserError("generate.arms: fetch_all is missing; every difference is taken against it")
    for name, task in config["tasks"].items():
        if task["name"] != name:
            raise UserError(f"config/task/{name}.yaml: is named '{task['name']}'; set name: {name}")
        if (task["primary"] == "pass@1") != (name in ("functions", "humaneval")):
            raise UserError(
                f"config/task/{name}.yaml: primary '{task['primary']}' does not score this task; see src/expertmiss/generate/tasks.py"
            )
    if options["samples"] > 1 and not options["temperature"]:
        raise UserError(f"generate.samples: {options['samples']} greedy answers would be the same; set generate.temperature above 0")
    if max(options["pass_at"]) > options["samples"]:
        raise UserError(f"generate.pass_at: pass@{max(options['pass_at'])} needs as many samples, generate.samples is {options['samples']}")
    if geometry is not None:
        capacity = resident_experts(options["residency"], geometry["experts"], geometry["top_k"], "generate.residency")
        for policy in config["arms"].values():
            validate(policy, geometry, capacity)
    lock_in_force(root, config)


def _check_model(root: Path, model: Mapping[str, Any]) -> None:
    """The files of a local model, and that the built-in model's labels stand only on the built-in model."""
    folder = root / model["path"]
    if model["substrate"] == "builtin_trained" and folder.resolve() != (root / BUILTIN).resolve():
        raise UserError(
            f"model.path: {model['path']} is not the built-in model; set model.name, model.substrate and model.title for it too"
        )
    if not folder.is_dir():
        if model["path"].count("/") == 1 and not model["path"].startswith((".", "/", "models/")):
            return  # a name on the hub: the stage that loads it says what is missing
        raise UserError(
            f"model.path: {model['path']} is not a folder; name one with config.json, *.safetensors and tokenizer.json, or owner/name on the hub"
        )
    for pattern in ("config.json", "tokenizer.json", "*.safetensors"):
        if not any(folder.glob(pattern)):
            raise UserError(f"model.path: {model['path']} holds no {pattern}; restore the model's files")


def _geometry(folder: Path) -> dict[str, Any] | None:
    """E and K of a model folder, under the names transformers' configurations use; None for a model that is not here."""
    if not (folder / "config.json").is_file():
        return None
    config = read_json(folder / "config.json")
    if not isinstance(config, dict):
        raise UserError(f"{folder}/config.json: not a model's configuration; restore the file")
    experts = next((config[name] for name in ("num_experts", "num_local_experts", "n_routed_experts") if name in config), None)
    if not isinstance(experts, int) or not isinstance(config.get("num_experts_per_tok"), int):
        raise UserError(
            f"{folder}/config.json: not a Mixture-of-Experts model (no num_experts and num_experts_per_tok); choose another model.path"
        )
    return {"experts": experts, "top_k": config["num_experts_per_tok"], "gating": "softmax", "bias": None, "groups": None}
