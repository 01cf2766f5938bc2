"""What nodes bring to the first convolution: rows that are learned, or given features; one-hot nodes bring nothing."""

from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from rgcn.kernels import FactoredGradient, take_rows
from rgcn.kernels.sparse import SparsePattern
from rgcn.nn.initialization import Initializer
from rgcn.nn.table_files import empty_on_disk
from rgcn.placement import NodePartition

MOVED_AT_ONCE = 1 << 16  # rows
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
    """

    position: Tensor
    still: Tensor
    factored_gradients: list[FactoredGradient] | None = None
    """Where an optimizer takes this table's gradients as factors (`rgcn.training.optimizers`); None: they are dense."""

    def __init__(self, values: Tensor, trained: Tensor | None = None, partition: NodePartition | None = None) -> None:
        """values [rows, ...]: the initial rows, which now belong to the table; trained bool [rows]: those a loss can
        reach (None: all)."""
        if partition is not None:
            super().__init__(values, partition)
            self.register_buffer("still", values[:0])
            self.register_buffer("position", torch.empty(0, dtype=torch.int64))
            return
        reached = torch.ones(len(values), dtype=torch.bool) if trained is None else trained.cpu()
        still = values[~reached].contiguous()
        # Rows move forward in their own memory, which for a large table is most of what there is.
        values, count = values.contiguous(), 0
        if len(still):
            for part in torch.split(torch.nonzero(reached).squeeze(1), MOVED_AT_ONCE):
                values[count : count + len(part)] = values[part]
                count += len(part)
            values = values[:count]
        super().__init__(values)
        self.register_buffer("still", still)
        position = torch.empty(len(reached), dtype=torch.int64)
        position[reached] = torch.arange(len(values))
        position[~reached] = torch.arange(len(values), len(reached))
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
        place = empty_on_disk(size) if on_disk else None
        if partition is None:
            self.rows = RowTable(init.draw(size, generator, out=place), trained)
        else:
            place = torch.empty(size) if place is None else place
            for nodes, part in init.drawn_in_parts((num_nodes, width), generator):
                local = partition.is_local(nodes)
                place[partition.row(nodes[local])] = part[local]
            self.rows = RowTable(place, partition=partition)
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
