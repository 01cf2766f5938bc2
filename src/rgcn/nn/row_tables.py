"""Tables with a row for each node: the inputs of encoders, tables on disk, and how such tables are stored.

The file of a table on disk is unlinked as soon as it is created, so that it disappears with the process, however that
ends. `write_tensors` writes files that last, in chunks and without a copy in memory.

A stored table has one of three layouts: the two parts of a `RowTable`; all rows in the order of the nodes, without
`position`; or only the rows of the nodes that are local to one of several processes. `arrange_weights` converts any
of them to the layout of a network.
"""

import json
import os
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from rgcn.data.registry import cache_folder
from rgcn.errors import DataError
from rgcn.kernels import take_rows
from rgcn.kernels.sparse import SparsePattern
from rgcn.nn.initialization import Initializer
from rgcn.placement import NodePartition, Placement
from rgcn.system.formatting import format_bytes
from rgcn.system.memory import available_bytes

FILE_PREFIX = "rgcn-table-"
CHUNK_SIZE = 1 << 24  # numbers that are written at once
ALIGNMENT = 64  # bytes; PyTorch's own allocations have it, and sums over other addresses may differ in the last digits
MIN_MAPPED_BYTES = 1 << 24  # smaller tensors are read instead of mapped
_TYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32"}
DTYPES = {n: getattr(torch, name) for n, name in {**_TYPES, "I8": "int8", "U8": "uint8", "BOOL": "bool"}.items()}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
NUM_CACHED_LOOKUPS = 4


def zeros_on_disk(shape: Sequence[int], folder: Path | None = None) -> Tensor:
    """Create float32 zeros in an unlinked file of a folder, by default in the cache (RGCN_CACHE).

    Raises:
        DataError: If the disk has no room for the table.
    """
    folder, size = folder or cache_folder() / "tables", prod(shape)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=FILE_PREFIX, dir=folder)
        try:
            os.posix_fallocate(handle, 0, max(1, 4 * size))  # else a disk that fills up later would kill the process
            return torch.from_file(name, shared=True, size=size).view(tuple(shape))
        finally:
            os.close(handle)
            Path(name).unlink()
    except OSError as error:
        raise DataError(
            f"a table of nodes needs {format_bytes(4 * size)} on the disk of {folder}: {error.strerror}; make room, or "
            "set RGCN_CACHE to a folder on another disk"
        ) from error


