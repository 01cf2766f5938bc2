"""`rgcn train`, `pretrain`, `resume` and `evaluate`."""

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
from rgcn.cli.commands import RUNS, OutputOptions, refuse_if
from rgcn.cli.model_commands import EvaluateOptions, PretrainOptions, ResumeOptions, TrainOptions, TuneOptions
from rgcn.cli.output import (
    Outcome,
    output,
    print_opened,
    print_result,
    print_skipped,
    series_progress,
    table,
    training_progress,
)
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
from rgcn.system.formatting import format_bytes, format_count, format_duration, text_console
from rgcn.system.memory import limit_memory
from rgcn.system.progress import progress

if TYPE_CHECKING:
    from rgcn.runs.assembly import RunPlan
    from rgcn.runs.training import RunResult

HELD_OUT_SHARE = 0.1  # of a graph without splits that is only evaluated
MIN_ESTIMATE_BYTES = 1 << 30  # smaller resource estimates are not printed
DEFAULT_MINUTES = 3.0  # for the selection of a model


def train_model(options: TrainOptions) -> None:
    """Train one model, a series of seeds, or several models to select from."""
    is_distributed, is_series, is_timed = options.is_distributed, options.runs > 1, options.minutes is not None
    conflicts: dict[str, Any] = {
        "--jobs is the number of --runs at a time: add --runs N": options.jobs > 1 and not is_series,
        "--out keeps the run and --no-keep does not: choose one": options.out and options.no_keep,
        "--minutes must be more than 0": options.minutes is not None and not options.minutes > 0,
        "several processes train one model for a given number of steps: leave out --runs, --jobs and --minutes": (
            is_distributed and (is_series or options.jobs > 1 or is_timed)
        ),
    }
    refuse_if(conflicts)
    if options.memory is not None:
        limit_memory(options.memory, "--memory")
    overrides = _overrides(options, trackers=options.track, **options.read_arguments())
    arguments = options.configuration, options.changes or [], overrides
    candidates = candidate_configurations(*arguments)
    conflicts = {
        "--steps and --epochs both set the length of the training: leave one out": options.steps is not None
        and options.epochs is not None,
        "--runs repeats one training: name its model (--set model.name=path), and leave out --minutes": is_series
        and (candidates or is_timed),
        "several processes train one model: name it (--set model.name=path), or a configuration": is_distributed
        and candidates,
    }
    refuse_if(conflicts)
    config = None if candidates else runs.load_configuration(*arguments)
    if options.dry_run:
        options.launch()
        _print_plans(candidates if config is None else {config.model.title: config}, options)
        return
    folder, is_new = options.out, options.out is None and not options.no_keep
    if is_new:
        folder = Path(current().from_main(lambda: str(_make_folder(options.configuration))))
    try:
        options.launch(folder, ["--out", str(folder)] if is_new else [])
        if config is None:
            _train_and_select(candidates, folder, options)
        elif is_series:
            _train_series(config, options.runs, options.jobs, folder, options.mirror, options)
        else:
            _train_one(config, folder, options, options.minutes)
    finally:
        if folder is not None and is_new:
            with suppress(OSError):  # only an empty folder can be removed
                folder.rmdir()


def pretrain_model(options: PretrainOptions) -> None:
    """Pretrain a model, or resume that."""
    run = RunFolder(options.out)
    options.launch(options.out)
    if run.exists() and run.result() is None:
        if options.changes or options.seed is not None:
            raise ConfigError(f"{options.out} is resumed as it was begun: leave out --set and --seed, or change --out")
        _resume(options.out, options.mirror, options)
        return
    config = load_config(options)
    if not isinstance(config, PretrainingRun):
        title = task_of(config.task).title
        raise ConfigError(f"{options.configuration} is a configuration of {title}: use `rgcn train`")
    _train_one(config, options.out, options)


def resume_run(options: ResumeOptions) -> None:
    """Resume a run, a series, or the selection of a model."""
    folder, selection = options.folder, read_selection(options.folder)
    is_series = (folder / "series.json").exists()
    is_selecting = selection is not None and not (folder / "result.json").exists()
    if options.is_distributed and (is_series or is_selecting):
        raise ConfigError(f"{folder} has several trainings, which are resumed in one process: leave out --processes")
    if RunFolder(folder).exists() and RunFolder(folder).result() is None:
        options.launch(folder)
    if is_series:
        _train_series(*read_series(folder), folder, options.mirror, options)
    elif selection is not None and is_selecting:
        _select(selection, folder, runs.load_run_data(selection.candidates[0].config, options.mirror), options)
    else:
        _resume(folder, options.mirror, options, track=not options.no_track)


