"""A training step recorded once on the GPU and replayed: hundreds of small launches become one."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# Steps taken as they are before recording: libraries and the optimizer set themselves up in the first ones.
WARM_UP = 3


class StepRecording:
    """Calls `step(batch)` a few times, then records it as a CUDA graph and replays it from there on.

    Every call is a real step, so that a recorded training takes exactly the steps an unrecorded one does. The step must
    wait for nothing and must treat every batch of the same shape alike. A batch of another shape is stepped as it is.
    """

    def __init__(self, step: Callable[[Tensor], Tensor], generator: torch.Generator) -> None:
        self.step, self.generator = step, generator
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.batch: Tensor | None = None
        self.loss: Tensor | None = None

    def __call__(self, batch: Tensor) -> Tensor:
        self.calls += 1
        if self.calls <= WARM_UP:
            return self._aside(batch)
        if self.graph is None:
            self._record(batch)
        assert self.graph is not None
        assert self.batch is not None
        assert self.loss is not None
        if batch.shape != self.batch.shape:
            return self.step(batch)
        if batch.data_ptr() != self.batch.data_ptr():
            self.batch.copy_(batch, non_blocking=True)
        self.graph.replay()
        return self.loss.clone()

    def _aside(self, batch: Tensor) -> Tensor:
        """A step on a stream of its own, as recording wants it."""
        stream = torch.cuda.Stream(batch.device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(batch.device))
        with torch.cuda.stream(stream):
            loss = self.step(batch)
        torch.cuda.current_stream(batch.device).wait_stream(stream)
        return loss

    def _record(self, batch: Tensor) -> None:
        self.batch = batch.clone()
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        with torch.cuda.graph(graph):
            self.loss = self.step(self.batch)
        self.graph = graph
