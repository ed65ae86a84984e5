"""E5: speed and perplexity of the same run on the engine, the time model, and the engine against the emulator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from markupsafe import Markup

from expertmiss.report.base import Page, Section, render
from expertmiss.report.experiments import loss_cell, number, statistics_table
from expertmiss.report.numbers import digits_for, show, show_interval
from expertmiss.report.shown import Cell, ShownTable

PARTS = {"wall": "Time", "compute": "Compute", "waiting": "Waiting", "deciding": "Policy", "background": "Background"}
TOLD = {
    "C5": ("ratio of quality_first", "ratio of speed_first", "D of quality_first", "D of speed_first", "D of substitute_all"),
    "C5a": ("perplexity rise", "time ratio"), "C5b": ("perplexity rise", "time ratio"), "C2 (engine)": ("r of mass",),
}  # fmt: skip


def _render(page: Page) -> Markup:
    statistics, times, prediction = page.tables["e5_statistics"], page.tables["e5_times"], page.tables["e5_prediction"]
    numbers = {
        (claim, name): number(page, statistics[statistics["claim"] == claim], name, "E5", claim)
        for claim, names in TOLD.items() for name in names
    }  # fmt: skip
    row = prediction.iloc[0]
    errors = {
        name: page.numbers.plain(("E5", "median error", name), round(100 * float(row[f"median_error_{name}"]), 1))
        for name in ("calibrated", "fitted", "bytes")
    }
    target = page.numbers.plain(("E5", "target error"), round(100 * float(row["target"]), 1))
    agreement = page.tables["e5_agreement"]
    counts = {
        name: page.numbers.plain(("E5", "agreement", name), int(agreement[name].sum()))
        for name in ("near_ties", "following", "unexplained", "layers")
    }
    claims = ["C5", "C5a", "C5b"]
    tables = [
        page.export(_times(times, page.tables["e5_measures"]), "e5_times"),
        page.export(
            statistics_table("e5_claims", "E5: what the rules of C5, C5a and C5b need.", statistics[statistics["claim"].isin(claims)], ("clusters",)),
            "e5_statistics",
        ),
        page.export(
            statistics_table(
                "e5_correlations", "C2 on the engine: correlations over the protected policies; documents resampled, never policies.",
                statistics[~statistics["claim"].isin(claims)], ("policies",),
            ),
            "e5_statistics",
        ),
        page.export(_prediction(prediction), "e5_prediction"), page.export(_agreement(agreement), "e5_agreement"),
        page.export(_calibration(page.tables["calibration"]), "calibration"),
    ]  # fmt: skip
    quality, pairs = (int(statistics.loc[statistics["kind"] == kind, "clusters"].min()) for kind in ("quality", "time"))
    quick = "; quick run" if page.cfg["report"]["quick"] else ""
    return render(
        "e5.html.j2", numbers=numbers, errors=errors, target=target, within=float(row["median_error_fitted"]) <= float(row["target"]), counts=counts, tables=tables,
        figures=[page.figures[name] for name in ("e5_front", "e5_parts", "e5_prediction") if name in page.figures],
        sample=f"n = {int(statistics['documents'].iloc[0]):,} streams of {quality} sources, {pairs} (stream, repeat) pairs{quick}",
        bound=next((note for note in page.table_labels["e5_times"].notes if "bound by latency" in note), ""),
        unreliable=bool((statistics["reliable"] != "yes").any()), added=_added(page), labels=page.table_labels["e5_times"],
    )  # fmt: skip


def _number(row: Mapping[Any, Any], unit: str) -> Cell:
    value, low, high = (float(row[name]) for name in ("estimate", "low", "high"))
    digits = digits_for(unit, value, low, high)
    return Cell(show(unit, value, digits) + ("" if row["reliable"] == "yes" else " †"), show_interval(unit, low, high, digits))


def _times(times: pd.DataFrame, measures: pd.DataFrame) -> ShownTable:
    """Policies at the claims' capacity: time and its parts, bytes, speed, loss."""
    own = times[times["arm"] != "cell"]
    loss = {(row["policy"], row["arm"]): row for row in measures[measures["measure"] == "perplexity_change"].to_dict("records")}
    cells = []
    for (policy, arm), part in own.groupby(["policy", "arm"], sort=False):
        at = {row["measure"]: row for row in part.to_dict("records")}
        moved = (at["fetch_bytes"]["estimate"] + at["admission_bytes"]["estimate"]) / 1e3
        cells.append([
            Cell(str(policy)), *(_number(at[name], "ms") for name in PARTS), Cell(f"{moved:,.0f}"), _number(at["speed"], "ratio"), loss_cell(loss[policy, arm]),
            Cell(str(int(at["wall"]["pairs"]))),
        ])  # fmt: skip
    capacity = int(own["capacity"].iloc[0])
    title = (
        f"E5 at C = {capacity}: milliseconds per token and its parts, kilobytes read per token, how many times as fast as fetch_all, perplexity of the same "
        "run. Policies below the paper's six are C2's, timed in the first repeat only."
    )
    return ShownTable("e5_times", title, ["Policy", *PARTS.values(), "kB", "Speed", "Perplexity change (%)", "Pairs"], cells, times)


