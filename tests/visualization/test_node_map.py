"""Test the nodes and colors of a map."""

import numpy as np
import pytest

import rgcn
from rgcn.predict import open_model
from rgcn.predict.opened_model import OpenModel
from rgcn.visualization import node_map, vectors


def every(opened):
    return np.arange(opened.graph.num_nodes)


def test_labeled_nodes_come_first(classifier):
    graph = classifier.graph
    shown = node_map.select_nodes(graph, every(classifier), 24)
    assert sorted(shown.tolist()) == sorted(graph.labels.nodes.tolist())
    more = node_map.select_nodes(graph, every(classifier), 26)
    assert [graph.nodes[i] for i in more[24:]] == ["http://x.org/Reader", "http://x.org/author0"]
    assert len(node_map.select_nodes(graph, np.array([1, 2]), 100)) == 2


def many_labeled(sizes, test=0):
    """Return a graph with these numbers of labeled nodes per class, and some test nodes."""
    names = [f"{kind}-{i}" for kind, size in sizes.items() for i in range(size)]
    hidden = [f"test-{i}" for i in range(test)]
    graph = rgcn.KnowledgeGraph.from_triples([(name, "in", "middle") for name in (*names, *hidden)])
    first = next(iter(sizes))
    labels = {"train": {name: name.split("-")[0] for name in names}, "test": dict.fromkeys(hidden, first)}
    return graph.with_labels({split: of for split, of in labels.items() if of})


def drawn_of(graph, most, seed=0):
    shown = node_map.select_nodes(graph, np.arange(graph.num_nodes), most, seed)
    kinds = [graph.nodes[node].split("-")[0] for node in shown.tolist()]
    assert len(set(shown.tolist())) == len(shown) == most
    return shown.tolist(), {kind: kinds.count(kind) for kind in kinds}


def test_of_too_many_labeled_nodes_each_class_has_as_many_or_all_it_has():
    graph = many_labeled({"common": 300, "usual": 80, "rare": 4})
    shown, counts = drawn_of(graph, 64)
    assert counts == {"common": 30, "usual": 30, "rare": 4}
    assert drawn_of(graph, 64)[0] == shown
    other, same_counts = drawn_of(graph, 64, seed=1)
    assert same_counts == counts
    assert set(other) != set(shown)
    assert drawn_of(graph, 2)[1].keys() == {"common", "usual"}


def test_classes_of_test_nodes_do_not_influence_the_sample():
    graph = many_labeled({"one": 50, "two": 50}, test=50)
    assert drawn_of(graph, 30)[1] == {"one": 10, "two": 10, "test": 10}
    # Only candidates are drawn from.
    few = node_map.select_nodes(graph, np.arange(8), 5)
    assert set(few.tolist()) <= set(range(8))


def test_classes_of_test_nodes_are_shown_only_when_asked_for(classifier):
    nodes = every(classifier)
    usual = node_map.colorings(classifier, nodes)[0]
    assert usual.key == "class"
    titles = {group.title: group for group in usual.groups}
    assert titles["test nodes, class not shown"].count == 5
    assert titles["nodes without a class"].is_muted
    assert "--split test" in usual.explanation
    coloring = node_map.colorings(classifier, nodes, split="test")[0]
    assert sum(group.count for group in coloring.groups if not group.is_muted) == 24


def test_a_classifier_is_colored_by_class_and_a_link_predictor_by_kind(classifier, predictor):
    predicted = vectors.predictions(classifier, every(classifier)).class_
    made = node_map.colorings(classifier, every(classifier), predicted)
    assert [one.key for one in made] == ["class", "predicted", "kind"]
    assert [one.key for one in node_map.colorings(classifier, every(classifier))] == ["class", "kind"]
    assert [one.key for one in node_map.colorings(predictor, every(predictor))] == ["kind", "class"]


def test_each_point_has_a_group_and_the_counts_are_right(classifier):
    predicted = vectors.predictions(classifier, every(classifier)).class_
    for one in node_map.colorings(classifier, every(classifier), predicted):
        counts = np.bincount(one.group_of, minlength=len(one.groups))
        assert counts.tolist() == [group.count for group in one.groups]
        sizes = [group.count for group in one.groups if not group.is_muted]
        assert sizes == sorted(sizes, reverse=True)


def test_a_kind_is_the_type_or_else_the_part_in_triples(classifier):
    found = node_map.by_kind(classifier, every(classifier))
    of = {name: found.groups[group].title for name, group in zip(classifier.graph.nodes, found.group_of, strict=True)}
    assert of["http://x.org/reader1"] == "Reader"
    assert of["http://x.org/author0"] == "subject of wrote"
    assert of["http://x.org/Reader"] == "object of type"
    # Books are objects of reads and of wrote, as many: the relation that came first.
    assert of["http://x.org/book0-0"] == "object of reads"


def test_kinds_are_read_from_training_triples_only(predictor):
    graph = rgcn.KnowledgeGraph.from_triples(
        [("a", "likes", "b"), ("b", "likes", "c"), ("z", "hates", "c")], triple_splits=np.array([0, 0, 2])
    )
    model = rgcn.LinkPredictor(encoder="none", embedding=4, steps=1).fit(graph)
    from rgcn.graph.titles import Titles

    found = node_map.by_kind(OpenModel(predictor.path, "x", model, Titles(graph)), np.arange(4))
    assert found.groups[found.group_of[graph.nodes["z"]]].title == "nodes in no triple"
    assert "Training triples only" in found.explanation


def test_rare_groups_become_one():
    group = np.concatenate([np.zeros(5, np.int64), np.arange(1, 40)])
    found = node_map._coloring("key", "title", "words", group, [f"g{i}" for i in range(40)], {})
    assert len(found.groups) == node_map.MAX_GROUPS + 1
    assert found.groups[0] == node_map.Group("g0", 5)
    assert found.groups[-1] == node_map.Group("19 rarer ones", 19, is_muted=True)
    assert found.group_of[-1] == node_map.MAX_GROUPS


def test_a_class_that_is_a_node_has_the_nodes_title(tmp_path):
    graph = rgcn.KnowledgeGraph.from_triples([("a", "in", "http://x.org/g1"), ("b", "in", "http://x.org/g2")])
    graph = graph.with_labels({"train": {"a": "http://x.org/g1", "b": "http://x.org/g2"}})
    rgcn.NodeClassifier(hidden=2, epochs=1).fit(graph).save(str(tmp_path))
    opened = open_model(tmp_path)
    assert [opened.titles.class_(number) for number in range(2)] == ["g1", "g2"]


@pytest.mark.parametrize(("path", "end"), [("short", "short"), ("a" * 50, "a" * 50), ("/" + "b" * 50, "…/" + "b" * 50)])
def test_long_paths_are_cut_between_their_parts(path, end):
    assert node_map.shorten_path(path) == end


def test_a_notebook_shows_the_map(classifier):
    drawn = node_map.NodeMap(vectors.NodeVectors.of(classifier), every(classifier))
    shown = drawn._repr_html_()
    assert shown.count("<circle") == len(drawn.nodes)
    assert drawn.colorings[0].groups[0].title in shown
    assert "nan" not in shown
