"""Stage build_corpus: the documents of the requested splits.

Inputs: package lists and their wheels (``kind: builtin``), a folder of your text (``local``) or data sets of a hub (``hub``).
Outputs: ``documents.parquet`` (document, split, domain, source, text), ``manifest.json`` (SHA-256 of every document and wheel, counts, documents dropped as duplicates),
``problems.parquet`` (generated problems with answers and tests, for scoring; no rows for ``local`` and ``hub``).
Steps: get the sources, cut them into documents, drop near-duplicates, write.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from expertmiss.corpora import builtin, hub, local
from expertmiss.corpora.packages import SPLITS, fetch_wheels, package_lists, select_packages
from expertmiss.corpora.store import Document, write_documents
from expertmiss.errors import UserError, suggest
from expertmiss.files import atomic_path, read_json, write_json
from expertmiss.provenance import write_run
from expertmiss.stages import Context

PROBLEM_COLUMNS = ("problem", "split", "domain", "source", "prompt", "solution", "answer", "tests", "entry_point")
KINDS = ("builtin", "local", "hub")


def run(cfg: Mapping[str, Any], *, out: Path, context: Context) -> None:
    """Build ``cfg["corpus"]`` into ``out``.

    Raises:
        UserError: unknown kind, split or domain; a source that cannot be had; an output that cannot be written.
    """
    started, clock = datetime.now(UTC), time.monotonic()
    corpus = cfg["corpus"]
    if corpus["kind"] not in KINDS:
        raise UserError(f"corpus.kind: unknown kind '{corpus['kind']}'; {suggest(corpus['kind'], KINDS)}")
    table = build(corpus, out, context.journal)
    dropped = sum(read_json(out / "manifest.json")["dropped_duplicates"].values())
    write_run(
        out, stage="build_corpus", experiment=context.experiment, name=f"documents of corpus {corpus['name']}", config=dict(cfg),
        source_hash=context.source_hash, inputs=package_lists(corpus, corpus["splits"]) if corpus["kind"] == "builtin" else [],
        outputs=[out / name for name in ("documents.parquet", "manifest.json", "problems.parquet")],
        metrics={"documents": len(table), "sources": table["source"].nunique(), "characters": int(table["text"].str.len().sum()), "dropped_duplicates": dropped},
        timings={"total_s": time.monotonic() - clock}, started=started,
        labels={
            "substrate": "none", "routing": "none", "time": "none", "host": "none", "status": "exploratory",
            "n": {"documents": len(table)}, "notes": [],
        },
    )  # fmt: skip


def build(corpus: Mapping[str, Any], out: Path, journal: Path | None = None) -> pd.DataFrame:
    """Write the three outputs for one corpus section and return the table of documents; duplicates of kind ``hub`` are not counted."""
    dropped: Counter[tuple[str, str]] = Counter()
    wheels: dict[str, str] = {}
    problems: list[dict[str, Any]] = []
    if corpus["kind"] == "builtin":
        documents, wheels = _builtin_documents(corpus, journal, dropped)
        problems = [
            row for split in SPLITS if split in corpus["splits"] and split != "train" for row in builtin.scored_problems(corpus, split)
        ]
    else:
        documents = local.read_documents(corpus, dropped) if corpus["kind"] == "local" else hub.read_documents(corpus, journal)
    with atomic_path(out / "problems.parquet") as path:
        pd.DataFrame(problems, columns=list(PROBLEM_COLUMNS)).to_parquet(path, index=False)
    table = write_documents(documents, out, wheels)
    counts = {f"{split}/{domain}": count for (split, domain), count in sorted(dropped.items()) if count}
    write_json(out / "manifest.json", {**read_json(out / "manifest.json"), "dropped_duplicates": counts})
    return table


def _builtin_documents(
    corpus: Mapping[str, Any], journal: Path | None, dropped: Counter[tuple[str, str]]
) -> tuple[list[Document], dict[str, str]]:
    splits = _checked("splits", corpus["splits"], SPLITS)
    domains = _checked("domains", corpus["domains"], builtin.DOMAINS)
    packages = select_packages(corpus, splits)
    wheels = fetch_wheels(packages, corpus["cache"], journal)
    counted: Counter[tuple[str, str]] = Counter()
    built = builtin.build_documents(corpus, packages, wheels, journal, counted)
    documents = [document for document in built if document.split in splits and document.domain in domains]
    dropped.update({key: count for key, count in counted.items() if key[0] in splits and key[1] in domains})
    return documents, {package.source: package.sha256 for package in packages if package.split in splits}


def _checked(option: str, chosen: Sequence[str], known: Sequence[str]) -> list[str]:
    for name in chosen:
        if name not in known:
            raise UserError(f"corpus.{option}: unknown value '{name}'; {suggest(name, known)}")
    if not chosen:
        raise UserError(f"corpus.{option} is empty; name at least one of: {', '.join(known)}")
    return list(chosen)
