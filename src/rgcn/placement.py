"""Where a model's nodes, batches and answers are computed: the interface, and the case of a single process.

A placement is the only object that knows how many processes there are. Models, layers, samplers, optimizers and tasks
are written once, for the local part that a placement gives them:

    Local         one process holds and computes everything (this file)
    DataParallel  every process holds the whole model and computes its share of each batch
    Sharded       every process also holds its own part of the nodes: their rows of tables and the edges into them

The other two are implemented in `rgcn.distributed`. `current()` is the placement that a program was started with; a
model that can be divided by nodes asks it for `partitioned(num_nodes)`.
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
GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


@dataclass(frozen=True, eq=False)
class NodePartition:
    """The nodes of a graph divided into parts of equal size, and which part is local.

    Nodes are put in a fixed order that mixes them, position = a · id mod N with a near N / golden ratio, and each part
    is a run of positions. Neighbors in id, which often are alike, land in different parts, so that hubs are spread. The
    order does not depend on the number of parts, nothing is stored for it, and tables in this order are cut in blocks.

    num_nodes   how many nodes there are in all parts
    rank, size  the number of the local part, and of parts

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
        """The factor a: coprime to the number of nodes, so that every position is taken once."""
        near = max(1, round(self.num_nodes * GOLDEN))
        return next(a for a in range(near, 2 * near + 2) if math.gcd(a, self.num_nodes) == 1)

    @property
    def block(self) -> int:
        """Nodes in each part but the last ones."""
        return -(-self.num_nodes // self.size)

    @property
    def first(self) -> int:
        """The position of the first local node."""
        return min(self.num_nodes, self.rank * self.block)

    def __len__(self) -> int:
        """The number of local nodes."""
        return min(self.num_nodes, self.first + self.block) - self.first

    def position(self, nodes: Tensor) -> Tensor:
        """The positions of nodes int64 in the order of all parts."""
        return nodes * self.factor % self.num_nodes

    def node_at(self, positions: Tensor) -> Tensor:
        """The nodes int64 at these positions."""
        if self.num_nodes <= 1:
            return positions
        return positions * pow(self.factor, -1, self.num_nodes) % self.num_nodes

    def owner(self, nodes: Tensor) -> Tensor:
        """The part that each node belongs to."""
        return self.position(nodes) // self.block

    def row(self, nodes: Tensor) -> Tensor:
        """The rows of local nodes int64 in local tables."""
        return self.position(nodes) - self.first

    def is_local(self, nodes: Tensor) -> Tensor:
        """bool: which of the nodes are local."""
        return self.owner(nodes) == self.rank

    @cached_property
    def nodes(self) -> Tensor:
        """int64: the local nodes, in the order of their rows."""
        import torch

        return self.node_at(torch.arange(self.first, self.first + len(self)))


@dataclass(frozen=True, eq=False)
class RowExchange:
    """Fetches rows of nodes from whichever process computes them. Here everything is local and nothing moves.

    needed  int64: the local nodes whose rows the caller must compute, because some process asked for them

        exchange = placement.exchange(nodes)
        rows = exchange(states_of(exchange.needed))   # [nodes, width], in the order of `nodes`; with gradients
    """

    needed: Tensor

    def to(self, device: torch.device) -> RowExchange:
        return RowExchange(self.needed.to(device))

    def __call__(self, rows: Tensor) -> Tensor:
        """rows [needed, ...] → the rows of the nodes that were asked for [n, ...], in their order."""
        return rows


@dataclass
class Traffic:
    """Bytes that this process sent to others, and the least that would have sufficed.

    sent   everything sent, including the ids of requested rows
    least  every row that another process lacks once, and its gradient back; sums at 2 (P - 1) / P of their size, the
           least that an all-reduce over P processes takes
    """

    sent: int = 0
    least: int = 0

    def count(self, sent: int, least: int) -> None:
        self.sent += sent
        self.least += least


@dataclass(frozen=True, eq=False)
class Placement:
    """What is local, and how local results become those of all processes. The methods here are those of one process.

    rank, size  the number of this process, from 0, and of all processes
    partition   which nodes are local; None where every process holds all of them
    traffic     bytes sent so far
    session     what the process began when it joined others (`rgcn.distributed.rendezvous.Session`)
    """

    rank: int = 0
    size: int = 1
    partition: NodePartition | None = None
    traffic: Traffic = field(default_factory=Traffic)
    session: Any = None

    @property
    def is_distributed(self) -> bool:
        """Whether there are other processes."""
        return self.size > 1

    @property
    def is_main(self) -> bool:
        """Whether this process prints and writes for all."""
        return self.rank == 0

    def partitioned(self, num_nodes: int) -> Placement:
        """The placement of a model whose nodes are divided among the processes."""
        return self

    # -- which part of the work is local ------------------------------------------------------------------

    def share(self, count: int) -> slice:
        """The local share of `count` items in a row; shares differ by one at most.

        >>> [Placement(rank, 3).share(8) for rank in range(3)]
        [slice(0, 3, None), slice(3, 6, None), slice(6, 8, None)]
        """
        least, more = divmod(count, self.size)
        begin = self.rank * least + min(self.rank, more)
        return slice(begin, begin + least + (self.rank < more))

    def local_targets(self, nodes: Tensor) -> Tensor:
        """int64: which of the nodes of a batch are computed here, by their places in it."""
        import torch

        return torch.arange(len(nodes), device=nodes.device)

    def exchange(self, nodes: Tensor, all_local: bool = False) -> RowExchange:
        """Ask for rows of nodes int64 [n], distinct. All processes ask at the same time.

        all_local  the caller will give rows of all its local nodes, in their order, not only of the needed ones
        """
        return RowExchange(nodes)

    def answer_share(self, count: int) -> slice:
        """Which of `count` questions over the whole graph are answered here."""
        return slice(0, count)

    def gather_answers(self, rows: Tensor) -> Tensor:
        """The answers to all questions, from those to the local share [n, ...]."""
        return rows

    def sum_over_nodes(self, *tensors: Tensor) -> None:
        """Replace, in place, what was counted among the local nodes by the sum over all nodes."""

    def stack_over_nodes(self, rows: Tensor) -> Tensor:
        """[parts, ...]: what each process found among its local nodes."""
        return rows[None]

    # -- one step of training -------------------------------------------------------------------------------

    def mask_stream(self, shared: bool) -> int | None:
        """A number for the random stream of dropout masks; None to keep the program's own stream.

        shared  True if all processes must draw the same mask
        """
        return None

    def all_reduce_gradients(self, network: nn.Module, optimizer: Any, loss: Tensor) -> Tensor:
        """Sum the gradients of all processes' shares of a batch; returns the loss of the whole batch."""
        return loss.detach()

    def clip_gradients(self, network: nn.Module, extra: Sequence[Tensor], norm: float) -> None:
        """Scale the gradients of all parameters, and of further leaves, down to this norm."""
        import torch

        torch.nn.utils.clip_grad_norm_([*network.parameters(), *extra], norm)

    # -- messages between processes ---------------------------------------------------------------------------

    def all_reduce(self, *tensors: Tensor) -> None:
        """Replace every tensor, in place, by its sum over the processes."""

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """For each flag, whether it is set in any process."""
        return flags

    def all_gather(self, rows: Tensor) -> Tensor:
        """The rows [n, ...] of all processes, those of rank 0 first; their numbers may differ."""
        return rows

    def gather_rows(self, rows: Tensor, out: Tensor | None = None) -> Tensor | None:
        """A whole table in the order of nodes, from local rows; on the main process only, elsewhere None."""
        return rows

    def gather_values(self, value: Any) -> list[Any]:
        """A plain value (as JSON has it) of every process, that of rank 0 first."""
        return [value]

    def from_main(self, make: Callable[[], Any]) -> Any:
        """What the main process makes, a plain value, on every process."""
        return self.gather_values(make() if self.is_main else None)[0]

    def on_all(self, work: Callable[[], Result]) -> Result:
        """Run `work`, which exchanges nothing, in every process; if it fails in one, it fails in all."""
        return work()

    def on_main(self, work: Callable[[], Result]) -> Result | None:
        """Run `work` in the main process alone; if it fails there, it fails in all."""
        return self.on_all(lambda: work() if self.is_main else None)

    def barrier(self) -> None:
        """Wait until every process is here."""

    def require_same(self, what: str, value: Mapping[str, Any]) -> None:
        """Raise ConfigError in all processes where one has another value, naming it and the difference."""

    def require_shared_folder(self, folder: Path) -> None:
        """Raise DataError where not all processes see the folder, which is made if need be."""

    def check_device(self, name: str) -> None:
        """Raise ConfigError where the processes cannot compute on a device of this name."""

    def is_lost_process(self, error: BaseException) -> bool:
        """Whether an error means that the connection to another process broke."""
        return False

    def describe_traffic(self, traffic: Traffic, steps: int) -> dict[str, int] | None:
        """Bytes that all processes together sent in each step, ready for JSON; None for one process."""
        return None


LOCAL = Placement()
_current: Placement = LOCAL


def current() -> Placement:
    """The placement this program runs in: `LOCAL`, unless it has joined other processes."""
    return _current


def use(placement: Placement) -> None:
    """Run in this placement from now on."""
    global _current
    _current = placement
