"""The operator itself: edges with weights, normalized; dropping edges, restricting to some rows and what they need."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rgcn.adjacency.structure import OF_EDGES, EdgeStructure, rows_of
from rgcn.errors import ConfigError, DataError
from rgcn.graph import SPLITS, KnowledgeGraph
from rgcn.kernels import gather_sum
from rgcn.kernels.sparse import SparsePattern
from rgcn.placement import NodePartition
from rgcn.system.memory import give_back

LARGE = 1 << 19  # triples: bytes an edge are worth a moment
Normalization = Literal["relation", "node", "direction", "none"]
Aggregation = Literal["sum", "mean"]
PART = 1 << 20  # triples that are looked at together for edges of one's own


@dataclass(frozen=True)
class EdgeOptions:
    """Which edges are made of triples, and how their weights are normalized (see `RelationalAdjacency`).

    inverse     an edge against each triple, under a relation of its own
    self_loops  an edge from each node to itself, under the last relation
    """

    inverse: bool = True
    self_loops: bool = True
    normalization: Normalization = "relation"
    aggregation: Aggregation = "sum"

    def __post_init__(self) -> None:
        for name, known in (("normalization", Normalization), ("aggregation", Aggregation)):
            given = getattr(self, name)
            if given not in get_args(known):
                raise ConfigError(f"unknown {name} {given!r}; there are {', '.join(get_args(known))}")

    def sizes(self, triples: int, nodes: int, relations: int) -> dict[str, Any]:
        """What an `EdgeStructure` of a whole graph says of its size."""
        return {
            "num_targets": nodes,
            "num_sources": nodes,
            "num_relations": relations * (1 + self.inverse) + int(self.self_loops),
            "num_data_relations": relations,
            "has_inverse": self.inverse,
            "has_self_loops": self.self_loops,
            "num_triples": triples,
            "num_nodes": nodes,
        }


@dataclass(frozen=True, eq=False)
class RelationalAdjacency:
    """Every A_r of a graph: edges, their weights, and the rule that normalizes them.

    structure  the edges, sorted
    raw        [E] weights before normalizing (one, the graph's edge weights, zero for a dropped edge)
    weight     [E] entries of the A_r: raw, normalized

    Normalization divides an edge's raw weight by the sum over a group of edges with the same target:
      "relation"   those of the same relation: each A_r is row-normalized (the paper)
      "node"       all of them: Σ_r A_r is row-normalized
      "direction"  those of the same direction, along triples or inverse (the original link predictor)
      "none"       no division
    Aggregation "mean" divides further by the number of relations that reach the target.

    >>> import rgcn
    >>> kg = rgcn.KnowledgeGraph.from_triples([("a", "r", "b"), ("c", "r", "b")])
    >>> adjacency = RelationalAdjacency.from_graph(kg)
    >>> adjacency.to_dense()[0]  # A_0: b hears a and c, half each
    tensor([[0.0000, 0.0000, 0.0000],
            [0.5000, 0.0000, 0.5000],
            [0.0000, 0.0000, 0.0000]])
    """

    structure: EdgeStructure
    raw: Tensor
    weight: Tensor
    normalization: Normalization = "relation"
    aggregation: Aggregation = "sum"

    # -- making one ------------------------------------------------------------------------------------

    @classmethod
    def from_graph(
        cls,
        graph: KnowledgeGraph,
        *,
        split: str = "all",
        device: torch.device | str = "cpu",
        targets: NodePartition | None = None,
        **edges: Any,
    ) -> RelationalAdjacency:
        """The operator of a knowledge graph's triples, or of one split of them.

        targets  build only the rows of these nodes, in their order: an operator [targets, nodes]
        edges    fields of `EdgeOptions`: inverse, self_loops, normalization, aggregation
        """
        every = split == "all" or graph.triple_splits is None
        chosen = slice(None) if every else np.flatnonzero(graph.triple_splits == SPLITS.index(split))
        weights = None if graph.edge_weights is None else torch.from_numpy(np.array(graph.edge_weights[chosen]))
        if targets is not None:
            options = EdgeOptions(**edges)
            places = np.arange(len(graph))[chosen]
            sizes = options.sizes(len(places), graph.num_nodes, graph.num_relations)
            return cls.of_edges(sorted_edges(_in_parts(graph, places), sizes, targets), weights, options).to(device)
        with warnings.catch_warnings():  # NumPy marks the array read-only; we only read it
            warnings.simplefilter("ignore", UserWarning)
            triples = torch.from_numpy(np.ascontiguousarray(graph.split_triples(split))).to(device)
        counts, weights = (graph.num_nodes, graph.num_relations), None if weights is None else weights.to(device)
        # The graph itself checked the triples when it was made.
        return cls.from_triples(triples, *counts, edge_weights=weights, checked=True, **edges)

    @classmethod
    def from_triples(
        cls,
        triples: Tensor,
        num_nodes: int,
        num_relations: int,
        *,
        edge_weights: Tensor | None = None,
        transient: bool = False,
        checked: bool = False,
        targets: NodePartition | None = None,
        **edges: Any,
    ) -> RelationalAdjacency:
        """The operator of triples int64 [T, 3] (subject, relation, object); `transient` if for one step only.

        targets, edges  as in `from_graph`

        Kernels read memory wherever a number points, so numbers out of range are refused here. On a GPU that waits for
        the device; `checked` spares it for rows of triples that went through this check before, and for nothing else.
        """
        options = EdgeOptions(**edges)
        if triples.ndim != 2 or triples.shape[1] != 3 or triples.dtype != torch.int64:
            raise DataError(f"triples must be int64 [T, 3], not {triples.dtype} {list(triples.shape)}")
        if edge_weights is not None and (edge_weights.shape != (len(triples),) or not edge_weights.is_floating_point()):
            got = f"{edge_weights.dtype} {list(edge_weights.shape)}"
            raise DataError(f"{len(triples)} edge weights are needed, as floating-point numbers, not {got}")
        if not checked:
            refuse_numbers_out_of_range(triples, num_nodes, num_relations)
        sizes = options.sizes(len(triples), num_nodes, num_relations)
        fits = max(2 * len(triples) + num_nodes, sizes["num_relations"]) < 2**31
        if targets is not None or not (fits and _worth_compiling(triples)):
            numbered = torch.arange(len(triples), device=triples.device), triples
            return cls.of_edges(sorted_edges([numbered], sizes, targets, transient), edge_weights, options)
        structure = _placed(triples, sizes, transient)
        if not transient and len(triples) >= LARGE:
            give_back()  # what sorting took
        if edge_weights is None and (options.normalization, options.aggregation) == ("relation", "sum"):
            from rgcn.adjacency import edge_loops

            weight = torch.empty(structure.num_edges)
            edge_loops.share_of_run(structure.pointer.numpy(), structure.relation.numpy(), weight.numpy())
            return cls(structure, torch.ones(1).expand(structure.num_edges), weight)
        return cls.of_edges(structure, edge_weights, options)

    @classmethod
    def of_edges(
        cls, structure: EdgeStructure, edge_weights: Tensor | None, options: EdgeOptions
    ) -> RelationalAdjacency:
        """Of sorted edges; edge_weights [T]: of the triples they come from, None: one."""
        raw = torch.ones(1, device=structure.relation.device).expand(structure.num_edges)
        if edge_weights is not None:
            raw = torch.cat([edge_weights, edge_weights.new_ones(structure.num_nodes)])[structure.origin]
        rule = options.normalization, options.aggregation
        return cls.normalized(structure, raw, *rule, unweighted=edge_weights is None)

    @classmethod
    def normalized(
        cls,
        structure: EdgeStructure,
        raw: Tensor,
        normalization: Normalization,
        aggregation: Aggregation,
        unweighted: bool = False,
    ) -> RelationalAdjacency:
        """The operator of sorted edges with these weights [E]; unweighted: all of them are one."""
        weight = raw
        if normalization != "none":
            groups = structure.groups(normalization)
            if unweighted:  # a sum of ones is a count
                total = (groups.pointer[1:] - groups.pointer[:-1]).to(raw.dtype)
            else:
                total = _group_sums(raw, groups)
            weight = _divide(raw, total.index_select(0, groups.row))
        if aggregation == "mean":
            weight = _divide(weight, _relations_reaching(structure, raw)[structure.target])
        return cls(structure, raw, weight, normalization, aggregation)

    # -- size ------------------------------------------------------------------------------------------

    @property
    def num_edges(self) -> int:
        return self.structure.num_edges

    @property
    def num_targets(self) -> int:
        return self.structure.num_targets

    @property
    def num_sources(self) -> int:
        return self.structure.num_sources

    @property
    def num_relations(self) -> int:
        """R⁺: relations, inverses and the self-loop."""
        return self.structure.num_relations

    @property
    def device(self) -> torch.device:
        return self.weight.device

    def __repr__(self) -> str:
        return (
            f"RelationalAdjacency({self.num_targets:,} x {self.num_sources:,}, {self.num_relations} relations, "
            f"{self.num_edges:,} edges, normalized per {self.normalization}, {self.aggregation})"
        )

    # -- other operators from this one -------------------------------------------------------------------

    def to(self, target: torch.device | str | torch.dtype) -> RelationalAdjacency:
        """The same operator on another device, or with weights of another precision, in which they are normalized."""
        if isinstance(target, torch.dtype):
            weight = self.weight.to(target)
            if target.itemsize > self.weight.dtype.itemsize:
                # A third that was rounded to float32 is none in float64: normalize there, but for edges whose group is
                # not whole here (a part of an operator keeps the weights it had in the whole).
                whole = self.reweighted(self.raw).weight == self.weight
                weight = torch.where(whole, self.reweighted(self.raw.to(target)).weight, weight)
            return replace(self, raw=self.raw.to(target), weight=weight)
        moved = self.structure.to(target)
        return replace(self, structure=moved, raw=self.raw.to(target), weight=self.weight.to(target))

    def reweighted(self, raw: Tensor) -> RelationalAdjacency:
        """The same edges with other raw weights [E], normalized again. Differentiable in `raw`."""
        if raw.shape != (self.num_edges,):
            raise DataError(f"{self.num_edges} weights are needed, one an edge, not {list(raw.shape)}")
        return self.normalized(self.structure, raw, self.normalization, self.aggregation)

    def weighed_by(self, strength: Tensor) -> RelationalAdjacency:
        """The same edges with raw weights times strength [E], normalized again: attention. Differentiable.

        A weight that was scaled after it was normalized stays scaled as much: that of a drawn edge, which stands for
        others, and that of an edge which an explanation weakens.
        """
        scaled = _divide(self.weight, self.reweighted(self.raw).weight)
        attended = self.reweighted(self.raw * strength)
        return replace(attended, weight=attended.weight * scaled)

    def masked(self, keep: Tensor) -> RelationalAdjacency:
        """Drop edges: `keep` [num_triples + num_nodes] holds 0 or 1 for each triple, then for each self-loop.

        A triple's edge and its inverse go together, and what is left is normalized again, so a dropped triple leaks
        through neither.
        """
        size = self.structure.num_triples + self.structure.num_nodes
        if keep.shape != (size,):
            raise DataError(f"a mask has {size} entries, one a triple and one a node, not {list(keep.shape)}")
        return self.reweighted(self.raw * keep.to(self.raw.dtype)[self.structure.origin])

    def total(self) -> Tensor:
        """[targets]: the sum of the raw weights of the edges into each target."""
        return _group_sums(self.raw, self.structure.groups("node"))

    def draw_mask(self, rate: float, self_loop_rate: float = 0.0, generator: torch.Generator | None = None) -> Tensor:
        """A random mask for `masked`: each triple is dropped with `rate`, each self-loop with `self_loop_rate`."""
        for value in (rate, self_loop_rate):
            if not 0.0 <= value < 1.0:
                raise ConfigError(f"a dropout rate lies in [0, 1), not {value}")
        size = self.structure.num_triples + self.structure.num_nodes
        draws = torch.rand(size, generator=generator, device=self.device)
        draws[: self.structure.num_triples] -= rate
        draws[self.structure.num_triples :] -= self_loop_rate
        return (draws >= 0).to(self.raw.dtype)

    def edges_into(self, nodes: Tensor) -> Tensor:
        """[n]: how many edges lead into each of these nodes."""
        pointer = self.structure.pointer
        return (pointer[nodes + 1] - pointer[nodes]).long()

    def restricted(self, targets: Tensor) -> tuple[RelationalAdjacency, Tensor]:
        """The rows of the given targets only, and the sources they read.

        Returns an operator [len(targets), len(sources)] and the sources' ids, ascending. No weight changes: an edge is
        normalized among the edges of its own target, all of which stay.
        """
        structure = self.structure
        if targets.ndim != 1 or targets.dtype != torch.int64:
            raise DataError(f"targets must be int64 [n], not {targets.dtype} {list(targets.shape)}")
        outside = (targets < 0) | (targets >= structure.num_targets)
        if outside.any():
            place, last = int(outside.nonzero()[0]), structure.num_targets - 1
            raise DataError(f"target {place} is {int(targets[place])}, but targets are numbered 0 to {last}")
        if not bool((targets[1:] > targets[:-1]).all()) and len(torch.unique(targets)) != len(targets):
            raise DataError("a target is named twice")
        return self.rows_chosen(*rows_of(structure.pointer, targets))

    def rows_chosen(self, edges: Tensor, pointer: Tensor, **changes: Any) -> tuple[RelationalAdjacency, Tensor]:
        """Edges int64 [E] by their numbers, in the order of new targets, whose begins are the pointer's, and within
        these as they stood: the operator of them, and the sources they read, ascending."""
        structure = self.structure
        sources, source = torch.unique(structure.source[edges], return_inverse=True)
        changes |= {"num_targets": len(pointer) - 1, "num_sources": len(sources)}
        return self.selected(edges, pointer=pointer, source=source, **changes), sources.long()

    def selected(self, edges: Tensor, **changes: Any) -> RelationalAdjacency:
        """Some edges by their numbers, with the weights they have; changes: of the structure, such as fewer nodes."""
        structure = self.structure.selected(edges, **changes)
        # Ones that are written once stay so.
        raw = self.raw[edges] if self.raw.stride() != (0,) else self.raw[:1].expand(len(edges))
        return replace(self, structure=structure, raw=raw, weight=self.weight[edges])

    def split_self_loops(self) -> tuple[RelationalAdjacency, SparsePattern, Tensor]:
        """(the operator without self-loops, the self-loops' pattern [targets, sources], their weights)."""
        apart = self.structure.self_loops_apart
        rest = replace(self, structure=apart.rest, raw=self.raw[apart.rest_edges], weight=self.weight[apart.rest_edges])
        return rest, apart.loops, self.weight[apart.loop_edges]

    def to_dense(self) -> Tensor:
        """[R⁺, targets, sources]: for looking and testing; a real graph does not fit."""
        s = self.structure
        dense = self.weight.new_zeros(s.num_relations, s.num_targets, s.num_sources)
        return dense.index_put((s.relation, s.target, s.source), self.weight, accumulate=True)


def _in_parts(graph: KnowledgeGraph, places: NDArray[np.int64]) -> Iterator[tuple[Tensor, Tensor]]:
    """(numbers, triples int64 [n, 3]) of those at the places, some at a time: no more is ever held."""
    for begin in range(0, len(places), PART):
        part = places[begin : begin + PART]
        yield torch.arange(begin, begin + len(part)), torch.from_numpy(np.array(graph.triples_at(part)))


def _worth_compiling(triples: Tensor) -> bool:
    """Whether a compiled loop may be waited for, or is here already."""
    least = 1 << 13 if "rgcn.adjacency.edge_loops" in sys.modules else 1 << 19
    return triples.device.type == "cpu" and len(triples) >= least


def sorted_edges(
    parts: Iterable[tuple[Tensor, Tensor]],
    sizes: Mapping[str, Any],
    targets: NodePartition | None = None,
    transient: bool = False,
) -> EdgeStructure:
    """The edges of triples int64 [T, 3], in order.

    parts    triples with their numbers, some at a time: only the edges that are kept are held
    targets  keep the edges into its local nodes, whose rows are the targets; sources are nodes, local or not
    """
    found: list[tuple[Tensor, ...]] = []

    def keep(target: Tensor, *rest: Tensor) -> None:
        if targets is not None:
            local = targets.is_local(target)
            target, rest = targets.row(target[local]), tuple(end[local] for end in rest)
        found.append((target, *rest))

    for number, triples in parts:
        subject, relation, object_ = triples.unbind(1)
        keep(object_, relation, subject, number)
        if sizes["has_inverse"]:
            keep(subject, relation + sizes["num_data_relations"], object_, number)
    if targets is not None:
        sizes = {**sizes, "num_targets": len(targets)}
    if sizes["has_self_loops"]:
        device = found[0][0].device
        node = torch.arange(sizes["num_nodes"], device=device) if targets is None else targets.nodes.to(device)
        keep(node, torch.full_like(node, sizes["num_relations"] - 1), node, node + sizes["num_triples"])
    return EdgeStructure.sorted(*map(torch.cat, zip(*found, strict=True)), **sizes, transient=transient)


def _placed(triples: Tensor, sizes: Mapping[str, Any], transient: bool = False) -> EdgeStructure:
    """`_sorted` for many triples on the CPU: each edge is written where it belongs, and nothing else is held."""
    from rgcn.adjacency import edge_loops  # loaded where it is worth waiting for a compiler

    flags = sizes["has_inverse"], sizes["has_self_loops"]
    count = len(triples) * (1 + flags[0]) + sizes["num_nodes"] * flags[1]
    pointer = np.zeros(sizes["num_nodes"] + 1, dtype=np.int32)
    edges = [np.empty(count, dtype=np.int32) for _ in OF_EDGES]
    edge_loops.fill_edges(triples.numpy(), sizes["num_data_relations"], *flags, pointer, *edges)
    edge_loops.sort_rows(pointer, sizes["num_nodes"], *edges)
    relation, source, origin = map(torch.from_numpy, edges)
    return EdgeStructure(torch.from_numpy(pointer), relation, source, origin, **sizes, transient=transient)


def _relations_reaching(structure: EdgeStructure, raw: Tensor) -> Tensor:
    """[targets]: how many relations have an edge of positive weight into each target."""
    runs = structure.groups("relation")
    present = structure.run_begins & (_group_sums(raw.detach(), runs).index_select(0, runs.row) > 0)
    return _group_sums(present.to(raw.dtype), structure.groups("node"))


def _group_sums(values: Tensor, groups: SparsePattern) -> Tensor:
    """[groups]: the sum of each group's values, added in a fixed order."""
    return gather_sum(groups, None, values.unsqueeze(1)).squeeze(1)


def _divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    """numerator / denominator, zero where the denominator is: a row that lost all its edges stays empty."""
    empty = denominator == 0
    return torch.where(empty, torch.zeros_like(numerator), numerator / torch.where(empty, 1.0, denominator))


def refuse_numbers_out_of_range(triples: Tensor, num_nodes: int, num_relations: int) -> None:
    """Raise DataError with the first of the triples int64 [T, 3] whose numbers are not in the graph.

    >>> refuse_numbers_out_of_range(torch.tensor([[0, 0, 1], [1, 5, 0]]), num_nodes=2, num_relations=2)
    Traceback (most recent call last):
    rgcn.errors.DataError: triple 1 is (1, 5, 0), but relations are numbered 0 to 1 ...
    """
    if num_nodes < 0 or num_relations < 0:
        raise DataError(f"a graph cannot have {num_nodes} nodes and {num_relations} relations")
    if not len(triples):
        return
    # One number comes back from the device where all is well; which row it is, is asked only where it is not.
    sizes = torch.tensor([num_nodes, num_relations, num_nodes], device=triples.device)
    outside = (triples < 0) | (triples >= sizes)
    if not outside.any():
        return
    row = int(outside.any(1).nonzero()[0])
    column = int(outside[row].nonzero()[0])
    what, size = ("relation", num_relations) if column == 1 else ("node", num_nodes)
    values = ", ".join(map(str, triples[row].tolist()))
    allowed = f"{what}s are numbered 0 to {size - 1}" if size else f"the graph has no {what}s"
    raise DataError(
        f"triple {row} is ({values}), but {allowed} (a triple is subject, relation, object; rows are counted from 0)"
    )
