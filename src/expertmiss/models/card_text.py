"""The model card as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the first column is text, the others numbers."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *rows))


def render(card: dict[str, Any]) -> str:
    """The card of ``card.json``'s content."""
    geometry, load = card["geometry"], card["router_load"]
    capacities = card["capacities"]
    n = card["labels"]["n"]
    parts = [
        f"# {card['name']}: {card['title']}",
        f"Mixture-of-Experts language model: {geometry['layers']} layers with {geometry['experts']} experts each, {geometry['top_k']} per token; "
        f"{geometry['parameters'] / 1e6:.1f} M parameters. Figures below: {card['dtype']}, pilot split, {n['documents']} documents, "
        f"{n['tokens']} tokens, every miss fetched (labels: {card['labels']['substrate']}, own routing, {card['labels']['status']}).",
        _training(card["training"]),
        "## Held-out loss",
        "Nats per token; the first 16 targets of a document are left out.",
        table(
            ("domain", "documents", "NLL", "perplexity"),
            [(name, str(row["documents"]), f"{row['nll']:.3f}", f"{row['perplexity']:.2f}") for name, row in card["held_out"].items()],
        ),
        "## Router",
        "Load of the experts (largest over mean; entropy over ln E; share never chosen) and misses of a lossless LRU cache by layer.",
        table(
            ("layer", "max / mean", "entropy", "unused", *(f"misses at {name}" for name in capacities)),
            [
                (
                    str(layer),
                    f"{row['max_over_mean']:.1f}",
                    f"{row['entropy']:.3f}",
                    f"{row['unused']:.1%}",
                    *(f"{rates[name]:.1%}" for name in capacities),
                )
                for layer, (row, rates) in enumerate(zip(load, card["lru_miss_rate_by_layer"], strict=True))
            ],
        ),
        "Mean gate weight by rank: " + ", ".join(f"{weight:.3f}" for weight in card["gate_weight_by_rank"]) + ".",
        "Reuse (stack) distance in distinct experts, quantiles: "
        + ", ".join(f"{name}: {value:.0f}" for name, value in card["reuse_distance"].items())
        + ".",
        "## Misses of a lossless LRU cache",
        "Share of requests that miss, by resident share of each layer's experts ("
        + ", ".join(f"{name}: {capacity}" for name, capacity in capacities.items())
        + "), warm start, reset at every document.",
        table(
            ("domain", *capacities), [(name, *(f"{rates[key]:.1%}" for key in capacities)) for name, rates in card["lru_miss_rate"].items()]
        ),
        *_tasks(card["tasks"]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _training(training: dict[str, Any] | None) -> str:
    if training is None:
        return ""
    steps = training["steps"]
    return (
        f"Trained on {training['tokens'] / 1e6:.1f} M tokens in {training['seconds'] / 60:.0f} minutes of step time "
        f"({steps['trunk']} steps of stable trunk, {steps['decay']} of linear decay; the recipe, seeds and digests are in `training.json`). "
        "The text is the project's training split: code, prose and messages of Python packages, and synthetic tasks made by its generators. "
        "It is a stand-in for the experiments' mechanics, not a useful language model."
    )


def _tasks(tasks: dict[str, dict[str, Any]]) -> list[str]:
    """The card's section on tasks, as paragraphs of Markdown; none without tasks."""
    if not tasks:
        return []
    lines = []
    for name, task in tasks.items():
        if not task["by_rule"]:
            lines.append(
                (name, "-", str(task["n"]), f"not measured ({task['sandbox']})", "", str(task["token_cap"]), str(task["truncated"]))
            )
        for rule, row in task["by_rule"].items():
            low, high = row["interval"]
            share = f"{row['accuracy']:.1%}", f"{low:.1%} to {high:.1%}"
            lines.append((name, rule, str(row["n"]), *share, str(task["token_cap"]), str(task["truncated"])))
    return [
        "## Tasks",
        "Synthetic tasks in the form of GSM8K (word_problems) and of HumanEval (functions), made by this project's generators; templates held out "
        "from training, pilot split. One greedy answer a problem. strict: the text after `####`; last_number: the last number of the answer; "
        "pass@1: every test of the function passes, run in a sandbox. 95 % intervals are Wilson's, over problems.",
        table(("task", "scored by", "problems", "accuracy", "interval", "token cap", "truncated"), lines),
    ]