def _prediction(frame: pd.DataFrame) -> ShownTable:
    cells = [
        [
            Cell(f"{row['policy']}, C = {row['capacity']}"), Cell(row["role"]), Cell(f"{row['measured']:.3f}"),
            Cell(f"{row['calibrated']:.3f}"), Cell(f"{100 * row['error_calibrated']:+.1f}"), Cell(f"{row['fitted']:.3f}"),
            Cell(f"{100 * row['error_fitted']:+.1f}"), Cell(f"{row['measured_bytes'] / 1e3:,.0f}"), Cell(f"{row['predicted_bytes'] / 1e3:,.0f}"),
        ]
        for row in frame.to_dict("records")
    ]  # fmt: skip
    columns = ["Policy", "Role", "Measured (ms)", "Calibrated (ms)", "error (%)", "Fitted (ms)", "error (%)", "Read (kB)", "predicted (kB)"]
    title = "The time model: time per token from the simulator's requests (open loop) and the host's calibration, and after a fit on the cells marked so."
    return ShownTable("e5_prediction", title, columns, cells, frame)


def _agreement(frame: pd.DataFrame) -> ShownTable:
    cells = [
        [
            Cell(row["policy"]), Cell(f"{row['layers']:,}"), Cell(str(row["differing"])), Cell(str(row["near_ties"])), Cell(str(row["following"])),
            Cell(str(row["unexplained"])), Cell(f"{100 * row['other_share']:.2f}"), Cell(f"{100 * row['nll_difference']:+.4f}"),
            Cell(f"{row['eps']:.1e}"),
        ]
        for row in frame.to_dict("records")
    ]  # fmt: skip
    columns = ["Policy", "Layers", "differ", "near-ties", "follow", "unexplained", "Other sets (%)", "NLL (%)", "Rounding"]
    title = (
        "The engine against the emulator, both free, on the same streams: layers of a stream whose decisions differ, by what the first difference is; "
        "token-layers that execute other experts; mean NLL, engine relative to emulator; largest difference of router logits under forced decisions."
    )
    return ShownTable("e5_agreement", title, columns, cells, frame)


def _calibration(frame: pd.DataFrame) -> ShownTable:
    cells = []
    for row in frame.to_dict("records"):
        scale, unit = (1e6, "µs") if row["unit"] == "s" else (1e-6, "MB/s")
        values = [f"{scale * row[name]:,.4g}" for name in ("estimate", "low", "high")]
        cells.append([Cell(row["quantity"]), Cell(values[0], f"[{values[1]}, {values[2]}]"), Cell(unit), Cell(str(row["rounds"]))])
    title = "Calibration of the host with this model: medians over rounds; what misses and admissions add, by least squares over all rounds; 95 % intervals."
    return ShownTable("e5_calibration", title, ["Quantity", "Estimate", "Unit", "Rounds"], cells, frame)


def _added(page: Page) -> list[ShownTable]:
    """What other machines measured (expertmiss report --add-host), one table a host."""
    found = []
    for host in page.added:
        frame, source = page.tables[f"e5_statistics/{host}"], f"e5_statistics/{host}"
        labels = page.table_labels[source]
        title = f"E5 on host {host} ({labels.substrate}, added from another run): what the rules of C5, C5a, C5b and C2 need."
        found.append(page.export(statistics_table(f"e5_claims_{host}", title, frame, ("clusters",)), source))
    return found


SECTION = Section(
    "e5", "E5: speed and perplexity on the engine", 48,
    ("e5_measures", "e5_times", "e5_statistics", "e5_prediction", "e5_orders", "e5_agreement", "calibration"), _render,
)  # fmt: skip
