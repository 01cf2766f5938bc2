"""How a person's words find a node: by its name, by its title, by a part of either."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rgcn
from rgcn.errors import AmbiguousNameError, UnknownNameError
from rgcn.graph import KnowledgeGraph, name_search
from rgcn.graph.name_search import folded
from rgcn.graph.titles import NameLookup, Titles

names = st.lists(
    st.text(st.sampled_from("abAB _-\x1e\nß"), min_size=1, max_size=6), min_size=1, max_size=12, unique=True
)


def read_through(kg: KnowledgeGraph) -> NameLookup:
    """A lookup that reads everything, as if the names were too many for an index."""
    lookup = NameLookup(Titles(kg))
    vars(lookup._nodes.search)["index"] = None
    return lookup


@given(names, st.text(st.sampled_from("abAB _-\x1eß"), max_size=3))
def test_what_is_found_is_all_that_contains_the_words(nodes, query):
    kg = KnowledgeGraph.from_triples([(name, "r", nodes[0]) for name in nodes])
    found = NameLookup(Titles(kg)).find(query, limit=100)
    words = folded(query)
    expected = {
        i for i, name in enumerate(kg.nodes) if words and (words in folded(name) or words in folded(kg.nodes[i]))
    }
    assert set(found) == expected
    assert len(found) == len(set(found))
    assert found == read_through(kg).find(query, limit=100)


def test_the_whole_title_then_beginnings_then_words_then_parts():
    nodes = ["unmango", "the mango", "mangosteen", "Mango"]
    kg = KnowledgeGraph.from_triples([(name, "r", "hub") for name in nodes] + [("unmango", "r", "the mango")])
    found = [kg.nodes[i] for i in NameLookup(Titles(kg)).find("mango")]
    assert found == ["Mango", "mangosteen", "the mango", "unmango"]


def test_better_connected_nodes_come_first_and_the_limit_holds():
    kg = KnowledgeGraph.from_triples([("city b", "r", "x"), ("city b", "r", "y"), ("city a", "r", "x")])
    search = NameLookup(Titles(kg))
    assert [kg.nodes[i] for i in search.find("city")] == ["city b", "city a"]
    assert len(search.find("city", limit=1)) == 1
    assert search.find("city", limit=0) == search.find("   ") == search.find("nowhere") == []


def test_names_are_found_too_where_the_title_is_another():
    kg = KnowledgeGraph.from_triples([("http://x.org/id7", "r", "http://x.org/id8")])
    search = NameLookup(Titles(kg, {0: "Ada"}))
    assert search.find("id7") == [0]
    assert search.find("ada") == [0]


def test_an_exact_name_wins_over_a_title():
    kg = KnowledgeGraph.from_triples([("a", "r", "b")])
    assert NameLookup(Titles(kg, {0: "b"})).node("b") == 1


def test_several_nodes_of_one_title_are_named_and_not_guessed():
    kg = KnowledgeGraph.from_triples([(f"http://x.org/{i}/smith", "r", "http://x.org/rest") for i in range(8)])
    with pytest.raises(AmbiguousNameError, match=r"any of 8 nodes.*http://x.org/0/smith.*and 3 more") as refused:
        NameLookup(Titles(kg)).node("Smith")
    assert refused.value.names == [f"http://x.org/{i}/smith" for i in range(8)]
    assert len(NameLookup(Titles(kg)).nodes("Smith")) == 8


def test_case_decides_where_it_can():
    kg = KnowledgeGraph.from_triples([("http://x.org/Apple", "r", "http://x.org/apple")])
    assert [NameLookup(Titles(kg)).node(text) for text in ("Apple", "apple")] == [0, 1]
    with pytest.raises(AmbiguousNameError):
        NameLookup(Titles(kg)).node("APPLE")


@pytest.mark.parametrize("text", ["exports_to", "Exports To", "_exports_to", "<exports_to>", " exports  to "])
def test_relations_are_found_as_people_type_them(text):
    kg = KnowledgeGraph.from_triples([("a", "imports_from", "b"), ("a", "exports_to", "b")])
    assert NameLookup(Titles(kg)).relation(text) == 1


def test_unknown_names_offer_the_closest_titles_and_names():
    kg = KnowledgeGraph.from_triples([("http://x.org/7", "http://x.org/worksAt", "http://x.org/8")])
    with pytest.raises(UnknownNameError, match="Did you mean 'Ada Lovelace'"):
        NameLookup(Titles(kg, {0: "Ada Lovelace"})).node("Ada Lovelance")
    with pytest.raises(UnknownNameError, match="worksAt"):
        NameLookup(Titles(kg)).relation("workAt")


def test_the_index_finds_what_reading_everything_finds():
    kg = rgcn.load("world")
    indexed, plain = NameLookup(Titles(kg)), read_through(kg)
    assert (indexed.finds_quickly, plain.finds_quickly) == (True, False)
    rng = np.random.default_rng(0)
    queries = ["", " ", "a", "\x1e", "zzz", "of the", "é", "A_", "united states of america and then some"]
    for _ in range(300):
        title = kg.nodes[int(rng.integers(kg.num_nodes))]
        begin = rng.integers(len(title))
        queries.append(title[begin : begin + rng.integers(1, 9)])
    for query in queries:
        for limit in (1, 10):
            assert indexed.find(query, limit) == plain.find(query, limit), query


def test_near_names_of_a_graph_with_strange_ones():
    nodes = [("", "r", "日本"), ("__", "r", "Zürich"), ("a", "r", "\U0001f600 smile"), ("\u3041", "r", "A")]
    kg = KnowledgeGraph.from_triples(nodes)
    lookup = NameLookup(Titles(kg))
    similar = lookup._nodes.search.similar
    assert [kg.nodes[i] for i in similar("Zurich")] == ["Zürich"]
    assert [kg.nodes[i] for i in lookup.find("\U0001f600")] == ["\U0001f600 smile"]
    assert [kg.nodes[i] for i in lookup.find("\u3041")] == ["\u3041"]  # the index takes it and A for one letter
    assert similar("") == similar("x" * 10_000) == []


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("Swizerland", "Switzerland"), ("Peur", "Peru"), ("eru", "Peru"), ("Untied Kingdom", "United Kingdom")],
)
def test_what_was_meant_is_guessed_by_spelling(wrong, meant):
    lookup = NameLookup(Titles(rgcn.load("world")))
    with pytest.raises(UnknownNameError) as refused:
        lookup.node(wrong)
    assert refused.value.suggestions[0] == meant


def test_suggestions_are_names_where_a_title_does_not_say_who_is_meant():
    kg = KnowledgeGraph.from_triples([("http://x.org/ada", "r", "http://y.org/ada"), ("http://x.org/bob", "r", "ada2")])
    with pytest.raises(UnknownNameError) as refused:
        NameLookup(Titles(kg)).node("adda")
    assert set(refused.value.suggestions) >= {"http://x.org/ada", "http://y.org/ada"}
    with pytest.raises(UnknownNameError, match="'bob'"):
        NameLookup(Titles(kg)).node("bobb")


def test_of_very_many_names_the_best_connected_are_suggested(monkeypatch):
    monkeypatch.setattr(name_search, "LONGEST_TEXT", 20)
    monkeypatch.setattr(name_search, "WELL_KNOWN", 20)
    kg = KnowledgeGraph.from_triples([(name, "r", "hub") for name in ("Norway", "Sweden", "Denmark")])
    lookup = NameLookup(Titles(kg))
    lookup.prepare()
    assert not lookup.finds_quickly
    assert [kg.nodes[i] for i in lookup.find("e", 3)] == ["Sweden", "Denmark"]
    with pytest.raises(UnknownNameError, match="'Norway'"):
        lookup.node("Norwy")
    with pytest.raises(UnknownNameError, match=r"unknown node 'Denmrak'\.$"):
        lookup.node("Denmrak")


def test_nothing_is_made_for_an_exact_name_and_nothing_after_preparing():
    kg = KnowledgeGraph.from_triples([("a", "r", "b")], labels={"a": "big", "b": "small"})
    lookup = NameLookup(Titles(kg))
    assert (lookup.node("b"), lookup.relation("r"), lookup.class_("small")) == (1, 0, 1)
    kinds = lookup._nodes, lookup._relations, lookup._classes
    assert not any({"by_key", "search"} & vars(called).keys() for called in kinds)
    lookup.prepare()
    made = [{*vars(called), *vars(called.search)} for called in kinds]
    for ask in (lookup.node, lookup.relation, lookup.class_):
        with pytest.raises(UnknownNameError):
            ask("nobody")
    lookup.find("a")
    assert made == [{*vars(called), *vars(called.search)} for called in kinds]


def test_a_graph_without_relations_or_names():
    kg = KnowledgeGraph.from_triples([])
    lookup = NameLookup(Titles(kg))
    lookup.prepare()
    assert lookup.find("a") == []
    with pytest.raises(UnknownNameError, match=r"unknown relation 'r'\.$"):
        lookup.relation("r")
