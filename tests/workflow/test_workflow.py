"""The DAG itself: complete runs, what re-runs after which change, kill and resume, and mistakes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.workflow.conftest import Project

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("workflow")]
AFTER_SIMULATE = ["make_figures", "mlflow_sync", "render_report", "simulate_policies", "summarize_policies"]
AFTER_SUMMARY = ["make_figures", "mlflow_sync", "render_report", "summarize_policies"]
STUDIES = ["analyze_e1", "analyze_e2", "analyze_e4", "judge_claims"]
AFTER_COMPARE = ["compare_answers", "draw_page", "report_page"]


def test_a_complete_run_leaves_report_runs_and_database(finished: Project) -> None:
    for page in ("index.html", "generation/index.html"):
        assert (finished.folder / "reports" / "tiny" / page).stat().st_size > 10_000
    assert (finished.folder / "results" / "mlflow" / "mlflow.db").exists()
    runs = [json.loads(path.read_text()) for path in sorted((finished.folder / "results").rglob("run.json"))]
    assert {run["stage"] for run in runs} >= {
        "build_corpus",
        "tokenize_corpus",
        "capture_traces",
        "simulate_policies",
        "summarize_policies",
        "make_figures",
    }
    assert not list((finished.folder / "results").rglob("*.tmp"))


def test_a_second_run_has_nothing_to_do(finished: Project) -> None:
    answer = finished.snakemake()
    assert answer.returncode == 0 and "Nothing to be done" in answer.stdout + answer.stderr


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("src/expertmiss/simulate/stage.py", AFTER_SIMULATE),
        ("src/expertmiss/stats/summarize.py", AFTER_SUMMARY),
        ("src/expertmiss/cli.py", []),
        ("README.md", []),
        (
            "src/core/step.hpp",
            ["analyze_traces", "capture_traces", "emulate_policies", "generate_answers", *STUDIES, *AFTER_COMPARE, *AFTER_SIMULATE],
        ),
        ("src/expertmiss/generate/measures.py", [*AFTER_COMPARE, "mlflow_sync"]),
        ("src/expertmiss/experiments/e2.py", ["analyze_e2", "judge_claims", "make_figures", "mlflow_sync", "render_report"]),
    ],
)
def test_an_edit_reruns_the_stages_that_run_the_module(finished: Project, file: str, expected: list[str]) -> None:
    path = finished.folder / file
    before = path.read_text() if path.exists() else None
    try:
        path.write_text((before or "") + ("\n// edited\n" if path.suffix == ".hpp" else "\n# edited\n"))
        assert finished.planned() == sorted(expected)
    finally:
        path.write_text(before) if before is not None else path.unlink()
    assert finished.planned() == []


def test_a_touch_reruns_nothing(finished: Project) -> None:
    for path in (finished.folder / "src" / "expertmiss").rglob("*.py"):
        path.touch()
    assert finished.planned() == []


@pytest.mark.parametrize(
    ("missing", "rule"),
    [
        ("results/tiny/summarize_policies/builtin/local/summary.parquet", "summarize_policies"),
        ("results/tiny/simulate_policies/builtin/local/cells.parquet", "simulate_policies"),
        ("results/mlflow/mlflow.db", "mlflow_sync"),
        ("reports/tiny/numbers.tex", "render_report"),
    ],
)
def test_a_missing_result_is_made_again(finished: Project, missing: str, rule: str) -> None:
    path = finished.folder / missing
    aside = path.with_name(path.name + ".aside")
    path.rename(aside)
    try:
        assert rule in finished.planned()
    finally:
        aside.rename(path)
    assert finished.planned() == []


def test_a_spoilt_intermediate_is_not_forgotten_at_the_second_try(fresh: Callable[[], Project], finished: Project) -> None:
    """Snakemake deletes the outputs of a failed job; the next call must fail again, not call the old report up to date."""
    project = fresh()
    for name in ("results", "reports", ".snakemake"):
        shutil.copytree(finished.folder / name, project.folder / name, symlinks=True)
    cells = project.results() / "simulate_policies" / "builtin" / "local" / "cells.parquet"
    cells.write_bytes(cells.read_bytes()[:5000])
    for _ in range(2):
        answer = project.snakemake()
        assert answer.returncode == 1 and "cells.parquet" in answer.stderr and "error: " in answer.stderr
    cells.unlink()
    assert project.snakemake().returncode == 0


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("stats.resamples=201", ["analyze_traces", *STUDIES, *AFTER_COMPARE, *AFTER_SUMMARY]),
        ("e4.betas=[0.25]", ["analyze_e4", "emulate_policies", "judge_claims", "make_figures", "mlflow_sync", "render_report"]),
        ("simulate.residency=[0.5]", [*AFTER_SIMULATE, "report_page"]),
        ("report.title=Another", ["mlflow_sync", "render_report", "report_page"]),
        ("generate.problems=1", ["build_tasks", "generate_answers", "mlflow_sync", *AFTER_COMPARE]),
    ],
)
def test_one_changed_option_reruns_what_uses_it(finished: Project, override: str, expected: list[str]) -> None:
    answer = finished.snakemake(
        "--dry-run", "--quiet", "host", "--config", "experiment=tiny", f'overrides=["corpus=local","corpus.folder=texts","{override}"]'
    )
    lines = (answer.stdout + answer.stderr).splitlines()
    assert sorted({line.split()[1].rstrip(":") for line in lines if line.startswith(("rule ", "localrule "))} - {"all"}) == sorted(expected)


@pytest.mark.parametrize(
    "sign",
    [
        "capture_traces/*/*/exploratory/.parts/*/00000.safetensors",
        "simulate_policies/*/*/simulate_policies.log",
        "emulate_policies/*/*/e2/.parts/*/*.safetensors",
        "generate_answers/*/*/.parts/*/*.jsonl",
    ],
)
def test_kill_9_and_the_same_command_completes(fresh: Callable[[], Project], sign: str) -> None:
    project = fresh()
    process = project.start()
    deadline = time.monotonic() + 300
    while not list(project.results().glob(sign)):
        assert process.poll() is None and time.monotonic() < deadline, (project.folder / "started.log").read_text()[-3000:]
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    stage = sign.split("/")[0]
    assert not [
        path
        for path in project.results().glob(f"{stage}/*/*/**/run.json")
        if {"exploratory", "e2"} & set(path.parts) or stage in ("simulate_policies", "generate_answers")
    ]
    answer = project.snakemake()
    assert answer.returncode == 0, answer.stderr[-3000:]
    assert (project.folder / "reports" / "tiny" / "index.html").exists()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["policy.miss_rule.tau=abc"],
            "error: configuration: policy.miss_rule.tau: Value 'abc' of type 'str' could not be converted to Float",
        ),
        (["simulate.residncy=[0.5]"], "error: unknown option 'simulate.residncy'; did you mean 'residency'?"),
        (
            ["simulate.residency=[0.001]"],
            "error: simulate.residency: 0.001 of 256 experts is C = 0, but K <= C <= E must hold (K = 8); use a share between 0.0312 and 1",
        ),
        (
            ["corpus=local", "corpus.folder=empty"],
            "error: corpus.folder: empty holds no .txt or .jsonl file; put text there or choose another corpus",
        ),
    ],
)
def test_a_mistake_is_one_line(finished: Project, overrides: list[str], message: str) -> None:
    (finished.folder / "empty").mkdir(exist_ok=True)
    answer = finished.snakemake("--dry-run", "--config", "experiment=tiny", f"overrides={json.dumps(overrides)}")
    assert answer.returncode == 2
    lines = [line for line in (answer.stderr + answer.stdout).splitlines() if line.strip() and not line.startswith(("Using ", "host:"))]
    assert lines == [message]


def test_two_runs_at_once_are_refused(finished: Project) -> None:
    import fcntl

    with open(finished.folder / "results" / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        answer = finished.snakemake("--forcerun", "mlflow_sync")
    assert answer.returncode == 2 and "error: another snakemake is running in this folder" in answer.stderr


def test_the_snakemake_report_is_made(finished: Project, tmp_path: Path) -> None:
    answer = finished.snakemake("--report", str(tmp_path / "report.html"))
    assert answer.returncode == 0, answer.stderr[-2000:]
    assert (tmp_path / "report.html").stat().st_size > 10_000
