"""`rgcn tune`, `reproduce` and `bench`: many trainings, and measurements."""

import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import typer
from rich.markdown import Markdown

from rgcn.bench.bench_report import plain_table, write_json
from rgcn.bench.comparison import run_bench
from rgcn.bench.graphs import find_graph, graph_to_npz
from rgcn.cli import options as commands
from rgcn.cli.commands import refuse_if
from rgcn.cli.output import busy, output, print_json, print_result, series_progress
from rgcn.cli.train import load_config, plain_name
from rgcn.data import load
from rgcn.errors import DataError, StoppedError
from rgcn.paper import published, quick_tables, trainings
from rgcn.paper.published import PaperReport, PaperTable
from rgcn.runs.configuration import with_absolute_paths
from rgcn.system.atomic_files import write_atomically
from rgcn.tuning import StudyPlan, TrialRecord, TuneResult, check_objective, choose_spaces, tune


def tune_settings(options: commands.TuneOptions) -> None:
    """Run a study, or continue it."""
    refuse_if({"--timeout must be more than 0 minutes": options.minutes is not None and not options.minutes > 0})
    config = with_absolute_paths(load_config(options))
    plan = StudyPlan(
        name=options.configuration,
        config=config,
        spaces=choose_spaces(config, options.search or [], options.fix or []),
        objective=check_objective(config, options.metric, options.folds, config.seed),
        folder=options.out or Path("tune") / plain_name(options.configuration),
        mirror=options.mirror,
    )
    with busy("trials", options.quiet, options.trials) as show_step:

        def on_trial(trial: TrialRecord, result: TuneResult) -> None:
            value, best = "" if trial.value is None else f" {trial.value:.4f}", result.best
            so_far = "" if best is None else f"  best {best.value:.4f} (trial {best.number})"
            error = f": {trial.error.splitlines()[0][:80]}" if trial.error else ""
            state = "stopped early, at" if trial.state == "stopped" else trial.state
            trial_text = f"trial {trial.number} {state}{value}{error}{so_far}"
            show_step(f"{len(result.trials)}/{options.trials}  {trial_text}")

        result = tune(plan, options.trials, jobs=options.jobs, minutes=options.minutes, on_trial=on_trial)
    best, unchanged, lines = result.best, result.unchanged, [f"{plan.name}, {result.summary}"]
    if best is None:
        lines.append("No trial has finished yet.")
    else:
        lines.append(f"Best {result.metric}: {_format_value(best)} (trial {best.number}, epoch {best.epoch})")
        if unchanged is not None and unchanged.number != best.number:
            lines.append(f"Unchanged configuration: {_format_value(unchanged)}")
        for key, value in best.settings.items():
            lines.append(f"  {key} = {value:.4g}" if isinstance(value, float) else f"  {key} = {value}")
        lines.append(f"\nStored in {plan.folder}: best.yaml, tune.html, trials.csv, study.db")
        lines.append(f"Train with the best settings: rgcn train {plan.folder / 'best.yaml'}")
    print_result(options.as_json, result.as_dict(), *lines)
    if result.interrupted:
        raise StoppedError("interrupted", f"the same command continues with {plan.folder}", signal.SIGINT)


def _format_value(trial: TrialRecord) -> str:
    return f"{trial.value:.4f}" + (f" ± {trial.deviation:.4f}" if trial.deviation else "")


def reproduce_task(options: commands.PaperTaskOptions) -> None:
    """Train the configurations of a task and print its table."""
    task = options.task
    names = trainings.configurations(task, options.names, options.datasets, options.models)
    plan = _reproduction_plan(options)
    outcomes, failures = _train(names, plan, options.quiet)
    _print_report([trainings.training_table(task, outcomes, plan.changes)], options, failures)


def reproduce_datasets(options: commands.PaperDataOptions) -> None:
    """Print the sizes of data sets."""
    with busy("reading data sets", options.quiet):
        names = _chosen(options, quick_tables.DATASETS) or quick_tables.DATASETS
        table = quick_tables.datasets_table(names, options.mirror)
    _print_report([table], options)


