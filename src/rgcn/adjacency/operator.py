"""The operator: weighted, normalized edges; dropping edges, restricting to some targets and the sources they read."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rgcn.adjacency.structure import EDGE_FIELDS, EdgeStructure, entries_of_rows
from rgcn.errors import ConfigError, DataError
from rgcn.graph import SPLITS, KnowledgeGraph
from rgcn.kernels import gather_sum
from rgcn.kernels.sparse import SparsePattern, pointer_from_sorted
from rgcn.placement import NodePartition
from rgcn.system.memory import release_memory

LARGE_TRIPLES = 1 << 19  # at least so many: saving memory pays off
CHUNK_TRIPLES = 1 << 20  # triples that are read together to find the edges into local nodes
Normalization = Literal["relation", "node", "direction", "none"]
Aggregation = Literal["sum", "mean"]


@dataclass(frozen=True)
class EdgeOptions:
    """Which edges are made from triples, and how their weights are normalized.

    Attributes:
        inverse: Add an edge in the opposite direction for each triple, with a relation of its own.
        self_loops: Add an edge from each node to itself, with the last relation.
        normalization: See `RelationalAdjacency`.
        aggregation: See `RelationalAdjacency`.
    """

    inverse: bool = True
    self_loops: bool = True
    normalization: Normalization = "relation"
    aggregation: Aggregation = "sum"

    def __post_init__(self) -> None:
        """Check the names."""
        for name, values in (("normalization", Normalization), ("aggregation", Aggregation)):
            value = getattr(self, name)
            if value not in get_args(values):
                raise ConfigError(f"unknown {name} {value!r}: choose {' or '.join(map(repr, get_args(values)))}")

    def sizes(self, triples: int, nodes: int, relations: int) -> dict[str, Any]:
        """Return the sizes and flags of the `EdgeStructure` of a whole graph."""
        num_relations = relations * (1 + self.inverse) + int(self.self_loops)
        counts = {"num_relations": num_relations, "num_data_relations": relations, "num_triples": triples}
        flags = {"has_inverse": self.inverse, "has_self_loops": self.self_loops}
        return {**dict.fromkeys(("num_targets", "num_sources", "num_nodes"), nodes), **counts, **flags}


def edge_options(model: Any) -> dict[str, Any]:
    """Return the fields of `EdgeOptions` that a model's configuration sets."""
    return {each.name: getattr(model, each.name) for each in fields(EdgeOptions)}


