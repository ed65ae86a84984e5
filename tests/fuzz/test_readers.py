"""Readers of files from elsewhere under coverage-guided fuzzing (atheris)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from expertmiss.traces.format import write_trace
from tests.traces.traces_for_tests import random_trace
from tests.tracking.examples import write_example

ROOT = Path(__file__).parents[2]


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder in memory: each of the thousands of inputs is written as a file."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def fuzz(reader: str, seeds: Path, scratch: Path, seconds: int) -> None:
    """Fuzz for ``seconds``; fails with the fuzzer's last words at a crash, a hang or 1.5 GB, or when nothing new was reached."""
    options = [f"-max_total_time={seconds}", "-timeout=20", "-rss_limit_mb=1500", "-max_len=20000", "-len_control=0", "-seed=1"]
    command = [sys.executable, str(ROOT / "tests/fuzz/fuzz_reader.py"), reader, str(scratch), str(seeds)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    # The kernel counts the largest memory of the process that a program is started from as the program's own; a shell's is small.
    small = ["/bin/sh", "-c", '"$@"; exit $?', "sh"]
    done = subprocess.run(
        [*small, *command, f"-artifact_prefix={scratch}/", "-print_final_stats=1", *options],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds + 120,
    )  # fmt: skip
    said = done.stderr + done.stdout  # the exception itself is in stdout
    assert done.returncode == 0, said[-3000:]
    covered = [int(found) for found in re.findall(r"cov: (\d+)", said)]
    executed = re.search(r"number_of_executed_units: (\d+)", said)
    assert executed is not None and int(executed[1]) > 1000, said[-3000:]
    assert covered and covered[-1] > covered[0], f"coverage never grew: the reader is not instrumented\n{said[-3000:]}"


@pytest.mark.system
def test_atheris_trace_reader(tmp_path: Path, scratch: Path) -> None:
    for name, changes in (("plain", {}), ("grouped", {"gating": "sigmoid", "groups": {"count": 2, "allowed": 1, "score": "max"}})):
        meta, tensors = random_trace(layers=1, experts=8, depth=4, documents=2, length=3)
        for field, value in changes.items():
            setattr(meta, field, value)
        write_trace(tmp_path / name, meta, tensors)
    fuzz("trace", tmp_path, scratch, seconds=30)


@pytest.mark.system
def test_atheris_run_reader(tmp_path: Path, scratch: Path) -> None:
    (tmp_path / "seeds").mkdir()
    shutil.copyfile(write_example(tmp_path / "example"), tmp_path / "seeds" / "run.json")
    fuzz("run", tmp_path / "seeds", scratch, seconds=20)
