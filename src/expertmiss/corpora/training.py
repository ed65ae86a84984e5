"""Training tokens of the built-in model.

Inputs: package lists, wheels, a tokenizer folder (trained here when it is empty).
Outputs: per domain ``<domain>.bin`` (uint16 tokens of the training documents, each starting with the end-of-text token),
``<domain>.val.bin`` (uint16 [documents, length], from split pilot), ``index.json``, and ``documents/`` with all text and its manifest.
Steps: build documents, train the tokenizer if there is none, tokenise, write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from expertmiss.corpora import tokenizer
from expertmiss.corpora.build import build
from expertmiss.corpora.tokenize import equal_length
from expertmiss.errors import UserError
from expertmiss.files import atomic_path, sha256_file, write_json
from expertmiss.progress import Progress


def prepare(corpus: Mapping[str, Any], cache: Path | str, tokenizer_dir: Path | str, out: Path | str, journal: Path | None = None) -> None:
    """Write the training tokens of every domain into ``out``; see the module's docstring.

    Args:
        corpus: the corpus section of the configuration (``splits`` and ``cache`` are replaced).

    Raises:
        UserError: a package cannot be had, or the tokenizer has more than 65,536 tokens.
    """
    out, tokenizer_dir = Path(out), Path(tokenizer_dir)
    documents = build({**corpus, "splits": ["pilot", "train"], "cache": str(cache)}, out / "documents", journal)
    training = documents[documents["split"] == "train"]
    if not (tokenizer_dir / "tokenizer.json").is_file():
        tokenizer.train(_sample(training, corpus["tokenizer_characters"], corpus["seed"]), tokenizer_dir, corpus["vocab"])
    encoder = tokenizer.load(tokenizer_dir)
    if len(encoder) > 1 << 16:
        raise UserError(f"{tokenizer_dir}: {len(encoder)} tokens do not fit the uint16 files; use a tokenizer of at most 65,536")
    pilot, held_out, _ = equal_length(documents[documents["split"] == "pilot"], encoder, corpus["tokens"], out / "documents")
    index = {}
    with Progress(len(corpus["domains"]), "writing training tokens", "domain", journal) as progress:
        for domain in corpus["domains"]:
            texts = training.loc[training["domain"] == domain, "text"].tolist()
            validation = [ids for ids, name in zip(held_out, pilot["domain"], strict=True) if name == domain]
            index[domain] = _write_domain(encoder, domain, texts, validation, out)
            progress.update(1)
    write_json(out / "index.json", index)


def _sample(training: pd.DataFrame, characters: int, seed: int) -> Iterator[str]:
    """About ``characters`` of each domain, so that no domain rules the merges."""
    for _, group in training.groupby("domain", sort=True):
        order = np.random.default_rng(seed).permutation(len(group))
        lengths = group["text"].str.len().to_numpy()[order].cumsum()
        yield from group["text"].iloc[order[: int(np.searchsorted(lengths, characters)) + 1]]


def _write_domain(encoder: Any, domain: str, texts: Sequence[str], validation: Sequence[Sequence[int]], out: Path) -> dict[str, Any]:
    """Write one domain's two files; return its entry in the index (counts, SHA-256 of the files)."""
    start = tokenizer.start_token(encoder)
    tokens = 0
    with atomic_path(out / f"{domain}.bin") as path, open(path, "wb") as stream:
        for ids in tokenizer.encoded(encoder, texts):
            array = np.array([start, *ids], dtype=np.uint16)
            array.tofile(stream)
            tokens += len(array)
    with atomic_path(out / f"{domain}.val.bin") as path:
        np.array(validation, dtype=np.uint16).tofile(path)
    length = len(validation[0]) if validation else 0
    return {
        "train_tokens": tokens, "train_documents": len(texts), "train_characters": sum(map(len, texts)),
        "val_documents": len(validation), "val_document_tokens": length, "val_tokens": len(validation) * length,
        "sha256": {name: sha256_file(out / name) for name in (f"{domain}.bin", f"{domain}.val.bin")},
    }  # fmt: skip
