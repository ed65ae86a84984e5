"""Stage analyze_e4: background admission, overall and after a topic change (claim C4).

Inputs:  cells, open_loop and per-token NLL of emulate_policies e4 (topic-shift streams); config/claims.yaml.
Outputs: e4_measures (loss and routing of every row), e4_effects (background minus fetched_only, by beta and delay), e4_bins (that effect by
         distance from a change), e4_reswaps, e4_gap (closed minus open loop), e4_statistics (what C4's rule needs), e4_orders (C8).
Steps:   effects per token; bins after topic changes and after same-topic document changes (placebo); simultaneous band; one-sided tests, Holm.

Streams are the clusters: no document is in two of them. A package or template may give documents to several, which the intervals do not see.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from safetensors import safe_open
from scipy.stats import ttest_1samp
from statsmodels.stats.multitest import multipletests

from expertmiss.corpora.topic_shift import DOCUMENT_CHANGE, TOPIC_CHANGE
from expertmiss.errors import UserError
from expertmiss.experiments.cells import ABOUT, Array, Cells, load_cells, loop_gap, measure_rows, order_reversals, rows
from expertmiss.experiments.lock import verify
from expertmiss.experiments.output import Clock, statistic, write_analysis
from expertmiss.experiments.plans import load_claims
from expertmiss.paths import project_root
from expertmiss.stages import Context
from expertmiss.stats.bootstrap import ClusterBootstrap, ratio

STAGE = "analyze_e4"
BINS = (0, 16, 64, 128)
"""First tokens of the bins after a change; the last bin ends at the next change."""
CHANGES = {"topic change": TOPIC_CHANGE, "same-topic document change": DOCUMENT_CHANGE}


def run(cfg: dict[str, Any], *, out: Path, context: Context, cells: Path, open_loop: Path, nll: Path, claims: Path) -> None:
    """Write the tables and ``run.json`` into ``out``; ``cfg``: ``stats``.

    Raises:
        UserError: a table is missing, incomplete or of other policies, streams without changes.
    """
    clock = Clock()
    lock = verify(project_root(), "claims", claims)
    closed, opened, rules = load_cells(cells), load_cells(open_loop), load_claims(claims)["claims"]
    # Streams are the clusters. No document is in two of them, but packages and templates can be.
    bootstrap = ClusterBootstrap(closed.documents["document"].to_numpy(), **cfg["stats"])
    losses, flags = _per_token(nll, closed)
    effects = _effects(closed, bootstrap)
    statistics, bins, orders = [], [], []
    for base in dict.fromkeys(family for family in closed.policies["family"] if family.endswith("/lfu")):
        plain = closed.index(family=base, arm="fetched_only")
        background = closed.index(family=base, arm="background", beta=float(rules["C4"]["beta"]))
        effect = losses[background] - losses[plain]
        overall = (closed.nll[:, background] - closed.nll[:, plain]) / closed.scored
        contrast = shift_contrast(effect, flags, rules["C4"]["near_tokens"])
        statistics += _tests(base, overall, contrast, bootstrap)
        bins.append(_bins(effect, flags, cfg["stats"]).assign(family=base))
        for name, values in ((f"effect of background, {base}", overall), (f"more of it after a topic change, {base}", contrast)):
            order = order_reversals(lambda totals: totals[:, 0], values[:, None], rules["C8"]["orders"], rules["C8"]["fraction"], 8)
            orders.append({"claim": "C4", "statistic": name, **order, "documents": len(values)})
    tables = {
        "e4_measures": measure_rows(closed, bootstrap), "e4_effects": effects, "e4_bins": pd.concat(bins, ignore_index=True),
        "e4_reswaps": _reswaps(closed, bootstrap), "e4_gap": loop_gap(closed, opened, bootstrap),
        "e4_statistics": _adjust(pd.DataFrame(statistics)), "e4_orders": pd.DataFrame(orders),
    }  # fmt: skip
    write_analysis(
        out, STAGE, "E4: background admission and topic changes", cfg, context, clock, closed, bootstrap, tables, [cells, open_loop, nll], lock, rules["C4"]["residency"],
        unit="streams",
    )  # fmt: skip


def _per_token(path: Path, cells: Cells) -> tuple[Array, NDArray[np.uint8]]:
    """NLL [P, D, T - 1] in the order of ``cells`` and the change flags [D, T]."""
    with safe_open(path, "np") as opened:
        losses, document, flags = (opened.get_tensor(name) for name in ("nll", "document", "topic_change"))
    if len(losses) != len(cells.policies) or not np.array_equal(document, cells.documents["document"]):
        raise UserError(f"{path}: other policies or streams than cells.parquet beside it; run emulate_policies again")
    if not (flags == TOPIC_CHANGE).any() or not (flags == DOCUMENT_CHANGE).any():
        raise UserError(f"{path}: streams without topic changes and document changes; E4 needs those of build_topic_shift")
    shortest = min(stop - start for row in flags for kind in CHANGES.values() for start, stop in windows(row, kind))
    if shortest <= BINS[-1]:
        raise UserError(
            f"{path}: only {shortest} tokens between two changes, the last bin begins at {BINS[-1]}; raise corpus.shift_piece_tokens above {BINS[-1] + 1}"
        )
    return losses.astype(np.float64), flags


def _effects(cells: Cells, bootstrap: ClusterBootstrap) -> pd.DataFrame:
    """Mean NLL of every background row minus that of fetched_only with the same base rule and eviction, nats per token."""
    chosen = np.flatnonzero(cells.policies["arm"].isin(["background", "delay"]))
    plain = [cells.index(family=cells.policies["family"].iloc[place], arm="fetched_only") for place in chosen]
    change = cells.nll[:, chosen] - cells.nll[:, plain]
    columns = np.stack([change, np.broadcast_to(cells.scored[:, None], change.shape)], axis=1)
    return rows(cells.policies.loc[chosen, ABOUT], "background_effect", "nats", bootstrap.interval(ratio, columns), bootstrap.confidence)


def windows(flags: NDArray[np.uint8], kind: int) -> list[tuple[int, int]]:
    """[start, stop) of the tokens after every change of ``kind``, up to the next change of any kind; the last target has no successor."""
    marks = [*np.flatnonzero(flags), len(flags) - 1]
    return [(int(start), int(stop)) for start, stop in itertools.pairwise(marks) if flags[start] == kind]


def shift_contrast(effect: Array, flags: NDArray[np.uint8], near: int) -> Array:
    """[D] effect within ``near`` tokens of a topic change minus later, minus the same contrast at same-topic document changes.

    Args:
        effect: [D, T - 1] change of NLL of the target after each token.
        flags: [D, T].
    """
    found = []
    for values, marks in zip(effect, flags, strict=True):
        contrasts = [
            np.mean([values[start : start + near].mean() - values[start + near : stop].mean() for start, stop in windows(marks, kind)])
            for kind in (TOPIC_CHANGE, DOCUMENT_CHANGE)
        ]
        found.append(contrasts[0] - contrasts[1])
    return np.array(found)


def bin_means(effect: Array, flags: NDArray[np.uint8], kind: int) -> Array:
    """[D, bins] mean effect by distance from the changes of ``kind``."""
    result = np.zeros((len(effect), len(BINS)))
    for row, (values, marks) in enumerate(zip(effect, flags, strict=True)):
        spans = windows(marks, kind)
        for column, (first, last) in enumerate(zip(BINS, [*BINS[1:], None], strict=True)):
            pieces = [values[start + first : stop if last is None else min(start + last, stop)] for start, stop in spans]
            result[row, column] = np.concatenate(pieces).mean()
    return result


def _bins(effect: Array, flags: NDArray[np.uint8], options: dict[str, Any]) -> pd.DataFrame:
    """Effect by bin after topic changes, after document changes, and their difference, with simultaneous bands."""
    means = {name: bin_means(effect, flags, kind) for name, kind in CHANGES.items()}
    names = list(means)
    means["difference"] = means[names[0]] - means[names[1]]
    found = []
    for name, values in means.items():
        mean, low, high = simultaneous_band(values, options["confidence"], options["resamples"], options["seed"])
        for column, first in enumerate(BINS):
            until = BINS[column + 1] - 1 if column + 1 < len(BINS) else -1
            found.append({
                "after": name, "bin_from": first, "bin_to": until, "estimate": mean[column], "low": low[column], "high": high[column],
                "unit": "nats", "confidence": options["confidence"], "clusters": len(effect), "documents": len(effect),
                "reliable": "yes" if len(effect) >= options["min_clusters"] else f"inconclusive: n clusters < {options['min_clusters']}",
            })  # fmt: skip
    return pd.DataFrame(found)


def simultaneous_band(values: Array, confidence: float, resamples: int, seed: int) -> tuple[Array, Array, Array]:
    """Mean over rows of ``values`` [D, bins] with a band that holds all bins at once (bootstrap of the largest |t|, rows resampled)."""
    mean = values.mean(axis=0)
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    draw = np.random.default_rng(seed)
    counts = draw.multinomial(len(values), np.full(len(values), 1 / len(values)), size=resamples) / len(values)
    drawn = counts @ values
    spread = np.sqrt(np.maximum(counts @ values**2 - drawn**2, 0) / (len(values) - 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        largest = np.nanmax(np.abs(drawn - mean) / np.where(spread > 0, spread, np.nan), axis=1)
    factor = float(np.nanquantile(largest, confidence))
    return mean, mean - factor * error, mean + factor * error


def _tests(base: str, overall: Array, contrast: Array, bootstrap: ClusterBootstrap) -> list[dict[str, Any]]:
    found = []
    for part, values in (("a", overall), ("b", contrast)):
        interval = bootstrap.interval(ratio, np.stack([values, np.ones(len(values))], axis=1)[:, :, None])
        row = statistic("C4", f"{part} {base}", "nats", interval, bootstrap, len(values), 0)
        found.append(row | {"part": part, "family": base, "p": float(ttest_1samp(values, 0.0, alternative="less").pvalue)})
    return found


def _adjust(frame: pd.DataFrame) -> pd.DataFrame:
    """A rule needs (a) and (b), so its p is the larger of the two (``p_rule``); ``p_holm`` is that after Holm's correction over the base rules."""
    rule = frame.groupby("family", sort=False)["p"].max()
    holm = pd.Series(multipletests(rule.to_numpy(), method="holm")[1], index=rule.index)
    return frame.assign(p_rule=frame["family"].map(rule), p_holm=frame["family"].map(holm))


def _reswaps(cells: Cells, bootstrap: ClusterBootstrap) -> pd.DataFrame:
    """Share of substitutions that repeat one of the same expert within 16 tokens."""
    columns = np.stack([cells.meters["reswaps"], cells.meters["substituted"]], axis=1)
    table = rows(cells.policies, "reswap_share", "share", bootstrap.interval(ratio, columns), bootstrap.confidence)
    return table[table["arm"] != "reference"].assign(documents=len(cells.documents))
