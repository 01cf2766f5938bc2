"""`rgcn tune`, `reproduce` and `bench`: what takes many trainings, or measures one."""

import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import typer
from rich.markdown import Markdown

from rgcn.bench.graphs import find_graph, graph_to_npz
from rgcn.bench.showing import plain_table, write_json
from rgcn.bench.turns import measured
from rgcn.cli import study_commands as commands
from rgcn.cli.commands import refuse_if
from rgcn.cli.model_commands import TuneCommand
from rgcn.cli.output import busy, output, print_json, series_progress, tell
from rgcn.cli.train import configured, plain_name
from rgcn.data import load
from rgcn.errors import DataError, StoppedError
from rgcn.paper import published, trainings
from rgcn.paper import quick_tables as quick
from rgcn.paper.published import PaperReport, PaperTable
from rgcn.runs.configuration import with_whole_paths
from rgcn.system.atomic_files import write_atomically
from rgcn.tuning import StudyPlan, TrialRecord, TuneResult, check_objective, choose_spaces
from rgcn.tuning import tune as run
from rgcn.tuning.result import summary


def tune(asked: TuneCommand) -> None:
    refuse_if({"--timeout is more than 0 minutes": asked.minutes is not None and not asked.minutes > 0})
    config = with_whole_paths(configured(asked))
    plan = StudyPlan(
        name=asked.configuration,
        config=config,
        spaces=choose_spaces(config, asked.search or [], asked.fix or []),
        objective=check_objective(config, asked.metric, asked.folds, config.seed),
        folder=asked.out or Path("tune") / plain_name(asked.configuration),
        mirror=asked.mirror,
    )
    with busy("trials", asked.quiet, asked.trials) as say:

        def on_trial(trial: TrialRecord, result: TuneResult) -> None:
            value, best = "" if trial.value is None else f" {trial.value:.4f}", result.best
            so_far = "" if best is None else f"  best {best.value:.4f} (trial {best.number})"
            why = f": {trial.error.splitlines()[0][:80]}" if trial.error else ""
            say(f"{len(result.trials)}/{asked.trials}  trial {trial.number} {trial.state}{value}{why}{so_far}")

        result = run(plan, asked.trials, jobs=asked.jobs, minutes=asked.minutes, on_trial=on_trial)
    tell(asked.as_json, result.as_dict() if asked.as_json else None, *_lines(result))
    if result.interrupted:
        raise StoppedError("interrupted", f"the same command goes on with {plan.folder}", signal.SIGINT)


def _lines(result: TuneResult) -> list[str]:
    best, own, folder = result.best, result.own, result.plan.folder
    lines = [f"{result.plan.name}, {summary(result)}"]
    if best is None:
        return [*lines, "No trial has finished yet."]
    lines.append(f"Best {result.metric}: {_value(best)} (trial {best.number}, epoch {best.epoch})")
    if own is not None and own.number != best.number:
        lines.append(f"The configuration as it was: {_value(own)}")
    for key, value in best.values.items():
        lines.append(f"  {key} = {value:.4g}" if isinstance(value, float) else f"  {key} = {value}")
    lines.append(f"\nKept in {folder}: best.yaml, tune.html, trials.csv, study.db")
    return [*lines, f"Train with it: rgcn train {folder / 'best.yaml'}"]


def _value(trial: TrialRecord) -> str:
    return f"{trial.value:.4f}" + (f" ± {trial.deviation:.4f}" if trial.deviation else "")


def train_task(asked: commands.PaperTaskCommand) -> None:
    names, plan = trainings.configurations(asked.task, asked.names, asked.datasets, asked.models), _plan(asked)
    outcomes, failures = _trained(names, plan, asked.quiet)
    _finish([trainings.training_table(asked.task, outcomes, plan.changes)], asked, failures)


def datasets(asked: commands.PaperDatasetsCommand) -> None:
    _read(asked, "reading data sets", quick.DATASETS, quick.datasets_table)


