"""Answers to problems, batch by batch; a killed run resumes at the first batch that is missing.

An answer is a plain row: ``problem``, ``task``, ``source``, ``tokens`` (the continuation), ``text`` (cut where the answer ends), ``finish``
(``ended``, ``eos`` or ``cap``: truncated), ``answers`` (by extraction rule) and ``correct`` by scoring rule, the primary one first (None: not measured),
``status`` (what became of a program).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
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
from expertmiss.sandbox import Outcome, Sandbox

Row = dict[str, Any]


@dataclass(frozen=True)
class Batch:
    """Problems of one task that are decoded together: its number within the task, the items and their prompts' tokens.

    ``sample`` counts the answers to a problem, from 0.
    """

    task: str
    index: int
    items: list[Item]
    prompts: list[list[int]]
    sample: int = 0

    @property
    def name(self) -> str:
        """Name of its part of the results."""
        return f"{self.task}-{self.sample:03d}-{self.index:05d}.jsonl"


def prompt_tokens(tokenizer: Any, items: Sequence[Item]) -> list[list[int]]:
    """Token ids of what each item asks: start token and prompt, or the tokenizer's chat template where it has one.

    In a chat an item with a ``request`` is asked for by it, and the prompt is what the model's own turn begins with.
    """
    if getattr(tokenizer, "chat_template", None):
        return [_chat_tokens(tokenizer, item) for item in items]
    start = start_token(tokenizer)
    return [[start, *ids] for ids in encoded(tokenizer, [item.prompt for item in items])]


def _chat_tokens(tokenizer: Any, item: Item) -> list[int]:
    turns = [{"role": "user", "content": item.task.request or item.prompt}]
    if item.task.request:
        turns.append({"role": "assistant", "content": item.prompt})
        text = tokenizer.apply_chat_template(turns, tokenize=False, continue_final_message=True)
    else:
        text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    return [int(token) for token in tokenizer(text, add_special_tokens=False)["input_ids"]]


def batches(model: Any, tokenizer: Any, items: Sequence[Item], caps: Mapping[str, int], size: int, samples: int = 1) -> list[Batch]:
    """Batches of at most ``size`` problems, task after task, shorter prompts first (little padding), then the next sample.

    Raises:
        UserError: a prompt with its answer does not fit the model's positions.
    """
    prompts = dict(zip((item.problem for item in items), prompt_tokens(tokenizer, items), strict=True))
    most = getattr(model.config, "max_position_embeddings", None)
    found = []
    for task in dict.fromkeys(item.task.name for item in items):
        mine = sorted((item for item in items if item.task.name == task), key=lambda item: (len(prompts[item.problem]), item.problem))
        longest = len(prompts[mine[-1].problem]) + caps[task]
        if most is not None and longest > most:
            raise UserError(
                f"{mine[-1].problem}: prompt and answer need {longest} tokens, the model reads {most}; lower the cap of task {task}"
            )
        for sample in range(samples):
            for index, begin in enumerate(range(0, len(mine), size)):
                chosen = mine[begin : begin + size]
                found.append(Batch(task, index, chosen, [prompts[item.problem] for item in chosen], sample))
    return found


def solve(
    model: Any, tokenizer: Any, items: Sequence[Item], *, caps: Mapping[str, int], batch: int, sandbox: Sandbox | None, parts: Path, journal: Path | None
) -> list[Row]:  # fmt: skip
    """Lossless greedy answers to all ``items``, task after task.

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
        return scored([(item, ids) for item, ids in zip(chosen.items, made, strict=True)], tokenizer, sandbox)

    return resumed(batches(model, tokenizer, items, caps, batch), decode, parts, len(items), journal)


def resumed(planned: Sequence[Batch], decode: Callable[[Batch], list[Row]], parts: Path, problems: int, journal: Path | None) -> list[Row]:
    """Rows of all batches; those of a batch that lies in ``parts`` are read, those of the others made and written.

    ``problems`` counts a problem once a sample. Progress shows the accuracy so far: of the reference, where rows name their arm.
    """
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
            first = rows[0].get("arm")
            primary = chosen.items[0].task.primary
            right = [row["correct"][primary] for row in rows if row["task"] == chosen.task and row.get("arm") == first]
            bar.update(len(chosen.items), **({} if None in right else {"accuracy": f"{chosen.task} {sum(right) / len(right):.2f}"}))
    return rows


def lines(rows: Sequence[Row]) -> str:
    """JSON lines."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def ending(items: Sequence[Item], tokenizer: Any) -> Callable[[int, list[int]], bool]:
    """Whether the continuation of item ``row`` is complete, for :func:`expertmiss.generate.decode.continued`."""
    return lambda row, ids: items[row].task.cut(_text(tokenizer, ids)) is not None


def _text(tokenizer: Any, ids: list[int]) -> str:
    kept = [token for token in ids if token != tokenizer.eos_token_id]
    return str(tokenizer.decode(kept, clean_up_tokenization_spaces=False))


def scored(made: Sequence[tuple[Item, list[int]]], tokenizer: Any, sandbox: Sandbox | None) -> list[Row]:
    """Rows of continuations, in order. The same program with the same tests is run once; two run at a time."""
    texts = [answer_text(item, ids, tokenizer) for item, ids in made]
    programs = {
        (item.problem, text): item for (item, _), (text, _) in zip(made, texts, strict=True) if sandbox is not None and item.task.scoring == "tests"
    }  # fmt: skip
    with ThreadPoolExecutor(2) as pool:
        keys = list(programs)
        outcomes = dict(zip(keys, pool.map(lambda key: sandbox.run(programs[key].prompt + key[1], programs[key].tests), keys), strict=True))  # type: ignore[union-attr]
    return [
        answer(item, ids, text, finish, outcomes.get((item.problem, text))) for (item, ids), (text, finish) in zip(made, texts, strict=True)
    ]


def answer_text(item: Item, ids: list[int], tokenizer: Any) -> tuple[str, str]:
    """Text of a continuation, cut where the answer ends, and how it ended."""
    text = _text(tokenizer, ids)
    cut = item.task.cut(text)
    finish = "ended" if cut is not None else "eos" if ids[-1] == tokenizer.eos_token_id else "cap"
    return text if cut is None else cut, finish


def answer(item: Item, ids: list[int], text: str, finish: str, outcome: Outcome | None) -> Row:
    """The scored row of one continuation; ``outcome``: of its program, None where none was run."""
    row: Row = {"problem": item.problem, "task": item.task.name, "source": item.source, "tokens": ids, "text": text, "finish": finish}
    if item.task.scoring == "answer":
        given = {name: EXTRACTIONS[name](text) for name in sorted(EXTRACTIONS, key=lambda name: (name != item.task.primary, name))}
        return {**row, "answers": given, "correct": {name: same_answer(found, item.answer) for name, found in given.items()}, "status": ""}
    return {**row, "answers": {}, "correct": {PASS_AT_1: outcome and outcome.passed}, "status": outcome.status if outcome else ""}
