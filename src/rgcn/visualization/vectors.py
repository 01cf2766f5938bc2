"""The vectors a model has learned, of nodes and of relations, as tables with everything that is known of these.

Nodes come, and are written, a part at a time, so that their vectors never have to be in memory as a whole.
"""

from __future__ import annotations

import json
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from rgcn.data.tables import without_formulas
from rgcn.errors import ConfigError, DataError
from rgcn.graph import SPLITS
from rgcn.predict import OpenModel, predict_classes
from rgcn.predict.answer_tables import ClassAnswers
from rgcn.system.atomic_files import TEMPORARY_PREFIX, full_disk, replace_atomically
from rgcn.visualization.projection import Floats, Integers

VECTOR = "vector"
TYPES = {"triples": pl.Int64, "inverse": pl.Boolean, "score": pl.Float32, "probability": pl.Float32}  # else text
# A part is small beside a graph's weights, and large beside the cost of looking up what its nodes hear.
NODES_AT_ONCE = 1 << 15
ROW_GROUP = 1 << 15
# The year a ZIP file can begin with: the same vectors give the same bytes, whenever they are written.
ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class NodeVectors:
    """The vectors of a model's nodes."""

    opened: OpenModel
    layer: int | None = None  # of a model with states layer by layer, after which: -2 the last hidden one, -1 the last

    @classmethod
    def of(cls, opened: OpenModel, layer: int | None = None) -> NodeVectors:
        """layer None: what tells most, the last hidden one of a classifier."""
        return cls(opened, opened.model.vector_layer(layer))

    @property
    def width(self) -> int:
        return int(self.take(np.zeros(1, dtype=np.int64)).shape[1])

    @property
    def words(self) -> str:
        return self.opened.model.vector_words(self.layer)

    def take(self, nodes: Integers) -> Floats:
        """[n, width]: the vectors of some nodes, at once."""
        return self.opened.model.vectors(nodes, self.layer)

    def gather(self, nodes: Integers) -> Floats:
        """The same for any number of nodes, computed a part at a time."""
        return np.concatenate([self.take(part) for part in in_parts(nodes)])


def in_parts(nodes: Integers) -> Iterator[Integers]:
    for first in range(0, len(nodes), NODES_AT_ONCE):
        yield nodes[first : first + NODES_AT_ONCE]


def relation_vectors(opened: OpenModel) -> tuple[list[Floats], str]:
    """([R, width] of each direction, what the numbers are); DataError where there is nothing to be compared.

    There are two directions where an inverse has weights of its own, as in a classifier's layers.
    """
    forward, inverse, words = opened.model.relation_vectors()
    return [direction.numpy() for direction in (forward, inverse) if direction is not None], words


def node_table(
    vectors: NodeVectors, nodes: Integers, on_nodes: Callable[[int], None] | None = None
) -> Iterator[pl.DataFrame]:
    """A table of nodes, a part at a time: name, title, class and split where labelled, what a classifier says, vector.

    on_nodes  called with how many nodes a part had, once that is written
    """
    opened, graph, labels = vectors.opened, vectors.opened.graph, vectors.opened.graph.labels
    label_of = np.full(graph.num_nodes, -1, dtype=np.int64)  # where a node's label stands, -1 for none
    if labels is not None:
        label_of[labels.nodes] = np.arange(len(labels))
    for part in in_parts(nodes):
        columns: dict[str, Any] = {"name": [graph.nodes[node] for node in part.tolist()]}
        columns["title"] = [opened.titles.of(node) for node in part.tolist()]
        if labels is not None:
            rows = label_of[part].tolist()
            columns["class"] = [None if row < 0 else labels.names[int(labels.classes[row])] for row in rows]
            columns["split"] = [None if row < 0 else SPLITS[int(labels.splits[row])] for row in rows]
        if opened.classes:
            found = predictions(opened, part)
            columns["predicted"] = [opened.model.classes_[number] for number in found.class_.tolist()]
            columns |= {"score": found.score, "probability": found.probability}
        yield _table(columns, vectors.take(part))
        if on_nodes is not None:
            on_nodes(len(part))


def predictions(opened: OpenModel, nodes: Integers) -> ClassAnswers:
    """A classifier's answers for some nodes, at once."""
    return next(predict_classes(opened, nodes, len(nodes)))


