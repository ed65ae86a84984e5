"""Stage capture_traces: run the model over a split's documents and record what every router answered.

Inputs: ``tokens.parquet`` (equal-length documents), the model's folder. Output: ``trace.safetensors``.
Steps: choose documents evenly over sources; forward passes of ``capture.batch`` documents, each saved as a part when it is done; join the
parts. A killed run resumes at the first missing part; parts of another model, text or configuration are not used.
"""

from __future__ import annotations

import importlib.metadata
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from expertmiss import _core
from expertmiss.errors import UserError
from expertmiss.files import atomic_path, clear_parts, sha256_bytes, sha256_file, sha256_json
from expertmiss.models.load import load_model
from expertmiss.models.routers import RouterRecorder
from expertmiss.policies import check_core_fresh
from expertmiss.progress import Progress
from expertmiss.provenance import digests, write_run
from expertmiss.stages import Context
from expertmiss.traces.format import TraceMeta, write_trace

MOST_DOMAINS = 255  # a domain is a byte in the trace
COLUMNS = ("document", "split", "domain", "source", "tokens", "topic_change")


def run(cfg: dict[str, Any], *, out: Path, context: Context, tokens: Path, split: str) -> None:
    """Record ``split`` of ``tokens`` into ``out/trace.safetensors``.

    Raises:
        UserError: an option is out of range, the tokens cannot be read, the split is empty, token ids do not fit the model, the model
            has no MoE layer, a router answers NaN.
    """
    started, clock = datetime.now(UTC), time.monotonic()
    model_cfg, capture = cfg["model"], cfg["capture"]
    for option in ("documents", "batch", "threads", "depth"):
        if capture[option] < 1:
            raise UserError(f"capture.{option}: {capture[option]} is too few; use 1 or more")
    torch.set_num_threads(capture["threads"])
    check_core_fresh()
    documents = choose_documents(read_tokens(tokens), split, capture["documents"], tokens)
    text, topic_change = equal_rows(documents, tokens)
    domains = sorted(documents["domain"].unique())
    if len(domains) > MOST_DOMAINS:
        raise UserError(f"{tokens}: {len(domains)} domains, a trace holds at most {MOST_DOMAINS}; put the text into fewer domains")
    model, _ = load_model(model_cfg["path"], dtype=model_cfg["dtype"], device=model_cfg["device"], revision=model_cfg["revision"])
    vocabulary = model.get_input_embeddings().num_embeddings
    if text.min() < 0 or text.max() >= vocabulary:
        raise UserError(
            f"{tokens}: token id {int(text.min() if text.min() < 0 else text.max())} does not fit the model's vocabulary of {vocabulary}; tokenize with the model's own tokenizer"
        )
    recorder = RouterRecorder(model)
    if capture["depth"] < recorder.geometry.top_k:
        raise UserError(f"capture.depth: {capture['depth']} is less than the {recorder.geometry.top_k} experts the model chooses; use more")
    depth = min(capture["depth"], recorder.geometry.experts)
    digest = model_digest(Path(model_cfg["path"]), model_cfg["revision"])
    key = sha256_json([cfg, context.source_hash, digest, sha256_bytes(text.tobytes()), documents["document"].tolist()])[:16]
    parts = out / ".parts" / key
    with Progress(text.size, f"capture {split}", "tok", context.journal) as bar:
        for index, begin in enumerate(range(0, len(text), capture["batch"])):
            batch = text[begin : begin + capture["batch"]]
            part = parts / f"{index:05d}.safetensors"
            if not is_whole(part):
                with atomic_path(part) as temporary:
                    save_file(_record(recorder, batch, depth), temporary)
            bar.update(batch.size)
    captured = time.monotonic()
    tensors = _join(parts, recorder.geometry.layers)
    mismatches = int(tensors.pop("set_mismatches").sum())
    length = text.shape[1]
    tensors["token"] = text.reshape(-1).astype(np.int32)
    tensors["document"] = np.repeat(documents["document"].to_numpy(np.int32), length)
    tensors["domain"] = np.repeat(documents["domain"].map(domains.index).to_numpy(np.uint8), length)
    tensors["topic_change"] = topic_change.reshape(-1)
    labels = {
        "substrate": model_cfg["substrate"], "routing": "own", "time": "none", "host": cfg["host"]["name"], "status": "exploratory",
        "n": {"documents": len(documents), "tokens": int(text.size)}, "notes": [],
    }  # fmt: skip
    geometry = recorder.geometry
    meta = TraceMeta(
        layers=geometry.layers, experts=geometry.experts, top_k=geometry.top_k, depth=depth, tokens=int(text.size),
        gating=geometry.gating, normalise=geometry.normalise, scale=geometry.scale, bias=geometry.bias, groups=geometry.groups,
        domains=domains, sources=dict(zip(documents["document"].astype(str), documents["source"].astype(str), strict=True)), split=split,
        model=model_cfg["name"], model_revision=digest, tokenizer_revision=_tokenizer_digest(Path(model_cfg["path"]), model_cfg["revision"]),
        dtype=model_cfg["dtype"], corpus=cfg["corpus"]["name"], corpus_digest=sha256_file(tokens), set_mismatches=mismatches,
        software={name: importlib.metadata.version(name) for name in ("expertmiss", "torch", "transformers")}, labels=labels,
    )  # fmt: skip
    write_trace(out / "trace.safetensors", meta, tensors)
    timings = {"forward_s": captured - clock, "total_s": time.monotonic() - clock}
    write_run(
        out, stage="capture_traces", experiment=context.experiment, name=f"capture {split} traces of {model_cfg['name']} on {cfg['corpus']['name']}",
        config={**cfg, "split": split}, source_hash=context.source_hash, inputs=[tokens, *local_files(Path(model_cfg["path"]))], outputs=[out / "trace.safetensors"],
        metrics={"documents": len(documents), "tokens": int(text.size), "set_mismatches": mismatches, "tokens_per_second": text.size / timings["forward_s"]},
        timings=timings, labels=labels, started=started,
    )  # fmt: skip
    clear_parts(out)


