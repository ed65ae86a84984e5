"""The built-in corpus: text of pinned wheels and generated problems, split by package and by template.

Splits are gone through in a fixed order (``splits.ORDER``), packages by name. A document that repeats earlier ones is dropped, so evaluation
text never stands in training text, and the documents of a split do not depend on which later splits are asked for.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from expertmiss.corpora.documents import TEXT_DOMAINS, by_domain, pieces
from expertmiss.corpora.duplicates import SeenBlocks, SeenText
from expertmiss.corpora.generators import GENERATORS, Template, rng
from expertmiss.corpora.generators.difficulty import check_ranges, within
from expertmiss.corpora.packages import Package
from expertmiss.corpora.splits import split_templates
from expertmiss.corpora.store import Document
from expertmiss.errors import UserError
from expertmiss.progress import Progress

DOMAINS = (*TEXT_DOMAINS, *GENERATORS)
SCORED = ("word_problems", "functions")  # domains whose problems have an answer or tests
_SCORED_SEED = 1_000_000  # added to the seed: problems for scoring are other ones than those in documents
_SHORTEST = 40  # characters; no problem is shorter, so characters / _SHORTEST problems fill a document


def build_documents(
    corpus: Mapping[str, Any],
    packages: Sequence[Package],
    wheels: Mapping[str, Path],
    journal: Path | None = None,
    dropped: Counter[tuple[str, str]] | None = None,
) -> Iterator[Document]:
    """All documents of the packages' splits: text domains package by package, then the generated domains.

    Args:
        corpus: the corpus section of the configuration.
        packages: in the order of ``splits.ORDER``, then names (``packages.select_packages``).
        wheels: wheel of each package, by name.
        dropped: receives the documents dropped as duplicates before a source's share was full, by (split, domain).
    """
    dropped = Counter() if dropped is None else dropped
    seen, blocks = SeenText(corpus["near_duplicate_threshold"]), SeenBlocks()
    by_split: dict[str, list[Package]] = defaultdict(list)
    for package in packages:
        by_split[package.split].append(package)
    with Progress(len(packages), "reading packages", "package", journal) as progress:
        for split, members in by_split.items():
            candidates: dict[str, dict[str, list[Document]]] = {domain: {} for domain in TEXT_DOMAINS}
            for package in members:
                for domain, found in _package_documents(corpus, package, wheels[package.name], seen, blocks, dropped).items():
                    candidates[domain][package.source] = found
                progress.update(1)
            for domain in TEXT_DOMAINS:
                yield from _in_turns(candidates[domain], corpus["documents_per_domain"] if split != "train" else None)
            for domain in GENERATORS:
                yield from _generated_documents(corpus, domain, split)


def _package_documents(
    corpus: Mapping[str, Any], package: Package, wheel: Path, seen: SeenText, blocks: SeenBlocks, dropped: Counter[tuple[str, str]]
) -> dict[str, list[Document]]:
    """Documents of one package by domain: the first few that are new, or for training all up to a number of characters."""
    per_source = (
        corpus["train_characters_per_source"] // corpus["characters"] if package.split == "train" else corpus["documents_per_source"]
    )
    result: dict[str, list[Document]] = {}
    for domain, texts in sorted(by_domain(wheel).items()):
        found: list[Document] = []
        for text in pieces((blocks.strip(text) for text in texts), corpus["characters"]):
            if len(found) == per_source:
                break
            if seen.admit(text):
                found.append(Document(package.split, domain, package.source, text))
            else:
                dropped[package.split, domain] += 1
        result[domain] = found
    return result


def _in_turns(by_source: Mapping[str, list[Document]], most: int | None) -> Iterator[Document]:
    """One document of every source, then a second one of each, until ``most``: as many clusters as possible."""
    longest = max(map(len, by_source.values()), default=0)
    turns = [found[turn] for turn in range(longest) for _, found in sorted(by_source.items()) if turn < len(found)]
    yield from turns[:most]


def _generated_documents(corpus: Mapping[str, Any], domain: str, split: str) -> Iterator[Document]:
    """One document per template, or for training documents that mix templates, up to a number of characters."""
    templates, characters, seed = split_templates(domain, split), corpus["characters"], corpus["seed"]
    if split != "train":
        for template in templates[: corpus["documents_per_domain"]]:
            yield Document(split, domain, f"template:{template.id}", _filled([template], characters, seed))
        return
    source = rng("train", domain, seed)
    for number in range(corpus["train_characters_generated"] // characters):
        chosen = source.sample(templates, 1 if number % 4 == 0 else 12)  # one in four has the form of evaluation documents
        yield Document(split, domain, f"template:mixed/{domain}", _filled(chosen, characters, seed + number + 1))


def _filled(templates: Sequence[Template], characters: int, seed: int) -> str:
    """Problems of the templates in a seeded order, just enough for ``characters``."""
    count = max(1, characters // (_SHORTEST * len(templates)))
    texts = [problem.text for template in templates for problem in template.problems(count, seed)]
    rng("order", templates[0].id, seed).shuffle(texts)
    filled = ""
    for text in texts:
        filled += text
        if len(filled) >= characters:
            break
    return filled.rstrip("\n") + "\n"


def scored_problems(corpus: Mapping[str, Any], split: str) -> Iterator[dict[str, Any]]:
    """Rows of ``problems.parquet``: ``problems_per_template`` problems of each template of the scored domains; ``tests`` as a JSON list.

    Raises:
        UserError: a range of difficulty is not one, or no problem of a domain lies in it.
    """
    check_ranges(corpus)
    for domain in (name for name in SCORED if name in corpus["domains"]):
        empty = True
        for template in split_templates(domain, split, harder=True):
            accept = partial(within, corpus, domain, template)
            for number, problem in enumerate(template.problems(corpus["problems_per_template"], corpus["seed"] + _SCORED_SEED, accept)):
                empty = False
                row = {"problem": f"{template.id}/{number}", "split": split, "domain": domain, "source": f"template:{template.id}"}
                yield {**row, **asdict(problem), "tests": json.dumps(problem.tests)}
        if empty:
            raise UserError(f"corpus.scored_*: no problem of {domain} in split {split} lies in these ranges; widen them")
