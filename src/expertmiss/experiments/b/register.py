"""What `expertmiss prereg lock experiment_b` freezes: the pilot's numbers, the confirmatory documents, the model's weights, the arms.

Confirmatory text is read for its hash; no model runs on it here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from expertmiss.config import compose
from expertmiss.errors import UserError
from expertmiss.experiments.b.emulate import document_digests, select_documents
from expertmiss.experiments.b.plan import DECISION, NAME, PLAN, load_plan, plan_arms
from expertmiss.experiments.lock import LOCK, Sample, lock, stands
from expertmiss.files import read_json, sha256_file
from expertmiss.traces.capture import equal_rows, model_digest, read_tokens


def places(root: Path, experiment: str, profile: str) -> tuple[Path, Path, dict[str, Any]]:
    """The pilot's proposal, the tokens, and the model's section of the configuration."""
    config = compose(root, experiment, profile)
    model, corpus = config["model"]["name"], config["corpus"]["name"]
    here = root / "results" / experiment
    return (
        here / "pilot_experiment_b" / model / corpus / "proposal.json", here / "tokenize_corpus" / model / corpus / "tokens.parquet",
        config["model"],
    )  # fmt: skip


def rows_of(proposal: Mapping[str, Any], plan: Mapping[str, Any]) -> list[Any]:
    """The rows that are run, as plain data: the reference and every arm."""
    arms = [arm.row() | {"site": None} for arm in plan_arms(plan, proposal["mu"])]
    return [{"reference": plan["reference"], "capacity": proposal["capacity"], "classes": proposal["classes"]}, *arms]


def gather(proposal: Mapping[str, Any], documents: pd.DataFrame, digests: Mapping[str, str], model: str, plan: Mapping[str, Any]) -> Sample:
    """The sample of a proposal.

    Raises:
        UserError: the pilot says that nothing can be locked, it ran another model, or the split holds too few documents or sources.
    """
    if proposal["refusal"]:
        raise UserError(f"experiment_b: nothing is locked: {proposal['refusal']}")
    if proposal["model"] != model:
        raise UserError("experiment_b: the pilot ran another model than the one in place; run the pilot again")
    if len(documents) < proposal["n"]:
        raise UserError(
            f"experiment_b: nothing is locked: the plan needs {proposal['n']} documents, split '{plan['split']}' holds {len(documents)}"
        )
    sources = documents["source"].nunique()
    if sources < plan["min_sources"]:
        raise UserError(f"experiment_b: nothing is locked: {sources} sources, {plan['min_sources']} are needed")
    kept = {str(name): digests[str(name)] for name in documents["document"]}
    numbers = {name: proposal[name] for name in ("classes", "mu", "delta", "n", "loss", "capacity")}
    return Sample(kept, model, rows_of(proposal, plan), numbers)


def sample_of(root: Path, experiment: str, profile: str) -> Sample:
    """The sample that the pilot of ``experiment`` proposes.

    Raises:
        UserError: no pilot, a pilot under another plan, or as :func:`gather`.
    """
    plan = load_plan(root)
    path, tokens, model = places(root, experiment, profile)
    if not path.is_file():
        raise UserError(
            f"{path.relative_to(root)}: no such file; run the pilot first (snakemake --config experiment={experiment} --cores all {NAME}_pilot)"
        )
    proposal = read_json(path)
    for name, file in (("plan", PLAN), ("decision", DECISION)):
        if proposal[name] != sha256_file(root / file):
            raise UserError(f"{file}: changed since the pilot ran; run the pilot again")
    if proposal["tokens"] != sha256_file(tokens):
        raise UserError(f"{tokens.relative_to(root)}: changed since the pilot ran; run the pilot again")
    chosen = select_documents(tokens, plan["split"], proposal["n"] or 1, plan["documents_per_source"], proposal["domains"])
    text, _ = equal_rows(chosen, tokens)
    return gather(proposal, chosen, document_digests(chosen, text), model_digest(root / model["path"], model["revision"]), plan)


def lock_experiment(root: Path, experiment: str, profile: str) -> dict[str, Any]:
    """Lock Experiment B from the pilot of ``experiment``."""
    return lock(root, NAME, profile, sample_of(root, experiment, profile))


def check_experiment(root: Path, experiment: str, profile: str) -> str:
    """Compare documents, model and arms that are in place with the lock; a sentence that says they are unchanged.

    Raises:
        UserError: anything differs, see :func:`expertmiss.experiments.lock.stands`.
    """
    standing = stands(root, NAME, profile)
    plan, entry = load_plan(root), standing.entry
    _, tokens, model = places(root, experiment, profile)
    sample = present_sample(tokens, entry, plan, model_digest(root / model["path"], model["revision"]))
    standing = stands(root, NAME, profile, sample)
    return (
        f"{standing.status}, unchanged: {len(sample.documents)} documents, model, {len(sample.rows)} rows ({LOCK}, {standing.digest[:12]})"
    )


def present_sample(tokens: Path, entry: Mapping[str, Any], plan: Mapping[str, Any], model: str) -> Sample:
    """What is in place of what ``entry`` locks; only locked documents are read."""
    documents = locked_documents(tokens, entry, plan)
    digests = document_digests(documents, equal_rows(documents, tokens)[0]) if len(documents) else {}
    return Sample(digests, model, rows_of(entry["numbers"], plan), entry["numbers"])


def locked_documents(tokens: Path, entry: Mapping[str, Any], plan: Mapping[str, Any]) -> pd.DataFrame:
    """The rows of ``tokens`` that are locked."""
    table = read_tokens(tokens)
    chosen: pd.DataFrame = table[(table["split"] == plan["split"]) & table["document"].astype(str).isin(set(entry["documents"]))]
    return chosen.sort_values("document")
