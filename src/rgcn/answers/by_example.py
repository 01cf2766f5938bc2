"""What the known triples of a relation show by example: which way it goes, and which nodes stand where.

Models score a triple by how well its parts go together, and some mistakes are the decoder's own: DistMult cannot tell
(s, r, o) from (o, r, s), so that every known triple turned round scores as high as the known one. And no training step
asks about a subject and an object that are *both* of the wrong kind, so that a river's exports to a lake may score
anything. The training triples know better; test and validation triples are not looked at.
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from rgcn.graph import KnowledgeGraph
from rgcn.known import KnownTriples

Kinds = Literal["seen", "fitting", "any"]
Ids = NDArray[np.int64]

# Of fewer triples nothing is concluded about a relation's direction; and a few may go both ways by mistake.
ENOUGH_TRIPLES, LARGEST_EXCEPTION = 10, 0.01
# Nodes seen in one place fit another if at least this share of their like was seen there. Chosen on validation triples:
# on WN18, `world` and FB-Toy 99 to 100 of 100 fit, while 45 %, 99 % and 97 % of all possible triples do not.
SHARE_OF_LIKES = 0.01


class Examples:
    """The examples that a graph's training triples give.

    >>> kg = KnowledgeGraph.from_triples(
    ...     [("Rhine", "flows_to", "Sea"), ("Bern", "on", "Aare"), ("Basel", "on", "Rhine")]
    ... )
    >>> examples = Examples(kg)
    >>> [kg.nodes[node] for node in examples.objects(kg.relations["on"], "seen")]
    ['Rhine', 'Aare']
    >>> [
    ...     kg.nodes[node] for node in examples.subjects(kg.relations["flows_to"], "fitting")
    ... ]  # the Aare is like the Rhine
    ['Rhine', 'Aare']
    """

    def __init__(self, graph: KnowledgeGraph) -> None:
        self.num_nodes, self.num_relations = graph.num_nodes, graph.num_relations
        self._triples, self._known = graph.split_triples("train"), KnownTriples.of_graph(graph, "train")
        self._is_literal = graph.is_literal

    @cached_property
    def one_way(self) -> NDArray[np.bool_]:
        """bool [R]: relations of which (next to) no triple is also there turned round."""
        subject, relation, object_ = self._triples.T
        turned = self._known.contains(torch.tensor(self._triples).flip(1)).numpy()
        both_ways = turned & (subject != object_)
        counts, found = self._counts(), np.bincount(relation[both_ways], minlength=self.num_relations)
        return np.asarray((counts >= ENOUGH_TRIPLES) & (found <= LARGEST_EXCEPTION * counts))

    @cached_property
    def without_loops(self) -> NDArray[np.bool_]:
        """bool [R]: relations in which (next to) no node is linked to itself."""
        subject, relation, object_ = self._triples.T
        found = np.bincount(relation[subject == object_], minlength=self.num_relations)
        counts = self._counts()
        return np.asarray((counts >= ENOUGH_TRIPLES) & (found <= LARGEST_EXCEPTION * counts))

    def subjects(self, relation: int, kinds: Kinds) -> Ids:
        """Nodes that may be a subject of the relation, ascending; never literals."""
        return self._standing(relation, kinds, literals=False)

    def objects(self, relation: int, kinds: Kinds) -> Ids:
        """Nodes that may be an object of the relation, ascending.

        seen     those that are one in a training triple
        fitting  those that are like them: a place is being a relation's subject, or its object, and of the nodes in one
                 of their places at least one in a hundred is also in this one
        any      all
        """
        return self._standing(relation + self.num_relations, kinds, literals=True)

    def _counts(self) -> Ids:
        return np.bincount(self._triples[:, 1], minlength=self.num_relations)

    @cached_property
    def _places(self) -> tuple[Ids, Ids]:
        """(node, place) of every node in every place it is seen in, each once; sorted."""
        subject, relation, object_ = self._triples.T
        places = 2 * self.num_relations
        pairs = np.unique(np.concatenate([subject * places + relation, object_ * places + relation + places // 2]))
        return pairs // places, pairs % places

    def _standing(self, place: int, kinds: Kinds, literals: bool) -> Ids:
        if kinds == "any":
            return np.arange(self.num_nodes) if literals else np.flatnonzero(~self._is_literal)
        nodes, places = self._places
        seen = nodes[places == place]
        if kinds == "seen":
            return np.asarray(seen)
        is_seen = np.zeros(self.num_nodes, dtype=bool)
        is_seen[seen] = True
        size = np.bincount(places, minlength=2 * self.num_relations)
        also_here = np.bincount(places[is_seen[nodes]], minlength=2 * self.num_relations)
        alike = also_here > SHARE_OF_LIKES * size
        found = np.unique(nodes[alike[places]])
        return np.asarray(found if literals else found[~self._is_literal[found]])


_examples: WeakKeyDictionary[KnowledgeGraph, Examples] = WeakKeyDictionary()


def examples_of(graph: KnowledgeGraph) -> Examples:
    """The examples of a graph; made once for each."""
    found = _examples.get(graph)
    if found is None:
        found = _examples[graph] = Examples(graph)
    return found
