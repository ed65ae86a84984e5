"""Stage tokenize_corpus: documents of equal length in tokens.

Inputs: ``documents.parquet`` with its manifest, the model's tokenizer. Outputs: ``tokens.parquet`` (document, split, domain, source,
tokens, topic_change) and ``counts.json`` (documents kept and too short, by split and domain).
A document is the tokenizer's begin-of-text (else end-of-text) token and the text's first ``tokens - 1`` tokens, so that every text
token has a predecessor to be predicted from. A document with fewer tokens is dropped and counted.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from expertmiss.corpora import store, tokenizer
from expertmiss.errors import UserError
from expertmiss.files import atomic_path, write_json
from expertmiss.progress import Progress
from expertmiss.provenance import write_run
from expertmiss.stages import Context

META = ("document", "split", "domain", "source")


def run(cfg: Mapping[str, Any], *, out: Path, context: Context, documents: Path) -> None:
    """Tokenise ``documents`` with the tokenizer of ``cfg["model"]`` into ``out``.

    Raises:
        UserError: the documents differ from their manifest, the tokenizer is missing, or no document of a split is long enough.
    """
    started, clock = datetime.now(UTC), time.monotonic()
    corpus, model = cfg["corpus"], cfg["model"]
    table = store.read_documents(documents)
    encoder = tokenizer.load(model["path"], model["revision"])
    with Progress(len(table), "tokenize", "doc", context.journal) as progress:
        kept, tokens, counts = equal_length(table, encoder, corpus["tokens"], documents, progress)
    write_tokens(kept, tokens, [[0] * corpus["tokens"]] * len(kept), out)
    write_json(out / "counts.json", counts)
    dropped = len(table) - len(kept)
    write_run(
        out, stage="tokenize_corpus", experiment=context.experiment, name=f"tokens of corpus {corpus['name']}", config=dict(cfg),
        source_hash=context.source_hash, inputs=[documents, documents.with_name("manifest.json")],
        outputs=[out / "tokens.parquet", out / "counts.json"], metrics={"documents": len(kept), "too_short": dropped},
        timings={"total_s": time.monotonic() - clock}, started=started,
        labels={
            "substrate": "none", "routing": "none", "time": "none", "host": "none", "status": "exploratory",
            "n": {"documents": len(kept), "tokens": len(kept) * corpus["tokens"]}, "notes": [],
        },
    )  # fmt: skip


def equal_length(
    table: pd.DataFrame, encoder: Any, length: int, origin: Path, progress: Progress | None = None
) -> tuple[pd.DataFrame, list[list[int]], dict[str, Any]]:
    """``(rows kept, their tokens [documents][length], counts)``; ``origin`` is named in errors.

    Raises:
        UserError: a split has no document of ``length`` tokens.
    """
    start = tokenizer.start_token(encoder)
    tokens = []
    for ids in tokenizer.encoded(encoder, table["text"].tolist()):
        tokens.append([start, *ids][:length])
        if progress is not None:
            progress.update(1)
    enough = pd.Series([len(ids) == length for ids in tokens], index=table.index)
    for split, group in table.groupby("split"):
        if not enough[group.index].any():
            raise UserError(
                f"{origin}: none of the {len(group)} {split} documents has {length} tokens; use longer text or lower corpus.tokens"
            )
    key = table["split"] + "/" + table["domain"]
    counts = {
        "tokens": length,
        "kept": dict(sorted(Counter(key[enough]).items())),
        "too_short": dict(sorted(Counter(key[~enough]).items())),
    }
    return table.loc[enough, list(META)].reset_index(drop=True), [ids for ids in tokens if len(ids) == length], counts


def write_tokens(meta: pd.DataFrame, tokens: Sequence[Sequence[int]], topic_change: Sequence[Sequence[int]], out: Path) -> None:
    """Write ``out/tokens.parquet``: the columns of ``meta``, ``tokens`` (int32 [length]) and ``topic_change`` (uint8 [length]: 0 none,
    1 another topic begins at this token, 2 another document of the same topic begins)."""
    length = len(tokens[0])
    columns = {name: pa.array(meta[name], type=pa.int32() if name == "document" else pa.string()) for name in META}
    columns["tokens"] = pa.array(tokens, type=pa.list_(pa.int32(), length))
    columns["topic_change"] = pa.array(topic_change, type=pa.list_(pa.uint8(), length))
    with atomic_path(out / "tokens.parquet") as path:
        pq.write_table(pa.table(columns), path)
