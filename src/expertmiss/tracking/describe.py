"""What MLflow shows of a run: parameters, metrics, tags, and the note at the top of its page."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from expertmiss.files import sha256_json
from expertmiss.tracking.runs import Run, flatten

# MLflow refuses longer values; a long list is no use in a table column, and run.json, an artifact of the run, has all of it.
PARAM_LENGTH, NOTE_LENGTH, NOTE_ROWS = 500, 8000, 40
NOTE, NAME, PARENT = "mlflow.note.content", "mlflow.runName", "mlflow.parentRunId"
RANDOM_WEIGHTS = "I/O and kernel timing, no language model: quality has no meaning here."


def params(run: Run) -> dict[str, str]:
    """The configuration slice, flattened; values that are not text are JSON, long ones are cut."""
    texts = {key: item if isinstance(item, str) else json.dumps(item) for key, item in flatten(run.data["config"]).items()}
    return {
        re.sub(r"[^\w.\-/ ]", "_", key): text if len(text) <= PARAM_LENGTH else f"{text[: PARAM_LENGTH - 2]} …"
        for key, text in texts.items()
    }


def metrics(run: Run) -> dict[str, float]:
    """The stage's metrics, and its timings as ``seconds/<part>``."""
    return {**{f"seconds/{part}": value for part, value in run.data["timings"].items()}, **run.data["metrics"]}


def tags(run: Run, parent: str) -> dict[str, str]:
    """Everything that a child run carries beside numbers: name, note, identity and labels."""
    data, labels = run.data, run.labels
    return {
        NAME: data["name"], NOTE: note(run), PARENT: parent, "mlflow.user": "expertmiss", "mlflow.source.type": "LOCAL",
        "mlflow.source.name": f"python -m expertmiss {data['stage']}",
        "experiment": data["experiment"], "stage": data["stage"], "folder": run.folder, "run_key": data["run_key"],
        "source_hash": data["source_hash"], "substrate": labels.substrate, "routing": labels.routing, "time": labels.time,
        "host": labels.host, "status": labels.status, "n": sample(labels.n), "notes": " · ".join(labels.notes) or "none",
        **({"lock": str(data["config"]["lock"])} if data["config"].get("lock", "none") != "none" else {}),  # what was registered beforehand
    }  # fmt: skip


def digest(run: Run) -> str:
    """SHA-256 of all that is mirrored of a run: a repetition of it (same run key, new timings) and a change of this module show."""
    return sha256_json([run.data, params(run), metrics(run), tags(run, parent=""), artifact_names(run)])


def sample(counts: dict[str, int]) -> str:
    """``40 documents, 20,480 tokens``."""
    return ", ".join(f"{count:,} {unit}" for unit, count in counts.items())


def note(run: Run) -> str:
    """Markdown of a child run: where it stands, its labels, how long it took, on what."""
    data, labels = run.data, run.labels
    machine = data["environment"]
    packages = machine.get("packages", {})
    versions = [f"{name} {packages[name]}" for name in ("numpy", "torch", "transformers") if name in packages]
    lines = [
        f"Stage `{data['stage']}` of experiment `{data['experiment']}`, files in `{run.folder}/`.", "",
        f"- **sample:** {sample(labels.n)}",
        f"- **{labels.status}**; substrate {labels.substrate}, routing {labels.routing}, time {labels.time}, host {labels.host}",
        *([f"- {RANDOM_WEIGHTS}"] if labels.substrate == "random_weights" else []),
        *(f"- {text}" for text in labels.notes),
        f"- {sum(data['timings'].values()):.1f} s on {machine.get('cpu', 'an unnamed processor')}, {machine.get('cores', '?')} cores, "
        f"Python {machine.get('python', '?')}" + "".join(f", {version}" for version in versions),
    ]  # fmt: skip
    return _cut("\n".join(lines))


def parent_tags(experiment: str, runs: Sequence[Run], text: str) -> dict[str, str]:
    """Tags of the run that stands for a whole experiment; its labels are the sets of its runs' labels."""
    seen = {
        key: ", ".join(sorted({getattr(run.labels, key) for run in runs})) for key in ("substrate", "routing", "time", "host", "status")
    }
    units = sorted({unit for run in runs for unit in run.labels.n})
    largest = {unit: max(run.labels.n.get(unit, 0) for run in runs) for unit in units}
    return {
        NAME: parent_name(experiment), NOTE: parent_note(experiment, runs, text), "mlflow.user": "expertmiss", "mlflow.source.type": "LOCAL",
        "mlflow.source.name": f"snakemake --config experiment={experiment}", "experiment": experiment, "stage": "all", "folder": parent_folder(experiment),
        "run_key": sha256_json(["experiment", experiment]), "n": f"at most {sample(largest)} in one run", **seen,
    }  # fmt: skip


def parent_name(experiment: str) -> str:
    """``experiment <name>``."""
    return f"experiment {experiment}"


def parent_folder(experiment: str) -> str:
    """``results/<name>/``: the slash tells it from the folder of a run."""
    return f"results/{experiment}/"


def parent_note(experiment: str, runs: Sequence[Run], text: str) -> str:
    """Markdown of an experiment: what it is, where its report is, and a table of its runs."""
    reports = {path for run in runs for path in run.data["outputs"] if PurePosixPath(path).name == "index.html"}
    lines = [
        *([text, ""] if text else []),
        f"**Report:** {', '.join(f'`{path}`' for path in sorted(reports))}" if reports else "**Report:** none was rendered yet.", "",
        f"{len(runs)} runs in `results/`; open this one (+) to see them. A run tagged `superseded` answers an earlier question: its files "
        "were replaced since.", "",
        "| run | stage | status | substrate | sample |", "|---|---|---|---|---|",
        *(f"| {_cell(run.data['name'])} | {run.data['stage']} | {run.labels.status} | {run.labels.substrate} | {sample(run.labels.n)} |"
          for run in sorted(runs, key=lambda run: (run.start_ms, run.folder))[:NOTE_ROWS]),
        *([f"\n… and {len(runs) - NOTE_ROWS} more."] if len(runs) > NOTE_ROWS else []),
    ]  # fmt: skip
    return _cut("\n".join(lines))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _cut(text: str) -> str:
    return text if len(text) <= NOTE_LENGTH else f"{text[: NOTE_LENGTH - 2]} …"


def artifact_names(run: Run) -> dict[str, str]:
    """Recorded path -> path among the run's artifacts: without the folder of the run or of the experiment's report,
    unless two would then share a name."""
    names: dict[str, str] = {}
    for path in run.data["artifacts"]:
        prefixes = (f"{run.folder}/", f"reports/{run.data['experiment']}/")
        short = next((path[len(prefix) :] for prefix in prefixes if path.startswith(prefix)), path)
        names[path] = path if short in (*names.values(), "run.json") else short
    return names


def summary(values: dict[str, Any]) -> str:
    """``3 written, 97 unchanged`` from counts, zeros left out."""
    return ", ".join(f"{count} {word}" for word, count in values.items() if count) or "nothing to mirror"
