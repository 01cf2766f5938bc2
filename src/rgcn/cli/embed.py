"""`rgcn embed`: what a model has learned of nodes and relations, as vectors and as a map."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rgcn.cli.options import AcceptChangedData, AsJson, Device, Mirror, Quiet, Run, Threads

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rgcn.look import NodeVectors
    from rgcn.predict import OpenModel

# Every point pushes every other: with more of them a map takes hours, and nobody sees a single one any more.
MOST_POINTS = 50_000


class MapName(str, Enum):
    """Ways to make a map."""

    tsne = "tsne"
    umap = "umap"
    pca = "pca"


class SplitName(str, Enum):
    """Splits of labelled nodes."""

    train = "train"
    valid = "valid"
    test = "test"


def embed(
    run: Run,
    out: Annotated[
        Path | None, typer.Option(help="File for the nodes' vectors: a name in .parquet, .csv, .jsonl or .npz.")
    ] = None,
    nodes: Annotated[
        Path | None, typer.Option(help="Only these nodes: a file of names, one a line; - is standard input.")
    ] = None,
    skip_unknown: Annotated[
        bool, typer.Option("--skip-unknown", help="Go on without names that are not known.")
    ] = False,
    layer: Annotated[
        int | None,
        typer.Option(help="Of a classifier: states after this layer; -2 the last hidden one, -1 the logits."),
    ] = None,
    relations: Annotated[
        Path | None, typer.Option(help="File for the relations' vectors; endings as for --out.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Page to write: map of the nodes, likeness of relations, mistakes.")
    ] = None,
    map_: Annotated[
        MapName, typer.Option("--map", help="How the map is made; umap needs the extra `look`, the others nothing.")
    ] = MapName.tsne,
    most: Annotated[
        int, typer.Option(min=1, max=MOST_POINTS, help="Nodes on the map at most: labelled ones first.")
    ] = 5000,
    split: Annotated[
        SplitName | None,
        typer.Option(
            help="Nodes a classifier's mistakes are shown on; by default valid, or train where there is none."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Decides the map: the same one, the same page.")] = 0,
    mirror: Mirror = None,
    device: Device = None,
    threads: Threads = None,
    accept_changed_data: AcceptChangedData = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write the vectors a model gives to nodes and relations, and a page to look at them."""
    _check(out, relations, plot)
    from rgcn.look import NodeVectors, check_method
    from rgcn.look.map_page import split_looked_at
    from rgcn.predict import open_model

    if plot is not None:
        check_method(map_.value)

    opened = open_model(run, mirror=mirror, device=device or "auto", accept_changed_data=accept_changed_data)
    vectors = NodeVectors.of(opened, layer)
    if split is not None:
        _check_split(opened)
        split_looked_at(opened, split.value)
    chosen, skipped = _nodes(opened, nodes, skip_unknown)
    said: dict[str, Any] = {"run": str(run), "task": opened.task.name, "nodes": len(chosen), "width": vectors.width}
    if out is not None:
        _write_nodes(vectors, chosen, out, quiet)
    if relations is not None:
        said["relations"] = _write_relations(opened, relations)
    if plot is not None:
        settings = {"method": map_.value, "seed": seed, "most": most}
        said["map"] = _write_page(vectors, chosen, plot, settings, None if split is None else split.value, quiet)
    _tell({**said, "skipped": skipped}, {"out": out, "relations": relations, "plot": plot}, as_json)


def _check(out: Path | None, relations: Path | None, plot: Path | None) -> None:
    """Refuse before anything is read what could not be written in the end."""
    from rgcn.errors import ConfigError

    if out is None and relations is None and plot is None:
        raise ConfigError("say what to write: --out nodes.parquet, --relations relations.parquet or --plot map.html")
    if plot is not None and plot.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"--plot {plot.name}: the map is a web page; give it a name in .html")
    if plot is not None and plot.is_dir():
        raise ConfigError(f"--plot {plot} is a folder; give the name of a file")
    if out is not None or relations is not None:
        from rgcn.look.vector_files import check_ending

        for path, option in ((out, "--out"), (relations, "--relations")):
            if path is not None:
                check_ending(path, option)
    given = [path.resolve() for path in (out, relations, plot) if path is not None]
    if len(set(given)) < len(given):
        raise ConfigError("--out, --relations and --plot name the same file twice")


def _check_split(opened: OpenModel) -> None:
    from rgcn.errors import ConfigError

    if not opened.answers("classes"):
        raise ConfigError(
            f"--split says which nodes a classifier's mistakes are shown on; {opened.name} predicts links and has no "
            "classes to mistake: leave it out"
        )


def _nodes(opened: OpenModel, names: Path | None, skip_unknown: bool) -> tuple[NDArray[np.int64], int]:
    """Ids of the nodes that are meant, each once, and how many names were not known."""
    import numpy as np

    if names is None:
        return np.arange(opened.graph.num_nodes), 0
    from rgcn.predict.question_files import read_table, resolve_nodes

    table = read_table(names)
    found = resolve_nodes(
        opened, [(row.line, row.cells[0]) for row in table.rows], table.source, skip_unknown=skip_unknown
    )
    return np.array(list(dict.fromkeys(found.ids.tolist())), dtype=np.int64), found.skipped


def _write_nodes(vectors: NodeVectors, nodes: NDArray[np.int64], out: Path, quiet: bool) -> None:
    from rgcn.look import NodeTable, write_table
    from rgcn.progress import progress

    table = NodeTable(vectors, nodes)
    with progress("vectors", len(table), "nodes", show=False if quiet else None) as meter:
        write_table(out, len(table), table.parts(on_nodes=meter.advance))


def _write_relations(opened: OpenModel, out: Path) -> int:
    from rgcn.look import relation_table, write_table

    table = relation_table(opened)
    write_table(out, len(table), [table], "--relations")
    return len(table)


def _write_page(
    vectors: NodeVectors, nodes: NDArray[np.int64], plot: Path, settings: dict[str, Any], split: str | None, quiet: bool
) -> dict[str, Any]:
    from rgcn.look import make_map, map_page
    from rgcn.look.mapping import STEPS
    from rgcn.pages import save_page
    from rgcn.progress import progress

    with progress("map", STEPS.get(settings["method"]), "steps", show=False if quiet else None) as meter:
        made = make_map(vectors, nodes, split=split, on_step=lambda: meter.advance(1), **settings)
    save_page(plot, map_page(made, split))
    return made.as_dict()


def _tell(said: dict[str, Any], written: dict[str, Path | None], as_json: bool) -> None:
    files = {name: str(path) for name, path in written.items() if path is not None}
    if as_json:
        typer.echo(json.dumps({**said, "files": files}))
        return
    from rgcn.words import count

    if said["skipped"]:
        typer.echo(f"{count(said['skipped'], 'name')} not known, left out", err=True)
    for name, path in files.items():
        what = {
            "out": f"{count(said['nodes'], 'node')}, {said['width']} numbers each",
            "relations": f"{said.get('relations')} rows",
            "plot": _map_words(said.get("map", {})),
        }
        typer.echo(f"Written: {path} ({what[name]})")


def _map_words(made: dict[str, Any]) -> str:
    if not made:
        return ""
    shown = f"{made['nodes']:,} of {made['candidates']:,} nodes, {made['method']}"
    return f"{shown}, trustworthiness {made['trustworthiness']:.2f}"
