"""What the known triples of a relation show by example: which way it goes, and which nodes stand where.

Models score a triple by how well its parts go together, and some mistakes are the decoder's own: DistMult cannot tell
(s, r, o) from (o, r, s), so that every known triple turned round scores as high as the known one. And no training step
asks about a subject and an object that are *both* of the wrong kind, so that a river's exports to a lake may score
anything. The training triples know better; test and validation triples are not looked at.
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rgcn.graph import KnowledgeGraph
from rgcn.known import Answers, KnownTriples

Kinds = Literal["seen", "fitting", "any"]
Ids = NDArray[np.int64]

# Of fewer triples nothing is concluded about a relation's direction; and a few may go both ways by mistake.
ENOUGH_TRIPLES, LARGEST_EXCEPTION = 10, 0.01
# Nodes seen in one place fit another if at least this share of their like was seen there. Chosen on validation triples:
# on WN18, `world` and FB-Toy 99 to 100 of 100 fit, while 45 %, 99 % and 97 % of all possible triples do not.
SHARE_OF_LIKES = 0.01


class GraphExamples:
    """The examples that a graph's training triples give.

    >>> kg = KnowledgeGraph.from_triples(
    ...     [("Rhine", "flows_to", "Sea"), ("Bern", "on", "Aare"), ("Basel", "on", "Rhine")]
    ... )
    >>> examples = GraphExamples(kg)
    >>> [kg.nodes[node] for node in examples.objects(kg.relations["on"], "seen")]
    ['Rhine', 'Aare']
    >>> likely = examples.subjects(kg.relations["flows_to"], "fitting")  # the Aare is like the Rhine
    >>> [kg.nodes[node] for node in likely]
    ['Rhine', 'Aare']
    """

    def __init__(self, graph: KnowledgeGraph) -> None:
        self.num_nodes, self.num_relations = graph.num_nodes, graph.num_relations
        self._triples, self._known = graph.split_triples("train"), KnownTriples.of_graph(graph, "train")
        self._is_literal = graph.is_literal

    @cached_property
    def one_way(self) -> NDArray[np.bool_]:
        """bool [R]: relations of which (next to) no triple is also there turned round."""
        turned = self._known.contains(torch.tensor(self._triples).flip(1)).numpy()
        return self._hardly_any(turned & (self._triples[:, 0] != self._triples[:, 2]))

    @cached_property
    def without_loops(self) -> NDArray[np.bool_]:
        """bool [R]: relations in which (next to) no node is linked to itself."""
        return self._hardly_any(self._triples[:, 0] == self._triples[:, 2])

    def _hardly_any(self, exceptions: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """bool [R]: relations of enough triples, of which hardly any are among the exceptions [T]."""
        relation = self._triples[:, 1]
        counts, found = (np.bincount(of, minlength=self.num_relations) for of in (relation, relation[exceptions]))
        return np.asarray((counts >= ENOUGH_TRIPLES) & (found <= LARGEST_EXCEPTION * counts))

    def subjects(self, relation: int, kinds: Kinds) -> Ids:
        """Nodes that may be a subject of the relation, ascending; never literals."""
        found = self._standing(relation, kinds)
        return found if kinds == "seen" else found[~self._is_literal[found]]

    def objects(self, relation: int, kinds: Kinds) -> Ids:
        """Nodes that may be an object of the relation, ascending.

        seen     those that are one in a training triple
        fitting  those that are like them: a place is being a relation's subject, or its object, and of the nodes in one
                 of their places at least one in a hundred is also in this one
        any      all
        """
        return self._standing(relation + self.num_relations, kinds)

    @cached_property
    def _places(self) -> tuple[Ids, Ids]:
        """(node, place) of every node in every place it is seen in, each once; sorted."""
        subject, relation, object_ = self._triples.T
        places = 2 * self.num_relations
        pairs = np.unique(np.concatenate([subject * places + relation, object_ * places + relation + places // 2]))
        return pairs // places, pairs % places

    def _standing(self, place: int, kinds: Kinds) -> Ids:
        if kinds == "any":
            return np.arange(self.num_nodes)
        nodes, places = self._places
        seen = nodes[places == place]
        if kinds == "seen":
            return np.asarray(seen)
        is_seen = np.zeros(self.num_nodes, dtype=bool)
        is_seen[seen] = True
        size, also_here = (np.bincount(of, minlength=2 * self.num_relations) for of in (places, places[is_seen[nodes]]))
        alike = also_here > SHARE_OF_LIKES * size
        return np.unique(nodes[alike[places]])


_examples: WeakKeyDictionary[KnowledgeGraph, GraphExamples] = WeakKeyDictionary()


def examples_of(graph: KnowledgeGraph) -> GraphExamples:
    """The examples of a graph; made once for each."""
    found = _examples.get(graph)
    if found is None:
        found = _examples[graph] = GraphExamples(graph)
    return found


def is_ruled_out(graph: KnowledgeGraph, index: KnownTriples, triples: Tensor) -> Tensor:
    """bool [n]: which of the triples int64 [n, 3] are not in the index, and are ruled out by example."""
    subject, relation, object_ = triples.unbind(1)
    one_way, without_loops = _by_example(graph, relation)
    out = (one_way & index.contains(triples.flip(1))) | (without_loops & (subject == object_))
    return out & ~index.contains(triples)


class Marks(NamedTuple):
    """What is known of the answers to q questions: those of question i are known.node[known_begin[i] : known_end[i]]"""

    known: Answers  # in the graph
    known_begin: Tensor
    known_end: Tensor
    turned: Answers  # ruled out, since the triple is there the other way round and its relation goes one way
    turned_begin: Tensor
    turned_end: Tensor
    own: Tensor  # int64 [q]: a node that is ruled out, since the relation links no node to itself; -1 for none

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
        turned_end = torch.where(one_way, turned_end, turned_begin)
        return cls(same, begin, end, other, turned_begin, turned_end, torch.where(without_loops, given, -1))

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
