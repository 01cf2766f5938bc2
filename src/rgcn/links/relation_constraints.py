"""What kind of thing a relation is: which nodes can stand at its ends, how many at once, which way it goes.

From the training triples, with support and confidence, and from what the file itself declares in RDFS and OWL. Answers
that a sensible person would laugh at are left out by it: models score a triple by how well its parts go together, and
no training step asks about a subject and an object that are *both* of the wrong kind. Test and validation triples are
not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rgcn.graph import KnowledgeGraph
from rgcn.links.declared_constraints import Declared
from rgcn.nn.scorer import Questions
from rgcn.sampling.known_triples import LAST, KnownTriples

Kinds = Literal["seen", "fitting", "any"]
Ids = NDArray[np.int64]
Shares = NDArray[np.float64]
Flags = NDArray[np.bool_]

# A rule may have so many exceptions; and that a node has one object at most is not concluded from fewer nodes, nor from
# fewer triples that a question makes no sense.
LARGEST_EXCEPTION, ENOUGH_NODES = 0.01, 10
# Nodes seen in one place fit another if at least this share of their like was seen there. Chosen on validation triples:
# on WN18, `world` and FB-Toy 99 to 100 of 100 fit, while 45 %, 99 % and 97 % of all possible triples do not.
SHARE_OF_LIKES = 0.01
# An end is open to nodes never seen there if more than this share of its triples have a node that no other one has: as
# Good and Turing showed, that is the chance that the next one brings another. For subjects it is less than for objects:
# a thing that lacks a value is the very one to ask for. Chosen on validation triples (docs/rules.md).
OPEN_TO_SUBJECTS, OPEN_TO_OBJECTS = 0.2, 0.5
# How many triples of a graph are thought to be missing, where nothing was held out to tell.
THOUGHT_MISSING = 0.05
UNLIKELY = 0.05  # below this chance of a further answer, probably nothing is missing

OPEN, FINISHED, SENSELESS = range(3)  # what may be expected of a question


class RelationProfile(NamedTuple):
    """A relation in figures; of each share the support is how many things it is a share of."""

    relation: int
    triples: int
    subjects: int
    objects: int
    single_object: float  # share of subjects with one object
    single_subject: float  # share of objects with one subject
    both_ways: float  # share of triples that are also there turned round
    loops: float  # share of triples of a node with itself
    rules: tuple[str, ...]  # what is concluded, in words; declared ones are marked so


class RelationRules:
    """The rules of a graph's relations. A *place* is an end of one: subject of relation r at r, object at r + R.

    >>> kg = KnowledgeGraph.from_triples(
    ...     [("Rhine", "flows_to", "Sea"), ("Bern", "on", "Aare"), ("Basel", "on", "Rhine"), ("Thun", "on", "Aare")]
    ... )
    >>> rules = RelationRules(kg)
    >>> [kg.nodes[node] for node in rules.objects(kg.relations["on"], "seen")]
    ['Rhine', 'Aare']
    >>> likely = rules.subjects(kg.relations["flows_to"], "fitting")  # the Aare is like the Rhine
    >>> [kg.nodes[node] for node in likely]
    ['Rhine', 'Aare']
    """

    def __init__(self, graph: KnowledgeGraph) -> None:
        self.num_nodes, self.num_relations = graph.num_nodes, graph.num_relations
        self._known = KnownTriples.of_graph(graph, "train")
        self._is_literal, self.declared = graph.is_literal, Declared.by(graph)
        held_out = 0 if graph.triple_splits is None else int((graph.triple_splits == 1).sum())
        self._missing = held_out / max(len(self._known), 1) or THOUGHT_MISSING
        self._alike: dict[int, Flags] = {}
        self._outside: dict[tuple[int, Kinds], Tensor] = {}
        self._chances: dict[tuple[int, int], float] = {}

    # -- what triples show -------------------------------------------------------------------------------

    @cached_property
    def both_ways(self) -> Shares:
        """[R]: the share of triples between two nodes that are also there turned round."""
        nodes, count = max(self.num_nodes, 1), np.zeros(self.num_relations, dtype=np.int64)
        # Subjects by object are the triples turned round: both are sorted, and of some nodes numbers fit in 63 bits.
        for part in self._known.subjects.parts(LAST // max(self.num_relations * nodes, 1) - 1):
            first = int(part[0][0])
            turned, there = (
                ((own - np.int64(first)) * self.num_relations + relation) * nodes + other
                for own, relation, other in (part, self._known.objects.of_nodes(first, int(part[0][-1])))
            )
            found = np.flatnonzero(np.isin(turned, there, assume_unique=True) & (part[0] != part[2]))
            count += np.bincount(part[1][found], minlength=self.num_relations)
        return np.asarray(count / np.maximum(self.triples_of, 1))

    @cached_property
    def loops(self) -> Shares:
        """[R]: the share of triples that link a node to itself."""
        count = np.zeros(self.num_relations, dtype=np.int64)
        for subject, relation, object_ in self._known.objects.parts():
            count += np.bincount(relation[subject == object_], minlength=self.num_relations)
        return np.asarray(count / np.maximum(self.triples_of, 1))

    @property
    def triples_of(self) -> Ids:
        """[R]: how many triples each relation has."""
        return np.asarray(self._counted[0, : self.num_relations])

    @cached_property
    def _counted(self) -> Ids:
        """int64 [3, 2R]: of each place, its triples, the nodes seen there, and those seen in one triple only."""
        count = np.zeros((3, 2 * self.num_relations), dtype=np.int64)
        for _, place, times in self._runs():
            for row, weights in enumerate((times, None, times == 1)):
                count[row] += np.bincount(place, weights, 2 * self.num_relations).astype(np.int64)
        return count

    def _runs(self) -> Iterator[tuple[NDArray[Any], Ids, Ids]]:
        """(node, place, times) of every node in every place it is seen in, each once, some at a time."""
        for end, side in enumerate((self._known.objects, self._known.subjects)):
            for node, relation, _ in side.parts():
                first = np.flatnonzero(np.append(True, (relation[1:] != relation[:-1]) | (node[1:] != node[:-1])))
                place = relation[first].astype(np.int64) + end * self.num_relations
                yield node[first], place, np.diff(first, append=len(node))

    @cached_property
    def one_way(self) -> Flags:
        """[R]: relations of which (next to) no triple is also there turned round."""
        return self.declared.override(self.both_ways <= LARGEST_EXCEPTION, "symmetric", "asymmetric")

    @cached_property
    def without_loops(self) -> Flags:
        """[R]: relations in which (next to) no node is linked to itself."""
        return self.declared.override(self.loops <= LARGEST_EXCEPTION, "reflexive", "irreflexive")

    @property
    def nodes_at(self) -> Ids:
        """[2R]: how many nodes are seen in each place."""
        return np.asarray(self._counted[1])

    @property
    def once_at(self) -> Ids:
        """[2R]: how many of these in one triple only."""
        return np.asarray(self._counted[2])

    @cached_property
    def single(self) -> Flags:
        """[2R]: places whose nodes are there once only: of a subject's place, that it has one object at most."""
        shown = self.once_at >= (1 - LARGEST_EXCEPTION) * self.nodes_at
        shown &= self.nodes_at >= ENOUGH_NODES
        return np.asarray(shown | self.declared.single)

    def profiles(self) -> list[RelationProfile]:
        """Of every relation, in the order of their numbers."""
        size, counts = self.num_relations, self.triples_of
        once = self.once_at / np.maximum(self.nodes_at, 1)
        found = []
        for relation in range(size):
            flags = {
                "one object each": self.single[relation],
                "one subject each": self.single[relation + size],
                "one way": self.one_way[relation] and counts[relation] > 0,
                "both ways": self.both_ways[relation] >= 1 - LARGEST_EXCEPTION,
                "never itself": self.without_loops[relation] and counts[relation] > 0,
            }
            rules = (*(words for words, holds in flags.items() if holds), *self.declared.words(relation))
            ends = [relation, relation + size]
            numbers = [*self.nodes_at[ends].tolist(), *once[ends].tolist()]
            shares = [float(self.both_ways[relation]), float(self.loops[relation])]
            found.append(RelationProfile._make([relation, int(counts[relation]), *numbers, *shares, rules]))
        return found

    # -- who can stand where -----------------------------------------------------------------------------

    def subjects(self, relation: int, kinds: Kinds) -> Ids:
        """Nodes that may be a subject of the relation, ascending; never literals."""
        return self._standing(relation, kinds)

    def objects(self, relation: int, kinds: Kinds) -> Ids:
        """Nodes that may be an object of the relation, ascending.

        seen     those that are one in a training triple
        fitting  those; and, where the end is open or its classes are declared, those that are like them: of the nodes
                 in one of their places at least one in a hundred is also in this one, or they are of a declared class
        any      all
        """
        return self._standing(relation + self.num_relations, kinds)

    def _standing(self, place: int, kinds: Kinds) -> Ids:
        if kinds == "seen":
            return np.flatnonzero(self._stands_in(self.declared.same_place(place)))
        found = np.arange(self.num_nodes)
        if kinds == "fitting":
            like = self._companions(place).nonzero()[0] if self.is_open(place) else self.declared.same_place(place)
            found = self.declared.kept(place, np.flatnonzero(self._stands_in(like)))
        return found[~self._is_literal[found]] if place < self.num_relations else found

    def _stands_in(self, places: Sequence[int] | Ids) -> Flags:
        """bool [N]: the nodes seen in one of these places."""
        wanted, there = np.zeros(2 * self.num_relations, dtype=bool), np.zeros(self.num_nodes, dtype=bool)
        wanted[places] = True
        sides = zip(np.split(wanted, 2), (self._known.objects, self._known.subjects), strict=True)
        for relations, side in ((which, side) for which, side in sides if which.any()):
            there |= side.related_by(relations)
        return there

    def is_open(self, place: int) -> bool:
        """Whether nodes may stand there that were never seen there."""
        triples, least = self._counted[0, place], OPEN_TO_SUBJECTS if place < self.num_relations else OPEN_TO_OBJECTS
        return bool(self.once_at[place] > least * triples) or triples == 0

    # -- of a question -----------------------------------------------------------------------------------

    def expectation(self, questions: Questions, index: KnownTriples, new: tuple[int, ...] = ()) -> Tensor:
        """int8 [q]: whether an answer is to be expected.

        SENSELESS  neither the node nor any of its like was ever seen at that end of the relation
        FINISHED   it can have one answer only, and that is known
        """
        given, place, known = questions.node.cpu(), self.asked_place(questions), self.known_answers(index, questions)
        found = (torch.from_numpy(self.single)[place] & (known > 0)).to(torch.int8) * FINISHED
        for number, (node, end) in enumerate(zip(given.tolist(), place.tolist(), strict=True)):
            if not known[number] and node not in new and not self._may_stand(node, end):
                found[number] = SENSELESS
        return found

    def _may_stand(self, node: int, place: int) -> bool:
        sides = (side.of_nodes(node, node)[1] for side in (self._known.objects, self._known.subjects))
        mine = np.concatenate([np.unique(of) + end * self.num_relations for end, of in enumerate(sides)])
        few, same = self._counted[0, place] < ENOUGH_NODES, self.declared.same_place(place)
        here = bool(few or np.isin(mine, same).any() or self._companions(place)[mine].any())
        return node in self.declared.kept(place, np.array([node] if here else [], dtype=np.int64))

    def _companions(self, place: int) -> Flags:
        """bool [2R]: places of whose nodes at least one in a hundred also stand here; kept for the next question."""
        found = self._alike.get(place)
        if found is None:
            is_seen = self._stands_in(self.declared.same_place(place))
            also_here = np.zeros(2 * self.num_relations, dtype=np.int64)
            for node, places, _ in self._runs():
                also_here += np.bincount(places[is_seen[node]], minlength=len(also_here))
            found = self._alike[place] = also_here > SHARE_OF_LIKES * self.nodes_at
        return found

    def asked_place(self, questions: Questions) -> Tensor:
        """int64 [q], on the CPU: where the given nodes stand."""
        relation = questions.relation.cpu()
        return torch.where(questions.asks_objects().cpu(), relation, relation + self.num_relations)

    def answer_place(self, questions: Questions) -> Tensor:
        """int64 [q], on the CPU: where the answers stand."""
        return (self.asked_place(questions) + self.num_relations) % (2 * self.num_relations)

    def known_answers(self, index: KnownTriples, questions: Questions) -> Tensor:
        """int64 [q], on the CPU: how many answers are known."""
        given, objects = questions.node.cpu(), questions.asks_objects().cpu()
        key, count = given * index.num_relations + questions.relation.cpu(), torch.zeros_like(given)
        for side, answers in ((objects, index.objects), (~objects, index.subjects)):
            begin, end = answers.ranges(key[side].to(answers.device))
            count[side] = (end - begin).cpu()
        return count

    def chance_of_more(self, place: int, known: int) -> float:
        """That a node there has more than so many known answers, by how many others have; kept for the next question.

        Were each triple missing with a small chance m, then of those that have k + 1 answers (k + 1) m would be known
        with k: they are so much likelier than those that have k.
        """
        found = self._chances.get((place, known))
        if found is None:
            lacking = (known + 1) * self._having(place, known + 1) * self._missing
            found = self._chances[place, known] = lacking / max(self._having(place, known) + lacking, 1e-9)
        return found

    def _having(self, place: int, times: int) -> float:
        """How many nodes have so many answers, about: the numbers near to it count too, ever less."""
        if not times:
            return float(max(len(self._standing(place, "fitting")) - self.nodes_at[place], 0))
        near = np.exp(-np.abs(np.log(self._often(place)) - np.log(times)) * 4)
        return float(near.sum() / max(1.0, times / 2))

    def _often(self, place: int) -> Ids:
        """How often each node stands there that does."""
        end, wanted = divmod(place, self.num_relations)
        side, found = self._known.subjects if end else self._known.objects, [np.empty(0, dtype=np.int64)]
        for node, relation, _ in side.parts():
            found.append(np.unique(node[relation == wanted], return_counts=True)[1])
        return np.concatenate(found)

    def outside(self, place: int, kinds: Kinds) -> Tensor:
        """bool [N]: nodes that may not stand there; kept for the next question."""
        found = self._outside.get((place, kinds))
        if found is None:
            inside, out = self._standing(place, kinds), np.ones(self.num_nodes, dtype=bool)
            if kinds == "fitting" and self.single[place]:  # whoever is there once is taken
                inside = np.setdiff1d(inside, self._standing(place, "seen"))
            nothing = kinds == "fitting" and not self._counted[0, place] and place not in self.declared.classes
            out[slice(None) if nothing else inside] = False  # from nothing, nothing is concluded
            if len(self._outside) * self.num_nodes > 1 << 26:
                self._outside.clear()
            found = self._outside[place, kinds] = torch.from_numpy(out)
        return found


