"""Test the pretrained model: its size, its card, and its answers."""

from __future__ import annotations

import json
import math

import pytest
import torch
from safetensors.torch import load_file

import rgcn
from rgcn.errors import ConfigError, DataError
from rgcn.explain import available_methods, explain_link
from rgcn.graph import KnowledgeGraph
from rgcn.graph.titles import Titles
from rgcn.links.completion import complete
from rgcn.models.growth import extended
from rgcn.models.link_classifier import LinkClassifier
from rgcn.models.link_predictor import LinkPredictor
from rgcn.nn import universal_network as pretrained_weights
from rgcn.predict import OpenModel
from rgcn.predict.opened_model import with_new_triples
from rgcn.runs import load_configuration
from rgcn.visualization.vectors import relation_table
from small_models import named_rows

FAMILIES, TOWNS = 8, 3


def families(labels=False) -> KnowledgeGraph:
    """Return a graph in which children live where their parents live; some homes are unknown."""
    rows = []
    for i in range(FAMILIES):
        rows += [(f"child{i}", "child of", f"parent{i}"), (f"parent{i}", "lives in", f"town{i % TOWNS}")]
        if i > 1:
            rows.append((f"child{i}", "lives in", f"town{i % TOWNS}"))
    classes = {f"child{i}": "young" for i in range(4)} | {f"parent{i}": "old" for i in range(4)}
    return KnowledgeGraph.from_triples(rows, **({"labels": classes} if labels else {}))


@pytest.fixture(scope="module")
def shipped():
    return LinkPredictor.pretrained(families(), device="cpu")


@pytest.fixture(scope="module")
def opened(shipped, tmp_path_factory):
    return OpenModel(tmp_path_factory.mktemp("families"), "families", shipped, Titles(shipped.graph_))


# -- the file and its card -------------------------------------------------------------------------------------------


def test_the_weights_are_few_and_their_card_says_what_they_need():
    assert pretrained_weights.WEIGHTS.stat().st_size <= 2_000_000
    card = pretrained_weights.pretrained_card()
    model = rgcn.LinkPredictor("universal", **{**card["settings"], "start": "random"}).prepare(families())
    wanted = {name: (tensor.shape, tensor.dtype) for name, tensor in model.network_.state_dict().items()}
    weights = load_file(pretrained_weights.WEIGHTS)
    assert wanted == {name: (tensor.shape, tensor.dtype) for name, tensor in weights.items()}
    assert all(bool(torch.isfinite(tensor).all()) for tensor in weights.values())
    # The name of the model is enough to load them.
    named = rgcn.LinkPredictor("universal").model
    assert named.start == "shipped"
    for part in card["parts"]:
        made_by = load_configuration(part["command"].split()[1]).model
        for name, value in card["settings"].items():
            assert getattr(named, name) == getattr(made_by, name) == value, name


def test_the_card_lists_the_origin_of_the_weights():
    card = pretrained_weights.pretrained_card()
    required = {"learned_from", "parts", "steps", "seconds", "license", "limits", "results"}
    assert all({"command", "date", "hardware", "steps", "seconds", "seed"} <= set(part) for part in card["parts"])
    assert required <= card.keys()
    assert card["steps"] > 0
    assert card["limits"]
    graphs = {name: about for name, about in card["learned_from"].items() if name != "drawn by rules"}
    assert all(about["license"] and about["title"] and about["share"] > 0 for about in graphs.values())
    kept_back = {"world", "aifb", "mutag", "umls", "kinship", "nations", "fb237-v1-ind", "wn18rr-v1-ind"}
    assert not kept_back & graphs.keys()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"width": 32}, "need width 64: set these, or set model.start to random"),
        ({"layers": 3, "relation_layers": 1}, "need layers 6, relation_layers 4: set these"),
        ({"messages": "add"}, "need messages multiply"),  # the shapes would fit, but the weights would be meaningless
        ({"unreached": "asleep"}, "need unreached awake"),
        ({"normalization": "none"}, "need normalization node"),
    ],
)
def test_another_network_than_they_were_made_for_is_refused(settings, words):
    with pytest.raises(ConfigError, match=words):
        rgcn.LinkPredictor("universal", **settings).prepare(families())
    rgcn.LinkPredictor("universal", **settings, start="random").prepare(families())


