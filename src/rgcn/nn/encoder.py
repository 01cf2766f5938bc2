"""A stack of relational convolutions over whatever the nodes bring."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rgcn.adjacency import ReceptiveField
from rgcn.errors import ConfigError
from rgcn.kernels import take_rows
from rgcn.nn.initialization import Initializer
from rgcn.nn.relational_graph_conv import RelationalGraphConv
from rgcn.nn.rows import RowTable
from rgcn.sparse import SparsePattern


class OneHotInput(nn.Module):
    """Nodes without features: the first layer looks rows up."""

    def forward(self, nodes: Tensor) -> Tensor | None:
        return None


class EmbeddingInput(nn.Module):
    """A learned vector for each node: E [nodes, width]; nodes [n] → [n, width].

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
        self.rows = RowTable(init.draw((num_nodes, width), generator), trained)
        self.bias = nn.Parameter(torch.zeros(width)) if activated else None
        self._last: tuple[Tensor, bool, SparsePattern | None] | None = None

    def forward(self, nodes: Tensor) -> Tensor:
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
    """Given features X [nodes, width], not learned; nodes [n] → [n, width]."""

    features: Tensor

    def __init__(self, features: Tensor) -> None:
        super().__init__()
        self.register_buffer("features", features)

    def forward(self, nodes: Tensor) -> Tensor:
        return self.features.index_select(0, nodes)


class RelationalEncoder(nn.Module):
    """input → conv → ReLU → … → conv; no activation after the last convolution.

    forward(field) → [nodes of the field, width of the last convolution]
    """

    def __init__(self, source: nn.Module, layers: Sequence[RelationalGraphConv], dropout: float = 0.0) -> None:
        super().__init__()
        if not layers:
            raise ConfigError("an encoder needs at least one layer")
        self.source = source
        self.layers = nn.ModuleList(layers)
        self.dropout = nn.Dropout(dropout)

    def forward(self, field: ReceptiveField) -> Tensor:
        return self.states(field)[-1]

    def states(self, field: ReceptiveField, depth: int | None = None) -> list[Tensor]:
        """The output of each layer, activated but for the network's last; only the first `depth` layers, if given."""
        wanted = len(self.layers) if depth is None else depth
        if len(field.layers) != wanted:
            raise ConfigError(f"a receptive field of {len(field.layers)} layers for {wanted} layers of the encoder")
        states: list[Tensor] = []
        x = self.source(field.inputs)
        for number, adjacency in enumerate(field.layers):
            x = self.layers[number](x, adjacency, field.inputs if number == 0 else None)
            if number + 1 < len(self.layers):
                x = self.dropout(torch.relu(x))
            states.append(x)
        return states
