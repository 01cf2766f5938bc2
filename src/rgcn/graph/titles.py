"""What people call the nodes, relations and classes of a graph."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property

import numpy as np

from rgcn.errors import DataError
from rgcn.graph.knowledge_graph import KnowledgeGraph
from rgcn.graph.vocabulary import NodeKind, Vocabulary

# Relations whose literals name their subject, best first; an IRI's last part is compared.
NAMING_RELATIONS = ("prefLabel", "label", "name", "title")
LONGEST = 120
LONGEST_SHORT_NAME = 64


class Titles:
    """Readable names: a data set's own naming, a label in the graph, the last part of an IRI, a literal's text.

    Titles are for reading. Two nodes may have the same one; names stay what tells nodes apart.

    >>> kg = KnowledgeGraph.from_triples([("http://x.org/id7", "http://x.org/worksAt", "http://x.org/aifb")])
    >>> titles = Titles(kg, {0: "Ada Lovelace"})
    >>> titles.of(0), titles.of(1), titles.relation(0)
    ('Ada Lovelace', 'aifb', 'worksAt')
    """

    def __init__(
        self,
        graph: KnowledgeGraph,
        given: Mapping[int, str] | None = None,
        descriptions: Mapping[int, str] | None = None,
    ) -> None:
        """given, descriptions: from outside the graph; they come before what the graph itself says."""
        self.graph = graph
        self._given = given or {}
        self._descriptions = descriptions or {}

    def over(self, graph: KnowledgeGraph) -> Titles:
        """The titles of a larger graph that begins with the nodes of this one."""
        return Titles(graph, self._given, self._descriptions)

    def of(self, node: int) -> str:
        found = self._given.get(node) or self._in_graph.get(node)
        if found:
            return found
        name = self.graph.nodes[node]
        return shortened(literal_text(name)) if self.graph.kind(node) is NodeKind.LITERAL else local_name(name)

    def description(self, node: int) -> str | None:
        return self._descriptions.get(node)

    def relation(self, relation: int) -> str:
        return local_name(self.graph.relations[relation]).strip("_") or self.graph.relations[relation]

    def class_(self, number: int) -> str:
        """A class is often a node too, the research group say, and then called as the node is."""
        node = self.graph.nodes.get(self.classes[number])
        return local_name(self.classes[number]) if node is None else self.of(node)

    @property
    def classes(self) -> Vocabulary:
        if self.graph.labels is None:
            raise DataError("the graph has no classes: none of its nodes is labelled")
        return self.graph.labels.names

    @cached_property
    def _in_graph(self) -> dict[int, str]:
        """Titles that literals of the graph give."""
        found: dict[int, str] = {}
        if self.graph.node_kinds is None:
            return found
        is_literal = self.graph.is_literal
        for wanted in NAMING_RELATIONS:
            relations = [i for i, name in enumerate(self.graph.relations) if local_name(name) == wanted]
            triples = self.graph.triples[np.isin(self.graph.triples[:, 1], relations)]
            triples = triples[is_literal[triples[:, 2]]]
            names = ((s, self.graph.nodes[o]) for s, _, o in triples.tolist())
            # sorted is stable: English and unmarked ones first, else in the order of the graph
            for subject, literal in sorted(names, key=lambda pair: not _is_english(pair[1])):
                text = shortened(literal_text(literal))
                if text:
                    found.setdefault(subject, text)
        return found


def local_name(name: str) -> str:
    """The part of an IRI after its last '#' or '/': what a person reads.

    >>> local_name("http://example.org/people#ada"), local_name('"a literal / with a slash"')
    ('ada', '"a literal / with a slash"')
    """
    if "://" not in name[:12] or name.startswith('"'):
        return name
    return re.split("[#/]", name.rstrip("#/"))[-1] or name


def short_name(name: str) -> str:
    """What a person reads of a name: an IRI's last part, a literal's text; never longer than a line.

    >>> short_name("http://example.org/people#ada"), short_name('"42"^^<http://www.w3.org/2001/XMLSchema#integer>')
    ('ada', '42')
    """
    shown = literal_text(name) if name.startswith('"') else local_name(name)
    return shortened(" ".join(shown.split()) or name, LONGEST_SHORT_NAME)


def literal_text(name: str) -> str:
    """What a literal says, of its N-Triples form.

    >>> literal_text('"42"^^<http://www.w3.org/2001/XMLSchema#integer>'), literal_text("plain")
    ('42', 'plain')
    """
    if not name.startswith('"') or '"' not in name[1:]:
        return name
    text = name[1 : name.rindex('"')]
    plain = re.sub(r"\\(.)", lambda escape: " " if escape[1] in "nrtbf" else escape[1], text)
    return " ".join(plain.split())


def shortened(text: str) -> str:
    """A text of which a reader gets the idea: an abstract is no name.

    >>> len(shortened("word " * 100)) <= LONGEST
    True
    """
    return text if len(text) <= LONGEST else text[: LONGEST - 1].rstrip() + "…"


def _is_english(literal: str) -> bool:
    """English, or of no language."""
    language = literal.rpartition('"')[2].lower()
    return not language.startswith("@") or language == "@en" or language.startswith("@en-")
