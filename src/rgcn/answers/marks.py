"""Which answers to a question are known, and which are ruled out by example, for many questions at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rgcn.answers.by_example import examples_of
from rgcn.graph import KnowledgeGraph
from rgcn.known import Answers, KnownTriples


def is_ruled_out(graph: KnowledgeGraph, index: KnownTriples, triples: Tensor) -> Tensor:
    """bool [n]: which of the triples int64 [n, 3] are not in the index, and are ruled out by example."""
    subject, relation, object_ = triples.unbind(1)
    one_way, without_loops = _by_example(graph, relation)
    out = (one_way & index.contains(triples.flip(1))) | (without_loops & (subject == object_))
    return out & ~index.contains(triples)


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
        index: KnownTriples,
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
        one_way, without_loops = _by_example(graph, relation)
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


def _by_example(graph: KnowledgeGraph, relation: Tensor) -> tuple[Tensor, Tensor]:
    """bool [q] each: whether the relations go one way, and whether they link no node to itself."""
    examples = examples_of(graph)
    one_way, without_loops = (torch.from_numpy(of) for of in (examples.one_way, examples.without_loops))
    return one_way.to(relation.device)[relation], without_loops.to(relation.device)[relation]
