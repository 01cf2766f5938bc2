"""Test whole explanations: their content, formats, and errors."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest
import torch
from explained_models import classifier, field_of, neighbors_graph, only_these, opened, predictor, readers

from rgcn.adjacency import RelationalAdjacency
from rgcn.errors import ConfigError, DataError
from rgcn.explain import available_methods, explain_class, explain_link
from rgcn.graph import KnowledgeGraph
from rgcn.links.top_k import answer_links, rate_triples, score_both_directions
from rgcn.nn.scorer import Questions
from rgcn.plugins import EXPLAINERS

SVG = "{http://www.w3.org/2000/svg}"
COMPARING = [method for method in EXPLAINERS.built_in if method != "paths"]  # networks that compare vectors of nodes


@pytest.fixture(scope="module")
def reading(tmp_path_factory):
    return opened(classifier(graph=readers()), tmp_path_factory.mktemp("classes"))


@pytest.fixture(scope="module")
def linking(tmp_path_factory):
    return opened(predictor(layers=2, epochs=20), tmp_path_factory.mktemp("links"))


@pytest.mark.parametrize("method", COMPARING)
def test_a_class_is_explained(reading, method):
    why = explain_class(reading, reading.node("p3"), method=method, edges=4, draws=5)
    assert why.title == "Why reader1 for p3?"
    assert why.edges[0].text == "p3 —reads→ book1"
    assert len(why.edges) == 4
    assert [edge.importance for edge in why.edges] == sorted((edge.importance for edge in why.edges), reverse=True)
    assert all(edge.importance > 0 for edge in why.edges)
    assert all(edge.importance < 0 for edge in why.against)
    assert 0 < sum(edge.share for edge in (*why.edges, *why.against)) <= 1 + 1e-9
    assert why.probability is None  # nothing was held out to calibrate on
    assert "no probability" in why.as_text()
    assert (why.own_share is None) == (method == "edge-mask")
    assert why.neighbors[0].node["title"] == "book1"
    assert why.fidelity.probability is None
    assert why.fidelity.strength.without.named > 3 * abs(why.fidelity.strength.without.random)
    assert "the log-odds fall from" in why.fidelity.words


def test_uncalibrated_values_are_shown_on_one_scale(reading):
    why = explain_class(reading, reading.node("p3"), edges=4, draws=5)
    odds = f"{why.fidelity.strength.full:.3g}"
    assert odds != f"{why.score:.3g}"
    assert why.sure == f"log-odds {odds}; no probability"
    page = why.as_page()
    tiles = re.findall(r'<div class="name">(.*?)</div><div class="value">(.*?)</div>', page)
    assert tiles[0] == ("log-odds", odds)
    assert "above 0: likelier than all others together" in page
    assert "score" not in re.sub(r"(?s)<(style|script).*?</\1>", "", page)
    for written in (page, why.as_text()):
        assert "Log-odds compare the answer with all others together" in written


def test_lines_of_a_drawing_do_not_cover_each_other(reading):
    why = explain_class(reading, reading.node("p3"), edges=8, draws=1)
    drawn = str(why.as_svg())
    lines = [tuple(map(float, line)) for line in re.findall(r'<path d="M([\d.]+) ([\d.]+)V([\d.]+)', drawn)]
    assert len(lines) > 4
    for rail, begin, end in lines:
        assert begin < end
        assert not [one for one in lines if one[0] == rail and begin < one[2] < end]


def test_arrows_of_a_path_follow_the_direction_of_its_triples(reading):
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


@pytest.mark.parametrize("method", COMPARING)
def test_a_link_is_explained_and_its_own_triple_is_marked(linking, method):
    ids = linking.node("n0"), linking.relation("next"), linking.node("n1")
    why = explain_link(linking, *ids, method=method, edges=50, draws=3)
    assert why.title == "Why n0 —next→ n1?"
    itself = [edge for edge in (*why.edges, *why.against) if edge.itself]
    assert [edge.text for edge in itself] == [
        edge.text for edge in (*why.edges, *why.against) if edge.text == "n0 —next→ n1"
    ]
    assert {edge.hop for edge in why.edges} <= {1, 2}
    assert all(path.text != "n0 —next→ n1" for path in why.paths)


def test_the_dictionary_is_plain_and_deterministic(reading, linking):
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
    assert set(classes()["fidelity"]) == {
        "edges", "draws", "strength", "probability", "evidence", "by_score", "words"
    }  # fmt: skip
    assert set(classes()["fidelity"]["strength"]) == {"name", "full", "without", "only"}
    assert set(classes()["edges"][0]) == {"subject", "relation", "object", "importance", "share", "hop", "itself"}


def test_a_note_says_that_another_class_is_predicted(reading):
    why = explain_class(reading, reading.node("p3"), reading.class_("reader0"), draws=1)
    assert why.fidelity.strength.full < -2
    assert "The model predicts reader1." in why.as_text()
    assert "The model predicts reader1." in why.as_page()


def test_a_node_without_triples_is_explained_by_itself(tmp_path):
    graph = KnowledgeGraph.from_triples([("a", "r", "b"), ("c", "r", "d")], labels={"a": "x", "c": "y"})
    lonely = KnowledgeGraph(graph.triples[:1], graph.nodes, graph.relations, labels=graph.labels)
    known = opened(classifier(graph=lonely, epochs=3), tmp_path)
    why = explain_class(known, known.node("c"))
    assert (why.considered, why.edges, why.neighbors, why.paths) == (0, (), (), ())
    assert "No triple reaches it" in why.as_text()
    assert why.fidelity.words == "No triple supports this answer, so none can be removed."
    assert "No triple influenced the answer" in why.as_page()


def test_subject_and_object_may_be_the_same(linking):
    why = explain_link(linking, 3, 0, 3, draws=1)
    assert why.query_nodes[0] == why.query_nodes[1]
    assert len([node for node in ElementTree.fromstring(why.as_svg_file()).iter(f"{SVG}g") if "asked" in
                node.get("class", "")]) == 1  # fmt: skip


PAIRS = KnowledgeGraph.from_triples([("a", "r", "b"), ("c", "r", "d"), ("e", "r", "c")])


@pytest.mark.parametrize("method", COMPARING)
def test_the_only_triple_in_reach_is_the_one_asked_about(tmp_path, method):
    known = opened(predictor(graph=PAIRS), tmp_path)
    why = explain_link(known, known.node("a"), 0, known.node("b"), method=method, draws=1)
    assert [(edge.text, edge.itself) for edge in (*why.edges, *why.against)] == [("a —r→ b", True)]
    assert ("(the triple itself)" in why.as_text()) == bool(why.edges or why.against)
    turned = explain_link(known, known.node("b"), 0, known.node("a"), method=method, draws=1)
    assert [(edge.text, edge.itself) for edge in (*turned.edges, *turned.against)] == [("a —r→ b", False)]


# -- what is left without the triples, and with only them --------------------------------------------------------


def named_of(graph, why):
    """Return the indices of the triples that an explanation lists."""
    names = {(edge.subject["name"], edge.relation["name"], edge.object["name"]) for edge in why.edges}
    return np.array([number for number, triple in enumerate(graph.named()) if tuple(triple) in names])


def rebuilt(model, numbers):
    """Return the same network over a graph built from some of the triples."""
    graph = only_these(model.graph_, numbers)
    rule = {"normalization": model.model.normalization, "aggregation": model.model.aggregation}
    return RelationalAdjacency.from_graph(graph, **rule)


def test_a_class_without_its_triples_and_with_only_them_is_that_of_graphs_built_so(reading):
    model, node, class_ = reading.model, reading.node("p3"), reading.class_("reader1")
    why = explain_class(reading, node, class_, edges=2, draws=3)
    named = named_of(model.graph_, why)
    assert len(named) == 2
    found = {}
    for key, kept in {"without": np.setdiff1d(np.arange(len(model.graph_)), named), "only": named}.items():
        with torch.no_grad():
            logits = model.network_(field_of(rebuilt(model, kept), [node], 2))
        found[key] = float(torch.logit(torch.softmax(logits.double(), 1)[0, class_]))
    strength = why.fidelity.strength
    assert strength.left(strength.without.named) == pytest.approx(found["without"], abs=1e-4)
    assert strength.left(strength.only.named) == pytest.approx(found["only"], abs=1e-4)
    assert abs(found["without"] - found["only"]) > 0.1


def test_a_link_without_its_triples_and_with_only_them_is_that_of_graphs_built_so(linking):
    model, (subject, relation, object_) = linking.model, (0, 1, 5)
    why = explain_link(linking, subject, relation, object_, edges=3, draws=3)
    named = named_of(model.graph_, why)
    scores = {}
    for key, kept in {"without": np.setdiff1d(np.arange(len(model.graph_)), named), "only": named}.items():
        with torch.no_grad():
            nodes = model.network_.encode(rebuilt(model, kept))
            score = model.network_.decoder.score(nodes[[subject]], torch.tensor([relation]), nodes[[object_]])
        scores[key] = float(score)
        strength = why.fidelity.strength
        assert strength.full == why.score
        assert strength.left(getattr(strength, key).named) == pytest.approx(scores[key], abs=1e-4)
    assert abs(scores["without"] - scores["only"]) > 1e-3


# -- the same probability as predictions have ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def one_way(tmp_path_factory):
    """A link predictor of a relation that goes one way only, calibrated."""
    rng = np.random.default_rng(0)
    rows = [tuple(row) for row in np.unique(np.sort(rng.integers(0, 40, (400, 2))), axis=0) if row[0] != row[1]]
    triples = [(f"n{low}", "below", f"n{high}") for low, high in rows]
    splits = (np.arange(len(triples)) % 4 == 3).astype(np.int8)  # every fourth for validation
    graph = KnowledgeGraph.from_triples(triples, triple_splits=splits)
    known = opened(predictor(graph=graph, epochs=30), tmp_path_factory.mktemp("one-way"))
    assert known.calibration.fitted
    return known


def asked_by_hand(known, triple):
    """Return (mean probability of predictions in both directions or None, probability of `rate_triples`)."""
    subject, relation, object_ = triple
    shares = []
    for given, answer, for_objects in ((subject, object_, True), (object_, subject, False)):
        questions = Questions(torch.tensor([given]), torch.tensor([relation]), for_objects)
        answers = answer_links(known, questions, known.graph.num_nodes)
        shares += answers.probability[0, answers.node[0] == answer].tolist()
    return (sum(shares) / len(shares) if shares else None), float(rate_triples(known, torch.tensor([triple]))[1])


def test_an_unknown_triple_has_the_probability_of_a_prediction_and_a_known_one_none(one_way):
    known = tuple(one_way.graph.triples[0].tolist())
    first = answer_links(one_way, Questions(torch.tensor([known[0]]), torch.tensor([0])), 1, "drop")
    unknown = (known[0], 0, int(first.node[0, 0]))
    for triple in (known, unknown):
        why = explain_link(one_way, *triple, edges=3, draws=2)
        predicted, scored = asked_by_hand(one_way, triple)
        assert (why.probability is None) == (triple == known)
        assert (predicted, scored) == pytest.approx((why.probability or math.nan,) * 2, rel=1e-4, nan_ok=True)
        assert ("probability by its score" in why.as_page()) == (triple == known)
        assert "not calibrated" not in why.as_page()
        if triple == unknown:
            assert why.fidelity.probability.full == pytest.approx(why.probability, rel=1e-6)
        assert ("in the data" in why.as_text().lower()) == (triple == known)
        assert ("in the data" in why.as_page().lower()) == (triple == known)
        assert why.as_dict()["probability"] == why.probability
        assert not why.ruled_out
        assert "contradicts" not in why.as_text() + why.as_page()
        assert "score alone" not in why.as_text() + why.as_page()


@pytest.mark.parametrize("itself", [False, True])
def test_a_triple_that_violates_constraints_has_its_probability_and_is_marked(one_way, itself):
    subject, _, object_ = one_way.graph.triples[0].tolist()
    triple = (subject, 0, subject) if itself else (object_, 0, subject)
    why = explain_link(one_way, *triple, edges=3, draws=2)
    predicted, scored = asked_by_hand(one_way, triple)
    assert predicted is None
    assert why.probability == scored == pytest.approx(one_way.calibration.ruled_out_share)
    directions = score_both_directions(one_way, torch.tensor([triple]))
    assert directions.ruled_out.tolist() == [True]
    by_score = float(directions.probability_of_scores(one_way.calibration, directions.scores))
    assert why.fidelity.probability.full == pytest.approx(by_score, rel=1e-6)
    assert why.fidelity.probability.full > 2 * why.probability
    assert why.as_dict()["ruled_out"]
    assert why.as_dict()["fidelity"]["by_score"]
    for written in (why.as_text(), why.as_page()):
        assert "It contradicts the constraints on below" in written
        assert "By its score alone the triple would have a probability of" in written


def test_without_a_calibration_a_ruled_out_triple_has_its_score_alone(tmp_path):
    triples = [(f"n{i}", "below", f"n{i + 1}") for i in range(20)]
    known = opened(predictor(graph=KnowledgeGraph.from_triples(triples)), tmp_path)
    why = explain_link(known, known.node("n1"), 0, known.node("n0"), edges=2, draws=1)
    assert why.ruled_out
    assert not why.fidelity.by_score
    assert why.probability is why.fidelity.probability is None
    assert why.score == pytest.approx(float(known.scorer().triple_scores(torch.tensor([[1, 0, 0]]))), rel=1e-4)
    assert "Predictions omit it" in why.as_text()


# -- nodes added later ----------------------------------------------------------------------------------------------


def test_nodes_added_later_have_no_probability(one_way):
    for new, words in (((0,), "n0 was added after training"), ((0, 1), "n0 and n1 were added after training")):
        later = replace(one_way, new_nodes=tuple(one_way.node(f"n{number}") for number in new))
        why = explain_link(later, later.node("n0"), 0, later.node("n1"), edges=2, draws=1)
        for written in (why.as_text(), why.as_page()):
            assert f"{words}, and the calibration has no such nodes." in written
        assert [node["name"] for node in why.as_dict()["added"]] == [f"n{number}" for number in new]
        other = explain_link(later, later.node("n5"), 0, later.node("n6"), edges=2, draws=1)
        assert "added after" not in other.as_text()
        assert other.added == ()


# -- networks with few messages ----------------------------------------------------------------------------------------

DEAF = {"self_loops": False, "epochs": 2}


def check_written(why):
    json.dumps(why.as_dict())
    ElementTree.fromstring(why.as_svg_file())
    assert "No triple reaches it" in why.as_text()
    assert why.as_page()
    assert (why.considered, why.edges, why.neighbors, why.paths) == (0, (), (), ())


@pytest.mark.parametrize("method", COMPARING)
@pytest.mark.parametrize("model", ["rgcn", "e-rgcn"])
@pytest.mark.parametrize("inverse", [True, False])
def test_a_node_without_messages_is_explained_too(tmp_path, model, inverse, method):
    labels = {"a": "x", "c": "y"}
    whole = KnowledgeGraph.from_triples([("e", "r", "a"), ("a", "r", "b"), ("c", "r", "d")], labels=labels)
    graph = KnowledgeGraph(whole.triples[:2], whole.nodes, whole.relations, labels=whole.labels)
    settings = {**DEAF, "inverse": inverse, **({"hidden": 4} if model == "rgcn" else {})}
    known = opened(classifier(model, graph, **settings), tmp_path)
    # c is in no triple; e only sends messages, because there are no inverse edges
    for name in ("c",) if inverse else ("c", "e"):
        why = explain_class(known, known.node(name), method=method, draws=2)
        check_written(why)
        if method == "integrated-gradients":
            assert why.own_share == 0
            assert "ignores the node itself: any such node has this answer" in why.as_text()


@pytest.mark.parametrize("method", COMPARING)
@pytest.mark.parametrize("model", ["rgcn", "c-rgcn"])
def test_two_nodes_without_messages_are_explained_too(tmp_path, model, method):
    known = opened(predictor(model, PAIRS, layers=2, inverse=False, **DEAF), tmp_path)
    why = explain_link(known, known.node("e"), 0, known.node("a"), method=method, draws=2)
    check_written(why)
    if method == "integrated-gradients":
        assert why.own_share == (1 if model == "c-rgcn" else 0)  # whose vectors go around the messages
    half = explain_link(known, known.node("e"), 0, known.node("d"), method=method, draws=2)
    assert half.considered == 2


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
        assert len(nodes) == len(edges) + len({node["name"] for node in why.query_nodes})  # each leads to one
        assert {node["name"] for node in why.query_nodes} <= set(names)
        # The width of a phone of 360 pixels.
        assert float(ElementTree.fromstring(why.as_svg_file()).get("width")) <= 286
        assert all(node.get("tabindex") == "0" for node in nodes)
        assert all(group.find(f"{SVG}title").text for group in (*nodes, *edges))


def test_colors_are_the_pages_inline_and_its_own_in_a_file(reading):
    why = explain_class(reading, 0, draws=1)
    assert "var(--series-1" in why.as_svg()
    assert "var(" not in why.as_svg_file()
    assert "style=" not in why.as_svg()


def test_hostile_names_are_escaped(tmp_path):
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


def test_unsupported_explanations_raise_an_error(reading, linking, tmp_path):
    plain = opened(predictor("distmult", neighbors_graph()), tmp_path)
    assert available_methods(plain) == ()
    assert available_methods(reading) == available_methods(linking) == tuple(COMPARING)
    with pytest.raises(DataError, match="distmult has no message passing"):
        explain_link(plain, 0, 0, 1)
    with pytest.raises(DataError, match="predicts links"):
        explain_class(linking, 0)
    with pytest.raises(DataError, match="classifies nodes"):
        explain_link(reading, 0, 0, 1)
    with pytest.raises(ConfigError, match="paths, integrated-gradients, edge-mask"):
        explain_class(reading, 0, method="magic")
    for wrong in ({"edges": 0}, {"draws": 0}, {"edges": 10**6}):
        with pytest.raises(ConfigError, match="must be between 1"):
            explain_class(reading, 0, **wrong)
    with pytest.raises(DataError, match="there is no node"):
        explain_class(reading, 10**6)
    with pytest.raises(DataError, match="there is no class 7"):
        explain_class(reading, 0, 7)
    with pytest.raises(DataError, match="there is no relation -1"):
        explain_link(linking, 0, -1, 1)
