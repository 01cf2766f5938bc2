"""`rgcn reproduce`: the paper's figures beside ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rgcn.cli.options import MOST_RUNS, AsJson, Device, Jobs, Mirror, Quiet, Threads
from rgcn.paper import TASKS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rgcn.paper.judging import PaperTable
    from rgcn.paper.trainings import ReproductionPlan

app = typer.Typer(
    name="reproduce",
    help="The paper's figures beside ours: every table, every stated number, and whether they agree.",
    no_args_is_help=True,
)

HERE = Path("runs") / "reproduction"

Names = Annotated[
    list[str] | None, typer.Argument(metavar="[NAME]...", help="More data sets or models: --datasets aifb mutag.")
]
Datasets = Annotated[list[str] | None, typer.Option("--datasets", help="Only these data sets, as in: aifb mutag.")]
Models = Annotated[list[str] | None, typer.Option("--models", help="Only these models, as in: rgcn e-rgcn.")]
Runs = Annotated[
    int | None,
    typer.Option(
        min=1, max=MOST_RUNS, help="Seeds of each; by default 10, on WN18 1. On MUTAG ten are few.", show_default=False
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="The first seed.")]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a setting for a trial: training.epochs=2. Kept apart and marked as changed."),
]
Out = Annotated[Path, typer.Option(help="Folder for the runs; interrupted, the same command goes on from there.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Stop if there are runs in the folder, instead of using them.")]
Markdown = Annotated[Path | None, typer.Option(help="Also write the report to this Markdown file.")]
Html = Annotated[Path | None, typer.Option(help="Also write the report to this HTML file.")]


def _add_training_command(task: str, words: str) -> None:
    """A command that trains a task's configurations and shows its table."""

    def command(
        names: Names = None,
        datasets: Datasets = None,
        models: Models = None,
        runs: Runs = None,
        jobs: Jobs = 1,
        seed: Seed = 0,
        changes: Changes = None,
        device: Device = None,
        threads: Threads = None,
        mirror: Mirror = None,
        out: Out = HERE,
        fresh: Fresh = False,
        as_json: AsJson = False,
        quiet: Quiet = False,
        markdown: Markdown = None,
        html: Html = None,
    ) -> None:
        from rgcn.paper.trainings import ReproductionPlan, configurations, training_table

        plan = ReproductionPlan(out, runs, jobs, mirror, device, seed, tuple(changes or ()), fresh)
        outcomes, failures = _trained(configurations(task, names, datasets, models), plan, quiet)
        _finish([training_table(task, outcomes, plan.changes)], as_json, markdown, html, failures)

    app.command(task, help=words)(command)


for _task, _words in TASKS.items():
    _add_training_command(_task, _words)


@app.command("datasets")
def show_datasets(
    names: Names = None,
    datasets: Datasets = None,
    mirror: Mirror = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    markdown: Markdown = None,
    html: Html = None,
) -> None:
    """Entities, relations, edges, labels and classes of every data set (Tables 1 and 3)."""
    from rgcn.paper.quick_tables import DATASETS, datasets_table
    from rgcn.paper.trainings import sorted_out

    chosen, _ = sorted_out(names, datasets, None, DATASETS)
    with _status(quiet, "reading data sets"):
        table = datasets_table(chosen or DATASETS, mirror)
    _finish([table], as_json, markdown, html)


@app.command("parameters")
def show_parameters(
    names: Names = None,
    datasets: Datasets = None,
    mirror: Mirror = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    markdown: Markdown = None,
    html: Html = None,
) -> None:
    """How many parameters e-RGCN and c-RGCN have beside RGCN (the paper's 8 %)."""
    from rgcn.paper.quick_tables import WITH_PARAMETERS, parameters_table
    from rgcn.paper.trainings import sorted_out

    chosen, _ = sorted_out(names, datasets, None, WITH_PARAMETERS)
    with _status(quiet, "building networks"):
        table = parameters_table(chosen or WITH_PARAMETERS, mirror)
    _finish([table], as_json, markdown, html)