def _resume(folder: Path, mirror: Path | None, options: OutputOptions, track: bool = True) -> None:
    run = RunFolder(folder)
    run.check()
    if run.result() is not None and not options.quiet:
        typer.echo(f"{folder} is finished; there is nothing to resume", err=True)
    task = task_of(run.about()["task"])
    with training_progress(run.config().training, options.quiet, task.headline) as meter:
        result = runs.resume(folder, mirror, meter.report, meter.step, track=track)
    _print_run(result, folder, options.as_json)


def evaluate_model(options: EvaluateOptions) -> None:
    """Evaluate the model of a run, or the pretrained model on a graph."""
    options.launch()
    folder = path_or_dataset(options.folder)
    if not isinstance(folder, Path) or not any((folder / name).is_file() for name in ("run.json", "series.json")):
        _evaluate_on_graph(options)
        return
    run = RunFolder(folder)
    run.check()
    conflict = f"--labels, --labels-from, --data and --classes are for a graph, and {folder} is a run: leave them out"
    refuse_if({conflict: options.has_labels or options.data or options.classes})
    if run.result() is None:
        typer.echo(f"{folder} is not finished ({run.status()}): its newest checkpoint is evaluated", err=True)
    task = task_of(run.about()["task"])
    arguments = _evaluate_arguments(task, options, options.on)
    result = runs.evaluate(run, options.split, options.mirror, on=options.on, **arguments)
    other = f", evaluated on {result['on']}" if "on" in result else ""
    title = f"{result['model']} on {result['dataset']}, seed {result['seed']}{other}, {result['split']} split"
    print_result(options.as_json, result, title, task.make_part(Outcome).evaluation(result["metrics"]), min_width=130)


def _evaluate_on_graph(options: EvaluateOptions) -> None:
    """Evaluate the pretrained model, or a model that was saved outside a run."""
    from rgcn.predict import open_model  # loads PyTorch, which errors of the user should not wait for
    from rgcn.runs.assembly import check_split

    if options.on is not None:
        raise ConfigError(f"--on needs the model of a run; to evaluate on {options.on}: rgcn evaluate {options.on}")
    split = check_split(options.split or "test")
    classes = options.classes or options.has_labels
    opened = open_model(options.folder, mirror=options.mirror, classes=classes, **options.read_arguments())
    graph = opened.zero_shot_graph
    if graph is not None:
        labels = graph.labels if classes else None
        if (graph.triple_splits is None) if labels is None else not labels.splits.any():
            held_out = None if labels is None else labels.hold_out(split, HELD_OUT_SHARE, seed=0)
            graph = replace(graph, labels=held_out) if classes else graph.split(HELD_OUT_SHARE, HELD_OUT_SHARE, seed=0)
            share = f"{HELD_OUT_SHARE:.0%}"
            typer.echo(f"The data have no splits: {share} are held out for {split}, drawn with seed 0", err=True)
            again = open_model(graph, mirror=options.mirror, classes=classes)
            opened = replace(again, path=opened.path, name=opened.name)
    print_opened(opened, options.as_json)
    arguments = _evaluate_arguments(opened.task, options, None if graph is None else opened.name)
    metrics = opened.model.evaluate(split=split, **arguments)
    values = {**opened.source, "task": opened.task.name, "split": split, "metrics": metrics}
    title = f"{opened.title} on {opened.name}, {split} split"
    print_result(options.as_json, values, title, opened.task.make_part(Outcome).evaluation(metrics), min_width=130)


def _evaluate_arguments(task: Task, options: EvaluateOptions, on: str | None) -> dict[str, Any]:
    """Return arguments of the model's `evaluate`; `on` is the graph if it is not the training graph."""
    at_most = {} if options.at_most is None else {"at_most": options.at_most}
    return task.make_part(Outcome).evaluate_arguments(options.of, on) | at_most


def load_config(options: TuneOptions | PretrainOptions) -> RunConfig:
    """Load the configuration with the changes that options make."""
    return runs.load_configuration(options.configuration, options.changes or [], _overrides(options))


def _overrides(options: TrainOptions | TuneOptions | PretrainOptions, **more: Any) -> dict[str, Any]:
    """Return settings that options change; all of `more` except trackers are settings of `data`."""
    data = {key if key == "trackers" else f"data.{key}": value for key, value in more.items()}
    length = {f"training.{name}": getattr(options, name, None) for name in ("steps", "epochs")}
    overrides = {"seed": options.seed, "training.device": options.device, **length, **data}
    return {key: value for key, value in overrides.items() if value is not None}


