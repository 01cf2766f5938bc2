"""Constraints on answers: which nodes a relation may have as subject or object, how many, and in which direction.

The constraints follow from the training triples, with support and confidence, and from RDFS and OWL declarations in the
data. Models score a triple by how well its parts go together, and no training step asks about a subject and an object
that are *both* of the wrong kind. Without constraints they therefore propose absurd answers. Validation and test
triples are not used.

A *slot* is one end of a relation: slot r holds the subjects of relation r, slot r + R its objects.
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

NodeFilter = Literal["seen", "fitting", "any"]
Ids = NDArray[np.int64]
Shares = NDArray[np.float64]
Flags = NDArray[np.bool_]

MAX_EXCEPTION_SHARE = 0.01  # a constraint holds although this share of the triples violates it
MIN_NODES = 10  # fewer nodes (or triples) are no evidence that a relation is functional (or a question implausible)
# A node fits a slot if it occurs in another slot of which more than this share of the nodes also occurs here. Chosen on
# validation triples: on WN18, `world` and FB-Toy 99 to 100 of 100 validation answers fit, while 45 %, 99 % and 97 % of
# all possible triples do not.
MIN_OVERLAP = 0.01
# A slot is open to new nodes if more than this share of its triples has a node that occurs in it only once. By the
# Good-Turing estimate, this is the probability that the next triple has a new node in the slot. The threshold is lower
# for subjects, because questions are mostly about subjects that lack an object. Chosen on validation triples
# (docs/reference/answers.md).
OPEN_SUBJECT_SHARE, OPEN_OBJECT_SHARE = 0.2, 0.5
DEFAULT_MISSING_SHARE = 0.05  # assumed share of missing triples, for graphs without a validation split
MIN_PROBABILITY_OF_MORE = 0.05  # below this probability of further answers, probably none is missing
MAX_CACHED_FLAGS = 1 << 26

RDF, RDFS = "http://www.w3.org/1999/02/22-rdf-syntax-ns#", "http://www.w3.org/2000/01/rdf-schema#"
OWL = "http://www.w3.org/2002/07/owl#"
TYPE, SUBCLASS = f"{RDF}type", f"{RDFS}subClassOf"
UNIVERSAL_CLASSES = (f"{OWL}Thing", f"{OWL}NamedIndividual", f"{RDFS}Resource")
_CHARACTERISTICS = ("functional", "inverse functional", "symmetric", "asymmetric", "reflexive", "irreflexive")
CHARACTERISTICS = {f"{OWL}{name.title().replace(' ', '')}Property": name for name in _CHARACTERISTICS}
_DECLARING = (TYPE, SUBCLASS, f"{RDFS}domain", f"{RDFS}range", f"{OWL}inverseOf", f"{OWL}disjointWith")

OPEN, ANSWERED, IMPLAUSIBLE = range(3)  # status of a question


class RelationProfile(NamedTuple):
    """Statistics of one relation. The counts are the support of the shares."""

    relation: int
    triples: int
    subjects: int
    objects: int
    single_object: float  # share of subjects with one object
    single_subject: float  # share of objects with one subject
    both_ways: float  # share of triples whose reversed triple also exists
    loops: float  # share of triples that link a node to itself
    rules: tuple[str, ...]  # constraints in words; "declared ..." if they come from an ontology


@dataclass(frozen=True, eq=False)
class OntologyDeclarations:
    """RDFS and OWL declarations about R relations.

    Args:
        num_relations: R.
        characteristics: {name such as "functional": relations}.
        classes: {slot: declared classes of its nodes}.
        inverses: {relation: its inverse}.
        members: {class: nodes, including those of its subclasses}.
        non_members: {class: nodes whose own classes exclude it}.
        names: {class: name}.
    """

    num_relations: int
    characteristics: dict[str, set[int]] = field(default_factory=dict)
    classes: dict[int, tuple[int, ...]] = field(default_factory=dict)
    inverses: dict[int, int] = field(default_factory=dict)
    members: dict[int, Ids] = field(default_factory=dict)
    non_members: dict[int, Ids] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)

    @classmethod
    def from_graph(cls, graph: KnowledgeGraph) -> Self:
        """Read the declarations from the training triples of a graph."""
        declaring = {name: graph.relations[name] for name in _DECLARING if name in graph.relations}
        if not declaring:
            return cls(graph.num_relations)
        triples, size = graph.split_triples("train"), graph.num_relations

        def pairs(name: str) -> Iterable[tuple[int, int]]:
            rows = triples[triples[:, 1] == declaring[name]] if name in declaring else triples[:0]
            return zip(rows[:, 0].tolist(), rows[:, 2].tolist(), strict=True)

        relation_of = {graph.nodes[name]: number for number, name in enumerate(graph.relations) if name in graph.nodes}
        names = {graph.nodes[name]: value for name, value in CHARACTERISTICS.items() if name in graph.nodes}
        characteristics = defaultdict[str, set[int]](set)
        for node, kind in pairs(TYPE) if names else ():
            if kind in names and node in relation_of:
                characteristics[names[kind]].add(relation_of[node])
        classes = defaultdict[int, list[int]](list)
        for name, shift in ((f"{RDFS}domain", 0), (f"{RDFS}range", size)):
            for node, kind in pairs(name):
                if node in relation_of:
                    classes[relation_of[node] + shift].append(kind)
        inverses = {}
        for one, other in pairs(f"{OWL}inverseOf"):
            if one in relation_of and other in relation_of:
                inverses[relation_of[one]], inverses[relation_of[other]] = relation_of[other], relation_of[one]
        declared = {kind for kinds in classes.values() for kind in kinds}
        superclasses, types = _transitive_closure(pairs(SUBCLASS)), defaultdict[int, set[int]](set)
        for node, kind in pairs(TYPE) if declared else ():  # for millions of nodes this takes hundreds of megabytes
            types[node].add(kind)
        disjoint = {frozenset(pair) for pair in pairs(f"{OWL}disjointWith")}
        universal = {graph.nodes[name] for name in UNIVERSAL_CLASSES if name in graph.nodes}
        nodes_by_types = defaultdict[frozenset[int], list[int]](list)
        for node, own in types.items():
            nodes_by_types[frozenset(own - universal)].append(node)
        members, non_members = {}, {}
        for kind in sorted(declared):
            inside, excluded_nodes = list[int](), list[int]()
            own = {kind, *superclasses[kind]}
            for types_of_nodes, nodes in nodes_by_types.items():
                reached = set().union(types_of_nodes, *(superclasses[one] for one in types_of_nodes))
                if kind in reached:
                    inside += nodes
                elif types_of_nodes and (
                    # A node that is only known to be of a superclass may belong to this class.
                    not types_of_nodes & superclasses[kind]
                    or any(frozenset((a, b)) in disjoint for a in reached for b in own)
                ):
                    excluded_nodes += nodes
            members[kind] = np.array(sorted(inside), dtype=np.int64)
            non_members[kind] = np.array(sorted(excluded_nodes), dtype=np.int64)
        slots, class_names = {k: tuple(v) for k, v in classes.items()}, {kind: graph.nodes[kind] for kind in declared}
        return cls(size, dict(characteristics), slots, inverses, members, non_members, class_names)

    def override(self, observed: Flags, negative: str, positive: str) -> Flags:
        """Return bool [R]: what the triples show, replaced where a characteristic or its opposite is declared."""
        flags: Flags = observed.copy()
        flags[sorted(self.characteristics.get(negative, ()))] = False
        flags[sorted(self.characteristics.get(positive, ()))] = True
        return flags

    @property
    def is_single(self) -> Flags:
        """Slots in which a node is declared to occur once at most, bool [2R]."""
        none = np.zeros(self.num_relations, dtype=bool)
        return np.concatenate([self.override(none, "", name) for name in ("functional", "inverse functional")])

    def equivalent_slots(self, slot: int) -> list[int]:
        """Return the slot, and the slot of the declared inverse relation that holds the same nodes."""
        end, relation = divmod(slot, max(self.num_relations, 1))
        inverse = self.inverses.get(relation)
        return [slot] if inverse is None else [slot, inverse + (1 - end) * self.num_relations]

    def apply_classes(self, slot: int, nodes: Ids) -> Ids:
        """Return the nodes with the members of the slot's declared classes and without non-members, ascending."""
        kinds = self.classes.get(slot, ())
        for kind in kinds:
            nodes = np.union1d(nodes, self.members[kind])
        for kind in kinds:
            nodes = np.setdiff1d(nodes, self.non_members[kind])
        return nodes

    def describe(self, relation: int) -> list[str]:
        """Return the declarations about a relation in words."""
        words = [f"declared {name}" for name, relations in self.characteristics.items() if relation in relations]
        for slot, end in ((relation, "domain"), (relation + self.num_relations, "range")):
            words += [f"declared {end} {self.names[kind]}" for kind in self.classes.get(slot, ())]
        return words


