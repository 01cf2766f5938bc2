"""A training step recorded once on the GPU and replayed: hundreds of small launches become one."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

# Steps taken as they are before recording: libraries and the optimizer set themselves up in the first ones.
WARM_UP = 3

Result = TypeVar("Result")


class StepRecording(Generic[Result]):
    """Calls `step(*batch)` a few times, then records it as a CUDA graph and replays it from there on.

    Every call is a real step, so that a recorded training takes exactly the steps an unrecorded one does. The step must
    wait for nothing, must treat every batch of the same shape alike, and returns a tensor or several. A batch of
    another shape is stepped as it is.
    """

    def __init__(self, step: Callable[..., Result], generator: torch.Generator, device: torch.device) -> None:
        self.step, self.generator, self.device = step, generator, device
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.batch: tuple[Tensor, ...] = ()
        self.result: Result | None = None

    def __call__(self, *batch: Tensor) -> Result:
        self.calls += 1
        if self.calls <= WARM_UP:
            return self._aside(batch)
        if self.graph is None:
            self._record(batch)
        assert self.graph is not None
        assert self.result is not None
        if [given.shape for given in batch] != [kept.shape for kept in self.batch]:
            return self.step(*batch)
        for given, kept in zip(batch, self.batch, strict=True):
            if given.data_ptr() != kept.data_ptr():
                kept.copy_(given, non_blocking=True)
        self.graph.replay()
        copied: Result = _copied(self.result)
        return copied

    def _aside(self, batch: tuple[Tensor, ...]) -> Result:
        """A step on a stream of its own, as recording wants it."""
        stream = _side_stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            result = self.step(*batch)
        torch.cuda.current_stream(self.device).wait_stream(stream)
        return result

    def _record(self, batch: tuple[Tensor, ...]) -> None:
        self.batch = tuple(given.clone() for given in batch)
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        # Other threads go on meanwhile, such as the one that draws batches ahead: their work is no part of this.
        with torch.cuda.graph(graph, stream=_side_stream(self.device), capture_error_mode="thread_local"):
            self.result = self.step(*self.batch)
        self.graph = graph


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """One stream for all recordings: libraries keep tens of megabytes of workspace for every stream they meet."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def _copied(result: Any) -> Any:
    """A copy of a tensor, or of each of several: the next replay writes over what this one returned."""
    return result.clone() if isinstance(result, Tensor) else tuple(part.clone() for part in result)
