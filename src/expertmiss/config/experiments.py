"""Options of the experiments; their policies and rules are fixed in files that are locked."""

from __future__ import annotations

from dataclasses import dataclass

from expertmiss.config.option import opt


@dataclass
class E1Config:
    """Experiment E1: which substitutions cost quality."""

    split: str = opt("exploratory", "Split whose documents are evaluated.")
    documents: int = opt(320, "Most documents, spread evenly over packages and templates.", low=1)
    residency: list[float] = opt(
        lambda: [0.125, 0.25, 0.5],
        "Resident shares; the claims' 0.25 is always added, shares with C < K are left out.",
        low=0,
        high=1,
        filled=True,
    )
    taus: list[float] = opt(
        lambda: [0.05, 0.1, 0.15, 0.2, 0.3, 0.5], "Thresholds; the paper's 0.15 and 1.5/K are always added.", low=0, filled=True
    )
    conventions: list[str] = opt(lambda: ["inherit", "scaled"], "Weight conventions beside `own`.", ("inherit", "scaled"))
    scaled_a: float = opt(0.5, "Factor of the convention `scaled`.", low=0, high=1)
    choosers: list[str] = opt(lambda: ["random", "matched_random"], "Choosers beside router_rank.", ("random", "matched_random"))
    margin: float = opt(1.0, "matched_random: largest logit distance from the best candidate.", low=0)
    chooser_seeds: list[int] = opt(lambda: [0, 1], "Seeds of the choosers that draw; averaged.", low=0, high=2**63 - 1, filled=True)


@dataclass
class E2Config:
    """Experiment E2: whether substituted gate mass orders policies by loss. Its policies are fixed in config/claims.yaml."""

    split: str = opt("exploratory", "Split whose documents are evaluated.")
    documents: int = opt(320, "Most documents, spread evenly over packages and templates.", low=1)


@dataclass
class E4Config:
    """Experiment E4: background admission, overall and after a topic change."""

    split: str = opt("exploratory", "Split whose documents the streams are joined from (corpus.shift_split).")
    documents: int = opt(120, "Most topic-shift streams.", low=1)
    betas: list[float] = opt(
        lambda: [0.0, 0.25, 0.5, 1.0, 2.0, float("inf")], "Accumulated masses that trigger a load; the claims' 0.5 is always added.", low=0,
        filled=True,
    )  # fmt: skip
    delays: list[int] = opt(lambda: [8], "Further delays of a load in tokens, at the claims' beta, beside the claims' delay of 1.", low=2)


@dataclass
class E5Config:
    """Experiment E5: time and perplexity of the same run, on the engine. Its policies and rules are fixed in prereg/e5.yaml."""

    split: str = opt("exploratory", "Split whose documents are decoded (streams).")
    documents: int = opt(96, "Most streams, spread evenly over packages and templates.", low=1)
    tokens: int = opt(384, "Most tokens of a stream.", low=32)
    repeats: int = opt(2, "Repeats of every stream; the order of the policies is reversed in every second one.", low=1)
    residency: list[float] = opt(
        lambda: [0.125, 0.5], "Further resident shares, at which the paper's policies are timed for the time model.", low=0, high=1
    )
    timed_documents: int = opt(12, "Streams on which those further shares are timed.", low=1)
    compared_documents: int = opt(12, "compare_engine: streams whose decisions are compared with the emulator's.", low=1)


@dataclass
class BConfig:
    """Experiment B. Its rules are fixed in prereg/experiment_b.yaml; free are the pilot's size and the exploratory single substitutions."""

    pilot_documents: int = opt(120, "Most pilot documents, spread evenly over packages and templates.", low=4)
    site_split: str = opt("exploratory", "measure_sites: split whose documents get single substitutions.")
    site_documents: int = opt(60, "measure_sites: most documents.", low=4)
    sites: int = opt(32, "measure_sites: single substitutions in each document, each in a row of its own.", low=1)
    site_seed: int = opt(7, "measure_sites: seed of tokens and layers.", low=0, high=2**63 - 1)
