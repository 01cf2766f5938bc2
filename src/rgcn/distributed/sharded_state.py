"""Tables of which every process holds the rows of its local nodes, on disk: a folder with a safetensors file of each.

PyTorch's distributed checkpoints write and read them: a table is a DTensor in the order of `NodePartition.position`, of
which each process has a block, so that any number of processes finds its own rows again. A single process puts them
into the order of nodes. Nothing is pickled.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rgcn.errors import ConfigError, DataError
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
    _checkpoint("save", _distributed_tensors(tables, rows)[1], storage_writer=_writer(folder, file))
    about = placement.gather_values(placement.on_all(lambda: [file.stat().st_size, sha256_of(file)]))
    return {"tables": tables, "files": {FILE.format(rank): each for rank, each in enumerate(about)}}


def read_tables(folder: Path, about: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, NodePartition]]:
    """Tables by name: each of several processes gets the rows of its local nodes; a single one gets all, in order."""
    tables, placement = about["tables"], current()
    if placement.is_distributed:
        rows, spread = _distributed_tensors(tables, {})
        _checkpoint("load", spread, storage_reader=_hugging_face().HuggingFaceStorageReader(str(folder)))
        return rows, {name: NodePartition(size[0], placement.rank, placement.size) for name, size in tables.items()}
    whole = {name: room_for(shape, DTYPES[kind]) for name, (*shape, kind) in tables.items()}
    for rank in range(len(about["files"])):
        for name, some in mapped_tensors(folder / FILE.format(rank)).items():
            whole[name][NodePartition(len(whole[name]), rank, len(about["files"])).nodes] = some
    return whole, {}


def _distributed_tensors(
    tables: Mapping[str, Any], held: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Local rows of tables, zeros where none are held, and the same as parts of distributed tensors."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Shard

    assert dist.group.WORLD is not None
    placement = current()
    mesh, rows, spread = DeviceMesh.from_group(dist.group.WORLD, "cpu"), {}, {}
    for name, (*shape, kind) in sorted(tables.items()):
        some = held.get(name)
        if some is None:
            count = len(NodePartition(shape[0], placement.rank, placement.size))
            some = torch.zeros(count, *shape[1:], dtype=DTYPES[kind])
        rows[name] = some.detach().cpu().contiguous()
        whole = torch.empty(shape, device="meta")
        size: dict[str, Any] = {"shape": whole.shape, "stride": whole.stride()}
        spread[name] = DTensor.from_local(rows[name], mesh, [Shard(0)], run_check=False, **size)
    return rows, spread


def _checkpoint(what: str, spread: dict[str, Any], **options: Any) -> None:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        getattr(dcp, what)(spread, **options)
    except CheckpointException as error:  # no Exception, in PyTorch's eyes
        rank, (failure, _) = next(iter(error.failures.items()))
        if isinstance(failure, OSError):
            raise failure from error
        raise DataError(f"process {rank}: {failure}") from error


def _hugging_face() -> Any:
    try:
        from torch.distributed.checkpoint import hf_storage

        hf_storage.HuggingFaceStorageWriter  # noqa: B018  # earlier versions have it under another name
    except (ImportError, AttributeError):
        raise ConfigError(
            f"checkpoints of tables that several processes hold need PyTorch 2.9 or newer, and this is "
            f"{torch.__version__}: upgrade it, or train with --set training.sharded=false"
        ) from None
    return hf_storage


def _writer(folder: Path, file: Path) -> Any:
    """As PyTorch's, which holds all that it writes in memory once more; this one a piece of it."""
    from torch.distributed.checkpoint.storage import WriteResult
    from torch.futures import Future

    class Writer(_hugging_face().HuggingFaceStorageWriter):  # type: ignore[misc]
        def write_data(self, plan: Any, planner: Any) -> Any:
            rows = {item.index.fqn: planner.resolve_data(item).detach() for item in plan.items}
            offsets = {item.index.fqn: {"saved_offsets": list(item.tensor_data.chunk.offsets)} for item in plan.items}
            write_tensors(rows, file, {"format": "pt", "DCP_VERSION": "1.0", "DCP_SHARDING_INFO": json.dumps(offsets)})
            sync(file)
            sync(folder)
            done: Any = Future()
            done.set_result([WriteResult(item.index, rows[item.index.fqn].nbytes, file.name) for item in plan.items])
            return done

    return Writer(str(folder), save_distributed=True)
