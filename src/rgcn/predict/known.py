"""Which answers to a question are known, and which are ruled out by example, for many questions at once."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from rgcn.graph import KnowledgeGraph
from rgcn.predict.by_example import examples_of
from rgcn.ranking import Answers, FilterIndex

_indices: WeakKeyDictionary[KnowledgeGraph, dict[tuple[str, ...], FilterIndex]] = WeakKeyDictionary()


def known_triples(graph: KnowledgeGraph, *splits: str, device: torch.device | str = "cpu") -> FilterIndex:
    """The triples of some splits of a graph, or of all; built once for each graph and device."""
    of_graph = _indices.setdefault(graph, {})
    key = (str(device), *splits)
    index = of_graph.get(key)
    if index is None:
        rows = [torch.from_numpy(np.array(graph.split_triples(split))) for split in splits or ("all",)]
        index = FilterIndex.of(*rows, num_nodes=graph.num_nodes, num_relations=graph.num_relations).to(device)
        of_graph[key] = index
    return index


def is_ruled_out(graph: KnowledgeGraph, index: FilterIndex, triples: Tensor) -> Tensor:
    """bool [n]: which of the triples int64 [n, 3] are not in the index, and are ruled out by example."""
    subject, relation, object_ = triples.unbind(1)
    marks = Marks.of(graph, index, subject, relation, for_objects=True)
    position = torch.arange(len(triples), device=triples.device) * graph.num_nodes + object_
    known, out = (row * graph.num_nodes + node for row, node in (marks.known_nodes(), marks.ruled_out()))
    return torch.isin(position, out) & ~torch.isin(position, known)


@dataclass(frozen=True, eq=False)
class Marks:
    """What is known of the answers to q questions.

    known          answers in the graph; those of question i are known.node[known_begin[i] : known_end[i]]
    turned         nodes that are ruled out, since the triple is there the other way round and its relation goes one way
    own            int64 [q]: a node that is ruled out, since the relation links no node to itself; -1 for none
    """

    known: Answers
    known_begin: Tensor
    known_end: Tensor
    turned: Answers
    turned_begin: Tensor
    turned_end: Tensor
    own: Tensor

    @classmethod
    def of(
        cls,
        graph: KnowledgeGraph,
        index: FilterIndex,
        given: Tensor,
        relation: Tensor,
        for_objects: bool,
        by_example: bool = True,
    ) -> Marks:
        """Of questions (given, relation, ?), or (?, relation, given), int64 [q] each."""
        key = given * index.num_relations + relation
        same, other = (index.objects, index.subjects) if for_objects else (index.subjects, index.objects)
        begin, end = same.ranges(key)
        if not by_example:
            nothing = torch.zeros_like(begin)
            return cls(same, begin, end, other, nothing, nothing, torch.full_like(given, -1))
        examples = examples_of(graph)
        one_way = torch.from_numpy(examples.one_way).to(key.device)[relation]
        without_loops = torch.from_numpy(examples.without_loops).to(key.device)[relation]
        turned_begin, turned_end = other.ranges(key)
        return cls(
            same,
            begin,
            end,
            other,
            turned_begin,
            torch.where(one_way, turned_end, turned_begin),
            torch.where(without_loops, given, -1),
        )

    def known_nodes(self) -> tuple[Tensor, Tensor]:
        """(question, node) of every known answer."""
        return self.known.expand(self.known_begin, self.known_end)

    def ruled_out(self) -> tuple[Tensor, Tensor]:
        """(question, node) of every answer that examples rule out; a few may be known all the same."""
        row, node = self.turned.expand(self.turned_begin, self.turned_end)
        with_own = torch.nonzero(self.own >= 0).squeeze(1)
        return torch.cat([row, with_own]), torch.cat([node, self.own[with_own]])
