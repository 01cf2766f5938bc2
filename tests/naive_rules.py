"""The rules of relations as they are defined, in loops: what `rgcn.links.relation_constraints` computes with arrays."""

import math
from functools import cache

import torch

from rgcn.links.relation_constraints import (
    ENOUGH_NODES,
    FINISHED,
    LARGEST_EXCEPTION,
    OPEN,
    OPEN_TO_OBJECTS,
    OPEN_TO_SUBJECTS,
    SENSELESS,
    SHARE_OF_LIKES,
    Permitted,
)


class NaiveRules:
    """Of a graph that declares nothing. A place is (relation, end), the end 0 for subjects and 1 for objects."""

    def __init__(self, graph):
        self.graph, self.train = graph, {tuple(triple) for triple in graph.split_triples("train").tolist()}
        self.nodes, self.relations = range(graph.num_nodes), range(graph.num_relations)
        self.places = [(r, end) for end in (0, 1) for r in self.relations]

    @cache  # noqa: B019 - tests are short
    def of(self, relation):
        return [(s, o) for s, r, o in self.train if r == relation]

    def both_ways(self, relation):
        own = self.of(relation)
        return sum((o, s) in own and s != o for s, o in own) / max(len(own), 1)

    def loops(self, relation):
        own = self.of(relation)
        return sum(s == o for s, o in own) / max(len(own), 1)

    def is_one_way(self, relation):
        return self.both_ways(relation) <= LARGEST_EXCEPTION

    def is_without_loops(self, relation):
        return self.loops(relation) <= LARGEST_EXCEPTION

    @cache  # noqa: B019 - tests are short
    def times(self, node, place):
        """In how many triples the node stands there."""
        relation, end = place
        return sum(pair[end] == node for pair in self.of(relation))

    @cache  # noqa: B019 - tests are short
    def seen(self, place):
        relation, end = place
        return {pair[end] for pair in self.of(relation)}

    @cache  # noqa: B019 - tests are short
    def once(self, place):
        return sum(self.times(node, place) == 1 for node in self.seen(place))

    def is_single(self, place):
        seen = len(self.seen(place))
        return seen >= ENOUGH_NODES and self.once(place) >= (1 - LARGEST_EXCEPTION) * seen

    def is_open(self, place):
        """By Good and Turing: the chance that the next triple brings a new node is the share of those met once."""
        triples = len(self.of(place[0]))
        least = OPEN_TO_OBJECTS if place[1] else OPEN_TO_SUBJECTS
        return triples == 0 or self.once(place) / triples > least

    @cache  # noqa: B019 - tests are short
    def companions(self, place):
        """Places of whose nodes more than one in a hundred are also here."""
        here = self.seen(place)
        seen = {other: self.seen(other) for other in self.places}
        return [other for other in self.places if len(seen[other] & here) > SHARE_OF_LIKES * len(seen[other])]

    def alike(self, place):
        return set().union(*(self.seen(other) for other in self.companions(place)))

    def standing(self, place, kinds):
        if kinds == "any":
            return set(self.nodes)
        if kinds == "seen" or not self.is_open(place):
            return self.seen(place)
        return self.seen(place) | self.alike(place)

    def subjects(self, relation, kinds):
        found = self.standing((relation, 0), kinds)
        return {node for node in found if kinds == "seen" or not self.graph.is_literal[node]}

    def objects(self, relation, kinds):
        return self.standing((relation, 1), kinds)

    def answers(self, place, kinds):
        """Who may be a new answer there: those who are there once, where once is enough, are taken."""
        relation, end = place
        if kinds == "fitting" and not self.of(relation):
            return set(self.nodes)  # nothing is concluded from nothing
        found = self.objects(relation, kinds) if end else self.subjects(relation, kinds)
        return found - self.seen(place) if kinds == "fitting" and self.is_single(place) else found

    def expectation(self, node, place, known, new=()):
        """Of asking for what stands at the other end, of a node at this one that has so many known answers."""
        if known:
            return FINISHED if self.is_single(place) else OPEN
        fits = len(self.of(place[0])) < ENOUGH_NODES or node in self.seen(place) | self.alike(place) or node in new
        return OPEN if fits else SENSELESS

    def further(self, place, known, missing):
        """By Bayes, were each triple missing with this chance; nodes with about as many answers count too."""

        def having(times):
            if not times:
                fitting = self.subjects(place[0], "fitting") if place[1] == 0 else self.objects(place[0], "fitting")
                return max(len(fitting) - len(self.seen(place)), 0)
            each = (self.times(node, place) for node in self.seen(place))
            return sum(math.exp(-4 * abs(math.log(one / times))) for one in each) / max(1, times / 2)

        lacking = (known + 1) * having(known + 1) * missing
        return lacking / max(having(known) + lacking, 1e-9)


def ruled_out(graph, known, permitted=Permitted(), for_objects=True):  # noqa: B008 - it is immutable
    """bool [N, R, N]: unknown triples that rules forbid as answers to questions for objects, or for subjects."""
    rules, out = NaiveRules(graph), torch.zeros_like(known)
    size, end = graph.num_nodes, int(for_objects)
    for r in rules.relations:
        if permitted.directions and rules.is_one_way(r):
            out[:, r] |= known[:, r].T
        if permitted.directions and rules.is_without_loops(r):
            out[:, r] |= torch.eye(size, dtype=torch.bool)
        if permitted.nodes == "any":
            continue
        may = rules.answers((r, end), permitted.nodes) | set(permitted.new)
        no_answer = torch.tensor([node not in may for node in range(size)])
        counts = known[:, r].sum(int(for_objects)).tolist()
        stopped = torch.tensor(
            [rules.expectation(node, (r, 1 - end), counts[node], permitted.new) != OPEN for node in range(size)]
        )
        asked, answer = (stopped[:, None], no_answer[None]) if for_objects else (stopped[None], no_answer[:, None])
        out[:, r] |= asked | answer
    return out & ~known
