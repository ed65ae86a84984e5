"""Command line: one command a stage (what the rules call), and the commands a person uses.

Modules of the stages are imported when a command runs, so that ``--help`` and the quick commands start at once.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import traceback
from pathlib import Path
from typing import Any

import click

from expertmiss import __version__
from expertmiss.engine.commands import engine
from expertmiss.errors import UserError, suggest
from expertmiss.stages import STAGES, Context


class SuggestingGroup(click.Group):
    """A group that answers an unknown command with the closest known one."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            raise UserError(f"unknown command '{args[0]}'; {suggest(args[0], self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)


@click.group(cls=SuggestingGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__)
def cli() -> None:
    """Which expert misses are worth waiting for? Substitution and caching for Mixture-of-Experts inference.

    `snakemake --cores all` runs the whole study; the commands below are its stages and tools to look at what they made.
    """


def _pairs(values: tuple[str, ...]) -> dict[str, Path | list[Path]]:
    """``NAME=PATH`` options; a name given several times, or as ``NAME[]=``, becomes a list."""
    found: dict[str, Path | list[Path]] = {}
    for value in values:
        name, equals, path = value.partition("=")
        if not equals or not name or not path:
            raise UserError(f"--input '{value}': expected NAME=PATH")
        if name.endswith("[]"):
            listed = found.setdefault(name[:-2], [])
            assert isinstance(listed, list)
            listed.append(Path(path))
        else:
            found[name] = Path(path)
    return found


def _stage_command(stage: str, module_name: str) -> click.Command:
    @click.command(stage, help=f"Stage {stage} (called by the workflow; repeatable by hand from its log).", hidden=True)
    @click.option("--cfg", "cfg_text", required=True, help="Slice of the configuration, as JSON.")
    @click.option("--code", "source_hash", default="by hand", help="Content hash of the modules the stage runs.")
    @click.option("--experiment", default="default", help="Experiment the results belong to.")
    @click.option("--input", "inputs", multiple=True, help="NAME=PATH of an input; NAME[]=PATH where several are taken.")
    @click.option("--value", "values", multiple=True, help="NAME=TEXT of a wildcard that the stage takes.")
    @click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder of the outputs.")
    @click.option("--log", type=click.Path(path_type=Path), default=None, help="Log file; progress goes beside it as .jsonl.")
    def command(
        cfg_text: str, source_hash: str, experiment: str, inputs: tuple[str, ...], values: tuple[str, ...], out: Path, log: Path | None
    ) -> None:
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text(
                "$ " + " ".join(_quoted(word) for word in ["python", "-m", "expertmiss", *sys.argv[1:]]) + "\n", encoding="utf-8"
            )
        journal = log.with_suffix(".jsonl") if log is not None else None
        try:
            try:
                cfg = json.loads(cfg_text)
            except json.JSONDecodeError as problem:
                raise UserError(f"--cfg: not JSON ({problem})") from None
            run = importlib.import_module(module_name).run
            keywords: dict[str, Any] = {**_pairs(inputs), **dict(value.split("=", 1) for value in values)}
            known = set(inspect.signature(run).parameters) - {"cfg", "out", "context"}
            for name in keywords.keys() - known:
                raise UserError(f"--input {name}: stage {stage} takes no such input; {suggest(name, known)}")
            run(cfg, out=out, context=Context(experiment, source_hash, journal), **keywords)
        except UserError as problem:
            _append(log, f"error: {problem}\n")
            raise
        except Exception:
            _append(log, traceback.format_exc())
            raise
        _append(log, "done\n")

    return command


def _quoted(word: str) -> str:
    import shlex

    return shlex.quote(word)


def _append(log: Path | None, text: str) -> None:
    if log is not None:
        with open(log, "a", encoding="utf-8") as stream:
            stream.write(text)


for _stage, _module in STAGES.items():
    cli.add_command(_stage_command(_stage, _module))


@cli.command()
@click.argument("overrides", nargs=-1)
@click.option("--experiment", default="default")
@click.option("--profile", default="builtin")
def config(overrides: tuple[str, ...], experiment: str, profile: str) -> None:
    """Print the composed configuration, e.g. `expertmiss config policy=rule_015 policy.miss_rule.tau=0.2`."""
    import yaml

    from expertmiss.config import compose
    from expertmiss.paths import project_root

    click.echo(yaml.safe_dump(compose(project_root(), experiment, profile, overrides), sort_keys=False), nl=False)


@cli.command("config-docs", hidden=True)
def config_docs() -> None:
    """Write config/README.md and config/schema.json from the dataclasses."""
    from expertmiss.config.document import write_documents
    from expertmiss.paths import project_root

    write_documents(project_root() / "config")


@cli.group()
def trace() -> None:
    """Look at router traces."""


@trace.command()
@click.argument("file", type=click.Path(path_type=Path))
def info(file: Path) -> None:
    """Describe a trace FILE, after checking every value in it."""
    from expertmiss.traces.info import describe

    click.echo(describe(file))


@trace.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), required=True, help="File to write.")
@click.option("--layer", type=int, default=None, help="Only this layer.")
def export(file: Path, out: Path, layer: int | None) -> None:
    """Write the requests of trace FILE in libCacheSim's oracleGeneral format."""
    from expertmiss.traces.export import export as write

    click.echo(f"{out}: {write(file, out, layer):,} requests")


