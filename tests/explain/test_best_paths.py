"""Test explanations of path networks: the best paths, the edges read, and that the queried triple is hidden."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from explained_models import STANDING, opened, predictor
from walking import families, walker

import rgcn
from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.errors import DataError
from rgcn.explain import attribution as searching
from rgcn.explain import available_methods, explain_class, explain_link
from rgcn.explain.attribution import Attribution, best_paths, best_paths_both_ways
from rgcn.explain.methods import PathGradients
from rgcn.explain.question import ComputationGraph, LinkQuestion, frozen_copy
from rgcn.graph import KnowledgeGraph
from rgcn.links.calibration import Calibration
from rgcn.nn.link_network import ExplainedTriple
from rgcn.nn.scorer import Questions

SVG = "{http://www.w3.org/2000/svg}"


def drawn(seed, nodes=7, depth=4, share=0.4):
    """Layers of random edges with random importances, a third of them negative; edges both ways are one triple."""
    rng = np.random.default_rng(seed)
    pairs = np.array(list(combinations(range(nodes), 2)) * 2)
    importances, places, ends = [], [], []
    for _ in range(depth):
        triple = np.flatnonzero(rng.random(len(pairs)) < share)
        turned = rng.random(len(triple)) < 0.5
        source = np.where(turned, pairs[triple, 1], pairs[triple, 0])
        target = np.where(turned, pairs[triple, 0], pairs[triple, 1])
        importances.append(rng.uniform(-0.5, 1.0, len(triple)))
        places.append(torch.from_numpy(triple))
        ends.append((source, target))
    return Attribution(SimpleNamespace(edge_triples=tuple(places), edge_ends=tuple(ends)), tuple(importances), None)


def every_path(attribution, start, end):
    """Return {triples: mean importance of the best way in which they fit into the layers}, by definition."""
    subgraph, found = attribution.subgraph, {}

    def walk(layer, node, passed, triples, total):
        if node == end:
            mean = total / len(triples)
            found[triples] = max(mean, found.get(triples, -np.inf))
            return
        for later in range(layer, len(attribution.edges)):
            source, target = subgraph.edge_ends[later]
            for edge in np.flatnonzero((source == node) & (attribution.edges[later] > 0)).tolist():
                if target[edge] not in passed:
                    way = (*triples, int(subgraph.edge_triples[later][edge]))
                    importance = float(attribution.edges[later][edge])
                    walk(later + 1, int(target[edge]), {*passed, int(target[edge])}, way, total + importance)

    walk(0, start, {start}, (), 0.0)
    return found


@pytest.mark.parametrize("seed", range(12))
def test_the_best_paths_equal_those_of_an_exhaustive_search(seed):
    attribution = drawn(seed)
    wanted = sorted(every_path(attribution, 0, 6).values(), reverse=True)
    for limit in (1, 5, 10**6):
        found = best_paths(attribution, 0, 6, limit)
        assert [path.importance for path in found] == pytest.approx(wanted[:limit])
        assert len({path.triples for path in found}) == len(found)
    assert {path.triples: pytest.approx(path.importance) for path in found} == every_path(attribution, 0, 6)


@pytest.mark.parametrize("seed", range(4))
def test_paths_found_from_either_end_are_read_from_the_start_and_count_once(seed):
    attribution = drawn(seed)
    wanted = every_path(attribution, 0, 6)
    for triples, importance in every_path(attribution, 6, 0).items():
        wanted[triples[::-1]] = max(importance, wanted.get(triples[::-1], -np.inf))
    found = best_paths_both_ways(attribution, 0, 6, 10**6)
    assert {path.triples: pytest.approx(path.importance) for path in found} == wanted
    assert {path.start for path in found} <= {0}
    best = sorted(wanted.values(), reverse=True)[:4]
    assert [path.importance for path in best_paths_both_ways(attribution, 0, 6, 4)] == pytest.approx(best)


def test_a_search_that_takes_too_long_gives_the_best_it_has_found(monkeypatch):
    attribution = drawn(1, nodes=9, depth=5, share=0.8)
    best = best_paths(attribution, 0, 8, 3)
    monkeypatch.setattr(searching, "MAX_PREFIXES", 60)
    fewer = best_paths(attribution, 0, 8, 10**6)
    assert 3 <= len(fewer) < len(every_path(attribution, 0, 8))
    assert fewer[:3] == best


def test_unreachable_nodes_have_no_path_and_paths_do_not_return_to_their_start():
    attribution = drawn(0)
    assert best_paths(attribution, 0, 0, 5) == []
    silent = Attribution(attribution.subgraph, tuple(-np.abs(part) for part in attribution.edges), None)
    assert best_paths(silent, 0, 6, 5) == []


# -- edges that are read --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def living():
    return walker(families(), steps=150, learning_rate=0.05, negatives=4)


@pytest.fixture(scope="module")
def trained(living, tmp_path_factory):
    return opened(living, tmp_path_factory.mktemp("walks"))


@pytest.mark.parametrize("ignores_unreached_nodes", [True, False])
def test_only_edges_on_paths_are_read(living, ignores_unreached_nodes):
    network, adjacency = living.network_, living.adjacency_
    torch.manual_seed(0)
    for subject, object_ in torch.randint(adjacency.num_sources, (8, 2)).tolist():
        field = ReceptiveField.of_walks(adjacency, subject, torch.tensor([object_]), 3, ignores_unreached_nodes)
        begin = (field.inputs == subject).float()[:, None]
        with torch.no_grad():
            found = network.walk(field.layers, begin, torch.tensor([1]))[0, field.outputs.tolist().index(object_)]
            wanted = network.ask(adjacency, torch.tensor([subject]), torch.tensor([1]))[0, object_]
        assert found == pytest.approx(float(wanted), rel=1e-5, abs=1e-6)
        for layer in field.layers:  # normalizing again changes nothing, and degrees are those of the whole graph
            assert torch.equal(layer.with_raw_weights(layer.raw).weight, layer.weight)
            assert layer.num_edges < adjacency.num_edges
            degree = torch.bincount(layer.structure.target, minlength=len(field.outputs))
            whole = torch.bincount(adjacency.structure.target, minlength=adjacency.num_targets)[field.outputs]
            assert torch.equal(degree[degree > 0], whole[degree > 0])


@pytest.mark.parametrize("settings", [{}, {"surroundings": 2}, {"unreached": "awake"}, {"normalization": "relation"}])
def test_walks_both_ways_read_all_edges_that_either_direction_needs(settings):
    model = rgcn.LinkPredictor("path", width=6, layers=3, device="cpu", seed=2, **settings).prepare(families())
    network, graph = model.network_.eval(), model.graph_
    for link in [*graph.triples[:5].tolist(), [0, 1, 5], [3, 0, 3]]:
        subject, relation, object_ = link
        subgraph = ComputationGraph.of_paths(model, [tuple(link)], both=True)
        keep = torch.from_numpy(np.append(~(graph.triples == link).all(axis=1), np.ones(graph.num_nodes, bool)))
        questions = Questions(
            torch.tensor([subject, object_]), torch.tensor([relation] * 2), torch.tensor([True, False])
        )
        with torch.no_grad():
            explained = ExplainedTriple(subgraph.field, subgraph.field.outputs, *link)
            whole = network.score_nodes(model.adjacency_.masked(keep), questions)[[0, 1], [object_, subject]]
            torch.testing.assert_close(network.score_explained(explained), whole, rtol=1e-4, atol=1e-5)
            alone = network.score_explained(explained._replace(both=False))
            torch.testing.assert_close(alone, whole[:1], rtol=1e-4, atol=1e-5)


def test_the_queried_triple_is_hidden_and_the_rest_normalized_without_it(living):
    graph = living.graph_
    link = tuple(graph.triples[2].tolist())
    subgraph = ComputationGraph.of_paths(living, [link])
    assert subgraph.is_hidden
    assert list(link) not in subgraph.triples.tolist()
    without = torch.from_numpy(np.delete(graph.triples, 2, axis=0))
    rule = {"normalization": living.model.normalization, "self_loops": False}
    rebuilt = RelationalAdjacency.from_triples(without, graph.num_nodes, graph.num_relations, **rule)
    field = ReceptiveField.of_walks(rebuilt, link[0], torch.tensor([link[2]]), 3)
    for layer, other in zip(subgraph.field.layers, field.layers, strict=True):
        assert torch.allclose(layer.weight, other.weight)
    assert not ComputationGraph.of_paths(living, [(link[2], *link[1:2], link[0])]).is_hidden


# -- explanations ----------------------------------------------------------------------------------------------------


def test_the_expected_path_comes_first(trained):
    assert available_methods(trained)[0] == "paths"
    for child in (0, 1, 2, 3):
        ids = trained.node(f"child{child}"), trained.relation("lives in"), trained.node(f"town{child % 4}")
        why = explain_link(trained, *ids, draws=5)
        assert why.paths[0].text == f"child{child} —child of→ parent{child} —lives in→ town{child % 4}"
        assert (why.method, why.hidden, why.walked) == ("paths", child > 0, True)
        assert ("The triple itself was hidden from the model." in why.as_text()) == (child > 0)
        assert all(not edge.itself for edge in (*why.edges, *why.against))
        strength = why.fidelity.strength
        assert strength.without.named > 2 * max(0.0, strength.without.random)
        assert strength.only.named < strength.only.random


@pytest.mark.parametrize("method", ["integrated-gradients", "edge-mask"])
def test_other_methods_show_the_same_walks(trained, method):
    ids = trained.node("child1"), trained.relation("lives in"), trained.node("town1")
    why = explain_link(trained, *ids, method=method, draws=1)
    assert why.paths[0].text == "child1 —child of→ parent1 —lives in→ town1"
    assert why.score == pytest.approx(explain_link(trained, *ids, draws=1).score)


def test_importances_of_a_layer_sum_to_its_contribution_in_a_linear_network(living):
    link = (0, 1, living.graph_.nodes["town0"])
    question = LinkQuestion(
        ComputationGraph.of_paths(living, [link]),
        Calibration("links", True, ""),
        frozen_copy(living.network_),
        *link,
        STANDING,
    )
    layers, found = question.subgraph.field.layers, PathGradients().attribute(question)
    with torch.no_grad():
        whole = float(question.strength_with(question.subgraph.field))
        for depth, layer in enumerate(layers):
            silent = replace(layer, weight=torch.zeros_like(layer.weight))
            less = replace(question.subgraph.field, layers=(*layers[:depth], silent, *layers[depth + 1 :]))
            brought = whole - float(question.strength_with(less))
            assert found.edges[depth].sum() == pytest.approx(brought, rel=1e-4, abs=1e-5)
            assert abs(brought) > 1e-3


def test_pages_and_drawings_are_self_contained_and_fit_a_phone(trained):
    why = explain_link(trained, trained.node("child1"), trained.relation("lives in"), trained.node("town1"), draws=1)
    picture = ElementTree.fromstring(why.as_svg_file())
    assert picture.tag == f"{SVG}svg"
    assert float(picture.get("width")) <= 286
    for box in picture.iter(f"{SVG}rect"):
        if box.get("x") is not None:
            assert float(box.get("x")) + float(box.get("width")) <= float(picture.get("width"))
    named = [group.get("data-node") for group in picture.iter(f"{SVG}g") if group.get("data-node")]
    assert named[:3] == ["child1", "parent1", "town1"]
    assert why.paths[0].text in picture.find(f"{SVG}desc").text
    page = why.as_page()
    assert "Paths to the answer" in page
    assert "The triple itself was hidden from the model." in page
    result = json.loads(json.dumps(why.as_dict()))
    assert result["hidden"]
    assert result["paths"][0]["text"] == why.paths[0].text


def test_a_node_that_no_path_reaches_is_reported(tmp_path):
    known = opened(walker(KnowledgeGraph.from_triples([*families().named(), ("hermit", "knows", "ghost")])), tmp_path)
    why = explain_link(known, known.node("child1"), known.relation("lives in"), known.node("hermit"), draws=1)
    assert why.paths == ()
    assert "No path supports the answer" in why.as_page()


def test_a_network_of_node_vectors_has_no_path_explanation(tmp_path):
    known = opened(predictor(), tmp_path)
    assert "paths" not in available_methods(known)
    with pytest.raises(DataError, match="use the method integrated-gradients or edge-mask"):
        explain_link(known, 0, 0, 1, method="paths")


# -- the encoder path ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{"layers": 3}, {"layers": 2, "normalization": "relation", "deviation": True}])
def test_the_score_of_a_path_network_equals_that_of_predict(tmp_path, settings):
    chosen = {"width": 6, "objective": "softmax", "steps": 30, "batch_edges": 8, "learning_rate": 0.02, **settings}
    model = rgcn.LinkPredictor(encoder="path", sampler="uniform", device="cpu", **chosen).fit(families())
    known = opened(model, tmp_path)
    for subject, relation, object_ in [*model.graph_.triples[:4].tolist(), [0, 1, 5], [3, 0, 3]]:
        why = explain_link(known, subject, relation, object_, draws=1)
        wanted = float(model.scorer().triple_scores(torch.tensor([[subject, relation, object_]])))
        assert why.score == pytest.approx(wanted, rel=1e-3, abs=1e-4)
        assert why.fidelity.strength.full == pytest.approx(wanted, rel=1e-3, abs=1e-4)


def test_a_class_predicted_as_a_link_is_explained_by_paths(tmp_path):
    labels = {f"child{child}": f"of town{child % 4}" for child in range(8)}
    graph = KnowledgeGraph.from_triples(families().named(), labels=labels)
    model = rgcn.LinkClassifier(encoder="path", width=6, layers=3, objective="softmax", steps=20, batch_edges=8,
                                sampler="uniform", device="cpu").fit(graph)  # fmt: skip
    known = opened(model, tmp_path)
    why = explain_class(known, known.node("child1"), known.class_("of town1"), draws=1)
    assert why.hidden  # its own label
    assert why.walked
    for path in why.paths:
        assert path.text.startswith("child1 ")
        assert path.text.endswith(" of town1")
        assert "child1 —has class→" not in path.text
    assert why.as_page()
