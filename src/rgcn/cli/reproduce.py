"""`rgcn reproduce`: the paper's figures beside ours."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rgcn.runs.reproduction.comparison import Report, Table
    from rgcn.runs.reproduction.trainings import Plan

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
    int | None, typer.Option(min=1, help="Seeds of each configuration. By default 10, on WN18 1.", show_default=False)
]
Jobs = Annotated[int, typer.Option(min=1, help="Trainings at a time; times are fair only with one.")]
Seed = Annotated[int, typer.Option(min=0, help="The first seed.")]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a setting for a trial: training.epochs=2. Kept apart and marked as changed."),
]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, or auto.")]
Mirror = Annotated[Path | None, typer.Option(help="Folder to take data sets from (else RGCN_MIRROR).")]
Out = Annotated[Path, typer.Option(help="Folder for the runs; interrupted, the same command goes on from there.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Stop if there are runs in the folder, instead of using them.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
Markdown = Annotated[Path | None, typer.Option(help="Also write the report to this Markdown file.")]
Html = Annotated[Path | None, typer.Option(help="Also write the report to this HTML file.")]


@app.command("node-classification")
def node_classification(
    names: Names = None,
    datasets: Datasets = None,
    models: Models = None,
    runs: Runs = None,
    jobs: Jobs = 1,
    seed: Seed = 0,
    changes: Changes = None,
    device: Device = None,
    mirror: Mirror = None,
    out: Out = HERE,
    fresh: Fresh = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    markdown: Markdown = None,
    html: Html = None,
) -> None:
    """Accuracy on AIFB, MUTAG, BGS and AM (Table 2): RGCN and e-RGCN, trained now."""
    from rgcn.runs.reproduction.trainings import NODE, Plan, node_table

    plan = Plan(out, runs, jobs, mirror, device, seed, tuple(changes or ()), fresh)
    chosen = _configurations(NODE, names, datasets, models)
    outcomes, failures = _trained(chosen, plan, quiet)
    _finish([node_table(outcomes, plan.changes)], as_json, markdown, html, failures)


@app.command("link-prediction")
def link_prediction(
    names: Names = None,
    datasets: Datasets = None,
    models: Models = None,
    runs: Runs = None,
    jobs: Jobs = 1,
    seed: Seed = 0,
    changes: Changes = None,
    device: Device = None,
    mirror: Mirror = None,
    out: Out = HERE,
    fresh: Fresh = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    markdown: Markdown = None,
    html: Html = None,
) -> None:
    """MRR and hits on WN18 and FB-Toy (Tables 5 and 6): RGCN and c-RGCN, trained now. Hours without a GPU."""
    from rgcn.runs.reproduction.trainings import LINK, Plan, link_table

    plan = Plan(out, runs, jobs, mirror, device, seed, tuple(changes or ()), fresh)
    chosen = _configurations(LINK, names, datasets, models)
    outcomes, failures = _trained(chosen, plan, quiet)
    _finish([link_table(outcomes, plan.changes)], as_json, markdown, html, failures)


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
    from rgcn.runs.reproduction.datasets import NAMES, datasets_table

    chosen, _ = _sorted_out(names, datasets, None, NAMES, ())
    with _status(quiet, "reading data sets"):
        table = datasets_table(chosen or NAMES, mirror)
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
    from rgcn.runs.reproduction.parameters import NAMES, parameters_table

    chosen, _ = _sorted_out(names, datasets, None, NAMES, ())
    with _status(quiet, "building networks"):
        table = parameters_table(chosen or NAMES, mirror)
    _finish([table], as_json, markdown, html)


@app.command("tensor-statistics")
def show_tensor_statistics(
    seeds: Annotated[int, typer.Option("--seeds", "--runs", min=1, help="First forward passes to average over.")] = 10,
    mirror: Mirror = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    markdown: Markdown = None,
    html: Html = None,
) -> None:
    """Intermediate tensors of the link predictor on FB-Toy (Table 4): minimum, maximum, mean, standard deviation."""
    from rgcn.data import load
    from rgcn.runs.reproduction.tensor_statistics import tensor_statistics, tensors_table

    with _status(quiet, "taking first steps"):
        rows = tensor_statistics(load("fb-toy", mirror=mirror), seeds)
    _finish([tensors_table(rows, seeds)], as_json, markdown, html)


@app.command("timings")
def show_timings(
    names: Names = None,
    datasets: Datasets = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps of link prediction to measure.")] = 20,
    device: Device = None,
    mirror: Mirror = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    markdown: Markdown = None,
    html: Html = None,
) -> None:
    """The times the paper gives, beside this machine's; what is measured and what is computed from it is said."""
    from rgcn.runs.reproduction.timings import timings_table

    chosen, _ = _sorted_out(names, datasets, None, ("aifb", "am", "wn18"), ())
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
    mirror: Mirror = None,
    out: Out = HERE,
    fresh: Fresh = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    markdown: Markdown = None,
    html: Html = None,
) -> None:
    """All of these, the quick ones first; also written to report.json, report.md and report.html in the folder."""
    from rgcn.runs.reproduction.everything import quick_tables
    from rgcn.runs.reproduction.trainings import LINK, NODE, Plan, link_table, node_table

    plan = Plan(out, runs, jobs, mirror, device, seed, tuple(changes or ()), fresh)
    with _status(quiet, "reading data sets") as say:
        tables = quick_tables(mirror, device, say)
    failures: list[str] = []
    for task, table_of in ((NODE, node_table), (LINK, link_table)):
        outcomes, failed = _trained(_configurations(task, None, None, None), plan, quiet)
        tables.append(table_of(outcomes, plan.changes))
        failures += failed
    _finish(tables, as_json, markdown, html, failures, also_in=out)


