"""Stage compare_engine: the engine's decisions and losses against the emulator's, both running freely on the same streams.

Inputs:  the model's folder and GGUF file, the compiled engine, ``tokens.parquet``, the calibration trace, the locked claims and rules.
Output:  ``e5_agreement.parquet``: for every policy of the paper how many layers of a stream differ at all, how many of the first differences are
         near-ties, follow from another one or are neither, the share of token-layers that execute other experts, and both losses.
Steps:   a stream on the engine, decisions kept; on the emulator with these forced (rounding: eps) and free; compare the call logs.

A near-tie is a first difference whose margin is at most 4 eps (agreement gate 1c).
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from expertmiss import policies as core
from expertmiss.emulate.agreement import eps, first_differences
from expertmiss.emulate.decide import Decisions
from expertmiss.emulate.emulator import Emulated, Emulator
from expertmiss.emulate.rows import Row
from expertmiss.engine.session import Engine, engine_options
from expertmiss.evaluation import FIRST_TARGET
from expertmiss.experiments.e5.plan import PAPER, load_rules, plan
from expertmiss.experiments.e5.run import notes, streams
from expertmiss.experiments.lock import verify
from expertmiss.experiments.plans import load_claims
from expertmiss.models.load import load_model
from expertmiss.paths import project_root
from expertmiss.progress import Progress
from expertmiss.provenance import Labels, write_run
from expertmiss.stages import Context
from expertmiss.stats.tables import write_table
from expertmiss.traces.capture import local_files, model_digest

STAGE = "compare_engine"
NEAR = 4.0
"""A near-tie's margin, in eps."""


def run(
    cfg: dict[str, Any],
    *,
    out: Path,
    context: Context,
    gguf: Path,
    engine: Path,
    tokens: Path,
    calibration: Path,
    claims: Path,
    rules: Path,
) -> None:
    """Write the table and ``run.json`` into ``out``.

    ``cfg``: ``model``, ``host.name``, ``corpus.name``, ``engine``, ``e5``, ``emulate.torch_threads``.

    Raises:
        UserError: a lock does not hold, the engine is not built or refuses the model, a trace of another model.
    """
    started, clock = datetime.now(UTC), time.monotonic()
    locks = {"claims_lock": verify(project_root(), "claims", claims), "e5_lock": verify(project_root(), "e5", rules)}
    core.check_core_fresh()
    model_cfg, options = cfg["model"], cfg["e5"]
    torch.set_num_threads(cfg["emulate"]["torch_threads"])
    documents, text = streams(tokens, options)
    documents, text = documents.head(options["compared_documents"]), text[: options["compared_documents"]]
    counts = core.calibration_counts(calibration, model_cfg["path"], model_digest(Path(model_cfg["path"]), model_cfg["revision"]))
    session = Engine(gguf, engine_options(cfg["engine"], text.shape[1]))
    planned = plan(options, load_rules(rules), load_claims(claims), session.router["experts"], session.router["top_k"])
    rows = [item.row for item in planned if item.arm in PAPER]
    model, _ = load_model(model_cfg["path"], dtype=model_cfg["dtype"], device=model_cfg["device"], revision=model_cfg["revision"])
    found = []
    with Progress(len(rows) * len(text), "compare engine", "run", context.journal) as bar:
        for row in rows:
            emulator = Emulator(model, [row], counts, threads=1, log=True)
            session.start(row.policy, row.capacity, counts, row.seed, log=True, keep=True)
            for document, words in zip(documents["document"].tolist(), text, strict=True):
                found.append({"policy": row.name, "capacity": row.capacity, **compare(session, emulator, row, words, document)})
                bar.update()
    table = summarize(pd.DataFrame(found)).assign(
        model=model_cfg["name"], corpus=cfg["corpus"]["name"], split=options["split"], documents=len(text)
    )
    scored = text.shape[1] - 1 - FIRST_TARGET
    labels = Labels(
        model_cfg["substrate"], "own", "none", cfg["host"]["name"], "exploratory", {"documents": len(text), "tokens": len(text) * scored},
        [note for note in notes(cfg["engine"], gguf) if "bound by latency" not in note],
    )  # fmt: skip
    outputs = write_table(out / "e5_agreement.parquet", table, labels, {})
    write_run(
        out, stage=STAGE, experiment=context.experiment, name=f"engine against emulator with {model_cfg['name']}", config={**cfg, **locks},
        source_hash=context.source_hash, inputs=[gguf, engine, tokens, calibration, claims, rules, *local_files(Path(model_cfg["path"]))],
        outputs=outputs, artifacts=[outputs[1]],
        metrics={
            name: float(table[name].max() if name == "eps" else table[name].sum()) for name in ("near_ties", "following", "unexplained", "eps")
        },
        timings={"total_s": time.monotonic() - clock}, labels=labels, started=started,
    )  # fmt: skip


