"""`rgcn train`, `resume` and `evaluate`: from a configuration, or from where a run is, to a result."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import typer
from rich.markup import escape
from rich.table import Table

from rgcn import runs
from rgcn.cli import model_commands as commands
from rgcn.cli.commands import RUNS, TellingOptions, refuse_if
from rgcn.cli.output import Outcome, output, series_progress, table, tell, tell_opened, tell_skipped, training_progress
from rgcn.config import PretrainingRun, RunConfig
from rgcn.data.files import bare_name
from rgcn.data.registry import path_or_dataset
from rgcn.errors import ConfigError, DataError, NothingToHoldOutError
from rgcn.graph import KnowledgeGraph
from rgcn.models.task import Task, task_of
from rgcn.placement import current
from rgcn.runs.configuration import candidate_configurations
from rgcn.runs.folder import RunFolder
from rgcn.runs.selection import Selection, read_selection
from rgcn.runs.series import SeriesResult, read_series, run_series
from rgcn.runs.tracking import check_trackers
from rgcn.system.formatting import count as counted
from rgcn.system.formatting import duration, memory, text_console
from rgcn.system.memory import limit_memory
from rgcn.system.progress import progress

if TYPE_CHECKING:
    from rgcn.runs.assembly import RunPlan
    from rgcn.runs.training import RunResult

Configuring = commands.TrainCommand | commands.TuneCommand | commands.PretrainCommand
Planning = commands.TrainCommand | commands.PretrainCommand
HELD_OUT = 0.1  # of a graph that brings no split, where it is only measured
WORTH_PLANNING = 1 << 30  # bytes: what takes less is not worth a line
MINUTES = 3.0  # to choose a model in, where nobody says


def train(asked: commands.TrainCommand) -> None:
    several, repeats, timed = asked.several, asked.runs > 1, asked.minutes is not None
    conflicts: dict[str, Any] = {
        "--jobs says how many of --runs go at a time: add --runs N": asked.jobs > 1 and not repeats,
        "--out says where to keep the run and --no-keep to keep none: choose one": asked.out and asked.no_keep,
        "--minutes is more than 0": asked.minutes is not None and not asked.minutes > 0,
        "several processes train one model for so many steps: leave out --runs, --jobs and --minutes": several
        and (repeats or asked.jobs > 1 or timed),
    }
    refuse_if(conflicts)
    if asked.memory is not None:
        limit_memory(asked.memory, "--memory")
    said = asked.configuration, asked.changes or [], _overrides(asked, trackers=asked.track, **asked.reading())
    candidates = candidate_configurations(*said)
    conflicts = {
        "--runs repeats one training: name its model and steps (--set model.name=path), no --minutes": repeats
        and (candidates or timed),
        "several processes train one model: name it (--set model.name=path), or a configuration": several
        and candidates,
    }
    refuse_if(conflicts)
    config = None if candidates else runs.load_configuration(*said)
    if asked.dry_run:
        asked.launch()
        _show_dry_run(candidates if config is None else {config.model.title: config}, asked)
        return
    folder = asked.out
    if folder is None and not asked.no_keep:
        folder = Path(current().from_main(lambda: str(_free_folder(asked.configuration))))
    try:
        asked.launch(folder, ["--out", str(folder)] if folder is not None and asked.out is None else [])
        if config is None:
            _train_chosen(candidates, folder, asked)
        elif repeats:
            _train_series(config, asked.runs, asked.jobs, folder, asked.mirror, asked)
        else:
            _train_one(config, folder, asked, asked.minutes)
    finally:
        if folder is not None and asked.out is None:
            with suppress(OSError):  # a folder of our own choice in which nothing came to be
                folder.rmdir()


def pretrain(asked: commands.PretrainCommand) -> None:
    run = RunFolder(asked.out)
    asked.launch(asked.out)
    if run.exists() and run.result() is None:
        if asked.changes or asked.seed is not None:
            raise ConfigError(f"{asked.out} goes on as it was begun: leave out --set and --seed, or take another --out")
        _resume(asked.out, asked.mirror, asked)
        return
    config = configured(asked)
    if not isinstance(config, PretrainingRun):
        raise ConfigError(f"{asked.configuration} configures {task_of(config.task).title}: `rgcn train` takes it")
    _train_one(config, asked.out, asked)


def resume(asked: commands.ResumeCommand) -> None:
    folder, selection = asked.folder, read_selection(asked.folder)
    series, choosing = (folder / "series.json").exists(), selection and not (folder / "result.json").exists()
    if asked.several and (series or choosing):
        raise ConfigError(f"{folder} holds several trainings: they go on in one process, without --processes")
    if RunFolder(folder).exists() and RunFolder(folder).result() is None:
        asked.launch(folder)
    if series:
        _train_series(*read_series(folder), folder, asked.mirror, asked)
    elif selection is not None and choosing:
        _choose(selection, folder, runs.load_run_data(selection.candidates[0].config, asked.mirror), asked)
    else:
        _resume(folder, asked.mirror, asked, track=not asked.no_track)


def _resume(folder: Path, mirror: Path | None, telling: TellingOptions, track: bool = True) -> None:
    run = RunFolder(folder)
    run.check()
    if run.result() is not None and not telling.quiet:
        typer.echo(f"{folder} is finished; nothing is left to do", err=True)
    about = run.about()
    with training_progress(about["epochs"], telling.quiet, task_of(about["task"]).headline) as progress:
        result = runs.resume(folder, mirror, progress.epoch, progress.step, track=track)
    _show(result, folder, telling.as_json)


def evaluate(asked: commands.EvaluateCommand) -> None:
    asked.launch()
    place = path_or_dataset(asked.folder)
    if not isinstance(place, Path) or not any((place / name).is_file() for name in ("run.json", "series.json")):
        _evaluate_graph(asked)
        return
    run = RunFolder(place)
    run.check()
    words = f"--labels, --labels-from, --data and --classes are for a graph, and {place} is a run: leave them out"
    refuse_if({words: asked.has_labels or asked.data or asked.classes})
    if run.result() is None:
        typer.echo(f"{asked.folder} is not finished ({run.status()}): this is its newest checkpoint", err=True)
    task = task_of(run.about()["task"])
    found = runs.evaluate(run, asked.split, asked.mirror, on=asked.on, **_measuring(task, asked, asked.on))
    other = f", asked about {found['on']}" if "on" in found else ""
    title = f"{found['model']} on {found['dataset']}, seed {found['seed']}{other}, {found['split']} split"
    tell(asked.as_json, found, title, task.to(Outcome).evaluated(found["metrics"]), least=100)


def _evaluate_graph(asked: commands.EvaluateCommand) -> None:
    """The model that comes with rgcn, or one that was saved outside a run."""
    from rgcn.predict import open_model  # brings PyTorch, which a command that only refuses has no need of
    from rgcn.runs.assembly import check_split

    if asked.on is not None:
        raise ConfigError(f"--on is for the model of a run; to measure on {asked.on}: rgcn evaluate {asked.on}")
    split = check_split(asked.split or "test")
    classes = asked.classes or asked.has_labels
    opened = open_model(asked.folder, mirror=asked.mirror, classes=classes, **asked.reading())
    graph = opened.untrained
    if graph is not None:
        labels = graph.labels if classes else None
        if (graph.triple_splits is None) if labels is None else not labels.splits.any():
            held_out = None if labels is None else labels.holding_out(split, HELD_OUT, seed=0)
            graph = replace(graph, labels=held_out) if classes else graph.split(HELD_OUT, HELD_OUT, seed=0)
            typer.echo(f"The data bring no split: {HELD_OUT:.0%} are hidden for {split}, drawn with seed 0", err=True)
            again = open_model(graph, mirror=asked.mirror, classes=classes)
            opened = replace(again, path=opened.path, name=opened.name)
    tell_opened(opened, asked.as_json)
    measuring = _measuring(opened.task, asked, None if graph is None else opened.name)
    measured = opened.model.evaluate(split=split, **measuring)
    found = {**opened.source, "task": opened.task.name, "split": split, "metrics": measured}
    title = f"{opened.title} on {opened.name}, {split} split"
    tell(asked.as_json, found, title, opened.task.to(Outcome).evaluated(measured), least=100)


def _measuring(task: Task, asked: commands.EvaluateCommand, on: str | None) -> dict[str, Any]:
    """Arguments of the model's own `evaluate`; on: what it is measured on, where it was not trained on that."""
    at_most = {} if asked.at_most is None else {"at_most": asked.at_most}
    return task.to(Outcome).measuring(asked.of, on) | at_most


