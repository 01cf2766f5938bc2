"""The placements of several processes, on torch.distributed: DataParallel and Sharded."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rgcn.distributed import rendezvous
from rgcn.distributed.row_exchange import PeerExchange
from rgcn.errors import DataError
from rgcn.nn.row_tables import TakenRows, local_row_parameters
from rgcn.placement import NodePartition, Placement, RowExchange, Traffic
from rgcn.training.optimizers import RowOptimizer

Result = TypeVar("Result")
AT_ONCE = 1 << 20  # rows gathered in one message


@dataclass(frozen=True, eq=False)
class DataParallel(Placement):
    """Every process holds the whole model and computes its share of each batch; gradients are summed.

    session  what `rendezvous.join` began
    """

    session: rendezvous.Session | None = None

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
        words = None if failure is None else f"process {self.rank}: {failure or type(failure).__name__}"
        failures = self.gather_values(words)
        if failure is not None:
            raise failure
        for other in filter(None, failures):
            raise DataError(other)
        return cast("Result", done)

    def barrier(self) -> None:
        self.any(False)

    def require_same(self, what: str, value: Mapping[str, Any]) -> None:
        rendezvous.refuse_differences(what, self.gather_values(value))

    def require_shared_folder(self, folder: Path) -> None:
        rendezvous.require_shared_folder(self, folder)

    def check_device(self, name: str) -> None:
        rendezvous.refuse_shared_gpus(name)

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
