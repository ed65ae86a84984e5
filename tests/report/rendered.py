"""Configuration and inputs of a report on the synthetic study."""

from __future__ import annotations

from synthetic_study import POLICIES

from expertmiss.figures import stage as figures_stage
from expertmiss.stages import Context

CONTEXT = Context("test", "0" * 64)
HALF_LIFE = {"name": "lfu", "variant": "half_life"}
CFG = {
    "report": {"title": "Which expert misses are worth waiting for?", "quick": True},
    "model": {"name": "builtin", "title": "a small model trained by this project"},
    "corpus": {"name": "synthetic_test_data"},
    "stats": {"resamples": 200, "confidence": 0.95, "seed": 1, "min_clusters": 40},
    "policies": {
        name: {
            "name": name,
            "miss_rule": {"name": rule, "tau": 0.15} if rule == "threshold" else {"name": rule},
            "eviction": {"name": "lru"} if eviction == "lru" else HALF_LIFE,
            "admission": {"name": admission, "beta": 0.5, "delay": 1} if admission == "background" else {"name": admission},
        }
        for name, (rule, eviction, admission, *_) in POLICIES.items()
    },
}


def run_files(statistics):
    """run.json of the statistics stages."""
    return sorted({path.parent / "run.json" for path in statistics.values()})


def draw(statistics, out):
    """Draw the figures of ``statistics``; run.json of all stages."""
    figures_stage.run({"report": {"quick": True}}, tables=list(statistics.values()), out=out, context=CONTEXT)
    return [*run_files(statistics), out / "run.json"]
