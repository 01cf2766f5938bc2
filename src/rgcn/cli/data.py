"""`rgcn data` and `rgcn split`: data sets, building and checking graphs, graphs in numbers, and held-out triples."""

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
from rgcn.cli import study_commands as commands
from rgcn.cli.commands import refuse_if
from rgcn.cli.model_commands import SplitCommand
from rgcn.cli.output import table, tell, tell_skipped
from rgcn.config import DataConfig, validated
from rgcn.data import load
from rgcn.data.catalog import Dataset, DatasetCounts, counts_of, find
from rgcn.data.graph_store import check_graph, is_stored_graph
from rgcn.data.registry import datasets, get, named_or_read, path_or_dataset, sources
from rgcn.errors import ConfigError, DataError
from rgcn.graph import GraphStatistics, KnowledgeGraph
from rgcn.graph.titles import readable
from rgcn.system.formatting import count, memory

if TYPE_CHECKING:
    from rgcn.links.relation_constraints import RelationProfile

BAR_WIDTH = 30
WIDTH = 130
PROFILES = (
    "one object: the share of subjects with one; one subject: of objects; both ways: of triples that are there turned "
    "round; itself: of triples of a node with itself. Answers keep to the rules: --any-node and --any-direction ask "
    "for others."
)


def list_datasets(asked: commands.DataListCommand) -> None:
    places = sources(mirror=asked.mirror)
    found = [(dataset, places.whereabouts(dataset)) for dataset in datasets()]
    numbers = ("entities", "relations", "triples", "labels")
    columns = ("name", *numbers, "task", "download", "licence", "here?")
    drawn = table(columns, (_row(*one) for one in found), numbers, "Data sets", HEAVY_HEAD)
    drawn.columns[0].no_wrap = True
    tell(
        asked.as_json,
        [_description(*one) for one in found],
        drawn,
        "* published counts, after pruning to two hops of the labeled nodes; the files hold more.",
        f"cache folder: {places.cache}",
        width=WIDTH,
        indent=2,
    )


def _row(dataset: Dataset, where: str) -> tuple[str, ...]:
    counts, mark = _counts(dataset), "*" if dataset.published_after_pruning else ""
    sizes = (counts.entities, counts.relations, counts.triples)
    return (
        dataset.name,
        *("" if number is None else f"{number:,}{mark}" for number in sizes),
        f"{counts.labels:,}" if counts.labels else "",
        "\n".join(dataset.tasks),
        # An estimate: archives are not measured before they are fetched.
        "none" if dataset.embedded else f"~{dataset.download_size / 1_000_000:.2g} MB",
        dataset.licence,
        where,
    )


def get_datasets(asked: commands.DataGetCommand) -> None:
    for name in asked.names:  # a misspelled last name should not cost the download of the first
        find(name)
    for name in asked.names:
        located = get(name, mirror=asked.mirror, offline=asked.offline)
        done = "fetched" if located.fetched else "already here"
        typer.echo(f"{located.name}: {located.folder}\n  {done} and verified; source: {located.source}")


def build(asked: commands.DataBuildCommand) -> None:
    if not isinstance(path_or_dataset(asked.source), Path):
        raise ConfigError(f"{asked.source!r} is a data set's name, and needs no building: name a file or folder")
    graph = named_or_read(asked.source, out=asked.out, **_reading(asked))
    size = sum(part.stat().st_size for part in asked.out.iterdir())
    tell_skipped(graph)
    counts = {"nodes": graph.num_nodes, "relations": graph.num_relations, "triples": len(graph)}
    duplicates, folder = graph.metadata["duplicates"], asked.out
    tell(
        asked.as_json,
        {"folder": str(folder), **counts, "duplicates": duplicates, "bytes": size},
        f"{graph}\n  {count(duplicates, 'duplicate')} left out; {memory(size)} in {folder}",
        f"`rgcn data stats {folder}` shows it in numbers, `rgcn train {folder}` learns from it.",
    )


def check(asked: commands.DataCheckCommand) -> None:
    if not is_stored_graph(asked.graph):
        raise DataError(f"{asked.graph} holds no whole graph: `rgcn data build FILE --out {asked.graph}` makes one")
    parts, size = check_graph(asked.graph)
    words = f"{asked.graph}: all {parts} parts are as they were written ({memory(size)})"
    tell(asked.as_json, {"folder": str(asked.graph), "parts": parts, "bytes": size}, words)


def show_statistics(asked: commands.DataStatsCommand) -> None:
    graph = named_or_read(asked.source, mirror=asked.mirror, offline=asked.offline, **_reading(asked))
    tell_skipped(graph)
    name, statistics = graph.name or asked.source, graph.statistics()
    profiles = []
    if asked.relations:
        from rgcn.links.relation_constraints import rules_of  # loads PyTorch

        profiles = rules_of(graph).profiles()
    told = [{**one._asdict(), "relation": graph.relations[one.relation]} for one in profiles]
    values = {"name": name, **statistics.as_dict(), **({"relation_rules": told} if asked.relations else {})}
    shown = dict(list(statistics.relation_counts.items())[: asked.top])
    of_all = f"{len(shown)} of {statistics.relations}" if len(shown) < statistics.relations else "all"
    parts = [
        _counted(name, statistics),
        _bars("Degree (triples a node takes part in)", "degree", "nodes", statistics.degree_histogram),
        _bars(f"Relations ({of_all}, most frequent first)", "relation", "triples", _short(shown)),
    ]
    about = [_described(graph, profiles), PROFILES] if asked.relations else parts[: 3 if shown else 2]
    tell(asked.as_json, values, *about, width=WIDTH, indent=2)


