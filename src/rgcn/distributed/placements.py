"""Placements of several processes, on torch.distributed: `DataParallel`, `Sharded`, and the exchange of rows."""

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
from rgcn.nn.row_tables import GatheredRows, local_row_parameters
from rgcn.placement import NodePartition, Placement, RowExchange, Traffic
from rgcn.system.atomic_files import TEMPORARY_PREFIX
from rgcn.training.optimizers import RowOptimizer

Result = TypeVar("Result")
ROWS_PER_MESSAGE = 1 << 20
VISIBLE_AFTER_S = 10.0  # the longest time until all processes see a new file on shared storage


@dataclass(frozen=True, eq=False)
class DataParallel(Placement):
    """Every process holds the whole model and computes its share of each batch; gradients are summed."""

    @property
    def is_distributed(self) -> bool:
        """True, even for a world of one process."""
        return True

    def partitioned(self, num_nodes: int) -> Sharded:
        """See `Placement.partitioned`."""
        partition = NodePartition(num_nodes, self.rank, self.size)
        return Sharded(self.rank, self.size, partition, self.traffic, self.session)

    def local_targets(self, nodes: Tensor) -> Tensor:
        """See `Placement.local_targets`."""
        return torch.arange(len(nodes), device=nodes.device)[self.share(len(nodes))]

    def answer_share(self, count: int) -> slice:
        """See `Placement.answer_share`."""
        return self.share(count) if count >= self.size else slice(0, count)

    def gather_answers(self, rows: Tensor) -> Tensor:
        """See `Placement.gather_answers`."""
        return self.all_gather(rows)

    # -- one step of training -------------------------------------------------------------------------------

    def mask_stream(self, shared: bool) -> int:
        """See `Placement.mask_stream`."""
        return 0 if shared else self.rank + 1

    def all_reduce_gradients(self, network: nn.Module, optimizer: Any, loss: Tensor) -> Tensor:
        """See `Placement.all_reduce_gradients`."""
        local = {id(parameter) for parameter in local_row_parameters(network)}
        summed = [p for p in network.parameters() if p.requires_grad and id(p) not in local]
        if isinstance(optimizer, RowOptimizer):
            self._gather_taken_rows(optimizer)
            summed = [parameter for parameter in summed if parameter not in optimizer.tables]
        for parameter in summed:
            if parameter.grad is None:  # another process's share of the batch may use it
                parameter.grad = torch.zeros_like(parameter)
        total = loss.detach().clone()
        self.all_reduce(*(parameter.grad for parameter in summed if parameter.grad is not None), total)
        return total

    def _gather_taken_rows(self, optimizer: RowOptimizer) -> None:
        """Give every process the rows that any process took from replicated tables in this step, with gradients."""
        for table, taken in optimizer.gathered.items():
            if table.partition is not None:
                continue
            optimizer.leaves()
            nothing = GatheredRows(torch.empty(0, dtype=torch.int64), table.trained.detach()[:0].clone())
            local = taken[0] if taken else nothing
            local_gradient = torch.zeros_like(local.leaf) if local.leaf.grad is None else local.leaf.grad
            sizes = self.exchange_counts([len(local.rows)] * self.size)
            rows, gradients = self.all_gather(local.rows), self.all_gather(local_gradient)
            taken.clear()
            for rank_rows, gradient in zip(torch.split(rows, sizes), torch.split(gradients, sizes), strict=True):
                taken.append(GatheredRows(rank_rows, torch.empty_like(gradient)))
                taken[-1].leaf.grad = gradient

    def clip_gradients(self, network: nn.Module, extra: Sequence[Tensor], norm: float) -> None:
        """See `Placement.clip_gradients`."""
        sharded = local_row_parameters(network)
        local = {id(parameter) for parameter in (*sharded, *(extra if sharded else ()))}
        parameters = [*network.parameters(), *extra]
        squares = torch.zeros(2, device=parameters[0].device)  # of replicated parameters, and of local rows
        for parameter in parameters:
            if parameter.grad is not None:
                squares[int(id(parameter) in local)] += parameter.grad.square().sum()
        rows = squares[1:].clone()
        self.all_reduce(rows)
        factor = (norm / ((squares[0] + rows[0]).sqrt() + 1e-6)).clamp(max=1.0)
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(factor)

    # -- messages between processes ---------------------------------------------------------------------------

    @property
    def device(self) -> torch.device:
        """The device of small tensors that are exchanged."""
        has_nccl = dist.get_backend() == "nccl"
        return torch.device("cuda", torch.cuda.current_device()) if has_nccl else torch.device("cpu")

    def all_reduce(self, *tensors: Tensor) -> None:
        """See `Placement.all_reduce`."""
        groups: dict[Any, list[Tensor]] = {}
        for tensor in tensors:
            groups.setdefault((tensor.dtype, tensor.device), []).append(tensor)
        for group in groups.values():  # one message for all tensors of a type
            flat = torch.cat([tensor.reshape(-1) for tensor in group])
            dist.all_reduce(flat)
            size = 2 * (self.size - 1) * flat.nbytes // self.size
            self.traffic.add(size, size)
            for tensor, total in zip(group, torch.split(flat, [tensor.numel() for tensor in group]), strict=True):
                tensor.copy_(total.view_as(tensor))

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """See `Placement.any`."""
        counts = torch.tensor(flags, dtype=torch.int32, device=self.device)
        self.all_reduce(counts)
        return tuple(bool(count) for count in counts.tolist())

    def all_to_all(
        self, rows: Tensor, num_sent: Sequence[int], num_received: Sequence[int], is_necessary: bool = True
    ) -> Tensor:
        """Send rows to all processes, and return those that they send here, in the order of ranks.

        Args:
            rows: [sum(num_sent), ...], those for rank 0 first.
            num_sent: How many rows to send to each process.
            num_received: How many rows each process sends.
            is_necessary: False if processes could do without these rows (see `Traffic.min_bytes`).
        """
        incoming = rows.new_empty(sum(num_received), *rows.shape[1:])
        dist.all_to_all_single(incoming, rows.contiguous(), list(num_received), list(num_sent))
        size = (len(rows) - num_sent[self.rank]) * (rows[:1].nbytes if len(rows) else 0)
        self.traffic.add(size, size if is_necessary else 0)
        return incoming

    def exchange_counts(self, num_sent: Sequence[int]) -> list[int]:
        """Tell each process how many rows it will get from here; return how many rows each one will send."""
        counts, ones = torch.tensor(num_sent, dtype=torch.int64, device=self.device), [1] * self.size
        return [int(count) for count in self.all_to_all(counts, ones, ones, is_necessary=False).tolist()]

    def all_gather(self, rows: Tensor) -> Tensor:
        """See `Placement.all_gather`."""
        sizes = self.exchange_counts([len(rows)] * self.size)
        repeated = rows.expand(self.size, *rows.shape).flatten(0, 1) if rows.ndim > 1 else rows.repeat(self.size)
        return self.all_to_all(repeated, [len(rows)] * self.size, sizes)

    def gather_values(self, value: Any) -> list[Any]:
        """See `Placement.gather_values`."""
        line = torch.frombuffer(bytearray(json.dumps(value).encode() + b"\n"), dtype=torch.uint8).to(self.device)
        return [json.loads(each) for each in self.all_gather(line).cpu().numpy().tobytes().splitlines()]

    def on_all(self, work: Callable[[], Result]) -> Result:
        """See `Placement.on_all`."""
        result, failure = None, None
        try:
            result = work()
        except Exception as error:
            failure = error
        text = getattr(failure, "strerror", None) or str(failure) or type(failure).__name__
        report = (getattr(failure, "errno", None), f"process {self.rank}: {text}")
        failures = self.gather_values(None if failure is None else report)
        if failure is not None:
            raise failure
        for number, message in filter(None, failures):
            raise DataError(message) if number is None else OSError(number, message)
        return cast("Result", result)

    def barrier(self) -> None:
        """See `Placement.barrier`."""
        self.any(False)

    def require_same(self, what: str, value: Mapping[str, Any]) -> None:
        """See `Placement.require_same`."""
        rendezvous.require_equal_values(what, self.gather_values(value))

    def require_shared_folder(self, folder: Path) -> None:
        """See `Placement.require_shared_folder`."""
        token = folder / self.from_main(lambda: f"{TEMPORARY_PREFIX}{uuid4().hex}")
        if self.is_main:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                token.touch()
            except OSError as error:
                raise DataError(f"cannot write in {folder}: {error.strerror}; choose another folder") from error
        self.barrier()  # the file exists, but may take a moment to appear on shared storage
        is_visible = self.gather_values(rendezvous.wait_until(token.exists, VISIBLE_AFTER_S))
        if self.is_main:
            token.unlink(missing_ok=True)
        if not all(is_visible):
            blind = ", ".join(str(rank) for rank, sees in enumerate(is_visible) if not sees)
            raise DataError(
                f"process {blind} of {self.size} does not see {folder}: all must see the run's folder at the same "
                "place, on storage that they share (--out)"
            )
        if self.session is not None:  # failures then advise to resume
            self.session.advice = f": the others stop; {rendezvous.RESUME_ADVICE.format(folder)}"

    def check_device(self, name: str) -> None:
        """See `Placement.check_device`."""
        ranks, gpus = rendezvous.environment_number("LOCAL_WORLD_SIZE", 1), torch.cuda.device_count()
        if 0 < gpus < ranks:
            counts = f"this machine has {ranks} processes and {gpus} GPU{'s' * (gpus > 1)}"
            raise ConfigError(f"NCCL needs a GPU for each process, but {counts}: start fewer, or use --device cpu")
        if ":" in name:
            raise ConfigError(f"each process computes on its own GPU: use --device cuda instead of {name}")

    def is_lost_process(self, error: BaseException) -> bool:
        """See `Placement.is_lost_process`."""
        return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))

    def describe_traffic(self, traffic: Traffic, steps: int) -> dict[str, int]:
        """See `Placement.describe_traffic`."""
        every = torch.tensor([traffic.sent_bytes, traffic.min_bytes], device=self.device)
        self.all_reduce(every)
        sent, least = (every // max(steps, 1)).tolist()
        return {"processes": self.size, "sent": sent, "least": least}


@dataclass(frozen=True, eq=False)
class Sharded(DataParallel):
    """Data-parallel with divided nodes: each process holds the table rows of its nodes, and the edges into them."""

    partition: NodePartition = NodePartition(0, 0, 1)  # noqa: RUF009 - it is immutable; `partitioned` replaces it

    def local_targets(self, nodes: Tensor) -> Tensor:
        """See `Placement.local_targets`."""
        return torch.nonzero(self.partition.is_local(nodes)).squeeze(1)

    def exchange(self, nodes: Tensor, all_local: bool = False) -> RowExchange:
        """See `Placement.exchange`."""
        return PeerExchange.of(self, nodes, all_local)

    def answer_share(self, count: int) -> slice:
        """See `Placement.answer_share`."""
        return slice(0, count)  # every process answers every question, among its local nodes

    def gather_answers(self, rows: Tensor) -> Tensor:
        """See `Placement.gather_answers`."""
        return rows

    def sum_over_nodes(self, *tensors: Tensor) -> None:
        """See `Placement.sum_over_nodes`."""
        self.all_reduce(*tensors)

    def stack_over_nodes(self, rows: Tensor) -> Tensor:
        """See `Placement.stack_over_nodes`."""
        return self.all_gather(rows.to(self.device)).view(self.size, *rows.shape)

    def gather_rows(self, rows: Tensor, out: Tensor | None = None) -> Tensor | None:
        """See `Placement`. Sends some rows at a time, so that only the main process holds more than its local rows."""
        num_nodes = self.partition.num_nodes
        if self.is_main and out is None:
            out = rows.new_empty(num_nodes, *rows.shape[1:])
        for begin in range(0, num_nodes, ROWS_PER_MESSAGE):
            end = min(begin + ROWS_PER_MESSAGE, num_nodes) if self.is_main else begin
            exchange = self.exchange(torch.arange(begin, end, device=rows.device))
            fetched = exchange(rows.detach()[self.partition.row(exchange.needed)])
            if self.is_main and out is not None:
                out[begin:end] = fetched
        return out if self.is_main else None


@dataclass(frozen=True, eq=False)
class PeerExchange(RowExchange):
    """A row exchange between processes.

    Attributes:
        placement: Of the processes.
        outgoing: Selects the rows of `needed` to send, those for rank 0 first.
        order: Selects, from the rows received, those of the requested nodes, in their order.
        num_sent: How many rows go to each process.
        num_received: How many rows come from each process.
    """

    placement: Sharded
    outgoing: SparsePattern
    order: SparsePattern
    num_sent: list[int]
    num_received: list[int]

    @classmethod
    def of(cls, placement: Sharded, nodes: Tensor, all_local: bool) -> PeerExchange:
        """Request the rows of nodes int64 [n], distinct; arguments as for `Placement.exchange`."""
        partition, device, select = placement.partition, nodes.device, SparsePattern.selection
        owner = partition.owner(nodes)
        order = torch.argsort(owner, stable=True)
        num_received = torch.bincount(owner, minlength=placement.size).tolist()
        num_sent = placement.exchange_counts(num_received)
        requests = nodes[order].to(placement.device)
        requested = placement.all_to_all(requests, num_received, num_sent, is_necessary=False).to(device)
        if all_local:
            needed, outgoing = partition.nodes.to(device), partition.row(requested)
        else:
            needed, outgoing = torch.unique(requested, return_inverse=True)
        patterns = select(outgoing, len(needed)), select(torch.argsort(order), len(order))
        return cls(needed, placement, *patterns, num_sent, num_received)

    def to(self, device: torch.device) -> PeerExchange:
        """Copy to a device."""
        patterns, select = (self.outgoing, self.order), SparsePattern.selection
        outgoing, order = (select(pattern.column.to(device), pattern.num_columns) for pattern in patterns)
        return replace(self, needed=self.needed.to(device), outgoing=outgoing, order=order)

    def __call__(self, rows: Tensor) -> Tensor:
        """See `RowExchange`."""
        flat = rows.flatten(1) if rows.ndim > 1 else rows[:, None]
        swapped: Tensor = _Swap.apply(take_rows(flat, self.outgoing), self)  # type: ignore[no-untyped-call]
        fetched = take_rows(swapped, self.order)
        return fetched.view(len(fetched), *rows.shape[1:])


class _Swap(torch.autograd.Function):
    """Send rows to the processes that requested them; send their gradients back."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, exchange: PeerExchange) -> Tensor:
        ctx.exchange = exchange
        return exchange.placement.all_to_all(rows, exchange.num_sent, exchange.num_received)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        exchange = ctx.exchange
        return exchange.placement.all_to_all(gradient, exchange.num_received, exchange.num_sent), None
