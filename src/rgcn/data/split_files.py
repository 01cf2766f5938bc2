"""A graph's splits as a folder of files that `read` reads back as they were."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from rgcn.data.headers import TRIPLE
from rgcn.data.reading import read
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


# -- FB-Toy, cut out of FB15k-237: the triples among its busiest entities -----------------------------------

MIN_DEGREE = 161  # the degree that leaves exactly the 299 entities FB-Toy was drawn from


def cut(graph: KnowledgeGraph, min_degree: int = MIN_DEGREE) -> KnowledgeGraph:
    """The triples among the entities of at least `min_degree` training triples; all nodes and relations stay.

    Degree counts head and tail occurrences in training. Valid and test keep only triples whose entities and relation
    are still met in the small training set, so that every question in them can be answered from it.

    >>> triples = [("a", "r", "b"), ("b", "r", "a"), ("a", "s", "c"), ("a", "s", "b"), ("b", "r", "b")]
    >>> cut(KnowledgeGraph.from_triples(triples, triple_splits=np.array([0, 0, 0, 1, 2])), min_degree=2).named()
    [('a', 'r', 'b'), ('b', 'r', 'a'), ('b', 'r', 'b')]
    """
    ends, relations = graph.triples[:, [0, 2]], graph.triples[:, 1]
    in_train = np.asarray(graph.triple_splits == SPLITS.index("train"), dtype=bool)
    train = in_train & (graph.degrees("train")[ends] >= min_degree).all(axis=1)
    met = np.isin(ends, ends[train]).all(axis=1) & np.isin(relations, relations[train])
    return graph.with_triples(train | (met & ~in_train))


def cut_folder(splits: Mapping[str, Path], target: Path, min_degree: int = MIN_DEGREE) -> None:
    """Write {train,valid,test}.txt of the small graph into `target`, from the large one's file for each split."""
    small = cut(read(splits), min_degree)
    for split in splits:
        text = "".join("\t".join(triple) + "\n" for triple in small.named(small.split_triples(split)))
        (target / f"{split}.txt").write_bytes(text.encode())
