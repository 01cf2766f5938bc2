"""Search by a part of a name, against the plain definition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rgcn.graph import KnowledgeGraph
from rgcn.graph.titles import Titles
from rgcn.predict.search import NameSearch, folded

names = st.lists(
    st.text(st.sampled_from("abAB _-\x1e\nß"), min_size=1, max_size=6), min_size=1, max_size=12, unique=True
)


@given(names, st.text(st.sampled_from("abAB _-\x1eß"), max_size=3))
def test_what_is_found_is_all_that_contains_the_words(nodes, query):
    kg = KnowledgeGraph.from_triples([(name, "r", nodes[0]) for name in nodes])
    found = NameSearch.of(kg, Titles(kg)).find(query, limit=100)
    words = folded(query)
    expected = {
        i for i, name in enumerate(kg.nodes) if words and (words in folded(name) or words in folded(kg.nodes[i]))
    }
    assert set(found) == expected
    assert len(found) == len(set(found))


def test_the_whole_title_then_beginnings_then_words_then_parts():
    nodes = ["unmango", "the mango", "mangosteen", "Mango"]
    kg = KnowledgeGraph.from_triples([(name, "r", "hub") for name in nodes] + [("unmango", "r", "the mango")])
    found = [kg.nodes[i] for i in NameSearch.of(kg, Titles(kg)).find("mango")]
    assert found == ["Mango", "mangosteen", "the mango", "unmango"]


def test_better_connected_nodes_come_first_and_the_limit_holds():
    kg = KnowledgeGraph.from_triples([("city b", "r", "x"), ("city b", "r", "y"), ("city a", "r", "x")])
    search = NameSearch.of(kg, Titles(kg))
    assert [kg.nodes[i] for i in search.find("city")] == ["city b", "city a"]
    assert len(search.find("city", limit=1)) == 1
    assert search.find("city", limit=0) == search.find("   ") == search.find("nowhere") == []


def test_names_are_found_too_where_the_title_is_another():
    kg = KnowledgeGraph.from_triples([("http://x.org/id7", "r", "http://x.org/id8")])
    search = NameSearch.of(kg, Titles(kg, {0: "Ada"}))
    assert search.find("id7") == [0]
    assert search.find("ada") == [0]
