"""Without llama.cpp, or with a model that is not converted, E5 is not measured: the claims and the page say why, and nothing fails."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from expertmiss.config import compose
from expertmiss.config.check import check_configuration
from expertmiss.engine import available
from expertmiss.errors import UserError
from expertmiss.experiments import judge
from expertmiss.experiments.lock import verify
from expertmiss.files import write_json
from expertmiss.provenance import Labels
from expertmiss.report.sections.e5_missing import SECTION
from expertmiss.report.stage import _page_labels
from expertmiss.stats.tables import PREDICTED_TOO, Table, joint_labels, read_table, write_table
from tests.experiments.tiny_study import CLAIMS, CONTEXT, ROOT, RULES


def test_why_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(available.importlib.util, "find_spec", lambda name: object())
    assert available.why_not(ROOT, compose(ROOT)) is None
    write_json(tmp_path / "config.json", {"model_type": "olmoe"})
    assert "no GGUF file is made of this model" in str(available.why_not(tmp_path, {"model": {"path": "."}}))
    assert "no GGUF file is made of this model" in str(available.why_not(tmp_path, {"model": {"path": "owner/name"}}))
    monkeypatch.setattr(available.importlib.util, "find_spec", lambda name: None)
    assert available.why_not(ROOT, compose(ROOT)) == "the engine is not built; run `make setup-engine`"


def test_the_claims_and_the_page_say_so(tmp_path: Path) -> None:
    labels: Any = {
        "substrate": "builtin_trained",
        "routing": "own",
        "time": "none",
        "host": "this_host",
        "status": "exploratory",
        "n": {"documents": 4},
    }
    row = {
        "claim": "C4",
        "statistic": "a",
        "estimate": 0.0,
        "low": 0.0,
        "high": 0.0,
        "confidence": 0.95,
        "clusters": 4,
        "documents": 4,
        "split": "exploratory",
    }
    folder = tmp_path / "results"
    write_table(folder / "e4_statistics.parquet", pd.DataFrame([row | {"part": "a", "family": "x", "p_holm": 1.0}]), Labels.of(labels), {})
    write_json(folder / "run.json", {"config": {"claims_lock": verify(ROOT, "claims")}})
    reason = "the engine is not built; run `make setup-engine`"
    cfg = {"report": {"quick": True}, "model": {"substrate": "builtin_trained", "name": "builtin"}, "not_measured": {"e5": reason}}
    judge.run(cfg, out=folder / "claims", context=CONTEXT, statistics=[folder / "e4_statistics.parquet"], claims=CLAIMS, e5=RULES)
    claims = read_table(folder / "claims" / "claims.parquet").frame.set_index("claim")
    for name in ("C5", "C5a", "C5b", "C2 (engine)"):
        assert claims.loc[name, "verdict"] == "not measured" and claims.loc[name, "why"] == reason
    assert claims.loc["C1", "verdict"] == "not run" and claims.loc["C4", "verdict"] == "quick run: not judged"
    page: Any = SimpleNamespace(cfg={"not_measured": {"e5": reason}})
    assert "Not measured: the engine is not built; run `make setup-engine`" in SECTION.render(page)
    assert SECTION.render(SimpleNamespace(cfg={"not_measured": {}})) == ""  # type: ignore[arg-type]


def test_an_assumed_host_measures_nothing() -> None:
    with pytest.raises(UserError, match="host 'rtx3090_nvme_assumed': is assumed, so nothing can be measured on it"):
        check_configuration(ROOT, compose(ROOT, overrides=["host=rtx3090_nvme"]))


def test_times_of_several_kinds_on_one_page() -> None:
    def table(clock: str) -> Table:
        labels = Labels("builtin_trained", "own", clock, "this_host", "exploratory", {"documents": 4})
        return Table(pd.DataFrame({"a": [1]}), labels, {})

    assert joint_labels([table("none"), table("measured")], quick=False).time == "measured"
    assert joint_labels([table("none"), table("predicted")], quick=False).time == "predicted"
    both = _page_labels({name: table(name) for name in ("none", "measured", "predicted")}, quick=False)
    assert both.time == "measured" and PREDICTED_TOO in both.notes
    assert joint_labels([table("none")], quick=False).time == "none"