def configured(asked: Configuring) -> RunConfig:
    """The configuration that is named, with what else was said."""
    return runs.load_configuration(asked.configuration, asked.changes or [], _overrides(asked))


def _overrides(asked: Configuring, **more: Any) -> dict[str, Any]:
    """What flags say, by the settings they stand for; of `more` each is one of `data`, but for trackers."""
    data = {key if key == "trackers" else f"data.{key}": value for key, value in more.items()}
    overrides = {"seed": asked.seed, "training.device": asked.device, **data}
    return {key: value for key, value in overrides.items() if value is not None}


def plain_name(configuration: str) -> str:
    """A folder's name: rgcn-nc-aifb for rgcn/nc-aifb, mine for some/where/mine.yaml and some/where/mine.nt.gz."""
    path = Path(configuration)
    name = path.stem if path.suffix in (".yaml", ".yml") else bare_name(path) if path.is_file() else configuration
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "run"


def _free_folder(configuration: str) -> Path:
    """A new folder under runs/, named after the configuration: runs/rgcn-nc-aifb, then runs/rgcn-nc-aifb-2, ..."""
    name = plain_name(configuration)
    for number in count(1):
        folder = RUNS / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True)  # made at once, so that two who begin in the same moment get one each
            return folder
        except FileExistsError:
            continue
        except OSError as error:
            raise DataError(f"cannot make {folder}: {error.strerror}; choose a place with --out") from error
    raise AssertionError("numbers do not end")