def _transitive_closure(pairs: Iterable[tuple[int, int]]) -> defaultdict[int, set[int]]:
    """Return all superclasses of each class, given (subclass, superclass) pairs, which may have cycles."""
    direct = defaultdict[int, set[int]](set)
    for below, above in pairs:
        direct[below].add(above)
    closure = defaultdict[int, set[int]](set)
    for start in list(direct):
        queue = [start]
        while queue:
            new = direct[queue.pop()] - closure[start]
            closure[start] |= new
            queue += new
    return closure


class SlotCounts(NamedTuple):
    """Counts per slot, int64 [2R] each."""

    triples: Ids
    nodes: Ids  # different nodes
    once: Ids  # nodes that occur in one triple only


class RelationConstraints:
    """The constraints on the relations of a graph. Use `relation_constraints`, which builds them once per graph.

    >>> kg = KnowledgeGraph.from_triples(
    ...     [("Rhine", "flows_to", "Sea"), ("Bern", "on", "Aare"), ("Basel", "on", "Rhine"), ("Thun", "on", "Aare")]
    ... )
    >>> constraints = RelationConstraints(kg)
    >>> [kg.nodes[node] for node in constraints.nodes_of(kg.relations["on"] + kg.num_relations, "seen")]
    ['Rhine', 'Aare']
    >>> fitting = constraints.nodes_of(kg.relations["flows_to"], "fitting")  # the Aare is like the Rhine
    >>> [kg.nodes[node] for node in fitting]
    ['Rhine', 'Aare']
    """

    def __init__(self, graph: KnowledgeGraph) -> None:
        """Index the training triples of a graph and read its declarations."""
        self.num_nodes, self.num_relations = graph.num_nodes, graph.num_relations
        self._is_literal, self.declared = graph.is_literal, OntologyDeclarations.from_graph(graph)
        self._known = KnownTriples.of_graph(graph, "train")
        num_held_out = 0 if graph.triple_splits is None else int((graph.triple_splits == 1).sum())
        self._missing_share = num_held_out / max(len(self._known), 1) or DEFAULT_MISSING_SHARE
        self._overlaps: dict[int, Flags] = {}
        self._excluded: dict[tuple[int, NodeFilter], Tensor] = {}
        self._probabilities: dict[tuple[int, int], float] = {}

    # -- statistics of the training triples ----------------------------------------------------------------

    @cached_property
    def reciprocal_share(self) -> Shares:
        """[R]: share of triples between two different nodes whose reversed triple also exists."""
        nodes, counts = max(self.num_nodes, 1), np.zeros(self.num_relations, dtype=np.int64)
        # Reversed triples are the subjects by object. Each triple of a block of nodes becomes one 63-bit number.
        for part in self._known.subjects.parts(LAST // max(self.num_relations * nodes, 1) - 1):
            first = int(part[0][0])
            reversed_, forward = (
                ((own - np.int64(first)) * self.num_relations + relation) * nodes + other
                for own, relation, other in (part, self._known.objects.of_nodes(first, int(part[0][-1])))
            )
            matches = np.flatnonzero(np.isin(reversed_, forward, assume_unique=True) & (part[0] != part[2]))
            counts += np.bincount(part[1][matches], minlength=self.num_relations)
        return np.asarray(counts / np.maximum(self.counts.triples[: self.num_relations], 1))

    @cached_property
    def loop_share(self) -> Shares:
        """[R]: share of triples that link a node to itself."""
        counts = np.zeros(self.num_relations, dtype=np.int64)
        for subject, relation, object_ in self._known.objects.parts():
            counts += np.bincount(relation[subject == object_], minlength=self.num_relations)
        return np.asarray(counts / np.maximum(self.counts.triples[: self.num_relations], 1))

    @cached_property
    def counts(self) -> SlotCounts:
        """Counts of triples and nodes per slot."""
        counts = np.zeros((3, 2 * self.num_relations), dtype=np.int64)
        for _, slot, times in self._occurrences():
            for row, weights in enumerate((times, None, times == 1)):
                counts[row] += np.bincount(slot, weights, 2 * self.num_relations).astype(np.int64)
        return SlotCounts(*counts)

    def _occurrences(self) -> Iterator[tuple[NDArray[Any], Ids, Ids]]:
        """Yield (node, slot, number of triples), each pair of node and slot once, in blocks."""
        for end, side in enumerate((self._known.objects, self._known.subjects)):
            for node, relation, _ in side.parts():
                first = np.flatnonzero(np.append(True, (relation[1:] != relation[:-1]) | (node[1:] != node[:-1])))
                slot = relation[first].astype(np.int64) + end * self.num_relations
                yield node[first], slot, np.diff(first, append=len(node))

    @cached_property
    def is_one_way(self) -> Flags:
        """Relations of which (almost) no triple is reversed in another one, bool [R]."""
        return self.declared.override(self.reciprocal_share <= MAX_EXCEPTION_SHARE, "symmetric", "asymmetric")

    @cached_property
    def is_irreflexive(self) -> Flags:
        """Relations that link (almost) no node to itself, bool [R]."""
        return self.declared.override(self.loop_share <= MAX_EXCEPTION_SHARE, "reflexive", "irreflexive")

    @cached_property
    def is_single(self) -> Flags:
        """Slots in which (almost) every node occurs once, bool [2R]; a subject then has one object at most."""
        observed = self.counts.once >= (1 - MAX_EXCEPTION_SHARE) * self.counts.nodes
        return np.asarray(observed & (self.counts.nodes >= MIN_NODES) | self.declared.is_single)

    def profiles(self) -> list[RelationProfile]:
        """Return the profile of every relation, in the order of their ids."""
        size, counts, result = self.num_relations, self.counts, []
        single_share = counts.once / np.maximum(counts.nodes, 1)
        columns = counts.triples[:size], *np.split(counts.nodes, 2), *np.split(single_share, 2)
        rows = zip(*map(np.ndarray.tolist, (*columns, self.reciprocal_share, self.loop_share)), strict=True)
        for relation, row in enumerate(rows):
            flags = {
                "one object each": self.is_single[relation],
                "one subject each": self.is_single[relation + size],
                "one way": self.is_one_way[relation] and counts.triples[relation] > 0,
                "both ways": self.reciprocal_share[relation] >= 1 - MAX_EXCEPTION_SHARE,
                "never itself": self.is_irreflexive[relation] and counts.triples[relation] > 0,
            }
            rules = (*(words for words, holds in flags.items() if holds), *self.declared.describe(relation))
            result.append(RelationProfile._make([relation, *row, rules]))
        return result

    # -- nodes that fit a slot -----------------------------------------------------------------------------

    def nodes_of(self, slot: int, nodes: NodeFilter) -> Ids:
        """Return the nodes that may occur in a slot, ascending; literals are never subjects.

        Args:
            slot: The slot: relation r for its subjects, r + R for its objects.
            nodes: "seen": nodes that occur there in training triples. "fitting": also nodes of declared classes and, if
                the slot is open to new nodes, nodes from slots that share nodes with this one (`MIN_OVERLAP`). "any":
                all nodes.
        """
        if nodes == "seen":
            return np.flatnonzero(self._occurs_in(self.declared.equivalent_slots(slot)))
        result = np.arange(self.num_nodes)
        if nodes == "fitting":
            is_open = self.is_open(slot)
            slots = self._overlapping_slots(slot).nonzero()[0] if is_open else self.declared.equivalent_slots(slot)
            result = self.declared.apply_classes(slot, np.flatnonzero(self._occurs_in(slots)))
        return result[~self._is_literal[result]] if slot < self.num_relations else result

    def _occurs_in(self, slots: Sequence[int] | Ids) -> Flags:
        """Return the nodes that occur in one of these slots, bool [N]."""
        is_wanted, result = np.zeros(2 * self.num_relations, dtype=bool), np.zeros(self.num_nodes, dtype=bool)
        is_wanted[slots] = True
        for relations, side in zip(np.split(is_wanted, 2), (self._known.objects, self._known.subjects), strict=True):
            if relations.any():
                result |= side.related_by(relations)
        return result

    def is_open(self, slot: int) -> bool:
        """Return whether the slot may hold nodes that were not seen in it."""
        num_triples = self.counts.triples[slot]
        share = OPEN_SUBJECT_SHARE if slot < self.num_relations else OPEN_OBJECT_SHARE
        return bool(self.counts.once[slot] > share * num_triples) or num_triples == 0

    # -- constraints on a question -------------------------------------------------------------------------

    def question_status(self, questions: Questions, index: KnownTriples, new: tuple[int, ...] = ()) -> Tensor:
        """Return whether new answers are expected.

        Args:
            questions: q questions.
            index: The known triples.
            new: Nodes that were added after training; what was seen in training does not restrict them.

        Returns:
            int8 [q] on the CPU. IMPLAUSIBLE: neither the node nor a similar one was seen in this slot. ANSWERED: the
            question can have one answer only, which is known. OPEN: anything else.
        """
        nodes, slots = questions.node.cpu(), self.question_slot(questions)
        known = self.num_known_answers(index, questions)
        result = (torch.from_numpy(self.is_single)[slots] & (known > 0)).to(torch.int8) * ANSWERED
        for i, (node, slot) in enumerate(zip(nodes.tolist(), slots.tolist(), strict=True)):
            if not known[i] and node not in new and not self._may_occur(node, slot):
                result[i] = IMPLAUSIBLE
        return result

    def _may_occur(self, node: int, slot: int) -> bool:
        sides = (side.of_nodes(node, node)[1] for side in (self._known.objects, self._known.subjects))
        own = np.concatenate([np.unique(relations) + end * self.num_relations for end, relations in enumerate(sides)])
        has_few, equivalent = self.counts.triples[slot] < MIN_NODES, self.declared.equivalent_slots(slot)
        fits = bool(has_few or np.isin(own, equivalent).any() or self._overlapping_slots(slot)[own].any())
        nodes = np.array([node] if fits else [], dtype=np.int64)
        return node in self.declared.apply_classes(slot, nodes)

    def _overlapping_slots(self, slot: int) -> Flags:
        """Slots of which more than `MIN_OVERLAP` of the nodes also occur in this slot, bool [2R]; cached."""
        if slot not in self._overlaps:
            is_here = self._occurs_in(self.declared.equivalent_slots(slot))
            num_shared = np.zeros(2 * self.num_relations, dtype=np.int64)
            for node, slots, _ in self._occurrences():
                num_shared += np.bincount(slots[is_here[node]], minlength=len(num_shared))
            self._overlaps[slot] = num_shared > MIN_OVERLAP * self.counts.nodes
        return self._overlaps[slot]

    def question_slot(self, questions: Questions) -> Tensor:
        """Return the slots of the given nodes, int64 [q] on the CPU."""
        relation = questions.relation.cpu()
        return torch.where(questions.is_for_objects().cpu(), relation, relation + self.num_relations)

    def answer_slot(self, questions: Questions) -> Tensor:
        """Return the slots of the answers, int64 [q] on the CPU."""
        return (self.question_slot(questions) + self.num_relations) % (2 * self.num_relations)

    def num_known_answers(self, index: KnownTriples, questions: Questions) -> Tensor:
        """Return how many answers to each question are known, int64 [q] on the CPU."""
        node, is_object = questions.node.cpu(), questions.is_for_objects().cpu()
        key, counts = node * index.num_relations + questions.relation.cpu(), torch.zeros_like(node)
        for side, answers in ((is_object, index.objects), (~is_object, index.subjects)):
            begin, end = answers.ranges(key[side].to(answers.device))
            counts[side] = (end - begin).cpu()
        return counts

    def probability_of_more(self, slot: int, num_known: int) -> float:
        """Return the probability that a node in this slot has more answers than the known ones; cached.

        It follows from the numbers of answers of other nodes. If each triple is missing with a small probability m,
        then of the nodes with k + 1 answers a share (k + 1) m has k known answers.

        Args:
            slot: The slot of the given node.
            num_known: How many answers are known.
        """
        if (slot, num_known) not in self._probabilities:
            lacking = (num_known + 1) * self._num_nodes_with(slot, num_known + 1) * self._missing_share
            total = max(self._num_nodes_with(slot, num_known) + lacking, 1e-9)
            self._probabilities[slot, num_known] = lacking / total
        return self._probabilities[slot, num_known]

    def _num_nodes_with(self, slot: int, num_answers: int) -> float:
        """Estimate how many nodes have this number of answers; similar numbers count too, with decreasing weight."""
        if not num_answers:
            return float(max(len(self.nodes_of(slot, "fitting")) - self.counts.nodes[slot], 0))
        end, relation = divmod(slot, self.num_relations)
        side, numbers = self._known.subjects if end else self._known.objects, [np.empty(0, dtype=np.int64)]
        for node, relations, _ in side.parts():
            numbers.append(np.unique(node[relations == relation], return_counts=True)[1])
        weights = np.exp(-np.abs(np.log(np.concatenate(numbers)) - np.log(num_answers)) * 4)
        return float(weights.sum() / max(1.0, num_answers / 2))

    def excluded_nodes(self, slot: int, nodes: NodeFilter) -> Tensor:
        """Return the nodes that may not occur in a slot, bool [N]; cached. Arguments as for `nodes_of`."""
        if (slot, nodes) not in self._excluded:
            inside, is_excluded = self.nodes_of(slot, nodes), np.ones(self.num_nodes, dtype=bool)
            if nodes == "fitting" and self.is_single[slot]:  # a node that occurs here once cannot occur again
                inside = np.setdiff1d(inside, self.nodes_of(slot, "seen"))
            has_no_evidence = not self.counts.triples[slot] and slot not in self.declared.classes
            is_excluded[slice(None) if nodes == "fitting" and has_no_evidence else inside] = False
            if len(self._excluded) * self.num_nodes > MAX_CACHED_FLAGS:
                self._excluded.clear()
            self._excluded[slot, nodes] = torch.from_numpy(is_excluded)
        return self._excluded[slot, nodes]


_by_graph: WeakKeyDictionary[KnowledgeGraph, RelationConstraints] = WeakKeyDictionary()


def relation_constraints(graph: KnowledgeGraph) -> RelationConstraints:
    """Return the constraints of a graph, which are built once per graph."""
    if graph not in _by_graph:
        _by_graph[graph] = RelationConstraints(graph)
    return _by_graph[graph]


class AnswerFilter(NamedTuple):
    """Selects which answers are allowed.

    Args:
        nodes: Which nodes may be answers: "seen", "fitting" or "any" (`RelationConstraints.nodes_of`).
        directions: Exclude reversed known triples of one-way relations, and loops of irreflexive relations.
        new: Nodes that were added after training; what was seen in training does not restrict them.
    """

    nodes: NodeFilter = "fitting"
    directions: bool = True
    new: tuple[int, ...] = ()


ALLOW_ALL = AnswerFilter("any", False)
