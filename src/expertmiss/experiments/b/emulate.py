"""Documents under the reference and the arms of Experiment B: forward passes in resumable parts, and one row a document and arm.

A killed run resumes at the first missing part; parts of another model, text, arms or code are not used.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from expertmiss import policies as core
from expertmiss.errors import UserError
from expertmiss.experiments.b.arms import Arm, Classes
from expertmiss.experiments.b.plan import kind, reference_row
from expertmiss.experiments.b.runner import ArmRunner, Outcome
from expertmiss.files import atomic_path, sha256_bytes, sha256_json
from expertmiss.memory import keep_freed_memory
from expertmiss.models.load import load_model
from expertmiss.models.routers import router_modules
from expertmiss.progress import Progress
from expertmiss.stages import Context
from expertmiss.traces.capture import choose_documents, equal_rows, is_whole, model_digest, read_tokens

REFERENCE = "reference"


@dataclass
class Setting:
    """Documents [D], their token ids ``text`` [D, T] and digests, and the runner of the model.

    ``key`` names model, calibration counts and residency; parts of another key are not used.
    """

    documents: pd.DataFrame
    text: NDArray[np.int64]
    digests: dict[str, str]
    runner: ArmRunner
    model_digest: str
    key: str


def document_digests(documents: pd.DataFrame, text: NDArray[np.int64]) -> dict[str, str]:
    """SHA-256 of each document's token ids (int64, little-endian), domain and source, by document id."""
    return {
        str(row.document): sha256_json([sha256_bytes(words.astype("<i8").tobytes()), row.domain, row.source])
        for row, words in zip(documents.itertuples(), text, strict=True)
    }


def select_documents(tokens: Path, split: str, most: int, per_source: int, domains: Collection[str] | None = None) -> pd.DataFrame:
    """At most ``most`` documents of ``split``, spread over domains and sources, at most ``per_source`` of one source over all domains.

    Of a source with more, those with the smallest digests enter.

    Args:
        domains: the only ones that enter; None: all.

    Raises:
        UserError: the tokens cannot be read, or the split is empty, or it holds none of the domains.
    """
    table = read_tokens(tokens)
    chosen = table[table["split"] == split]
    if domains is not None and len(chosen):
        chosen = chosen[chosen["domain"].isin(list(domains))]
        if chosen.empty:
            raise UserError(f"{tokens}: split '{split}' holds no document of {', '.join(sorted(domains))}; add text")
    if len(chosen):
        text, _ = equal_rows(chosen, tokens)
        chosen = chosen.assign(digest=list(document_digests(chosen, text).values())).sort_values("digest")
        chosen = chosen[chosen.groupby("source").cumcount() < per_source].drop(columns="digest")
    return choose_documents(chosen if len(chosen) else table, split, most, tokens)


def open_setting(cfg: Mapping[str, Any], plan: Mapping[str, Any], documents: pd.DataFrame, *, tokens: Path, calibration: Path) -> Setting:
    """Load the model and bring everything together.

    Args:
        cfg: ``model``, ``emulate.torch_threads``.
        documents: those that are run, from ``tokens``.

    Raises:
        UserError: documents too short or not of the model's vocabulary, a calibration trace of another model, a refused reference.
    """
    torch.set_num_threads(cfg["emulate"]["torch_threads"])
    keep_freed_memory()
    core.check_core_fresh()
    text, _ = equal_rows(documents, tokens)
    if text.shape[1] <= plan["first_targets_left_out"] + 1:
        raise UserError(f"{tokens}: documents of {text.shape[1]} tokens have no target that counts; use longer ones")
    model_cfg = cfg["model"]
    digest = model_digest(Path(model_cfg["path"]), model_cfg["revision"])
    model, _ = load_model(model_cfg["path"], dtype=model_cfg["dtype"], device=model_cfg["device"], revision=model_cfg["revision"])
    router = router_modules(model)[0]
    counts = core.calibration_counts(calibration, model_cfg["path"], digest)
    reference = reference_row(plan, router.experts, router.top_k)
    key = sha256_json(
        [digest, model_cfg["dtype"], model_cfg["device"], sha256_bytes(counts.tobytes()), reference.policy, reference.capacity]
    )
    return Setting(documents, text, document_digests(documents, text), ArmRunner(model, reference, counts), digest, key)


def run_arms(
    setting: Setting, arms: Sequence[Arm], classes: Sequence[Classes], *, out: Path, context: Context, what: str, extra: Any = ()
) -> list[dict[str, NDArray[Any]]]:
    """One part a document: ``nll`` [R, T - 1], ``meter.<name>`` [R, L], the reference's misses ``miss.<name>``.

    Args:
        extra: what else tells these parts from others, e.g. the lock's hash.
    """
    key = sha256_json([setting.key, context.source_hash, [arm.row() for arm in arms], classes, extra])[:16]
    folder = out / ".parts" / key
    found = []
    with Progress(setting.text.size * (1 + len(arms)), what, "tok", context.journal) as bar:
        for document, words in zip(setting.documents["document"].tolist(), setting.text, strict=True):
            part = folder / f"{setting.digests[str(document)][:32]}.safetensors"
            if not is_whole(part):
                with atomic_path(part) as temporary:
                    save_file(_tensors(setting.runner.run(words, document, arms, classes)), temporary)
            found.append(load_file(part))
            bar.update(len(words) * (1 + len(arms)))
    return found


def _tensors(outcome: Outcome) -> dict[str, NDArray[Any]]:
    return {
        "nll": outcome.nll,
        **{f"meter.{name}": values for name, values in outcome.meters.items()},
        **{f"miss.{name}": np.ascontiguousarray(values) for name, values in outcome.misses.items()},
    }


def cells_frame(setting: Setting, parts: Sequence[Mapping[str, NDArray[Any]]], arms: Sequence[Arm], first: int) -> pd.DataFrame:
    """One row a document and arm, the reference among them.

    ``nll`` is the mean over scored targets, nats; ``mu`` the mass that the arm's budgets allow and ``mass`` the realised substituted mass, mean over tokens and layers; ``least_mass`` that of
    the layer with the least; ``substituted``, ``calls`` and ``missed`` are counts.
    """
    tokens = setting.text.shape[1]
    about = pd.DataFrame([
        {"arm": REFERENCE, "order": "none", "level": "", "kind": REFERENCE, "mu": 0.0},
        *({"arm": arm.name, "order": arm.order, "level": arm.level, "kind": kind(arm), "mu": arm.target} for arm in arms),
    ])  # fmt: skip
    frames = []
    identity: list[dict[str, Any]] = [
        {"document": row.document, "domain": row.domain, "source": row.source, "digest": setting.digests[str(row.document)]}
        for row in setting.documents.itertuples()
    ]
    for who, part in zip(identity, parts, strict=True):
        mass = part["meter.mass"] / tokens
        frames.append(about.assign(
            **who, nll=part["nll"][:, first:].mean(axis=1), scored=part["nll"].shape[1] - first, mass=mass.mean(axis=1),
            token_layers=mass.shape[1] * tokens, least_mass=mass.min(axis=1),
            **{name: part[f"meter.{name}"].sum(axis=1).astype(np.int64) for name in ("substituted", "calls", "missed")},
        ))  # fmt: skip
    return pd.concat(frames, ignore_index=True)