# -- what is wanted ----------------------------------------------------------------------------------------


def _configurations(
    task: str, names: Sequence[str] | None, datasets: Sequence[str] | None, models: Sequence[str] | None
) -> list[str]:
    """The shipped configurations of a task that belong to the named data sets and models."""
    from rgcn.errors import ConfigError
    from rgcn.runs.reproduction.trainings import CONFIGURATIONS

    pairs = {name: (name.split("/nc-")[-1].split("/lp-")[-1], name.split("/")[0]) for name in CONFIGURATIONS[task]}
    known = [list(dict.fromkeys(part)) for part in zip(*pairs.values(), strict=True)]
    wanted = _sorted_out(names, datasets, models, *known)
    chosen = [name for name, pair in pairs.items() if all(not w or p in w for p, w in zip(pair, wanted, strict=True))]
    if not chosen:
        raise ConfigError(f"the paper has no figure of {' on '.join(' and '.join(w) for w in reversed(wanted) if w)}")
    return chosen


def _sorted_out(
    names: Iterable[str] | None,
    datasets: Iterable[str] | None,
    models: Iterable[str] | None,
    known_datasets: Sequence[str],
    known_models: Sequence[str],
) -> tuple[list[str], list[str]]:
    """Data sets and models that were asked for.

    An option takes one value, so that of `--datasets aifb mutag` the second arrives as a bare name, and what it names
    tells where it belongs.

    >>> _sorted_out(["mutag"], ["aifb"], None, ["aifb", "mutag"], ["rgcn"])
    (['aifb', 'mutag'], [])
    """
    from rgcn.errors import UnknownNameError

    found: tuple[list[str], list[str]] = ([], [])
    for given, allowed in (
        (datasets, known_datasets),
        (models, known_models),
        (names, (*known_datasets, *known_models)),
    ):
        for name in (part.lower() for text in given or () for part in text.split(",") if part):
            if name not in allowed:
                kind = "model" if given is models else "data set" if given is datasets or not known_models else "name"
                raise UnknownNameError(kind, name, allowed)
            found[name in known_models].append(name)
    return found


# -- running -----------------------------------------------------------------------------------------------


def _trained(names: list[str], plan: Plan, quiet: bool) -> tuple[dict[str, Any], list[str]]:
    from rgcn.cli.series_progress import series_progress
    from rgcn.errors import StoppedError
    from rgcn.runs.reproduction.trainings import run_trainings

    try:
        with series_progress(quiet) as progress:
            trainings = run_trainings(names, plan, progress)
    except StoppedError as error:  # a training that is stopped names its own folder; here it is the whole that goes on
        words = f"{str(error).split(';')[0]}; the same command goes on from there"
        raise StoppedError(words, error.exit_code - 128) from None
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
    tables: list[Table],
    as_json: bool,
    markdown: Path | None,
    html: Path | None,
    failures: Sequence[str] = (),
    also_in: Path | None = None,
) -> None:
    """Print, write what was asked for, and leave with an error where a run failed."""
    from rgcn.data.atomic import write_atomically
    from rgcn.runs.environment import environment
    from rgcn.runs.reproduction import page, rendering
    from rgcn.runs.reproduction.comparison import Report

    here = environment()
    machine = {key: here["hardware"][key] for key in ("cpu", "cores", "gpu", "system")}
    about = {"command": here["command"], "date": time.strftime("%Y-%m-%d"), "machine": {**machine, **here["versions"]}}
    report = Report(tables, about)
    files = {markdown: rendering.markdown, html: page.html_page}
    if also_in is not None:
        for name, render in (("md", rendering.markdown), ("html", page.html_page), ("json", rendering.json_text)):
            files[also_in / f"report.{name}"] = render
    for path, render in files.items():
        if path is not None:
            write_atomically(path, render(report))
    if as_json:
        typer.echo(rendering.json_text(report), nl=False)
    else:
        _print(report)
    for failure in failures:
        typer.echo(f"rgcn: {failure}", err=True)
    if failures:
        raise typer.Exit(1)


def _print(report: Report) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table as Drawn

    from rgcn.runs.reproduction.page import mood
    from rgcn.runs.reproduction.rendering import NUMBERS, below, groups, headings, lay_out, title

    colors = {"good": "green", "bad": "red", "quiet": "dim"}
    console = Console(highlight=False)
    if not console.is_terminal:  # a file or pipe has no edge to keep to
        console = Console(highlight=False, width=max(console.width, 100))
    for table in report.tables:
        laid = lay_out(table)
        console.print(f"[bold]{escape(title(table))}[/]\n", soft_wrap=not console.is_terminal)
        drawn = Drawn(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
        for column, heading in zip(laid.columns, headings(laid), strict=True):
            justify: Literal["right", "left"] = "right" if column in NUMBERS else "left"
            drawn.add_column(heading, justify=justify, no_wrap=column not in ("what", "of"), overflow="fold")
        for group in groups(laid):
            for line in group:
                cells = [escape(line.cells[column]) for column in laid.columns]
                if laid.columns[-1] == "verdict" and cells[-1]:
                    cells[-1] = f"[{colors[mood(line.verdict)]}]{cells[-1]}[/]"
                drawn.add_row(*cells)
            if len(group) > 1:
                drawn.add_section()
        console.print(drawn)
        for words in below(table, laid):
            console.print(escape(words))
        console.print()
