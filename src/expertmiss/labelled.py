"""Parquet files that carry their labels and sources with them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from expertmiss.files import atomic_path
from expertmiss.provenance import Labels

KEY = b"expertmiss"
"""Entry of the schema's metadata that holds them, as JSON."""


def write_labelled(path: Path, frame: pd.DataFrame, labels: Labels, sources: Mapping[str, str]) -> None:
    """Write ``frame`` to ``path`` (.parquet), atomically; ``sources`` are the files that it was made from (name to SHA-256)."""
    content = json.dumps({"labels": asdict(labels), "sources": dict(sources)}, sort_keys=True)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    with atomic_path(path) as temporary:
        pq.write_table(table.replace_schema_metadata({**(table.schema.metadata or {}), KEY: content.encode()}), temporary)
