"""Tables with a row for each node: what nodes bring to the first convolution, tables on disk, and stored weights.

The file of a table on disk has no name from the moment it is made, so it goes with the process, however that ends.
What is to last is written in pieces, without a copy in memory (`write_tensors`).

The rows of a table may be stored in the two parts of a `RowTable`; in the order of nodes, without a `position` beside
them; or, by each of several processes, those of its local nodes alone. Weights written in one of these ways can be
loaded in any other.
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
from rgcn.kernels import FactoredGradient, take_rows
from rgcn.kernels.sparse import SparsePattern
from rgcn.nn.initialization import Initializer
from rgcn.placement import NodePartition, Placement
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


KNOWN = 4  # lists of nodes whose places are kept


class TakenRows(NamedTuple):
    """Rows int64 [m] of a table that a step took, sorted, each once (but for padding: `distinct`), and the leaf
    [m, width] that holds their values and gets their gradient."""

    rows: Tensor
    leaf: Tensor


class NodeTable(nn.Module):
    """A parameter `trained` with a row for each node, or for each local node.

    partition  where nodes are divided among processes: which nodes have their rows here
    taken      within `RowOptimizer.factoring`: the rows that the step has taken so far; None elsewhere
    """

    partition: NodePartition | None
    taken: list[TakenRows] | None = None

    def __init__(self, values: Tensor, partition: NodePartition | None = None) -> None:
        """values [rows, width]: the initial rows, which now belong to the table."""
        super().__init__()
        self.partition, self.trained = partition, nn.Parameter(values)

    def rows_of(self, nodes: Tensor) -> Tensor:
        """Where the rows of nodes int64 [n] are."""
        return nodes if self.partition is None else self.partition.row(nodes)

    def take(self, rows: Tensor) -> Tensor:
        """trained[rows]; within `RowOptimizer.factoring` as a leaf of its own, so that no gradient of the whole table
        is ever made."""
        if self.taken is None:
            return take_rows(self.trained, rows)
        self.taken.append(TakenRows(rows, self.trained.detach().index_select(0, rows).requires_grad_()))
        return self.taken[-1].leaf


class RowTable(NodeTable):
    """Rows [rows, ...] held in two parts: `trained`, a parameter, and `still`, rows no loss ever reaches.

    A row that no training edge touches gets no gradient, and Adam leaves such a row where it began (unless something
    decays it). Holding those rows apart spares the optimizer reading and writing them in every step, and changes no
    value. `position` says where each row is: in the trained part, or after it.

    With a partition, its rows are those of the local nodes, all of them trained.

    factored_gradients  where an optimizer takes this table's gradients as factors (`rgcn.training.optimizers`); None:
                        they are dense
    """

    position: Tensor
    still: Tensor
    factored_gradients: list[FactoredGradient] | None = None

    def __init__(self, values: Tensor, trained: Tensor | None = None, partition: NodePartition | None = None) -> None:
        """values [rows, ...]: the initial rows, which now belong to the table; trained bool [rows]: those a loss can
        reach (None: all)."""
        still, position = values[:0].clone(), torch.arange(len(values) if partition is None else 0)
        if trained is not None and not trained.all():
            reached = trained.cpu()
            values, still = values[reached], values[~reached]
            position[reached] = torch.arange(len(values))
            position[~reached] = torch.arange(len(values), len(reached))
        super().__init__(values.contiguous(), partition)
        self.register_buffer("still", still)
        self.register_buffer("position", position)

    def __len__(self) -> int:
        return self.position.numel() if self.partition is None else len(self.partition)

    def rows_of(self, nodes: Tensor) -> Tensor:
        """Where the rows of nodes int64 [n] are: in the trained part, or after it."""
        return super().rows_of(nodes) if self.partition is not None else self.position.index_select(0, nodes)

    @property
    def all_trained(self) -> bool:
        """Whether every row is a parameter; the trained part then holds them in the order they were given."""
        return self.still.shape[0] == 0

    def table_for(self, positions: Tensor) -> Tensor:
        """The rows, in the order of `position`, up to the last one that `positions` needs."""
        # Where all are trained there is nothing to look up, and on a GPU nothing to wait for.
        if self.all_trained or positions.numel() == 0 or int(positions.max()) < len(self.trained):
            return self.trained
        return self.whole()

    def whole(self) -> Tensor:
        """Both parts, in the order of `position`."""
        return self.trained if self.all_trained else torch.cat([self.trained, self.still])

    def picked(self, rows: Tensor) -> Tensor:
        """Some of the trained rows int64 [n], distinct and ascending: what a batch takes of a table."""
        return take_rows(self.trained.flatten(1), rows).view(len(rows), *self.trained.shape[1:])

    def values(self) -> Tensor:
        """All rows, in the order they were given."""
        return self.trained if self.all_trained else self.whole()[self.position]


class EmbeddingInput(nn.Module):
    """A learned vector for each node: E [nodes, width]; nodes [n] (None: all, in order) → [n, width].

    activated: add a bias and pass through ReLU, as the original link predictor does. on_disk: E is a file, mapped into
    memory. partition: E is divided among processes; this one holds the rows of its local nodes and gives no others.
    """

    def __init__(
        self,
        num_nodes: int,
        width: int,
        init: Initializer,
        generator: torch.Generator,
        trained: Tensor | None = None,
        activated: bool = False,
        on_disk: bool = False,
        partition: NodePartition | None = None,
    ) -> None:
        super().__init__()
        self.width = width
        size = num_nodes if partition is None else len(partition), width
        values = empty_on_disk(size) if on_disk else torch.empty(size)
        if partition is None:
            init.draw(size, generator, out=values)
        else:
            for nodes, part in init.drawn_in_parts((num_nodes, width), generator):
                local = partition.is_local(nodes)
                values[partition.row(nodes[local])] = part[local]
        self.rows = RowTable(values, trained, partition)
        self.bias = nn.Parameter(torch.zeros(width)) if activated else None
        self._known: tuple[tuple[Tensor, bool, SparsePattern | None], ...] = ()

    def forward(self, nodes: Tensor | None = None) -> Tensor:
        if nodes is None:
            rows = self.rows.values()
        elif self.rows.taken is not None:  # then every row is trained, in the order of nodes
            rows = self.rows.take(NodeTable.rows_of(self.rows, nodes))
        else:
            within, pattern = self._where(nodes)
            table = self.rows.trained if within else self.rows.whole()
            rows = table if pattern is None else take_rows(table, pattern)
        return rows if self.bias is None else torch.relu(rows + self.bias)

    def _where(self, nodes: Tensor) -> tuple[bool, SparsePattern | None]:
        """Whether the trained rows suffice, and which rows the nodes take, None for all in order.

        Most calls name the same nodes again, those that are learned from and those that are measured on, and the
        answers are kept: a step that a GPU recorded could not wait for them.
        """
        found = next((each for each in self._known if each[0] is nodes), None)
        if found is None:
            position = self.rows.rows_of(nodes)
            size = self.rows.table_for(position).shape[0]
            in_order = len(nodes) == size and torch.equal(position, torch.arange(size, device=position.device))
            rows = None if in_order else SparsePattern.picking(position, size)
            # One tuple, set at once: another thread that asks about other nodes meanwhile must not change the answer.
            found = nodes, size == len(self.rows.trained), rows
            self._known = (found, *self._known[: KNOWN - 1])
        return found[1:]


class FeatureInput(nn.Module):
    """Given features X [nodes, width], not learned; nodes [n] (None: all, in order) → [n, width]."""

    features: Tensor

    def __init__(self, features: Tensor) -> None:
        super().__init__()
        self.width = features.shape[1]
        self.register_buffer("features", features)

    def forward(self, nodes: Tensor | None = None) -> Tensor:
        return self.features if nodes is None else self.features.index_select(0, nodes)


Source: TypeAlias = "EmbeddingInput | FeatureInput | None"  # what nodes bring; None for one-hot nodes


def partitions_by_name(network: nn.Module) -> dict[str, NodePartition]:
    """The parameters of which this process holds the rows of its local nodes alone."""
    tables = ((path, module) for path, module in network.named_modules() if isinstance(module, NodeTable))
    return {f"{path}.trained": table.partition for path, table in tables if table.partition is not None}


def local_row_parameters(network: nn.Module) -> list[nn.Parameter]:
    """The same parameters themselves."""
    return [network.get_parameter(name) for name in partitions_by_name(network)]


def whole_weights(network: nn.Module, placement: Placement, in_order: bool = False) -> Iterator[tuple[str, Tensor]]:
    """A network's state by name, as a single process has it; where rows are divided only the main process gets them.

    in_order: with all rows of a table in their order, whether trained or not. All processes go through it together.
    """
    partitions, tables = partitions_by_name(network), _row_tables(network)
    for name, tensor in sorted(network.state_dict().items()):
        path, _, part = name.rpartition(".")
        table = tables.get(path)
        if name in partitions:
            shape = (partitions[name].num_nodes, *tensor.shape[1:])
            place = room_for(shape, tensor.dtype) if placement.is_main else None
            gathered = placement.gather_rows(tensor, place)
            yield name, tensor[:0] if gathered is None else gathered
        elif table is None or (table.partition is None and not in_order):
            yield name, tensor
        elif part == "position":
            yield name, torch.arange(len(table) if table.partition is None else table.partition.num_nodes)
        else:
            yield name, table.values() if part == "trained" else tensor[:0]


def arranged(network: nn.Module, kept: Mapping[str, Tensor], local: Collection[str] = ()) -> dict[str, Tensor]:
    """Stored weights by name, with the rows of tables as this network has them. ValueError where they are of another.

    local  parameters of which `kept` has the rows of this process's local nodes already
    """
    found, tables = dict(kept), _row_tables(network)
    for name, places in moved_rows(network, kept, local).items():
        path = name.rpartition(".")[0]
        found[name] = rows = rows_at(places, kept[name], kept.get(f"{path}.still"))
        if (table := tables.get(path)) is not None:
            count = len(table.trained)
            found |= {name: rows[:count], f"{path}.still": rows[count:], f"{path}.position": table.position}
    parts = {f"{path}.{part}": getattr(table, part) for path, table in tables.items() for part in ("still", "position")}
    return parts | found


def moved_rows(network: nn.Module, kept: Mapping[str, Tensor], local: Collection[str] = ()) -> dict[str, Tensor]:
    """By parameter, where each row that this network has lies in `kept`: int64, counted through both parts, trained
    rows first. Only of parameters whose rows lie elsewhere than here."""
    found, partitions, tables = {}, partitions_by_name(network), _row_tables(network)
    for name in sorted({*partitions, *(f"{path}.trained" for path in tables)} & set(kept) - set(local)):
        path = name.rpartition(".")[0]
        table, position, still = tables.get(path), kept.get(f"{path}.position"), kept.get(f"{path}.still")
        if name in partitions:
            rows, count = partitions[name].nodes, partitions[name].num_nodes
        elif table is None or (table.all_trained if position is None else torch.equal(position, table.position.cpu())):
            continue
        else:
            rows, count = torch.argsort(table.position).cpu(), len(table)
        places = rows if position is None else position[rows]
        held = len(kept[name]) + (0 if still is None else len(still))
        if held != count or (len(places) and not 0 <= int(places.min()) <= int(places.max()) < held):
            raise ValueError(f"{name} has {held:,} rows there, and {count:,} here")
        found[name] = places
    return found


def rows_at(places: Tensor, trained: Tensor, still: Tensor | None = None) -> Tensor:
    """Rows of a table held in two parts; zeros for those of a second part that is not given."""
    places = places.to(trained.device)
    first = places < len(trained)
    if bool(first.all()):
        return trained[places]
    found = trained.new_zeros(len(places), *trained.shape[1:])
    found[first] = trained[places[first]]
    if still is not None:
        found[~first] = still[places[~first] - len(trained)]
    return found


def _row_tables(network: nn.Module) -> dict[str, RowTable]:
    return {path: module for path, module in network.named_modules() if isinstance(module, RowTable)}
