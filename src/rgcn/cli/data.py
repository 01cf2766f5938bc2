"""`rgcn data` and `rgcn split`: data sets, built graphs, statistics of graphs, and splits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.bar import Bar
from rich.box import HEAVY_HEAD
from rich.markup import escape
from rich.table import Table

from rgcn import runs
from rgcn.cli.commands import refuse_if
from rgcn.cli.options import BuildOptions, CheckOptions, GetOptions, ListOptions, SplitOptions, StatisticsOptions
from rgcn.cli.output import print_result, print_skipped, table
from rgcn.config import DataConfig, validate_section
from rgcn.data import load
from rgcn.data.catalog import Dataset, find_dataset, graph_counts
from rgcn.data.graph_store import check_graph, is_stored_graph
from rgcn.data.registry import Sources, datasets, get, load_or_read, path_or_dataset
from rgcn.errors import ConfigError, DataError
from rgcn.graph import GraphStatistics
from rgcn.graph.titles import readable_name
from rgcn.system.formatting import format_bytes, format_count

if TYPE_CHECKING:
    pass

BAR_WIDTH = 30
TABLE_WIDTH = 130
PROFILES_CAPTION = (
    "one object: share of subjects with one object; one subject: share of objects with one subject; both ways: share "
    "of triples whose reverse is in the graph; itself: share of self-loops. Answers keep to the constraints, except "
    "with --any-node and --any-direction."
)


def print_data_sets(options: ListOptions) -> None:
    """Print all data sets, and where they are."""
    places, numbers = Sources(mirror=options.mirror), ("entities", "relations", "triples", "labels")
    values = [_describe(dataset, places.find_location(dataset)) for dataset in datasets()]
    columns = ("name", *numbers, "task", "download", "license", "here?")
    result = table(columns, map(_row, values), numbers, "Data sets", HEAVY_HEAD)
    result.columns[0].no_wrap = True
    print_result(
        options.as_json,
        values,
        result,
        "* published counts, after pruning to two hops of the labeled nodes; the files have more.",
        f"cache folder: {places.cache}",
        width=TABLE_WIDTH,
        indent=2,
    )


def _describe(dataset: Dataset, location: str) -> dict[str, Any]:
    # The size of an embedded graph is counted.
    counts = graph_counts(load(dataset.name)) if dataset.embedded else dataset.counts
    pruned = dataset.published_after_pruning
    return {
        **{key: getattr(dataset, key) for key in ("name", "title", "license", "homepage", "citation")},
        "tasks": list(dataset.tasks),
        "counts": {**vars(counts), "labels": counts.labels},
        "published_after_pruning": None if pruned is None else {**vars(pruned), "labels": pruned.labels},
        "download_bytes": dataset.download_size,
        "where": location,
    }


def _row(values: dict[str, Any]) -> tuple[str, ...]:
    counts, mark = values["published_after_pruning"] or values["counts"], "*" * bool(values["published_after_pruning"])
    sizes = (counts[key] for key in ("entities", "relations", "triples"))
    return (
        values["name"],
        *("" if number is None else f"{number:,}{mark}" for number in sizes),
        f"{counts['labels']:,}" if counts["labels"] else "",
        "\n".join(values["tasks"]),
        # An estimate: archives are not measured before they are downloaded.
        "none" if values["where"] == "embedded" else f"~{values['download_bytes'] / 1_000_000:.2g} MB",
        values["license"],
        values["where"],
    )


def download(options: GetOptions) -> None:
    """Download data sets that are not there yet."""
    for name in options.names:  # a misspelled last name should not cost the download of the first
        find_dataset(name)
    for name in options.names:
        located = get(name, mirror=options.mirror, offline=options.offline)
        state = "downloaded" if located.fetched else "already here"
        typer.echo(f"{located.name}: {located.folder}\n  {state} and verified; source: {located.source}")


def build_graph(options: BuildOptions) -> None:
    """Build a graph in a folder."""
    folder = options.out
    if not isinstance(path_or_dataset(options.source), Path):
        raise ConfigError(f"{options.source!r} is a data set, which needs no building: name a file or folder")
    graph = load_or_read(options.source, out=folder, **_read_arguments(options))
    size, duplicates = sum(part.stat().st_size for part in folder.iterdir()), graph.metadata["duplicates"]
    print_skipped(graph)
    counts = {"nodes": graph.num_nodes, "relations": graph.num_relations, "triples": len(graph)}
    print_result(
        options.as_json,
        {"folder": str(folder), **counts, "duplicates": duplicates, "bytes": size},
        f"{graph}\n  {format_count(duplicates, 'duplicate')} left out; {format_bytes(size)} in {folder}",
        f"`rgcn data stats {folder}` shows its statistics, `rgcn train {folder}` trains a model on it.",
    )


def check_built_graph(options: CheckOptions) -> None:
    """Verify the files of a built graph."""
    folder = options.graph
    if not is_stored_graph(folder):
        raise DataError(f"{folder} has no complete graph: make one with `rgcn data build FILE --out {folder}`")
    parts, size = check_graph(folder)
    text = f"{folder}: all {parts} parts are as they were written ({format_bytes(size)})"
    print_result(options.as_json, {"folder": str(folder), "parts": parts, "bytes": size}, text)


def print_statistics(options: StatisticsOptions) -> None:
    """Print statistics of a graph, or of its relations."""
    arguments = _read_arguments(options)
    graph = load_or_read(options.source, mirror=options.mirror, offline=options.offline, **arguments)
    print_skipped(graph)
    name, statistics = graph.name or options.source, graph.statistics()
    values, parts = {"name": name, **statistics.as_dict()}, list[str | Table]()
    if options.relations:
        from rgcn.links.relation_constraints import relation_constraints  # loads PyTorch

        profiles = relation_constraints(graph).profiles()
        rows = [{**profile._asdict(), "relation": graph.relations[profile.relation]} for profile in profiles]
        values["relation_rules"] = rows
        parts = [_profile_table(rows), PROFILES_CAPTION]
    else:
        shown = dict(list(statistics.relation_counts.items())[: options.top])
        number = f"{len(shown)} of {statistics.relations}" if len(shown) < statistics.relations else "all"
        title = f"Relations ({number}, most frequent first)"
        parts = [
            _statistics_table(name, statistics),
            _bars("Degree (triples of a node)", "degree", "nodes", statistics.degree_histogram),
            *([_bars(title, "relation", "triples", _short_names(shown))] if shown else []),
        ]
    print_result(options.as_json, values, *parts, width=TABLE_WIDTH, indent=2)


def _profile_table(rows: list[dict[str, Any]]) -> Table:
    numbers = ("triples", "subjects", "objects", "one object", "one subject", "both ways", "itself")
    cells = []
    for row in sorted(rows, key=lambda row: -row["triples"]):
        relation, *values, rules = row.values()
        cells.append(
            (
                readable_name(relation),
                *(f"{value:.1%}" if isinstance(value, float) else f"{value:,}" for value in values),
                "; ".join(rules),
            )
        )
    columns = ("relation", *numbers, "constraints")
    return table(columns, cells, numbers, "Relations, by their training triples", HEAVY_HEAD)


def _read_arguments(options: StatisticsOptions | BuildOptions) -> dict[str, Any]:
    """Return how to read files, as keyword arguments of `rgcn.read`."""
    given = {"format": options.file_format, "skip_bad_lines": options.skip_bad_lines or None}
    arguments = {**options.read_arguments(), **{key: value for key, value in given.items() if value is not None}}
    if arguments:
        validate_section(DataConfig, {"path": options.source, **arguments}, f"how {options.source} is read")
    return arguments


def _statistics_table(name: str, statistics: GraphStatistics) -> Table:
    def with_splits(total: int, splits: dict[str, int]) -> str:
        return f"{total:,}" + (f"  ({_sizes(splits)})" if splits else "")

    rows = {
        "entities": f"{statistics.entities:,}"
        + (f"  ({format_count(n, 'literal')})" if (n := statistics.literals) else ""),
        "relations": f"{statistics.relations:,}",
        "edges (triples)": with_splits(statistics.triples, statistics.triples_per_split),
        "labeled": with_splits(statistics.labels, statistics.labels_per_split),
        "classes": with_splits(statistics.classes, _short_names(statistics.class_counts)),
        "mean degree": f"{statistics.mean_degree:.1f}",
        "median degree": f"{statistics.median_degree:g}",
        "largest degree": f"{statistics.max_degree:,}",
        "isolated nodes": f"{statistics.isolated:,}",
    }
    result = table(("", ""), rows.items(), title=escape(name), box=HEAVY_HEAD)
    result.show_header = False
    return result


def _bars(title: str, key: str, unit: str, counts: dict[str, int]) -> Table:
    largest = max(counts.values(), default=1) or 1
    rows = [(name, f"{number:,}", Bar(largest, 0, number, width=BAR_WIDTH)) for name, number in counts.items()]
    return table((key, unit, ""), rows, (unit,), title, HEAVY_HEAD)


def _short_names(counts: dict[str, int]) -> dict[str, int]:
    """Shorten IRIs to their readable ends, unless two names would become equal."""
    short = {readable_name(name): number for name, number in counts.items()}
    return short if len(short) == len(counts) else counts


def split_graph(options: SplitOptions) -> None:
    """Write the splits of a graph to a folder."""
    from rgcn.data.split_files import write_splits  # loads polars

    source, folder = options.source, options.out
    conflict = "--valid and --test leave nothing to train on: their sum must be below 1"
    refuse_if({conflict: options.valid + options.test >= 1})
    place, settings = path_or_dataset(source), options.read_arguments()
    settings |= {"path": str(place)} if isinstance(place, Path) else {"dataset": place.name}
    if options.by is not None:
        settings |= {"split": "time", "time": int(options.by) if options.by.lstrip("-").isdigit() else options.by}
    graph = runs.load_data(validate_section(DataConfig, settings, f"how {source} is read"), options.mirror)
    if options.by is not None and graph.triple_times is None:
        raise DataError(f"--by {options.by} names the column of a table, and {source} is not a table: leave it out")
    whole = replace(graph, triple_splits=None)
    split = whole.split(options.valid, options.test, seed=options.seed, by=graph.triple_times)
    labels = split.labels
    if labels is not None and not labels.splits.any():
        for name, share in (("test", options.test), ("valid", options.valid)):
            labels = labels.hold_out(name, share, options.seed)
        split = replace(split, labels=labels)
    files = write_splits(split, folder)
    statistics, description = split.statistics(), split.metadata["split"]
    counts = {"triples": statistics.triples_per_split, "labels": statistics.labels_per_split}
    if not options.as_json:
        print_skipped(graph)
        if graph.triple_splits is not None:
            typer.echo(f"{source} has splits already, which are replaced", err=True)
    label_option = f" --labels {folder / 'labels.csv'}" if labels is not None else ""
    print_result(
        options.as_json,
        {"split": description, "files": list(map(str, files)), **counts},
        *(f"{kind}: {_sizes(sizes)}" for kind, sizes in counts.items() if sizes),
        f"{description}: {', '.join(path.name for path in files)} in {folder}",
        f"`rgcn train {folder}{label_option}` trains a model on it.",
    )


def _sizes(splits: dict[str, int]) -> str:
    return ", ".join(f"{split} {number:,}" for split, number in splits.items())
