"""Naive reference implementation of relation constraints, with loops over triples.

Tests compare `rgcn.links.relation_constraints`, which computes with arrays, with it.
"""

import math
from functools import cache

import torch

from rgcn.links.relation_constraints import (
    ANSWERED,
    IMPLAUSIBLE,
    MAX_EXCEPTION_SHARE,
    MIN_NODES,
    MIN_OVERLAP,
    OPEN,
    OPEN_OBJECT_SHARE,
    OPEN_SUBJECT_SHARE,
    AnswerFilter,
)


class NaiveRules:
    """The relation constraints of a graph without an ontology.

    A slot is (relation, end); the end is 0 for subjects and 1 for objects.
    """

    def __init__(self, graph):
        self.graph, self.train = graph, {tuple(triple) for triple in graph.split_triples("train").tolist()}
        self.nodes, self.relations = range(graph.num_nodes), range(graph.num_relations)
        self.places = [(r, end) for end in (0, 1) for r in self.relations]

    @cache  # noqa: B019 - tests are short
    def of(self, relation):
        """Return the (subject, object) pairs of a relation."""
        return [(s, o) for s, r, o in self.train if r == relation]

    def both_ways(self, relation):
        """Return the share of pairs whose inverse is also a pair of the relation."""
        pairs = self.of(relation)
        return sum((o, s) in pairs and s != o for s, o in pairs) / max(len(pairs), 1)

    def loops(self, relation):
        """Return the share of pairs with the same subject and object."""
        pairs = self.of(relation)
        return sum(s == o for s, o in pairs) / max(len(pairs), 1)

    def is_one_way(self, relation):
        return self.both_ways(relation) <= MAX_EXCEPTION_SHARE

    def is_without_loops(self, relation):
        return self.loops(relation) <= MAX_EXCEPTION_SHARE

    @cache  # noqa: B019 - tests are short
    def times(self, node, place):
        """Count the triples with the node in this slot."""
        relation, end = place
        return sum(pair[end] == node for pair in self.of(relation))

    @cache  # noqa: B019 - tests are short
    def seen(self, place):
        """Return the set of nodes in this slot."""
        relation, end = place
        return {pair[end] for pair in self.of(relation)}

    @cache  # noqa: B019 - tests are short
    def once(self, place):
        """Count the nodes that are in this slot exactly once."""
        return sum(self.times(node, place) == 1 for node in self.seen(place))

    def is_single(self, place):
        """Return True if almost every node is in this slot only once."""
        seen = len(self.seen(place))
        return seen >= MIN_NODES and self.once(place) >= (1 - MAX_EXCEPTION_SHARE) * seen

    def is_open(self, place):
        """Return True if nodes that were never in this slot are to be expected there.

        By the Good-Turing estimate, the next triple has a new node with a probability equal to the share of nodes that
        occur once.
        """
        num_triples = len(self.of(place[0]))
        min_share = OPEN_OBJECT_SHARE if place[1] else OPEN_SUBJECT_SHARE
        return num_triples == 0 or self.once(place) / num_triples > min_share

    @cache  # noqa: B019 - tests are short
    def companions(self, place):
        """Return the slots that share more than the minimal overlap of their nodes with this slot."""
        here = self.seen(place)
        seen = {other: self.seen(other) for other in self.places}
        return [other for other in self.places if len(seen[other] & here) > MIN_OVERLAP * len(seen[other])]

    def alike(self, place):
        """Return the nodes of all companion slots."""
        return set().union(*(self.seen(other) for other in self.companions(place)))

    def allowed_nodes(self, place, kinds):
        """Return the nodes that fit a slot, literals included."""
        if kinds == "any":
            return set(self.nodes)
        if kinds == "seen" or not self.is_open(place):
            return self.seen(place)
        return self.seen(place) | self.alike(place)

    def subjects(self, relation, kinds):
        candidates = self.allowed_nodes((relation, 0), kinds)
        return {node for node in candidates if kinds == "seen" or not self.graph.is_literal[node]}

    def objects(self, relation, kinds):
        return self.allowed_nodes((relation, 1), kinds)

    def answers(self, place, kinds):
        """Return the nodes that may be new answers in a slot; in a single-valued slot the nodes in it are taken."""
        relation, end = place
        if kinds == "fitting" and not self.of(relation):
            return set(self.nodes)  # a relation without triples constrains nothing
        candidates = self.objects(relation, kinds) if end else self.subjects(relation, kinds)
        return candidates - self.seen(place) if kinds == "fitting" and self.is_single(place) else candidates

    def question_status(self, node, place, known, new=()):
        """Return the status of a question about a node in this slot that has `known` known answers."""
        if known:
            return ANSWERED if self.is_single(place) else OPEN
        fits = len(self.of(place[0])) < MIN_NODES or node in self.seen(place) | self.alike(place) or node in new
        return OPEN if fits else IMPLAUSIBLE

    def further(self, place, known, missing):
        """Return the probability of a further answer, by Bayes, if each triple is missing with probability `missing`.

        Nodes with a similar number of answers count as well.
        """

        def num_having(times):
            if not times:
                fitting = self.subjects(place[0], "fitting") if place[1] == 0 else self.objects(place[0], "fitting")
                return max(len(fitting) - len(self.seen(place)), 0)
            counts = (self.times(node, place) for node in self.seen(place))
            return sum(math.exp(-4 * abs(math.log(count / times))) for count in counts) / max(1, times / 2)

        lacking = (known + 1) * num_having(known + 1) * missing
        return lacking / max(num_having(known) + lacking, 1e-9)


def ruled_out(graph, known, answer_filter=AnswerFilter(), for_objects=True):  # noqa: B008 - it is immutable
    """Return the unknown triples that the filter forbids as answers, bool [num_nodes, num_relations, num_nodes].

    Args:
        graph: The graph that the constraints are derived from.
        known: Which triples are known, of the same shape.
        answer_filter: Which answers are allowed.
        for_objects: True for questions (subject, relation, ?), False for (?, relation, object).
    """
    rules, out = NaiveRules(graph), torch.zeros_like(known)
    size, end = graph.num_nodes, int(for_objects)
    for r in rules.relations:
        if answer_filter.directions and rules.is_one_way(r):
            out[:, r] |= known[:, r].T
        if answer_filter.directions and rules.is_without_loops(r):
            out[:, r] |= torch.eye(size, dtype=torch.bool)
        if answer_filter.nodes == "any":
            continue
        allowed = rules.answers((r, end), answer_filter.nodes) | set(answer_filter.new)
        no_answer = torch.tensor([node not in allowed for node in range(size)])
        counts = known[:, r].sum(int(for_objects)).tolist()
        stopped = torch.tensor(
            [rules.question_status(node, (r, 1 - end), counts[node], answer_filter.new) != OPEN for node in range(size)]
        )
        question, answer = (stopped[:, None], no_answer[None]) if for_objects else (stopped[None], no_answer[:, None])
        out[:, r] |= question | answer
    return out & ~known