@trace.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Trace to write.")
@click.option("--layers", default=48, type=click.IntRange(min=1), show_default=True)
@click.option("--experts", default=512, type=click.IntRange(min=1), show_default=True)
@click.option("--top-k", default=10, type=click.IntRange(min=1), show_default=True)
@click.option("--depth", default=128, type=click.IntRange(min=1), show_default=True, help="Experts recorded per row.")
@click.option("--documents", default=40, type=click.IntRange(min=1), show_default=True)
@click.option("--length", default=512, type=click.IntRange(min=1), show_default=True, help="Tokens per document.")
@click.option("--miss-rate", default=0.085, show_default=True, help="LRU miss rate to reach, within half a point.")
@click.option("--residency", default=0.25, show_default=True, help="Resident share at which the miss rate holds.")
@click.option("--seed", default=0, type=click.IntRange(min=0), show_default=True)
def synthesize(file: Path, out: Path, miss_rate: float, residency: float, seed: int, **shape: int) -> None:
    """Make a trace of another geometry by a process fitted to the real trace FILE; labelled synthetic."""
    from expertmiss.traces.synthesize import Geometry
    from expertmiss.traces.synthesize import synthesize as make

    found = make(file, out, Geometry(**shape), miss_rate, residency, seed)
    click.echo(f"{out}: " + ", ".join(f"{name} {value:.4f}" for name, value in found.items()))


@cli.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("overrides", nargs=-1)
@click.option("--residency", default=0.25, show_default=True, help="Resident share of each layer's experts.")
@click.option("--calibration", type=click.Path(path_type=Path), default=None, help="Trace whose request counts warm the cache.")
@click.option("--log", type=click.Path(path_type=Path), default=None, help="Folder for the decision log: calls.parquet, landings.parquet.")
@click.option("--explain", type=int, nargs=3, default=None, metavar="DOCUMENT TOKEN LAYER", help="Print one step in full.")
def simulate(
    file: Path,
    overrides: tuple[str, ...],
    residency: float,
    calibration: Path | None,
    log: Path | None,
    explain: tuple[int, int, int] | None,
) -> None:
    """Run one policy over trace FILE, e.g. `expertmiss simulate FILE policy=rule_015 policy.miss_rule.tau=0.2`."""
    from expertmiss.config.compose import chosen_policy
    from expertmiss.paths import project_root
    from expertmiss.simulate.explain import explain_step, simulate_one

    policy = chosen_policy(project_root(), overrides)
    if explain is None:
        click.echo(simulate_one(file, policy, residency, calibration, log))
    else:
        click.echo(explain_step(file, policy, residency, calibration, *explain))