def relation_table(opened: OpenModel) -> pl.DataFrame:
    """A table of relations: name, title, number of training triples, vector; a row more for each inverse, if any."""
    names, (directions, _) = list(opened.graph.relations), relation_vectors(opened)
    times, titles = len(directions), [opened.titles.relation(number) for number in range(len(names))]
    columns: dict[str, Any] = {"name": names * times, "title": titles * times}
    columns["triples"] = np.tile(relation_counts(opened), times)
    if times > 1:
        columns["inverse"] = np.repeat([False, True], len(names))
    return _table(columns, np.concatenate(directions))


def _table(columns: dict[str, Any], vectors: Floats) -> pl.DataFrame:
    """Columns as polars has them, also where all values are missing, and the vectors."""
    types = {name: TYPES.get(name, pl.String) for name in columns}
    return pl.DataFrame(columns, types).with_columns(vector_column(vectors))


def relation_counts(opened: OpenModel) -> Integers:
    """[R]: training triples of each relation."""
    return np.bincount(opened.graph.split_triples("train")[:, 1], minlength=opened.graph.num_relations)


def vector_column(vectors: Floats) -> pl.Series:
    return pl.Series(VECTOR, np.ascontiguousarray(vectors), pl.Array(pl.Float32, vectors.shape[1]))


def check_ending(path: Path, option: str = "--out") -> None:
    """Refuse, before anything is computed, a file that cannot be written in the end."""
    if path.suffix.lower() not in WRITERS:
        known = ", ".join(WRITERS)
        raise ConfigError(f"{option} {path.name}: what kind of file shall this be? Known endings are {known}")
    if path.is_dir():
        raise ConfigError(f"{option} {path} is a folder; give the name of a file")


def write_table(
    path: Path, rows: int, parts: Iterable[pl.DataFrame], option: str = "--out", keep_formulas: bool = False
) -> None:
    """Write a table whose parts come one after the other, `rows` in all, which a .npz file says at its beginning."""
    check_ending(path, option)
    write = WRITERS[path.suffix.lower()]
    if write is _write_csv and not keep_formulas:
        parts = map(without_formulas, parts)
    try:
        replace_atomically(path, lambda temporary: write(temporary, rows, iter(parts)))
    except OSError as error:
        why = full_disk(error, path) or f"cannot write {path}: {error.strerror}; choose another place"
        raise DataError(f"{why} with {option}") from error


def _write_parquet(path: Path, rows: int, parts: Iterator[pl.DataFrame]) -> None:
    """Parts become files of their own, which are then read as one and written again as a stream."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=TEMPORARY_PREFIX) as folder:
        for number, part in enumerate(parts):
            part.write_parquet(Path(folder, f"{number:06}.parquet"), row_group_size=ROW_GROUP)
        pl.scan_parquet(sorted(Path(folder).iterdir())).sink_parquet(path, row_group_size=ROW_GROUP)


def _write_csv(path: Path, rows: int, parts: Iterator[pl.DataFrame]) -> None:
    """A column for each number of the vector: v1, v2, ..."""
    with path.open("wb") as file:
        for number, part in enumerate(parts):
            vectors = part[VECTOR].to_numpy()
            numbers = [pl.Series(f"v{column + 1}", vectors[:, column]) for column in range(vectors.shape[1])]
            part.drop(VECTOR).hstack(numbers).write_csv(file, include_header=number == 0)


def _write_jsonl(path: Path, rows: int, parts: Iterator[pl.DataFrame]) -> None:
    with path.open("wb") as file:
        for part in parts:
            part.write_ndjson(file)


def _write_npz(path: Path, rows: int, parts: Iterator[pl.DataFrame]) -> None:
    """`vectors` [rows, width] as NumPy reads it, and the other columns as `table.json`: no pickle."""
    columns: dict[str, list[Any]] = {}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        with file.open(zipfile.ZipInfo("vectors.npy", ZIP_EPOCH), "w", force_zip64=True) as member:
            for number, part in enumerate(parts):
                vectors = np.ascontiguousarray(part[VECTOR].to_numpy(), dtype="<f4")
                if number == 0:
                    header = {"descr": "<f4", "fortran_order": False, "shape": (rows, vectors.shape[1])}
                    np.lib.format.write_array_header_1_0(member, header)
                member.write(vectors.tobytes())
                for name, values in part.drop(VECTOR).to_dict(as_series=False).items():
                    columns.setdefault(name, []).extend(values)
        table = zipfile.ZipInfo("table.json", ZIP_EPOCH)
        table.compress_type = zipfile.ZIP_DEFLATED
        file.writestr(table, json.dumps(columns, ensure_ascii=False))


WRITERS: dict[str, Callable[[Path, int, Iterator[pl.DataFrame]], None]] = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".jsonl": _write_jsonl,
    ".npz": _write_npz,
}
