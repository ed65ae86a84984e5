"""Stage run_engine: the engine decodes streams under every policy of E5, teacher-forced and token by token.

Inputs:  the model's GGUF file, the compiled engine, ``tokens.parquet``, the calibration trace (request counts of warm starts), the locked claims
         and rules.
Outputs: ``cells.parquet`` (policy x stream: NLL and meters, as emulate_policies writes them), ``times.parquet`` (policy x capacity x stream x
         repeat: seconds and bytes by part, NLL).
Steps:   check the locks; plan the rows; one part a (stream, repeat): all policies one after another in an order that turns round from one repeat to
         the next, perplexity and time of the same run; join the parts. A killed run resumes at the first missing part.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from expertmiss import policies as core
from expertmiss.engine.calibrate import refuse_assumed
from expertmiss.engine.reads import expert_blocks
from expertmiss.engine.session import Engine, engine_options
from expertmiss.errors import UserError
from expertmiss.evaluation import FIRST_TARGET
from expertmiss.experiments.about import about_rows
from expertmiss.experiments.e5.plan import CELL, due, load_rules, order, plan
from expertmiss.experiments.lock import verify
from expertmiss.experiments.plans import Planned, load_claims
from expertmiss.files import atomic_path, clear_parts, sha256_bytes, sha256_file, sha256_json
from expertmiss.labelled import write_labelled
from expertmiss.paths import project_root
from expertmiss.progress import Progress
from expertmiss.provenance import Labels, write_run
from expertmiss.stages import Context
from expertmiss.traces.capture import choose_documents, equal_rows, is_whole, model_digest, read_tokens

STAGE = "run_engine"
SECONDS = ("wall", "compute", "waiting", "policy", "background")
BYTES = ("fetch_bytes", "admission_bytes")
COLUMNS = {name: "deciding" if name == "policy" else name for name in (*SECONDS, *BYTES)}
"""Names in the tables, where ``policy`` is the policy's name and ``deciding`` its core's seconds."""
SMALL_READ = 256 << 10
"""Bytes of a read below which its time is mostly latency, on any disk."""


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
    """Run the rows of E5 into ``out``.

    ``cfg``: ``model``, ``host``, ``corpus.name``, ``engine``, ``e5``. ``engine`` is the build's ``build.json``.

    Raises:
        UserError: a lock does not hold, the engine is not built or refuses the model, an assumed host, a trace of another model.
    """
    started, clock = datetime.now(UTC), time.monotonic()
    locks = {"claims_lock": verify(project_root(), "claims", claims), "e5_lock": verify(project_root(), "e5", rules)}
    refuse_assumed(cfg["host"])
    core.check_core_fresh()
    model_cfg, options = cfg["model"], cfg["e5"]
    documents, text = streams(tokens, options)
    counts = core.calibration_counts(calibration, model_cfg["path"], model_digest(Path(model_cfg["path"]), model_cfg["revision"]))
    session = Engine(gguf, engine_options(cfg["engine"], text.shape[1]))
    rows = plan(options, load_rules(rules), load_claims(claims), session.router["experts"], session.router["top_k"])
    key = sha256_json(
        [
            cfg,
            context.source_hash,
            locks,
            sha256_file(gguf),
            sha256_file(engine),
            sha256_bytes(text.tobytes()),
            sha256_bytes(counts.tobytes()),
        ]
    )
    parts = out / ".parts" / key[:16]
    pairs = [(stream, repeat) for repeat in range(options["repeats"]) for stream in range(len(text))]
    chosen = {pair: due(rows, *pair, options["timed_documents"]) for pair in pairs}
    with Progress(sum(map(len, chosen.values())) * text.shape[1], "engine e5", "tok", context.journal) as bar:
        for pair in pairs:
            part = parts / "{:05d}_{:02d}.safetensors".format(*pair)
            if not is_whole(part):
                places = order(len(rows), chosen[pair], *pair)
                found = [decode(session, rows[place], counts, text[pair[0]], int(documents["document"].iloc[pair[0]])) for place in places]
                with atomic_path(part) as temporary:
                    save_file({"row": places.copy(), **{name: np.stack([one[name] for one in found]) for name in found[0]}}, temporary)
            bar.update(len(chosen[pair]) * text.shape[1])
    joined = {pair: load_file(parts / "{:05d}_{:02d}.safetensors".format(*pair)) for pair in pairs}
    about = about_rows(rows, model_cfg["name"], cfg["corpus"]["name"], options["split"], "e5")
    labels = Labels(
        model_cfg["substrate"], "own", "measured", cfg["host"]["name"], "exploratory",
        {
            "documents": len(documents), "sources": int(documents["source"].nunique()), "pairs": len(pairs),
            "tokens": int(len(documents) * (text.shape[1] - 1 - FIRST_TARGET)),
        },
        notes(cfg["engine"], gguf),
    )  # fmt: skip
    times = times_table(joined, about, documents)
    write_labelled(out / "times.parquet", times, labels, {})
    write_labelled(out / "cells.parquet", cells_table(joined, rows, about, documents), labels, {})
    seconds = time.monotonic() - clock
    write_run(
        out, stage=STAGE, experiment=context.experiment, name=f"engine e5 with {model_cfg['name']} on {cfg['corpus']['name']}",
        config={**cfg, **locks}, source_hash=context.source_hash, inputs=[gguf, engine, tokens, calibration, claims, rules],
        outputs=[out / "cells.parquet", out / "times.parquet"],
        metrics={
            "rows": len(rows), "pairs": len(pairs), "differences": int(times["differences"].sum()), "nll_between_repeats": repeat_spread(times),
        },
        timings={"total_s": seconds}, labels=labels, started=started,
    )  # fmt: skip
    clear_parts(out)


def streams(tokens: Path, options: dict[str, Any]) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """The documents of E5 and their token ids [N, T], cut to ``e5.tokens``.

    Raises:
        UserError: the split holds none, or they are too short to be scored.
    """
    documents = choose_documents(read_tokens(tokens), options["split"], options["documents"], tokens).reset_index(drop=True)
    text = equal_rows(documents, tokens)[0][:, : options["tokens"]].copy()
    if text.shape[1] <= FIRST_TARGET + 1:
        raise UserError(f"{tokens}: streams of {text.shape[1]} tokens have no target after the first {FIRST_TARGET}; use longer ones")
    return documents, text


def notes(options: dict[str, Any], gguf: Path) -> list[str]:
    """What has to be known beside a time of this run."""
    blocks = expert_blocks(gguf)[0, 0, :, 1]
    found = ["closed loop", f"engine, {options['type']}, store {options['store']}, device {options['device']}, landing scheduled"]
    if blocks.max() < SMALL_READ:
        found.append(f"times are bound by latency: reads of {blocks.max() / 1024:.0f} KiB")
    if options["device"].startswith("rpc:"):
        found.append("not a GPU timing")
    return found


def decode(engine: Engine, item: Planned, counts: NDArray[np.int64], tokens: NDArray[np.int64], document: int) -> dict[str, NDArray[Any]]:
    """One stream under one policy, from its warm start: ``nll`` [T - 1], seconds and bytes of every token [T - 1], meters summed over layers."""
    engine.start(item.row.policy, item.row.capacity, counts, item.row.seed)
    engine.reset(document)
    engine.take_times()
    nll = engine.nll(tokens.tolist())
    times = engine.take_times()
    assert len(times["wall"]) == len(nll)
    meters = {f"meters.{name}": np.asarray(values.sum()) for name, values in engine.meters().items()}
    return {
        "nll": nll, **{name: times[name] for name in (*SECONDS, *BYTES)}, **meters,
        "differences": np.asarray(engine.traffic()["differences"], np.int64),
    }  # fmt: skip


def times_table(joined: dict[tuple[int, int], dict[str, NDArray[Any]]], about: pd.DataFrame, documents: pd.DataFrame) -> pd.DataFrame:
    """One line a run: sums over its tokens, the first ones left out as in every NLL."""
    frames = []
    for (stream, repeat), part in joined.items():
        who = documents.iloc[stream]
        sums = {column: part[name][:, FIRST_TARGET:].sum(axis=1) for name, column in ({"nll": "nll"} | COLUMNS).items()}
        frames.append(
            about.iloc[part["row"]].reset_index(drop=True).assign(
                document=int(who["document"]), domain=who["domain"], source=who["source"], repeat=repeat, place=np.arange(len(part["row"])),
                tokens=part["nll"].shape[1] - FIRST_TARGET, differences=part["differences"], **sums,
            )
        )  # fmt: skip
    return pd.concat(frames, ignore_index=True)


def cells_table(
    joined: dict[tuple[int, int], dict[str, NDArray[Any]]], rows: list[Planned], about: pd.DataFrame, documents: pd.DataFrame
) -> pd.DataFrame:
    """NLL and meters of the rows at the claims' capacity, one line a policy and stream, from the first repeat."""
    frames = []
    for (stream, repeat), part in joined.items():
        if repeat > 0:
            continue
        who = documents.iloc[stream]
        kept = np.array([rows[row].arm != CELL for row in part["row"]])
        meters = {name.partition(".")[2]: values[kept] for name, values in part.items() if name.startswith("meters.")}
        meters["capacity_misses"], meters["token_layers"] = meters.pop("capacity"), meters.pop("tokens")
        meters.setdefault("kl", np.full(kept.sum(), np.nan))  # the engine does not sum it
        frames.append(
            about.iloc[part["row"][kept]].reset_index(drop=True).assign(
                document=int(who["document"]), domain=who["domain"], source=who["source"], **meters, tokens=part["nll"].shape[1] + 1,
                nll=part["nll"][kept, FIRST_TARGET:].sum(axis=1), scored=part["nll"].shape[1] - FIRST_TARGET,
            )
        )  # fmt: skip
    table: pd.DataFrame = pd.concat(frames, ignore_index=True).sort_values(["row", "document"], ignore_index=True)
    return table


def repeat_spread(times: pd.DataFrame) -> float:
    """Largest difference of a run's NLL between repeats, nats over the whole stream: zero where decisions do not depend on time."""
    grouped = times.groupby(["row", "document"])["nll"]
    return float((grouped.max() - grouped.min()).max())
