"""Tables on disk whose rows are divided among processes: a folder with a safetensors file for each process.

A process writes its block of the order of `NodePartition.position`. As in PyTorch's distributed checkpoints, which can
read the folder, the file's header says where the block begins. So any number of processes can read its local rows back.
A single process restores the order of nodes. Nothing is pickled.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rgcn.nn.row_tables import DTYPE_NAMES, DTYPES, allocate_tensor, read_tensors, write_tensors
from rgcn.placement import NodePartition, current
from rgcn.system.atomic_files import file_sha256, sync

FILE = "{:05d}.safetensors"  # of the process with this rank


def write_tables(folder: Path, rows: Mapping[str, Tensor], partitions: Mapping[str, NodePartition]) -> dict[str, Any]:
    """Write the local rows of tables. All processes call it.

    Args:
        folder: Where to write.
        rows: Local rows of tables, by name. An optimizer that has not updated any local row of a table yet has no
            state for it here; zeros are written.
        partitions: How each table's nodes are divided.

    Returns:
        The tables' sizes and types, and the files with their bytes and sha256: what `read_tables` needs.
    """
    placement, file = current(), folder / FILE.format(current().rank)
    sizes = {n: [partitions[n].num_nodes, *local.shape[1:], DTYPE_NAMES[local.dtype]] for n, local in rows.items()}
    tables = {name: size for each in placement.gather_values(sizes) for name, size in each.items()}

    def write() -> list[Any]:
        blocks, begins = {}, {}
        for name, (num_nodes, *shape, dtype) in tables.items():
            part = NodePartition(num_nodes, placement.rank, placement.size)
            blocks[name] = rows[name] if name in rows else torch.zeros(len(part), *shape, dtype=DTYPES[dtype])
            begins[name] = {"saved_offsets": [part.first, *[0] * len(shape)]}
        folder.mkdir(parents=True, exist_ok=True)
        write_tensors(blocks, file, {"format": "pt", "DCP_VERSION": "1.0", "DCP_SHARDING_INFO": json.dumps(begins)})
        sync(file)
        sync(folder)
        return [file.stat().st_size, file_sha256(file)]

    files = placement.gather_values(placement.on_all(write))
    return {"tables": tables, "files": {FILE.format(rank): each for rank, each in enumerate(files)}}


def read_tables(folder: Path, saved: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, NodePartition]]:
    """Read tables that any number of processes wrote. All processes call it.

    Args:
        folder: Where the tables are.
        saved: The result of `write_tables`.

    Returns:
        Tables by name, with the rows of local nodes, or all rows in the order of nodes in a single process; and how
        each table's nodes are divided, empty for a single process.
    """
    placement, count = current(), len(saved["files"])
    local = {name: NodePartition(size[0], placement.rank, placement.size) for name, size in saved["tables"].items()}

    def read() -> dict[str, Tensor]:
        tables = {
            name: allocate_tensor((len(local[name]), *shape), DTYPES[dtype])
            for name, (_, *shape, dtype) in saved["tables"].items()
        }
        for rank in range(count):
            for name, block in read_tensors(folder / FILE.format(rank)).items():
                ours, part = local[name], NodePartition(local[name].num_nodes, rank, count)
                begin, end = max(part.first, ours.first), min(part.first + len(part), ours.first + len(ours))
                if not placement.is_distributed:
                    tables[name][part.nodes] = block
                elif begin < end:
                    tables[name][begin - ours.first : end - ours.first] = block[begin - part.first : end - part.first]
        return tables

    return placement.on_all(read), local if placement.is_distributed else {}
