"""Stage describe_model: the figures of a model's card.

Inputs:  ``tokens.parquet`` (equal-length documents), ``problems.parquet`` (problems with answers), the model's folder.
Outputs: ``card.json``, ``answers.jsonl`` and ``README.md`` (the card; for the built-in model it stands in ``models/builtin/README.md``).
Steps:   count requests in the calibration split · run the pilot split · loss by domain, router load, weights, reuse, LRU misses · solve the
         pilot problems · render.

Only pilot and calibration documents are read, and every miss is fetched: a model is never chosen or described by results under
substitution.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from expertmiss.errors import UserError
from expertmiss.evaluation import FIRST_TARGET
from expertmiss.files import clear_parts, read_json, write_json, write_text
from expertmiss.models.card_figures import layer_figures, ranked
from expertmiss.models.card_tasks import measure_tasks
from expertmiss.models.card_text import render
from expertmiss.models.load import load_model
from expertmiss.models.routers import RouterRecorder
from expertmiss.progress import Progress
from expertmiss.provenance import write_run
from expertmiss.stages import Context

STAGE = "describe_model"


def run(cfg: dict[str, Any], *, out: Path, context: Context, tokens: Path, problems: Path) -> None:
    """Write ``card.json``, ``answers.jsonl``, ``README.md`` and ``run.json`` into ``out``.

    ``cfg``: ``model`` (path, dtype, device, revision, name, substrate, title), ``host.name``, ``corpus.name``, ``card.documents`` (most
    documents of each split), ``card.batch`` (documents per forward pass), and what :func:`expertmiss.models.card_tasks.measure_tasks` reads.

    Raises:
        UserError: a split is empty, token ids do not fit the model, the model cannot be loaded or has no MoE layer.
    """
    started, clock = datetime.now(UTC), time.monotonic()
    model_cfg, options = cfg["model"], cfg["card"]
    torch.set_num_threads(options["threads"])
    table = pd.read_parquet(tokens)
    model, tokenizer = load_model(model_cfg["path"], dtype=model_cfg["dtype"], device=model_cfg["device"], revision=model_cfg["revision"])
    recorder = RouterRecorder(model)
    geometry = recorder.geometry
    splits = {name: _documents(table, name, options["documents"], tokens) for name in ("calibration", "pilot")}
    words = sum(len(split) * len(split["tokens"].iloc[0]) for split in splits.values())
    counts = [np.zeros(geometry.experts, dtype=np.int64) for _ in range(geometry.layers)]
    logits: list[list[np.ndarray[Any, Any]]] = [[] for _ in range(geometry.layers)]
    losses = []
    with Progress(words, f"describe {model_cfg['name']}", "tok", context.journal) as bar:
        for name, split in splits.items():
            text = torch.from_numpy(np.stack([np.asarray(row, dtype=np.int64) for row in split["tokens"]]))
            if int(text.max()) >= model.get_input_embeddings().num_embeddings:
                raise UserError(f"{tokens}: token id {int(text.max())} does not fit the model; tokenize with the model's own tokenizer")
            for batch in torch.split(text, options["batch"]):
                answers, output = recorder.run_with_logits(batch)
                for layer, answer in enumerate(answers):
                    if name == "calibration":
                        ids, _ = ranked(answer.logits, geometry.top_k)
                        counts[layer] += np.bincount(ids.reshape(-1), minlength=geometry.experts)
                    else:
                        logits[layer].append(answer.logits)
                if name == "pilot":
                    losses.append(_losses(output, batch))
                bar.update(batch.numel())
    pilot = splits["pilot"]
    domains = pilot["domain"].tolist()
    length = len(pilot["tokens"].iloc[0])
    figures = layer_figures([np.concatenate(parts) for parts in logits], domains, length, geometry.top_k, counts)
    tasks = measure_tasks(model, tokenizer, cfg, problems, out, context)
    labels = {
        "substrate": model_cfg["substrate"], "routing": "own", "time": "none", "host": cfg["host"]["name"], "status": "exploratory",
        "n": {"documents": len(pilot), "tokens": len(pilot) * length, "problems": sum(task["n"] for task in tasks.values())}, "notes": ["pilot split; every miss fetched"],
    }  # fmt: skip
    training = Path(model_cfg["path"]) / "training.json"
    card = {
        "title": model_cfg["title"], "name": model_cfg["name"], "dtype": model_cfg["dtype"], "labels": labels,
        "geometry": {"layers": geometry.layers, "experts": geometry.experts, "top_k": geometry.top_k, "parameters": sum(p.numel() for p in model.parameters())},
        "held_out": _by_domain(np.concatenate(losses), domains), **figures, "tasks": tasks,
        "training": read_json(training) if training.is_file() else None,
    }  # fmt: skip
    write_json(out / "card.json", card)
    write_text(out / "README.md", render(card))
    outputs = [out / "card.json", out / "README.md", out / "answers.jsonl"]
    metrics = {f"nll/{name}": row["nll"] for name, row in card["held_out"].items()}
    metrics |= {f"lru_miss_rate/{name.rstrip('%')} percent": rate for name, rate in figures["lru_miss_rate"]["all"].items()}
    metrics |= {f"accuracy/{name}": task["by_rule"][task["primary"]]["accuracy"] for name, task in tasks.items() if task["by_rule"]}
    write_run(
        out, stage=STAGE, experiment=context.experiment, name=f"card of {model_cfg['name']}", config=cfg, source_hash=context.source_hash,
        inputs=[tokens, problems], outputs=outputs, artifacts=outputs, metrics=metrics, timings={"total": time.monotonic() - clock}, labels=labels,
        started=started,
    )  # fmt: skip
    clear_parts(out)


def _documents(table: pd.DataFrame, split: str, most: int, origin: Path) -> pd.DataFrame:
    """At most ``most`` documents of ``split``, the domains taking turns."""
    chosen = table[table["split"] == split].sort_values("document")
    if chosen.empty:
        raise UserError(f"{origin}: no document of split '{split}'; the model card needs calibration and pilot documents")
    turn = chosen.groupby("domain").cumcount()
    return chosen.assign(turn=turn).sort_values(["turn", "domain"]).head(most).sort_values("document")


def _losses(logits: torch.Tensor, batch: torch.Tensor) -> np.ndarray[Any, Any]:
    """NLL in nats of the targets [B, T - 1 - 16] that are scored, from the model's logits [B, T, V]."""
    rows = logits[:, FIRST_TARGET:-1].float().cpu()
    each = torch.nn.functional.cross_entropy(rows.transpose(1, 2), batch[:, FIRST_TARGET + 1 :], reduction="none")
    return each.numpy()


def _by_domain(losses: np.ndarray[Any, Any], domains: list[str]) -> dict[str, dict[str, float]]:
    """Mean NLL in nats per token and perplexity, overall and by domain."""
    of = np.array(domains)
    groups = {"all": np.full(len(of), True), **{name: of == name for name in sorted(set(domains))}}
    means = {name: float(losses[chosen].mean(dtype=np.float64)) for name, chosen in groups.items()}
    counts = {name: int(chosen.sum()) for name, chosen in groups.items()}
    return {name: {"nll": mean, "perplexity": float(np.exp(mean)), "documents": counts[name]} for name, mean in means.items()}
