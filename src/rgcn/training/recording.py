"""A training step recorded as a CUDA graph, and replayed."""

import gc
from collections.abc import Callable
from functools import cache
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

# Steps taken as they are before recording: libraries and the optimizer set themselves up in the first ones.
WARM_UP = 3

Result = TypeVar("Result")


class StepRecording(Generic[Result]):
    """Calls `step(*batch)` a few times, then records it as a CUDA graph and replays it from there on: hundreds of small
    launches become one.

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
        # Copied, or each of several: the next replay writes over what this one gave.
        found: Any = self.result
        several = not isinstance(found, Tensor)
        return tuple(part.clone() for part in found) if several else found.clone()  # type: ignore[return-value]

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
        # Other threads go on meanwhile, such as the one that draws batches ahead: their work is no part of this. What
        # is thrown away meanwhile may be another recording, which must not be touched now.
        collects = gc.isenabled()
        gc.disable()
        try:
            with torch.cuda.graph(graph, stream=_side_stream(self.device), capture_error_mode="thread_local"):
                self.result = self.step(*self.batch)
        finally:
            if collects:
                gc.enable()
        self.graph = graph

    def forget(self) -> None:
        """Give the recording and its memory back; the next step is as the first was."""
        if self.graph is not None:
            torch.cuda.synchronize(self.device)  # it may still be running
        self.calls, self.graph, self.batch, self.result = 0, None, (), None


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """One stream for all recordings: libraries keep tens of megabytes of workspace for every stream they meet."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