def test_another_encoder_is_refused():
    for encoder in ("path", "rgcn", "none"):
        with pytest.raises(ConfigError, match="are those of universal: set start to random, or encoder to universal"):
            rgcn.LinkPredictor(encoder=encoder, start="shipped")


def test_fine_tuning_begins_with_them_and_leaves_them_as_they_are():
    before = load_file(pretrained_weights.WEIGHTS)
    model = rgcn.LinkPredictor("universal", steps=1, batch_edges=4, device="cpu")
    begun = {name: tensor.clone() for name, tensor in model.prepare(families()).network_.state_dict().items()}
    after = model.fit(families()).network_.state_dict()
    assert all(torch.equal(begun[name], tensor) for name, tensor in before.items())
    assert any(not torch.equal(after[name], tensor) for name, tensor in before.items())
    assert all(torch.equal(pretrained_weights.pretrained_weights()[name], tensor) for name, tensor in before.items())


def test_a_saved_model_does_not_depend_on_the_pretrained_weights_of_the_package(shipped, tmp_path, monkeypatch):
    shipped.save(tmp_path)
    card = {**pretrained_weights.pretrained_card(), "settings": {"width": 8}}
    monkeypatch.setattr(pretrained_weights, "pretrained_card", lambda: card)
    loaded = rgcn.load_model(tmp_path, device="cpu")
    assert loaded.fingerprint_ == shipped.fingerprint_
    loaded.over(families())
    with pytest.raises(ConfigError, match="need width 8"):
        rgcn.LinkPredictor("universal").prepare(families())


# -- asked as any other ----------------------------------------------------------------------------------------------


def test_the_pretrained_model_predicts_where_children_live(shipped):
    assert shipped.history_ == []
    for child in (0, 1):
        found = named_rows(shipped.predict_frame(subject=f"child{child}", relation="lives in", k=3))
        assert found[0].object == f"town{child}"
        assert all(math.isfinite(triple.score) for triple in found)
    found = named_rows(shipped.predict_frame(object="town2", relation="lives in", k=2 * FAMILIES, known="drop"))
    assert not {triple.subject for triple in found} & {"child2", "parent5"}


@pytest.mark.parametrize("method", ["paths", "integrated-gradients", "edge-mask"])
def test_answers_are_explained(opened, method):
    assert available_methods(opened)[0] == "paths"
    for child in (0, 2):  # for the second question the answer is known
        triple = f"child{child}", "lives in", f"town{child}"
        ids = opened.node(triple[0]), opened.relation(triple[1]), opened.node(triple[2])
        why = explain_link(opened, *ids, method=method, edges=4, draws=2)
        assert (why.method, why.hidden, why.walked) == (method, child == 2, True)
        assert why.score == pytest.approx(named_rows(opened.model.triples_frame([triple]))[0].score, rel=1e-4, abs=1e-4)
        assert why.edges
        assert all(not edge.itself for edge in why.edges)
        assert all(math.isfinite(edge.importance) for edge in (*why.edges, *why.against))
        if why.paths:
            assert why.paths[0].text.startswith(triple[0])


def test_the_path_through_the_parent_explains_where_a_child_lives(opened):
    ids = opened.node("child1"), opened.relation("lives in"), opened.node("town1")
    texts = [path.text for path in explain_link(opened, *ids, draws=1).paths]
    assert "child1 —child of→ parent1 —lives in→ town1" in texts


def test_missing_triples_are_completed(shipped):
    found = complete(shipped, relations=[shipped.graph_.relations["lives in"]], k=1, min_probability=None)
    names = shipped.graph_.nodes
    triples = {(names[s], names[o]) for s, _, o in found.triples.tolist()}
    assert {("child0", "town0"), ("child1", "town1")} <= triples
    assert not triples & {(s, o) for s, _, o in shipped.graph_.named()}


def test_least_likely_triples_are_found(shipped):
    worst = named_rows(shipped.least_likely(k=5))
    every = [triple.score for triple in named_rows(shipped.triples_frame(shipped.graph_.named()))]
    assert [triple.score for triple in worst] == pytest.approx(sorted(every)[:5], rel=1e-4)
    assert all(triple.known for triple in worst)