@app.command("tensor-statistics")
def show_tensor_statistics(
    seeds: Annotated[int, typer.Option("--seeds", "--runs", min=1, help="First forward passes to average over.")] = 10,
    threads: Threads = None,
    mirror: Mirror = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    markdown: Markdown = None,
    html: Html = None,
) -> None:
    """Intermediate tensors of the link predictor on FB-Toy (Table 4): minimum, maximum, mean, standard deviation."""
    from rgcn.data import load
    from rgcn.paper.quick_tables import tensor_statistics, tensors_table

    with _status(quiet, "taking first steps"):
        rows = tensor_statistics(load("fb-toy", mirror=mirror), seeds)
    _finish([tensors_table(rows, seeds)], as_json, markdown, html)


@app.command("timings")
def show_timings(
    names: Names = None,
    datasets: Datasets = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps of link prediction to measure.")] = 20,
    device: Device = None,
    threads: Threads = None,
    mirror: Mirror = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    markdown: Markdown = None,
    html: Html = None,
) -> None:
    """The times the paper gives, beside this machine's; what is measured and what is computed from it is said."""
    from rgcn.paper.quick_tables import TIMED, timings_table
    from rgcn.paper.trainings import sorted_out

    chosen, _ = sorted_out(names, datasets, None, TIMED)
    with _status(quiet, "measuring") as say:
        table = timings_table(chosen or None, mirror=mirror, device=device, steps=steps, on_measure=say)
    _finish([table], as_json, markdown, html)


@app.command("all")
def everything(
    runs: Runs = None,
    jobs: Jobs = 1,
    seed: Seed = 0,
    changes: Changes = None,
    device: Device = None,
    threads: Threads = None,
    mirror: Mirror = None,
    out: Out = HERE,
    fresh: Fresh = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    markdown: Markdown = None,
    html: Html = None,
) -> None:
    """All of these, the quick ones first; also written to report.json, report.md and report.html in the folder."""
    from rgcn.paper.quick_tables import quick_tables
    from rgcn.paper.trainings import CONFIGURATIONS, ReproductionPlan, configurations, training_table

    plan = ReproductionPlan(out, runs, jobs, mirror, device, seed, tuple(changes or ()), fresh)
    with _status(quiet, "reading data sets") as say:
        tables = quick_tables(mirror, device, say)
    failures: list[str] = []
    for task in CONFIGURATIONS:
        outcomes, failed = _trained(configurations(task), plan, quiet)
        tables.append(training_table(task, outcomes, plan.changes))
        failures += failed
    _finish(tables, as_json, markdown, html, failures, also_in=out)


# -- running -----------------------------------------------------------------------------------------------


def _trained(names: list[str], plan: ReproductionPlan, quiet: bool) -> tuple[dict[str, Any], list[str]]:
    from rgcn.cli.series_progress import series_progress
    from rgcn.errors import StoppedError
    from rgcn.paper.trainings import run_trainings

    try:
        with series_progress(quiet) as progress:
            trainings = run_trainings(names, plan, progress)
    except StoppedError as error:  # a training that is stopped names its own folder; here it is the whole that goes on
        raise error.advising("the same command goes on from there") from None
    return trainings.outcomes, trainings.failures


@contextmanager
def _status(quiet: bool, words: str) -> Iterator[Callable[[str], None]]:
    """A changing line on a terminal, lines elsewhere; on standard error."""
    from rich.console import Console

    console = Console(stderr=True)
    if quiet:
        yield lambda what: None
    elif console.is_terminal:
        with console.status(words) as status:
            yield lambda what: status.update(f"{words}: {what}")
    else:
        yield lambda what: typer.echo(f"{words}: {what}", err=True)


# -- showing -----------------------------------------------------------------------------------------------


def _finish(
    tables: list[PaperTable],
    as_json: bool,
    markdown: Path | None,
    html: Path | None,
    failures: Sequence[str] = (),
    also_in: Path | None = None,
) -> None:
    """Print, write what was asked for, and leave with an error where a run failed."""
    from rgcn.atomic import write_atomically
    from rgcn.cli.reproduction_tables import print_tables
    from rgcn.errors import DataError
    from rgcn.paper import rendering
    from rgcn.paper import reproduction_page as page
    from rgcn.paper.judging import PaperReport

    report = PaperReport.made_here(tables)
    files = {markdown: rendering.markdown, html: page.html_page}
    if also_in is not None:
        for name, render in (("md", rendering.markdown), ("html", page.html_page), ("json", rendering.json_text)):
            files[also_in / f"report.{name}"] = render
    if as_json:
        typer.echo(rendering.json_text(report), nl=False)
    else:
        print_tables(report)
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
