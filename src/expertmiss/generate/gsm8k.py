"""Problems in the schema of GSM8K (``question``; ``answer`` that ends in ``#### number``), from a hub or from a local JSONL file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from expertmiss.errors import UserError
from expertmiss.generate.extract import strict

PROMPT = Path(__file__).parent / "prompts" / "gsm8k.txt"


def rows(task: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Rows of ``problems.parquet``, one a problem, each a source of its own.

    Args:
        task: ``name``, and ``file`` or ``path``, ``configuration``, ``revision``, ``split``.

    Raises:
        UserError: neither file nor hub name; the file or the hub cannot be read; a line without question or marked answer.
    """
    prompt = PROMPT.read_text(encoding="utf-8")
    where = task["file"] or task["path"]
    if not where:
        raise UserError(f"task {task['name']}: names neither a file nor a data set; set file or path in config/task/{task['name']}.yaml")
    found = _local(Path(task["file"])) if task["file"] else _hub(task)
    for number, row in enumerate(found, 1):
        question, solution = (row.get(name) for name in ("question", "answer"))
        answer = strict(solution) if isinstance(solution, str) else None
        if not isinstance(question, str) or answer is None:
            raise UserError(
                f"{where}: problem {number} has no 'question' or no 'answer' with '#### number'; give data in the schema of GSM8K"
            )
        name = f"{task['name']}/{number - 1}"
        yield {
            "problem": name, "split": task["split"], "domain": task["name"], "source": name, "prompt": prompt.replace("{question}", question.strip()),
            "answer": answer, "tests": "[]", "entry_point": "",
        }  # fmt: skip


def _local(path: Path) -> Iterator[dict[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise UserError(f"{path}: cannot be read ({type(problem).__name__}); name a JSONL file with question and answer") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                raise UserError(f"{path}: line {number} is not JSON; give one object a line with question and answer") from None
            if not isinstance(row, dict):
                raise UserError(f"{path}: line {number} is no object; give one object a line with question and answer")
            yield row


def _hub(task: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    name = task["path"]
    instead = f"or name a local JSONL file in config/task/{task['name']}.yaml (file)"
    try:
        import datasets  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise UserError(f"task {task['name']}: needs the package 'datasets'; pip install 'expertmiss[hub]', {instead}") from None
    try:
        found: Iterable[dict[str, Any]] = datasets.load_dataset(name, task["configuration"], split=task["split"], revision=task["revision"])
    except Exception as problem:  # the hub's client raises many kinds; all mean that the data set cannot be had
        reason = (str(problem).splitlines() or [type(problem).__name__])[0]
        raise UserError(f"task {task['name']}: '{name}' cannot be loaded ({reason}); check its name and the network, {instead}") from None
    return found