def test_a_model_extended_to_a_larger_graph_uses_all_of_it(shipped, opened, tmp_path):
    """`--with FILE` is the same as the model over the larger graph; there, too, the overlaps of relations are
    counted."""
    (tmp_path / "new.tsv").write_text("child9\tchild of\tparent9\nparent9\tlives in\ttown0\n")
    larger = with_new_triples(opened, tmp_path / "new.tsv")
    whole = LinkPredictor.pretrained(larger.graph, device="cpu")
    query = {"subject": "child9", "relation": "lives in", "k": 4}
    wanted = answers(named_rows(whole.predict_frame(**query)))
    assert wanted[0][0] == "town0"
    assert answers(named_rows(larger.model.predict_frame(**query))) == wanted
    assert answers(named_rows(extended(shipped, larger.graph).predict_frame(**query))) == wanted
    other = KnowledgeGraph.from_triples([("a", "likes", "b"), ("b", "likes", "c")])  # any relations
    found = [
        named_rows(model.predict_frame(subject="a", relation="likes"))
        for model in (shipped.over(other), LinkPredictor.pretrained(other))
    ]
    assert answers(found[0]) == answers(found[1])


def answers(found):
    return [(triple.object, triple.score) for triple in found]


def test_relations_have_vectors_and_nodes_have_none(shipped, opened):
    vectors, inverses, _ = shipped.hooks_.relation_embeddings()
    assert vectors.shape == (2, shipped.model.width)
    assert inverses is None
    assert not torch.equal(vectors[0], vectors[1])
    assert len(relation_table(opened)) == 2
    with pytest.raises(DataError, match="no node vectors"):
        shipped.embeddings([0])


def test_classes_are_predicted_without_training():
    kg = families(labels=True)
    model = LinkClassifier.pretrained(kg, device="cpu")
    assert model.history_ == []
    names = [f"{kind}{i}" for kind in ("child", "parent") for i in range(4, FAMILIES)]
    assert set(model.predict(names)) <= {"young", "old"}
    assert bool(torch.isfinite(model.logits(["child0", "parent0", "child7"])).all())  # those with a label, too


@pytest.mark.parametrize(
    "rows", [[("a", "r", "b")], [("a", "r", "b"), ("b", "r", "c"), ("a", "r", "a")]], ids=["two nodes", "one relation"]
)
def test_the_smallest_graphs_have_answers(rows):
    model = LinkPredictor.pretrained(KnowledgeGraph.from_triples(rows), device="cpu")
    assert all(math.isfinite(found.score) for found in named_rows(model.predict_frame(subject="a", relation="r", k=5)))


@pytest.mark.parametrize(("rows", "words"), [([], "no training triples"), ([("a", "r", "a")], "at least two nodes")])
def test_graphs_without_answers_are_refused(rows, words):
    with pytest.raises(DataError, match=words):
        LinkPredictor.pretrained(KnowledgeGraph.from_triples(rows), device="cpu")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_about_the_same_answers(shipped):
    there = LinkPredictor.pretrained(families(), device="cuda")
    all_triples = torch.tensor(families().triples)
    ours, theirs = shipped.scorer().triple_scores(all_triples), there.scorer().triple_scores(all_triples).cpu()
    torch.testing.assert_close(ours, theirs, rtol=0.1, atol=0.5)


def test_a_saved_classifier_answers_as_before(tmp_path):
    model = LinkClassifier.pretrained(families(labels=True), device="cpu")
    model.save(str(tmp_path))
    again = rgcn.load_model(tmp_path, device="cpu")
    assert again.class_normalizer_ is not None
    assert again.is_transferred
    torch.testing.assert_close(again.logits(["child6", "parent6"]), model.logits(["child6", "parent6"]), rtol=0, atol=0)
    about = json.loads((tmp_path / "model.json").read_text())
    for level in ([1.0, [0.0]], [1.0], "x", [1.0, {"a": 1}]):
        (tmp_path / "model.json").write_text(json.dumps({**about, "beside": {"level": level}}))
        with pytest.raises(DataError, match="damaged"):
            rgcn.load_model(tmp_path, device="cpu")
