"""What a graph says of its own relations in RDFS and OWL: domains, ranges, one value each, directions.

A file with its ontology has these as triples about the relations. Of what nobody declares nothing is concluded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from rgcn.graph import KnowledgeGraph

Ids = NDArray[np.int64]
Flags = NDArray[np.bool_]

RDF, RDFS = "http://www.w3.org/1999/02/22-rdf-syntax-ns#", "http://www.w3.org/2000/01/rdf-schema#"
OWL = "http://www.w3.org/2002/07/owl#"
TYPE, SUBCLASS = f"{RDF}type", f"{RDFS}subClassOf"
# Classes that everything is of.
OF_ALL = (f"{OWL}Thing", f"{OWL}NamedIndividual", f"{RDFS}Resource")
# What is said of a relation by its type, and what we call it.
_WORDS = ("functional", "inverse functional", "symmetric", "asymmetric", "reflexive", "irreflexive")
CHARACTERS = {f"{OWL}{word.title().replace(' ', '')}Property": word for word in _WORDS}


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


_SAYING = (TYPE, SUBCLASS, f"{RDFS}domain", f"{RDFS}range", f"{OWL}inverseOf", f"{OWL}disjointWith")


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
