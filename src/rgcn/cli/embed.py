"""`rgcn embed` and `rgcn export`: what a model has learned, as vectors, as a map, and for programs without rgcn."""

from typing import Any

import numpy as np
import typer

from rgcn.cli.model_commands import EmbedCommand, ExportCommand
from rgcn.cli.output import print_json, tell_opened
from rgcn.cli.predict import listed_nodes
from rgcn.errors import ConfigError, DataError
from rgcn.models.export import save_encoder
from rgcn.pages import save_page
from rgcn.predict import open_model
from rgcn.predict.opened_model import open_trained
from rgcn.system.formatting import count, memory
from rgcn.system.progress import progress
from rgcn.visualization.map_page import map_page, split_looked_at
from rgcn.visualization.mapping import STEPS, check_method
from rgcn.visualization.node_map import make_map
from rgcn.visualization.vectors import NodeVectors, check_ending, node_table, relation_table, write_table


def embed(asked: EmbedCommand) -> None:
    _check(asked)
    opened = open_model(asked.run, **asked.opening())
    tell_opened(opened, asked.quiet or asked.as_json)
    vectors = NodeVectors.of(opened, asked.layer)
    split = None if asked.split is None else asked.split.value
    if split is not None:
        if not opened.classes:
            raise ConfigError(
                f"--split says which nodes a classifier's mistakes are shown on; {opened.name} has no classes to "
                "mistake: leave it out"
            )
        split_looked_at(opened, split)
    nodes, skipped = np.arange(opened.graph.num_nodes), 0
    if asked.nodes is not None:
        listed, skipped = listed_nodes(opened, asked.nodes, asked.skip_unknown)
        nodes = np.array(list(dict.fromkeys(listed.tolist())), dtype=np.int64)  # each once
    said: dict[str, Any] = {**opened.source, "task": opened.task.name, "nodes": len(nodes)}
    if asked.out is not None or asked.plot is not None:  # a model without vectors of nodes may have some of relations
        said["width"] = vectors.width
    written: dict[str, tuple[str, str]] = {}
    if asked.out is not None:
        with progress("vectors", len(nodes), "nodes", show=asked.bars) as meter:
            parts = node_table(vectors, nodes, meter.advance)
            write_table(asked.out, len(nodes), parts, keep_formulas=asked.keep_formulas)
        written["out"] = str(asked.out), f"{count(len(nodes), 'node')}, {vectors.width} numbers each"
    if asked.relations is not None:
        relations = relation_table(opened)
        write_table(asked.relations, len(relations), [relations], "--relations", asked.keep_formulas)
        said["relations"] = len(relations)
        written["relations"] = str(asked.relations), f"{len(relations)} rows"
    if asked.plot is not None:
        method = asked.map_.value
        with progress("map", STEPS.get(method), "steps", show=asked.bars) as meter:
            settings: dict[str, Any] = {"method": method, "seed": asked.seed, "most": asked.most, "split": split}
            drawn = make_map(vectors, nodes, on_step=lambda: meter.advance(1), **settings)
        save_page(asked.plot, map_page(drawn, split))
        made = said["map"] = drawn.as_dict()
        shown = f"{made['nodes']:,} of {made['candidates']:,} nodes, {method}"
        written["plot"] = str(asked.plot), f"{shown}, trustworthiness {made['trustworthiness']:.2f}"
    if asked.as_json:
        print_json({**said, "skipped": skipped, "files": {name: path for name, (path, _) in written.items()}})
        return
    if skipped:
        typer.echo(f"{count(skipped, 'name')} not known, left out", err=True)
    for path, words in written.values():
        typer.echo(f"Written: {path} ({words})")


def _check(asked: EmbedCommand) -> None:
    """Refuse before anything is read what could not be written in the end."""
    tables, plot = {"--out": asked.out, "--relations": asked.relations}, asked.plot
    given = [path.resolve() for path in (*tables.values(), plot) if path is not None]
    if not given:
        raise ConfigError("say what to write: --out nodes.parquet, --relations relations.parquet or --plot map.html")
    if plot is not None and plot.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"--plot {plot.name}: the map is a web page; give it a name in .html")
    if plot is not None and plot.is_dir():
        raise ConfigError(f"--plot {plot} is a folder; give the name of a file")
    for name, path in tables.items():
        if path is not None:
            check_ending(path, name)
    if len(set(given)) < len(given):
        raise ConfigError("--out, --relations and --plot name the same file twice")
    if plot is not None:
        check_method(asked.map_.value)


def export(asked: ExportCommand) -> None:
    out = asked.out
    if out.is_dir():
        raise DataError(f"{out} is a folder; --out takes the name of a file")
    opened = open_trained(asked.run, mirror=asked.mirror, device="cpu", accept_changed_data=asked.accept_changed_data)
    try:
        about = save_encoder(opened.model, out)
    except OSError as error:
        raise DataError(f"cannot write {out}: {error.strerror or error}; choose another place with --out") from error
    if asked.as_json:
        print_json({"encoder": str(out), **about})
        return
    typer.echo(f"Written: {out} ({memory(out.stat().st_size)})")
    typer.echo(f"{about['nodes']:,} nodes; {about['output']}. Names are in its extra files: nodes.jsonl and others.")