@dataclass(frozen=True, eq=False)
class RelationalAdjacency:
    """The adjacency matrices A_r of all relations of a graph, as one linear operator [num_targets, num_sources].

    Normalization divides an edge's raw weight by the sum over a group of edges with the same target:

    - "relation": those of the same relation, so each A_r is row-normalized, as in the paper;
    - "node": all of them, so Σ_r A_r is row-normalized;
    - "direction": those of the same direction, along triples or inverse, as in the original link predictor;
    - "none": no division.

    Aggregation "mean" also divides by the number of relations that have an edge into the target.

    Attributes:
        structure: The edges, sorted.
        raw: Weights before normalization, [num_edges]: one, the graph's edge weights, or zero for a dropped edge.
        weight: Entries of the A_r: normalized weights, [num_edges].
        normalization: The rule of normalization.
        aggregation: "sum" or "mean".

    >>> import rgcn
    >>> kg = rgcn.KnowledgeGraph.from_triples([("a", "r", "b"), ("c", "r", "b")])
    >>> adjacency = RelationalAdjacency.from_graph(kg)
    >>> adjacency.to_dense()[0]  # A_0: b averages a and c
    tensor([[0.0000, 0.0000, 0.0000],
            [0.5000, 0.0000, 0.5000],
            [0.0000, 0.0000, 0.0000]])
    """

    structure: EdgeStructure
    raw: Tensor
    weight: Tensor
    normalization: Normalization = "relation"
    aggregation: Aggregation = "sum"

    # -- creation --------------------------------------------------------------------------------------

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
        """Build the operator of a knowledge graph's triples.

        Args:
            graph: The graph.
            split: Name of a split of the triples; "all" takes all.
            device: Where to put the operator.
            targets: Build only the rows of the local nodes, in their order: an operator [num_local_nodes, num_nodes].
            edges: Fields of `EdgeOptions`: inverse, self_loops, normalization, aggregation.
        """
        is_whole = split == "all" or graph.triple_splits is None
        rows = slice(None) if is_whole else np.flatnonzero(graph.triple_splits == SPLITS.index(split))
        weights = None if graph.edge_weights is None else torch.from_numpy(np.array(graph.edge_weights[rows]))
        if targets is not None:
            options, numbers = EdgeOptions(**edges), np.arange(len(graph))[rows]
            sizes = options.sizes(len(numbers), graph.num_nodes, graph.num_relations)
            structure = sort_edges(_triple_chunks(graph, numbers), sizes, targets)
            return cls.from_structure(structure, weights, options).to(device)
        with warnings.catch_warnings():  # NumPy marks the array read-only; we only read it
            warnings.simplefilter("ignore", UserWarning)
            triples = torch.from_numpy(np.ascontiguousarray(graph.split_triples(split))).to(device)
        counts, weights = (graph.num_nodes, graph.num_relations), None if weights is None else weights.to(device)
        # A graph checks its triples when it is created.
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
        """Build the operator of triples (subject, relation, object).

        Args:
            triples: int64 [num_triples, 3].
            num_nodes: How many nodes there are.
            num_relations: How many relations there are.
            edge_weights: Floating-point numbers [num_triples]; None: all one.
            transient: True if the operator is used for one step only.
            checked: True only for triples whose ids are known to be in range. Kernels read memory wherever an id
                points, so ids are checked, and on a GPU the check waits for the device.
            targets: As in `from_graph`.
            edges: As in `from_graph`.

        Raises:
            DataError: The triples or weights have a wrong shape or type, or an id is out of range.
        """
        options = EdgeOptions(**edges)
        if triples.ndim != 2 or triples.shape[1] != 3 or triples.dtype != torch.int64:
            raise DataError(f"triples must be int64 [num_triples, 3], not {triples.dtype} {list(triples.shape)}")
        if edge_weights is not None and (edge_weights.shape != (len(triples),) or not edge_weights.is_floating_point()):
            actual = f"{edge_weights.dtype} {list(edge_weights.shape)}"
            raise DataError(f"{len(triples)} edge weights are needed, as floating-point numbers, not {actual}")
        if not checked:
            check_triple_ids(triples, num_nodes, num_relations)
        sizes = options.sizes(len(triples), num_nodes, num_relations)
        fits_int32 = max(2 * len(triples) + num_nodes, sizes["num_relations"]) < 2**31
        if targets is not None or not (fits_int32 and _is_worth_compiling(triples)):
            chunk = torch.arange(len(triples), device=triples.device), triples
            return cls.from_structure(sort_edges([chunk], sizes, targets, transient), edge_weights, options)
        structure = _place_edges(triples, sizes, transient)
        if not transient and len(triples) >= LARGE_TRIPLES:
            release_memory()  # that sorting used
        if edge_weights is None and (options.normalization, options.aggregation) == ("relation", "sum"):
            from rgcn.adjacency import edge_loops

            weight = torch.empty(structure.num_edges)
            edge_loops.run_weights(structure.pointer.numpy(), structure.relation.numpy(), weight.numpy())
            return cls(structure, torch.ones(1).expand(structure.num_edges), weight)
        return cls.from_structure(structure, edge_weights, options)

    @classmethod
    def from_structure(
        cls, structure: EdgeStructure, edge_weights: Tensor | None, options: EdgeOptions
    ) -> RelationalAdjacency:
        """Build the operator of sorted edges, with weights [num_triples] of their triples; None: all one."""
        raw = torch.ones(1, device=structure.relation.device).expand(structure.num_edges)
        if edge_weights is not None:
            raw = torch.cat([edge_weights, edge_weights.new_ones(structure.num_nodes)])[structure.origin]
        rule = options.normalization, options.aggregation
        return cls(structure, raw, _normalized(structure, raw, rule, is_unweighted=edge_weights is None), *rule)

    # -- size ------------------------------------------------------------------------------------------

    @property
    def num_edges(self) -> int:
        """How many edges there are, of all relations."""
        return self.structure.num_edges

    @property
    def num_targets(self) -> int:
        """How many rows the operator has."""
        return self.structure.num_targets

    @property
    def num_sources(self) -> int:
        """How many columns the operator has."""
        return self.structure.num_sources

    @property
    def num_relations(self) -> int:
        """How many relations there are, with inverses and the self-loop."""
        return self.structure.num_relations

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.weight.device

    def __repr__(self) -> str:
        """Say the sizes and rules."""
        return (
            f"RelationalAdjacency({self.num_targets:,} x {self.num_sources:,}, {self.num_relations} relations, "
            f"{self.num_edges:,} edges, normalized per {self.normalization}, {self.aggregation})"
        )

    # -- derived operators ---------------------------------------------------------------------------------

    def to(self, target: torch.device | str | torch.dtype) -> RelationalAdjacency:
        """Copy to a device, or convert the weights to a type and normalize them in its precision."""
        if isinstance(target, torch.dtype):
            weight = self.weight.to(target)
            if target.itemsize > self.weight.dtype.itemsize:
                # 1/3 rounded to float32 is not 1/3 in float64, so normalize again, except for edges whose group is
                # incomplete (a part of an operator keeps the weights it had in the whole).
                is_complete = self.with_raw_weights(self.raw).weight == self.weight
                weight = torch.where(is_complete, self.with_raw_weights(self.raw.to(target)).weight, weight)
            return replace(self, raw=self.raw.to(target), weight=weight)
        moved = self.structure.to(target)
        return replace(self, structure=moved, raw=self.raw.to(target), weight=self.weight.to(target))

    def with_raw_weights(self, raw: Tensor) -> RelationalAdjacency:
        """Return the operator of the same edges with other raw weights [num_edges], normalized. Differentiable."""
        if raw.shape != (self.num_edges,):
            raise DataError(f"{self.num_edges} weights are needed, one per edge, not {list(raw.shape)}")
        return replace(self, raw=raw, weight=_normalized(self.structure, raw, (self.normalization, self.aggregation)))

    def with_attention(self, strength: Tensor) -> RelationalAdjacency:
        """Multiply raw weights by attention scores `strength` [num_edges], and normalize again. Differentiable.

        A factor that was applied after normalization is kept: that of a sampled edge, which represents others, or of
        an edge that an explanation weakens.
        """
        scaled = _divide(self.weight, self.with_raw_weights(self.raw).weight)
        attended = self.with_raw_weights(self.raw * strength)
        return replace(attended, weight=attended.weight * scaled)

    def masked(self, keep: Tensor) -> RelationalAdjacency:
        """Drop edges and normalize the others again.

        A triple's edge and its inverse are dropped together, so a dropped triple has no influence at all.

        Args:
            keep: 0 or 1 for each triple, then for each self-loop, [num_triples + num_nodes]; see `draw_mask`.
        """
        size = self.structure.num_triples + self.structure.num_nodes
        if keep.shape != (size,):
            raise DataError(f"a mask has {size} entries, one per triple and per node, not {list(keep.shape)}")
        return self.with_raw_weights(self.raw * keep.to(self.raw.dtype)[self.structure.origin])

    def total(self) -> Tensor:
        """Sum the raw weights of the edges into each target, [num_targets]."""
        return _group_sums(self.raw, self.structure.groups("node"))

    def draw_mask(self, rate: float, self_loop_rate: float = 0.0, generator: torch.Generator | None = None) -> Tensor:
        """Draw a mask for `masked` that drops triples with probability `rate`, self-loops with `self_loop_rate`."""
        for value in (rate, self_loop_rate):
            if not 0.0 <= value < 1.0:
                raise ConfigError(f"a dropout rate must be at least 0 and less than 1, not {value}")
        size = self.structure.num_triples + self.structure.num_nodes
        draws = torch.rand(size, generator=generator, device=self.device)
        draws[: self.structure.num_triples] -= rate
        draws[self.structure.num_triples :] -= self_loop_rate
        return (draws >= 0).to(self.raw.dtype)

    def num_edges_into(self, nodes: Tensor) -> Tensor:
        """Count the edges into each of these nodes, [n]."""
        pointer = self.structure.pointer
        return (pointer[nodes + 1] - pointer[nodes]).long()

    def restrict(self, targets: Tensor) -> tuple[RelationalAdjacency, Tensor]:
        """Restrict the operator to some targets, int64 [n], distinct, and the sources that they read.

        No weight changes: an edge is normalized among the edges of its own target, all of which are kept.

        Returns:
            An operator [n, num_sources], and the sources, ascending.

        Raises:
            DataError: A target does not exist or is given twice, or targets are of another type.
        """
        structure = self.structure
        if targets.ndim != 1 or targets.dtype != torch.int64:
            raise DataError(f"targets must be int64 [n], not {targets.dtype} {list(targets.shape)}")
        is_unknown = (targets < 0) | (targets >= structure.num_targets)
        if is_unknown.any():
            place, last = int(is_unknown.nonzero()[0]), structure.num_targets - 1
            raise DataError(f"target {place} is {int(targets[place])}, but targets are numbered 0 to {last}")
        if not bool((targets[1:] > targets[:-1]).all()) and len(torch.unique(targets)) != len(targets):
            raise DataError("a target is given twice: give distinct targets")
        return self.select_rows(*entries_of_rows(structure.pointer, targets))

    def select_rows(self, edges: Tensor, pointer: Tensor, **changes: Any) -> tuple[RelationalAdjacency, Tensor]:
        """Return the operator of some edges, grouped by new targets, and the sources they read, ascending.

        Args:
            edges: Numbers of edges, int64, in the order of the new targets, each target's in the order they had.
            pointer: Where the edges of each new target begin, [num_new_targets + 1].
            changes: Further fields of the structure to replace.
        """
        structure = self.structure
        sources, source = torch.unique(structure.source[edges], return_inverse=True)
        changes |= {"num_targets": len(pointer) - 1, "num_sources": len(sources)}
        return self.select_edges(edges, pointer=pointer, source=source, **changes), sources.long()

    def select_edges(self, edges: Tensor, **changes: Any) -> RelationalAdjacency:
        """Return the operator of some edges, with their present weights; arguments as `EdgeStructure.select_edges`."""
        structure = self.structure.select_edges(edges, **changes)
        # If one number represents all raw weights, it still does.
        raw = self.raw[edges] if self.raw.stride() != (0,) else self.raw[:1].expand(len(edges))
        return replace(self, structure=structure, raw=raw, weight=self.weight[edges])

    def split_self_loops(self) -> tuple[RelationalAdjacency, SparsePattern, Tensor]:
        """Return the operator without self-loops, the self-loops' pattern [num_targets, num_sources], and weights."""
        split = self.structure.self_loop_split
        rest = replace(self, structure=split.rest, raw=self.raw[split.rest_edges], weight=self.weight[split.rest_edges])
        return rest, split.loops, self.weight[split.loop_edges]

    def to_dense(self) -> Tensor:
        """Return all A_r as a dense tensor [num_relations, num_targets, num_sources], for small graphs."""
        s = self.structure
        dense = self.weight.new_zeros(s.num_relations, s.num_targets, s.num_sources)
        return dense.index_put((s.relation, s.target, s.source), self.weight, accumulate=True)