def _described(graph: KnowledgeGraph, profiles: list[RelationProfile]) -> Table:
    numbers = ("triples", "subjects", "objects", "one object", "one subject", "both ways", "itself")
    rows = [
        (
            next(iter(_short({graph.relations[one.relation]: 0}))),
            *(f"{number:,}" for number in one[1:4]),
            *(f"{share:.1%}" for share in one[4:8]),
            "; ".join(one.rules),
        )
        for one in sorted(profiles, key=lambda profile: -profile.triples)
    ]
    return table(("relation", *numbers, "rules"), rows, numbers, "Relations, by their training triples", HEAVY_HEAD)


def _reading(asked: commands.DataStatsCommand | commands.DataBuildCommand) -> dict[str, Any]:
    """How files are read, as arguments of `rgcn.read`."""
    options = {"format": asked.file_format, "skip_bad_lines": asked.skip_bad_lines or None}
    given = {**asked.reading(), **{key: value for key, value in options.items() if value is not None}}
    if given:
        validated(DataConfig, {"path": asked.source, **given}, f"how {asked.source} is read")
    return given


def _counts(dataset: Dataset) -> DatasetCounts:
    """What to say about a data set's size: the published numbers, or those of the embedded graph itself."""
    return counts_of(load(dataset.name)) if dataset.embedded else dataset.published_after_pruning or dataset.counts


def _description(dataset: Dataset, where: str) -> dict[str, Any]:
    pruned = dataset.published_after_pruning
    counts = _counts(dataset) if dataset.embedded else dataset.counts
    return {
        **{key: getattr(dataset, key) for key in ("name", "title", "licence", "homepage", "citation")},
        "tasks": list(dataset.tasks),
        "counts": {**vars(counts), "labels": counts.labels},
        "published_after_pruning": None if pruned is None else {**vars(pruned), "labels": pruned.labels},
        "download_bytes": dataset.download_size,
        "where": where,
    }


def _counted(name: str, statistics: GraphStatistics) -> Table:
    def with_splits(total: int, splits: dict[str, int]) -> str:
        return f"{total:,}" + (f"  ({_sizes(splits)})" if splits else "")

    rows = {
        "entities": f"{statistics.entities:,}" + (f"  ({n:,} literals)" if (n := statistics.literals) else ""),
        "relations": f"{statistics.relations:,}",
        "edges (triples)": with_splits(statistics.triples, statistics.triples_per_split),
        "labeled": with_splits(statistics.labels, statistics.labels_per_split),
        "classes": with_splits(statistics.classes, _short(statistics.class_counts)),
        "mean degree": f"{statistics.mean_degree:.1f}",
        "median degree": f"{statistics.median_degree:g}",
        "largest degree": f"{statistics.max_degree:,}",
        "isolated nodes": f"{statistics.isolated:,}",
    }
    drawn = table(("", ""), rows.items(), title=escape(name), box=HEAVY_HEAD)
    drawn.show_header = False
    return drawn


def _bars(title: str, key: str, unit: str, counts: dict[str, int]) -> Table:
    largest = max(counts.values(), default=1) or 1
    rows = [(name, f"{number:,}", Bar(largest, 0, number, width=BAR_WIDTH)) for name, number in counts.items()]
    return table((key, unit, ""), rows, (unit,), title, HEAVY_HEAD)


def _short(counts: dict[str, int]) -> dict[str, int]:
    """The same with IRIs cut to their readable tails, unless two would then be called the same."""
    short = {readable(name): number for name, number in counts.items()}
    return short if len(short) == len(counts) else counts


def split(asked: SplitCommand) -> None:
    from rgcn.data.split_files import write_splits  # loads polars

    graph = _read_to_split(asked)
    if asked.by is not None and graph.triple_times is None:
        raise DataError(f"--by {asked.by} names a column of a table, and {asked.source} is none")
    parted = replace(graph, triple_splits=None).split(asked.valid, asked.test, seed=asked.seed, by=graph.triple_times)
    labels = parted.labels
    if labels is not None and not labels.splits.any():
        for name, share in (("test", asked.test), ("valid", asked.valid)):
            labels = labels.holding_out(name, share, asked.seed)
        parted = replace(parted, labels=labels)
    files = write_splits(parted, asked.out)
    counts, words = parted.statistics(), parted.metadata["split"]
    numbers = {"triples": counts.triples_per_split, "labels": counts.labels_per_split}
    if not asked.as_json:
        tell_skipped(graph)
        if graph.triple_splits is not None:
            typer.echo(f"{asked.source} brings a split of its own, which is put aside", err=True)
    labelled = f" --labels {asked.out / 'labels.csv'}" if labels is not None else ""
    tell(
        asked.as_json,
        {"split": words, "files": list(map(str, files)), **numbers},
        *(f"{what}: {_sizes(sizes)}" for what, sizes in numbers.items() if sizes),
        f"{words}: {', '.join(path.name for path in files)} in {asked.out}",
        f"`rgcn train {asked.out}{labelled}` learns from it.",
    )


def _read_to_split(asked: SplitCommand) -> KnowledgeGraph:
    too_much = "--valid and --test together leave nothing to learn from: their sum must be below 1"
    refuse_if({too_much: asked.valid + asked.test >= 1})
    place, said = path_or_dataset(asked.source), asked.reading()
    named = {"path": str(place)} if isinstance(place, Path) else {"dataset": place.name}
    if asked.by is not None:
        said |= {"split": "time", "time": int(asked.by) if asked.by.lstrip("-").isdigit() else asked.by}
    return runs.load_data(validated(DataConfig, {**named, **said}, f"how {asked.source} is read"), asked.mirror)


def _sizes(splits: dict[str, int]) -> str:
    return ", ".join(f"{split} {number:,}" for split, number in splits.items())
