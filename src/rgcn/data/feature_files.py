"""Numbers that describe nodes, from a table beside the graph."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rgcn.data.files import PathLike
from rgcn.data.tables import whole_table
from rgcn.errors import DataError, ParseError
from rgcn.graph import KnowledgeGraph


def with_feature_file(graph: KnowledgeGraph, path: PathLike) -> KnowledgeGraph:
    """The graph with features float32 [N, F] from a TSV, CSV or Parquet table: a node's name, then F numbers.

    The first line is a header if it holds no numbers. Nodes the table does not know get zeros, and rows whose node is
    not in the graph are left out; the metadata count both.

    >>> import pathlib, tempfile
    >>> graph = KnowledgeGraph.from_triples([("Bern", "in", "Europe")])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "size.csv").write_text("city,km2,people\\nBern,51.6,134000\\n")
    ...     with_feature_file(graph, pathlib.Path(folder, "size.csv")).features.tolist()
    [[51.599..., 134000.0], [0.0, 0.0]]
    """
    names, values, lines = _named_rows(path)
    rows = np.array([-1 if (i := graph.nodes.get(name)) is None else i for name in names], dtype=np.int64)
    known = rows >= 0
    distinct, counts = np.unique(rows[known], return_counts=True)
    if (counts > 1).any():
        twice = graph.nodes[int(distinct[counts > 1][0])]
        line = lines[len(names) - 1 - names[::-1].index(twice)]
        raise ParseError(str(path), line, "", f"the features of {twice} are given twice")
    if not known.any():
        raise DataError(f"none of the {len(names)} nodes in {path} is in the graph")
    features = np.zeros((graph.num_nodes, values.shape[1]), dtype=np.float32)
    features[rows[known]] = values[known]
    counted = {
        "nodes_without_features": graph.num_nodes - len(distinct),
        "features_of_unknown_nodes": int((~known).sum()),
    }
    return replace(graph, features=features, metadata={**graph.metadata, **counted})


def _named_rows(path: PathLike) -> tuple[list[str], NDArray[np.float32], list[int]]:
    """Node names, their numbers float32 [rows, F], and their lines."""
    table, frame = whole_table(path, "feature")
    if table.width < 2:
        raise DataError(f"{path}: a node's name and at least one number are needed in each row")
    numbers = frame.drop("0", "line").select(pl.all().cast(pl.Float32, strict=False))
    if table.names is None and all(number is None for number in numbers.row(0)):
        frame, numbers = frame[1:], numbers[1:]
    names, lines = frame["0"].to_list(), frame["line"].to_list()
    values = numbers.fill_null(float("nan")).to_numpy()
    if None in names:
        raise ParseError(str(path), lines[names.index(None)], "", "the node's name is empty")
    wrong = np.argwhere(~np.isfinite(values))
    if len(wrong):
        row, column = wrong[0].tolist()
        reason = f"feature {column + 1} of {names[row]} is no finite number: {frame[row, column + 1]!r}"
        raise ParseError(str(path), lines[row], "", reason)
    return names, values, lines
