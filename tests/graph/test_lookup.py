"""Test how a text finds nodes: by name, by title, or by a part of either."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rgcn
from rgcn.errors import AmbiguousNameError, UnknownNameError
from rgcn.graph import KnowledgeGraph, Vocabulary, name_search, titles
from rgcn.graph.name_search import NameSearch, normalize_name
from rgcn.graph.titles import NameLookup, Titles, local_name
from rgcn.graph.vocabulary import StoredNames

names = st.lists(
    st.text(st.sampled_from("abAB _-\x1e\nß"), min_size=1, max_size=6), min_size=1, max_size=12, unique=True
)


@cache
def edged_texts(lookup: NameLookup) -> list[tuple[int, str]]:
    order = lookup._nodes._best_first()
    spelled = [(number, {title, name[:200]}) for number, title, name, _ in lookup._nodes.spellings(order)]
    return [(number, "".join(f"\x1e{normalize_name(text)}\x1e" for text in texts)) for number, texts in spelled]


def plain_find(lookup: NameLookup, query: str, limit: int) -> list[int]:
    """Search by definition: whole titles, prefixes, words, then parts; better connected nodes first in each group."""
    words = normalize_name(query)
    edged = edged_texts(lookup)
    patterns = [f"\x1e{words}\x1e", f"\x1e{words}", f" {words}", words] if words else []
    return list(dict.fromkeys(n for pattern in patterns for n, text in edged if pattern in text))[:limit]


def plain_keys(lookup: NameLookup, key: str) -> list[int]:
    """Return the nodes that a folded text can mean, by definition."""
    of, found, after_prefix = lookup._titles, [], []
    for number, name in enumerate(of.graph.nodes):
        if key in {normalize_name(text) for text in (of.of(number), local_name(name), name)}:
            found.append(number)
        if ":" in name and "://" not in name and not name.startswith(('"', "_:")):
            after_prefix += [number] if normalize_name(name.partition(":")[2]) == key else []
    return found or after_prefix


@pytest.fixture(params=["sorted at once", "counted, common ones left out", "read through"])
def way(request, monkeypatch):
    """Force each way to build and read an index, for any size."""
    if request.param != "sorted at once":
        monkeypatch.setattr(name_search, "MAX_SORTED_BYTES", 0)
        monkeypatch.setattr(name_search, "MAX_PASS_ENTRIES", 40)
        monkeypatch.setattr(name_search, "MIN_ENTRIES_FOR_COMMON", 0)
        monkeypatch.setattr(name_search, "THREAD_ENTRIES", 1000)
    if request.param == "read through":
        monkeypatch.setattr(name_search, "MAX_PREFIX_ENTRIES", 0)
        monkeypatch.setattr(name_search, "COMMON_SHARE", 1000)
    monkeypatch.setattr(titles, "BLOCK_ENTRIES", 100)
    return request.param


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(nodes=names, query=st.text(st.sampled_from("abAB _-\x1eß"), max_size=3))
def test_search_finds_every_name_that_contains_the_words(way, nodes, query):
    kg = KnowledgeGraph.from_triples([(name, "r", nodes[0]) for name in nodes])
    lookup = NameLookup(Titles(kg))
    found = lookup.find(query, limit=100)
    assert found == plain_find(lookup, query, 100)
    words = normalize_name(query)
    assert set(found) == {i for i, name in enumerate(kg.nodes) if words and words in normalize_name(name)}
    assert lookup.find(query, limit=2) == found[:2]


IRIS = st.builds(
    str.__add__,
    st.sampled_from(["", "http://x.org/", "ex:", "http://x.org/b#", '"', "_:", ":"]),
    st.text(st.sampled_from("aA_ #/:ß\n"), max_size=4),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(nodes=st.lists(IRIS, min_size=1, max_size=12, unique=True), key=st.one_of(IRIS, st.text("aß:", max_size=2)))
def test_a_text_finds_nodes_by_title_name_last_part_or_the_part_after_a_prefix(way, nodes, key):
    kg = KnowledgeGraph.from_triples([(name, "r", nodes[0]) for name in nodes])
    lookup = NameLookup(Titles(kg, {0: "A"}))
    for text in (key, *nodes, *map(local_name, nodes)):
        assert lookup._nodes.find_exact(normalize_name(text)) == plain_keys(lookup, normalize_name(text))


def test_an_index_in_a_folder_answers_as_one_in_memory(way, tmp_path):
    kg = rgcn.load("world")
    called = NameLookup(Titles(kg))._nodes
    NameSearch.write(called.index_parts(), tmp_path)
    stored, made = NameSearch.open(tmp_path), called.search
    assert all(np.array_equal(getattr(stored, name), getattr(made, name)) for name in name_search.ARRAYS)
    assert stored.text[:] == made.text
    for text in ("swi", "Swizerland", "a", "of the", "é"):
        assert stored.find(text) == made.find(text)
        assert stored.similar(text) == made.similar(text)


BEGINNINGS = ["", "http://x.org/", "https://w.org/a%20b#", "ex:", '"', "_:", ":", "urn:a:", "1234567890://"]
MIDDLES = ["", "CamelCase", "a b" * 50, "x" * 197, "_" * 210, " y" * 120]
ENDINGS = ["", '"', '"@en', '"@de', '"^^<http://x.org/T#t>', "/", "##"]
LETTERS = 'aZ_ #/:.%20"\\ntq\n\t\x1e\x85…é'
ANY_NAMES = st.one_of(
    IRIS,
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.builds(
        lambda *parts: "".join(parts),
        st.sampled_from(BEGINNINGS),
        st.text(st.sampled_from(LETTERS), max_size=12),
        st.sampled_from(MIDDLES),
        st.text(st.sampled_from(LETTERS[:-3]), max_size=12),
        st.sampled_from(ENDINGS),
    ),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    nodes=st.lists(ANY_NAMES, min_size=1, max_size=12, unique=True),
    triples=st.lists(st.tuples(*[st.integers(0, 11)] * 3), max_size=12),
    rdf=st.booleans(),
)
def test_columns_spell_names_as_python_does(monkeypatch, nodes, triples, rdf):
    rows = np.array(triples, dtype=np.int64).reshape(-1, 3) % [len(nodes), 4, len(nodes)]
    kinds = np.array([1 if name[:1] == '"' else 2 * (name[:2] == "_:") for name in nodes], np.uint8) if rdf else None
    relations = Vocabulary(["http://x.org/label", "name", "r", "title"], kind="relation")
    kg = KnowledgeGraph(rows, Vocabulary(StoredNames.of(nodes), kind="node"), relations, node_kinds=kinds)
    monkeypatch.setattr(titles, "BLOCK_ENTRIES", 5)
    plain = NameLookup(Titles(kg))._nodes.search
    with monkeypatch.context() as now:
        now.setattr(titles, "MIN_STORED_INDEX_NODES", 0)
        in_columns = NameLookup(Titles(kg))._nodes.search
    assert plain.text == in_columns.text
    assert all(np.array_equal(getattr(plain, name), getattr(in_columns, name)) for name in name_search.ARRAYS)


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


def test_case_resolves_ambiguous_names():
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


def test_the_index_finds_the_names_of_the_definition(way):
    lookup = NameLookup(Titles(rgcn.load("world")))
    nodes, rng = lookup._titles.graph.nodes, np.random.default_rng(0)
    queries = ["", " ", "a", "\x1e", "zzz", "of the", "é", "A_", "united states of america and then some"]
    for _ in range(25):
        title = nodes[int(rng.integers(len(nodes)))]
        begin = rng.integers(len(title))
        queries.append(title[begin : begin + rng.integers(1, 9)])
    for query in queries:
        found = plain_find(lookup, query, 10)
        assert (lookup.find(query, 10), lookup.find(query, 1)) == (found, found[:1]), query


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
def test_close_spellings_are_suggested(wrong, meant):
    lookup = NameLookup(Titles(rgcn.load("world")))
    with pytest.raises(UnknownNameError) as refused:
        lookup.node(wrong)
    assert refused.value.suggestions[0] == meant


def test_suggestions_are_names_if_a_title_is_ambiguous():
    kg = KnowledgeGraph.from_triples([("http://x.org/ada", "r", "http://y.org/ada"), ("http://x.org/bob", "r", "ada2")])
    with pytest.raises(UnknownNameError) as refused:
        NameLookup(Titles(kg)).node("adda")
    assert set(refused.value.suggestions) >= {"http://x.org/ada", "http://y.org/ada"}
    with pytest.raises(UnknownNameError, match="'bob'"):
        NameLookup(Titles(kg)).node("bobb")


def test_no_index_is_built_for_an_exact_name_or_after_prepare():
    kg = KnowledgeGraph.from_triples([("a", "r", "b")], labels={"a": "big", "b": "small"})
    lookup = NameLookup(Titles(kg))
    assert (lookup.node("b"), lookup.relation("r"), lookup.class_("small")) == (1, 0, 1)
    kinds = lookup._nodes, lookup._relations, lookup._classes
    assert not any("search" in vars(called) for called in kinds)
    lookup.prepare()
    made = [{*vars(called)} for called in kinds]
    for ask in (lookup.node, lookup.relation, lookup.class_):
        with pytest.raises(UnknownNameError):
            ask("unknown")
    lookup.find("a")
    assert made == [{*vars(called)} for called in kinds]


def test_a_graph_without_relations_or_names():
    kg = KnowledgeGraph.from_triples([])
    lookup = NameLookup(Titles(kg))
    lookup.prepare()
    assert lookup.find("a") == []
    with pytest.raises(UnknownNameError, match=r"unknown relation 'r'\.$"):
        lookup.relation("r")
