"""run.json, labels, and the hash of the code that a stage runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expertmiss import provenance
from expertmiss.errors import UserError
from expertmiss.files import read_json, sha256_file
from expertmiss.provenance import Labels, digests, environment, modules_of, plain, repository_root, run_key, source_hash, write_run

LABELS: dict[str, Any] = {
    "substrate": "builtin_trained", "routing": "own", "time": "none", "host": "none", "status": "exploratory", "n": {"documents": 4},
    "notes": ["quick run"],
}  # fmt: skip


def record(root: Path, **changes: Any) -> dict[str, Any]:
    """Write a run below ``root`` with one input, one output and one artifact."""
    out = root / "results/default/simulate_policies/builtin/prose"
    for path in (root / "results/trace", out / "cells", root / "reports/default/figure.svg"):
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text(path.name)
    arguments: dict[str, Any] = {
        "stage": "simulate_policies", "experiment": "default", "name": "simulated policies of builtin on prose", "config": {"tau": 0.15},
        "source_hash": "abc", "inputs": [root / "results/trace"], "outputs": [out / "cells"], "metrics": {"misses/share": 0.06},
        "artifacts": [root / "reports/default/figure.svg"], "timings": {"simulate": 2}, "labels": LABELS, "started": datetime.now(UTC),
    }  # fmt: skip
    return write_run(out, **{**arguments, **changes})


def test_run_json_holds_everything_with_paths_from_the_root(tmp_path: Path) -> None:
    run = record(tmp_path, config={"policy": {"beta": float("inf"), "kept": [1, 2]}})
    assert run == read_json(tmp_path / "results/default/simulate_policies/builtin/prose/run.json")
    assert set(run) == {
        "schema", "stage", "experiment", "name", "run_key", "config", "source_hash", "inputs", "outputs", "metrics", "artifacts", "timings",
        "labels", "environment", "started", "finished",
    }  # fmt: skip
    assert run["config"] == {"policy": {"beta": "inf", "kept": [1, 2]}}
    assert run["inputs"] == {"results/trace": sha256_file(tmp_path / "results/trace")}
    assert list(run["outputs"]) == ["reports/default/figure.svg", "results/default/simulate_policies/builtin/prose/cells"]
    assert run["artifacts"] == ["reports/default/figure.svg"]
    assert run["labels"] == LABELS
    assert str(tmp_path) not in json.dumps(run)


def test_key_depends_on_what_was_asked_and_nothing_else(tmp_path: Path) -> None:
    key = record(tmp_path / "a")["run_key"]
    assert len(key) == 64
    later = record(tmp_path / "b", started=datetime.now(UTC) + timedelta(days=1), timings={"simulate": 9}, metrics={"misses/share": 0.5})
    assert later["run_key"] == key, "other folder, time and results"
    others = [
        record(tmp_path / "a", stage="emulate_policies"), record(tmp_path / "a", experiment="study"), record(tmp_path / "a", source_hash="d"),
        record(tmp_path / "a", config={"tau": 0.2}), record(tmp_path / "a", inputs=[]),
    ]  # fmt: skip
    (tmp_path / "a/results/trace").write_text("another")
    others.append(record(tmp_path / "a"))
    assert len({key, *(other["run_key"] for other in others)}) == 7


@given(st.dictionaries(st.text(max_size=3), st.floats() | st.integers() | st.lists(st.booleans(), max_size=2), max_size=4))
def test_key_ignores_the_order_of_options(config: dict[str, Any]) -> None:
    backwards = dict(reversed(config.items()))
    assert run_key("s", "e", config, "h", {"a": "1", "b": "2"}) == run_key("s", "e", backwards, "h", {"b": "2", "a": "1"})
    json.dumps(plain(config), allow_nan=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "tau=0.15"}, "run name 'tau=0.15'"),
        ({"name": " "}, "run name ' '"),
        ({"metrics": {"share": float("nan")}}, "metrics.share is nan"),
        ({"metrics": {"change in %": 1}}, "'change in %' is not a name"),
        ({"metrics": {"a//b": 1}}, "'a//b' is not a name"),
        ({"timings": {"simulate": float("inf")}}, "timings.simulate is inf"),
        ({"inputs": ["nowhere"]}, "nowhere: no such file or folder"),
        ({"artifacts": ["/proc/version"]}, "artifact external:version lies outside"),
        ({"labels": {**LABELS, "status": "final"}}, "labels.status: 'final' is not a label"),
    ],
)
def test_refusals_name_what_is_wrong_and_write_nothing(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as refused:
        record(tmp_path, **changes)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.rglob("run.json"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"substrate": "real_modle"}, "labels.substrate: 'real_modle' is not a label; did you mean 'real_model'?"),
        ({"routing": "random"}, "labels.routing: 'random'"),
        ({"time": None}, "labels.time: None"),
        ({"host": " "}, "labels.host: ' ' names no host"),
        ({"n": {}}, "labels.n: {} holds no sample size"),
        ({"n": {"documents": 4.0}}, "labels.n.documents: 4.0 is not a count"),
        ({"n": {"documents": -1}}, "labels.n.documents: -1"),
        ({"n": {"documents": True}}, "labels.n.documents: True"),
        ({"notes": "open loop"}, "labels.notes: 'open loop'"),
        ({"stats": "exploratory"}, "labels.stats: no such field; did you mean 'status'?"),
    ],
)
def test_labels_outside_the_vocabulary_are_refused_by_field(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as refused:
        Labels.of({**LABELS, **changes})
    assert str(refused.value).startswith(message)


def test_labels_need_every_field_but_notes() -> None:
    without = {key: value for key, value in LABELS.items() if key != "notes"}
    assert Labels.of(without).notes == ()
    for name in without:
        with pytest.raises(UserError, match=rf"labels\.{name}: missing"):
            Labels.of({key: value for key, value in LABELS.items() if key != name})


def test_folders_stand_for_their_files_and_outsiders_for_their_names(tmp_path: Path) -> None:
    root, cache = tmp_path / "project", tmp_path / "cache"
    for path in (
        root / "results/t/b",
        root / "results/t/deep/a",
        root / "results/t/run.json",
        root / "results/t/.b.tmp",
        cache / "1/w",
        cache / "2/w",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(path))
    assert list(digests([root / "results/t"], root)) == ["results/t/b", "results/t/deep/a"]
    outside = digests([cache / "1", cache / "2/w", cache / "1/w"], root)
    assert list(outside) == ["external:w", f"external:w#{sha256_file(cache / '2/w')[:8]}"]


def test_a_file_is_read_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(provenance, "sha256_file", lambda path: read.append(path) or sha256_file(path))
    file = tmp_path / "weights"
    file.write_text("one")
    first = [digests([file], tmp_path) for _ in range(3)]
    os.utime(file, ns=(1, 1))
    file.write_text("two")
    assert digests([file], tmp_path) != first[0] == first[2]
    assert len(read) == 2


def test_root_is_above_results_or_reports_else_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert repository_root(tmp_path / "p/results/default/stage") == tmp_path / "p"
    assert repository_root("reports/default") == tmp_path
    assert repository_root(tmp_path / "other/place") == tmp_path


def test_environment_names_versions_and_no_place(tmp_path: Path) -> None:
    found = environment()
    assert found["cores"] >= 1
    assert found["packages"]["numpy"]
    text = json.dumps(found)
    for name in (str(Path.home()), os.uname().nodename, str(tmp_path.parent)):
        assert name not in text


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """A made-up package in place of the real one; returns a function that writes one of its files."""
    package = tmp_path / "src" / "expertmiss"

    def write(name: str, text: str) -> None:
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        forget()

    def forget() -> None:
        for cached in (
            provenance._imports,
            provenance._hash_modules,
            provenance._data_files,
            provenance._file,
            provenance._name_and_digest,
        ):
            cached.cache_clear()

    monkeypatch.setattr(provenance, "PACKAGE", package)
    write("__init__.py", "")
    write("errors.py", "")
    write("files.py", "from expertmiss.errors import UserError\n")
    write("simulate/__init__.py", "")
    write(
        "simulate/stage.py",
        "import numpy\nfrom expertmiss.files import write_json\nfrom . import grid\ndef run():\n    from expertmiss import traces\n",
    )
    write("simulate/grid.py", "import expertmiss.policies.rules as rules\n")
    write("policies/__init__.py", "")
    write("policies/rules.py", "try:\n    from expertmiss import _core\nexcept ImportError:\n    raise\n")
    write("traces/__init__.py", "from .format import Trace\n")
    write("traces/format.py", "Trace = 1\n")
    write("report/__init__.py", "")
    write("report/stage.py", "from importlib import import_module\ndef run(name):\n    import_module(f'expertmiss.report.{name}')\n")
    write("report/pages.py", "")
    write("report/templates/page.html", "<p>")
    write("../core/rule.cpp", "int x;")
    write("../../CMakeLists.txt", "project(x)")
    yield write
    forget()


SIMULATE = "expertmiss.simulate.stage"


@pytest.mark.parametrize(
    "name",
    [
        "__init__.py", "files.py", "simulate/__init__.py", "simulate/stage.py", "simulate/grid.py", "policies/__init__.py", "policies/rules.py",
        "traces/__init__.py", "traces/format.py", "../core/rule.cpp", "../../CMakeLists.txt",
    ],
)  # fmt: skip
def test_hash_follows_imports_of_every_form(checkout: Callable[[str, str], None], name: str) -> None:
    before = source_hash(SIMULATE)
    text = (provenance.PACKAGE / name).read_text()
    checkout(name, text + "# a comment\n")
    assert source_hash(SIMULATE) != before
    checkout(name, text)
    assert source_hash(SIMULATE) == before


@pytest.mark.parametrize("name", ["errors.py", "report/stage.py", "report/pages.py", "report/templates/page.html", "simulate_other.py"])
def test_hash_ignores_what_a_stage_does_not_run(checkout: Callable[[str, str], None], name: str) -> None:
    before = source_hash(SIMULATE)
    checkout(name, "changed = 1\n")
    assert source_hash(SIMULATE) == before


def test_hash_counts_templates_computed_imports_and_new_files_of_the_core(checkout: Callable[[str, str], None]) -> None:
    report, simulate = source_hash("expertmiss.report.stage"), source_hash(SIMULATE)
    checkout("report/pages.py", "x = 1\n")
    pages = source_hash("expertmiss.report.stage")
    checkout("report/templates/page.html", "<p>new")
    assert len({report, pages, source_hash("expertmiss.report.stage")}) == 3
    checkout("../core/another.cpp", "")
    assert source_hash(SIMULATE) != simulate


def test_modules_that_cannot_change_results_count_only_as_targets(checkout: Callable[[str, str], None]) -> None:
    checkout("tracking/__init__.py", "")
    checkout("tracking/sync.py", "from expertmiss import progress, tracking\n")
    checkout("progress.py", "")
    checkout("simulate/grid.py", "from expertmiss import progress\nimport expertmiss.tracking.sync\n")
    assert modules_of([SIMULATE]) == {
        "expertmiss", "expertmiss.files", "expertmiss.simulate", SIMULATE, "expertmiss.simulate.grid", "expertmiss.traces",
        "expertmiss.traces.format",
    }  # fmt: skip
    assert modules_of(["expertmiss.tracking.sync"]) == {"expertmiss", "expertmiss.tracking", "expertmiss.tracking.sync"}
    assert source_hash(["expertmiss.files", SIMULATE]) == source_hash((SIMULATE, "expertmiss.files"))


def test_stages_of_this_package_do_not_count_each_other() -> None:
    from expertmiss.stages import STAGES

    for stage, module in STAGES.items():
        modules = modules_of([module])
        assert modules & set(provenance.NOT_HASHED) <= {"expertmiss.tracking"}
        if stage != "render_report":
            assert not any(name.startswith("expertmiss.report") for name in modules), stage
    assert len({source_hash(stage) for stage in STAGES}) == len(STAGES)


def test_unknown_stages_and_modules_are_named() -> None:
    with pytest.raises(UserError, match=r"no stage 'simulate_policy' .* did you mean 'simulate_policies'\?"):
        source_hash("simulate_policy")
    with pytest.raises(UserError, match=r"no module 'expertmiss\.nowhere'"):
        source_hash("expertmiss.nowhere")


def test_hashing_imports_nothing_heavy() -> None:
    program = "import sys; from expertmiss.provenance import source_hash; source_hash('mlflow_sync'); print(sorted({m.split('.')[0] for m in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"numpy", "mlflow", "torch", "pandas", "tqdm"} & set(json.loads(done.stdout.replace("'", '"')))