def compare(engine: Engine, emulator: Emulator, row: Row, tokens: NDArray[np.int64], document: int) -> dict[str, float]:
    """One stream under one policy on both tools."""
    engine.reset(document)
    engine.take_log()
    engine.take_kept()
    nll = engine.nll(tokens.tolist())
    engine.step(int(tokens[-1]))  # so that both logs hold every token
    kept, calls = engine.take_kept(), engine.take_log()["calls"]
    layers = range(kept["ids"].shape[1])
    forced = Decisions([[kept["ids"][None, :, layer]] for layer in layers], [[kept["weights"][None, :, layer]] for layer in layers])
    rounding = eps(
        _logits(emulator.whole(tokens, document, keep=True, forced=forced)), [kept["logits"][None, :, layer] for layer in layers]
    )
    emulator.take_logs()
    free = emulator.whole(tokens, document, keep=True)
    (theirs,) = emulator.take_logs()
    return {
        **judge(calls, theirs["calls"], [kept["logits"][:, layer] for layer in layers], row, rounding),
        **executed(kept, free), "eps": rounding, "nll_engine": float(nll[FIRST_TARGET:].sum()),
        "nll_emulator": float(free.nll[0][FIRST_TARGET:].sum()), "scored": len(nll) - FIRST_TARGET,
    }  # fmt: skip


def _logits(emulated: Emulated) -> list[NDArray[np.float32]]:
    """Router logits of the only row, [1, T, E] by layer."""
    assert emulated.decisions is not None
    return [layer[0] for layer in emulated.decisions.logits]


def judge(calls: Any, theirs: Any, logits: list[NDArray[Any]], row: Row, rounding: float) -> dict[str, int]:
    """Layers of the stream whose decisions differ, by what the first difference is."""
    differences = first_differences(calls, theirs, logits, row.policy)
    judged = [one for one in differences if not one.follows]
    near = sum(one.margin <= NEAR * rounding for one in judged)
    return {
        "layers": len(logits), "differing": len(differences), "near_ties": near, "following": len(differences) - len(judged),
        "unexplained": len(judged) - near,
    }  # fmt: skip


def executed(kept: dict[str, Any], free: Emulated) -> dict[str, int]:
    """Token-layers, and those in which the two execute other sets of experts."""
    assert free.decisions is not None
    theirs = np.stack([layer[0][0] for layer in free.decisions.ids], axis=1)
    other = (np.sort(theirs, -1) != np.sort(kept["ids"], -1)).any(-1)
    return {"token_layers": int(other.size), "other_sets": int(other.sum())}


def summarize(found: pd.DataFrame) -> pd.DataFrame:
    """One line a policy: counts over streams, and the relative difference of the mean NLL."""
    sums = found.groupby(["policy", "capacity"], sort=False).sum(numeric_only=True).drop(columns="eps")
    sums["eps"] = found.groupby(["policy", "capacity"], sort=False)["eps"].max()
    sums["other_share"] = sums["other_sets"] / sums["token_layers"]
    sums["nll_difference"] = sums["nll_engine"] / sums["nll_emulator"] - 1
    return sums.reset_index()
