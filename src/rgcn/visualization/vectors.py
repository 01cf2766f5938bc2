"""The vectors of nodes and relations of a model, as tables and files.

Tables of nodes are computed and written in blocks, so that all vectors never have to fit into memory.
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

from rgcn.data.tables import escape_formulas
from rgcn.errors import ConfigError, DataError
from rgcn.predict import OpenModel, predict_classes
from rgcn.predict.answer_tables import ClassAnswers, known_columns
from rgcn.system.atomic_files import TEMPORARY_PREFIX, disk_error_message, replace_atomically
from rgcn.visualization.projection import Floats, Integers

VECTOR = "vector"
TYPES = {"triples": pl.Int64, "inverse": pl.Boolean, "score": pl.Float32, "probability": pl.Float32}  # else text
# A block is small compared to the weights, and large compared to the cost of finding its receptive field.
BLOCK_NODES = 1 << 15
ROW_GROUP = 1 << 15
# The earliest date of a ZIP file: the same vectors give the same bytes, whenever they are written.
ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class NodeVectors:
    """The vectors of a model's nodes.

    Args:
        opened: The model.
        layer: For models with states per layer: the layer, -2 for the last hidden one, -1 for the last.
    """

    opened: OpenModel
    layer: int | None = None

    @classmethod
    def of(cls, opened: OpenModel, layer: int | None = None) -> NodeVectors:
        """Choose the layer: by default the last hidden one of a classifier. Other models have one vector per node."""
        return cls(opened, opened.model.hooks_.embedding_layer(layer))

    @property
    def width(self) -> int:
        """Width of the vectors."""
        return int(self.take(np.zeros(1, dtype=np.int64)).shape[1])

    @property
    def words(self) -> str:
        """Description of the vectors, for users."""
        return self.opened.model.hooks_.describe_embeddings(self.layer)

    def take(self, nodes: Integers) -> Floats:
        """Return the vectors of some nodes, all computed at once, [n, width]."""
        return self.opened.model.embeddings(nodes.tolist(), self.layer)

    def gather(self, nodes: Integers) -> Floats:
        """Return the vectors of any number of nodes, computed in blocks, [n, width]."""
        return np.concatenate([self.take(part) for part in in_blocks(nodes)])


def in_blocks(nodes: Integers) -> Iterator[Integers]:
    """Split nodes into blocks of `BLOCK_NODES`."""
    for first in range(0, len(nodes), BLOCK_NODES):
        yield nodes[first : first + BLOCK_NODES]


def relation_vectors(opened: OpenModel) -> tuple[list[Floats], str]:
    """Return the vectors of relations, [R, width] for each direction, and a text that says what they are.

    There are two directions if inverse relations have weights of their own, as in the layers of a classifier.

    Raises:
        DataError: If the model has nothing to compare relations by.
    """
    forward, inverse, words = opened.model.hooks_.relation_embeddings()
    return [direction.numpy() for direction in (forward, inverse) if direction is not None], words


def node_table(
    vectors: NodeVectors, nodes: Integers, on_nodes: Callable[[int], None] | None = None
) -> Iterator[pl.DataFrame]:
    """Yield a table of nodes in blocks: name, title, class and split of labeled nodes, prediction, vector.

    Args:
        vectors: The vectors.
        nodes: int64 [n].
        on_nodes: Called with the number of nodes of a block when it is written.
    """
    opened = vectors.opened
    for part in in_blocks(nodes):
        known = known_columns(opened, part)
        columns: dict[str, Any] = {"name": known["node"], "title": known["title"]}
        if opened.graph.labels is not None:
            columns |= {"class": known["label"], "split": known["label_split"]}
        if opened.classes:
            classes = predictions(opened, part)
            columns["predicted"] = [opened.model.classes_[number] for number in classes.class_.tolist()]
            columns |= {"score": classes.score, "probability": classes.probability}
        yield _table(columns, vectors.take(part))
        if on_nodes is not None:
            on_nodes(len(part))


def predictions(opened: OpenModel, nodes: Integers) -> ClassAnswers:
    """Return the predicted classes of some nodes at once."""
    return next(predict_classes(opened, nodes, len(nodes)))


def relation_table(opened: OpenModel) -> pl.DataFrame:
    """Return a table of relations: name, title, number of training triples, vector; inverses have rows of their own."""
    names, (directions, _) = list(opened.graph.relations), relation_vectors(opened)
    times, titles = len(directions), [opened.titles.relation(number) for number in range(len(names))]
    columns: dict[str, Any] = {"name": names * times, "title": titles * times}
    columns["triples"] = np.tile(relation_counts(opened), times)
    if times > 1:
        columns["inverse"] = np.repeat([False, True], len(names))
    return _table(columns, np.concatenate(directions))


def _table(columns: dict[str, Any], vectors: Floats) -> pl.DataFrame:
    """Return a table with typed columns, also if all values are missing, and the vectors."""
    types = {name: TYPES.get(name, pl.String) for name in columns}
    return pl.DataFrame(columns, types).with_columns(vector_column(vectors))


def relation_counts(opened: OpenModel) -> Integers:
    """Return the number of training triples of each relation, [R]."""
    return np.bincount(opened.graph.split_triples("train")[:, 1], minlength=opened.graph.num_relations)


def vector_column(vectors: Floats) -> pl.Series:
    """Return vectors [n, width] as a column of arrays."""
    return pl.Series(VECTOR, np.ascontiguousarray(vectors), pl.Array(pl.Float32, vectors.shape[1]))


def check_table_path(path: Path, option: str = "--out") -> None:
    """Check that a table can be written to this path, before anything is computed.

    Raises:
        ConfigError: If the suffix is unknown, or the path is a folder.
    """
    if path.suffix.lower() not in WRITERS:
        known = ", ".join(WRITERS)
        raise ConfigError(f"{option} {path.name}: the suffix chooses the format, and must be one of {known}")
    if path.is_dir():
        raise ConfigError(f"{option} {path} is a folder; give the name of a file")


def write_table(
    path: Path, rows: int, parts: Iterable[pl.DataFrame], option: str = "--out", keep_formulas: bool = False
) -> None:
    """Write a table to a file; its suffix chooses the format.

    Args:
        path: The file.
        rows: Number of rows; a .npz file begins with it.
        parts: Blocks of the table.
        option: The option that named the file, for messages.
        keep_formulas: Do not escape cells of CSV files that spreadsheets would run as formulas.

    Raises:
        ConfigError: If the suffix is unknown, or the path is a folder.
        DataError: If the file cannot be written.
    """
    check_table_path(path, option)
    write = WRITERS[path.suffix.lower()]
    if write is _write_csv and not keep_formulas:
        parts = map(escape_formulas, parts)
    try:
        replace_atomically(path, lambda temporary: write(temporary, rows, iter(parts)))
    except OSError as error:
        why = disk_error_message(error, path) or f"cannot write {path}: {error.strerror}; choose another place"
        raise DataError(f"{why} with {option}") from error


def _write_parquet(path: Path, rows: int, parts: Iterator[pl.DataFrame]) -> None:
    """Write each block to a temporary file, then stream all of them into one file."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=TEMPORARY_PREFIX) as folder:
        for number, part in enumerate(parts):
            part.write_parquet(Path(folder, f"{number:06}.parquet"), row_group_size=ROW_GROUP)
        pl.scan_parquet(sorted(Path(folder).iterdir())).sink_parquet(path, row_group_size=ROW_GROUP)


def _write_csv(path: Path, rows: int, parts: Iterator[pl.DataFrame]) -> None:
    """Write a column for each component of the vectors: v1, v2, ..."""
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
    """Write `vectors` [rows, width] as NumPy reads it, and the other columns as `table.json`: no pickle."""
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