def choose_documents(table: pd.DataFrame, split: str, most: int, origin: Path) -> pd.DataFrame:
    """At most ``most`` documents of ``split``, spread evenly over domains, and within a domain over its sources.

    Args:
        table: columns document, split, domain, source, tokens, topic_change.
        origin: file named in errors.

    Raises:
        UserError: the split holds no document.
    """
    chosen = table[table["split"] == split].sort_values("document")
    if chosen.empty:
        present = ", ".join(sorted(table["split"].astype(str).unique())) or "none"
        raise UserError(f"{origin}: no document of split '{split}' (present: {present}); add text or change capture.splits")
    # Domains take turns, and within a domain its sources do, so that a small sample holds every domain and many sources.
    chosen = chosen.assign(turn=chosen.groupby(["domain", "source"]).cumcount())
    chosen = chosen.sort_values(["turn", "document"])
    chosen = chosen.assign(place=chosen.groupby("domain").cumcount())
    return chosen.sort_values(["place", "domain"]).head(most).sort_values("document").drop(columns=["turn", "place"])


def read_tokens(path: Path) -> pd.DataFrame:
    """The table of ``tokens.parquet``; an unreadable file or one without its columns is a UserError."""
    try:
        table = pd.read_parquet(path)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; run tokenize_corpus first") from None
    except (OSError, ValueError) as problem:  # pyarrow's kinds are subclasses
        reason = next(iter(str(problem).splitlines()), type(problem).__name__)
        raise UserError(f"{path}: not a readable Parquet file ({reason}); run tokenize_corpus again") from None
    for name in COLUMNS:
        if name not in table:
            raise UserError(f"{path}: no column '{name}'; run tokenize_corpus again")
    if not pd.api.types.is_integer_dtype(table["document"]) or not all(
        isinstance(value, str) for name in ("split", "domain", "source") for value in table[name]
    ):
        raise UserError(f"{path}: documents lack a whole number as 'document' or text as split, domain, source; run tokenize_corpus again")
    return table


def equal_rows(documents: pd.DataFrame, origin: Path) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Token ids and topic-change flags of the documents, both [documents, length]."""
    try:
        text = np.stack([np.asarray(row, dtype=np.int64) for row in documents["tokens"]])
        topic_change = np.stack([np.asarray(row, dtype=np.uint8) for row in documents["topic_change"]])
    except (ValueError, TypeError, OverflowError):
        raise UserError(f"{origin}: documents are not lists of numbers of one length; run tokenize_corpus again") from None
    if text.ndim != 2 or text.size == 0 or text.shape != topic_change.shape:
        raise UserError(f"{origin}: columns 'tokens' and 'topic_change' are empty or differ in length; run tokenize_corpus again")
    return text, topic_change


def _record(recorder: RouterRecorder, batch: NDArray[np.int64], depth: int) -> dict[str, NDArray[Any]]:
    """One forward pass; ranked rows of every layer, document after document."""
    geometry = recorder.geometry
    with torch.inference_mode():
        answers = recorder.run(torch.from_numpy(batch))
    found: dict[str, NDArray[Any]] = {}
    mismatches = 0
    for index, answer in enumerate(answers):
        bias = None if geometry.bias is None else np.asarray(geometry.bias[index])
        try:
            ids, z, lse, zmin = _core.rank_logits(
                answer.logits, depth=depth, top_k=geometry.top_k, gating=geometry.gating, bias=bias, groups=geometry.groups
            )
        except ValueError as problem:
            raise UserError(
                f"the model's router in layer {geometry.layer_indices[index]}: {problem}; check the model's files and model.dtype"
            ) from None
        found |= {f"ids.{index}": ids, f"z.{index}": z, f"lse.{index}": lse, f"zmin.{index}": zmin}
        chosen = np.sort(ids[:, : geometry.top_k].astype(np.int64), axis=1)
        mismatches += int((chosen != np.sort(answer.ids, axis=1)).any(axis=1).sum())
    found["set_mismatches"] = np.asarray([mismatches], dtype=np.int64)
    return found


def is_whole(part: Path) -> bool:
    if not part.exists():
        return False
    try:
        load_file(part)
    except (SafetensorError, OSError):
        return False
    return True


def _join(parts: Path, layers: int) -> dict[str, NDArray[Any]]:
    loaded = [load_file(part) for part in sorted(parts.glob("*.safetensors"))]
    names = [f"{name}.{layer}" for layer in range(layers) for name in ("ids", "z", "lse", "zmin")]
    return {name: np.concatenate([part[name] for part in loaded]) for name in [*names, "set_mismatches"]}


def local_files(folder: Path) -> list[Path]:
    """The files of a model's folder that decide its answers: its configuration, and its weights in one file or in shards with an index."""
    patterns = ("config.json", "*.safetensors", "*.safetensors.index.json")
    return sorted(path for pattern in patterns for path in folder.glob(pattern) if path.is_file())


def model_digest(folder: Path, revision: str | None) -> str:
    return sha256_json(digests(local_files(folder), folder.absolute())) if folder.is_dir() else revision or "main"


def _tokenizer_digest(folder: Path, revision: str | None) -> str:
    if not folder.is_dir():
        return revision or "main"
    files = [folder / name for name in ("tokenizer.json", "tokenizer_config.json") if (folder / name).is_file()]
    return sha256_json(digests(files, folder.absolute()))
