"""Test models without node weights on unseen graphs: a renamed graph gets the same answers."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from outside import command
from stranger_models import Softmax, Walks
from test_stranger_models import WALKS, small_world

import rgcn
from rgcn.errors import DataError
from rgcn.explain import explain_link
from rgcn.graph import KnowledgeGraph
from rgcn.predict.opened_model import with_new_triples
from small_models import named_rows

ENCODERS = {
    "walks": {"encoder": Walks, "objective": Softmax, "embedding": 4, "layers": 2},
    "path": {"model": "path", "objective": "softmax", "width": 4, "layers": 2},
}


@pytest.fixture(scope="module", params=ENCODERS.values(), ids=ENCODERS)
def walks(request) -> rgcn.LinkPredictor:
    settings = {"batch_edges": 16, "sampler": "uniform", **request.param}
    return rgcn.LinkPredictor(steps=4, evaluate_every=2, seed=1, **settings).fit(small_world())


def renamed(kg: KnowledgeGraph, seed: int = 0) -> KnowledgeGraph:
    """Return the same graph with other names, and nodes, relations and triples in another order."""
    order = np.random.default_rng(seed).permutation(len(kg))
    named = [kg.named()[number] for number in order]
    triples = [(f"new {s}", r, f"new {o}") for s, r, o in named]
    return KnowledgeGraph.from_triples(triples, triple_splits=kg.triple_splits[order], name="renamed")


def test_the_same_graph_under_other_names_gets_the_same_ranks(walks):
    kg = small_world()
    other = walks.over(renamed(kg))
    assert other.graph_.relations == kg.relations
    ours, theirs = (model.evaluate(split="test", of=20) for model in (walks, other))
    # Sums are taken in another order: two answers that score nearly the same may change places.
    assert theirs["mrr"] == pytest.approx(ours["mrr"], abs=1e-3)
    assert theirs["hits@10_of_20"] == pytest.approx(ours["hits@10_of_20"], abs=1e-3)
    assert set(theirs["by_relation"]) == set(ours["by_relation"])
    for relation, metrics in ours["by_relation"].items():
        assert theirs["by_relation"][relation]["count"] == metrics["count"]
    query = {"subject": f"new {kg.nodes[0]}", "relation": "borders", "k": 4}
    best = named_rows(walks.predict_frame(**{**query, "subject": kg.nodes[0]}))
    assert [t.score for t in named_rows(other.predict_frame(**query))] == pytest.approx(
        [t.score for t in best], abs=1e-5
    )


def test_weights_are_shared_and_probabilities_are_the_other_graphs(walks):
    other = walks.over(renamed(small_world().subgraph(range(60))))
    for name, value in walks.network_.state_dict().items():
        assert value.data_ptr() == other.network_.state_dict()[name].data_ptr()
    assert other.calibration_.examples == len(other.graph_.split_triples("valid"))
    plain = replace(small_world(), triple_splits=None)  # nothing held out, though the training measured on validation
    moved = walks.over(plain)
    assert moved.calibration_.fitted == moved.scorer().can_hide_triples  # on known triples, where these can be hidden


def test_names_of_relations_written_as_rdf_are_read_back(walks, tmp_path):
    kg = small_world()
    kg.to_rdf(tmp_path / "graph.nt")
    other = walks.over(rgcn.read(tmp_path / "graph.nt"))
    assert sorted(other.graph_.triples[:, 1]) == sorted(kg.triples[:, 1])


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        ([("a", "bordrs", "b"), ("a", "eats", "b")], "unknown relation 'bordrs'.*'borders'.*2 relations are unknown"),
        ([("a", "borders", "a")], "at least two nodes"),
        ([], "no training triples"),
    ],
)
def test_unsupported_graphs_are_refused(walks, graph, words):
    with pytest.raises(DataError, match=words):
        walks.over(KnowledgeGraph.from_triples(graph))


def test_an_empty_split_and_an_unknown_node_are_reported(walks):
    other = walks.over(KnowledgeGraph.from_triples([("a", "borders", "b"), ("b", "borders", "c")]))
    with pytest.raises(DataError, match="no test triples"):
        other.evaluate(split="test")
    held_out = KnowledgeGraph.from_triples([("a", "borders", "b"), ("b", "borders", "c")], triple_splits=[0, 1])
    with pytest.raises(DataError, match="no test triples to rank; it has 1 train, 1 valid"):
        walks.over(held_out).evaluate(split="test")
    with pytest.raises(rgcn.errors.UnknownNameError, match="unknown node 'd'"):
        named_rows(other.predict_frame(subject="d", relation="borders"))
    with pytest.raises(DataError, match=r"over\(kg\)"):
        walks.evaluate(other.graph_, split="train")


@pytest.mark.parametrize("settings", [{"model": "c-rgcn"}, {"encoder": "none"}, {"model": "rgcn", "input": "one-hot"}])
def test_models_with_node_weights_state_why_they_are_not_transferable(settings):
    model = rgcn.LinkPredictor(embedding=4, steps=1, edge_dropout=0.1, **settings).fit(small_world())
    assert model.network_.has_node_weights
    with pytest.raises(DataError, match=r"weights for every node.*--with FILE.*path/lp-fb237-v1"):
        model.over(small_world())


def test_a_classifier_states_why_it_is_not_transferable():
    model = rgcn.NodeClassifier(epochs=1).fit(rgcn.load("world"))
    with pytest.raises(DataError, match=r"classifies nodes; .* needs one that predicts links"):
        model.over(small_world())


def test_new_nodes_among_known_ones_are_queried_and_explained(walks, tmp_path):
    walks.save(str(tmp_path / "model"))
    first, second = walks.graph_.nodes[0], walks.graph_.nodes[1]
    (tmp_path / "new.tsv").write_text(f"Atlantis\tborders\t{first}\nMu\tborders\tAtlantis\nMu\tborders\t{second}\n")
    larger = with_new_triples(rgcn.open_model(tmp_path / "model"), tmp_path / "new.tsv")
    assert not larger.model.network_.has_node_weights
    # Scores over the extended graph equal those of the same weights over the same graph read as one.
    whole = walks.over(larger.graph)
    query = {"subject": "Atlantis", "relation": "borders", "k": 5}
    assert [t.score for t in named_rows(larger.model.predict_frame(**query))] == [
        t.score for t in named_rows(whole.predict_frame(**query))
    ]
    why = explain_link(larger, larger.node("Mu"), larger.relation("borders"), larger.node(first), edges=3, draws=2)
    asked_again = named_rows(larger.model.triples_frame([("Mu", "borders", first)]))[0]
    assert why.score == pytest.approx(asked_again.score, rel=1e-4, abs=1e-5)


def test_new_nodes_are_served(walks, tmp_path):
    sys.path.append(str(Path(__file__).parents[1] / "serve"))
    from servers import asking

    from rgcn.serve import create_app, load_models

    walks.save(str(tmp_path / "mine"))
    (tmp_path / "new.tsv").write_text(f"Atlantis\tborders\t{walks.graph_.nodes[0]}\n")
    models = load_models([tmp_path / "mine"], device="cpu", new_nodes={"path": tmp_path / "new.tsv"})
    with asking(create_app(models)) as client:
        query = {"subject": "Atlantis", "relation": "borders", "k": 3}
        assert len(client.get("/api/models/mine/links", params=query).json()["links"]) == 3


# -- on the command line ---------------------------------------------------------------------------------


def written(kg: KnowledgeGraph, folder, splits=("train", "valid", "test")):
    folder.mkdir()
    for split in splits:
        lines = ["\t".join(triple) for triple in kg.named(kg.split_triples(split))]
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unseen")
    data = written(small_world(), folder / "data")
    (folder / "walks.yaml").write_text(WALKS.replace("PATH", str(data)))
    done = command("train", folder / "walks.yaml", "--out", folder / "run", "--quiet")
    assert done.returncode == 0, done.stderr
    return folder / "run"


def test_evaluate_on_another_graph(run, tmp_path):
    other = written(renamed(small_world()), tmp_path / "other")
    own = json.loads(command("evaluate", run, "--json", "--of", "50").stdout)
    done = command("evaluate", run, "--on", other, "--split", "test", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["on"] == "other"
    assert found["split"] == "test"
    for name in ("mrr", "hits@10", "hits@10_of_50"):
        assert found["metrics"][name] == pytest.approx(own["metrics"][name], abs=1e-3)
    assert "hits@10_of_50" in found["metrics"]["by_direction"]["object"]
    table = command("evaluate", run, "--on", other, "--of", "7").stdout
    assert "evaluated on other, test split" in table
    assert "hits@10 of 7" in table
    assert "_of_" not in command("evaluate", run, "--json").stdout


def test_evaluate_on_unsupported_data_is_refused(run, tmp_path):
    def refused(*arguments) -> str:
        done = command("evaluate", run, *arguments)
        assert done.returncode == 1, done.stdout
        assert done.stderr.startswith("rgcn: "), done.stderr
        return done.stderr

    assert "no data set of this name. Did you mean 'world'" in refused("--on", "wrld")
    assert "nowhere" in refused("--on", tmp_path / "nowhere.tsv")
    (tmp_path / "empty.tsv").write_text("")
    assert "no triples in" in refused("--on", tmp_path / "empty.tsv")
    (tmp_path / "few.tsv").write_text("a\tborders\tb\n")
    assert "no test triples" in refused("--on", tmp_path / "few.tsv")
    (tmp_path / "strange.tsv").write_text("a\teats\tb\n")
    assert "unknown relation 'eats'" in refused("--on", tmp_path / "strange.tsv")


def test_a_run_that_knows_nodes_and_one_of_classes(run, tmp_path):
    (tmp_path / "links.yaml").write_text(
        f"{{task: link-prediction, data: {{path: {run.parent / 'data'}}}, model: {{name: distmult, embedding: 4}}, "
        "training: {epochs: 1}}"
    )
    assert command("train", tmp_path / "links.yaml", "--out", tmp_path / "links", "--quiet").returncode == 0
    done = command("evaluate", tmp_path / "links", "--on", "nations")  # the error comes before the graph is read
    assert "--with FILE" in done.stderr
    assert command("train", "rgcn/nc-world", "--set", "training.epochs=1", "--out", tmp_path / "run").returncode == 0
    assert "needs one that predicts links" in command("evaluate", tmp_path / "run", "--on", "world").stderr
    assert "--of is about ranks" in command("evaluate", tmp_path / "run", "--of", "5").stderr
