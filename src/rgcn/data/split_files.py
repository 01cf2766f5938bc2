"""A graph's splits as a folder of files that `read` reads back as they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from rgcn.atomic import replace_atomically
from rgcn.data.headers import TRIPLE
from rgcn.errors import DataError
from rgcn.graph import SPLITS, KnowledgeGraph, NodeKind


def write_splits(graph: KnowledgeGraph, folder: Path) -> list[Path]:
    """Write train, valid and test, and labels.csv where there are labels; the files, in that order.

    RDF becomes N-Triples, a TSV table stays one, anything else is CSV. A blank node means another one in another file:
    a graph that has some is written as CSV too.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder} is there and not empty: choose another folder for the split")
    rdf = graph.node_kinds is not None and not (graph.node_kinds == NodeKind.BLANK).any()
    ending = "nt" if rdf else "tsv" if graph.metadata.get("format") == "tsv" else "csv"
    written = []
    for number, split in enumerate(SPLITS if graph.triple_splits is not None else SPLITS[:1]):
        path = folder / f"{split}.{ending}"
        if not len(graph.split_triples(split)):
            continue
        if rdf:
            graph.to_rdf(path, split=split)
        else:
            _write_table(path, _triples(graph, number))
        written.append(path)
    if graph.labels is not None:
        labels = graph.labels
        columns = {
            "node": [graph.nodes[node] for node in labels.nodes.tolist()],
            "label": [labels.names[label] for label in labels.classes.tolist()],
            "split": [SPLITS[split] for split in labels.splits.tolist()],
        }
        written.append(folder / "labels.csv")
        _write_table(written[-1], pl.DataFrame(columns))
    return written


def _triples(graph: KnowledgeGraph, split: int) -> pl.DataFrame:
    chosen = slice(None) if graph.triple_splits is None else graph.triple_splits == split
    nodes, relations = pl.Series(list(graph.nodes)), pl.Series(list(graph.relations))
    subject, relation, object_ = graph.triples[chosen].T
    columns = nodes.gather(subject), relations.gather(relation), nodes.gather(object_)
    table = dict(zip(TRIPLE, columns, strict=True))
    if graph.edge_weights is not None:
        table["weight"] = pl.Series(graph.edge_weights[chosen])
    return pl.DataFrame(table)


def _write_table(path: Path, table: pl.DataFrame) -> None:
    tabs = path.suffix == ".tsv"
    # A header is told by its words, and they are no header where a node is called so too.
    header = not any((column == name).any() for column in table for name in table.columns if column.dtype == pl.String)
    if not header and table.columns != list(TRIPLE):
        raise DataError(f"a name in the graph is also that of a column ({', '.join(table.columns)}): rename it")
    style: Any = "never" if tabs else "necessary"
    separator = "\t" if tabs else ","
    replace_atomically(
        path,
        lambda at: table.write_csv(at, include_header=header, separator=separator, quote_style=style),
    )
