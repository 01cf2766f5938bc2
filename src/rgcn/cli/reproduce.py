"""`rgcn reproduce`: the paper's figures beside ours."""

from collections.abc import Callable, Sequence
from pathlib import Path

import typer
from rich.markdown import Markdown

from rgcn.cli import study_commands as commands
from rgcn.cli.output import busy, output
from rgcn.cli.training_progress import series_progress
from rgcn.data import load
from rgcn.errors import DataError, StoppedError
from rgcn.paper import published, trainings
from rgcn.paper import quick_tables as quick
from rgcn.paper.published import PaperReport, PaperTable
from rgcn.system.atomic_files import write_atomically


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
    telling: commands.PaperTellingOptions,
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
