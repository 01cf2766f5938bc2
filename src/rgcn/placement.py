"""Which nodes, batches and answers this process computes: the interface, and its implementation for one process.

A placement is the only object that knows how many processes there are. Models, layers, samplers, optimizers and tasks
are written once, for the local part that a placement assigns to them:

    Placement     One process holds and computes everything (this file).
    DataParallel  Every process holds the whole model and computes its share of each batch.
    Sharded       Every process also holds a part of the nodes: their rows of tables and the edges into them.

The last two are implemented in `rgcn.distributed`. `current()` returns the placement of this program; a model that can
be sharded calls its `partitioned(num_nodes)`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:  # PyTorch takes a second to load, and every command reads `current()`
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import torch
    from torch import Tensor, nn

Result = TypeVar("Result")
GOLDEN_RATIO = (math.sqrt(5.0) - 1.0) / 2.0


@dataclass(frozen=True, eq=False)
class NodePartition:
    """The nodes of a graph divided into parts of equal size, and which part is local.

    The nodes are permuted, position = a · id mod N with a near N / golden ratio, and each part is a range of positions.
    Nodes with neighboring ids are often similar; the permutation assigns them to different parts, so that no part has
    most of the hubs. It does not depend on the number of parts and needs no memory.

    Args:
        num_nodes: The number of nodes in all parts.
        rank: The number of the local part, from 0.
        size: The number of parts.

    >>> import torch
    >>> parts = [NodePartition(10, rank, 3) for rank in range(3)]
    >>> [part.nodes.tolist() for part in parts]
    [[0, 3, 6, 9], [2, 5, 8, 1], [4, 7]]
    >>> parts[0].owner(torch.tensor([0, 1, 2, 4])).tolist()
    [0, 1, 1, 2]
    """

    num_nodes: int
    rank: int
    size: int

    @cached_property
    def factor(self) -> int:
        """The factor a. It is coprime to the number of nodes, so that the positions are a permutation."""
        near = max(1, round(self.num_nodes * GOLDEN_RATIO))
        return next(a for a in range(near, 2 * near + 2) if math.gcd(a, self.num_nodes) == 1)

    @property
    def block(self) -> int:
        """The number of nodes in a part; the last parts may have fewer."""
        return -(-self.num_nodes // self.size)

    @property
    def first(self) -> int:
        """The position of the first local node."""
        return min(self.num_nodes, self.rank * self.block)

    def __len__(self) -> int:
        """Return the number of local nodes."""
        return min(self.num_nodes, self.first + self.block) - self.first

    def position(self, nodes: Tensor) -> Tensor:
        """Return the positions of nodes, int64 [n]."""
        return nodes * self.factor % self.num_nodes

    def node_at(self, positions: Tensor) -> Tensor:
        """Return the nodes at these positions, int64 [n]."""
        if self.num_nodes <= 1:
            return positions
        return positions * pow(self.factor, -1, self.num_nodes) % self.num_nodes

    def owner(self, nodes: Tensor) -> Tensor:
        """Return the number of the part that each node belongs to, int64 [n]."""
        return self.position(nodes) // self.block

    def row(self, nodes: Tensor) -> Tensor:
        """Return the rows of local nodes in local tables, int64 [n]."""
        return self.position(nodes) - self.first

    def is_local(self, nodes: Tensor) -> Tensor:
        """Return which of the nodes are local, bool [n]."""
        return self.owner(nodes) == self.rank

    @cached_property
    def nodes(self) -> Tensor:
        """The local nodes in the order of their rows, int64 [num_local]."""
        import torch

        return self.node_at(torch.arange(self.first, self.first + len(self)))


@dataclass(frozen=True, eq=False)
class RowExchange:
    """Fetches rows of nodes from the processes that compute them. In a single process all rows are local.

        exchange = placement.exchange(nodes)
        rows = exchange(node_states(exchange.needed))  # [num_nodes, width] in the order of `nodes`, with gradients

    Args:
        needed: The local nodes whose rows the caller must compute, because some process requested them, int64 [n].
    """

    needed: Tensor

    def to(self, device: torch.device) -> RowExchange:
        """Return the exchange for tensors on another device."""
        return RowExchange(self.needed.to(device))

    def __call__(self, rows: Tensor) -> Tensor:
        """Return the rows of the requested nodes [num_nodes, ...], from the rows of `needed` [num_needed, ...]."""
        return rows


@dataclass
class Traffic:
    """Bytes that this process sent to others, and a lower bound on them.

    Args:
        sent_bytes: Everything that was sent, including the ids of requested rows.
        min_bytes: The bytes that any implementation must send: each row that another process lacks once, and its
            gradient back; for an all-reduce over P processes 2 (P - 1) / P of the size of the tensor.
    """

    sent_bytes: int = 0
    min_bytes: int = 0

    def add(self, sent_bytes: int, min_bytes: int) -> None:
        """Add the bytes of one message."""
        self.sent_bytes += sent_bytes
        self.min_bytes += min_bytes


@dataclass(frozen=True, eq=False)
class Placement:
    """What this process computes, and how the results of all processes are combined. This class is for one process.

    Args:
        rank: The number of this process, from 0.
        size: The number of processes (world size).
        partition: Which nodes are local; None if every process holds all nodes.
        traffic: The bytes sent so far.
        session: The connection to the other processes (`rgcn.distributed.rendezvous.Session`).
    """

    rank: int = 0
    size: int = 1
    partition: NodePartition | None = None
    traffic: Traffic = field(default_factory=Traffic)
    session: Any = None

    @property
    def is_distributed(self) -> bool:
        """True if there are other processes."""
        return self.size > 1

    @property
    def is_main(self) -> bool:
        """True if this process prints and writes files for all."""
        return self.rank == 0

    def partitioned(self, num_nodes: int) -> Placement:
        """Return the placement of a model whose nodes are divided among the processes."""
        return self

    # -- which part of the work is local ------------------------------------------------------------------

    def share(self, count: int) -> slice:
        """Return the local share of a batch of `count` items; the sizes of shares differ by at most one.

        >>> [Placement(rank, 3).share(8) for rank in range(3)]
        [slice(0, 3, None), slice(3, 6, None), slice(6, 8, None)]
        """
        least, more = divmod(count, self.size)
        begin = self.rank * least + min(self.rank, more)
        return slice(begin, begin + least + (self.rank < more))

    def local_targets(self, nodes: Tensor) -> Tensor:
        """Return which nodes of a batch this process computes, as int64 indices into `nodes`."""
        import torch

        return torch.arange(len(nodes), device=nodes.device)

    def exchange(self, nodes: Tensor, all_local: bool = False) -> RowExchange:
        """Request rows of nodes. All processes must call this at the same time.

        Args:
            nodes: The distinct nodes, int64 [n].
            all_local: True if the caller computes the rows of all its local nodes, not only of the needed ones.
        """
        return RowExchange(nodes)

    def answer_share(self, count: int) -> slice:
        """Return which of `count` questions this process answers."""
        return slice(0, count)

    def gather_answers(self, rows: Tensor) -> Tensor:
        """Return the answers to all questions, from those to the local share [n, ...]."""
        return rows

    def sum_over_nodes(self, *tensors: Tensor) -> None:
        """Replace sums over the local nodes, in place, by sums over all nodes."""

    def stack_over_nodes(self, rows: Tensor) -> Tensor:
        """Stack the rows that each process computed for its local nodes: [num_parts, ...]."""
        return rows[None]

    # -- one step of training -------------------------------------------------------------------------------

    def mask_stream(self, shared: bool) -> int | None:
        """Return a seed for dropout masks, or None to use PyTorch's global generator.

        Args:
            shared: True if all processes must draw the same mask.
        """
        return None

    def all_reduce_gradients(self, network: nn.Module, optimizer: Any, loss: Tensor) -> Tensor:
        """Sum the gradients over the processes, and return the loss of the whole batch."""
        return loss.detach()

    def clip_gradients(self, network: nn.Module, extra: Sequence[Tensor], norm: float) -> None:
        """Clip the norm of the gradients of all parameters of the network and of the extra tensors."""
        import torch

        torch.nn.utils.clip_grad_norm_([*network.parameters(), *extra], norm)

    # -- messages between processes ---------------------------------------------------------------------------

    def all_reduce(self, *tensors: Tensor) -> None:
        """Replace each tensor, in place, by its sum over the processes."""

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """Return, for each flag, whether it is True in any process."""
        return flags

    def all_gather(self, rows: Tensor) -> Tensor:
        """Concatenate the rows [n, ...] of all processes in the order of ranks; n may differ between processes."""
        return rows

    def gather_rows(self, rows: Tensor, out: Tensor | None = None) -> Tensor | None:
        """Return the whole table in the order of nodes on rank 0, from local rows; None on other ranks."""
        return rows

    def gather_values(self, value: Any) -> list[Any]:
        """Return the JSON-like values of all processes in the order of ranks."""
        return [value]

    def from_main(self, make: Callable[[], Any]) -> Any:
        """Call `make` on rank 0 and broadcast its result, a JSON-like value."""
        return self.gather_values(make() if self.is_main else None)[0]

    def on_all(self, work: Callable[[], Result]) -> Result:
        """Run `work`, which must not communicate, on every rank. If it fails on one, it fails on all."""
        return work()

    def on_main(self, work: Callable[[], Result]) -> Result | None:
        """Run `work` on rank 0 only. If it fails there, it fails on all ranks."""
        return self.on_all(lambda: work() if self.is_main else None)

    def barrier(self) -> None:
        """Wait until every process has called this."""

    def require_same(self, what: str, value: Mapping[str, Any]) -> None:
        """Raise ConfigError on all ranks if the value of one differs; the message names the difference."""

    def require_shared_folder(self, folder: Path) -> None:
        """Create the folder if it does not exist, and raise DataError unless all processes see it."""

    def check_device(self, name: str) -> None:
        """Raise ConfigError if the processes cannot compute on this device."""

    def is_lost_process(self, error: BaseException) -> bool:
        """Return True if the error means that the connection to another process broke."""
        return False

    def describe_traffic(self, traffic: Traffic, steps: int) -> dict[str, int] | None:
        """Return the bytes that all processes together sent per step, for JSON; None for one process."""
        return None


LOCAL = Placement()
_current: Placement = LOCAL


def current() -> Placement:
    """Return the placement of this program: `LOCAL`, unless it has joined other processes."""
    return _current


def use(placement: Placement) -> None:
    """Set the placement of this program."""
    global _current
    _current = placement
