"""Stage summarize_policies on invented cells."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from synthetic_study import CAPACITIES, LABELS, POLICIES, TOKENS, cells, write_cells

from expertmiss.errors import UserError
from expertmiss.files import read_json, sha256_file
from expertmiss.stages import Context
from expertmiss.stats.measures import MEASURES
from expertmiss.stats.summarize import OPEN_LOOP, run
from expertmiss.stats.tables import labels_of, read_table

pytestmark = pytest.mark.filterwarnings("error")
CFG = {"stats": {"resamples": 300, "confidence": 0.95, "seed": 1, "min_clusters": 40}}
CONTEXT = Context("test", "0" * 64)


@pytest.fixture
def study(tmp_path):
    frame = cells()
    path = write_cells(tmp_path / "results" / "cells", frame)
    out = tmp_path / "results" / "summary"
    run(CFG, cells=path, out=out, context=CONTEXT)
    return frame, path, out


def value(table, policy, capacity, measure):
    chosen = table[(table["policy"] == policy) & (table["capacity"] == capacity) & (table["measure"] == measure)]
    assert len(chosen) == 1
    return chosen.iloc[0]


def test_every_measure_of_every_cell_is_there_and_is_a_ratio_of_sums(study):
    frame, _, out = study
    summary = read_table(out / "summary.parquet").frame
    assert len(summary) == len(POLICIES) * len(CAPACITIES) * len(MEASURES)
    part = frame[(frame["policy"] == "rule_015") & (frame["capacity"] == 8)]
    expected = {
        "hit_rate": part["hits"].sum() / part["calls"].sum(),
        "miss_rate": 1 - part["hits"].sum() / part["calls"].sum(),
        "substituted_share": part["substituted"].sum() / part["calls"].sum(),
        "mean_mass": part["mass"].sum() / part["token_layers"].sum(),
        "agreement": part["agreement"].sum() / part["token_layers"].sum(),
        "kl": part["kl"].sum() / part["token_layers"].sum(),
    }
    for measure, number in expected.items():
        row = value(summary, "rule_015", 8, measure)
        assert row["estimate"] == pytest.approx(number, rel=1e-12)
        assert row["low"] < row["estimate"] < row["high"]
        assert (row["documents"], row["clusters"], row["reliable"], row["seeds"]) == (44, 44, "yes", 1)


def test_differences_are_paired_by_document(study):
    _, _, out = study
    summary, differences = (read_table(out / f"{name}.parquet").frame for name in ("summary", "differences"))
    assert set(differences["reference"]) == {"fetch_all"} and "fetch_all" not in set(differences["policy"])
    row = value(differences, "quality_first", 8, "hit_rate")
    own, base = value(summary, "quality_first", 8, "hit_rate"), value(summary, "fetch_all", 8, "hit_rate")
    assert row["estimate"] == pytest.approx(own["estimate"] - base["estimate"], rel=1e-9)
    assert row["high"] - row["low"] < 0.7 * (own["high"] - own["low"])


def test_seeds_are_summed_within_a_document(tmp_path):
    frame = cells(capacities=(8,))
    doubled = pd.concat([frame, frame.assign(seed=1)])
    for name, rows in (("one", frame), ("two", doubled)):
        run(CFG, cells=write_cells(tmp_path / "results" / name, rows), out=tmp_path / "results" / f"{name}_summary", context=CONTEXT)
    one, two = (read_table(tmp_path / "results" / f"{name}_summary" / "summary.parquet").frame for name in ("one", "two"))
    assert set(two["seeds"]) == {2}
    np.testing.assert_allclose(one[["estimate", "low", "high"]], two[["estimate", "low", "high"]], rtol=1e-9)


def test_labels_sample_and_open_loop_travel_with_the_table(study):
    _, path, out = study
    table = read_table(out / "summary.parquet")
    assert table.labels.n == {"documents": 44, "sources": 44, "tokens": 44 * TOKENS}
    assert list(table.labels.notes) == [*LABELS["notes"], OPEN_LOOP]
    assert table.sources == {"cells.parquet": sha256_file(path)}
    recorded = read_json(out / "run.json")
    assert recorded["labels"]["host"] == "test_fixture" and recorded["metrics"]["substituted_share/fetch_all/C8"] == 0
    assert {name.rpartition("/")[2] for name in recorded["outputs"]} == {
        "summary.parquet",
        "summary.csv",
        "differences.parquet",
        "differences.csv",
    }


def test_same_input_gives_the_same_bytes(study, tmp_path):
    _, path, out = study
    run(CFG, cells=path, out=tmp_path / "results" / "again", context=CONTEXT)
    for name in ("summary.parquet", "differences.csv"):
        assert sha256_file(out / name) == sha256_file(tmp_path / "results" / "again" / name)


def test_few_sources_are_inconclusive(tmp_path):
    run(
        CFG,
        cells=write_cells(tmp_path / "results" / "few", cells(sources=12, capacities=(8,))),
        out=tmp_path / "results" / "out",
        context=CONTEXT,
    )
    summary = read_table(tmp_path / "results" / "out" / "summary.parquet").frame
    assert set(summary["reliable"]) == {"inconclusive: n clusters < 40"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.drop(columns="mass"), "lacks column mass"),
        (lambda f: f.drop(index=f.index[3]), "'fetch_all' at capacity 8 lacks document 3"),
        (lambda f: f.assign(model=np.where(f.index % 2, "a", "b")), "column 'model' holds 2 values"),
        (lambda f: f[f["policy"] != "fetch_all"], "no policy 'fetch_all'"),
        (
            lambda f: f.assign(miss_rule=np.where(f["policy"] == "fetch_all", "substitute_all", f["miss_rule"])),
            "'fetch_all', the lossless reference, has miss rule substitute_all",
        ),
        (lambda f: pd.concat([f, f.iloc[[3]]]), "'fetch_all' at capacity 8, seed 0, document 3 stands there twice"),
        (lambda f: pd.concat([f, f.assign(residency=0.26)]), "residency 0.25, 0.26 are the same 8 resident experts"),
        (
            lambda f: f.assign(eviction=np.where((f["document"] == 0) & (f["policy"] == "rule_015"), "fifo", f["eviction"])),
            "two definitions",
        ),
        (lambda f: f.assign(source=np.where((f["policy"] == "rule_015"), "else", f["source"])), "two sources"),
    ],
)
def test_unusable_cells_are_refused_in_one_line(tmp_path, change, message):
    path = write_cells(tmp_path / "results" / "cells", change(cells(capacities=(8,))))
    with pytest.raises(UserError, match=message) as caught:
        run(CFG, cells=path, out=tmp_path / "results" / "out", context=CONTEXT)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "results" / "out").exists()


def test_cells_without_labels_are_refused(tmp_path):
    path = write_cells(tmp_path / "results" / "cells", cells(capacities=(8,)))
    (path.parent / "run.json").unlink()
    with pytest.raises(UserError, match="no labels"):
        labels_of(path)
    with pytest.raises(UserError, match="no labels"):
        run(CFG, cells=path, out=tmp_path / "results" / "out", context=CONTEXT)


@pytest.mark.parametrize(("content", "message"), [(None, "no such file"), (b"PAR1 cut", "not a readable Parquet file")])
def test_missing_and_broken_files_are_refused(tmp_path, content, message):
    path = tmp_path / "cells.parquet"
    if content:
        path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_table(path)
