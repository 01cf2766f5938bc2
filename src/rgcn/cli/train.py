"""`rgcn train`, `resume`, `evaluate` and `runs`: from a configuration, or from where a run is, to a result."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import typer
from rich.markup import escape

from rgcn import runs
from rgcn.cli import model_commands as commands
from rgcn.cli.options import RUNS, TellingOptions
from rgcn.cli.output import output, print_json, report_skipped, table, tell_opened
from rgcn.cli.results import Outcome, print_outcome, print_selection
from rgcn.cli.training_progress import series_progress, training_progress
from rgcn.config import PretrainingRun, RunConfig
from rgcn.data.files import bare_name
from rgcn.data.registry import path_or_dataset
from rgcn.distributed.launch import launch
from rgcn.errors import ConfigError, DataError, NothingToHoldOutError
from rgcn.graph import KnowledgeGraph
from rgcn.models.task import task_of
from rgcn.placement import current
from rgcn.runs import run_record
from rgcn.runs.folder import RunFolder
from rgcn.runs.selection import Selection, read_selection
from rgcn.runs.series import SeriesResult, read_series, run_series
from rgcn.runs.tracking import check_trackers
from rgcn.system.formatting import count as counted
from rgcn.system.formatting import duration
from rgcn.system.memory import limit_memory
from rgcn.system.progress import progress

if TYPE_CHECKING:
    from rgcn.runs.planning import RunPlan
    from rgcn.runs.training import RunResult

Configuring = commands.TrainCommand | commands.TuneCommand | commands.PretrainCommand
Planning = commands.TrainCommand | commands.PretrainCommand
HELD_OUT = 0.1  # of a graph that brings no split, where it is only measured
WORTH_PLANNING = 1 << 30  # bytes: what takes less is not worth a line
MINUTES = 3.0  # to choose a model in, where nobody says
COLORS = {"finished": "green", "running": "cyan", "failed": "red", "killed": "yellow"}


def train(asked: commands.TrainCommand) -> None:
    if asked.jobs > 1 and asked.runs == 1:
        raise ConfigError("--jobs says how many of --runs go at a time: add --runs N")
    if asked.out is not None and asked.no_keep:
        raise ConfigError("--out says where to keep the run and --no-keep to keep none: choose one")
    if asked.minutes is not None and not asked.minutes > 0:
        raise ConfigError("--minutes is more than 0")
    if asked.several and (asked.runs > 1 or asked.jobs > 1 or asked.minutes is not None):
        raise ConfigError("several processes train one model for so many steps: leave out --runs, --jobs and --minutes")
    if asked.memory is not None:
        limit_memory(asked.memory, "--memory")
    said = asked.configuration, asked.changes or [], _overrides(asked, trackers=asked.track, **asked.reading())
    candidates = runs.candidate_configurations(*said)
    if asked.runs > 1 and (candidates or asked.minutes is not None):
        raise ConfigError("--runs repeats one training: name its model and steps (--set model.name=path), no --minutes")
    if asked.several and candidates:
        raise ConfigError("several processes train one model: name it (--set model.name=path), or a configuration")
    config = None if candidates else runs.load_configuration(*said)
    if asked.dry_run:
        if asked.to_launch:
            launch(asked.processes or 1)
        _show_dry_run(candidates if config is None else {config.model.title: config}, asked)
        return
    folder = asked.out
    if folder is None and not asked.no_keep:
        folder = Path(current().from_main(lambda: str(_free_folder(asked.configuration))))
    try:
        if asked.to_launch:
            own = folder is not None and asked.out is None
            launch(asked.processes or 1, folder, ["--out", str(folder)] if own else [])
        elif config is None:
            _train_chosen(candidates, folder, asked)
        elif asked.runs > 1:
            _train_series(config, asked.runs, asked.jobs, folder, asked.mirror, asked)
        else:
            result = _train_one(_planned(config, folder, asked, asked.minutes), folder, asked.quiet)
            _show(result, folder, asked.as_json)
    finally:
        if folder is not None and asked.out is None:
            with suppress(OSError):  # a folder of our own choice in which nothing came to be
                folder.rmdir()


def pretrain(asked: commands.PretrainCommand) -> None:
    run = RunFolder(asked.out)
    if asked.to_launch:
        launch(asked.processes or 1, asked.out)
    if run.exists() and run.result() is None:
        if asked.changes or asked.seed is not None:
            raise ConfigError(f"{asked.out} goes on as it was begun: leave out --set and --seed, or take another --out")
        _resume(asked.out, asked.mirror, asked)
        return
    config = configured(asked)
    if not isinstance(config, PretrainingRun):
        raise ConfigError(f"{asked.configuration} configures {task_of(config.task).title}: `rgcn train` takes it")
    _show(_train_one(_planned(config, asked.out, asked), asked.out, asked.quiet), asked.out, asked.as_json)


def resume(asked: commands.ResumeCommand) -> None:
    folder, selection = asked.folder, read_selection(asked.folder)
    chosen = selection is None or (folder / "result.json").exists()
    if asked.several and ((folder / "series.json").exists() or not chosen):
        raise ConfigError(f"{folder} holds several trainings: they go on in one process, without --processes")
    if asked.to_launch and RunFolder(folder).exists() and RunFolder(folder).result() is None:
        launch(asked.processes or 1, folder)
    if (folder / "series.json").exists():
        _train_series(*read_series(folder), folder, asked.mirror, asked)
    elif selection is not None and not chosen:
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
    if asked.to_launch:
        launch(asked.processes or 1)
    place = path_or_dataset(asked.folder)
    if not isinstance(place, Path) or not any((place / name).is_file() for name in ("run.json", "series.json")):
        _evaluate_graph(asked)
        return
    run = RunFolder(place)
    run.check()
    if asked.has_labels or asked.data or asked.classes:
        raise ConfigError(
            f"--labels, --labels-from, --data and --classes are for a graph, and {place} is a run: leave them out"
        )
    if run.result() is None:
        typer.echo(f"{asked.folder} is not finished ({run.status()}): this is its newest checkpoint", err=True)
    outcome = task_of(run.about()["task"]).to(Outcome)
    how = outcome.measuring(asked.of, asked.on) | _drawn(asked)
    found = runs.evaluate(run, asked.split, asked.mirror, on=asked.on, **how)
    if asked.as_json:
        print_json(found)
        return
    other = f", asked about {found['on']}" if "on" in found else ""
    typer.echo(f"{found['model']} on {found['dataset']}, seed {found['seed']}{other}, {found['split']} split")
    output(least=100).print(outcome.evaluated(found["metrics"]))


def _evaluate_graph(asked: commands.EvaluateCommand) -> None:
    """The model that comes with rgcn, or one that was saved outside a run."""
    from rgcn.predict import open_model  # brings PyTorch, which a command that only refuses has no need of
    from rgcn.runs.assembly import check_split

    if asked.on is not None:
        raise ConfigError(f"--on is for the model of a run; to measure on {asked.on}: rgcn evaluate {asked.on}")
    split = asked.split or "test"
    check_split(split)
    classes = asked.classes or asked.has_labels
    opened = open_model(asked.folder, mirror=asked.mirror, classes=classes, **asked.reading())
    if opened.untrained is not None and not _has_split(opened.untrained, classes):
        graph = opened.untrained
        labels = graph.labels.holding_out(split, HELD_OUT, seed=0) if classes and graph.labels else graph.labels
        graph = replace(graph, labels=labels) if classes else graph.split(HELD_OUT, HELD_OUT, seed=0)
        typer.echo(f"The data bring no split: {HELD_OUT:.0%} are hidden for {split}, drawn with seed 0", err=True)
        opened = replace(open_model(graph, mirror=asked.mirror, classes=classes), path=opened.path, name=opened.name)
    tell_opened(opened, asked.as_json)
    outcome = opened.task.to(Outcome)
    how = outcome.measuring(asked.of, None if opened.untrained is None else opened.name) | _drawn(asked)
    measured = opened.model.evaluate(split=split, **how)
    if asked.as_json:
        print_json({**opened.source, "task": opened.task.name, "split": split, "metrics": measured})
        return
    typer.echo(f"{opened.title} on {opened.name}, {split} split")
    output(least=100).print(outcome.evaluated(measured))


def _drawn(asked: commands.EvaluateCommand) -> dict[str, int]:
    return {} if asked.at_most is None else {"at_most": asked.at_most}


def _has_split(graph: KnowledgeGraph, classes: bool) -> bool:
    if classes:
        return graph.labels is not None and bool(graph.labels.splits.any())
    return graph.triple_splits is not None


def list_runs(asked: commands.RunsCommand) -> None:
    folder = asked.folder
    if not folder.is_dir() and folder != RUNS:
        raise DataError(f"{folder}: there is no such folder")
    lines, complaints = run_record.list_runs(folder)
    for complaint in complaints:
        typer.echo(f"rgcn: {complaint}", err=True)
    if asked.as_json:
        print_json([asdict(line) for line in lines])
    elif lines:
        _print_runs(lines)
    else:
        typer.echo(f"no runs in {folder}; `rgcn train rgcn/nc-world` makes one", err=True)


def _print_runs(lines: list[run_record.RunLine]) -> None:
    figures = ("metric", "epochs", "time")
    drawn = table(("run", "task", "model, data, seed", *figures, "state"), figures)
    for column in (drawn.columns[0], drawn.columns[-1]):
        column.no_wrap = True
    for line in lines:
        drawn.add_row(
            escape(line.run),
            task_of(line.task).noun,
            escape(f"{line.model} on {line.dataset}, {line.seed}"),
            line.words(),
            f"{line.epoch:,}" if line.epoch == line.epochs else f"{line.epoch:,} of {line.epochs:,}",
            "" if line.seconds is None else duration(line.seconds),
            f"[{COLORS.get(line.status, 'magenta')}]{line.status}[/]",
        )
    output(140).print(drawn)


def _show(result: RunResult, folder: Path | None, as_json: bool, selection: Selection | None = None) -> None:
    """A finished run: one JSON object, or figures and examples."""
    if as_json:
        print_json(result.as_dict() if selection is None else {**result.as_dict(), "selection": selection.told()})
        return
    if selection is not None:
        print_selection(selection)
    print_outcome(result)
    if folder is not None:
        typer.echo(
            f"\nKept in {folder}: `rgcn report {folder}` draws it, `rgcn predict` and `rgcn explain` ask it, "
            f"`rgcn serve {folder}` opens it in a browser, `rgcn runs` lists all."
        )


def configured(asked: Configuring, **more: Any) -> RunConfig:
    """The configuration that is named, with what else was said."""
    return runs.load_configuration(asked.configuration, asked.changes or [], _overrides(asked, **more))


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
    from rgcn.runs.model_selection import estimate, plan_selection, with_validation
    from rgcn.runs.planning import plan_run

    minutes = MINUTES if asked.minutes is None else asked.minutes
    tried = {name: with_validation(config) for name, config in configs.items()}
    plan = plan_run(first := next(iter(tried.values())), _loaded(first, folder, asked.mirror, asked.quiet))
    graph = plan.graph
    if not asked.quiet:
        _report_splits(plan)
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
    from rgcn.runs.model_selection import choose

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
        report_skipped(graph)
        typer.echo(f"{graph!r}", err=True)
    return graph


def _report_splits(plan: RunPlan) -> None:
    """Say what is held out where the data bring no split."""
    words, sizes = plan.graph.metadata.get("split"), plan.split_sizes
    held_out = [f"{size:,} for {name}" for name, size in sizes.items() if name != "train"]
    if words is not None and held_out:
        total = f"{sum(sizes.values()):,} {'labels' if plan.task.kind.needs_labels else 'triples'}"
        said = f"The data bring no split: of {total}, {' and '.join(held_out)} are held out"
        typer.echo(f"{said} ({words}); see data.split", err=True)


def _planned(config: RunConfig, folder: Path | None, asked: Planning, minutes: float | None = None) -> RunPlan:
    """The plan of a run, refused where the machine has less than it takes."""
    from rgcn.runs.planning import plan_run, refuse_what_does_not_fit

    plan = plan_run(config, _loaded(config, folder, asked.mirror, asked.quiet), asked.mirror)
    if minutes is not None:
        from rgcn.runs.training_time import with_steps_for

        plan = with_steps_for(plan, minutes)
    if not asked.quiet:
        _report_splits(plan)
        if plan.resources.total > WORTH_PLANNING:
            typer.echo(plan.resources.words, err=True)
    refuse_what_does_not_fit(plan, folder)
    return plan


def _show_dry_run(configs: Mapping[str, RunConfig], asked: commands.TrainCommand) -> None:
    """What a training would do, or each of those that would be tried; nothing is trained or written."""
    from rgcn.runs.model_selection import with_validation
    from rgcn.runs.planning import plan_run

    if len(configs) > 1:  # of which the best on validation data is kept
        configs = {name: with_validation(config) for name, config in configs.items()}
    graph = _loaded(next(iter(configs.values())), asked.out, asked.mirror, asked.quiet)
    plans = {name: plan_run(config, graph, asked.mirror) for name, config in configs.items()}
    if asked.as_json:
        described = {
            name: {**plan.described(), "configuration": plan.config.model_dump(mode="json")}
            for name, plan in plans.items()
        }
        print_json(described if len(described) > 1 else next(iter(described.values())))
        return
    for name, plan in plans.items():
        drawn = table((name, "what a training would do"), ())
        for heading, words in plan.described().items():
            limited = heading == "steps" and asked.minutes is not None and plan.config.training.epochs
            drawn.add_row(heading, escape(f"{words}, or as many as {asked.minutes:g} min allow" if limited else words))
        output().print(drawn)


def _train_one(plan: RunPlan, folder: Path | None, quiet: bool) -> RunResult:
    with training_progress(plan.config.training.epochs, quiet, plan.task.headline) as progress:
        return runs.train_as_planned(plan, folder, progress.epoch, progress.step)


def _train_series(
    config: RunConfig, number: int, jobs: int, folder: Path | None, mirror: Path | None, telling: TellingOptions
) -> None:
    """Train with several seeds, or go on with those that are not finished, and show what they say together."""
    with series_progress(telling.quiet) as progress:
        progress.begin(config.model.title, number, config.training.epochs)
        result = run_series(config, number, folder=folder, jobs=jobs, mirror=mirror, listener=progress)
    if telling.as_json:
        print_json(result.as_dict())
    else:
        _print_series(result)
        if folder is not None:
            typer.echo(f"Kept in {folder}, a folder for each seed; every figure is in {folder / 'series.json'}.")
    if result.failures:
        raise typer.Exit(1)


def _print_series(result: SeriesResult) -> None:
    """Mean, standard deviation and standard error of every metric."""
    title = f"{result.config.model.title} on {result.config.data.title}: {counted(len(result.results), 'run')}"
    figures = ("mean", "standard deviation", "standard error")
    drawn = table(("split", "metric", *figures), figures, title)
    for split, metrics in result.summary().items():
        for metric, spread in metrics.items():
            values = spread.mean, spread.standard_deviation, spread.standard_error
            drawn.add_row(split, metric, *("" if value is None else f"{value:.4f}" for value in values))
    output().print(drawn)
    for row in result.failures:
        typer.echo(f"seed {row.seed} failed: {row.error}", err=True)