@cli.command()
@click.option("--show", "problem", required=True, metavar="PROBLEM", help="Name of a problem, or the part of it that no other name has.")
@click.option("--arm", default="rule_015", show_default=True, help="Arm that stands beside the reference.")
@click.option("--sample", default=0, show_default=True, type=click.IntRange(min=0), help="Which of several answers.")
@click.option("--experiment", default="default", show_default=True)
@click.option("--model", default="builtin", show_default=True, help="Name of the model in result folders.")
@click.option("--corpus", default="builtin", show_default=True, help="Name of the corpus in result folders.")
def generate(problem: str, arm: str, sample: int, experiment: str, model: str, corpus: str) -> None:
    """Look at one answer of the generation test beside the reference's: prompt, both texts, where they part, mass of every token."""
    from expertmiss.generate.show import show
    from expertmiss.paths import project_root

    place = f"{model}/{corpus}"
    here = project_root() / "results" / experiment
    click.echo(
        show(here / "generate_answers" / place / "answers.jsonl", here / "build_tasks" / place / "problems.parquet", problem, arm, sample)
    )


@cli.command()
@click.option(
    "--add-host", "run", type=click.Path(path_type=Path, exists=True), required=True, help="Folder results/EXPERIMENT of the other machine."
)
@click.option("--experiment", default="default", show_default=True, help="Experiment of this machine whose report it joins.")
def report(run: Path, experiment: str) -> None:
    """Bring what E5 measured on another machine into this one's report, labelled by its host."""
    from expertmiss.paths import project_root
    from expertmiss.report.hosts import add_host

    folder = add_host(project_root(), run, experiment)
    click.echo(f"{folder}: added; `make report EXPERIMENT={experiment}` renders the page")


@cli.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("overrides", nargs=-1)
@click.option("--host", required=True, help="A file of config/host by name, or the path of a profile.yaml that calibrate_host wrote.")
@click.option("--residency", default=0.25, show_default=True, help="Resident share of each layer's experts.")
@click.option("--calibration", type=click.Path(path_type=Path), default=None, help="Trace whose request counts warm the cache.")
@click.option("--miss-service", default="fetch", show_default=True, help="fetch, or host_compute: misses computed by the host's processor.")
def predict(file: Path, overrides: tuple[str, ...], host: str, residency: float, calibration: Path | None, miss_service: str) -> None:
    """Predict the time of a token over trace FILE, e.g. `expertmiss predict FILE policy=rule_015 --host rtx3090_nvme`."""
    from expertmiss.config.compose import chosen_policy
    from expertmiss.engine.calibrate import load_profile
    from expertmiss.paths import project_root
    from expertmiss.simulate.predict import predict_one

    named = project_root() / "config" / "host" / f"{host}.yaml"
    profile = load_profile(named if "/" not in host and named.is_file() else Path(host))
    click.echo(predict_one(file, chosen_policy(project_root(), overrides), residency, calibration, profile, miss_service))


@cli.command()
@click.option("--experiment", default=None, help="Only this experiment.")
@click.option("--once", is_flag=True, help="Print once and stop.")
def watch(experiment: str | None, once: bool) -> None:
    """Show the progress of running stages."""
    from expertmiss.paths import project_root
    from expertmiss.watch import follow

    follow(project_root() / "results", experiment, once)


@cli.command()
@click.option("--port", default=5000, show_default=True)
def ui(port: int) -> None:
    """Browse the results in MLflow."""
    from expertmiss.tracking.ui import run

    run(port)


@cli.group()
def prereg() -> None:
    """What was fixed beforehand, and whether it still is."""


