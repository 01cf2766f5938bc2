"""Compare the universal network with its definition, and test that no weight belongs to a graph."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from test_path_network import naive
from test_relation_network import drawn, exact_meetings, naive_vectors

import rgcn
from rgcn.adjacency import RelationalAdjacency
from rgcn.errors import ConfigError, DataError
from rgcn.graph import KnowledgeGraph, Vocabulary
from rgcn.nn import universal_network
from rgcn.nn.scorer import Questions
from rgcn.nn.universal_network import RelationGraph
from small_models import named_rows

SMALL = {"layers": 2, "width": 6, "relation_layers": 2, "start": "random", "device": "cpu"}
VARIANTS = [{}, {"unreached": "asleep"}, {"messages": "add", "deviation": True, "normalization": "none"}]


def graph_of(triples, nodes: int, relations: int, prefix="", splits=None) -> KnowledgeGraph:
    names = [f"{prefix}n{i}" for i in range(nodes)], [f"{prefix}r{i}" for i in range(relations)]
    return KnowledgeGraph(
        np.array(triples, dtype=np.int64),
        Vocabulary(names[0], kind="node"),
        Vocabulary(names[1], kind="relation"),
        triple_splits=splits,
    )


def some_graph(seed=0, nodes=10, relations=4, triples=18, **more) -> KnowledgeGraph:
    return graph_of(sorted(set(drawn(seed, nodes, relations, triples))), nodes, relations, **more)


def model_over(kg, seed=0, kind=torch.float64, **settings) -> rgcn.LinkPredictor:
    """Return an untrained float64 network with random biases."""
    model = rgcn.LinkPredictor("universal", seed=seed, **{**SMALL, **settings}).prepare(kg)
    network, generator = model.network_.to(kind).eval(), torch.Generator().manual_seed(seed)
    for parameter in network.parameters():
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator, dtype=kind)
    model._adjacency = model.adjacency_.to(kind)
    return model


def all_scores(model) -> torch.Tensor:
    """Return the scores [2R, N, N] of every question of a small graph, first those for objects."""
    nodes, relations = model.graph_.num_nodes, model.graph_.num_relations
    pairs = torch.cartesian_prod(torch.arange(2 * relations), torch.arange(nodes))
    questions = Questions(pairs[:, 1], pairs[:, 0] % relations, pairs[:, 0] < relations)
    return model.scorer().scores(questions).view(2 * relations, nodes, nodes)


def close(one, other, scale=1.0):
    """Overlaps of relations are stored in float32."""
    torch.testing.assert_close(one, other, rtol=1e-4 * scale, atol=1e-5 * scale)


# -- the definition --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", VARIANTS)
def test_scores_and_gradients_are_those_of_the_equations(settings):
    triples, nodes, relations = drawn(0, 8, 3, 14), 8, 3
    model = model_over(graph_of(triples, nodes, relations), **settings)
    network, adjacency = model.network_, model.adjacency_
    network.relation_graph = exact_meetings(triples, nodes, relations)

    def scored(node, query):
        z = [*naive_vectors(network.relations, triples, nodes, relations, query), network.stays]

        def table_of(layer):
            given = layer.relations
            return torch.stack(
                [given.outer @ torch.relu(given.inner @ each + given.inner_bias) + given.outer_bias for each in z]
            )

        return naive(network, adjacency, node, query, z[query], table_of)

    questions = Questions(torch.tensor([0, 2, 5]), torch.tensor([0, 1, 0]), torch.tensor([True, False, True]))
    wanted = torch.stack([scored(v, r) for v, r in ((0, 0), (2, 1 + relations), (5, 0))])
    slope = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(1), dtype=wanted.dtype)
    parameters = list(network.parameters())
    theirs = torch.autograd.grad(wanted, parameters, slope, allow_unused=True)
    for training in (False, True):  # relations that are asked for twice are computed once, or as often as asked for
        found = network.train(training).score_nodes(adjacency, questions)
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)
        ours = torch.autograd.grad(found, parameters, slope, allow_unused=True)
        for one, other in zip(ours, theirs, strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-8)


def test_the_query_relation_has_its_own_vector(monkeypatch):
    kg = some_graph(1, relations=5)
    network = model_over(kg).network_
    wanted = torch.cat([network.relation_states(torch.tensor([r])).query for r in range(5)])
    for at_once in (1, 2, 32):
        monkeypatch.setattr("rgcn.nn.universal_network.MAX_RELATIONS_AT_ONCE", at_once)
        close(network.relation_vectors(), wanted)
    assert not network.relation_vectors().requires_grad


# -- a batch ---------------------------------------------------------------------------------------------------------


def test_a_batch_of_mixed_relations_is_its_questions_one_at_a_time():
    model = model_over(some_graph(2))
    relation, sides = torch.tensor([3, 0, 3, 1, 0]), torch.tensor([True, False, False, True, False])
    questions = Questions(torch.tensor([1, 1, 4, 9, 2]), relation, sides)
    for network in (model.network_.train(), model.network_.eval()):
        with torch.no_grad():
            together = network.score_nodes(model.adjacency_, questions)
            for place in range(questions.size):
                alone = network.score_nodes(model.adjacency_, questions.take(slice(place, place + 1)))
                close(together[place : place + 1], alone)
    together = together.log_softmax(1)  # a scorer gives shares
    close(model.scorer().scores(questions), together)
    some = torch.tensor([0, 5, 7])
    close(model.scorer().scores(questions, some), together[:, some])


@pytest.mark.parametrize("hides", [False, True])
def test_one_table_for_all_questions_is_as_one_for_each(hides):
    """If all questions have the same relation there is one table of relation vectors, else one per question."""
    model = model_over(some_graph(3))
    network, relation = model.network_, 2
    triples = torch.tensor(np.array([t for t in model.graph_.triples.tolist() if t[1] == relation]))
    scorer = model.scorer()
    assert len(triples) > 1
    relation_states = network.relation_states(triples[:, 1])
    assert network.layers[0].relations(relation_states).shape == (2 * 4 + 1, network.dim)
    other = torch.tensor([[0, 0, 1]])
    mixed = torch.cat([triples, other])
    wide = network.relation_states(mixed[:, 1])
    assert network.layers[0].relations(wide).shape == (2 * 4 + 1, len(mixed) * network.dim)
    if hides:
        close(scorer.triple_scores(triples), scorer.triple_scores(mixed)[:-1])
    else:
        questions = [Questions(each[:, 0], each[:, 1]) for each in (triples, mixed)]
        close(scorer.scores(questions[0]), scorer.scores(questions[1])[:-1])


@pytest.mark.parametrize("settings", [{}, {"normalization": "relation"}])
def test_a_known_triple_is_hidden_from_messages_and_not_from_how_relations_meet(settings):
    """Scores of known triples equal those over a graph without them, except for the relation overlaps. These come from
    the whole graph, as in training: they are computed once, and one triple of many hardly changes a share. If the
    hidden triple is the only one of its relation, the overlaps reveal that the relation exists.
    """
    kg = some_graph(4)
    model = model_over(kg, **settings)
    network, found = model.network_, model.scorer().triple_scores(torch.tensor(kg.triples))
    questions = Questions(torch.tensor(kg.triples[:, 0]), torch.tensor(kg.triples[:, 1]))
    hiding = model.scorer().scores_hiding_answers(questions, torch.tensor(kg.triples[:, 2]))
    assert hiding.dtype == torch.float64
    differs = 0
    for number, (s, r, o) in enumerate(kg.triples.tolist()):
        without = np.delete(kg.triples, number, axis=0)
        rule = {"normalization": model.model.normalization}
        rest = RelationalAdjacency.from_triples(torch.tensor(without), kg.num_nodes, kg.num_relations, **rule)
        with torch.no_grad():
            questions = Questions(torch.tensor([s, o]), torch.tensor([r, r]), torch.tensor([True, False]))
            wanted = network.score_nodes(rest.to(torch.float64), questions).log_softmax(1)
        close(found[number], (wanted[0, o] + wanted[1, s]) / 2)
        close(hiding[number], wanted[0])
        anew = model.over(graph_of(without, kg.num_nodes, kg.num_relations))
        differs += float(named_rows(anew.triples_frame([(s, r, o)]))[0].score) != pytest.approx(
            float(found[number]), rel=1e-3
        )
    assert differs  # a graph that never had the triple has other relations


# -- nothing belongs to a graph --------------------------------------------------------------------------------------


def test_no_weight_has_a_size_that_depends_on_a_graph():
    shapes = [
        {name: tuple(tensor.shape) for name, tensor in model_over(kg).network_.state_dict().items()}
        for kg in (some_graph(0), some_graph(1, nodes=23, relations=9, triples=60), graph_of([(0, 0, 1)], 2, 1))
    ]
    assert shapes[0] == shapes[1] == shapes[2]
    network = model_over(some_graph(0)).network_
    assert not network.has_node_weights
    assert not network.has_relation_weights


def test_weights_applied_to_another_graph_equal_those_of_a_network_built_on_it():
    here, there = some_graph(0), some_graph(7, nodes=15, relations=6, triples=30, prefix="other ")
    moved = model_over(here, kind=torch.float32).over(there)
    direct = model_over(there, kind=torch.float32)
    assert moved.graph_ is there
    torch.testing.assert_close(all_scores(moved), all_scores(direct), rtol=0, atol=0)
    assert moved.fingerprint_ == direct.fingerprint_
    back = moved.over(here)
    torch.testing.assert_close(all_scores(back), all_scores(model_over(here, kind=torch.float32)), rtol=0, atol=0)


@pytest.mark.parametrize("written_out", [1024, 0])
def test_renaming_and_renumbering_only_permutes_answers(written_out, monkeypatch):
    monkeypatch.setattr(universal_network, "MAX_STORED_RELATIONS", written_out)
    kg, rng = some_graph(5), np.random.default_rng(0)
    node, relation = rng.permutation(kg.num_nodes), rng.permutation(kg.num_relations)
    renamed = np.stack([node[kg.triples[:, 0]], relation[kg.triples[:, 1]], node[kg.triples[:, 2]]], axis=1)
    other = graph_of(rng.permutation(renamed), kg.num_nodes, kg.num_relations, prefix="x")
    ours, theirs = all_scores(model_over(kg)), all_scores(model_over(other))
    both = np.concatenate([relation, relation + kg.num_relations])
    close(theirs[both][:, node][:, :, node], ours)


def test_reversing_a_relation_swaps_the_question_direction():
    kg = some_graph(6)
    turned = np.where(kg.triples[:, 1:2] == 1, kg.triples[:, ::-1], kg.triples)
    ours, theirs = all_scores(model_over(kg)), all_scores(model_over(graph_of(turned, 10, 4)))
    swapped = [0, 1 + 4, 2, 3, 4, 1, 6, 7]
    close(theirs[swapped], ours)


# -- what graphs may be like -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kg",
    [
        graph_of([(0, 0, 1)], 2, 1),
        graph_of([(0, 0, 0), (1, 0, 1)], 2, 1),
        graph_of([(0, 0, 1), (0, 0, 1), (1, 2, 0)], 4, 3),  # a triple twice, a relation and nodes without any
        graph_of([(0, 0, 1), (1, 1, 2), (0, 2, 2)], 3, 3, splits=np.array([0, 0, 1], np.int8)),  # only to be validated
    ],
    ids=["two nodes", "to itself", "empty relation", "unseen relation"],
)
def test_small_and_odd_graphs_are_answered_and_learned_from(kg):
    model = model_over(kg, kind=torch.float32)
    assert bool(torch.isfinite(all_scores(model)).all())
    assert bool(torch.isfinite(model.scorer().triple_scores(torch.tensor(kg.triples))).all())
    fitted = rgcn.LinkPredictor("universal", **SMALL, steps=2).fit(kg)
    assert all(bool(torch.isfinite(parameter).all()) for parameter in fitted.network_.parameters())


@pytest.mark.parametrize("kind", ["a triple each", "all at one node"])
def test_many_relations_are_answered_in_memory_that_grows_with_them(kind, monkeypatch):
    count = 20_000
    number = np.arange(count)
    subject = number if kind == "a triple each" else np.zeros_like(number)
    triples = torch.tensor(np.stack([subject, number, number + 1], axis=1))
    adjacency = RelationalAdjacency.from_triples(triples, count + 1, count, normalization="node")
    model = model_over(some_graph(0), kind=torch.float32, layers=1, width=4, relation_layers=1)
    network = model.network_
    network.relation_graph, network.num_relations = RelationGraph.of(adjacency.structure), count
    # Shared nodes and pairs of relations have vectors too, in both directions.
    assert network.relation_graph.num_states <= 2 * count + (count + 1) + 2 * count
    assert network.num_states(count + 1) == count + 1 + network.relation_graph.num_states
    scorer = network.make_scorer(adjacency)
    found = scorer.scores(Questions(torch.tensor([0, 5]), torch.tensor([0, 7])))
    assert found.shape == (2, count + 1)
    assert bool(torch.isfinite(found).all())
    monkeypatch.setattr("rgcn.nn.path_network.available_bytes", lambda device: 1 << 20)
    with pytest.raises(DataError, match="needs about"):
        network.make_scorer(adjacency)


def test_invalid_settings_are_refused():
    kg = some_graph(0)
    for settings in ({"inverse": False}, {"self_loops": False}):
        with pytest.raises(ConfigError, match="set inverse and self_loops to true"):
            rgcn.LinkPredictor("universal", **SMALL, **settings).prepare(kg)
    with pytest.raises(ConfigError, match="set it to 0"):
        rgcn.LinkPredictor("universal", **SMALL, surroundings=1).prepare(kg)
    with pytest.raises(ConfigError, match="encoder to universal"):
        rgcn.LinkPredictor("path", start="shipped")


def test_saved_models_give_the_same_answers(tmp_path):
    kg = some_graph(0)
    fitted = rgcn.LinkPredictor("universal", **SMALL, steps=3, batch_edges=4, seed=1).fit(kg)
    fitted.save(tmp_path)
    loaded = rgcn.load_model(tmp_path, device="cpu")
    torch.testing.assert_close(all_scores(loaded), all_scores(fitted), rtol=0, atol=0)
    assert loaded.fingerprint_ == fitted.fingerprint_


def test_same_seed_same_bits_and_learning():
    settings = {**SMALL, "steps": 24, "batch_edges": 8, "learning_rate": 0.02, "seed": 4}
    kg = some_graph(8, nodes=20, relations=3, triples=60)
    one, two = (rgcn.LinkPredictor("universal", **settings).fit(kg) for _ in range(2))
    for first, second in zip(one.network_.parameters(), two.network_.parameters(), strict=True):
        assert torch.equal(first, second)
    losses = [epoch.loss for epoch in one.history_]
    assert np.mean(losses[-8:]) < np.mean(losses[:8])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_steps_are_recorded_on_a_gpu():
    settings = {**SMALL, "steps": 8, "batch_edges": 8, "device": "cuda"}
    kg = some_graph(8, nodes=20, triples=60)

    def trainer():
        return rgcn.LinkPredictor("universal", **settings).prepare(kg).trainer()

    recorded, plain = trainer(), trainer()
    plain.recording = None
    ours = [(float(loss), recorded.recording.graph is not None) for loss in recorded.losses()]
    theirs = [float(loss) for loss in plain.losses()]
    assert ours[-1][1]
    assert [loss for loss, _ in ours] == pytest.approx(theirs, rel=1e-2)
