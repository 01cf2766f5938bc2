"""Tables of nodes that do not fit into memory: files, mapped, of which the system keeps what is in use.

A file has no name from the moment it is made: it goes with the process, however that ends. What is to last is written
down in pieces, without a copy in memory (`write_tensors`).
"""

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rgcn.data.registry import cache_folder
from rgcn.errors import DataError
from rgcn.system.formatting import memory
from rgcn.system.memory import available_bytes

PREFIX = "rgcn-table-"
PIECE = 1 << 24  # numbers that are written at once
ALIGNED = 64  # bytes: where PyTorch puts tensors; elsewhere sums may come out with other last digits
SMALL = 1 << 24  # bytes: less is read at once rather than mapped
_TYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32"}
DTYPES = {w: getattr(torch, name) for w, name in {**_TYPES, "I8": "int8", "U8": "uint8", "BOOL": "bool"}.items()}
KINDS = {dtype: word for word, dtype in DTYPES.items()}


def empty_on_disk(shape: Sequence[int], folder: Path | None = None) -> Tensor:
    """Zeros of this shape, float32, in a file of the folder, by default that of the cache (RGCN_CACHE)."""
    folder, size = folder or cache_folder() / "tables", prod(shape)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=PREFIX, dir=folder)
        try:
            os.posix_fallocate(handle, 0, max(1, 4 * size))  # now, for a full disk would kill the process later
            return torch.from_file(name, shared=True, size=size).view(tuple(shape))
        finally:
            os.close(handle)
            Path(name).unlink()
    except OSError as error:
        raise DataError(
            f"a table of nodes needs {memory(4 * size)} on the disk of {folder}: {error.strerror}; make room, or set "
            "RGCN_CACHE to a folder elsewhere"
        ) from error


def room_for(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Place for numbers that are about to be written: in memory, or on disk where they would take much of what is
    left of it."""
    free, size = available_bytes(), prod(shape) * dtype.itemsize
    if dtype == torch.float32 and free is not None and size > free // 4:
        return empty_on_disk(shape)
    return torch.empty(tuple(shape), dtype=dtype)


def is_on_disk(tensor: Tensor) -> bool:
    """Whether the numbers are in such a file."""
    name = tensor.untyped_storage().filename if tensor.device.type == "cpu" else None
    return name is not None and Path(name).name.startswith(PREFIX)


def zeros_beside(table: Tensor) -> Tensor:
    """Zeros like the table, where it is: in memory, on a GPU, on disk."""
    if not is_on_disk(table):
        return torch.zeros_like(table, memory_format=torch.preserve_format)
    return empty_on_disk(table.shape, Path(str(table.untyped_storage().filename)).parent)


def copy_beside(table: Tensor, values: Tensor) -> Tensor:
    """A copy of the values, where the table is, if they are as large as it; else on its device."""
    if is_on_disk(table) and values.shape == table.shape:
        return zeros_beside(table).copy_(values)
    return values.detach().to(table.device, copy=True)


def mapped_tensors(path: Path) -> dict[str, Tensor]:
    """What a file of safetensors holds. Large tables stay where they lie: pages are read when somebody asks, what
    nobody reads is never loaded, and changes stay ours."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        mapped = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    for name, tensor in mapped.items():
        if tensor.nbytes < SMALL or tensor.data_ptr() % ALIGNED:
            mapped[name] = tensor.clone()
    return mapped


def write_tensors(tensors: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str] | None = None) -> None:
    """A safetensors file of them, written a piece at a time: their own library makes a copy of all of them first.

    metadata: further words for its header
    """
    # Widest numbers first, so that each is found at a multiple of its own size; of these the largest tables.
    ordered = dict(sorted(tensors.items(), key=lambda of: (-of[1].element_size(), -of[1].numel(), of[0])))
    about: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    end = 0
    for name, tensor in ordered.items():
        begin, end = end, end + tensor.numel() * tensor.element_size()
        about[name] = {"dtype": KINDS[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    header = json.dumps(about).encode()
    header += b" " * (-(len(header) + 8) % ALIGNED)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for tensor in ordered.values():
            for part in torch.split(tensor.detach().reshape(-1), PIECE):
                file.write(part.cpu().view(torch.uint8).numpy().data)
