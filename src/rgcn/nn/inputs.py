"""What nodes bring to the first convolution: a learned vector, or given features; one-hot nodes bring nothing."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rgcn.kernels import take_rows
from rgcn.nn.initialization import Initializer
from rgcn.nn.rows import RowTable
from rgcn.sparse import SparsePattern


class EmbeddingInput(nn.Module):
    """A learned vector for each node: E [nodes, width]; nodes [n] (None: all, in order) → [n, width].

    activated: add a bias and pass through ReLU, as the original link predictor does.
    """

    def __init__(
        self,
        num_nodes: int,
        width: int,
        init: Initializer,
        generator: torch.Generator,
        trained: Tensor | None = None,
        activated: bool = False,
    ) -> None:
        super().__init__()
        self.width = width
        self.rows = RowTable(init.draw((num_nodes, width), generator), trained)
        self.bias = nn.Parameter(torch.zeros(width)) if activated else None
        self._last: tuple[Tensor, bool, SparsePattern | None] | None = None

    def forward(self, nodes: Tensor | None = None) -> Tensor:
        if nodes is None:
            return self.all_nodes()
        within, rows = self._where(nodes)
        table = self.rows.trained if within else self.rows.whole()
        return self._activated(table if rows is None else take_rows(table, rows))

    def _where(self, nodes: Tensor) -> tuple[bool, SparsePattern | None]:
        """Whether the trained rows suffice, and which rows the nodes take, None for all in order.

        Most calls name the same nodes again, and the answer is kept.
        """
        last = self._last
        if last is None or last[0] is not nodes:
            position = self.rows.position.index_select(0, nodes)
            size = self.rows.table_for(position).shape[0]
            in_order = len(nodes) == size and torch.equal(position, torch.arange(size, device=position.device))
            rows = None if in_order else SparsePattern.picking(position, size)
            # One tuple, set at once: another thread that asks about other nodes meanwhile must not change the answer.
            self._last = last = nodes, size == len(self.rows.trained), rows
        return last[1:]

    def all_nodes(self) -> Tensor:
        """[nodes, width]: every node in order, without a lookup where all rows are trained."""
        return self._activated(self.rows.trained if self.rows.all_trained else self.rows.values())

    def _activated(self, rows: Tensor) -> Tensor:
        return rows if self.bias is None else torch.relu(rows + self.bias)


class FeatureInput(nn.Module):
    """Given features X [nodes, width], not learned; nodes [n] (None: all, in order) → [n, width]."""

    features: Tensor

    def __init__(self, features: Tensor) -> None:
        super().__init__()
        self.width = features.shape[1]
        self.register_buffer("features", features)

    def forward(self, nodes: Tensor | None = None) -> Tensor:
        return self.features if nodes is None else self.features.index_select(0, nodes)
