"""Task accuracies of a model card: pilot problems answered greedily, every miss fetched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from expertmiss.errors import UserError
from expertmiss.files import sha256_file, sha256_json, write_text
from expertmiss.generate.accuracy import accuracies
from expertmiss.generate.solve import solve
from expertmiss.generate.tasks import COLUMNS, item
from expertmiss.provenance import digests
from expertmiss.sandbox import Limits, find_sandbox
from expertmiss.stages import Context

SPLIT = "pilot"


def measure_tasks(
    model: Any, tokenizer: Any, cfg: dict[str, Any], problems: Path, out: Path, context: Context
) -> dict[str, dict[str, Any]]:
    """Accuracies by task, and ``out/answers.jsonl`` with every answer; no task where the corpus has no problems.

    ``cfg``: ``model``, ``card.problems`` (most problems of each task, templates taking turns), ``generate``, ``sandbox``.

    Raises:
        UserError: the problems cannot be read, or do not fit the model.
    """
    options, limits = cfg["generate"], cfg["sandbox"]
    rows = _problems(problems)
    turn = rows.groupby("source").cumcount()
    rows = rows.assign(turn=turn, place=range(len(rows))).sort_values(["turn", "place"]).groupby("domain").head(cfg["card"]["problems"])
    items = [item({str(name): value for name, value in row.items()}) for row in rows.sort_values("place").to_dict("records")]
    caps = {"word_problems": options["word_problem_tokens"], "functions": options["function_tokens"]}
    sandbox, reason = None, "no program to run"
    if any(problem.task.scoring == "tests" for problem in items):
        allowed = Limits(seconds=limits["seconds"], memory_mib=limits["memory_mib"], processes=limits["processes"])
        sandbox, reason = find_sandbox(allowed, limits["allow_weak"])
    folder = Path(cfg["model"]["path"])
    weights = digests(sorted(folder.glob("*.safetensors")), folder.absolute()) if folder.is_dir() else {}
    key = sha256_json([cfg, context.source_hash, weights, sha256_file(problems), reason])[:16]
    answers = solve(
        model, tokenizer, items, caps=caps, batch=options["batch"], sandbox=sandbox, parts=out / ".parts" / key, journal=context.journal
    )
    write_text(out / "answers.jsonl", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in answers))
    for part in sorted((out / ".parts").rglob("*.jsonl")):
        part.unlink()
    return accuracies(answers, caps, reason)


def _problems(path: Path) -> pd.DataFrame:
    """The rows of the pilot split."""
    try:
        rows = pd.read_parquet(path)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; run build_corpus first") from None
    except (OSError, ValueError) as problem:
        reason = next(iter(str(problem).splitlines()), type(problem).__name__)
        raise UserError(f"{path}: not a readable Parquet file ({reason}); run build_corpus again") from None
    for name in COLUMNS:
        if name not in rows:
            raise UserError(f"{path}: no column '{name}'; run build_corpus again")
    return rows[rows["split"] == SPLIT]
