"""Results of E5 measured on another machine, brought into this one's report."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from expertmiss.errors import UserError
from expertmiss.experiments.lock import verify
from expertmiss.files import atomic_path, read_json, sha256_file, write_json
from expertmiss.stats.tables import Table, read_table

STAGE = "analyze_e5"
TABLE = "e5_statistics.parquet"
ADDED = "added.json"
"""In the folder of an added host: the other machine's run.json. Not under that name, because the stage did not run here."""


def add_host(root: Path, run: Path, experiment: str) -> Path:
    """Copy the statistics of ``run`` (a folder of results that holds one analyze_e5) to ``results/<experiment>/added_hosts/<host>``.

    Raises:
        UserError: no such run or several, a file that is not the one recorded, other rules, or a host of this experiment's own name.
    """
    found = [path for path in sorted(run.rglob("run.json")) if read_json(path).get("stage") == STAGE]
    if len(found) != 1:
        raise UserError(f"{run}: {len(found)} runs of {STAGE}, one is needed; give the folder results/EXPERIMENT of the other machine")
    made: dict[str, Any] = read_json(found[0])
    table = found[0].parent / TABLE
    _check(table, made, found[0])
    if made["config"].get("e5_lock") != verify(root, "e5"):
        raise UserError(f"{found[0]}: made under other rules than prereg/e5.yaml here; run it there again with this version")
    host = str(made["labels"]["host"])
    own = {read_json(path)["labels"]["host"] for path in (root / "results" / experiment / STAGE).glob("*/*/run.json")}
    if host in own:
        raise UserError(f"{found[0]}: measured on host '{host}', the name of this one; run it there again with host.name=ANOTHER")
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", host):
        raise UserError(f"{found[0]}: host '{host}' cannot be part of a path; use letters, digits, '_', '-' and '.'")
    folder = root / "results" / experiment / "added_hosts" / host
    with atomic_path(folder / TABLE) as temporary:
        shutil.copyfile(table, temporary)
    write_json(folder / ADDED, made)
    return folder


def read_added(path: Path) -> tuple[str, Table]:
    """Host and statistics of an added run, from its ``added.json``.

    Raises:
        UserError: the table is not the one that was added.
    """
    made = read_json(path)
    _check(path.parent / TABLE, made, path)
    return str(made["labels"]["host"]), read_table(path.parent / TABLE)


def _check(table: Path, made: dict[str, Any], record: Path) -> None:
    digests = [digest for name, digest in made.get("outputs", {}).items() if Path(name).name == table.name]
    if not table.is_file() or digests != [sha256_file(table)]:
        raise UserError(f"{table}: missing, or not the file that {record.name} beside it records; copy the other machine's results again")
