"""`rgcn reproduce`: the paper's figures beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from rich.markdown import Markdown

from rgcn.atomic import write_atomically
from rgcn.cli.printing import busy, output
from rgcn.cli.study_commands import (
    PaperCommand,
    PaperDatasetsCommand,
    PaperNameOptions,
    PaperParametersCommand,
    PaperTaskCommand,
    PaperTellingOptions,
    PaperTensorsCommand,
    PaperTimingsCommand,
    PaperTrainingOptions,
)
from rgcn.cli.training_progress import series_progress
from rgcn.data import load
from rgcn.errors import DataError, StoppedError
from rgcn.paper import quick_tables as quick
from rgcn.paper import rendering
from rgcn.paper.judging import PaperReport, PaperTable
from rgcn.paper.trainings import (
    CONFIGURATIONS,
    ReproductionPlan,
    Trainings,
    configurations,
    run_trainings,
    sorted_out,
    training_table,
)


def train_task(asked: PaperTaskCommand) -> None:
    names = configurations(asked.task, asked.which.names, asked.which.datasets, asked.models)
    plan = _plan(asked.training)
    outcomes, failures = _trained(names, plan, asked.telling.quiet)
    _finish([training_table(asked.task, outcomes, plan.changes)], asked.telling, failures)


def datasets(asked: PaperDatasetsCommand) -> None:
    with busy("reading data sets", asked.telling.quiet):
        names = _chosen(asked.which, quick.DATASETS) or quick.DATASETS
        table = quick.datasets_table(names, asked.mirror)
    _finish([table], asked.telling)


def parameters(asked: PaperParametersCommand) -> None:
    with busy("building networks", asked.telling.quiet):
        names = _chosen(asked.which, quick.WITH_PARAMETERS) or quick.WITH_PARAMETERS
        table = quick.parameters_table(names, asked.mirror)
    _finish([table], asked.telling)


def tensors(asked: PaperTensorsCommand) -> None:
    with busy("taking first steps", asked.telling.quiet):
        rows = quick.tensor_statistics(load("fb-toy", mirror=asked.mirror), asked.seeds)
    _finish([quick.tensors_table(rows, asked.seeds)], asked.telling)


def timings(asked: PaperTimingsCommand) -> None:
    names, where = _chosen(asked.which, quick.TIMED) or None, asked.computing
    with busy("measuring", asked.telling.quiet) as say:
        table = quick.timings_table(names, mirror=where.mirror, device=where.device, steps=asked.steps, on_measure=say)
    _finish([table], asked.telling)


def everything(asked: PaperCommand) -> None:
    plan, computing = _plan(asked.training), asked.training.computing
    with busy("reading data sets", asked.telling.quiet) as say:
        tables = quick.quick_tables(computing.mirror, computing.device, say)
    failures: list[str] = []
    for task in CONFIGURATIONS:
        outcomes, failed = _trained(configurations(task), plan, asked.telling.quiet)
        tables.append(training_table(task, outcomes, plan.changes))
        failures += failed
    _finish(tables, asked.telling, failures, also_in=asked.training.out)


def _chosen(which: PaperNameOptions, known: Sequence[str]) -> Any:
    return sorted_out(which.names, which.datasets, None, known)[0]


def _plan(how: PaperTrainingOptions) -> ReproductionPlan:
    where = how.computing
    return ReproductionPlan(
        how.out, how.runs, how.jobs, where.mirror, where.device, how.seed, tuple(how.changes or ()), how.fresh
    )


def _trained(names: list[str], plan: ReproductionPlan, quiet: bool) -> Trainings:
    try:
        with series_progress(quiet) as progress:
            return run_trainings(names, plan, progress)
    except StoppedError as error:  # a training that is stopped names its own folder; here it is the whole that goes on
        raise error.advising("the same command goes on from there") from None


# -- showing -----------------------------------------------------------------------------------------------


def _finish(
    tables: list[PaperTable], telling: PaperTellingOptions, failures: Sequence[str] = (), also_in: Path | None = None
) -> None:
    """Print, write what was asked for, and leave with an error where a run failed."""
    report = PaperReport.made_here(tables)
    files = {telling.markdown: rendering.markdown, telling.html: rendering.html_page}
    if also_in is not None:
        files |= {
            also_in / "report.md": rendering.markdown,
            also_in / "report.html": rendering.html_page,
            also_in / "report.json": rendering.json_text,
        }
    if telling.as_json:
        typer.echo(rendering.json_text(report), nl=False)
    else:
        output(100).print(Markdown(rendering.markdown(report)))
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
