"""Tables of the generation test: every arm against the lossless reference, problem by problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from expertmiss.errors import UserError
from expertmiss.generate.accuracy import wilson
from expertmiss.generate.measures import auc, detectable, mass, order_of_arms, statistic_row, survival, unbiased_pass
from expertmiss.generate.paired import first_divergence, mcnemar, token_agreement
from expertmiss.generate.solve import Row
from expertmiss.stats.bootstrap import ClusterBootstrap, ratio, ratio_difference

REFERENCE = "fetch_all"
Groups = dict[tuple[str, str], list[Row]]
_STATISTIC = [
    "task", "statistic", "arm", "against", "estimate", "low", "high", "confidence", "problems", "templates", "reliable", "detectable",
]  # fmt: skip


def groups_of(rows: Sequence[Row]) -> Groups:
    """Rows by (task, arm), the reference first, problems in one order.

    Raises:
        UserError: an arm does not hold the reference's problems.
    """
    found: Groups = {}
    for row in sorted(rows, key=lambda row: str(row["problem"])):
        found.setdefault((row["task"], row["arm"]), []).append(row)
    for (task, arm), mine in found.items():
        if [row["problem"] for row in mine] != [row["problem"] for row in found.get((task, REFERENCE), [])]:
            raise UserError(f"answers of task {task}: arm {arm} and {REFERENCE} do not hold the same problems; run generate_answers again")
    return dict(sorted(found.items(), key=lambda entry: (entry[0][0], entry[0][1] != REFERENCE)))


def arm_table(rows: Sequence[Row]) -> pd.DataFrame:
    """One row a task, arm and scoring rule that was measured, intervals by Wilson; a task that was not measured has one row without accuracy.

    ``unmarked``: answers without what the rule reads; ``fallback``: those of them in which another rule still finds an answer. ``miss_rate`` and ``mass``
    are over the decode steps (NaN where there are none), mass a token-layer.
    """
    found = []
    for (task, arm), mine in groups_of(rows).items():
        meters = {name: sum(row["meters"][name] for row in mine) for name in ("calls", "hits", "tokens", "mass")}
        for index, rule in enumerate(mine[0]["correct"]):
            right = [row["correct"][rule] for row in mine]
            share = None if None in right else wilson(sum(right), len(right))
            missing = [row["answers"] for row in mine if row["answers"] and row["answers"][rule] is None]
            found.append(
                {
                    "task": task, "arm": arm, "rule": rule, "primary": index == 0, "n": len(mine), "correct": sum(map(bool, right)),
                    "accuracy": share["accuracy"] if share else np.nan, "low": share["interval"][0] if share else np.nan,
                    "high": share["interval"][1] if share else np.nan, "truncated": sum(row["finish"] == "cap" for row in mine), "unmarked": len(missing),
                    "fallback": sum(any(value is not None for value in answers.values()) for answers in missing),
                    "length": float(np.mean([len(row["tokens"]) for row in mine])),
                    "miss_rate": 1 - meters["hits"] / meters["calls"] if meters["calls"] else np.nan,
                    "mass": meters["mass"] / meters["tokens"] if meters["tokens"] else np.nan,
                }
            )  # fmt: skip
    return pd.DataFrame(found)


def correct(rows: Sequence[Row], rule: str | None = None) -> np.ndarray[Any, Any] | None:
    """[N] 1.0 where an answer is right by ``rule`` (the primary one), 0.0 else; None where that was not measured."""
    values = [row["correct"][rule or next(iter(row["correct"]))] for row in rows]
    return None if None in values else np.array(values, dtype=np.float64)


class Measured:
    """Comparisons of arms with the reference; each task has its own resamples of templates, shared by all of its statistics.

    Args:
        groups: of :func:`groups_of`.
        stats: options of the bootstrap.
        order_arms: arms whose order by mass and agreement is measured.
    """

    def __init__(self, groups: Groups, stats: Mapping[str, Any], order_arms: Sequence[str]) -> None:
        self.groups, self.stats, self.order_arms = groups, stats, order_arms
        self.references = {task: rows for (task, arm), rows in groups.items() if arm == REFERENCE}
        self.bootstraps = {task: ClusterBootstrap([row["source"] for row in rows], **stats) for task, rows in self.references.items()}

    def _arms(self) -> list[tuple[str, str, list[Row], list[Row]]]:
        return [(task, arm, rows, self.references[task]) for (task, arm), rows in self.groups.items() if arm != REFERENCE]

    def _difference(self, task: str, values: np.ndarray[Any, Any], others: np.ndarray[Any, Any]) -> Any:
        ones = np.ones(len(values))
        return self.bootstraps[task].interval(ratio_difference, np.stack([values, ones, others, ones], 1))

    def paired(self) -> pd.DataFrame:
        """One row a task, arm and scoring rule (one without a difference where nothing was scored)."""
        found = []
        for task, arm, rows, references in self._arms():
            splits = [first_divergence(row["tokens"], other["tokens"]) for row, other in zip(rows, references, strict=True)]
            places = [split for split in splits if split is not None]
            texts = np.array([row["text"] == other["text"] for row, other in zip(rows, references, strict=True)], dtype=np.float64)
            agreement = self.bootstraps[task].interval(ratio, np.stack([texts, np.ones(len(texts))], 1))
            same = {
                "same_text": float(agreement.estimate), "same_text_low": float(agreement.low), "same_text_high": float(agreement.high),
                "same_tokens": float(np.mean([split is None for split in splits])),
                "token_agreement": float(np.mean([token_agreement(row["tokens"], other["tokens"]) for row, other in zip(rows, references, strict=True)])),
                "median_divergence": float(np.median(places)) if places else np.nan,
                "length_difference": float(np.mean([len(row["tokens"]) - len(other["tokens"]) for row, other in zip(rows, references, strict=True)])),
                "mass": sum(row["meters"]["mass"] for row in rows) / max(sum(row["meters"]["tokens"] for row in rows), 1),
            }  # fmt: skip
            for index, rule in enumerate(rows[0]["correct"]):
                found.append({
                    "task": task, "arm": arm, "rule": rule, "primary": index == 0, "n": len(rows), "templates": self.bootstraps[task].clusters,
                    **self._scored(task, rows, references, rule), "same_answer": _same_answers(rows, references, rule), **same,
                    "reliable": agreement.reliable, "confidence": self.stats["confidence"],
                })  # fmt: skip
        return pd.DataFrame(found)

    def _scored(self, task: str, rows: Sequence[Row], references: Sequence[Row], rule: str) -> dict[str, Any]:
        mine, others = correct(rows, rule), correct(references, rule)
        if mine is None or others is None:
            return dict.fromkeys(("difference", "low", "high", "detectable", "gained", "lost", "mcnemar"), np.nan)
        interval = self._difference(task, mine, others)
        gained, lost = int(((mine == 1) & (others == 0)).sum()), int(((mine == 0) & (others == 1)).sum())
        low, high = float(interval.low), float(interval.high)
        return {
            "difference": float(interval.estimate), "low": low, "high": high, "detectable": detectable(low, high, self.stats["confidence"]),
            "gained": gained, "lost": lost, "mcnemar": mcnemar(gained, lost),
        }  # fmt: skip

    def _auc(self, task: str, rows: Sequence[Row], references: Sequence[Row]) -> tuple[Any, np.ndarray[Any, Any]] | None:
        mine, others = correct(rows), correct(references)
        if mine is None or others is None:
            return None
        flipped, scores = mine != others, np.array([mass(row) for row in rows])
        return auc(self.bootstraps[task], [row["source"] for row in rows], scores, flipped), flipped

    def flips(self) -> pd.DataFrame:
        """One row a task and arm that were scored: flips, AUC of mass (NaN without or with nothing but flips), mean masses."""
        found = []
        for task, arm, rows, references in self._arms():
            if (measured := self._auc(task, rows, references)) is None:
                continue
            interval, flipped = measured
            scores = np.array([mass(row) for row in rows])
            low, high = (float(interval.low), float(interval.high)) if interval is not None else (np.nan, np.nan)
            found.append({
                "task": task, "arm": arm, "n": len(rows), "flips": int(flipped.sum()), "auc": float(interval.estimate) if interval is not None else np.nan,
                "low": low, "high": high, "detectable": detectable(low, high, self.stats["confidence"]),
                "mass_flipped": float(scores[flipped].mean()) if flipped.any() else np.nan,
                "mass_others": float(scores[~flipped].mean()) if not flipped.all() else np.nan,
                "reliable": self.bootstraps[task].reliable, "confidence": self.stats["confidence"],
            })  # fmt: skip
        columns = ["task", "arm", "n", "flips", "auc", "low", "high", "detectable", "mass_flipped", "mass_others", "reliable", "confidence"]
        return pd.DataFrame(found, columns=columns)

    def _orders(self, task: str) -> tuple[Any, list[str]] | None:
        arms = [arm for arm in self.order_arms if (task, arm) in self.groups]
        if len(arms) < 2:
            return None
        return order_of_arms(self.bootstraps[task], [self.groups[task, arm] for arm in arms], self.references[task]), arms

    def orders(self) -> pd.DataFrame:
        """One row a task: share of concordant (mass, agreement) pairs of arms."""
        found = []
        for task, references in self.references.items():
            if (measured := self._orders(task)) is not None:
                interval, arms = measured
                row = statistic_row(task, "concordant pairs", "", "", interval, self.stats["confidence"], len(references))
                found.append({**row, "arms": len(arms), "pairs": len(arms) * (len(arms) - 1) // 2})
        columns = [*_STATISTIC, "arms", "pairs"]
        return pd.DataFrame(found, columns=columns)

    def survivals(self) -> pd.DataFrame:
        """Task x arm x position: share of problems whose tokens before it are the reference's."""
        found = []
        for task, arm, rows, references in self._arms():
            splits = [first_divergence(row["tokens"], other["tokens"]) for row, other in zip(rows, references, strict=True)]
            longest = max(len(row["tokens"]) for row in (*rows, *references))
            shares = survival(splits, longest)
            found += [
                {"task": task, "arm": arm, "position": place, "share": float(share), "n": len(rows)} for place, share in enumerate(shares)
            ]
        return pd.DataFrame(found, columns=["task", "arm", "position", "share", "n"]).assign(reliable="yes")

    def statistics(self, predictions: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
        """Every statistic that a registered prediction of a task at hand is judged by, and the reference's accuracy."""
        found: dict[tuple[str, ...], dict[str, Any]] = {}
        confidence = self.stats["confidence"]
        for task, references in self.references.items():
            if (values := correct(references)) is not None:
                interval = self.bootstraps[task].interval(ratio, np.stack([values, np.ones(len(values))], 1))
                found[task, "accuracy"] = statistic_row(task, "accuracy", "", "", interval, confidence, len(references))
        for prediction in predictions:
            task, rule, arm, against = prediction["task"], prediction["rule"], prediction.get("arm", ""), prediction.get("against", "")
            if task not in self.references or any((task, name) not in self.groups for name in (arm, against) if name):
                continue
            row = self._statistic(task, rule, arm, against)
            if row is not None:
                found[task, row["statistic"], arm, against] = row
        return pd.DataFrame(list(found.values()), columns=[*_STATISTIC, "flips"])

    def _statistic(self, task: str, rule: str, arm: str, against: str) -> dict[str, Any] | None:
        references, confidence = self.references[task], self.stats["confidence"]
        n = len(references)
        if rule == "mass_orders_arms":
            ordered = self._orders(task)
            return statistic_row(task, "concordant pairs", "", "", ordered[0], confidence, n) if ordered else None
        rows = self.groups[task, arm]
        if rule == "more_agreement":
            same = [
                np.array(
                    [row["text"] == other["text"] for row, other in zip(self.groups[task, name], references, strict=True)], dtype=np.float64
                )
                for name in (arm, against)
            ]
            return statistic_row(task, "agreement difference", arm, against, self._difference(task, *same), confidence, n)
        if rule == "mass_blind":
            measured = self._auc(task, rows, references)
            if measured is None or measured[0] is None:
                return None
            return statistic_row(task, "AUC of mass", arm, "", measured[0], confidence, n, flips=int(measured[1].sum()))
        mine, others = correct(rows), correct(references)
        if mine is None or others is None:
            return None
        return statistic_row(task, "accuracy difference", arm, "", self._difference(task, mine, others), confidence, n)


def _same_answers(rows: Sequence[Row], references: Sequence[Row], rule: str) -> float:
    """Share of problems with the reference's extracted answer, or with the same verdict of their tests; NaN where nothing was scored."""
    pairs = list(zip(rows, references, strict=True))
    if rows[0]["answers"]:
        return float(np.mean([row["answers"][rule] == other["answers"][rule] for row, other in pairs]))
    if any(row["correct"][rule] is None for pair in pairs for row in pair):
        return float("nan")
    return float(np.mean([row["correct"][rule] == other["correct"][rule] for row, other in pairs]))


def pass_table(rows: Sequence[Row], ks: Sequence[int], stats: Mapping[str, Any]) -> pd.DataFrame:
    """Task x arm x k: unbiased pass@k by the primary rule over all samples, interval over templates; only what was measured."""
    answers: dict[tuple[str, str], dict[str, list[Row]]] = {}
    for row in rows:
        answers.setdefault((row["task"], row["arm"]), {}).setdefault(row["problem"], []).append(row)
    found = []
    for (task, arm), problems in sorted(answers.items(), key=lambda entry: (entry[0][0], entry[0][1] != REFERENCE, entry[0][1])):
        rights = [correct(samples) for samples in problems.values()]
        if any(right is None for right in rights):
            continue
        bootstrap = ClusterBootstrap([samples[0]["source"] for samples in problems.values()], **stats)
        for k in ks:
            values = np.array([unbiased_pass(int(right.sum()), len(right), k) for right in rights if right is not None])
            interval = bootstrap.interval(ratio, np.stack([values, np.ones(len(values))], 1))
            found.append({
                "task": task, "arm": arm, "k": k, "samples": len(next(iter(problems.values()))), "n": len(values), "estimate": float(interval.estimate),
                "low": float(interval.low), "high": float(interval.high), "confidence": stats["confidence"], "reliable": interval.reliable,
            })  # fmt: skip
    return pd.DataFrame(found, columns=["task", "arm", "k", "samples", "n", "estimate", "low", "high", "confidence", "reliable"])
