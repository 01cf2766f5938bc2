"""Readable names: where they come from."""

from __future__ import annotations

import pytest

from rgcn.errors import DataError
from rgcn.graph import KnowledgeGraph, NodeKind
from rgcn.graph.titles import LONGEST, NameLookup, Titles, literal_text

LABEL = "http://www.w3.org/2000/01/rdf-schema#label"


def rdf(*triples: tuple[str, str, str]) -> KnowledgeGraph:
    from dataclasses import replace

    import numpy as np

    kg = KnowledgeGraph.from_triples(triples)
    kinds = [NodeKind.LITERAL if name.startswith('"') else NodeKind.IRI for name in kg.nodes]
    return replace(kg, node_kinds=np.array(kinds, dtype=np.uint8))


def test_a_label_in_the_graph_comes_before_the_tail_of_an_iri_and_english_before_other_languages():
    kg = rdf(
        ("http://x.org/7", LABEL, '"Schweiz"@de'),
        ("http://x.org/7", LABEL, '"Switzerland"@en'),
        ("http://x.org/7", "http://x.org/name", '"CH"'),
        ("http://x.org/8", "http://x.org/name", '"Norway"'),
        ("http://x.org/9", "http://x.org/near", "http://x.org/8"),
    )
    titles = Titles(kg)
    of = {name: titles.of(i) for i, name in enumerate(kg.nodes)}
    assert of["http://x.org/7"] == "Switzerland"  # rdfs:label before name, English before German
    assert of["http://x.org/8"] == "Norway"
    assert of["http://x.org/9"] == "9"
    assert of['"Schweiz"@de'] == "Schweiz"
    assert NameLookup(titles).node("norway") == kg.nodes["http://x.org/8"]


def test_what_is_given_comes_before_what_the_graph_says():
    kg = rdf(("http://x.org/7", LABEL, '"Switzerland"@en'))
    titles = Titles(kg, {0: "Helvetia"}, {0: "a country"})
    assert (titles.of(0), titles.description(0), titles.description(1)) == ("Helvetia", "a country", None)


def test_classes_and_their_absence():
    kg = KnowledgeGraph.from_triples([("a", "r", "b")], labels={"a": "http://x.org/Big", "b": "http://x.org/Small"})
    titles = Titles(kg)
    assert (titles.class_(0), NameLookup(titles).class_("small")) == ("Big", 1)
    with pytest.raises(DataError, match="none of its nodes is labelled"):
        NameLookup(Titles(KnowledgeGraph.from_triples([("a", "r", "b")]))).class_("small")


def test_a_class_that_is_a_node_is_called_as_the_node():
    kg = KnowledgeGraph.from_triples([("a", "in", "http://x.org/id3")], labels={"a": "http://x.org/id3"})
    assert Titles(kg, {1: "Knowledge management"}).class_(0) == "Knowledge management"


def test_odd_names_do_no_harm():
    kg = rdf(("http://x.org/Seven", LABEL, '"Siebtes"@de'), ("http://x.org/Seven", LABEL, '"Seventh"@en-GB'))
    assert Titles(kg).of(0) == "Seventh"
    assert NameLookup(Titles(kg)).node("HTTP://X.ORG/SEVEN") == 0  # in any case, also where it has a title
    with pytest.raises(DataError, match="an empty name is no node's"):
        NameLookup(Titles(kg)).node(" ")
    from dataclasses import replace

    import numpy as np

    bare = replace(KnowledgeGraph.from_triples([("a", LABEL, "plain")]), node_kinds=np.array([0, 1], dtype=np.uint8))
    assert Titles(bare).of(0) == "plain"  # a literal that somebody wrote without quotes


def test_literals_are_read_and_long_ones_cut():
    assert literal_text('"say \\"hi\\"\\nthere"@en') == 'say "hi" there'
    assert literal_text('"C:\\\\new"') == "C:\\new"
    kg = rdf(("a", "r", '"' + "word " * 200 + '"'))
    assert len(Titles(kg).of(1)) <= LONGEST
