"""The columns that say what a row of a plan is, in every table of cells."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from expertmiss.experiments.plans import Planned


def about_rows(rows: Sequence[Planned], model: str, corpus: str, split: str, study: str) -> pd.DataFrame:
    """What every table of cells says about its rows, one line a row (``row`` is its place in the plan)."""
    return pd.DataFrame([
        {
            "row": index, "model": model, "corpus": corpus, "split": split, "study": study, "policy": item.row.name, "arm": item.arm,
            "family": item.family, "miss_rule": item.row.policy["miss_rule"]["name"], "eviction": item.row.policy["eviction"]["name"],
            "admission": item.row.policy["admission"]["name"], "beta": float(item.row.policy["admission"].get("beta", math.nan)),
            "delay": float(item.row.policy["admission"].get("delay", math.nan)), "tau": float(item.row.policy["miss_rule"].get("tau", math.nan)),
            "residency": item.residency, "capacity": item.row.capacity, "seed": item.row.seed, "few_residents": item.few_residents,
        }
        for index, item in enumerate(rows)
    ])  # fmt: skip
