"""Data sets of a hub, through the optional package ``datasets``; what is downloaded stays in that package's own cache.

``corpus.hub_datasets`` lists mappings with the keys ``domain``, ``path``, ``configuration`` (or null), ``revision`` (a commit; null for the
newest), ``split`` (the data set's own) and ``fields`` (joined by a line end). Rows are joined until they fill a document; each such
group of rows is one source, which the hash of its name places in a split.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from expertmiss.corpora.documents import grouped
from expertmiss.corpora.duplicates import SeenText
from expertmiss.corpora.splits import hashed_split
from expertmiss.corpora.store import Document
from expertmiss.errors import UserError
from expertmiss.progress import Progress

KEYS = ("domain", "path", "configuration", "revision", "split", "fields")
_SHARES = {"exploratory": 0.35, "confirmatory": 0.35, "generation": 0.10, "pilot": 0.10, "calibration": 0.10}


def read_documents(corpus: Mapping[str, Any], journal: Path | None = None) -> list[Document]:
    """Documents of every listed data set in the requested splits, at most ``documents_per_domain`` of each split and domain.

    Raises:
        UserError: ``datasets`` is not installed, a data set cannot be loaded, or it lacks a field.
    """
    seen = SeenText(corpus["near_duplicate_threshold"])
    documents: list[Document] = []
    with Progress(len(corpus["hub_datasets"]), "loading data sets", "data set", journal) as progress:
        for spec in corpus["hub_datasets"]:
            for split in corpus["splits"]:
                fitting = (
                    document for document in _documents(spec, corpus["characters"]) if document.split == split and seen.admit(document.text)
                )
                documents += islice(fitting, corpus["documents_per_domain"])
            progress.update(1)
    return documents


def _documents(spec: Mapping[str, Any], characters: int) -> Iterator[Document]:
    for first, last, texts in grouped(_rows(spec), characters):
        source = f"hub:{spec['path']}:{first}-{last}"
        for text in texts:
            yield Document(hashed_split(source, _SHARES), spec["domain"], source, text)


def _rows(spec: Mapping[str, Any]) -> Iterator[str]:
    path = spec["path"]
    try:
        import datasets  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise UserError(
            f"corpus.hub_datasets: '{path}' needs the package 'datasets'; install it with pip install 'expertmiss[hub]'"
        ) from None
    try:
        rows = datasets.load_dataset(path, spec["configuration"], split=spec["split"], revision=spec["revision"])
    except Exception as problem:  # the hub's client raises many kinds; all mean that the data set cannot be had
        reason = (str(problem).splitlines() or [type(problem).__name__])[0]
        raise UserError(
            f"corpus.hub_datasets: '{path}' cannot be loaded ({reason}); check its name and the network, or place the data set in the "
            "cache folder that HF_DATASETS_CACHE names and set HF_DATASETS_OFFLINE=1"
        ) from None
    for row in rows:
        missing = [name for name in spec["fields"] if not isinstance(row.get(name), str)]
        if missing:
            raise UserError(f"corpus.hub_datasets: '{path}' has no text field '{missing[0]}'; its fields are: {', '.join(row)}")
        yield "\n".join(row[name] for name in spec["fields"])
