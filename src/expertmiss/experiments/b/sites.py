"""Stage measure_sites: rank and gate weight apart, by single substitutions at random places. Exploratory.

Inputs:  tokens.parquet, calibration trace, prereg/experiment_b.yaml (reference, residency), the model's folder.
Outputs: tables b_sites (one row a substitution), b_site_model (regression), b_site_cells (means by rank and weight), b_site_overlap (weights by rank).
Steps:   draw places, ranks balanced, rank 0 included; each is a row of the batch in which that one call is answered by the best-ranked of R- \\ S, resident or
         not; outcome: NLL change summed over the next 32 targets against a row without substitution; regression on rank, weight, logit gap to the
         substitute and layer, clustered by document.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import statsmodels.formula.api as smf
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from scipy.stats import t as student

from expertmiss.emulate.attribute import EDGES
from expertmiss.errors import UserError
from expertmiss.experiments.b.arms import Arm, Classes
from expertmiss.experiments.b.emulate import Setting, open_setting, select_documents
from expertmiss.experiments.b.plan import load_plan
from expertmiss.experiments.output import Clock
from expertmiss.files import atomic_path, clear_parts, sha256_file, sha256_json
from expertmiss.paths import project_root
from expertmiss.progress import Progress
from expertmiss.provenance import Labels, write_run
from expertmiss.stages import Context
from expertmiss.stats.tables import write_table
from expertmiss.traces.capture import is_whole, local_files

STAGE = "measure_sites"
NEXT = 32  # targets after a substitution over which its loss is summed
LEAST = 30  # sites of a cell that is shown
TERMS = {"rank": "rank (per place)", "weight": "gate weight (per 0.1)", "gap": "logit gap to the substitute (per unit)"}


def run(cfg: dict[str, Any], *, out: Path, context: Context, tokens: Path, calibration: Path, plan: Path) -> None:
    """Write the tables and ``run.json`` into ``out``.

    ``cfg``: ``model``, ``host.name``, ``corpus.name``, ``emulate.torch_threads``, ``b`` (``site_*``, ``sites``), ``stats.confidence``.

    Raises:
        UserError: documents without room for a site, or that do not fit the model.
    """
    clock = Clock()
    rules, options = load_plan(project_root()), cfg["b"]
    chosen = select_documents(tokens, options["site_split"], options["site_documents"], rules["documents_per_source"])
    setting = open_setting(cfg, rules, chosen, tokens=tokens, calibration=calibration)
    begun = time.monotonic()
    sites = _measure(setting, options, rules["first_targets_left_out"], out, context)
    seconds = time.monotonic() - begun
    confidence = cfg["stats"]["confidence"]
    tables = {
        "b_sites": sites, "b_site_model": fit(sites, confidence), "b_site_cells": cells_of(sites, confidence), "b_site_overlap": overlap(sites),
    }  # fmt: skip
    labels = Labels.of({
        "substrate": cfg["model"]["substrate"], "routing": "own", "time": "none", "host": cfg["host"]["name"], "status": "exploratory",
        "n": {"documents": len(chosen), "sources": int(chosen["source"].nunique()), "sites": len(sites)},
        "notes": ["single substitutions", "residency schedule of fetch_all"],
    })  # fmt: skip
    sources = {path.name: sha256_file(path) for path in (tokens, calibration, plan)}
    written = [
        path for name, frame in tables.items() for path in write_table(out / f"{name}.parquet", frame.assign(model=cfg["model"]["name"]), labels, sources)
    ]  # fmt: skip
    model = tables["b_site_model"].set_index("term")["estimate"]
    write_run(
        out, stage=STAGE, experiment=context.experiment, name=f"single substitutions with {cfg['model']['name']} on {cfg['corpus']['name']}", config=cfg,
        source_hash=context.source_hash, inputs=[tokens, calibration, plan, *local_files(Path(cfg["model"]["path"]))], outputs=written,
        artifacts=[path for path in written if path.suffix == ".csv"],
        metrics={"sites": len(sites), **{f"coefficient/{name}": float(model[name]) for name in TERMS}},
        timings={"sites_s": seconds, "total_s": time.monotonic() - clock.begun}, labels=labels, started=clock.started,
    )  # fmt: skip
    clear_parts(out)


def draw_sites(count: int, tokens: int, layers: int, top_k: int, first: int, document: int, seed: int) -> list[Arm]:
    """``count`` sites of one document: ranks in turn, beginning where the document's number says, tokens and layers uniform.

    Raises:
        UserError: no token has ``first`` targets before it and ``NEXT`` after.
    """
    if tokens - 1 - NEXT <= first:
        raise UserError(f"measure_sites: documents of {tokens} tokens have no place with {NEXT} targets behind it; use longer ones")
    draw = np.random.default_rng([seed, document])
    places = zip(draw.integers(first, tokens - NEXT, count).tolist(), draw.integers(0, layers, count).tolist(), strict=True)
    return [Arm(f"site{index}", "site", site=(token, layer, (document + index) % top_k)) for index, (token, layer) in enumerate(places)]


def _measure(setting: Setting, options: dict[str, Any], first: int, out: Path, context: Context) -> pd.DataFrame:
    """One row a site, over all documents, in resumable parts."""
    geometry = setting.runner.emulator.geometry
    key = sha256_json([setting.key, context.source_hash, options, first])[:16]
    frames = []
    length = setting.text.shape[1]
    with Progress(setting.text.size * (2 + options["sites"]), "single substitutions", "tok", context.journal) as bar:
        for row, words in zip(setting.documents.itertuples(), setting.text, strict=True):
            document = int(str(row.document))
            arms = draw_sites(options["sites"], length, geometry.layers, geometry.top_k, first, document, options["site_seed"])
            part = out / ".parts" / key / f"{setting.digests[str(document)][:32]}.safetensors"
            if not is_whole(part):
                with atomic_path(part) as temporary:
                    save_file(_document(setting, words, document, arms), temporary)
            found = load_file(part)
            frames.append(pd.DataFrame({
                "document": document, "domain": str(row.domain), "source": str(row.source),
                **{name: [arm.site[place] for arm in arms if arm.site] for place, name in enumerate(("token", "layer", "rank"))},
                **{name: found[name] for name in ("weight", "gap", "missed", "loss")},
            }))  # fmt: skip
            bar.update(length * (2 + options["sites"]))
    return pd.concat(frames, ignore_index=True)


def _document(setting: Setting, words: NDArray[np.int64], document: int, arms: list[Arm]) -> dict[str, NDArray[Any]]:
    """Weight, gap, whether it was a miss, and loss of every site; row 1 substitutes nothing and is what losses are taken against."""
    outcome = setting.runner.run(
        words, document, [Arm("none", "none"), *arms], [Classes(0.0, 0.0)] * setting.runner.emulator.geometry.layers
    )
    about = [outcome.sites[place] for place in range(1, len(arms) + 1)]
    loss = []
    for place, arm in enumerate(arms, 2):
        token = arm.site[0] if arm.site else 0
        loss.append((outcome.nll[place] - outcome.nll[1])[token : token + NEXT].sum())
    weight, gap, missed = (np.array(values) for values in zip(*about, strict=True))
    return {"weight": weight, "gap": gap, "missed": missed, "loss": np.array(loss)}


def fit(sites: pd.DataFrame, confidence: float) -> pd.DataFrame:
    """Loss (nats over 32 targets) on rank, gate weight, logit gap and layer (one level each), errors clustered by document.

    Weight is per 0.1, so that coefficients are of comparable size. ``vif`` is the variance inflation of each term by the other two.
    """
    scaled = sites.assign(weight=sites["weight"] * 10)
    found = smf.ols("loss ~ rank + weight + gap + C(layer)", scaled).fit(
        cov_type="cluster", cov_kwds={"groups": scaled["document"]}, use_t=True
    )
    bounds = found.conf_int(1 - confidence)
    inverse = np.linalg.inv(scaled[list(TERMS)].corr().to_numpy())
    return pd.DataFrame([
        {
            "term": name, "meaning": words, "unit": "nats", "estimate": float(found.params[name]), "low": float(bounds.loc[name, 0]),
            "high": float(bounds.loc[name, 1]), "p": float(found.pvalues[name]), "vif": float(inverse[place, place]), "confidence": confidence,
            "clusters": int(sites["document"].nunique()), "documents": int(sites["document"].nunique()), "sites": len(sites),
            "reliable": "yes" if sites["document"].nunique() >= 40 else "inconclusive: n clusters < 40",
        }
        for place, (name, words) in enumerate(TERMS.items())
    ])  # fmt: skip


def cells_of(sites: pd.DataFrame, confidence: float) -> pd.DataFrame:
    """Mean loss by rank and weight bin, interval over documents; a cell of fewer than ``LEAST`` sites has its number only."""
    bins = np.clip(np.searchsorted(EDGES, sites["weight"], side="right") - 1, 0, len(EDGES) - 2)
    rows = []
    for (rank, place), part in sites.assign(place=bins).groupby(["rank", "place"]):
        edge, documents = int(str(place)), int(part["document"].nunique())
        row = {"rank": rank, "weight_from": EDGES[edge], "weight_to": EDGES[edge + 1], "sites": len(part), "documents": documents}
        if len(part) < LEAST or documents < 2:
            rows.append({**row, "estimate": np.nan, "low": np.nan, "high": np.nan, "reliable": f"refused: fewer than {LEAST} sites"})
            continue
        totals = (part["loss"] - part["loss"].mean()).groupby(part["document"]).sum()
        groups = len(totals)
        half = np.sqrt(groups / (groups - 1) * (totals**2).sum()) / len(part) * student.ppf((1 + confidence) / 2, groups - 1)
        mean = float(part["loss"].mean())
        rows.append({**row, "estimate": mean, "low": mean - half, "high": mean + half, "reliable": "yes"})
    return pd.DataFrame(rows).assign(unit="nats", confidence=confidence)


def overlap(sites: pd.DataFrame) -> pd.DataFrame:
    """Weights by rank, and the share of a rank's sites whose weight lies where every rank has some (between the largest 5 % and the smallest 95 % quantile)."""
    quantiles = sites.groupby("rank")["weight"].quantile(np.array([0.05, 0.25, 0.5, 0.75, 0.95])).unstack()
    low, high = quantiles[0.05].max(), quantiles[0.95].min()
    common = sites.assign(inside=sites["weight"].between(low, high)).groupby("rank")["inside"].mean()
    renamed = quantiles.rename(columns={share: f"q{round(100 * float(share)):02d}" for share in quantiles.columns})
    return renamed.assign(sites=sites.groupby("rank").size(), common=common).reset_index()