@prereg.command("lock")
@click.argument("plan")
@click.option("--experiment", default=None, help="Experiment that a plan's sample is taken from: b for experiment_b, study for generation.")
@click.option("--profile", default="builtin", show_default=True, help="One lock a profile.")
def prereg_lock(plan: str, experiment: str | None, profile: str) -> None:
    """Record the digests of PLAN in prereg/LOCK.json, before evaluation data is touched."""
    from expertmiss.experiments.lock import lock
    from expertmiss.paths import project_root

    if plan == "experiment_b":
        from expertmiss.experiments.b.register import lock_experiment

        entry = lock_experiment(project_root(), experiment or "b", profile)
    elif plan == "generation":
        from expertmiss.generate.register import lock_generation

        entry = lock_generation(project_root(), experiment or "study", profile)
    else:
        entry = lock(project_root(), plan)
    click.echo(f"{plan}: locked {entry['locked']} at commit {entry['commit'][:12]}")


@prereg.command("status")
def prereg_status() -> None:
    """Every plan of every profile: locked, changed since, or open."""
    from expertmiss.experiments.lock import PLANS, profiles, stands
    from expertmiss.paths import project_root

    root = project_root()
    for plan in PLANS:
        for profile in profiles(root, plan):
            name = plan if profile == "builtin" else f"{plan}/{profile}"
            try:
                found = stands(root, plan, profile)
                words = "unchanged" if found.status == "confirmatory" else found.status
                click.echo(f"{name}: locked {found.entry['locked']}, {words} ({found.digest[:12]})")
            except UserError as problem:
                click.echo(f"{name}: {problem}")


@prereg.command("verify")
@click.argument("plan")
@click.option("--experiment", default=None, help="Experiment whose documents are compared: b for experiment_b, study for generation.")
@click.option("--profile", default="builtin", show_default=True, help="One lock a profile.")
def prereg_verify(plan: str, experiment: str | None, profile: str) -> None:
    """Compare PLAN's files, and its documents, model and arms, with what was locked."""
    from expertmiss.experiments.lock import verify
    from expertmiss.paths import project_root

    if plan == "experiment_b":
        from expertmiss.experiments.b.register import check_experiment

        click.echo(f"{plan}: {check_experiment(project_root(), experiment or 'b', profile)}")
    elif plan == "generation":
        from expertmiss.generate.register import check_generation

        click.echo(f"{plan}: {check_generation(project_root(), experiment or 'study', profile)}")
    else:
        click.echo(f"{plan}: unchanged ({verify(project_root(), plan)[:12]})")


@prereg.command("accept")
@click.argument("plan")
@click.argument("result", type=click.Path(path_type=Path))
@click.option("--profile", default="builtin", show_default=True, help="One result a profile.")
def prereg_accept(plan: str, result: Path, profile: str) -> None:
    """Keep the first RESULT (result.json) of PLAN as prereg/PLAN.result.json; compare a later one with it."""
    from expertmiss.experiments.lock import accept, result_path
    from expertmiss.files import read_json
    from expertmiss.paths import project_root

    click.echo(f"{result_path(plan, profile)}: {accept(project_root(), plan, profile, read_json(result))}")


@cli.command("train-builtin", context_settings={"ignore_unknown_options": True}, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def train_builtin(arguments: tuple[str, ...]) -> None:
    """Train the small model that ships (hours; resumes)."""
    from expertmiss.models.train import main as train

    train(list(arguments))


cli.add_command(engine)


def main(arguments: list[str] | None = None) -> Any:
    """Entry point: a person's mistake is one line and exit status 2; anything else keeps its traceback."""
    try:
        return cli.main(args=arguments, prog_name="expertmiss", standalone_mode=False) or 0
    except UserError as problem:
        click.echo(f"error: {problem}", err=True)
    except click.ClickException as problem:
        problem.show()
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped", err=True)
        raise SystemExit(130) from None
    except BrokenPipeError:
        raise SystemExit(0) from None
    raise SystemExit(2)