def _triple_chunks(graph: KnowledgeGraph, numbers: NDArray[np.int64]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the positions and the triples int64 [n, 3] with these numbers, in chunks, so that few are in memory."""
    for begin in range(0, len(numbers), CHUNK_TRIPLES):
        chunk = numbers[begin : begin + CHUNK_TRIPLES]
        yield torch.arange(begin, begin + len(chunk)), torch.from_numpy(np.array(graph.triples_at(chunk)))


def _is_worth_compiling(triples: Tensor) -> bool:
    """True if a compiled loop pays off: it takes a moment to compile, unless it was used before."""
    least = 1 << 13 if "rgcn.adjacency.edge_loops" in sys.modules else 1 << 19
    return triples.device.type == "cpu" and len(triples) >= least


def sort_edges(
    chunks: Iterable[tuple[Tensor, Tensor]],
    sizes: Mapping[str, Any],
    targets: NodePartition | None = None,
    transient: bool = False,
) -> EdgeStructure:
    """Make edges from triples, and sort them.

    Args:
        chunks: Numbers of triples [n], and the triples int64 [n, 3]. Only their edges are kept in memory.
        sizes: See `EdgeOptions.sizes`.
        targets: Keep only edges into the local nodes, whose rows become the targets. Sources are nodes, local or not.
        transient: See `EdgeStructure`.
    """
    edges: list[tuple[Tensor, ...]] = []

    def add(target: Tensor, *rest: Tensor) -> None:
        if targets is not None:
            local = targets.is_local(target)
            target, rest = targets.row(target[local]), tuple(end[local] for end in rest)
        edges.append((target, *rest))

    for number, triples in chunks:
        subject, relation, object_ = triples.unbind(1)
        add(object_, relation, subject, number)
        if sizes["has_inverse"]:
            add(subject, relation + sizes["num_data_relations"], object_, number)
    if targets is not None:
        sizes = {**sizes, "num_targets": len(targets)}
    if sizes["has_self_loops"]:
        device = edges[0][0].device
        node = torch.arange(sizes["num_nodes"], device=device) if targets is None else targets.nodes.to(device)
        add(node, torch.full_like(node, sizes["num_relations"] - 1), node, node + sizes["num_triples"])
    target, relation, source, origin = map(torch.cat, zip(*edges, strict=True))
    by_source = torch.argsort(source, stable=True)
    order = by_source[torch.argsort((target * sizes["num_relations"] + relation)[by_source], stable=True)]
    pointer = pointer_from_sorted(target[order], sizes["num_targets"])
    return EdgeStructure(pointer, relation[order], source[order], origin[order], **sizes, transient=transient)


def _place_edges(triples: Tensor, sizes: Mapping[str, Any], transient: bool = False) -> EdgeStructure:
    """Do the same as `sort_edges` for many triples on a CPU, writing each edge to its place without extra memory."""
    from rgcn.adjacency import edge_loops  # compiles loops

    flags = sizes["has_inverse"], sizes["has_self_loops"]
    count = len(triples) * (1 + flags[0]) + sizes["num_nodes"] * flags[1]
    pointer = np.zeros(sizes["num_nodes"] + 1, dtype=np.int32)
    edges = [np.empty(count, dtype=np.int32) for _ in EDGE_FIELDS]
    edge_loops.fill_edges(triples.numpy(), sizes["num_data_relations"], *flags, pointer, *edges)
    edge_loops.sort_rows(pointer, sizes["num_nodes"], *edges)
    relation, source, origin = map(torch.from_numpy, edges)
    return EdgeStructure(torch.from_numpy(pointer), relation, source, origin, **sizes, transient=transient)


def _normalized(
    structure: EdgeStructure, raw: Tensor, rule: tuple[Normalization, Aggregation], is_unweighted: bool = False
) -> Tensor:
    """Normalize raw weights [num_edges]; is_unweighted: all of them are one."""
    (normalization, aggregation), weight = rule, raw
    if normalization != "none":
        groups = structure.groups(normalization)
        if is_unweighted:  # a sum of ones is a count
            total = (groups.pointer[1:] - groups.pointer[:-1]).to(raw.dtype)
        else:
            total = _group_sums(raw, groups)
        weight = _divide(raw, total.index_select(0, groups.row))
    if aggregation == "mean":  # over the relations that have an edge of positive weight into the target
        runs = structure.groups("relation")
        present = structure.run_begins & (_group_sums(raw.detach(), runs).index_select(0, runs.row) > 0)
        weight = _divide(weight, _group_sums(present.to(raw.dtype), structure.groups("node"))[structure.target])
    return weight


def _group_sums(values: Tensor, groups: SparsePattern) -> Tensor:
    """Sum each group's values in a fixed order, [num_groups]."""
    return gather_sum(groups, None, values.unsqueeze(1)).squeeze(1)


def _divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Divide; the result is zero where the denominator is, so a row without edges stays empty."""
    is_zero = denominator == 0
    return torch.where(is_zero, torch.zeros_like(numerator), numerator / torch.where(is_zero, 1.0, denominator))


def check_triple_ids(triples: Tensor, num_nodes: int, num_relations: int) -> None:
    """Raise DataError for the first of the triples int64 [num_triples, 3] with an id that is out of range.

    >>> check_triple_ids(torch.tensor([[0, 0, 1], [1, 5, 0]]), num_nodes=2, num_relations=2)
    Traceback (most recent call last):
    rgcn.errors.DataError: triple 1 is (1, 5, 0), but relations are numbered 0 to 1 ...
    """
    if num_nodes < 0 or num_relations < 0:
        raise DataError(f"a graph cannot have {num_nodes} nodes and {num_relations} relations")
    if not len(triples):
        return
    # A single number is read back from the device if all is well.
    sizes = torch.tensor([num_nodes, num_relations, num_nodes], device=triples.device)
    is_unknown = (triples < 0) | (triples >= sizes)
    if not is_unknown.any():
        return
    row, column = is_unknown.nonzero()[0].tolist()
    kind, size = ("relation", num_relations) if column == 1 else ("node", num_nodes)
    values = ", ".join(map(str, triples[row].tolist()))
    allowed = f"{kind}s are numbered 0 to {size - 1}" if size else f"the graph has no {kind}s"
    raise DataError(
        f"triple {row} is ({values}), but {allowed} (a triple is subject, relation, object; rows are counted from 0)"
    )
