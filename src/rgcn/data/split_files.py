"""A graph's splits as a folder of files that `read` reads back as they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from rgcn.data.headers import TRIPLE
from rgcn.errors import DataError
from rgcn.graph import SPLITS, KnowledgeGraph, NodeKind
from rgcn.system.atomic_files import replace_atomically


def write_splits(graph: KnowledgeGraph, folder: Path) -> list[Path]:
    """Write train, valid and test, and labels.csv where there are labels; the files, in that order.

    RDF becomes N-Triples, a TSV table stays one, anything else is CSV. A blank node means another one in another file:
    a graph that has some is written as CSV too.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder} is there and not empty: choose another folder for the split")
    rdf = graph.node_kinds is not None and not (graph.node_kinds == NodeKind.BLANK).any()
    ending = "nt" if rdf else "tsv" if graph.metadata.get("format") == "tsv" else "csv"
    written, table = list[Path](), None if rdf else graph.to_polars()
    for split in SPLITS if graph.triple_splits is not None else SPLITS[:1]:
        path = folder / f"{split}.{ending}"
        if not len(graph.split_triples(split)):
            continue
        if table is None:
            graph.to_rdf(path, split=split)
        else:
            _write_table(path, table.filter(split=split).drop("split") if "split" in table.columns else table)
        written.append(path)
    if graph.labels is not None:
        labels = graph.labels
        columns = {"node": graph.nodes.many(labels.nodes), "label": labels.names.many(labels.classes)}
        columns["split"] = [SPLITS[split] for split in labels.splits.tolist()]
        written.append(folder / "labels.csv")
        _write_table(written[-1], pl.DataFrame(columns))
    return written


def _write_table(path: Path, table: pl.DataFrame) -> None:
    # A header is told by its words, and they are no header where a node is called so too.
    header = not any((column == name).any() for column in table for name in table.columns if column.dtype == pl.String)
    if not header and table.columns != list(TRIPLE):
        raise DataError(f"a name in the graph is also that of a column ({', '.join(table.columns)}): rename it")
    tabs: dict[str, Any] = {"separator": "\t", "quote_style": "never"} if path.suffix == ".tsv" else {}
    replace_atomically(path, lambda at: table.write_csv(at, include_header=header, **tabs))
