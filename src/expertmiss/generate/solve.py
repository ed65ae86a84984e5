"""Greedy answers to problems, batch by batch; a killed run resumes at the first batch that is missing.

An answer is a plain row: ``problem``, ``task``, ``source``, ``tokens`` (the continuation), ``text`` (cut where the answer ends), ``finish``
(``ended``, ``eos`` or ``cap``: truncated), ``answers`` (by extraction rule) and ``correct`` by scoring rule (None: not measured),
``status`` (what became of a program).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from expertmiss.corpora.tokenizer import encoded, start_token
from expertmiss.errors import UserError
from expertmiss.files import write_text
from expertmiss.generate.decode import greedy
from expertmiss.generate.extract import EXTRACTIONS, same_answer
from expertmiss.generate.tasks import PASS_AT_1, Item
from expertmiss.progress import Progress
from expertmiss.sandbox import Sandbox

Row = dict[str, Any]


@dataclass(frozen=True)
class Batch:
    """Problems of one task that are decoded together: its number within the task, the items and their prompts' tokens."""

    task: str
    index: int
    items: list[Item]
    prompts: list[list[int]]

    @property
    def name(self) -> str:
        """Name of its part of the results."""
        return f"{self.task}-{self.index:05d}.jsonl"


def batches(model: Any, tokenizer: Any, items: Sequence[Item], caps: Mapping[str, int], size: int) -> list[Batch]:
    """Batches of at most ``size`` problems, task after task, shorter prompts first (little padding).

    Raises:
        UserError: a prompt with its answer does not fit the model's positions.
    """
    prompts = dict(zip((item.problem for item in items), encoded(tokenizer, [item.prompt for item in items]), strict=True))
    start, most = start_token(tokenizer), getattr(model.config, "max_position_embeddings", None)
    found = []
    for task in dict.fromkeys(item.task.name for item in items):
        mine = sorted((item for item in items if item.task.name == task), key=lambda item: (len(prompts[item.problem]), item.problem))
        longest = 1 + len(prompts[mine[-1].problem]) + caps[task]
        if most is not None and longest > most:
            raise UserError(
                f"{mine[-1].problem}: prompt and answer need {longest} tokens, the model reads {most}; lower the cap of task {task}"
            )
        for index, begin in enumerate(range(0, len(mine), size)):
            chosen = mine[begin : begin + size]
            found.append(Batch(task, index, chosen, [[start, *prompts[item.problem]] for item in chosen]))
    return found


def solve(
    model: Any, tokenizer: Any, items: Sequence[Item], *, caps: Mapping[str, int], batch: int, sandbox: Sandbox | None, parts: Path, journal: Path | None
) -> list[Row]:  # fmt: skip
    """Lossless answers to all ``items``, task after task.

    Args:
        caps: most tokens of an answer, by task.
        batch: problems decoded together.
        sandbox: where programs are run; None: they are not, and their ``correct`` is None.
        parts: folder of finished batches; only batches of the same model, problems and options may lie in it.

    Raises:
        UserError: as :func:`batches`.
    """
    eos = tokenizer.eos_token_id

    def decode(chosen: Batch) -> list[Row]:
        made = greedy(model, chosen.prompts, cap=caps[chosen.task], eos=eos, ended=ending(chosen.items, tokenizer))
        return [answer(item, ids, tokenizer, sandbox) for item, ids in zip(chosen.items, made, strict=True)]

    return resumed(batches(model, tokenizer, items, caps, batch), decode, parts, len(items), journal)


def resumed(planned: Sequence[Batch], decode: Callable[[Batch], list[Row]], parts: Path, problems: int, journal: Path | None) -> list[Row]:
    """Rows of all batches; those of a batch that lies in ``parts`` are read, those of the others made and written."""
    rows: list[Row] = []
    with Progress(problems, "solve problems", "problem", journal) as bar:
        for chosen in planned:
            part = parts / chosen.name
            if part.is_file():
                found = [json.loads(line) for line in part.read_text(encoding="utf-8").splitlines()]
            else:
                found = decode(chosen)
                write_text(part, lines(found))
            rows += found
            right = [row["correct"][chosen.items[0].task.primary] for row in rows if row["task"] == chosen.task]
            bar.update(len(chosen.items), **({} if None in right else {"accuracy": f"{chosen.task} {sum(right) / len(right):.2f}"}))
    return rows


def lines(rows: Sequence[Row]) -> str:
    """JSON lines."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def ending(items: Sequence[Item], tokenizer: Any) -> Callable[[int, list[int]], bool]:
    """Whether the continuation of item ``row`` is complete, for :func:`expertmiss.generate.decode.greedy`."""
    return lambda row, ids: items[row].task.cut(_text(tokenizer, ids)) is not None


def _text(tokenizer: Any, ids: list[int]) -> str:
    kept = [token for token in ids if token != tokenizer.eos_token_id]
    return str(tokenizer.decode(kept, clean_up_tokenization_spaces=False))


def answer(item: Item, ids: list[int], tokenizer: Any, sandbox: Sandbox | None) -> Row:
    """The scored row of one continuation."""
    text = _text(tokenizer, ids)
    cut = item.task.cut(text)
    finish = "ended" if cut is not None else "eos" if ids[-1] == tokenizer.eos_token_id else "cap"
    text = text if cut is None else cut
    row: Row = {"problem": item.problem, "task": item.task.name, "source": item.source, "tokens": ids, "text": text, "finish": finish}
    if item.task.scoring == "answer":
        given = {name: rule(text) for name, rule in EXTRACTIONS.items()}
        return {**row, "answers": given, "correct": {name: same_answer(found, item.answer) for name, found in given.items()}, "status": ""}
    outcome = None if sandbox is None else sandbox.run(item.prompt + text, item.tests)
    return {**row, "answers": {}, "correct": {PASS_AT_1: outcome and outcome.passed}, "status": outcome.status if outcome else ""}
