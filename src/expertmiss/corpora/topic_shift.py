"""Stage build_topic_shift: streams that change topic at known positions, with changes of document inside a topic as the placebo.

Input: ``tokens.parquet``. Output: ``tokens.parquet`` of streams, each one document of equal length.
A stream is A1 A2 B1 B2 ...: pieces of equal length, two consecutive ones from each domain. At the first token of B1 the flag is 1
(topic change), at the first tokens of A2 and B2 it is 2 (same-topic document change), elsewhere 0. A piece is a document's first tokens,
so both kinds of change begin alike, with the start-of-document token; their mean positions in a stream are equal. No document
is used twice.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from expertmiss.corpora.generators import rng
from expertmiss.corpora.tokenize import write_tokens
from expertmiss.errors import UserError
from expertmiss.provenance import write_run
from expertmiss.stages import Context

TOPIC_CHANGE, DOCUMENT_CHANGE = 1, 2


class Piece(NamedTuple):
    """One tokenised document, of which a stream uses the first tokens."""

    domain: str
    source: str
    tokens: list[int]


def run(cfg: Mapping[str, Any], *, out: Path, context: Context, tokens: Path) -> None:
    """Join documents of ``corpus.shift_split`` to ``corpus.shift_streams`` streams, or as many as there are documents for.

    ``domain`` of a stream joins its topics with ``>``, ``source`` the sources of its pieces with ``+``.

    Raises:
        UserError: documents shorter than a piece, or too few documents for a single stream.
    """
    started, clock = datetime.now(UTC), time.monotonic()
    corpus = cfg["corpus"]
    length, topics, split = corpus["shift_piece_tokens"], corpus["shift_topics"], corpus["shift_split"]
    table = pd.read_parquet(tokens)
    table = table[table["split"] == split]
    pieces = [Piece(row.domain, row.source, [int(token) for token in row.tokens]) for row in table.itertuples()]
    if not pieces or len(pieces[0].tokens) < length:
        raise UserError(f"{tokens}: no document of split '{split}' has corpus.shift_piece_tokens = {length} tokens; lower it or add text")
    streams = join_streams(pieces, corpus["shift_streams"], topics, corpus["seed"])
    meta = pd.DataFrame(
        {
            "document": range(len(streams)),
            "split": split,
            "domain": [">".join(piece.domain for piece in stream[::2]) for stream in streams],
            "source": ["+".join(piece.source for piece in stream) for stream in streams],
        }
    )
    joined = [[token for piece in stream for token in piece.tokens[:length]] for stream in streams]
    write_tokens(meta, joined, [flags(length, topics)] * len(streams), out)
    write_run(
        out, stage="build_topic_shift", experiment=context.experiment, name=f"topic shifts of corpus {corpus['name']}", config=dict(cfg),
        source_hash=context.source_hash, inputs=[tokens], outputs=[out / "tokens.parquet"],
        metrics={"streams": len(streams)}, timings={"total_s": time.monotonic() - clock}, started=started,
        labels={
            "substrate": "none", "routing": "none", "time": "none", "host": "none", "status": "exploratory",
            "n": {"documents": len(streams), "tokens": len(streams) * len(joined[0])}, "notes": [],
        },
    )  # fmt: skip


def flags(length: int, topics: int) -> list[int]:
    """``topic_change`` of a stream of ``topics`` topics with two pieces of ``length`` tokens each."""
    marks = [0] * (2 * topics * length)
    for piece in range(1, 2 * topics):
        marks[piece * length] = DOCUMENT_CHANGE if piece % 2 else TOPIC_CHANGE
    return marks


def join_streams(pieces: list[Piece], streams: int, topics: int, seed: int) -> list[list[Piece]]:
    """At most ``streams`` lists of 2 x ``topics`` pieces, fewer where the documents run out; domains are drawn in proportion to what they have left.

    Raises:
        UserError: the documents do not suffice for one stream.
    """
    random = rng("topic_shift", seed)
    left: dict[str, list[Piece]] = {}
    for piece in sorted(pieces):
        left.setdefault(piece.domain, []).append(piece)
    for group in left.values():
        random.shuffle(group)
    joined: list[list[Piece]] = []
    for _ in range(streams):
        stream: list[Piece] = []
        for _ in range(topics):
            previous = stream[-1].domain if stream else None
            usable = {name: len(group) for name, group in left.items() if name != previous and len({piece.source for piece in group}) > 1}
            if not usable:
                break
            domain = random.choices(list(usable), weights=list(usable.values()))[0]
            stream += _two(left[domain])
        if len(stream) < 2 * topics:
            break
        joined.append(stream)
    if not joined:
        raise UserError(
            f"corpus.shift_topics: no stream of {topics} topics can be joined (each takes two documents of different sources from each of its "
            "domains); add text, or leave e4 out of `experiments`"
        )
    return joined


def _two(group: list[Piece]) -> tuple[Piece, Piece]:
    """Take the last piece and the last one of another source out of ``group``."""
    first = group.pop()
    place = max(index for index, piece in enumerate(group) if piece.source != first.source)
    return first, group.pop(place)