_rules: WeakKeyDictionary[KnowledgeGraph, RelationRules] = WeakKeyDictionary()


def rules_of(graph: KnowledgeGraph) -> RelationRules:
    """The rules of a graph; made once for each."""
    found = _rules.get(graph)
    if found is None:
        found = _rules[graph] = RelationRules(graph)
    return found


class Permitted(NamedTuple):
    """Which answers rules permit.

    nodes       which may be answers (`RelationRules.objects`)
    directions  whether known triples turned round, and nodes with themselves, are left out where rules say so
    new         nodes that nobody has seen in training: what was only seen does not bind them
    """

    nodes: Kinds = "fitting"
    directions: bool = True
    new: tuple[int, ...] = ()


EVERYTHING = Permitted("any", False)


class Marks(NamedTuple):
    """What is known of the answers to q questions: those of question i are known[known_begin[i] : known_end[i]]"""

    known: Tensor  # int64: nodes
    known_begin: Tensor
    known_end: Tensor
    out: Tensor  # bool [q, n]: which candidates rules leave out, unless they are known

    @classmethod
    def of(
        cls,
        graph: KnowledgeGraph,
        index: KnownTriples,
        given: Tensor,
        relation: Tensor,
        for_objects: bool,
        permitted: Permitted = Permitted(),  # noqa: B008 - it is immutable
        candidates: Tensor | None = None,
    ) -> Marks:
        """Of questions (given, relation, ?), or (?, relation, given), int64 [q] each."""
        key = given * index.num_relations + relation
        same, other = (index.objects, index.subjects) if for_objects else (index.subjects, index.objects)
        begin, end = same.ranges(key)
        rules, device = rules_of(graph), given.device
        if candidates is None:
            candidates = torch.arange(graph.num_nodes, device=device)
        out = torch.zeros(len(given), len(candidates), dtype=torch.bool, device=device)
        if permitted.nodes != "any":
            places = (relation + index.num_relations if for_objects else relation).tolist()
            for number, place in enumerate(places):
                out[number] = rules.outside(place, permitted.nodes).to(device)[candidates]
            if permitted.new:
                out[:, torch.isin(candidates, torch.tensor(permitted.new, device=device))] = False
            expected = rules.expectation(Questions(given, relation, for_objects), index, permitted.new)
            out[(expected != OPEN).to(device)] = True
        if permitted.directions and len(candidates):
            found = (rules.one_way, rules.without_loops)
            one_way, without_loops = (torch.from_numpy(of).to(device)[relation] for of in found)
            turned_begin, turned_end = other.ranges(key)
            row, node = other.expand(turned_begin, torch.where(one_way, turned_end, turned_begin))
            own = torch.nonzero(without_loops).squeeze(1)
            mark(out, candidates, torch.cat([row, own]), torch.cat([node, given[own]]))
        stop = torch.cumsum(end - begin, 0)
        return cls(same.expand(begin, end)[1], stop - (end - begin), stop, out)

    def known_nodes(self) -> tuple[Tensor, Tensor]:
        """(question, node) of every known answer."""
        return torch.repeat_interleave(self.known_end - self.known_begin), self.known


def mark(table: Tensor, candidates: Tensor, row: Tensor, node: Tensor) -> None:
    """Set bool [q, n] true at these nodes of these rows, where they are among the candidates int64 [n], ascending."""
    column = torch.searchsorted(candidates, node).clamp_(max=len(candidates) - 1)
    there = candidates[column] == node
    table[row[there], column[there]] = True
