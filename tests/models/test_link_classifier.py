"""Classification by links: labels are triples, and a node's own label is hidden while its class is predicted."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rgcn
from rgcn.errors import ConfigError, DataError
from rgcn.explain.methods import explain_class
from rgcn.graph import NodeLabels, Vocabulary
from rgcn.graph.titles import Titles
from rgcn.nn.scorer import Questions
from rgcn.predict import OpenModel
from small_models import random_graph

SMALL = {"layers": 3, "width": 6, "batch_edges": 4}


def labeled(seed, classes=("x", "y", "z"), nodes=12):
    """Draw a small graph; half of its nodes are labeled, most of these in train; a class may be a node."""
    graph, draw = random_graph(seed, splits=False), np.random.default_rng(seed)
    chosen = draw.choice(graph.num_nodes, nodes, replace=False)
    numbers = np.arange(nodes) % len(classes)
    splits = np.where(np.arange(nodes) < nodes - 3, 0, 2)
    names = [graph.nodes[int(name)] if isinstance(name, int) else name for name in classes]
    return replace(graph, labels=NodeLabels(chosen, numbers, Vocabulary(names, kind="class"), splits))


def prepared(graph, **settings):
    """Return an untrained model in float64."""
    model = rgcn.LinkClassifier("path", **{**SMALL, **settings}).prepare(graph)
    model.network_.double().eval()
    exact = model.adjacency_.to(torch.float64)
    model._adjacency = exact.with_raw_weights(exact.raw)
    return model


@settings(max_examples=8)
@given(
    st.integers(0, 10**6),
    st.sampled_from([{}, {"normalization": "relation", "layers": 2}, {"surroundings": 0, "deviation": True}]),
    st.booleans(),
)
def test_logits_equal_those_of_a_graph_without_the_queried_label(seed, made, class_is_a_node):
    graph = labeled(seed, classes=("x", 3 if class_is_a_node else "y"))
    model, labels = prepared(graph, **made), graph.labels
    nodes = labels.nodes.tolist()
    found = model.logits([*nodes, nodes[0]])
    for row, node in enumerate([*nodes, nodes[0]]):
        visible = replace(labels, splits=np.where(labels.nodes == node, 2, labels.splits).astype(np.int8))
        other = prepared(replace(graph, labels=visible), **made)
        other.network_.load_state_dict(model.network_.state_dict())
        torch.testing.assert_close(other.logits([node])[0], found[row], rtol=1e-6, atol=1e-7)


def test_a_question_hides_a_triple_from_either_end():
    model = prepared(labeled(2))
    scorer, triples = model.scorer(), torch.from_numpy(model.graph_.triples[:5].copy())
    subject, relation, object_ = triples.unbind(1)
    by_object = scorer.scores_hiding_answers(Questions(object_, relation, False), subject)
    by_subject = scorer.scores_hiding_answers(Questions(subject, relation), object_, torch.arange(3))
    for number, triple in enumerate(triples.tolist()):
        same = torch.from_numpy((model.graph_.triples == triple).all(1))
        keep = torch.cat([(~same).double(), torch.ones(model.graph_.num_nodes, dtype=torch.float64)])
        masked_scorer = model.network_.make_scorer(model.adjacency_.masked(keep))
        one = triples[number : number + 1].unbind(1)
        torch.testing.assert_close(by_object[number], masked_scorer.scores(Questions(one[2], one[1], False))[0])
        torch.testing.assert_close(by_subject[number], masked_scorer.scores(Questions(one[0], one[1]))[0, :3])


def test_the_label_of_a_queried_node_has_no_influence():
    """Only the labels distinguish the two classes: if they were not hidden, the model would repeat them."""
    graph = rgcn.KnowledgeGraph.from_triples(
        [(f"n{i}", "r", "hub") for i in range(8)], labels={f"n{i}": "even" if i % 2 == 0 else "odd" for i in range(8)}
    )
    found = prepared(graph).logits([f"n{i}" for i in range(8)])
    torch.testing.assert_close(found[0::2], found[0].expand(4, 2))
    torch.testing.assert_close(found[1::2], found[1].expand(4, 2))


def test_steps_query_classes_only_or_a_share():
    graph, batch = labeled(1), 4
    settings = {**SMALL, "sampler": "shuffled", "head_probability": 0.0, "steps": 2}
    for share, least, most in ((1.0, 1.0, 1.0), (0.5, 0.35, 0.65), (None, 0.0, 0.25)):
        model = rgcn.LinkClassifier("path", class_share=share, **settings).prepare(graph)
        batches = model.trainer().batches()
        drawn = torch.cat([next(batches) for _ in range(60)])
        batches.close()
        assert len(drawn) == 60 * batch
        assert least <= float((drawn[:, 1] == model.class_relation_).double().mean()) <= most
    fitted = [rgcn.LinkClassifier("path", class_share=1.0, seed=3, **settings).fit(graph) for _ in range(2)]
    assert torch.equal(*(model.logits(range(graph.num_nodes)) for model in fitted))


def test_a_class_share_needs_messages_beyond_the_batch():
    with pytest.raises(ConfigError, match="class_share"):
        rgcn.LinkClassifier("c-rgcn", embedding=4, bottleneck=2, batch_edges=4, class_share=1.0).fit(labeled(1))
    whole = rgcn.LinkClassifier("c-rgcn", embedding=4, bottleneck=2, steps=1, class_share=1.0).fit(labeled(1))
    assert bool(torch.isfinite(whole.logits([0, 1])).all())


def test_invalid_labels_are_refused():
    edges = [("a", "r", "b"), ("b", "r", "c"), ("c", "r", "a"), ("d", "has class", "a")]

    def classify(labels, **more):
        kg = rgcn.KnowledgeGraph.from_triples(edges, labels=labels, **more)
        return rgcn.LinkClassifier("path", **SMALL, steps=2, objective="softmax").fit(kg)

    with pytest.raises(DataError, match="one class"):
        classify({"a": "red", "b": "red"})
    model = classify(
        {"a": "d", "b": "a"}, test_labels={"c": "blue", "d": "a"}
    )  # classes that are nodes, one that is new
    assert model.classes_ == ["d", "a", "blue"]
    assert model.graph_.num_nodes == 5
    assert bool(torch.isfinite(model.logits(["a", "d", "c", "blue"])).all())
    assert model.logits([]).shape == (0, 3)
    itself = classify({"a": "a", "b": "red"})  # a node that is its own class
    assert set(itself.predict(["a", "red"])) <= {"a", "red"}


def test_nodes_without_triples_can_be_classified():
    graph, kept = labeled(5), np.arange(6, 23)
    bare = replace(graph, triples=graph.triples[np.isin(graph.triples[:, [0, 2]], kept).all(1)])
    model = rgcn.LinkClassifier("path", **SMALL, steps=2, objective="softmax").fit(bare)
    free = [node for node in range(6) if node not in bare.labels.of("train")[0]]
    found = model.logits(range(6))
    assert bool(torch.isfinite(found).all())
    assert len(free) > 1
    torch.testing.assert_close(found[free], found[free[0]].expand(len(free), 3))  # they are indistinguishable


def test_graphs_with_times_can_be_classified():
    timed = replace(labeled(5), triple_times=np.arange(len(labeled(5)), dtype=np.float64))
    found = [rgcn.LinkClassifier("path", **SMALL, steps=1).fit(graph).logits([0, 1]) for graph in (labeled(5), timed)]
    assert torch.equal(*found)


def test_explanations_and_predictions_have_the_same_score(tmp_path):
    """Explain nodes with and without a label to hide, with and without a fitted normalizer."""
    graph = labeled(4)
    model = rgcn.LinkClassifier("path", **SMALL, steps=3, objective="softmax").fit(graph)
    opened = OpenModel(tmp_path, "small", model, Titles(model.graph_))
    nodes = [int(graph.labels.of("train")[0][0]), int(graph.labels.of("test")[0][0])]
    for made in (model, model.fit_normalizer()):
        for node, wanted in zip(nodes, made.logits(nodes), strict=True):
            why = explain_class(opened, node, draws=1, edges=2)
            assert why.question["class"]["name"] == made.classes_[int(wanted.argmax())]
            assert why.score == pytest.approx(float(wanted.max()), rel=1e-4, abs=1e-5)
