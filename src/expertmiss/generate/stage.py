"""Stage generate_answers: the model answers problems under every arm, closed loop.

Inputs:  ``problems.parquet``, the calibration trace (request counts of warm starts), the model's folder.
Outputs: ``answers.jsonl`` (problem x arm: a row as in :mod:`expertmiss.generate.solve`, with ``arm``, ``capacity`` and the core's ``meters``
         summed over layers), ``sandbox.json`` (what programs ran in).
Steps:   choose problems; one batch of problems x arms after the other, each saved as a part with its scores; join the parts. A killed run
         resumes at the first missing part; parts of another model, text, code or configuration are not used.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from expertmiss import policies as core
from expertmiss.emulate.rows import Row as Arm
from expertmiss.errors import UserError
from expertmiss.files import clear_parts, sha256_bytes, sha256_file, sha256_json, write_json, write_text
from expertmiss.generate.arms import ArmDecoder
from expertmiss.generate.problems import caps_of, read_items, sandbox_for
from expertmiss.generate.solve import Batch, Row, answer, batches, ending, lines, resumed
from expertmiss.models.load import load_model
from expertmiss.models.routers import router_modules
from expertmiss.provenance import write_run
from expertmiss.simulate.capacity import resident_experts
from expertmiss.stages import Context
from expertmiss.traces.capture import local_files, model_digest

STAGE = "generate_answers"
REFERENCE = "fetch_all"
METERS = ("tokens", "calls", "hits", "fetches", "substituted", "dropped", "mass", "agreement")


def run(cfg: dict[str, Any], *, out: Path, context: Context, problems: Path, calibration: Path) -> None:
    """Answer ``problems`` under ``cfg["arms"]`` into ``out``.

    ``cfg``: ``model``, ``generate``, ``sandbox``, ``arms`` (name -> policy), ``host.name``, ``corpus.name``.

    Raises:
        UserError: no reference arm, a policy that the definitions refuse, no problem, problems or a trace of another model.
    """
    started, clock = datetime.now(UTC), time.monotonic()
    model_cfg, options = cfg["model"], cfg["generate"]
    torch.set_num_threads(1)  # hundreds of small products are fastest so (see capture.threads)
    core.check_core_fresh()
    if REFERENCE not in cfg["arms"]:
        raise UserError(f"generate.arms: {REFERENCE} is missing; every difference is taken against it")
    size = options["rows"] // len(cfg["arms"])
    if size < 1:
        raise UserError(f"generate.rows: {options['rows']} rows do not hold {len(cfg['arms'])} arms of one problem; use more")
    items = read_items(problems, options["split"], options["problems"])
    if not items:
        raise UserError(f"{problems}: this corpus has no problems with answers; use corpus=builtin")
    model, tokenizer = load_model(model_cfg["path"], dtype=model_cfg["dtype"], device=model_cfg["device"], revision=model_cfg["revision"])
    digest = model_digest(Path(model_cfg["path"]), model_cfg["revision"])
    counts = core.calibration_counts(calibration, model_cfg["path"], digest)
    router = router_modules(model)[0]
    capacity = resident_experts(options["residency"], router.experts, router.top_k)
    names = [REFERENCE, *(name for name in cfg["arms"] if name != REFERENCE)]
    decoder = ArmDecoder(model, [Arm(name, cfg["arms"][name], capacity) for name in names], size, counts, threads=options["threads"])
    sandbox, reason = sandbox_for(items, cfg["sandbox"])
    caps = caps_of(options)

    def decode(batch: Batch) -> list[Row]:
        made = decoder.run(
            batch.prompts, [item.number for item in batch.items], cap=caps[batch.task], eos=tokenizer.eos_token_id, ended=ending(batch.items, tokenizer)
        )  # fmt: skip
        return [
            {
                **answer(item, one.tokens, tokenizer, sandbox), "arm": arm, "capacity": capacity,
                "meters": {name: one.meters[name].sum().item() for name in METERS},
            }
            for item, arms in zip(batch.items, made, strict=True)
            for arm, one in zip(names, arms, strict=True)
        ]  # fmt: skip

    key = sha256_json([cfg, context.source_hash, digest, sha256_file(problems), sha256_bytes(counts.tobytes()), reason])[:16]
    rows = resumed(batches(model, tokenizer, items, caps, size), decode, out / ".parts" / key, len(items), context.journal)
    generated = time.monotonic() - clock
    write_text(out / "answers.jsonl", lines(rows))
    write_json(out / "sandbox.json", {"sandbox": reason, "limits": cfg["sandbox"]})
    tokens = sum(len(row["tokens"]) for row in rows)
    outputs = [out / "answers.jsonl", out / "sandbox.json"]
    write_run(
        out, stage=STAGE, experiment=context.experiment, name=f"answers of {model_cfg['name']} under {len(names)} arms, {options['split']} problems",
        config=cfg, source_hash=context.source_hash, inputs=[problems, calibration, *local_files(Path(model_cfg["path"]))], outputs=outputs,
        artifacts=outputs, metrics={"problems": len(items), "arms": len(names), "tokens": tokens, "tokens_per_second": tokens / generated},
        timings={"generate_s": generated, "total_s": time.monotonic() - clock}, started=started,
        labels={
            "substrate": model_cfg["substrate"], "routing": "own", "time": "none", "host": cfg["host"]["name"], "status": "exploratory",
            "n": {"problems": len(items), "templates": len({item.source for item in items})},
            "notes": ["closed loop; synthetic tasks in the form of GSM8K and HumanEval", f"programs: {reason}"],
        },
    )  # fmt: skip
    clear_parts(out)