def allocate_tensor(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Allocate a tensor in memory, or on disk if it would take more than a quarter of the free memory."""
    free, size = available_bytes(), prod(shape) * dtype.itemsize
    if dtype == torch.float32 and free is not None and size > free // 4:
        return zeros_on_disk(shape)
    return torch.empty(tuple(shape), dtype=dtype)


def is_on_disk(tensor: Tensor) -> bool:
    """Return True if a tensor was made by `zeros_on_disk`."""
    name = tensor.untyped_storage().filename if tensor.device.type == "cpu" else None
    return name is not None and Path(name).name.startswith(FILE_PREFIX)


def zeros_stored_like(table: Tensor) -> Tensor:
    """Create zeros like a table, where it is: in memory, on a GPU or on disk."""
    if not is_on_disk(table):
        return torch.zeros_like(table, memory_format=torch.preserve_format)
    return zeros_on_disk(table.shape, Path(str(table.untyped_storage().filename)).parent)


def copy_stored_like(table: Tensor, values: Tensor) -> Tensor:
    """Copy values to where a table is: to disk if they have its shape, else to its device."""
    if is_on_disk(table) and values.shape == table.shape:
        return zeros_stored_like(table).copy_(values)
    return values.detach().to(table.device, copy=True)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file. Large tensors are mapped: only pages that are used are read, changes are not written."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    for name, tensor in tensors.items():
        if tensor.nbytes < MIN_MAPPED_BYTES or tensor.data_ptr() % ALIGNMENT:
            tensors[name] = tensor.clone()
    return tensors


def write_tensors(tensors: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file in chunks. The safetensors library would copy all tensors in memory first.

    Args:
        tensors: The tensors by name.
        path: The file.
        metadata: Further texts for the header of the file.
    """
    # Widest types first, so that each tensor is aligned to its own size.
    ordered = dict(sorted(tensors.items(), key=lambda item: (-item[1].element_size(), -item[1].numel(), item[0])))
    entries: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    end = 0
    for name, tensor in ordered.items():
        begin, end = end, end + tensor.nbytes
        entries[name] = {"dtype": DTYPE_NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    header = json.dumps(entries).encode()
    header += b" " * (-(len(header) + 8) % ALIGNMENT)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for tensor in ordered.values():
            for chunk in torch.split(tensor.detach().reshape(-1), CHUNK_SIZE):
                file.write(chunk.cpu().view(torch.uint8).numpy().data)


class GatheredRows(NamedTuple):
    """Rows of a table that a training step read.

    Attributes:
        rows: Row numbers in ascending order, distinct but for padding, int64 `[num_rows]`.
        leaf: Their values `[num_rows, dim]`, a leaf tensor that receives their gradient.
    """

    rows: Tensor
    leaf: Tensor


class NodeTable(nn.Module):
    """A parameter `trained` with a row for each node, or for each local node.

    Args:
        values: The initial rows `[num_rows, dim]`, which the table takes over without a copy.
        partition: Which nodes are local, if nodes are partitioned over processes.

    Attributes:
        gathered: Within `Adam.factoring`, where the table's gradients are collected: the rows that the step has read so
            far, or factors of the gradient (`FactoredGradient`); else None.
    """

    partition: NodePartition | None
    gathered: list[Any] | None = None

    def __init__(self, values: Tensor, partition: NodePartition | None = None) -> None:
        """Create a table of these values."""
        super().__init__()
        self.partition, self.trained = partition, nn.Parameter(values)

    def rows_of(self, nodes: Tensor) -> Tensor:
        """Return the row numbers of nodes int64 `[n]`."""
        return nodes if self.partition is None else self.partition.row(nodes)

    def take(self, rows: Tensor) -> Tensor:
        """Return `trained[rows]`; within `RowOptimizer.factoring` as a leaf, so that no dense gradient is made."""
        if self.gathered is None:
            return take_rows(self.trained, rows)
        leaf = self.trained.detach().index_select(0, rows).requires_grad_()
        self.gathered.append(GatheredRows(rows, leaf))
        return leaf


class RowTable(NodeTable):
    """A table in two parts: `trained`, a parameter, and `still`, a buffer of rows that never receive a gradient.

    Rows that no training edge uses have no gradient, and Adam does not change them (without weight decay). Keeping them
    out of the parameter spares the optimizer reading and writing them in each step, and changes no value.

    `position` maps a row to its place: in the trained part, or after it. With a partition the rows are those of the
    local nodes, and all of them are trained.

    Args:
        values: The initial rows `[num_rows, ...]`, which the table takes over.
        trained: Which rows can receive a gradient, bool `[num_rows]`; None for all.
        partition: Which nodes are local, if nodes are partitioned over processes.
    """

    position: Tensor
    still: Tensor

    def __init__(self, values: Tensor, trained: Tensor | None = None, partition: NodePartition | None = None) -> None:
        """Create a table of these values."""
        still, position = values[:0].clone(), torch.arange(len(values) if partition is None else 0)
        if trained is not None and not trained.all():
            is_trained = trained.cpu()
            values, still = values[is_trained], values[~is_trained]
            position[is_trained] = torch.arange(len(values))
            position[~is_trained] = torch.arange(len(values), len(is_trained))
        super().__init__(values.contiguous(), partition)
        self.register_buffer("still", still)
        self.register_buffer("position", position)

    def __len__(self) -> int:
        """Return the number of rows, trained or not."""
        return self.position.numel() if self.partition is None else len(self.partition)

    def rows_of(self, nodes: Tensor) -> Tensor:
        """Return where the rows of nodes int64 `[n]` are: in the trained part, or after it."""
        return super().rows_of(nodes) if self.partition is not None else self.position.index_select(0, nodes)

    @property
    def all_trained(self) -> bool:
        """True if every row is a parameter; the trained part then has them in the original order."""
        return self.still.shape[0] == 0

    def table_for(self, positions: Tensor) -> Tensor:
        """Return the trained part if it has all rows that `positions` refers to, else both parts."""
        # If all rows are trained, a GPU must not be waited for.
        if self.all_trained or positions.numel() == 0 or int(positions.max()) < len(self.trained):
            return self.trained
        return self.whole()

    def whole(self) -> Tensor:
        """Return both parts, in the order of `position`."""
        return self.trained if self.all_trained else torch.cat([self.trained, self.still])

    def take_trained(self, rows: Tensor) -> Tensor:
        """Return distinct trained rows int64 `[n]`, in ascending order, as a batch reads them."""
        return take_rows(self.trained.flatten(1), rows).view(len(rows), *self.trained.shape[1:])

    def values(self) -> Tensor:
        """Return all rows in the original order."""
        return self.trained if self.all_trained else self.whole()[self.position]


class NodeEmbedding(nn.Module):
    """Learned node vectors E `[num_nodes, dim]`: an encoder's input without node features.

    Args:
        num_nodes: Number of nodes.
        dim: Dimension of a vector.
        init: How the vectors are initialized.
        generator: Source of the initial vectors.
        trained: Nodes whose vectors can receive a gradient, bool `[num_nodes]`; None for all.
        activated: Whether to add a bias and apply a ReLU, as the original link predictor does.
        on_disk: Whether to keep E in a memory-mapped file.
        partition: Which nodes are local, if nodes are partitioned over processes; only their vectors are held.

    Shapes: node ids int64 `[n]`, or None for all nodes in order → `[n, dim]`.

    >>> embedding = NodeEmbedding(5, 3, Initializer("normal"), torch.Generator().manual_seed(0))
    >>> embedding(torch.tensor([4, 0])).shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        num_nodes: int,
        dim: int,
        init: Initializer,
        generator: torch.Generator,
        trained: Tensor | None = None,
        activated: bool = False,
        on_disk: bool = False,
        partition: NodePartition | None = None,
    ) -> None:
        """Draw the initial vectors."""
        super().__init__()
        self.dim = dim
        shape = num_nodes if partition is None else len(partition), dim
        values = zeros_on_disk(shape) if on_disk else torch.empty(shape)
        if partition is None:
            init.draw(shape, generator, out=values)
        else:
            for nodes, chunk in init.draw_in_chunks((num_nodes, dim), generator):
                is_local = partition.is_local(nodes)
                values[partition.row(nodes[is_local])] = chunk[is_local]
        self.rows = RowTable(values, trained, partition)
        self.bias = nn.Parameter(torch.zeros(dim)) if activated else None
        self._lookups: tuple[tuple[Tensor, bool, SparsePattern | None], ...] = ()

    def forward(self, nodes: Tensor | None = None) -> Tensor:
        """Look up the vectors of nodes int64 `[n]`, or of all nodes: `[n, dim]`."""
        if nodes is None:
            rows = self.rows.values()
        elif self.rows.gathered is not None:  # then every row is trained, in the order of the nodes
            rows = self.rows.take(NodeTable.rows_of(self.rows, nodes))
        else:
            in_trained, pattern = self._lookup(nodes)
            table = self.rows.trained if in_trained else self.rows.whole()
            rows = table if pattern is None else take_rows(table, pattern)
        return rows if self.bias is None else torch.relu(rows + self.bias)

    def _lookup(self, nodes: Tensor) -> tuple[bool, SparsePattern | None]:
        """Return whether the trained part has all rows, and which rows the nodes need; None for all in order.

        Results are cached, because most calls pass the training or the validation nodes again, and because a step that
        a GPU recorded cannot wait for them.
        """
        found = next((lookup for lookup in self._lookups if lookup[0] is nodes), None)
        if found is None:
            position = self.rows.rows_of(nodes)
            size = self.rows.table_for(position).shape[0]
            in_order = len(nodes) == size and torch.equal(position, torch.arange(size, device=position.device))
            pattern = None if in_order else SparsePattern.selection(position, size)
            found = nodes, size == len(self.rows.trained), pattern
            # One assignment, so that another thread never sees a part of it.
            self._lookups = (found, *self._lookups[: NUM_CACHED_LOOKUPS - 1])
        return found[1:]


class NodeFeatures(nn.Module):
    """Constant node features X `[num_nodes, dim]`: an encoder's input that is not learned.

    Args:
        features: The features `[num_nodes, dim]`.

    Shapes: node ids int64 `[n]`, or None for all nodes in order → `[n, dim]`.
    """

    features: Tensor

    def __init__(self, features: Tensor) -> None:
        """Register the features as a buffer."""
        super().__init__()
        self.dim = features.shape[1]
        self.register_buffer("features", features)

    def forward(self, nodes: Tensor | None = None) -> Tensor:
        """Look up the features of nodes int64 `[n]`, or of all nodes: `[n, dim]`."""
        return self.features if nodes is None else self.features.index_select(0, nodes)


NodeInput: TypeAlias = "NodeEmbedding | NodeFeatures | None"  # an encoder's input; None for one-hot nodes


def partitions_by_name(network: nn.Module) -> dict[str, NodePartition]:
    """Return the partition of each parameter that has rows for local nodes only, by the parameter's name."""
    tables = ((path, module) for path, module in network.named_modules() if isinstance(module, NodeTable))
    return {f"{path}.trained": table.partition for path, table in tables if table.partition is not None}


def local_row_parameters(network: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that have rows for local nodes only."""
    return [network.get_parameter(name) for name in partitions_by_name(network)]


def gather_weights(network: nn.Module, placement: Placement, in_order: bool = False) -> Iterator[tuple[str, Tensor]]:
    """Yield the names and tensors of a network's state as a single process would have it. All ranks call this together.

    Args:
        network: The network.
        placement: Which rows are local. Only the main process receives the rows of all ranks.
        in_order: Whether to yield the rows of each `RowTable` in their original order instead of in two parts.
    """
    partitions, tables = partitions_by_name(network), _row_tables(network)
    for name, tensor in sorted(network.state_dict().items()):
        path, _, part = name.rpartition(".")
        table = tables.get(path)
        if name in partitions:
            shape = (partitions[name].num_nodes, *tensor.shape[1:])
            memory_for_all = allocate_tensor(shape, tensor.dtype) if placement.is_main else None
            gathered = placement.gather_rows(tensor, memory_for_all)
            yield name, tensor[:0] if gathered is None else gathered
        elif table is None or (table.partition is None and not in_order):
            yield name, tensor
        elif part == "position":
            yield name, torch.arange(len(table) if table.partition is None else table.partition.num_nodes)
        else:
            yield name, table.values() if part == "trained" else tensor[:0]


def arrange_weights(network: nn.Module, stored: Mapping[str, Tensor], local: Collection[str] = ()) -> dict[str, Tensor]:
    """Return stored weights with the rows of tables in the layout of a network.

    Args:
        network: The network that the weights are for.
        stored: The weights by name.
        local: Names of parameters of which `stored` has the rows of this process already.

    Raises:
        ValueError: If a stored table has another number of rows.
    """
    arranged, tables = dict(stored), _row_tables(network)
    for name, places in find_moved_rows(network, stored, local).items():
        path = name.rpartition(".")[0]
        arranged[name] = rows = take_stored_rows(places, stored[name], stored.get(f"{path}.still"))
        if (table := tables.get(path)) is not None:
            count = len(table.trained)
            arranged |= {name: rows[:count], f"{path}.still": rows[count:], f"{path}.position": table.position}
    parts = {f"{path}.{part}": getattr(table, part) for path, table in tables.items() for part in ("still", "position")}
    return parts | arranged


def find_moved_rows(network: nn.Module, stored: Mapping[str, Tensor], local: Collection[str] = ()) -> dict[str, Tensor]:
    """Find where the rows of a network's tables are in stored weights, for tables whose layout differs.

    Args:
        network: The network.
        stored: The weights by name.
        local: Names of parameters of which `stored` has the rows of this process already.

    Returns:
        By parameter name, the place of each row of the network in the stored parts, the trained one first: int64.
    """
    found, partitions, tables = {}, partitions_by_name(network), _row_tables(network)
    for name in sorted({*partitions, *(f"{path}.trained" for path in tables)} & set(stored) - set(local)):
        path = name.rpartition(".")[0]
        table, position, still = tables.get(path), stored.get(f"{path}.position"), stored.get(f"{path}.still")
        if name in partitions:
            rows, count = partitions[name].nodes, partitions[name].num_nodes
        elif table is None or (table.all_trained if position is None else torch.equal(position, table.position.cpu())):
            continue
        else:
            rows, count = torch.argsort(table.position).cpu(), len(table)
        places = rows if position is None else position[rows]
        num_stored = len(stored[name]) + (0 if still is None else len(still))
        if num_stored != count or (len(places) and not 0 <= int(places.min()) <= int(places.max()) < num_stored):
            raise ValueError(f"{name} has {num_stored:,} rows in the file and {count:,} in the network")
        found[name] = places
    return found


def take_stored_rows(places: Tensor, trained: Tensor, still: Tensor | None = None) -> Tensor:
    """Return rows of a table stored in two parts; zeros for rows of the second part if it is None."""
    places = places.to(trained.device)
    in_trained = places < len(trained)
    if bool(in_trained.all()):
        return trained[places]
    rows = trained.new_zeros(len(places), *trained.shape[1:])
    rows[in_trained] = trained[places[in_trained]]
    if still is not None:
        rows[~in_trained] = still[places[~in_trained] - len(trained)]
    return rows


def _row_tables(network: nn.Module) -> dict[str, RowTable]:
    return {path: module for path, module in network.named_modules() if isinstance(module, RowTable)}
