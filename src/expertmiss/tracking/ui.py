"""``expertmiss ui``: MLflow's web page on the local store."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO

from expertmiss.errors import UserError
from expertmiss.paths import project_root

START_SECONDS = 120


def run(port: int, store: Path | None = None) -> None:
    """Serve the store (default: ``results/mlflow`` of the project) on this machine only, print the address, and wait for Ctrl-C.

    Raises:
        UserError: there is no store yet, the port is taken, or the server does not start.
    """
    store = store or project_root() / "results" / "mlflow"
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stops the server too, like Ctrl-C
    with tempfile.TemporaryFile("w+", encoding="utf-8") as log:
        server = start(port, store, log)
        try:
            wait_until_ready(server, port, log)
            # Without the parameter the page opens in its mode for language model applications.
            print(f"MLflow: http://127.0.0.1:{port}/#/experiments/1/runs?workflowType=machine_learning  (Ctrl-C stops it)", flush=True)
            status = server.wait()
            raise UserError(f"the MLflow server stopped with status {status}; start it again, or with another --port")
        except KeyboardInterrupt:
            print()
        finally:
            stop(server)


def start(port: int, store: Path, log: IO[str]) -> subprocess.Popen[str]:
    """Start the server; its output goes to ``log``.

    Raises:
        UserError: there is no store yet, or the port is taken.
    """
    store = store.absolute()
    database = store / "mlflow.db"
    if not database.is_file():
        raise UserError(f"{database}: no store yet; make it with `snakemake --cores 1 --forcerun mlflow_sync` and try again")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError) as problem:
            raise UserError(f"port {port} cannot be used ({problem}); choose another with --port") from None
    command = [
        sys.executable, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{database}", "--serve-artifacts",
        "--artifacts-destination", str(store / "artifacts"), "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
    ]  # fmt: skip
    # Without the job runner and with one worker it takes 0.4 GB and 4 s, else 2.2 GB and 18 s.
    extra = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
    environment = {**os.environ, **extra}
    return subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT, text=True, cwd=store, start_new_session=True)


def stop(server: subprocess.Popen[str]) -> None:
    """End the server and the worker that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
    server.wait()


def wait_until_ready(server: subprocess.Popen[str], port: int, log: IO[str]) -> None:
    """Return when the server answers.

    Raises:
        UserError: it stopped or did not answer in time; the line ends with the last one that it printed.
    """
    deadline = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    log.seek(0)
    last = (log.read().strip().splitlines() or ["it printed nothing"])[-1]
    raise UserError(f"the MLflow server did not start: {last}")
