"""Stage generate_answers: the model answers problems under every arm, closed loop.

Inputs:  ``problems.parquet`` of build_tasks, the calibration trace (request counts of warm starts), the model's folder, prereg/ (lock, plan); where the
         engine answers (``generate.run_on``) also the model's GGUF file and the engine's build.
Outputs: ``answers.jsonl`` (problem x arm x sample: a row as in :mod:`expertmiss.generate.solve`, with ``arm``, ``sample``, ``capacity``, the core's
         ``meters`` summed over layers, and ``masses``: substituted mass of every decode step, mean over layers), ``sandbox.json`` (what programs ran in).
Steps:   compare problems, model and arms with the lock, if there is one; one batch of problems x arms after the other, each saved as a part with its
         scores; join the parts. A killed run resumes at the first missing part; parts of another model, text, code or configuration are not used.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from expertmiss import policies as core
from expertmiss.emulate.rows import Row as Arm
from expertmiss.engine.session import Engine, engine_options
from expertmiss.errors import UserError
from expertmiss.experiments.lock import CHANGED, Standing
from expertmiss.files import clear_parts, sha256_bytes, sha256_file, sha256_json, write_json, write_text
from expertmiss.generate.arms import ArmDecoder
from expertmiss.generate.build import described
from expertmiss.generate.decode import drawn, most_probable
from expertmiss.generate.on_engine import EngineDecoder
from expertmiss.generate.plan import NONE, standing_of
from expertmiss.generate.problems import caps_of, items_of, read_problems, sandbox_for
from expertmiss.generate.solve import Batch, Row, batches, ending, lines, resumed, scored
from expertmiss.models.load import load_model
from expertmiss.models.routers import router_modules
from expertmiss.paths import project_root
from expertmiss.provenance import write_run
from expertmiss.simulate.capacity import resident_experts
from expertmiss.stages import Context
from expertmiss.traces.capture import local_files, model_digest

STAGE = "generate_answers"
REFERENCE = "fetch_all"
METERS = ("tokens", "calls", "hits", "fetches", "substituted", "dropped", "mass", "agreement")


def run(
    cfg: dict[str, Any], *, out: Path, context: Context, problems: Path, calibration: Path, gguf: Path | None = None, engine: Path | None = None,
    lock: str = NONE,
) -> None:  # fmt: skip
    """Answer ``problems`` under ``cfg["arms"]`` into ``out``.

    ``cfg``: ``model``, ``generate`` (``run_on``, ``residency``, ``samples``, ``temperature``, ``seed``, ``rows``, ``threads``), ``engine`` (where it answers), ``tasks``, ``sandbox``,
    ``arms`` (name -> policy), ``host.name``, ``corpus.name``, ``profile``. ``gguf`` and ``engine`` (the build's ``build.json``): if the engine decodes.
    ``lock``: digest of the locked plan that this run is made under, or ``none``.

    Raises:
        UserError: no reference arm, a policy that the definitions refuse, problems or a trace of another model; under a lock, whatever differs from it.
    """
    started, clock = datetime.now(UTC), time.monotonic()
    model_cfg, options, tasks = cfg["model"], cfg["generate"], cfg["tasks"]
    torch.set_num_threads(1)  # hundreds of small products are fastest so (see capture.threads)
    core.check_core_fresh()
    if REFERENCE not in cfg["arms"]:
        raise UserError(f"generate.arms: {REFERENCE} is missing; every difference is taken against it")
    size = options["rows"] // len(cfg["arms"])
    if size < 1:
        raise UserError(f"generate.rows: {options['rows']} rows do not hold {len(cfg['arms'])} arms of one problem; use more")
    table = read_problems(problems, "build_tasks")
    digest = model_digest(Path(model_cfg["path"]), model_cfg["revision"])
    standing = standing_of(project_root(), lock, cfg, table, digest)
    items = items_of(table, {name: task["primary"] for name, task in tasks.items()})
    model, tokenizer = load_model(model_cfg["path"], dtype=model_cfg["dtype"], device=model_cfg["device"], revision=model_cfg["revision"])
    counts = core.calibration_counts(calibration, model_cfg["path"], digest)
    routers = router_modules(model)
    capacity = resident_experts(options["residency"], routers[0].experts, routers[0].top_k, "generate.residency")
    names = [REFERENCE, *(name for name in cfg["arms"] if name != REFERENCE)]
    arms, caps = [Arm(name, cfg["arms"][name], capacity) for name in names], caps_of(tasks)
    planned = batches(model, tokenizer, items, caps, size, options["samples"])
    decoder: ArmDecoder | EngineDecoder
    if options["run_on"] == "engine":
        if gguf is None or engine is None:
            raise UserError("generate_answers: the engine answers (generate.run_on), so --input gguf=... and --input engine=... are needed")
        longest = max(len(prompt) + caps[batch.task] for batch in planned for prompt in batch.prompts)
        decoder = EngineDecoder(Engine(gguf, engine_options(cfg["engine"], longest)), arms, counts, log=True)
    else:
        decoder = ArmDecoder(model, arms, size, counts, threads=options["threads"], log=True)
    sandbox, reason = sandbox_for(items, cfg["sandbox"])

    def decode(batch: Batch) -> list[Row]:
        keys = [(options["seed"], item.number, batch.sample) for item in batch.items]
        made = decoder.run(
            batch.prompts, [item.number for item in batch.items], cap=caps[batch.task], eos=tokenizer.eos_token_id, ended=ending(batch.items, tokenizer),
            pick=drawn(options["temperature"], keys) if options["temperature"] else most_probable,
        )  # fmt: skip
        flat = [(item, arm, one) for item, arms in zip(batch.items, made, strict=True) for arm, one in zip(names, arms, strict=True)]
        rows = scored([(item, one.tokens) for item, _, one in flat], tokenizer, sandbox)
        return [
            {
                **row, "arm": arm, "sample": batch.sample, "capacity": capacity, "meters": {name: one.meters[name].sum().item() for name in METERS},
                "masses": [round(mass, 6) for mass in one.masses(len(routers))],
            }
            for row, (_, arm, one) in zip(rows, flat, strict=True)
        ]  # fmt: skip

    built = [path for path in (gguf, engine) if path is not None]
    key = sha256_json(
        [
            cfg,
            context.source_hash,
            digest,
            sha256_file(problems),
            sha256_bytes(counts.tobytes()),
            reason,
            [sha256_file(path) for path in built],
        ]
    )[:16]
    rows = resumed(planned, decode, out / ".parts" / key, len(items) * options["samples"], context.journal)
    generated = time.monotonic() - clock
    write_text(out / "answers.jsonl", lines(rows))
    write_json(out / "sandbox.json", {"sandbox": reason, "limits": cfg["sandbox"]})
    tokens = sum(len(row["tokens"]) for row in rows)
    outputs = [out / "answers.jsonl", out / "sandbox.json"]
    write_run(
        out, stage=STAGE, experiment=context.experiment, name=f"answers of {model_cfg['name']} under {len(names)} arms: {', '.join(tasks)}",
        config={**cfg, "lock": lock}, source_hash=context.source_hash, inputs=[problems, calibration, *local_files(Path(model_cfg["path"])), *built],
        outputs=outputs, artifacts=outputs,
        metrics={"problems": len(items), "arms": len(names), "tokens": tokens, "tokens_per_second": tokens / generated},
        timings={"generate_s": generated, "total_s": time.monotonic() - clock}, started=started,
        labels=labels_of(cfg, standing, {"problems": len(items), "templates": int(table["source"].nunique())}, reason),
    )  # fmt: skip
    clear_parts(out)


def labels_of(cfg: Mapping[str, Any], standing: Standing | None, n: dict[str, int], programs: str) -> dict[str, Any]:
    """Labels of what is generated: confirmatory under an unchanged lock, exploratory else."""
    decoding = "greedy" if not cfg["generate"]["temperature"] else f"drawn at temperature {cfg['generate']['temperature']:g}"
    made_by = "emulator"
    if cfg["generate"]["run_on"] == "engine":
        made_by = "engine, {type}, store {store}, device {device}".format(**cfg["engine"])
    notes = ["closed loop", made_by, decoding, *(described(task) for task in cfg["tasks"].values()), f"programs: {programs}"]
    if standing is not None:
        notes += [f"lock {standing.digest[:12]}", *([CHANGED] if standing.status == CHANGED else [])]
    return {
        "substrate": cfg["model"]["substrate"], "routing": "own", "time": "none", "host": cfg["host"]["name"],
        "status": "confirmatory" if standing is not None and standing.status != CHANGED else "exploratory", "n": n, "notes": notes,
    }  # fmt: skip
