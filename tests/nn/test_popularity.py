"""Compare popularity scores in training, answers and explanations with counts by hand."""

import numpy as np
import pytest
import torch

import rgcn
from rgcn.adjacency import ReceptiveField
from rgcn.errors import ConfigError
from rgcn.models.growth import extended
from rgcn.nn.link_network import ExplainedTriple
from rgcn.nn.scorer import Questions
from rgcn.predict.opened_model import merge_new_triples
from rgcn.sampling.negatives import corrupt
from small_models import named_rows, random_graph

SETTINGS = {"encoder": "popularity", "normalization": "none", "self_loops": False, "steps": 1, "edge_dropout": 0.0}


def fitted(graph, **settings):
    return rgcn.LinkPredictor(**{**SETTINGS, **settings}).fit(graph)


def counted(graph):
    """Return [2, relations, nodes]: how often a node is the object of a relation, and how often its subject."""
    counts = np.zeros((2, graph.num_relations, graph.num_nodes))
    for subject, relation, object_ in graph.split_triples("train"):
        counts[0, relation, object_] += 1
        counts[1, relation, subject] += 1
    return torch.from_numpy(counts).float()


@pytest.mark.parametrize("seed", range(3))
def test_scores_are_counts(seed):
    graph = random_graph(seed)
    model, counts = fitted(graph), counted(graph)
    bias = model.network_.bias.item()
    relation = torch.arange(graph.num_relations).repeat(2)
    sides = torch.arange(len(relation)) < graph.num_relations
    questions = Questions(torch.zeros_like(relation), relation, sides)
    expected = torch.log1p(counts.flatten(0, 1)) + bias
    torch.testing.assert_close(model.scorer().scores(questions), expected)
    some = torch.tensor([1, 4, 7])
    torch.testing.assert_close(model.scorer().scores(questions, some), expected[:, some])
    torch.testing.assert_close(model.network_.score_nodes(model.adjacency_, questions), expected)
    triples = torch.tensor(graph.triples)
    both = (torch.log1p(counts[side, triples[:, 1], triples[:, end]]) for side, end in ((0, 2), (1, 0)))
    by_hand = sum(both) / 2 + bias
    torch.testing.assert_close(model.scorer().triple_scores(triples), by_hand)


def test_a_batch_is_scored_by_the_side_that_was_replaced():
    graph = random_graph(1)
    model, counts = fitted(graph), counted(graph)
    positives = torch.tensor(graph.split_triples("train"))
    drawn = corrupt(positives, graph.num_nodes, rate=3, generator=torch.Generator().manual_seed(0))
    scores = model.network_.score_batch(model.adjacency_, positives, drawn)
    by_hand = counts[drawn.is_subject.long(), positives[drawn.positive, 1], drawn.node]
    torch.testing.assert_close(scores.negative, torch.log1p(by_hand) + model.network_.bias)
    torch.testing.assert_close(
        scores.positive, torch.log1p(counts[0, positives[:, 1], positives[:, 2]]) + model.network_.bias
    )


def test_ranks_are_those_of_the_counts_whatever_was_trained():
    graph = random_graph(2)
    one, many = fitted(graph), fitted(graph, steps=20, learning_rate=0.1)
    assert one.network_.bias.item() != many.network_.bias.item()
    assert one.evaluate(graph)["mrr"] == many.evaluate(graph)["mrr"]


def test_an_explained_triple_has_the_score_of_its_answer():
    graph = random_graph(3)
    model = fitted(graph)
    subject, relation, object_ = graph.split_triples("train")[0].tolist()
    nodes = torch.tensor([subject, object_])
    explained = ExplainedTriple(ReceptiveField.of(model.adjacency_, nodes, 1), nodes, subject, relation, object_)
    answer = model.scorer().triple_scores(torch.tensor([[subject, relation, object_]]))
    torch.testing.assert_close(model.network_.score_explained(explained).detach().mean(0, keepdim=True), answer)
    alone = model.network_.score_explained(explained._replace(both=False)).detach()
    torch.testing.assert_close(
        alone, model.scorer().scores(Questions(nodes[:1], torch.tensor([relation])))[0, [object_]]
    )


def test_it_is_saved_and_counts_a_graph_that_has_grown(tmp_path):
    graph = random_graph(4)
    model = fitted(graph)
    model.save(tmp_path / "model")
    loaded = rgcn.load_model(tmp_path / "model")
    assert loaded.evaluate() == model.evaluate()
    new = rgcn.KnowledgeGraph.from_triples([("new", "r1", "n3"), ("newer", "r1", "n3")])
    larger = extended(model, merge_new_triples(graph, new, "more"))
    counts = counted(graph)
    expected = torch.log1p(torch.stack([counts[0, 1, 3] + 2, counts[1, 1, 0]])).mean() + model.network_.bias
    score = named_rows(larger.triples_frame([("n0", "r1", "n3")]))[0].score
    assert score == pytest.approx(expected.item())


@pytest.mark.parametrize("settings", [{"normalization": "relation"}, {"inverse": False}])
def test_unsupported_settings_are_refused(settings):
    with pytest.raises(ConfigError, match="set normalization to none, inverse to true"):
        fitted(random_graph(0), **settings)
