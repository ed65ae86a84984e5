"""Documents on disk: ``documents.parquet`` and the manifest that every reader checks it against."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from expertmiss.errors import UserError
from expertmiss.files import atomic_path, read_json, sha256_bytes, write_json


@dataclass(frozen=True)
class Document:
    """One document.

    ``source`` is the unit that splits keep apart and that statistics resample: ``package==version``, ``template:<id>``
    (``template:mixed/<domain>`` in training documents), ``file:<name>`` or ``hub:<repository>:<rows>``.
    """

    split: str
    domain: str
    source: str
    text: str


def write_documents(documents: Sequence[Document], out: Path, wheels: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Write ``documents.parquet`` and ``manifest.json`` into ``out``; return the table.

    Args:
        wheels: SHA-256 of each source wheel, by ``package==version``.
    """
    table = pd.DataFrame([asdict(document) for document in documents], columns=["split", "domain", "source", "text"])
    table.insert(0, "document", pd.Series(range(len(table)), dtype="int32"))
    with atomic_path(out / "documents.parquet") as path:
        table.to_parquet(path, index=False)
    write_json(out / "manifest.json", manifest(table, wheels or {}))
    return table


def manifest(table: pd.DataFrame, wheels: Mapping[str, str]) -> dict[str, Any]:
    """SHA-256 of each document (its split, domain, source and text) and wheel; counts of documents and sources."""
    counts = Counter(zip(table["split"], table["domain"], strict=True))
    return {
        "schema": 1,
        "documents": {str(row.document): _digest(row) for row in table.itertuples()},
        "wheels": dict(wheels),
        "counts": {f"{split}/{domain}": count for (split, domain), count in sorted(counts.items())},
        "sources": {str(split): int(group["source"].nunique()) for split, group in table.groupby("split")},
    }


def _digest(row: Any) -> str:
    return sha256_bytes("\0".join((row.split, row.domain, row.source, row.text)).encode())


def read_documents(path: Path) -> pd.DataFrame:
    """Read ``documents.parquet`` and check every document against ``manifest.json`` beside it.

    Raises:
        UserError: a file is missing, or a document was edited, added or removed.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file; build the corpus first")
    table = pd.read_parquet(path)
    expected = read_json(path.with_name("manifest.json"))["documents"]
    found = manifest(table, {})["documents"]
    changed = sorted((key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key)), key=int)
    if changed:
        raise UserError(f"{path}: document {changed[0]} differs from manifest.json ({len(changed)} in all); build the corpus again")
    return table