def plain_name(configuration: str) -> str:
    """Return a folder name for a configuration or a graph.

    >>> plain_name("rgcn/nc-aifb"), plain_name("some/where/mine.yaml")
    ('rgcn-nc-aifb', 'mine')
    """
    path = Path(configuration)
    name = path.stem if path.suffix in (".yaml", ".yml") else bare_name(path) if path.is_file() else configuration
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "run"


def _make_folder(configuration: str) -> Path:
    """Make a new folder under runs/, named after the configuration: runs/rgcn-nc-aifb, runs/rgcn-nc-aifb-2, ..."""
    name = plain_name(configuration)
    for number in count(1):
        folder = RUNS / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True)  # at once, so that two simultaneous runs get different folders
            return folder
        except FileExistsError:
            continue
        except OSError as error:
            raise DataError(f"cannot make {folder}: {error.strerror}; choose a place with --out") from error
    raise AssertionError("unreachable")


def _train_and_select(configs: Mapping[str, RunConfig], folder: Path | None, options: TrainOptions) -> None:
    """Train several models on a graph, and keep the best."""
    from rgcn.runs.selection import describe_estimate, plan_selection, with_validation

    minutes = DEFAULT_MINUTES if options.minutes is None else options.minutes
    tried = {name: with_validation(config) for name, config in configs.items()}
    graph = _make_plan(next(iter(tried.values())), folder, options).graph
    if not options.quiet:
        default = " (change it with --minutes)" if options.minutes is None else ""
        typer.echo(
            f"No model is named: {len(tried)} models are trained in about {minutes:g} min{default}, and the best on "
            "the validation data is kept",
            err=True,
        )
    try:
        with progress("timing", len(tried), "models", show=options.show_progress) as meter:
            selection, size = plan_selection(tried, graph, minutes, meter)
    except NothingToHoldOutError as error:
        untrained = (config for config in configs.values() if not config.training.length and config.model.layers > 1)
        typer.echo(f"{error}: the pretrained model is used without training", err=True)
        _print_run(runs.train(next(untrained), graph, folder), folder, options.as_json)
        return
    if not options.quiet:
        typer.echo(describe_estimate(selection, size), err=True)
    with nullcontext(folder) if folder else TemporaryDirectory() as place:
        _select(selection, Path(place), graph, options, is_kept=folder is not None)


def _select(
    selection: Selection, folder: Path, graph: KnowledgeGraph, options: OutputOptions, is_kept: bool = True
) -> None:
    from rgcn.runs.selection import choose

    with progress("choosing", round(60 * selection.minutes), "s", show=options.show_progress) as meter:
        result = choose(selection, folder, graph, None if options.quiet else meter)
    _print_run(result, folder if is_kept else None, options.as_json, selection)


def _load_graph(config: RunConfig, folder: Path | None, mirror: Path | None, quiet: bool) -> KnowledgeGraph:
    """Load the data of a run, after all checks that do not need them."""
    check_trackers(config.trackers)
    if folder is not None:
        RunFolder(folder).refuse_unless_free()
    graph = runs.load_data(config.data, mirror)
    if not quiet:
        print_skipped(graph)
        typer.echo(f"{graph!r}", err=True)
    return graph


def _make_plan(config: RunConfig, folder: Path | None, options: TrainOptions | PretrainOptions) -> RunPlan:
    """Plan a run, and print what is held out if the data have no splits."""
    from rgcn.runs.assembly import plan_run

    plan = plan_run(config, _load_graph(config, folder, options.mirror, options.quiet), options.mirror)
    description, sizes = plan.graph.metadata.get("split"), plan.split_sizes
    held_out = [f"{size:,} for {name}" for name, size in sizes.items() if name != "train"]
    if description is not None and held_out and not options.quiet:
        total = f"{sum(sizes.values()):,} {'labels' if plan.task.kind.needs_labels else 'triples'}"
        parts = " and ".join(held_out)
        typer.echo(
            f"The data have no splits: of {total}, {parts} are held out ({description}); see data.split", err=True
        )
    return plan


def _print_plans(configs: Mapping[str, RunConfig], options: TrainOptions) -> None:
    """Print what a training would do, or each of those to select from; train and write nothing."""
    from rgcn.runs.assembly import plan_run
    from rgcn.runs.selection import with_validation

    if len(configs) > 1:  # the best on the validation data is kept
        configs = {name: with_validation(config) for name, config in configs.items()}
    graph = _load_graph(next(iter(configs.values())), options.out, options.mirror, options.quiet)
    values, tables = dict[str, Any](), list[Table]()
    for name, config in configs.items():
        plan = plan_run(config, graph, options.mirror)
        rows = plan.summary()
        values[name] = {**rows, "configuration": plan.config.model_dump(mode="json")}
        if options.minutes is not None and plan.config.training.length:
            rows = {**rows, "steps": f"{rows['steps']}, or as many as {options.minutes:g} min allow"}
        tables.append(table((name, "plan of the training"), rows.items()))
    print_result(options.as_json, values if len(values) > 1 else values[next(iter(values))], *tables)


