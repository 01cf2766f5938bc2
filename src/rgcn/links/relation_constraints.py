"""What kind of thing a relation is: which nodes can stand at its ends, how many at once, which way it goes.

From the training triples, with support and confidence, and from what the file itself declares in RDFS and OWL. Answers
that a sensible person would laugh at are left out by it: models score a triple by how well its parts go together, and
no training step asks about a subject and an object that are *both* of the wrong kind. Test and validation triples are
not looked at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import Self

from rgcn.graph import KnowledgeGraph
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

RDF, RDFS = "http://www.w3.org/1999/02/22-rdf-syntax-ns#", "http://www.w3.org/2000/01/rdf-schema#"
OWL = "http://www.w3.org/2002/07/owl#"
TYPE, SUBCLASS = f"{RDF}type", f"{RDFS}subClassOf"
# Classes that everything is of.
OF_ALL = (f"{OWL}Thing", f"{OWL}NamedIndividual", f"{RDFS}Resource")
# What is said of a relation by its type, and what we call it.
_WORDS = ("functional", "inverse functional", "symmetric", "asymmetric", "reflexive", "irreflexive")
CHARACTERS = {f"{OWL}{word.title().replace(' ', '')}Property": word for word in _WORDS}
_SAYING = (TYPE, SUBCLASS, f"{RDFS}domain", f"{RDFS}range", f"{OWL}inverseOf", f"{OWL}disjointWith")

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


@dataclass(frozen=True, eq=False)
class Declared:
    """Declarations about R relations; places are their ends, as `RelationRules` has them."""

    num_relations: int
    characters: dict[str, set[int]] = field(default_factory=dict)  # name → relations
    classes: dict[int, tuple[int, ...]] = field(default_factory=dict)  # place → classes whose members stand there
    inverses: dict[int, int] = field(default_factory=dict)  # relation → its inverse
    members: dict[int, Ids] = field(default_factory=dict)  # class → nodes, those of its subclasses among them
    strangers: dict[int, Ids] = field(default_factory=dict)  # class → nodes whose classes rule it out
    names: dict[int, str] = field(default_factory=dict)  # of classes

    @classmethod
    def by(cls, graph: KnowledgeGraph) -> Self:
        """What the training triples declare."""
        numbers = {name: graph.relations[name] for name in _SAYING if name in graph.relations}
        if not numbers:
            return cls(graph.num_relations)
        triples, size = graph.split_triples("train"), graph.num_relations

        def pairs(name: str) -> Iterable[tuple[int, int]]:
            said = triples[triples[:, 1] == numbers[name]] if name in numbers else triples[:0]
            return zip(said[:, 0].tolist(), said[:, 2].tolist(), strict=True)

        relation_of = {graph.nodes[name]: number for number, name in enumerate(graph.relations) if name in graph.nodes}
        characters = defaultdict[str, set[int]](set)
        characters_of = {graph.nodes[name]: character for name, character in CHARACTERS.items() if name in graph.nodes}
        for node, kind in pairs(TYPE) if characters_of else ():
            if kind in characters_of and node in relation_of:
                characters[characters_of[kind]].add(relation_of[node])
        classes = defaultdict[int, list[int]](list)
        for name, shift in ((f"{RDFS}domain", 0), (f"{RDFS}range", size)):
            for node, kind in pairs(name):
                if node in relation_of:
                    classes[relation_of[node] + shift].append(kind)
        inverses = {}
        for one, other in pairs(f"{OWL}inverseOf"):
            if one in relation_of and other in relation_of:
                inverses[relation_of[one]], inverses[relation_of[other]] = relation_of[other], relation_of[one]
        wanted = {kind for kinds in classes.values() for kind in kinds}
        above, types = _closure(pairs(SUBCLASS)), defaultdict[int, set[int]](set)
        for node, kind in pairs(TYPE) if wanted else ():  # of millions of nodes these are hundreds of megabytes
            types[node].add(kind)
        disjoint = {frozenset(pair) for pair in pairs(f"{OWL}disjointWith")}
        alike = defaultdict[frozenset[int], list[int]](list)  # nodes of the same classes
        saying_nothing = {graph.nodes[name] for name in OF_ALL if name in graph.nodes}
        for node, own in types.items():
            alike[frozenset(own - saying_nothing)].append(node)
        members, strangers = {}, {}
        for kind in sorted(wanted):
            inside, outside = [], []
            also = {kind, *above[kind]}
            for classes_of, nodes in alike.items():
                reached = set().union(classes_of, *(above[one] for one in classes_of))
                if kind in reached:
                    inside += nodes
                elif classes_of and (
                    not classes_of & above[kind] or any(frozenset((a, b)) in disjoint for a in reached for b in also)
                ):
                    outside += nodes  # of other kinds, none of which may be this one for all we know
            members[kind], strangers[kind] = (np.array(sorted(of), dtype=np.int64) for of in (inside, outside))
        names, ends = {kind: graph.nodes[kind] for kind in wanted}, {k: tuple(v) for k, v in classes.items()}
        return cls(size, dict(characters), ends, inverses, members, strangers, names)

    def override(self, shown: Flags, unless: str, always: str) -> Flags:
        """bool [R]: what triples show, but where the opposite, or the same, is declared."""
        said: Flags = shown.copy()
        said[sorted(self.characters.get(unless, ()))] = False
        said[sorted(self.characters.get(always, ()))] = True
        return said

    @property
    def single(self) -> Flags:
        """bool [2R]: places whose nodes are declared to be there once."""
        said = np.zeros((2, self.num_relations), dtype=bool)
        for end, name in zip(said, ("functional", "inverse functional"), strict=True):
            end[sorted(self.characters.get(name, ()))] = True
        return said.ravel()

    def same_place(self, place: int) -> list[int]:
        """The place, and that of the declared inverse where the same nodes stand."""
        end, size = place // max(self.num_relations, 1), self.num_relations
        other = self.inverses.get(place % max(size, 1))
        return [place] if other is None else [place, other + (1 - end) * size]

    def kept(self, place: int, nodes: Ids) -> Ids:
        """These nodes and the members of classes declared for the place, without those of other classes; ascending."""
        kinds = self.classes.get(place, ())
        for kind in kinds:
            nodes = np.union1d(nodes, self.members[kind])
        for kind in kinds:
            nodes = np.setdiff1d(nodes, self.strangers[kind])
        return nodes

    def words(self, relation: int) -> list[str]:
        said = [f"declared {name}" for name, relations in self.characters.items() if relation in relations]
        for place, what in ((relation, "domain"), (relation + self.num_relations, "range")):
            said += [f"declared {what} {self.names[kind]}" for kind in self.classes.get(place, ())]
        return said


def _closure(pairs: Iterable[tuple[int, int]]) -> defaultdict[int, set[int]]:
    """Everything above each class, however far; circles do no harm."""
    direct = defaultdict[int, set[int]](set)
    for below, above in pairs:
        direct[below].add(above)
    found = defaultdict[int, set[int]](set)
    for start in list(direct):
        waiting = [start]
        while waiting:
            new = direct[waiting.pop()] - found[start]
            found[start] |= new
            waiting += new
    return found


class PlaceCounts(NamedTuple):
    """int64 [2R] each: of each place its triples, the nodes seen there, and those seen there in one triple only."""

    triples: Ids
    nodes: Ids
    once: Ids


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
        return np.asarray(count / np.maximum(self.at.triples[: self.num_relations], 1))

    @cached_property
    def loops(self) -> Shares:
        """[R]: the share of triples that link a node to itself."""
        count = np.zeros(self.num_relations, dtype=np.int64)
        for subject, relation, object_ in self._known.objects.parts():
            count += np.bincount(relation[subject == object_], minlength=self.num_relations)
        return np.asarray(count / np.maximum(self.at.triples[: self.num_relations], 1))

    @cached_property
    def at(self) -> PlaceCounts:
        """How much there is in each place."""
        count = np.zeros((3, 2 * self.num_relations), dtype=np.int64)
        for _, place, times in self._runs():
            for row, weights in enumerate((times, None, times == 1)):
                count[row] += np.bincount(place, weights, 2 * self.num_relations).astype(np.int64)
        return PlaceCounts(*count)

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

    @cached_property
    def single(self) -> Flags:
        """[2R]: places whose nodes are there once only: of a subject's place, that it has one object at most."""
        shown = self.at.once >= (1 - LARGEST_EXCEPTION) * self.at.nodes
        shown &= self.at.nodes >= ENOUGH_NODES
        return np.asarray(shown | self.declared.single)

    def profiles(self) -> list[RelationProfile]:
        """Of every relation, in the order of their numbers."""
        size, counts = self.num_relations, self.at.triples
        once = self.at.once / np.maximum(self.at.nodes, 1)
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
            numbers = [*self.at.nodes[ends].tolist(), *once[ends].tolist()]
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
        triples, least = self.at.triples[place], OPEN_TO_SUBJECTS if place < self.num_relations else OPEN_TO_OBJECTS
        return bool(self.at.once[place] > least * triples) or triples == 0

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
        few, same = self.at.triples[place] < ENOUGH_NODES, self.declared.same_place(place)
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
            found = self._alike[place] = also_here > SHARE_OF_LIKES * self.at.nodes
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
            return float(max(len(self._standing(place, "fitting")) - self.at.nodes[place], 0))
        end, wanted = divmod(place, self.num_relations)
        side, often = self._known.subjects if end else self._known.objects, [np.empty(0, dtype=np.int64)]
        for node, relation, _ in side.parts():
            often.append(np.unique(node[relation == wanted], return_counts=True)[1])
        near = np.exp(-np.abs(np.log(np.concatenate(often)) - np.log(times)) * 4)
        return float(near.sum() / max(1.0, times / 2))

    def outside(self, place: int, kinds: Kinds) -> Tensor:
        """bool [N]: nodes that may not stand there; kept for the next question."""
        found = self._outside.get((place, kinds))
        if found is None:
            inside, out = self._standing(place, kinds), np.ones(self.num_nodes, dtype=bool)
            if kinds == "fitting" and self.single[place]:  # whoever is there once is taken
                inside = np.setdiff1d(inside, self._standing(place, "seen"))
            nothing = kinds == "fitting" and not self.at.triples[place] and place not in self.declared.classes
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
