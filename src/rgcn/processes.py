"""Several processes that train one model together, on PyTorch's own engine: who I am among them, and what we exchange.

Each runs the same program on its share. `processes()` is the group, of this process alone unless it has joined others
(`rgcn.joining`): code that asks it for sums and shares is the same with one. Everything sent is counted (`Traffic`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

from rgcn.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

Result = TypeVar("Result")


@dataclass
class Traffic:
    """Bytes that this process sent to others, and how few would have done.

    sent   what went out, numbers of rows that were asked for included
    least  rows that others lack, each once, and their gradients back; sums at 2 (P - 1) / P of their size, the least
           that adding up numbers of P processes takes
    """

    sent: int = 0
    least: int = 0

    def count(self, sent: int, least: int) -> None:
        self.sent += sent
        self.least += least

    def a_step(self, steps: int, group: Processes) -> dict[str, int]:
        """What all processes together sent in each of so many steps, ready for JSON."""
        import torch

        every = torch.tensor([self.sent, self.least], device=group.device)
        group.add(every)
        sent, least = (every // max(steps, 1)).tolist()
        return {"processes": group.size, "sent": sent, "least": least}


@dataclass(frozen=True, eq=False)
class Processes:
    """A group of processes, seen from one of them.

    rank, size  my number in it, from 0, and how many we are
    store       words that all of us can read and write (`torch.distributed.Store`); None: alone
    """

    rank: int = 0
    size: int = 1
    store: Any = None
    traffic: Traffic = field(default_factory=Traffic)

    @property
    def together(self) -> bool:
        """Whether there are others."""
        return self.size > 1

    @property
    def first(self) -> bool:
        """Whether I am the one that speaks and writes for all."""
        return self.rank == 0

    def share(self, count: int) -> slice:
        """My part of so many things in a row; parts differ by one at most.

        >>> [Processes(rank, 3).share(8) for rank in range(3)]
        [slice(0, 3, None), slice(3, 6, None), slice(6, 8, None)]
        """
        least, more = divmod(count, self.size)
        begin = self.rank * least + min(self.rank, more)
        return slice(begin, begin + least + (self.rank < more))

    def add(self, *tensors: Tensor) -> None:
        """Every tensor becomes the sum of all processes' tensors, in place: the same bits everywhere."""
        if not self.together or not tensors:
            return
        import torch
        import torch.distributed as dist

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
        """For each flag, whether it is set anywhere: a decision that all take alike."""
        if not self.together:
            return flags
        import torch

        found = torch.tensor(flags, dtype=torch.int32, device=self.device)
        self.add(found)
        return tuple(bool(count) for count in found.tolist())

    def swap(self, rows: Tensor, given: Sequence[int], got: Sequence[int], least: bool = True) -> Tensor:
        """Rows of mine [sum(given), ...], those for process 0 first; what the others gave me, in their order.

        got    how many rows each gives
        least  whether nobody could do without them
        """
        import torch.distributed as dist

        found = rows.new_empty(sum(got), *rows.shape[1:])
        if not self.together:
            return rows
        dist.all_to_all_single(found, rows.contiguous(), list(got), list(given))
        away = (len(rows) - given[self.rank]) * (rows[:1].nbytes if len(rows) else 0)
        self.traffic.count(away, away if least else 0)
        return found

    def counts(self, given: Sequence[int]) -> list[int]:
        """How many rows each process has for me, where I have so many for each."""
        import torch

        if not self.together:
            return list(given)
        asked = torch.tensor(given, dtype=torch.int64, device=self.device)
        ones = [1] * self.size
        return [int(count) for count in self.swap(asked, ones, ones, least=False).tolist()]

    def gather(self, rows: Tensor) -> Tensor:
        """Everybody's rows [n, ...], of process 0 first; how many each has may differ."""
        if not self.together:
            return rows
        sizes = self.counts([len(rows)] * self.size)
        repeated = rows.expand(self.size, *rows.shape).flatten(0, 1) if rows.ndim > 1 else rows.repeat(self.size)
        return self.swap(repeated, [len(rows)] * self.size, sizes)

    def tell(self, words: Any) -> list[Any]:
        """What everybody has to say, plain values as JSON knows them, of process 0 first."""
        if not self.together:
            return [words]
        import torch

        said = torch.frombuffer(bytearray(json.dumps(words).encode() + b"\n"), dtype=torch.uint8).to(self.device)
        return [json.loads(line) for line in self.gather(said).cpu().numpy().tobytes().splitlines()]

    def all(self, work: Callable[[], Result]) -> Result:
        """What `work` gives me, once everybody is done; where it fails for one of us, it fails for all.

        Nothing is exchanged within it.
        """
        if not self.together:
            return work()
        done, failure = None, None
        try:
            done = work()
        except Exception as error:
            failure = error
        told = self.tell(None if failure is None else f"process {self.rank}: {failure or type(failure).__name__}")
        if failure is not None:
            raise failure
        for words in filter(None, told):
            raise DataError(words)
        return cast("Result", done)

    def wait(self) -> None:
        """Until everybody is here."""
        if self.together:
            self.any(False)

    @property
    def device(self) -> Any:
        """Where small numbers that we exchange must be."""
        import torch
        import torch.distributed as dist

        nccl = self.together and dist.get_backend() == "nccl"
        return torch.device("cuda", torch.cuda.current_device()) if nccl else torch.device("cpu")


ALONE = Processes()
_joined: Processes | None = None


def processes() -> Processes:
    """The group this process works in: alone, unless it has joined others."""
    return _joined or ALONE


def work_in(group: Processes | None) -> None:
    """From now on this process is one of a group; None: alone again."""
    global _joined
    _joined = group