def _train_chosen(configs: Mapping[str, RunConfig], folder: Path | None, asked: commands.TrainCommand) -> None:
    """Try several models on a graph, and keep the best."""
    from rgcn.runs.selection import estimate, plan_selection, with_validation

    minutes = MINUTES if asked.minutes is None else asked.minutes
    tried = {name: with_validation(config) for name, config in configs.items()}
    graph = _planned(next(iter(tried.values())), folder, asked).graph
    if not asked.quiet:
        by_default = " (--minutes changes that)" if asked.minutes is None else ""
        typer.echo(
            f"No model is named: {len(tried)} are tried in about {minutes:g} min{by_default}, and the best on "
            "validation data is kept",
            err=True,
        )
    try:
        with progress("timing", len(tried), "models", show=asked.bars) as meter:
            selection, size = plan_selection(tried, graph, minutes, meter)
    except NothingToHoldOutError as error:
        shipped = next(config for config in configs.values() if not config.training.epochs and config.model.layers > 1)
        typer.echo(f"{error}: the model that comes with rgcn answers as it is", err=True)
        _show(runs.train(shipped, graph, folder), folder, asked.as_json)
        return
    if not asked.quiet:
        typer.echo(estimate(selection, size), err=True)
    with nullcontext(folder) if folder else TemporaryDirectory() as place:
        _choose(selection, Path(place), graph, asked, kept=folder is not None)


def _choose(selection: Selection, folder: Path, graph: KnowledgeGraph, how: TellingOptions, kept: bool = True) -> None:
    from rgcn.runs.selection import choose

    with progress("choosing", round(60 * selection.minutes), "s", show=how.bars) as meter:
        result = choose(selection, folder, graph, None if how.quiet else meter)
    _show(result, folder if kept else None, how.as_json, selection)


def _loaded(config: RunConfig, folder: Path | None, mirror: Path | None, quiet: bool) -> KnowledgeGraph:
    """The data of a run, after everything that can be refused without them."""
    check_trackers(config.trackers)
    if folder is not None:
        RunFolder(folder).refuse_unless_free()
    graph = runs.load_data(config.data, mirror)
    if not quiet:
        tell_skipped(graph)
        typer.echo(f"{graph!r}", err=True)
    return graph


def _planned(config: RunConfig, folder: Path | None, asked: Planning) -> RunPlan:
    """The plan of a run over its data; says what is held out where the data bring no split."""
    from rgcn.runs.assembly import plan_run

    plan = plan_run(config, _loaded(config, folder, asked.mirror, asked.quiet), asked.mirror)
    words, sizes = plan.graph.metadata.get("split"), plan.split_sizes
    held_out = [f"{size:,} for {name}" for name, size in sizes.items() if name != "train"]
    if words is not None and held_out and not asked.quiet:
        total = f"{sum(sizes.values()):,} {'labels' if plan.task.kind.needs_labels else 'triples'}"
        said = f"The data bring no split: of {total}, {' and '.join(held_out)} are held out"
        typer.echo(f"{said} ({words}); see data.split", err=True)
    return plan


def _show_dry_run(configs: Mapping[str, RunConfig], asked: commands.TrainCommand) -> None:
    """What a training would do, or each of those that would be tried; nothing is trained or written."""
    from rgcn.runs.assembly import plan_run
    from rgcn.runs.selection import with_validation

    if len(configs) > 1:  # of which the best on validation data is kept
        configs = {name: with_validation(config) for name, config in configs.items()}
    graph = _loaded(next(iter(configs.values())), asked.out, asked.mirror, asked.quiet)
    plans = {name: plan_run(config, graph, asked.mirror) for name, config in configs.items()}
    described = [{**plan.described(), "configuration": plan.config.model_dump(mode="json")} for plan in plans.values()]
    drawn = []
    for name, plan in plans.items():
        told = plan.described()
        if asked.minutes is not None and plan.config.training.epochs:
            told["steps"] += f", or as many as {asked.minutes:g} min allow"
        drawn.append(table((name, "what a training would do"), told.items()))
    tell(asked.as_json, described[0] if len(plans) == 1 else dict(zip(plans, described, strict=True)), *drawn)


