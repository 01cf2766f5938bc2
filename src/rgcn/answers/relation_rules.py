"""What kind of thing a relation is: which nodes can stand at its ends, how many at once, which way it goes.

From the training triples, with support and confidence, and from what the file itself declares in RDFS and OWL. Answers
that a sensible person would laugh at are left out by it: models score a triple by how well its parts go together, and
no training step asks about a subject and an object that are *both* of the wrong kind. Test and validation triples are
not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Literal, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rgcn.answers.declared import Declared
from rgcn.graph import KnowledgeGraph
from rgcn.known import AT_ONCE, KnownTriples
from rgcn.scoring import Questions

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
        keys, count = self._known.keys.numpy(), np.zeros(self.num_relations, dtype=np.int64)
        # Subjects by object are the triples turned round; sorted as they are, they are soon found.
        for part in _parts(self._known.subjects.pairs[:-1].numpy()):
            subject, relation, object_ = self._taken_apart(part[keys[np.searchsorted(keys, part)] == part])
            count += np.bincount(relation[subject != object_], minlength=self.num_relations)
        return np.asarray(count / np.maximum(self.triples_of, 1))

    @cached_property
    def loops(self) -> Shares:
        """[R]: the share of triples that link a node to itself."""
        return np.asarray(self._counted[1] / np.maximum(self.triples_of, 1))

    @property
    def triples_of(self) -> Ids:
        """[R]: how many triples each relation has."""
        return np.asarray(self._counted[0])

    @cached_property
    def _counted(self) -> Ids:
        """int64 [2, R]: triples of each relation, and those of a node with itself."""
        count = np.zeros((2, self.num_relations), dtype=np.int64)
        for part in _parts(self._known.keys[:-1].numpy()):
            subject, relation, object_ = self._taken_apart(part)
            for row, of in enumerate((relation, relation[subject == object_])):
                count[row] += np.bincount(of, minlength=self.num_relations)
        return count

    def _taken_apart(self, keys: Ids) -> tuple[Ids, Ids, Ids]:
        query, object_ = np.divmod(keys, max(self.num_nodes, 1))
        return query // max(self.num_relations, 1), query % max(self.num_relations, 1), object_

    @cached_property
    def one_way(self) -> Flags:
        """[R]: relations of which (next to) no triple is also there turned round."""
        return self.declared.override(self.both_ways <= LARGEST_EXCEPTION, "symmetric", "asymmetric")

    @cached_property
    def without_loops(self) -> Flags:
        """[R]: relations in which (next to) no node is linked to itself."""
        return self.declared.override(self.loops <= LARGEST_EXCEPTION, "reflexive", "irreflexive")

    @cached_property
    def _ends(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
        """(node, place, times) of every node in every place it is seen in, each once.

        Subjects first, then objects, by node and place each: half of what int64 and one order for all would take.
        """
        found, filled = np.empty((3, 2 * len(self._known)), dtype=np.int32), 0  # what is never filled takes no memory
        for end, pairs in enumerate((self._known.objects.pairs, self._known.subjects.pairs)):
            for query, times in _runs(pairs[:-1].numpy(), max(self.num_nodes, 1)):
                node, relation = np.divmod(query, max(self.num_relations, 1))
                found[:, filled : filled + len(query)] = node, relation + end * self.num_relations, times
                filled += len(query)
        node, place, times = found[:, :filled]
        return node, place, times

    @cached_property
    def _subjects_end(self) -> int:
        return int(np.argmax(self._ends[1] >= self.num_relations)) if len(self._ends[1]) else 0

    @cached_property
    def nodes_at(self) -> Ids:
        """[2R]: how many nodes are seen in each place."""
        return self._counted_at()

    @cached_property
    def once_at(self) -> Ids:
        """[2R]: how many of these in one triple only."""
        return self._counted_at(self._ends[2] == 1)

    def _counted_at(self, which: Flags | None = None, times: bool = False) -> Ids:
        """[2R]: how many nodes, of those marked, stand in each place, or how often; in parts, for room."""
        (_, place, often), found = self._ends, np.zeros(2 * self.num_relations)
        for first in range(0, len(place), AT_ONCE):
            part = slice(first, first + AT_ONCE)
            own = place[part] if which is None else place[part][which[part]]
            found += np.bincount(own, often[part] if times else None, len(found))
        return found.astype(np.int64)

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
        found = self._standing(relation, kinds)
        return found if kinds == "seen" else found[~self._is_literal[found]]

    def objects(self, relation: int, kinds: Kinds) -> Ids:
        """Nodes that may be an object of the relation, ascending.

        seen     those that are one in a training triple
        fitting  those; and, where the end is open or its classes are declared, those that are like them: of the nodes
                 in one of their places at least one in a hundred is also in this one, or they are of a declared class
        any      all
        """
        return self._standing(relation + self.num_relations, kinds)

    def _standing(self, place: int, kinds: Kinds) -> Ids:
        if kinds == "any":
            return np.arange(self.num_nodes)
        nodes, places, _ = self._ends
        seen = nodes[np.isin(places, self.declared.same_place(place))]
        if kinds == "seen":
            return self._distinct(seen)
        found = nodes[self._companions(place)[places]] if self.is_open(place) else seen
        return self.declared.kept(place, self._distinct(found))

    def _distinct(self, nodes: NDArray[np.int32]) -> Ids:
        """Each once, ascending: marked rather than sorted, which takes seconds for ten million."""
        there = np.zeros(self.num_nodes, dtype=bool)
        there[nodes] = True
        return np.flatnonzero(there)

    def is_open(self, place: int) -> bool:
        """Whether nodes may stand there that were never seen there."""
        triples, least = self._times[place], OPEN_TO_SUBJECTS if place < self.num_relations else OPEN_TO_OBJECTS
        return bool(self.once_at[place] > least * triples) or triples == 0

    @cached_property
    def _times(self) -> Ids:
        return self._counted_at(times=True)

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
        (nodes, places, _), half = self._ends, self._subjects_end
        sides = [(nodes[part], places[part]) for part in (slice(half), slice(half, None))]
        mine = np.concatenate([of[slice(*np.searchsorted(who, [node, node + 1]))] for who, of in sides])
        few, same = self._times[place] < ENOUGH_NODES, self.declared.same_place(place)
        here = bool(few or np.isin(mine, same).any() or self._companions(place)[mine].any())
        return node in self.declared.kept(place, np.array([node] if here else [], dtype=np.int64))

    def _companions(self, place: int) -> Flags:
        """bool [2R]: places of whose nodes at least one in a hundred also stand here; kept for the next question."""
        found = self._alike.get(place)
        if found is None:
            nodes, places, _ = self._ends
            is_seen = np.zeros(self.num_nodes, dtype=bool)
            is_seen[nodes[np.isin(places, self.declared.same_place(place))]] = True
            also_here = self._counted_at(is_seen[nodes])
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
            size = self.num_relations
            fitting = self.subjects(place, "fitting") if place < size else self.objects(place - size, "fitting")
            return float(max(len(fitting) - self.nodes_at[place], 0))
        _, places, often = self._ends
        near = np.exp(-np.abs(np.log(often[places == place]) - np.log(times)) * 4)
        return float(near.sum() / max(1.0, times / 2))

    def outside(self, place: int, kinds: Kinds) -> Tensor:
        """bool [N]: nodes that may not stand there; kept for the next question."""
        found = self._outside.get((place, kinds))
        if found is None:
            size, out = self.num_relations, np.ones(self.num_nodes, dtype=bool)
            inside = self.subjects(place, kinds) if place < size else self.objects(place - size, kinds)
            if kinds == "fitting" and self.single[place]:  # whoever is there once is taken
                inside = np.setdiff1d(inside, self._standing(place, "seen"))
            nothing = kinds == "fitting" and not self._times[place] and place not in self.declared.classes
            out[slice(None) if nothing else inside] = False  # from nothing, nothing is concluded
            if len(self._outside) * self.num_nodes > 1 << 26:
                self._outside.clear()
            found = self._outside[place, kinds] = torch.from_numpy(out)
        return found


def _parts(values: Ids) -> Iterator[Ids]:
    return (values[first : first + AT_ONCE] for first in range(0, len(values), AT_ONCE))


def _runs(sorted_pairs: Ids, size: int) -> Iterator[tuple[Ids, Ids]]:
    """(query, how often) of pairs query · size + answer: some at a time, all of a query together."""
    first = 0
    while first < len(sorted_pairs):
        last = sorted_pairs[min(first + AT_ONCE, len(sorted_pairs)) - 1]
        stop = int(np.searchsorted(sorted_pairs, (last // size + 1) * size))
        queries = sorted_pairs[first:stop] // size
        begins = np.flatnonzero(np.diff(queries, prepend=-1))
        yield queries[begins], np.diff(begins, append=len(queries))
        first = stop


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
            one_way, without_loops = (
                torch.from_numpy(of).to(device)[relation] for of in (rules.one_way, rules.without_loops)
            )
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
