"""Stage emulate_policies: the model runs over documents under every policy of an experiment.

Inputs:  ``tokens.parquet`` (documents, or topic-shift streams), the calibration trace (request counts of warm starts), the locked claims,
         the model's folder.
Outputs: ``cells.parquet`` (policy x capacity x seed x document: NLL and meters), ``open_loop.parquet`` (the same policies over the
         reference row's recorded routers), ``nll.safetensors`` (every token's NLL), ``split.parquet`` (loss by rank and weight).
Steps:   check the lock; plan the rows; one forward pass a document and chunk of rows, saved as a part; join the parts. A killed run
         resumes at the first missing part; parts of another model, text, plan or configuration are not used.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from expertmiss import policies as core
from expertmiss.emulate.attribute import Attribution, attribute, attribution_frame
from expertmiss.emulate.emulator import Emulator
from expertmiss.emulate.replay import open_loop
from expertmiss.errors import UserError
from expertmiss.evaluation import FIRST_TARGET
from expertmiss.experiments.about import about_rows
from expertmiss.experiments.lock import verify
from expertmiss.experiments.plans import Planned, load_claims, plan
from expertmiss.files import atomic_path, clear_parts, sha256_bytes, sha256_json
from expertmiss.labelled import write_labelled
from expertmiss.memory import keep_freed_memory
from expertmiss.models.adapters import RouterModule
from expertmiss.models.load import load_model
from expertmiss.models.routers import router_modules
from expertmiss.paths import project_root
from expertmiss.progress import Progress
from expertmiss.provenance import Labels, write_run
from expertmiss.stages import Context
from expertmiss.traces.capture import choose_documents, equal_rows, is_whole, local_files, model_digest, read_tokens

STAGE = "emulate_policies"


def run(cfg: dict[str, Any], *, out: Path, context: Context, tokens: Path, calibration: Path, claims: Path, study: str) -> None:
    """Run the rows of ``study`` over ``tokens`` into ``out``.

    ``cfg``: ``model``, ``host.name``, ``corpus.name``, ``emulate`` (``rows``, ``threads``) and the section named like the study.

    Raises:
        UserError: the claims are not locked or were changed, a plan or policy is refused, tokens and model do not fit, traces of another model.
    """
    started, clock = datetime.now(UTC), time.monotonic()
    lock = verify(project_root(), "claims", claims)
    model_cfg, options, experiment = cfg["model"], cfg["emulate"], cfg[study]
    torch.set_num_threads(options["torch_threads"])
    keep_freed_memory()
    core.check_core_fresh()
    documents = choose_documents(read_tokens(tokens), experiment["split"], experiment["documents"], tokens)
    text, topic_change = equal_rows(documents, tokens)
    if text.shape[1] <= FIRST_TARGET + 1:
        raise UserError(f"{tokens}: documents of {text.shape[1]} tokens have no target after the first {FIRST_TARGET}; use longer ones")
    model, _ = load_model(model_cfg["path"], dtype=model_cfg["dtype"], device=model_cfg["device"], revision=model_cfg["revision"])
    if text.min() < 0 or text.max() >= model.get_input_embeddings().num_embeddings:
        raise UserError(f"{tokens}: a token id does not fit the model's vocabulary; tokenize with the model's own tokenizer")
    digest = model_digest(Path(model_cfg["path"]), model_cfg["revision"])
    counts = core.calibration_counts(calibration, model_cfg["path"], digest)
    routers = router_modules(model)
    rows = plan(study, experiment, load_claims(claims), routers[0].experts, routers[0].top_k)
    key = sha256_json([cfg, context.source_hash, lock, digest, sha256_bytes(text.tobytes()), sha256_bytes(counts.tobytes())])[:16]
    parts = out / ".parts" / key
    passes = _Passes(model, rows, counts, options)
    tokens_run = text.size * len(rows)
    with Progress(tokens_run, f"emulate {study}", "tok", context.journal) as bar:
        for document, words in zip(documents["document"].tolist(), text, strict=True):
            part = parts / f"{document:06d}.safetensors"
            if not is_whole(part):
                with atomic_path(part) as temporary:
                    save_file(passes.run(words, document), temporary)
            bar.update(len(words) * len(rows))
    forward = time.monotonic() - clock
    joined = [load_file(parts / f"{document:06d}.safetensors") for document in documents["document"]]
    nll = np.stack([part["nll"][:, FIRST_TARGET:] for part in joined])
    labels = Labels(
        model_cfg["substrate"], "own", "none", cfg["host"]["name"], "exploratory",
        {
            "documents": len(documents), **({} if study == "e4" else {"sources": int(documents["source"].nunique())}),
            "tokens": int(nll.shape[0] * nll.shape[2]),
        },
        ["closed loop"],
    )  # fmt: skip
    outputs = _write(joined, rows, documents, topic_change, cfg, study, labels, out)
    spread = max(float(part["reference_spread"].max()) for part in joined)
    write_run(
        out, stage=STAGE, experiment=context.experiment, name=f"emulate {study} with {model_cfg['name']} on {cfg['corpus']['name']}",
        config={**cfg, "study": study, "claims_lock": lock}, source_hash=context.source_hash,
        inputs=[tokens, calibration, claims, *local_files(Path(model_cfg["path"]))], outputs=outputs,
        metrics={
            "rows": len(rows), "documents": len(documents), "reference_nll": float(nll[:, 0].mean()), "reference_spread": spread,
            "tokens_per_second": tokens_run / forward,
        },
        timings={"forward_s": forward, "total_s": time.monotonic() - clock}, started=started, labels=labels,
    )  # fmt: skip
    clear_parts(out)


class _Passes:
    """The forward passes of one document: rows in chunks, the reference first in each, and the open-loop replay of its routers."""

    def __init__(self, model: Any, rows: list[Planned], counts: NDArray[np.int64], options: dict[str, Any]) -> None:
        self.rows, self.counts = rows, counts
        reference, rest = rows[0], rows[1:]
        size = max(options["rows"] - 1, 1)
        chunks = [rest[begin : begin + size] for begin in range(0, len(rest), size)] or [[]]
        self.emulators = [
            Emulator(model, [reference.row, *(item.row for item in chunk)], counts, threads=options["threads"], log=True)
            for chunk in chunks
        ]

    def run(self, tokens: NDArray[np.int64], document: int) -> dict[str, NDArray[Any]]:
        """``nll`` [R, T - 1], meters summed over layers [R] as ``closed.<meter>`` and ``open.<meter>``, ``split.<part>`` [R, K + 1, B]."""
        nll: list[NDArray[np.float64]] = []
        meters: list[dict[str, NDArray[Any]]] = []
        splits: list[Attribution] = []
        references: list[NDArray[np.float64]] = []
        logits: list[NDArray[Any]] = []
        for index, emulator in enumerate(self.emulators):
            with _first_row(emulator.routers, len(tokens)) as recorded:
                found = emulator.whole(tokens, document)
            first = 0 if index == 0 else 1  # the reference counts once
            references.append(found.nll[0].copy())
            logits = recorded if index == 0 else logits
            if index:  # differences are taken within a batch: the same kernels on both sides
                found.nll += references[0] - found.nll[0]
            nll += list(found.nll[first:])
            meters += [{name: values[row].sum() for name, values in found.meters.items()} for row in range(first, len(found.nll))]
            logs = emulator.take_logs()
            splits += [
                attribute(logs[row]["calls"], found.nll[row] - found.nll[0], emulator.geometry.top_k, FIRST_TARGET)
                for row in range(first, len(found.nll))
            ]
        result: dict[str, NDArray[Any]] = {"nll": np.stack(nll)}
        result["reference_spread"] = np.array([max(float(np.abs(other - references[0]).max()) for other in references)])
        replayed = open_loop(logits, [item.row for item in self.rows], self.counts, document, self.emulators[0].meta)
        for kind, found_meters in (("closed", meters), ("open", replayed)):
            for name in found_meters[0]:
                result[f"{kind}.{name}"] = np.array([row[name] for row in found_meters])
        for name in Attribution._fields:
            result[f"split.{name}"] = np.stack([getattr(split, name) for split in splits])
        return result


@contextmanager
def _first_row(routers: list[RouterModule], length: int) -> Iterator[list[NDArray[Any]]]:
    """Within the block the routers' logits of the batch's first row, [T, E], are appended by layer.

    Hooks run in the order of their registration, so these see what the router answered before the policy's hook replaces it.
    """
    found: list[NDArray[Any]] = []

    def reader(router: RouterModule) -> Any:
        def read(module: torch.nn.Module, inputs: Any, output: Any) -> None:
            logits = router.logits(output).detach().reshape(-1, router.experts)[:length].cpu()
            found.append((logits if logits.dtype == torch.float64 else logits.float()).numpy().copy())

        return read

    handles = [router.module.register_forward_hook(reader(router)) for router in routers]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _write(
    joined: list[dict[str, NDArray[Any]]], rows: list[Planned], documents: pd.DataFrame, topic_change: NDArray[np.uint8], cfg: dict[str, Any],
    study: str, labels: Labels, out: Path,
) -> list[Path]:  # fmt: skip
    """The tables, each with its labels, and the per-token NLL from the parts of all documents."""
    split = str(documents["split"].iloc[0])
    about = about_rows(rows, cfg["model"]["name"], cfg["corpus"]["name"], split, study)
    outputs = []
    scored = joined[0]["nll"].shape[1] - FIRST_TARGET
    identity: list[dict[str, Any]] = [
        {"document": row.document, "domain": row.domain, "source": row.source} for row in documents.itertuples()
    ]
    for kind, name in (("closed", "cells"), ("open", "open_loop")):
        frames = []
        for who, part in zip(identity, joined, strict=True):
            meters = {key.partition(".")[2]: values for key, values in part.items() if key.startswith(f"{kind}.")}
            meters["capacity_misses"] = meters.pop("capacity")
            meters["token_layers"] = meters.pop("tokens")
            frame = about.assign(**who, **meters, tokens=part["nll"].shape[1] + 1)
            if kind == "closed":
                frame = frame.assign(nll=part["nll"][:, FIRST_TARGET:].sum(axis=1), scored=scored)
            frames.append(frame)
        write_labelled(out / f"{name}.parquet", pd.concat(frames, ignore_index=True), replace(labels, notes=[f"{kind} loop"]), {})
        outputs.append(out / f"{name}.parquet")
    write_labelled(out / "split.parquet", attribution_frame(joined, about, identity), labels, {})
    with atomic_path(out / "nll.safetensors") as path:
        save_file(
            {
                "nll": np.stack([part["nll"] for part in joined], axis=1).astype(np.float32),
                "document": documents["document"].to_numpy(np.int64), "topic_change": topic_change,
            },
            path, metadata={"rows": json.dumps(about["policy"].tolist()), "first_target": str(FIRST_TARGET)},
        )  # fmt: skip
    return [*outputs, out / "split.parquet", out / "nll.safetensors"]
