"""Your own text: a folder of UTF-8 ``.txt`` files and ``.jsonl`` files (one JSON object with a string field ``text`` per line).

The domain is the first sub-folder's name, or ``local``. A ``.txt`` file is one source; lines of a ``.jsonl`` file are joined until they
fill a document, and each such group of lines is one source. One source in five (at least one) is calibration text, chosen by the
hash of its name; all others are exploratory. A document that repeats earlier ones, or is an exact copy of one, is dropped.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from expertmiss.corpora.documents import clean, grouped, pieces
from expertmiss.corpora.duplicates import SeenText
from expertmiss.corpora.store import Document
from expertmiss.errors import UserError
from expertmiss.files import sha256_bytes


def read_documents(corpus: Mapping[str, Any], dropped: Counter[tuple[str, str]] | None = None) -> list[Document]:
    """The documents of ``corpus["folder"]``, in the order of file names.

    Args:
        dropped: receives the documents dropped as duplicates, by (split, domain); the split is ``none`` for a source of which none is left.

    Raises:
        UserError: no such folder, no usable file, text that is not UTF-8, a JSON line without ``text``, or too little text.
    """
    folder, characters = Path(corpus["folder"]), corpus["characters"]
    if not corpus["folder"] or not folder.is_dir():
        raise UserError(f"corpus.folder: '{corpus['folder']}' is no folder; name one that holds .txt or .jsonl files")
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".txt", ".jsonl") and path.is_file())
    if not files:
        raise UserError(f"corpus.folder: {folder} holds no .txt or .jsonl file; put text there or choose another corpus")
    seen = SeenText(corpus["near_duplicate_threshold"])
    exact: set[str] = set()  # a text of fewer than 8 words, or of few distinct ones, may have no sampled shingle at all
    repeated: dict[str, int] = {}
    found: dict[str, list[str]] = {}
    domains: dict[str, str] = {}
    for path in files:
        name = path.relative_to(folder).as_posix()
        for source, texts in _sources(path, f"file:{name}", characters):
            domains[source] = name.split("/")[0] if "/" in name else "local"
            new = []
            for text in texts:
                digest = sha256_bytes(text.encode())
                if digest not in exact and seen.admit(text):
                    exact.add(digest)
                    new.append(text)
            repeated[source] = len(texts) - len(new)
            if new:
                found[source] = new
    if len(found) < 2:
        raise UserError(
            f"corpus.folder: {folder} gives {len(found)} source(s) of at least {characters} characters, calibration and evaluation need two; "
            "add text or lower corpus.characters"
        )
    by_hash = sorted(found, key=lambda source: sha256_bytes(source.encode()))
    calibration = set(by_hash[: max(1, len(found) // 5)])
    split = {source: "calibration" if source in calibration else "exploratory" for source in found}
    if dropped is not None:
        for source, count in repeated.items():
            dropped[split.get(source, "none"), domains[source]] += count
    return [Document(split[source], domains[source], source, text) for source, texts in found.items() for text in texts]


def _sources(path: Path, name: str, characters: int) -> Iterator[tuple[str, list[str]]]:
    """``(source, documents)`` of one file."""
    try:
        content = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as problem:
        raise UserError(f"{path}: not UTF-8 text (byte {problem.start}); convert it to UTF-8 or remove it") from None
    if path.suffix == ".txt":
        yield name, list(pieces([clean(content)], characters))
    else:
        for first, last, texts in grouped(_json_texts(path, content), characters):
            yield f"{name}:{first}-{last}", texts


def _json_texts(path: Path, content: str) -> Iterator[str]:
    for number, line in enumerate(content.split("\n"), 1):
        if not line.strip():
            continue
        try:
            text = json.loads(line)["text"]
        except (json.JSONDecodeError, KeyError, TypeError):
            text = None
        if not isinstance(text, str):
            raise UserError(f"{path}:{number}: write one JSON object with a string field 'text' per line")
        yield text