def _train_one(config: RunConfig, folder: Path | None, asked: Planning, minutes: float | None = None) -> None:
    """Plan a run, refuse it where the machine has less than it takes, and train."""
    from rgcn.runs.assembly import refuse_what_does_not_fit
    from rgcn.runs.training import train_as_planned

    plan = _planned(config, folder, asked)
    if minutes is not None:
        from rgcn.runs.selection import with_steps_for

        plan = with_steps_for(plan, minutes)
    if not asked.quiet and plan.resources.total > WORTH_PLANNING:
        typer.echo(plan.resources.words, err=True)
    refuse_what_does_not_fit(plan, folder)
    with training_progress(plan.config.training.epochs, asked.quiet, plan.task.headline) as progress:
        result = train_as_planned(plan, folder, progress.epoch, progress.step)
    _show(result, folder, asked.as_json)


def _show(result: RunResult, folder: Path | None, as_json: bool, selection: Selection | None = None) -> None:
    """A finished run: one JSON object, or figures and examples."""
    values, outcome = result.as_dict(), task_of(result.config.task).to(Outcome)
    tell(as_json, values if selection is None else {**values, "selection": selection.told()})
    if as_json:
        return
    if selection is not None:
        numbers = ("steps", "time", "test")
        columns, title = ("model", "steps", "time", "validation", "test"), f"{selection.metric.title} of each model"
        output(110).print(table(columns, selection.rows(), numbers, title))
        output().print(f"{escape(selection.verdict())}\n", soft_wrap=True)
    stored, number = values["stored_parameters"], values["parameters"]
    parameters = counted(number, "parameter") + (f" ({stored:,} of them stored)" if stored != number else "")
    console = text_console(highlight=False, soft_wrap=True)
    console.print(
        f"[bold]{escape(values['model'])}[/] on [bold]{escape(values['dataset'])}[/], seed {values['seed']}: "
        f"{counted(values['epochs'], 'epoch')} in {duration(values['seconds'])}, {parameters}"
    )
    if result.exchanged is not None:
        group, sent, least = (result.exchanged[key] for key in ("processes", "sent", "least"))
        console.print(f"{group} processes sent each other {memory(sent)} a step; {memory(least)} is the least possible")
    for split, measured in values["metrics"].items():
        words = outcome.beside(result.model, split, measured)
        console.print(f"{split:<6} {outcome.figures(measured)}" + (f"   ({escape(words)})" if words else ""))
    examples = outcome.examples(result.model)
    if examples is not None:
        output().print(examples)
    if folder is not None:
        typer.echo(
            f"\nKept in {folder}: `rgcn report {folder}` draws it, `rgcn predict` and `rgcn explain` ask it, "
            f"`rgcn serve {folder}` opens it in a browser, `rgcn runs` lists all."
        )


def _train_series(
    config: RunConfig, number: int, jobs: int, folder: Path | None, mirror: Path | None, telling: TellingOptions
) -> None:
    """Train with several seeds, or go on with those that are not finished, and show what they say together."""
    with series_progress(telling.quiet) as progress:
        progress.begin(config.model.title, number, config.training.epochs)
        result = run_series(config, number, folder=folder, jobs=jobs, mirror=mirror, listener=progress)
    where = (
        []
        if folder is None
        else [f"Kept in {folder}, a folder for each seed; every figure is in {folder / 'series.json'}."]
    )
    tell(telling.as_json, result.as_dict(), _spreads(result), *where)
    if not telling.as_json:
        for row in result.failures:
            typer.echo(f"seed {row.seed} failed: {row.error}", err=True)
    if result.failures:
        raise typer.Exit(1)


def _spreads(result: SeriesResult) -> Table:
    """Mean, standard deviation and standard error of every metric."""
    rows = []
    for split, metrics in result.summary().items():
        for metric, spread in metrics.items():
            values = spread.mean, spread.standard_deviation, spread.standard_error
            rows.append((split, metric, *("" if value is None else f"{value:.4f}" for value in values)))
    title = f"{result.config.model.title} on {result.config.data.title}: {counted(len(result.results), 'run')}"
    numbers = ("mean", "standard deviation", "standard error")
    return table(("split", "metric", *numbers), rows, numbers, title)
