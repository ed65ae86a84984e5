"""Single substitutions: balanced places, outcomes of exactly one changed call, and a regression that finds what was put in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from expertmiss.config import compose
from expertmiss.errors import UserError
from expertmiss.experiments.b import sites
from expertmiss.experiments.b.plan import PLAN
from expertmiss.stats.tables import read_table
from tests.experiments_b.tiny_b import CONTEXT, ROOT, make_project

BITS = {"stats": compose(ROOT, "tiny")["stats"]}


def test_ranks_are_balanced_and_places_have_room() -> None:
    arms = [arm for document in range(20) for arm in sites.draw_sites(6, 80, 3, 4, 16, document, 1)]
    token, layer, rank = (np.array(values) for values in zip(*(arm.site for arm in arms if arm.site), strict=True))
    assert np.bincount(rank).tolist() == [30, 30, 30, 30] and set(layer) == {0, 1, 2}
    assert token.min() >= 16 and token.max() + sites.NEXT <= 79
    with pytest.raises(UserError, match="no place with 32 targets"):
        sites.draw_sites(1, 49, 3, 4, 16, 0, 1)


def invented(n: int, seed: int = 0) -> pd.DataFrame:
    """Loss = 0.02 a rank + 0.5 x weight + 0.01 x gap + a document's own part."""
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame({
        "document": np.arange(n) // 4 % 60, "layer": draw.integers(0, 3, n), "rank": np.arange(n) % 4, "weight": draw.uniform(0.02, 0.4, n),
        "gap": draw.uniform(0, 3, n),
    })  # fmt: skip
    noise = draw.normal(0, 0.02, n) + draw.normal(0, 0.02, 60)[frame["document"]]
    return frame.assign(loss=0.02 * frame["rank"] + 0.5 * frame["weight"] + 0.01 * frame["gap"] + noise)


def test_the_regression_finds_its_coefficients() -> None:
    """Estimates are near what was put in, and 95 % intervals hold it about as often as they should (60 trials)."""
    held = []
    for seed in range(20):
        found = sites.fit(invented(1200, seed), 0.95).set_index("term")
        for term, truth in (("rank", 0.02), ("weight", 0.05), ("gap", 0.01)):  # weight is per 0.1
            assert found.loc[term, "estimate"] == pytest.approx(truth, rel=0.25)
            held.append(found.loc[term, "low"] < truth < found.loc[term, "high"])
    assert 0.88 <= np.mean(held) <= 1
    assert (found["vif"] < 1.1).all() and (found["clusters"] == 60).all() and (found["reliable"] == "yes").all()


def test_small_cells_are_refused() -> None:
    frame = invented(400)
    frame.loc[frame["rank"] == 3, "weight"] = 0.01  # only in the lightest bin
    frame.loc[frame.index[frame["rank"] == 3][:5], "weight"] = 0.35
    found = sites.cells_of(frame, 0.95)
    small = found[found["sites"] < sites.LEAST]
    assert len(small) and small[["estimate", "low", "high"]].isna().all(axis=None) and small["reliable"].str.startswith("refused").all()
    large = found[found["sites"] >= sites.LEAST]
    assert (large["low"] < large["estimate"]).all() and found["sites"].sum() == 400
    shares = sites.overlap(frame).set_index("rank")
    assert shares.loc[3, "q50"] == pytest.approx(0.01) and shares["sites"].sum() == 400


def test_the_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project: dict[str, Any] = make_project(tmp_path)
    monkeypatch.setattr(sites, "project_root", lambda: project["root"])
    cfg = {
        **project["cfg"], **BITS, "b": {"pilot_documents": 4, "site_split": "pilot", "site_documents": 6, "sites": 8, "site_seed": 1},
    }  # fmt: skip
    out = project["here"] / "measure_sites"
    sites.run(cfg, out=out, context=CONTEXT, plan=project["root"] / PLAN, **project["files"])
    table = read_table(out / "b_sites.parquet")
    frame = table.frame
    assert len(frame) == 48 and table.labels.status == "exploratory" and table.labels.n["sites"] == 48
    assert np.bincount(frame["rank"]).tolist() == [12, 12, 12, 12] and frame["weight"].between(0, 1).all()
    assert (frame.loc[frame["rank"] == 0, "weight"] >= 0.25).all() and (frame["loss"] != 0).all()
    before = frame
    sites.run(cfg, out=out, context=CONTEXT, plan=project["root"] / PLAN, **project["files"])
    pd.testing.assert_frame_equal(read_table(out / "b_sites.parquet").frame, before)