def _train_one(
    config: RunConfig, folder: Path | None, options: TrainOptions | PretrainOptions, minutes: float | None = None
) -> None:
    """Plan a run, refuse it if the machine has too little memory or disk, and train."""
    from rgcn.runs.assembly import check_resources
    from rgcn.runs.training import train_plan

    plan = _make_plan(config, folder, options)
    if minutes is not None:
        from rgcn.runs.selection import limit_steps_to_minutes

        plan = limit_steps_to_minutes(plan, minutes)
    if not options.quiet and plan.resources.total > MIN_ESTIMATE_BYTES:
        typer.echo(plan.resources.words, err=True)
    check_resources(plan, folder)
    with training_progress(plan.config.training, options.quiet, plan.task.headline) as meter:
        result = train_plan(plan, folder, meter.report, meter.step)
    _print_run(result, folder, options.as_json)


def _print_run(result: RunResult, folder: Path | None, as_json: bool, selection: Selection | None = None) -> None:
    """Print a finished run as JSON, or its metrics and example predictions."""
    values, outcome = result.as_dict(), task_of(result.config.task).make_part(Outcome)
    print_result(as_json, values if selection is None else {**values, "selection": selection.as_rows()})
    if as_json:
        return
    if selection is not None:
        numbers = ("steps", "time", "test")
        columns, title = ("model", "steps", "time", "validation", "test"), f"{selection.metric.title} of each model"
        output(110).print(table(columns, selection.rows(), numbers, title))
        output().print(f"{escape(selection.verdict())}\n", soft_wrap=True)
    stored, number = values["stored_parameters"], values["parameters"]
    parameters = format_count(number, "parameter") + (f" ({stored:,} of them stored)" if stored != number else "")
    console = text_console(highlight=False, soft_wrap=True)
    length = format_count(result.length, result.config.training.unit)
    console.print(
        f"[bold]{escape(values['model'])}[/] on [bold]{escape(values['dataset'])}[/], seed {values['seed']}: "
        f"{length} in {format_duration(values['seconds'])}, {parameters}"
    )
    if result.exchanged is not None:
        processes, sent, least = (result.exchanged[key] for key in ("processes", "sent", "least"))
        console.print(f"{processes} processes sent {format_bytes(sent)} per step; the minimum is {format_bytes(least)}")
    for split, metrics in values["metrics"].items():
        baseline = outcome.baseline(result.model, split, metrics)
        comparison = f"   ({escape(baseline)})" if baseline else ""
        console.print(f"{split:<6} {outcome.format_metrics(metrics)}{comparison}")
    examples = outcome.examples(result.model)
    if examples is not None:
        output().print(examples)
    if folder is not None:
        typer.echo(
            f"\nStored in {folder}. Next: `rgcn report {folder}` for curves, `rgcn predict {folder}` and `rgcn explain "
            f"{folder}` for answers, `rgcn serve {folder}` for the explorer page, `rgcn runs` for all runs."
        )


def _train_series(
    config: RunConfig, number: int, jobs: int, folder: Path | None, mirror: Path | None, options: OutputOptions
) -> None:
    """Train with several seeds, or resume the unfinished ones, and print statistics of the metrics."""
    with series_progress(options.quiet) as meter:
        meter.begin(config.model.title, number, config.training.length)
        result = run_series(config, number, folder=folder, jobs=jobs, mirror=mirror, callback=meter)
    lines = []
    if folder is not None:
        lines.append(f"Stored in {folder}, a folder for each seed; all metrics are in {folder / 'series.json'}.")
    print_result(options.as_json, result.as_dict(), _series_table(result), *lines)
    if not options.as_json:
        for row in result.failures:
            typer.echo(f"seed {row.seed} failed: {row.error}", err=True)
    if result.failures:
        raise typer.Exit(1)


def _series_table(result: SeriesResult) -> Table:
    """Return mean, standard deviation and standard error of every metric."""
    rows = []
    for split, metrics in result.summary().items():
        for metric, spread in metrics.items():
            values = spread.mean, spread.standard_deviation, spread.standard_error
            rows.append((split, metric, *("" if value is None else f"{value:.4f}" for value in values)))
    title = f"{result.config.model.title} on {result.config.data.title}: {format_count(len(result.results), 'run')}"
    numbers = ("mean", "standard deviation", "standard error")
    return table(("split", "metric", *numbers), rows, numbers, title)