def parameters(asked: commands.PaperParametersCommand) -> None:
    _read(asked, "building networks", quick.WITH_PARAMETERS, quick.parameters_table)


def _read(
    asked: commands.PaperDatasetsCommand, words: str, known: Sequence[str], make: Callable[..., PaperTable]
) -> None:
    with busy(words, asked.quiet):
        table = make(_chosen(asked, known) or known, asked.mirror)
    _finish([table], asked)


def tensors(asked: commands.PaperTensorsCommand) -> None:
    with busy("taking first steps", asked.quiet):
        rows = quick.tensor_statistics(load("fb-toy", mirror=asked.mirror), asked.seeds)
    _finish([quick.tensors_table(rows, asked.seeds)], asked)


def timings(asked: commands.PaperTimingsCommand) -> None:
    names = _chosen(asked, quick.TIMED) or None
    with busy("measuring", asked.quiet) as say:
        table = quick.timings_table(names, mirror=asked.mirror, device=asked.device, steps=asked.steps, on_measure=say)
    _finish([table], asked)


def everything(asked: commands.PaperCommand) -> None:
    plan = _plan(asked)
    with busy("reading data sets", asked.quiet) as say:
        tables = quick.quick_tables(asked.mirror, asked.device, say)
    failures: list[str] = []
    for task in trainings.CONFIGURATIONS:
        outcomes, failed = _trained(trainings.configurations(task), plan, asked.quiet)
        tables.append(trainings.training_table(task, outcomes, plan.changes))
        failures += failed
    _finish(tables, asked, failures, also_in=asked.out)


def _chosen(which: commands.PaperNameOptions, known: Sequence[str]) -> list[str]:
    return trainings.chosen("data set", [*(which.datasets or ()), *(which.names or ())], known)


def _plan(how: commands.PaperTrainingOptions) -> trainings.ReproductionPlan:
    changes = tuple(how.changes or ())
    return trainings.ReproductionPlan(how.out, how.runs, how.jobs, how.mirror, how.device, how.seed, changes, how.fresh)


def _trained(names: list[str], plan: trainings.ReproductionPlan, quiet: bool) -> trainings.Trainings:
    try:
        with series_progress(quiet) as progress:
            return trainings.run_trainings(names, plan, progress)
    except StoppedError as error:  # a training that is stopped names its own folder; here it is the whole that goes on
        raise error.advising("the same command goes on from there") from None


def _finish(
    tables: list[PaperTable],
    telling: commands.PaperOptions,
    failures: Sequence[str] = (),
    also_in: Path | None = None,
) -> None:
    """Print, write what was asked for, and leave with an error where a run failed."""
    report = PaperReport.made_here(tables)
    files = {telling.markdown: published.markdown, telling.html: published.html_page}
    if also_in is not None:
        for name, render in (("md", published.markdown), ("html", published.html_page), ("json", published.json_text)):
            files[also_in / f"report.{name}"] = render
    if telling.as_json:
        typer.echo(published.json_text(report), nl=False)
    else:
        output(100).print(Markdown(published.markdown(report)))
    try:
        for path, render in files.items():
            if path is not None:
                write_atomically(path, render(report))
    except OSError as error:
        raise DataError(f"cannot write {error.filename}: {error.strerror}; what was measured stands above") from error
    for failure in failures:
        typer.echo(f"rgcn: {failure}", err=True)
    if failures:
        raise typer.Exit(1)


def bench(asked: commands.BenchCommand) -> None:
    if asked.write_npz is not None:
        one = "--write-npz takes one graph: rgcn bench aifb --write-npz aifb.npz"
        refuse_if({one: not asked.graphs or len(asked.graphs) != 1})
        graph_to_npz(find_graph((asked.graphs or [""])[0]), asked.write_npz)
        return
    with busy("measuring", asked.quiet) as say:
        result = measured(asked, say, ["rgcn", *sys.argv[1:]])
    if asked.json == Path("-"):
        print_json(result, indent=2)
        return
    if asked.json is not None:
        write_json(result, asked.json)
    typer.echo(plain_table(result))
