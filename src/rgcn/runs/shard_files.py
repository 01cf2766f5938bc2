"""Tables of which every process holds some rows, on disk: a folder with a file of safetensors from each.

PyTorch's distributed checkpoints write and read them: a table is a DTensor, in the order of positions, of which each
process has a block, so that any number of processes finds its own rows again. One process alone puts them into the
order of nodes. Nothing is pickled into a file.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rgcn.atomic import sha256_of, sync
from rgcn.errors import ConfigError, DataError
from rgcn.nn.table_files import DTYPES, KINDS, mapped_tensors, room_for, write_tensors
from rgcn.processes import Processes, processes
from rgcn.sharding import Shards

FILE = "{:05d}.safetensors"  # of a process


def write_shards(folder: Path, rows: Mapping[str, Tensor], shards: Mapping[str, Shards]) -> dict[str, Any]:
    """Write my rows [own, ...] of tables by name; what there is then: sizes of tables, files with bytes and sha256.

    All processes call it. An optimizer may not have met any row of somebody's yet: what it remembers of these is zero.
    """
    group, file = processes(), folder / FILE.format(processes().rank)
    mine = {name: [shards[name].count, *some.shape[1:], KINDS[some.dtype]] for name, some in rows.items()}
    tables = {name: size for told in group.tell(mine) for name, size in told.items()}
    _together("save", _spread(tables, rows)[1], storage_writer=_writer(folder, file))
    about = group.all(lambda: [file.stat().st_size, sha256_of(file)])
    return {"tables": tables, "files": {FILE.format(rank): each for rank, each in enumerate(group.tell(about))}}


def read_shards(folder: Path, about: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Shards]]:
    """Tables by name, of which several processes get their own rows [own, ...]; one alone gets all, in their order."""
    tables, group = about["tables"], processes()
    if group.together:
        rows, spread = _spread(tables, {})
        _together("load", spread, storage_reader=_hugging_face().HuggingFaceStorageReader(str(folder)))
        return rows, {name: Shards(size[0], group) for name, size in tables.items()}
    whole = {name: room_for(shape, DTYPES[kind]) for name, (*shape, kind) in tables.items()}
    for rank in range(len(about["files"])):
        for name, some in mapped_tensors(folder / FILE.format(rank)).items():
            whole[name][Shards(len(whole[name]), Processes(rank, len(about["files"]))).own] = some
    return whole, {}


def _spread(tables: Mapping[str, Any], held: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """My rows of tables, zeros where none are held, and the same as parts of distributed tensors."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Shard

    assert dist.group.WORLD is not None
    mesh, rows, spread = DeviceMesh.from_group(dist.group.WORLD, "cpu"), {}, {}
    for name, (*shape, kind) in sorted(tables.items()):
        some = held.get(name)
        if some is None:
            some = torch.zeros(len(Shards(shape[0], processes())), *shape[1:], dtype=DTYPES[kind])
        rows[name] = some.detach().cpu().contiguous()
        whole = torch.empty(shape, device="meta")
        size: dict[str, Any] = {"shape": whole.shape, "stride": whole.stride()}
        spread[name] = DTensor.from_local(rows[name], mesh, [Shard(0)], run_check=False, **size)
    return rows, spread


def _together(what: str, spread: dict[str, Any], **options: Any) -> None:
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
