"""Convolutions over a graph that several processes hold: each computes its own nodes, and asks for others' rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from typing_extensions import Self

from rgcn.adjacency.operator import RelationalAdjacency
from rgcn.adjacency.receptive_field import ReceptiveField
from rgcn.adjacency.structure import EdgeStructure
from rgcn.sharding import RowExchange, Shards
from rgcn.sparse import computed_once

Rows = Callable[[Tensor], tuple[RelationalAdjacency, Tensor]]


@dataclass(frozen=True, eq=False)
class SharedField(ReceptiveField):
    """What L layers must compute for nodes of which each process wants its own; every node is computed by its owner.

    inputs, outputs  of this process's own nodes: those whose input vectors somebody reads, those whose outputs it gives
    exchanges        one a layer: what goes into it, rows of nodes that others hold among them
    """

    exchanges: tuple[RowExchange, ...] = ()

    @classmethod
    def over(cls, rows: Rows, shards: Shards, nodes: Tensor, num_layers: int) -> SharedField:
        """Walk back from own nodes int64 [n]; rows: the operator of edges into own nodes, and the nodes these read.

        All processes walk at the same time: in each layer they tell each other what they will read.
        """
        layers: list[RelationalAdjacency] = []
        exchanges: list[RowExchange] = []
        wanted = nodes
        for _ in range(num_layers):
            operator, sources = rows(wanted)
            layers.append(replace(operator, structure=replace(operator.structure, names=wanted)))
            exchanges.append(RowExchange.ask(shards, sources))
            wanted = exchanges[-1].needed
        return cls(tuple(reversed(layers)), wanted, nodes, tuple(reversed(exchanges)))

    @classmethod
    def of_own(cls, operator: RelationalAdjacency, shards: Shards, nodes: Tensor, num_layers: int) -> SharedField:
        """The same over all edges into own nodes: operator [own, nodes]."""
        return cls.over(lambda wanted: operator.restricted(shards.place(wanted)), shards, nodes, num_layers)

    @classmethod
    def of_all(cls, operator: RelationalAdjacency, shards: Shards, num_layers: int) -> SharedField:
        """Of all own nodes, in every layer, by their places. What is exchanged is found once for the same edges."""
        fewer, exchange = _exchanged(operator.structure, shards)
        layer, own = replace(operator, structure=fewer), shards.own.to(operator.device)
        return cls((layer,) * num_layers, own, own, (exchange,) * num_layers)

    def to(self, device: torch.device) -> Self:
        return replace(super().to(device), exchanges=tuple(exchange.to(device) for exchange in self.exchanges))

    def handed(self, number: int, states: Tensor) -> Tensor:
        return self.exchanges[number](states)


@computed_once
def _exchanged(structure: EdgeStructure, shards: Shards) -> tuple[EdgeStructure, RowExchange]:
    """The structure over the nodes alone that it reads, and their exchange."""
    sources, source = torch.unique(structure.source, return_inverse=True)
    names = shards.own.to(source.device)
    fewer = replace(structure, source=source, num_sources=len(sources), names=names)
    return fewer, RowExchange.ask(shards, sources.long(), of_all=True)
