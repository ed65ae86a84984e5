"""Task accuracies of a model card: pilot problems answered greedily, every miss fetched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from expertmiss.files import sha256_file, sha256_json, write_text
from expertmiss.generate.accuracy import accuracies
from expertmiss.generate.problems import caps_of, read_items, sandbox_for
from expertmiss.generate.solve import lines, solve
from expertmiss.provenance import digests
from expertmiss.stages import Context

SPLIT = "pilot"


def measure_tasks(
    model: Any, tokenizer: Any, cfg: dict[str, Any], problems: Path, out: Path, context: Context
) -> dict[str, dict[str, Any]]:
    """Accuracies by task, and ``out/answers.jsonl`` with every answer; no task where the corpus has no problems.

    ``cfg``: ``model``, ``card.problems`` (most problems of each task), ``generate.batch``, ``scored_tasks``, ``sandbox``.

    Raises:
        UserError: the problems cannot be read, or do not fit the model.
    """
    items = read_items(problems, SPLIT, cfg["card"]["problems"])
    caps = caps_of(cfg["scored_tasks"])
    sandbox, reason = sandbox_for(items, cfg["sandbox"])
    folder = Path(cfg["model"]["path"])
    weights = digests(sorted(folder.glob("*.safetensors")), folder.absolute()) if folder.is_dir() else {}
    key = sha256_json([cfg, context.source_hash, weights, sha256_file(problems), reason])[:16]
    answers = solve(
        model, tokenizer, items, caps=caps, batch=cfg["generate"]["batch"], sandbox=sandbox, parts=out / ".parts" / key, journal=context.journal
    )  # fmt: skip
    write_text(out / "answers.jsonl", lines(answers))
    return accuracies(answers, caps, reason)
