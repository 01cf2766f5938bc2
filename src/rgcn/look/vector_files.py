"""Tables with vectors as files: Parquet, CSV, JSON Lines or NumPy, by the file's ending.

A file is written a part at a time under a temporary name and renamed when it is whole.
"""

from __future__ import annotations

import json
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from rgcn.atomic import TEMPORARY_PREFIX, replace_atomically
from rgcn.errors import ConfigError, DataError
from rgcn.look.vectors import VECTOR

# The year a ZIP file can begin with: the same vectors give the same bytes, whenever they are written.
ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)
ROW_GROUP = 1 << 15


def check_ending(path: Path, option: str = "--out") -> None:
    """Refuse, before anything is computed, a file that cannot be written in the end."""
    if path.suffix.lower() not in WRITERS:
        known = ", ".join(WRITERS)
        raise ConfigError(f"{option} {path.name}: what kind of file shall this be? Known endings are {known}")
    if path.is_dir():
        raise ConfigError(f"{option} {path} is a folder; give the name of a file")


def write_table(path: Path, rows: int, parts: Iterable[pl.DataFrame], option: str = "--out") -> None:
    """Write a table whose parts come one after the other.

    rows  how many there will be; a .npz file says so at its beginning
    """
    check_ending(path, option)
    write = WRITERS[path.suffix.lower()]
    try:
        replace_atomically(path, lambda temporary: write(temporary, rows, iter(parts)))
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}; choose another place with {option}") from error


def _write_parquet(path: Path, rows: int, parts: Iterator[pl.DataFrame]) -> None:
    """Parts become files of their own, which are then read as one and written again as a stream."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=TEMPORARY_PREFIX) as folder:
        written = []
        for number, part in enumerate(parts):
            written.append(Path(folder, f"{number:06}.parquet"))
            part.write_parquet(written[-1], row_group_size=ROW_GROUP)
        if len(written) == 1:
            written[0].replace(path)
        else:
            pl.scan_parquet(written).sink_parquet(path, row_group_size=ROW_GROUP)


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
                vectors = part[VECTOR].to_numpy()
                if number == 0:
                    shape = rows, vectors.shape[1]
                    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
                    np.lib.format.write_array_header_1_0(member, header)
                member.write(np.ascontiguousarray(vectors, dtype="<f4").tobytes())
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
