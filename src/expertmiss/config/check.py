"""What types cannot say: whether the chosen policies, model and text go together. Called before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from expertmiss.errors import UserError
from expertmiss.files import read_json
from expertmiss.policies import validate
from expertmiss.simulate.capacity import resident_experts


def check_configuration(root: Path, config: Mapping[str, Any]) -> None:
    """Refuse what a later stage would refuse, while nothing has been computed yet.

    Args:
        root: project folder.
        config: result of :func:`expertmiss.config.compose`.

    Raises:
        UserError: C < K or C > E, a policy that the definitions refuse, a calibration split that is not recorded,
            a `local` corpus whose folder is missing or holds no text.
    """
    splits = config["capture"]["splits"]
    for needed in ("calibration", "exploratory"):
        if needed not in splits:
            raise UserError(f"capture.splits: '{needed}' is missing; simulate_policies needs it")
    for residency in config["simulate"]["residency"]:
        if not 0 < residency <= 1:
            raise UserError(f"simulate.residency: {residency:g} is not a share; use values above 0 and at most 1")
    geometry = _geometry(root / config["model"]["path"])
    if geometry is not None:
        for residency in config["simulate"]["residency"]:
            capacity = resident_experts(residency, geometry["experts"], geometry["top_k"])
            for policy in config["policies"].values():
                validate(policy, geometry, capacity)
    folder = config["corpus"].get("folder")
    if folder and not any(path.suffix in (".txt", ".jsonl") for path in (root / folder).rglob("*")):
        raise UserError(f"corpus.folder: {folder} holds no .txt or .jsonl file; put text there or choose another corpus")


def _geometry(folder: Path) -> dict[str, Any] | None:
    """E and K of a model folder, under the names transformers' configurations use; None for a model that is not here."""
    if not (folder / "config.json").is_file():
        return None
    config = read_json(folder / "config.json")
    experts = next((config[name] for name in ("num_experts", "num_local_experts", "n_routed_experts") if name in config), None)
    if experts is None or "num_experts_per_tok" not in config:
        raise UserError(
            f"{folder}/config.json: not a Mixture-of-Experts model (no num_experts and num_experts_per_tok); choose another model.path"
        )
    return {"experts": experts, "top_k": config["num_experts_per_tok"], "gating": "softmax", "bias": None, "groups": None}
