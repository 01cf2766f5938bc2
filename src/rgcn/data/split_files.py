"""Write a graph's splits as a folder of files that `read` reads back, and cut FB-Toy out of FB15k-237."""

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
    """Write a graph to a file for each of its splits, and its labels, if there are any, to labels.csv.

    RDF becomes N-Triples, a TSV table stays one, and anything else becomes CSV. So does a graph with blank nodes,
    because the label of a blank node means another node in each file.

    Args:
        graph: The graph to write.
        folder: A new or empty folder.

    Returns:
        The files that were written.

    Raises:
        DataError: The folder is not empty, or a node has the name of a column.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder} exists and is not empty: choose another folder for the split")
    is_rdf = graph.node_kinds is not None and not (graph.node_kinds == NodeKind.BLANK).any()
    suffix = "nt" if is_rdf else "tsv" if graph.metadata.get("format") == "tsv" else "csv"
    written, table = list[Path](), None if is_rdf else graph.to_polars()
    for split in SPLITS if graph.triple_splits is not None else SPLITS[:1]:
        path = folder / f"{split}.{suffix}"
        if not len(graph.split_triples(split)):
            continue
        if table is None:
            graph.to_rdf(path, split=split)
        else:
            _write_table(path, table.filter(split=split).drop("split") if "split" in table.columns else table)
        written.append(path)
    if graph.labels is not None:
        labels = graph.labels
        columns = {"node": graph.nodes.names_of(labels.nodes), "label": labels.names.names_of(labels.classes)}
        columns["split"] = [SPLITS[split] for split in labels.splits.tolist()]
        written.append(folder / "labels.csv")
        _write_table(written[-1], pl.DataFrame(columns))
    return written


def _write_table(path: Path, table: pl.DataFrame) -> None:
    # A header is recognized by its words, unless a node has one of them as its name.
    names = [column for column in table if column.dtype == pl.String]
    has_header = not any(column.is_in(table.columns).any() for column in names)
    if not has_header and table.columns != list(TRIPLE):
        raise DataError(f"a name in the graph is also the name of a column ({', '.join(table.columns)}): rename it")
    options: dict[str, Any] = {"separator": "\t", "quote_style": "never"} if path.suffix == ".tsv" else {}
    replace_atomically(path, lambda at: table.write_csv(at, include_header=has_header, **options))


MIN_DEGREE = 161  # leaves exactly the 299 entities of FB-Toy


def cut(graph: KnowledgeGraph, min_degree: int = MIN_DEGREE) -> KnowledgeGraph:
    """Return a graph with only the triples among entities of high degree; all nodes and relations stay.

    Valid and test keep only triples whose entities and relation still occur in the small training set, so that every
    question in them can be answered from it.

    Args:
        graph: A graph with splits.
        min_degree: The least number of occurrences of an entity as subject or object of training triples.

    >>> triples = [("a", "r", "b"), ("b", "r", "a"), ("a", "s", "c"), ("a", "s", "b"), ("b", "r", "b")]
    >>> cut(KnowledgeGraph.from_triples(triples, triple_splits=np.array([0, 0, 0, 1, 2])), min_degree=2).named()
    [('a', 'r', 'b'), ('b', 'r', 'a'), ('b', 'r', 'b')]
    """
    ends, relations = graph.triples[:, [0, 2]], graph.triples[:, 1]
    in_train = np.asarray(graph.triple_splits == SPLITS.index("train"), dtype=bool)
    train = in_train & (graph.degrees("train")[ends] >= min_degree).all(axis=1)
    occurs = np.isin(ends, ends[train]).all(axis=1) & np.isin(relations, relations[train])
    return graph.with_triples(train | (occurs & ~in_train))


def cut_folder(splits: Mapping[str, Path], target: Path, min_degree: int = MIN_DEGREE) -> None:
    """Read {split: file}, cut the graph, and write each split to SPLIT.txt in the folder `target`."""
    small = cut(read(splits), min_degree)
    for split in splits:
        text = "".join("\t".join(triple) + "\n" for triple in small.named(small.split_triples(split)))
        (target / f"{split}.txt").write_bytes(text.encode())
