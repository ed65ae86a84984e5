"""The web page: it starts, serves an artifact, stops with its worker, and explains why it cannot start."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from expertmiss.errors import UserError
from expertmiss.tracking.sync import sync
from expertmiss.tracking.ui import run

PROGRAM = "import sys; from pathlib import Path; from expertmiss.tracking.ui import run; run(int(sys.argv[1]), Path(sys.argv[2]))"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return bytes(answer.read())


def test_no_store_yet(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"mlflow\.db: no store yet; make it with `snakemake --cores 1 --forcerun mlflow_sync`"):
        run(free_port(), tmp_path)


def test_port_is_taken(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").touch()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(UserError, match=r"port \d+ cannot be used .* choose another with --port"):
            run(other.getsockname()[1], tmp_path)


def test_serves_figures_after_a_move_and_stops_with_its_worker(project: Path) -> None:
    sync(project / "results", project / "results/mlflow", {})
    store = project.rename(project.with_name("moved")) / "results/mlflow"
    port = free_port()
    page = subprocess.Popen([sys.executable, "-c", PROGRAM, str(port), str(store)], stdout=subprocess.PIPE, text=True)
    try:
        assert page.stdout is not None
        assert page.stdout.readline().startswith(f"MLflow: http://127.0.0.1:{port}/#/experiments/1/runs?")
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/api/2.0/mlflow/runs/search",
            json.dumps({"experiment_ids": ["1"]}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            runs = json.load(answer)["runs"]
        assert len(runs) == 5
        child = next(found for found in runs if found["info"]["run_name"] == "make figures: builtin on prose")
        figure = "figures/make_figures_builtin_prose.svg"
        served = get(f"http://127.0.0.1:{port}/get-artifact?run_uuid={child['info']['run_id']}&path={figure}")
        assert served == (store.parent.parent / "reports/default" / figure).read_bytes()
    finally:
        os.kill(page.pid, signal.SIGTERM)
        page.wait(timeout=30)
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
