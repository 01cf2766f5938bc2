"""`rgcn split`: a graph's triples held out for validation and test, as files."""

from dataclasses import replace
from pathlib import Path

import typer

from rgcn.cli.model_commands import SplitCommand
from rgcn.cli.output import print_json, report_skipped
from rgcn.config import DataConfig, validated
from rgcn.data.registry import path_or_dataset
from rgcn.data.split_files import write_splits
from rgcn.errors import ConfigError, DataError
from rgcn.graph import KnowledgeGraph
from rgcn.runs.assembly import load_data


def split(asked: SplitCommand) -> None:
    graph = _read(asked)
    if asked.by is not None and graph.triple_times is None:
        raise DataError(f"--by {asked.by} names a column of a table, and {asked.source} is none")
    parted = replace(graph, triple_splits=None).split(asked.valid, asked.test, seed=asked.seed, by=graph.triple_times)
    labels = parted.labels
    if labels is not None and not labels.splits.any():
        for name, share in (("test", asked.test), ("valid", asked.valid)):
            labels = labels.holding_out(name, share, asked.seed)
        parted = replace(parted, labels=labels)
    files = write_splits(parted, asked.out)
    counts = parted.statistics()
    if asked.as_json:
        numbers = {"triples": counts.triples_per_split, "labels": counts.labels_per_split}
        print_json({"split": parted.metadata["split"], "files": list(map(str, files)), **numbers})
        return
    report_skipped(graph)
    if graph.triple_splits is not None:
        typer.echo(f"{asked.source} brings a split of its own, which is put aside", err=True)
    for what, sizes in (("triples", counts.triples_per_split), ("labels", counts.labels_per_split)):
        if sizes:
            typer.echo(f"{what}: " + ", ".join(f"{name} {size:,}" for name, size in sizes.items()))
    labelled = f" --labels {asked.out / 'labels.csv'}" if labels is not None else ""
    typer.echo(f"{parted.metadata['split']}: {', '.join(path.name for path in files)} in {asked.out}")
    typer.echo(f"`rgcn train {asked.out}{labelled}` learns from it.")


def _read(asked: SplitCommand) -> KnowledgeGraph:
    if asked.valid + asked.test >= 1:
        raise ConfigError("--valid and --test together leave nothing to learn from: their sum must be below 1")
    place, said = path_or_dataset(asked.source), asked.reading()
    named = {"path": str(place)} if isinstance(place, Path) else {"dataset": place.name}
    if asked.by is not None:
        said |= {"split": "time", "time": int(asked.by) if asked.by.lstrip("-").isdigit() else asked.by}
    return load_data(validated(DataConfig, {**named, **said}, f"how {asked.source} is read"), asked.mirror)
