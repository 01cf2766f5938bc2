"""Tables of which every process holds the rows of its local nodes, on disk: a folder with a safetensors file of each.

A process writes its block of the order of `NodePartition.position`, and says in the file's header where the block
begins, as PyTorch's distributed checkpoints do, which can read the folder. So any number of processes finds its own
rows again. A single process puts them into the order of nodes. Nothing is pickled.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rgcn.nn.row_tables import DTYPES, KINDS, mapped_tensors, room_for, write_tensors
from rgcn.placement import NodePartition, current
from rgcn.system.atomic_files import sha256_of, sync

FILE = "{:05d}.safetensors"  # of a process


def write_tables(folder: Path, rows: Mapping[str, Tensor], partitions: Mapping[str, NodePartition]) -> dict[str, Any]:
    """Write local rows of tables by name. Returns sizes of tables, and files with their bytes and sha256.

    All processes call it. Where an optimizer has not met any local row of a table yet, its state there is zero.
    """
    placement, file = current(), folder / FILE.format(current().rank)
    sizes = {name: [partitions[name].num_nodes, *some.shape[1:], KINDS[some.dtype]] for name, some in rows.items()}
    tables = {name: size for each in placement.gather_values(sizes) for name, size in each.items()}

    def write() -> list[Any]:
        blocks, begins = {}, {}
        for name, (num_nodes, *shape, kind) in tables.items():
            part = NodePartition(num_nodes, placement.rank, placement.size)
            blocks[name] = rows[name] if name in rows else torch.zeros(len(part), *shape, dtype=DTYPES[kind])
            begins[name] = {"saved_offsets": [part.first, *[0] * len(shape)]}
        folder.mkdir(parents=True, exist_ok=True)
        write_tensors(blocks, file, {"format": "pt", "DCP_VERSION": "1.0", "DCP_SHARDING_INFO": json.dumps(begins)})
        sync(file)
        sync(folder)
        return [file.stat().st_size, sha256_of(file)]

    about = placement.gather_values(placement.on_all(write))
    return {"tables": tables, "files": {FILE.format(rank): each for rank, each in enumerate(about)}}


def read_tables(folder: Path, about: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, NodePartition]]:
    """Tables by name: each of several processes gets the rows of its local nodes; a single one gets all, in order."""
    placement, count = current(), len(about["files"])
    local = {name: NodePartition(size[0], placement.rank, placement.size) for name, size in about["tables"].items()}

    def read() -> dict[str, Tensor]:
        found = {n: room_for((len(local[n]), *shape), DTYPES[kind]) for n, (_, *shape, kind) in about["tables"].items()}
        for rank in range(count):
            for name, block in mapped_tensors(folder / FILE.format(rank)).items():
                mine, part = local[name], NodePartition(local[name].num_nodes, rank, count)
                begin, end = max(part.first, mine.first), min(part.first + len(part), mine.first + len(mine))
                if not placement.is_distributed:
                    found[name][part.nodes] = block
                elif begin < end:
                    found[name][begin - mine.first : end - mine.first] = block[begin - part.first : end - part.first]
        return found

    return placement.on_all(read), local if placement.is_distributed else {}
