"""Whole explanations: what they hold, how they are written, and what is refused."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree

import pytest
from explained_models import classifier, neighbors_graph, opened, predictor, readers

from rgcn.errors import ConfigError, DataError
from rgcn.explain import METHODS, explain_class, explain_link, methods_of
from rgcn.graph import KnowledgeGraph

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def reading(tmp_path_factory):
    return opened(classifier(graph=readers()), tmp_path_factory.mktemp("classes"))


@pytest.fixture(scope="module")
def linking(tmp_path_factory):
    return opened(predictor(layers=2, epochs=20), tmp_path_factory.mktemp("links"))


@pytest.mark.parametrize("method", METHODS)
def test_a_class_is_explained(reading, method):
    why = explain_class(reading, reading.node("p3"), method=method, edges=4, draws=5)
    assert why.title == "Why reader1 for p3?"
    assert why.edges[0].text == "p3 —reads→ book1"
    assert len(why.edges) == 4
    assert [edge.importance for edge in why.edges] == sorted((edge.importance for edge in why.edges), reverse=True)
    assert all(edge.importance > 0 for edge in why.edges)
    assert all(edge.importance < 0 for edge in why.against)
    assert 0 < sum(edge.share for edge in (*why.edges, *why.against)) <= 1 + 1e-9
    assert why.probability > 0.9
    assert (why.own_share is None) == (method == "edge-mask")
    assert why.neighbors[0].node["title"] == "book1"
    assert why.fidelity.without.named > 3 * abs(why.fidelity.without.random)


def test_a_path_is_a_sentence_whose_arrows_run_as_the_triples_do(reading):
    why = explain_class(reading, reading.node("p3"), draws=1)
    assert why.paths
    for path in why.paths:
        assert path.text.startswith("p3 ")
        first, second = path.steps
        middle = first.object if first.forward else first.subject
        assert middle == (second.subject if second.forward else second.object)
        for step in path.steps:
            named = f"—{step.relation['title']}→" if step.forward else f"←{step.relation['title']}—"
            assert named in path.text
    assert any("p3 —reads→ book1 ←reads— p" in path.text for path in why.paths)


@pytest.mark.parametrize("method", METHODS)
def test_a_link_is_explained_and_its_own_triple_is_marked(linking, method):
    ids = linking.node("n0"), linking.relation("next"), linking.node("n1")
    why = explain_link(linking, *ids, method=method, edges=50, draws=3)
    assert why.title == "Why n0 —next→ n1?"
    itself = [edge for edge in (*why.edges, *why.against) if edge.itself]
    assert [edge.text for edge in itself] in ([], ["n0 —next→ n1"])
    assert {edge.hop for edge in why.edges} <= {1, 2}
    assert all(path.text != "n0 —next→ n1" for path in why.paths)


def test_the_dictionary_is_plain_and_says_the_same_every_time(reading, linking):
    def classes():
        return explain_class(reading, 0, draws=4, seed=3).as_dict()

    def links():
        return explain_link(linking, 0, 0, 5, draws=4, seed=3, method="edge-mask").as_dict()

    for make in (classes, links):
        once = json.dumps(make())
        assert once == json.dumps(make())
    assert {
        "question",
        "method",
        "probability",
        "score",
        "edges",
        "neighbors",
        "paths",
        "fidelity",
        "considered",
    } <= set(json.loads(json.dumps(classes())))
    assert set(classes()["fidelity"]) >= {"edges", "draws", "without", "only", "words"}
    assert set(classes()["edges"][0]) == {"subject", "relation", "object", "importance", "share", "hop", "itself"}


def test_another_class_than_the_predicted_one_is_said_to_be_so(reading):
    why = explain_class(reading, reading.node("p3"), reading.class_("reader0"), draws=1)
    assert why.probability < 0.1
    assert "The model itself says reader1." in why.as_text()
    assert "Its own answer is reader1." in why.as_page()


def test_a_node_without_triples_is_explained_by_itself(tmp_path):
    graph = KnowledgeGraph.from_triples([("a", "r", "b"), ("c", "r", "d")], labels={"a": "x", "c": "y"})
    lonely = KnowledgeGraph(graph.triples[:1], graph.nodes, graph.relations, labels=graph.labels)
    known = opened(classifier(graph=lonely, epochs=3), tmp_path)
    why = explain_class(known, known.node("c"))
    assert (why.considered, why.edges, why.neighbors, why.paths) == (0, (), (), ())
    assert "No triple reaches it" in why.as_text()
    assert why.fidelity.words == "No triple speaks for this answer, so there is none to leave out."
    assert "No triple had a say" in why.as_page()


def test_subject_and_object_may_be_the_same(linking):
    why = explain_link(linking, 3, 0, 3, draws=1)
    assert why.asked[0] == why.asked[1]
    assert len([node for node in ElementTree.fromstring(why.as_svg_file()).iter(f"{SVG}g") if "asked" in
                node.get("class", "")]) == 1  # fmt: skip


# -- pictures and pages ----------------------------------------------------------------------------------------


def shapes(why):
    drawn = ElementTree.fromstring(why.as_svg_file())
    groups = [group for group in drawn.iter(f"{SVG}g") if group.get("class")]
    nodes = [group for group in groups if group.get("class").startswith("node")]
    return nodes, [group for group in groups if group.get("class").startswith("edge")]


def test_the_picture_has_a_dozen_edges_at_most_and_names_its_nodes(reading, linking):
    for why in (
        explain_class(reading, 0, edges=50, draws=1),
        explain_link(linking, 0, 0, 5, edges=50, draws=1),
    ):
        nodes, edges = shapes(why)
        assert 0 < len(edges) <= 12
        names = [node.get("data-node") for node in nodes]
        assert len(set(names)) == len(names)
        assert {node["name"] for node in why.asked} <= set(names)
        assert all(node.get("tabindex") == "0" for node in nodes)
        assert all(group.find(f"{SVG}title").text for group in (*nodes, *edges))


def test_colors_are_the_pages_inline_and_its_own_in_a_file(reading):
    why = explain_class(reading, 0, draws=1)
    assert "var(--series-1" in why.as_svg()
    assert "var(" not in why.as_svg_file()
    assert "style=" not in why.as_svg()


def test_hostile_names_stay_text(tmp_path):
    evil = ["<script>alert(1)</script>", '"><img src=x onerror=alert(2)>', "a&b</svg>", "nul\x00l", "‮right to left"]
    triples = [(name, "</text><script>r", other) for name in evil for other in evil if name != other]
    graph = KnowledgeGraph.from_triples(triples, labels={evil[0]: "<b>x", evil[1]: "y]]>"})
    known = opened(classifier(graph=graph, epochs=2), tmp_path)
    for node in range(len(evil)):
        why = explain_class(known, node, draws=1)
        written = why.as_svg() + why.as_page().replace(why.as_svg(), "")
        assert "<script>alert" not in written
        assert "<script>r" not in written
        assert "<img" not in written
        assert "</svg>" not in why.as_svg()[:-6]
        ElementTree.fromstring(why.as_svg_file())
    linker = opened(predictor(graph=graph), tmp_path)
    ElementTree.fromstring(explain_link(linker, 0, 0, 1, draws=1).as_svg_file())


# -- refusals --------------------------------------------------------------------------------------------------


def test_what_cannot_be_explained_is_refused_in_words(reading, linking, tmp_path):
    plain = opened(predictor("distmult", neighbors_graph()), tmp_path)
    assert methods_of(plain) == ()
    assert methods_of(reading) == methods_of(linking) == METHODS
    with pytest.raises(DataError, match="distmult has no message passing"):
        explain_link(plain, 0, 0, 1)
    with pytest.raises(DataError, match="predicts links"):
        explain_class(linking, 0)
    with pytest.raises(DataError, match="classifies nodes"):
        explain_link(reading, 0, 0, 1)
    with pytest.raises(ConfigError, match="integrated-gradients and edge-mask"):
        explain_class(reading, 0, method="magic")
    for wrong in ({"edges": 0}, {"draws": 0}, {"edges": 10**6}):
        with pytest.raises(ConfigError, match="lies in 1"):
            explain_class(reading, 0, **wrong)
    with pytest.raises(DataError, match="there is no node"):
        explain_class(reading, 10**6)
    with pytest.raises(DataError, match="there is no class 7"):
        explain_class(reading, 0, 7)
    with pytest.raises(DataError, match="there is no relation -1"):
        explain_link(linking, 0, -1, 1)
