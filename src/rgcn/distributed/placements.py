"""The placements of several processes, on torch.distributed: DataParallel and Sharded; how rows travel between them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rgcn.distributed import rendezvous
from rgcn.errors import ConfigError, DataError
from rgcn.kernels import take_rows
from rgcn.kernels.sparse import SparsePattern
from rgcn.nn.row_tables import TakenRows, local_row_parameters
from rgcn.placement import NodePartition, Placement, RowExchange, Traffic
from rgcn.system.atomic_files import TEMPORARY_PREFIX
from rgcn.training.optimizers import RowOptimizer

Result = TypeVar("Result")
AT_ONCE = 1 << 20  # rows gathered in one message
FOLDER_S = 10.0  # for a new file on shared storage to become visible


@dataclass(frozen=True, eq=False)
class DataParallel(Placement):
    """Every process holds the whole model and computes its share of each batch; gradients are summed."""

    @property
    def is_distributed(self) -> bool:
        return True

    def partitioned(self, num_nodes: int) -> Sharded:
        return Sharded(
            self.rank, self.size, NodePartition(num_nodes, self.rank, self.size), self.traffic, session=self.session
        )

    def local_targets(self, nodes: Tensor) -> Tensor:
        return torch.arange(len(nodes), device=nodes.device)[self.share(len(nodes))]

    def answer_share(self, count: int) -> slice:
        return self.share(count) if count >= self.size else slice(0, count)

    def gather_answers(self, rows: Tensor) -> Tensor:
        return self.all_gather(rows)

    # -- one step of training -------------------------------------------------------------------------------

    def mask_stream(self, shared: bool) -> int:
        return 0 if shared else self.rank + 1

    def all_reduce_gradients(self, network: nn.Module, optimizer: Any, loss: Tensor) -> Tensor:
        local = {id(parameter) for parameter in local_row_parameters(network)}
        summed = [p for p in network.parameters() if p.requires_grad and id(p) not in local]
        if isinstance(optimizer, RowOptimizer):
            self._gather_taken_rows(optimizer)
            summed = [parameter for parameter in summed if not optimizer.moves_rows_of(parameter)]
        for parameter in summed:
            if parameter.grad is None:  # one share of a batch may miss what another has
                parameter.grad = torch.zeros_like(parameter)
        total = loss.detach().clone()
        self.all_reduce(*(parameter.grad for parameter in summed if parameter.grad is not None), total)
        return total

    def _gather_taken_rows(self, optimizer: RowOptimizer) -> None:
        """Of tables that every process holds: the rows that any process took in this step, and their gradients."""
        for table, taken in optimizer.taken.items():
            if table.partition is not None:
                continue
            optimizer.leaves()
            nothing = TakenRows(torch.empty(0, dtype=torch.int64), table.trained.detach()[:0].clone())
            mine = taken[0] if taken else nothing
            gradient = torch.zeros_like(mine.leaf) if mine.leaf.grad is None else mine.leaf.grad
            sizes = self.exchange_counts([len(mine.rows)] * self.size)
            every, gradients = self.all_gather(mine.rows), self.all_gather(gradient)
            taken.clear()
            for rows, part in zip(torch.split(every, sizes), torch.split(gradients, sizes), strict=True):
                taken.append(TakenRows(rows, torch.empty_like(part)))
                taken[-1].leaf.grad = part

    def clip_gradients(self, network: nn.Module, extra: Sequence[Tensor], norm: float) -> None:
        sharded = local_row_parameters(network)
        local = {id(parameter) for parameter in (*sharded, *(extra if sharded else ()))}
        every = [*network.parameters(), *extra]
        squares = torch.zeros(2, device=every[0].device)  # of what all processes hold alike, and of local rows
        for parameter in every:
            if parameter.grad is not None:
                squares[int(id(parameter) in local)] += parameter.grad.square().sum()
        rows = squares[1:].clone()
        self.all_reduce(rows)
        factor = (norm / ((squares[0] + rows[0]).sqrt() + 1e-6)).clamp(max=1.0)
        for parameter in every:
            if parameter.grad is not None:
                parameter.grad.mul_(factor)

    # -- messages between processes ---------------------------------------------------------------------------

    @property
    def device(self) -> torch.device:
        """Where small tensors that are exchanged must be."""
        nccl = dist.get_backend() == "nccl"
        return torch.device("cuda", torch.cuda.current_device()) if nccl else torch.device("cpu")

    def all_reduce(self, *tensors: Tensor) -> None:
        by_kind: dict[Any, list[Tensor]] = {}
        for tensor in tensors:
            by_kind.setdefault((tensor.dtype, tensor.device), []).append(tensor)
        for alike in by_kind.values():  # one message for all of a kind
            flat = torch.cat([tensor.reshape(-1) for tensor in alike])
            dist.all_reduce(flat)
            size = 2 * (self.size - 1) * flat.nbytes // self.size
            self.traffic.count(size, size)
            for tensor, total in zip(alike, torch.split(flat, [tensor.numel() for tensor in alike]), strict=True):
                tensor.copy_(total.view_as(tensor))

    def any(self, *flags: bool) -> tuple[bool, ...]:
        found = torch.tensor(flags, dtype=torch.int32, device=self.device)
        self.all_reduce(found)
        return tuple(bool(count) for count in found.tolist())

    def all_to_all(self, rows: Tensor, given: Sequence[int], received: Sequence[int], necessary: bool = True) -> Tensor:
        """Send local rows [sum(given), ...], those for rank 0 first; what the other processes sent here, in rank order.

        received   how many rows each process sends
        necessary  whether no process could do without these rows (`Traffic.least`)
        """
        found = rows.new_empty(sum(received), *rows.shape[1:])
        dist.all_to_all_single(found, rows.contiguous(), list(received), list(given))
        away = (len(rows) - given[self.rank]) * (rows[:1].nbytes if len(rows) else 0)
        self.traffic.count(away, away if necessary else 0)
        return found

    def exchange_counts(self, given: Sequence[int]) -> list[int]:
        """How many rows each process has for this one, which has so many for each."""
        asked, ones = torch.tensor(given, dtype=torch.int64, device=self.device), [1] * self.size
        return [int(count) for count in self.all_to_all(asked, ones, ones, necessary=False).tolist()]

    def all_gather(self, rows: Tensor) -> Tensor:
        sizes = self.exchange_counts([len(rows)] * self.size)
        repeated = rows.expand(self.size, *rows.shape).flatten(0, 1) if rows.ndim > 1 else rows.repeat(self.size)
        return self.all_to_all(repeated, [len(rows)] * self.size, sizes)

    def gather_values(self, value: Any) -> list[Any]:
        said = torch.frombuffer(bytearray(json.dumps(value).encode() + b"\n"), dtype=torch.uint8).to(self.device)
        return [json.loads(line) for line in self.all_gather(said).cpu().numpy().tobytes().splitlines()]

    def on_all(self, work: Callable[[], Result]) -> Result:
        done, failure = None, None
        try:
            done = work()
        except Exception as error:
            failure = error
        said = getattr(failure, "strerror", None) or str(failure) or type(failure).__name__
        about = (getattr(failure, "errno", None), f"process {self.rank}: {said}")
        failures = self.gather_values(None if failure is None else about)
        if failure is not None:
            raise failure
        for number, words in filter(None, failures):
            raise DataError(words) if number is None else OSError(number, words)
        return cast("Result", done)

    def barrier(self) -> None:
        self.any(False)

    def require_same(self, what: str, value: Mapping[str, Any]) -> None:
        rendezvous.refuse_differences(what, self.gather_values(value))

    def require_shared_folder(self, folder: Path) -> None:
        token = folder / self.from_main(lambda: f"{TEMPORARY_PREFIX}{uuid4().hex}")
        if self.is_main:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                token.touch()
            except OSError as error:
                raise DataError(f"cannot write in {folder}: {error.strerror}; choose another folder") from error
        self.barrier()  # only now there is something to see, for which shared storage may need a moment
        seen = self.gather_values(rendezvous.wait_until(token.exists, FOLDER_S))
        if self.is_main:
            token.unlink(missing_ok=True)
        if not all(seen):
            blind = ", ".join(str(rank) for rank, found in enumerate(seen) if not found)
            raise DataError(
                f"process {blind} of {self.size} does not see {folder}: all must see the run's folder at the same "
                "place, on storage that they share (--out)"
            )
        if self.session is not None:  # failures then advise to resume
            self.session.advice = f": the others stop; {rendezvous.RESUME_ADVICE.format(folder)}"

    def check_device(self, name: str) -> None:
        ranks, gpus = rendezvous.number_of("LOCAL_WORLD_SIZE", 1), torch.cuda.device_count()
        if 0 < gpus < ranks:
            words = f"NCCL wants a GPU for each process: here are {ranks}, and {gpus} GPU"
            raise ConfigError(f"{words}; or take --device cpu")
        if ":" in name:
            raise ConfigError(f"each process computes on a GPU of its own: ask for cuda, not for {name}")

    def is_lost_process(self, error: BaseException) -> bool:
        return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))

    def describe_traffic(self, traffic: Traffic, steps: int) -> dict[str, int]:
        every = torch.tensor([traffic.sent, traffic.least], device=self.device)
        self.all_reduce(every)
        sent, least = (every // max(steps, 1)).tolist()
        return {"processes": self.size, "sent": sent, "least": least}


@dataclass(frozen=True, eq=False)
class Sharded(DataParallel):
    """Data-parallel, and every process holds its own part of the nodes: rows of tables, and the edges into them."""

    partition: NodePartition = NodePartition(0, 0, 1)  # noqa: RUF009 - it is immutable; `partitioned` gives the real one

    def local_targets(self, nodes: Tensor) -> Tensor:
        return torch.nonzero(self.partition.is_local(nodes)).squeeze(1)

    def exchange(self, nodes: Tensor, all_local: bool = False) -> RowExchange:
        return PeerExchange.of(self, nodes, all_local)

    def answer_share(self, count: int) -> slice:
        return slice(0, count)  # all processes answer every question together, each among its own nodes

    def gather_answers(self, rows: Tensor) -> Tensor:
        return rows

    def sum_over_nodes(self, *tensors: Tensor) -> None:
        self.all_reduce(*tensors)

    def stack_over_nodes(self, rows: Tensor) -> Tensor:
        return self.all_gather(rows.to(self.device)).view(self.size, *rows.shape)

    def gather_rows(self, rows: Tensor, out: Tensor | None = None) -> Tensor | None:
        """Some rows travel at a time, so that only the main process holds more than its own."""
        num_nodes, main = self.partition.num_nodes, self.is_main
        if main and out is None:
            out = rows.new_empty(num_nodes, *rows.shape[1:])
        for begin in range(0, num_nodes, AT_ONCE):
            nodes = torch.arange(begin, min(begin + AT_ONCE, num_nodes) if main else begin, device=rows.device)
            exchange = self.exchange(nodes)
            found = exchange(rows.detach()[self.partition.row(exchange.needed)])
            if main and out is not None:
                out[begin : begin + len(found)] = found
        return out if main else None


@dataclass(frozen=True, eq=False)
class PeerExchange(RowExchange):
    """A row exchange between processes.

    give             which rows of `needed` go out, those for rank 0 first
    order            where each row that comes in belongs
    given, received  how many rows go to each process, and come from it
    """

    placement: Sharded
    give: SparsePattern
    order: SparsePattern
    given: list[int]
    received: list[int]

    @classmethod
    def of(cls, placement: Sharded, nodes: Tensor, all_local: bool) -> PeerExchange:
        """Ask for the rows of nodes int64 [n], distinct; arguments as for `Placement.exchange`."""
        partition, device = placement.partition, nodes.device
        owner = partition.owner(nodes)
        order = torch.argsort(owner, stable=True)
        received = torch.bincount(owner, minlength=placement.size).tolist()
        given = placement.exchange_counts(received)
        requests = nodes[order].to(placement.device)
        asked = placement.all_to_all(requests, received, given, necessary=False).to(device)
        if all_local:
            needed, give = partition.nodes.to(device), partition.row(asked)
        else:
            needed, give = torch.unique(asked, return_inverse=True)
        picks = SparsePattern.picking(give, len(needed)), SparsePattern.picking(torch.argsort(order), len(order))
        return cls(needed, placement, *picks, given, received)

    def to(self, device: torch.device) -> PeerExchange:
        give, order = (
            SparsePattern.picking(each.column.to(device), each.num_columns) for each in (self.give, self.order)
        )
        return replace(self, needed=self.needed.to(device), give=give, order=order)

    def __call__(self, rows: Tensor) -> Tensor:
        flat = rows.flatten(1) if rows.ndim > 1 else rows[:, None]
        swapped: Tensor = _Swap.apply(take_rows(flat, self.give), self)  # type: ignore[no-untyped-call]
        found = take_rows(swapped, self.order)
        return found.view(len(found), *rows.shape[1:])


class _Swap(torch.autograd.Function):
    """Rows go to the processes that asked for them; their gradients come back."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, exchange: PeerExchange) -> Tensor:
        ctx.exchange = exchange
        return exchange.placement.all_to_all(rows, exchange.given, exchange.received)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        exchange = ctx.exchange
        return exchange.placement.all_to_all(gradient, exchange.received, exchange.given), None
