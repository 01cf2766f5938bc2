"""Tables of which every process holds some rows, on disk: a folder with a file of safetensors from each.

PyTorch's distributed checkpoints write and read them: a table is a DTensor, in the order of positions, of which each
process has a block, so that any number of processes finds its own rows again. One process alone puts them into the
order of nodes. Nothing is pickled into a file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rgcn.atomic import sync
from rgcn.data.sources import sha256_of
from rgcn.errors import ConfigError, DataError
from rgcn.nn.table_files import KINDS, mapped_tensors, room_for, write_tensors
from rgcn.processes import Processes
from rgcn.sharding import Shards

FILE = "{:05d}.safetensors"  # of a process


def write_shards(folder: Path, tensors: Mapping[str, Tensor], shards: Mapping[str, Shards]) -> dict[str, Any]:
    """Write my rows [own, ...] of tables by name; what there is then: sizes of tables, files with bytes and sha256.

    All processes call it. An optimizer may not have met any row of somebody's yet: what it remembers of these is zero.
    """
    group = next(iter(shards.values())).group
    mine = {name: [shards[name].count, *tensor.shape[1:], KINDS[tensor.dtype]] for name, tensor in tensors.items()}
    tables = {name: layout for told in group.tell(mine) for name, layout in told.items()}
    spread = {}
    for name, layout in sorted(tables.items()):
        rows = tensors.get(name)
        spread[name] = _block(Shards(layout[0], group), layout, None if rows is None else rows.detach().cpu())
    _together("save", spread, storage_writer=_writer(folder, group))
    file = folder / FILE.format(group.rank)
    digest = group.all(lambda: sha256_of(file))
    files = {FILE.format(rank): words for rank, words in enumerate(group.tell([file.stat().st_size, digest]))}
    return {"tables": tables, "files": files}


def read_shards(
    folder: Path, about: Mapping[str, Any], group: Processes
) -> tuple[dict[str, Tensor], dict[str, Shards]]:
    """Tables by name, of which several processes get their own rows [own, ...]; one alone gets all, in their order."""
    tables, kinds = about["tables"], {word: dtype for dtype, word in KINDS.items()}
    if group.together:
        shards = {name: Shards(layout[0], group) for name, layout in tables.items()}
        found, spread = {}, {}
        for name, layout in tables.items():
            found[name] = torch.empty(len(shards[name]), *layout[1:-1], dtype=kinds[layout[-1]])
            spread[name] = _block(shards[name], layout, found[name])
        _together("load", spread, storage_reader=_hugging_face().HuggingFaceStorageReader(str(folder)))
        return found, shards
    whole = {name: room_for(layout[:-1], kinds[layout[-1]]) for name, layout in tables.items()}
    for rank in range(len(about["files"])):
        for name, rows in mapped_tensors(folder / FILE.format(rank)).items():
            whole[name][Shards(tables[name][0], Processes(rank, len(about["files"]))).own] = rows
    return whole, {}


def _block(shards: Shards, layout: list[Any], rows: Tensor | None) -> Any:
    """My rows as those of a distributed tensor; None: zeros."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Shard

    *shape, kind = layout
    if rows is None:
        rows = torch.zeros(len(shards), *shape[1:], dtype={word: dtype for dtype, word in KINDS.items()}[kind])
    assert dist.group.WORLD is not None
    mesh = DeviceMesh.from_group(dist.group.WORLD, "cpu")
    whole = torch.empty(shape, dtype=rows.dtype, device="meta")
    size: dict[str, Any] = {"shape": whole.shape, "stride": whole.stride()}
    return DTensor.from_local(rows.contiguous(), mesh, [Shard(0)], run_check=False, **size)


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


def _writer(folder: Path, group: Processes) -> Any:
    """As PyTorch's, which holds all that it writes in memory once more; this one a piece of it."""
    from torch.distributed.checkpoint.storage import WriteResult
    from torch.futures import Future

    class Writer(_hugging_face().HuggingFaceStorageWriter):  # type: ignore[misc]
        def write_data(self, plan: Any, planner: Any) -> Any:
            file = folder / FILE.format(group.rank)
            rows = {item.index.fqn: planner.resolve_data(item).detach() for item in plan.items}
            offsets = {item.index.fqn: {"saved_offsets": list(item.tensor_data.chunk.offsets)} for item in plan.items}
            write_tensors(rows, file, {"format": "pt", "DCP_VERSION": "1.0", "DCP_SHARDING_INFO": json.dumps(offsets)})
            sync(file)
            done: Any = Future()
            done.set_result([WriteResult(item.index, rows[item.index.fqn].nbytes, file.name) for item in plan.items])
            return done

    return Writer(str(folder), save_distributed=True)
