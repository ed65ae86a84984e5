"""Test data: invented meters and a trace drawn from a toy process. Nothing here is a result, and its labels say so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from expertmiss.files import write_json
from expertmiss.traces.format import TraceMeta, write_trace

LABELS: dict[str, Any] = {
    "substrate": "builtin_trained", "routing": "synthetic", "time": "none", "host": "test_fixture", "status": "exploratory",
    "n": {"documents": 1}, "notes": ["test data: invented numbers, not a result"],
}  # fmt: skip
POLICIES = {  # name: miss rule, eviction, admission, share of misses substituted, weight of a substituted call
    "fetch_all": ("fetch_all", "lru", "fetched_only", 0.0, 0.0),
    "substitute_all": ("substitute_all", "lru", "every_miss", 1.0, 0.24),
    "first_choice": ("first_choice", "lru", "fetched_only", 0.82, 0.18),
    "rule_015": ("threshold", "lru", "fetched_only", 0.46, 0.09),
    "quality_first": ("threshold", "lfu_half_life", "background", 0.42, 0.085),
    "speed_first": ("first_choice", "lfu_half_life", "background", 0.78, 0.17),
}
DOMAINS = ("code", "prose", "reference")
EXPERTS, TOP_K, LAYERS, TOKENS = 32, 4, 3, 64
CAPACITIES = (4, 8, 12, 16, 24, 32)


def documents(sources: int = 44, each: int = 1) -> pd.DataFrame:
    """``each`` documents of every source, domains in turn."""
    rows = [{"document": source * each + index, "source": f"package_{source:02d}", "domain": DOMAINS[source % len(DOMAINS)]}
            for source in range(sources) for index in range(each)]  # fmt: skip
    return pd.DataFrame(rows).astype({"document": "int32"})


def cells(sources: int = 44, capacities: tuple[int, ...] = CAPACITIES, seed: int = 7) -> pd.DataFrame:
    """Invented cells.parquet: every policy x capacity x document, with meters that add up."""
    generator = np.random.default_rng(seed)
    known = documents(sources)
    calls = TOKENS * LAYERS * TOP_K
    trait = generator.normal(0, 0.05, len(known))
    rows = []
    for policy, (rule, eviction, admission, share, weight) in POLICIES.items():
        for capacity in capacities:
            base = 1 - 0.62 * (1 - capacity / EXPERTS) ** 1.6 + 0.03 * share * (eviction != "lru") - 0.04 * share * (eviction == "lru")
            hits = np.round(calls * np.clip(base + trait + generator.normal(0, 0.01, len(known)), 0.02, 1)).astype(int)
            substituted = np.round((calls - hits) * share * generator.uniform(0.95, 1.05, len(known)).clip(max=1)).astype(int)
            misses = calls - hits
            compulsory, collision = misses // 5, misses // 4
            loaded = np.round(substituted * (0.4 if admission == "background" else 1.0 if admission == "every_miss" else 0)).astype(int)
            rows.append(pd.DataFrame({
                **known, "model": "builtin", "corpus": "synthetic_test_data", "split": "exploratory", "policy": policy, "miss_rule": rule,
                "eviction": eviction, "admission": admission, "capacity": capacity, "residency": capacity / EXPERTS, "seed": 0,
                "tokens": TOKENS, "calls": calls, "hits": hits, "fetches": misses - substituted, "substituted": substituted, "dropped": 0,
                "fallback_fetches": 0, "fallback_drops": 0,
                "mass": substituted * weight * generator.uniform(0.9, 1.1, len(known)), "token_layers": TOKENS * LAYERS,
                "landings": loaded, "evictions": misses - substituted + loaded, "wasted": collision // 2, "compulsory": compulsory,
                "collision": collision, "capacity_misses": misses - compulsory - collision, "reswaps": substituted // 3,
                "agreement": TOKENS * LAYERS - substituted / TOP_K, "kl": substituted * 0.4 + 0.3 * TOKENS * LAYERS, "past_depth": 0,
            }))  # fmt: skip
    return pd.concat(rows, ignore_index=True)


def write_cells(folder: Path, frame: pd.DataFrame) -> Path:
    """cells.parquet with the labels in run.json beside it, as simulate_policies leaves them."""
    folder.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(folder / "cells.parquet", index=False)
    write_json(folder / "run.json", {"schema": 1, "stage": "simulate_policies", "labels": LABELS})
    return folder / "cells.parquet"


def write_synthetic_trace(path: Path, sources: int = 44, seed: int = 3) -> Path:
    """A trace of a toy process: a preference by domain, a drifting topic, and noise."""
    generator = np.random.default_rng(seed)
    known = documents(sources)
    count = len(known)
    domain = np.array([DOMAINS.index(name) for name in known["domain"]])
    rows = count * TOKENS
    tensors: dict[str, Any] = {
        "token": generator.integers(0, 4096, rows).astype(np.int32),
        "document": np.repeat(known["document"].to_numpy(), TOKENS).astype(np.int32),
        "domain": np.repeat(domain, TOKENS).astype(np.uint8),
        "topic_change": np.zeros(rows, np.uint8),
    }
    for layer in range(LAYERS):
        taste = generator.normal(0, 1.0, (len(DOMAINS), EXPERTS))[domain][:, None]
        steps = generator.normal(0, 1, (count, TOKENS, EXPERTS))
        drift = np.zeros_like(steps)
        for token in range(1, TOKENS):
            drift[:, token] = 0.85 * drift[:, token - 1] + 0.5 * steps[:, token]
        z = (taste + drift + generator.normal(0, 0.8, steps.shape)).astype(np.float32).reshape(rows, EXPERTS)
        order = np.argsort(-z, axis=1, kind="stable")
        tensors[f"ids.{layer}"] = order.astype(np.uint16)
        tensors[f"z.{layer}"] = np.take_along_axis(z, order, axis=1)
        tensors[f"lse.{layer}"] = np.log(np.exp(z.astype(np.float64)).sum(axis=1))
        tensors[f"zmin.{layer}"] = z.min(axis=1)
    meta = TraceMeta(
        layers=LAYERS, experts=EXPERTS, top_k=TOP_K, depth=EXPERTS, tokens=rows, gating="softmax", normalise=True, domains=list(DOMAINS),
        sources={str(row.document): row.source for row in known.itertuples()}, split="exploratory", model="builtin", model_revision="test",
        tokenizer_revision="test", dtype="float32", corpus="synthetic_test_data", corpus_digest="0" * 64, software={}, labels=LABELS,
    )  # fmt: skip
    write_trace(path, meta, tensors)
    write_json(path.parent / "run.json", {"schema": 1, "stage": "capture_traces", "labels": LABELS})
    return path


def write_study(root: Path, sources: int = 44, resamples: int = 200) -> dict[str, Path]:
    """Run both statistics stages on synthetic inputs below ``root``; the tables' paths by name."""
    from expertmiss.stages import Context
    from expertmiss.stats import summarize, traces

    cfg = {"stats": {"resamples": resamples, "confidence": 0.95, "seed": 1, "min_clusters": 40}}
    context = Context("test", "0" * 64)
    trace = write_synthetic_trace(root / "test" / "capture_traces" / "trace.safetensors", sources)
    summarized, analyzed = root / "test" / "summarize_policies", root / "test" / "analyze_traces"
    summarize.run(cfg, cells=write_cells(root / "test" / "simulate_policies", cells(sources)), out=summarized, context=context)
    traces.run(cfg, trace=trace, out=analyzed, context=context)
    return {path.stem: path for folder in (summarized, analyzed) for path in folder.glob("*.parquet")}
