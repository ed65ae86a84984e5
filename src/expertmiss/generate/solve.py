"""Greedy answers to problems, batch by batch; a killed run resumes at the first batch that is missing.

An answer is a plain row: ``problem``, ``task``, ``source``, ``tokens`` (the continuation), ``text`` (cut where the answer ends), ``finish``
(``ended``, ``eos`` or ``cap``: truncated), ``answers`` (by extraction rule) and ``correct`` by scoring rule (None: not measured),
``status`` (what became of a program).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
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


def solve(
    model: Any, tokenizer: Any, items: Sequence[Item], *, caps: Mapping[str, int], batch: int, sandbox: Sandbox | None, parts: Path, journal: Path | None
) -> list[Row]:  # fmt: skip
    """Answers to all ``items``, task after task, shorter prompts first.

    Args:
        caps: most tokens of an answer, by task.
        batch: problems decoded together.
        sandbox: where programs are run; None: they are not, and their ``correct`` is None.
        parts: folder of finished batches; only batches of the same model, problems and options may lie in it.

    Raises:
        UserError: a prompt with its answer does not fit the model's positions.
    """
    prompts = dict(zip((item.problem for item in items), encoded(tokenizer, [item.prompt for item in items]), strict=True))
    start, eos = start_token(tokenizer), tokenizer.eos_token_id
    most = getattr(model.config, "max_position_embeddings", None)
    rows: list[Row] = []
    with Progress(len(items), "solve problems", "problem", journal) as bar:
        for task in dict.fromkeys(item.task.name for item in items):
            mine = sorted((item for item in items if item.task.name == task), key=lambda item: (len(prompts[item.problem]), item.problem))
            longest = 1 + len(prompts[mine[-1].problem]) + caps[task]
            if most is not None and longest > most:
                raise UserError(
                    f"{mine[-1].problem}: prompt and answer need {longest} tokens, the model reads {most}; lower the cap of task {task}"
                )
            solved: list[Row] = []
            for index, begin in enumerate(range(0, len(mine), batch)):
                chosen = mine[begin : begin + batch]
                part = parts / f"{task}-{index:05d}.jsonl"
                if part.is_file():
                    found = [json.loads(line) for line in part.read_text(encoding="utf-8").splitlines()]
                else:
                    made = greedy(
                        model, [[start, *prompts[item.problem]] for item in chosen], cap=caps[task], eos=eos, ended=_ending(chosen, tokenizer, eos)
                    )  # fmt: skip
                    found = [answer(item, ids, _text(tokenizer, ids, eos), eos, sandbox) for item, ids in zip(chosen, made, strict=True)]
                    write_text(part, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found))
                solved += found
                right = [row["correct"][chosen[0].task.primary] for row in solved]
                bar.update(len(found), **({} if None in right else {"accuracy": f"{task} {sum(right) / len(right):.2f}"}))
            rows += solved
    return rows


def _ending(items: Sequence[Item], tokenizer: Any, eos: int | None) -> Callable[[int, list[int]], bool]:
    return lambda row, ids: items[row].task.cut(_text(tokenizer, ids, eos)) is not None


def _text(tokenizer: Any, ids: list[int], eos: int | None) -> str:
    return str(tokenizer.decode([token for token in ids if token != eos], clean_up_tokenization_spaces=False))


def answer(item: Item, ids: list[int], text: str, eos: int | None, sandbox: Sandbox | None) -> Row:
    """The scored row of one continuation ``ids`` that reads ``text``."""
    cut = item.task.cut(text)
    finish = "ended" if cut is not None else "eos" if ids[-1] == eos else "cap"
    text = text if cut is None else cut
    row: Row = {"problem": item.problem, "task": item.task.name, "source": item.source, "tokens": ids, "text": text, "finish": finish}
    if item.task.scoring == "answer":
        given = {name: rule(text) for name, rule in EXTRACTIONS.items()}
        return {**row, "answers": given, "correct": {name: same_answer(found, item.answer) for name, found in given.items()}, "status": ""}
    outcome = None if sandbox is None else sandbox.run(item.prompt + text, item.tests)
    return {**row, "answers": {}, "correct": {PASS_AT_1: outcome and outcome.passed}, "status": outcome.status if outcome else ""}