def reproduce_parameters(options: commands.PaperDataOptions) -> None:
    """Print numbers of parameters."""
    with busy("building networks", options.quiet):
        names = _chosen(options, quick_tables.WITH_PARAMETERS) or quick_tables.WITH_PARAMETERS
        table = quick_tables.parameters_table(names, options.mirror)
    _print_report([table], options)


def reproduce_tensors(options: commands.PaperTensorOptions) -> None:
    """Print statistics of tensors."""
    with busy("taking first steps", options.quiet):
        rows = quick_tables.tensor_statistics(load("fb-toy", mirror=options.mirror), options.seeds)
    _print_report([quick_tables.tensors_table(rows, options.seeds)], options)


def reproduce_timings(options: commands.PaperTimingOptions) -> None:
    """Print times."""
    names = _chosen(options, quick_tables.TIMED) or None
    with busy("measuring", options.quiet) as show_step:
        table = quick_tables.timings_table(
            names, mirror=options.mirror, device=options.device, steps=options.steps, on_measure=show_step
        )
    _print_report([table], options)


def reproduce_everything(options: commands.PaperAllOptions) -> None:
    """Print all tables."""
    plan = _reproduction_plan(options)
    with busy("reading data sets", options.quiet) as show_step:
        tables = quick_tables.quick_tables(options.mirror, options.device, show_step)
    failures: list[str] = []
    for task in trainings.CONFIGURATIONS:
        outcomes, task_failures = _train(trainings.configurations(task), plan, options.quiet)
        tables.append(trainings.training_table(task, outcomes, plan.changes))
        failures += task_failures
    _print_report(tables, options, failures, also_in=options.out)


def _chosen(options: commands.PaperNameOptions, known: Sequence[str]) -> list[str]:
    return trainings.select_names("data set", [*(options.datasets or ()), *(options.names or ())], known)


def _reproduction_plan(options: commands.PaperTrainingOptions) -> trainings.ReproductionPlan:
    changes = tuple(options.changes or ())
    return trainings.ReproductionPlan(
        options.out, options.runs, options.jobs, options.mirror, options.device, options.seed, changes, options.fresh
    )


def _train(names: list[str], plan: trainings.ReproductionPlan, quiet: bool) -> trainings.Trainings:
    try:
        with series_progress(quiet) as progress:
            return trainings.run_trainings(names, plan, progress)
    except StoppedError as error:  # a training advises to resume its own folder; here the whole command continues
        raise error.with_advice("the same command continues from there") from None


def _print_report(
    tables: list[PaperTable], options: commands.PaperOptions, failures: Sequence[str] = (), also_in: Path | None = None
) -> None:
    """Print and write tables, and exit with an error if a run failed."""
    report = PaperReport.made_here(tables)
    texts = {"md": published.markdown(report), "html": published.html_page(report), "json": published.json_text(report)}
    files = {options.markdown: texts["md"], options.html: texts["html"]}
    if also_in is not None:
        files |= {also_in / f"report.{name}": text for name, text in texts.items()}
    if options.as_json:
        typer.echo(texts["json"], nl=False)
    else:
        output(100).print(Markdown(texts["md"]))
    try:
        for path, text in files.items():
            if path is not None:
                write_atomically(path, text)
    except OSError as error:
        raise DataError(f"cannot write {error.filename}: {error.strerror}; the results are printed above") from error
    for failure in failures:
        typer.echo(f"rgcn: {failure}", err=True)
    if failures:
        raise typer.Exit(1)


def run_benchmark(options: commands.BenchOptions) -> None:
    """Measure training steps, or write a graph for another machine."""
    if options.write_npz is not None:
        conflict = "--write-npz takes one graph: rgcn bench aifb --write-npz aifb.npz"
        refuse_if({conflict: not options.graphs or len(options.graphs) != 1})
        graph_to_npz(find_graph((options.graphs or [""])[0]), options.write_npz)
        return
    with busy("measuring", options.quiet) as show_step:
        result = run_bench(options, show_step, ["rgcn", *sys.argv[1:]])
    if options.json == Path("-"):
        print_json(result, indent=2)
        return
    if options.json is not None:
        write_json(result, options.json)
    typer.echo(plain_table(result))
