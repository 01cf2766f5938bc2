"""Test saving and loading a classifier: equal answers, and clear errors for damaged files."""

import json

import pytest
import torch

import rgcn
from rgcn.data.catalog import load_world
from rgcn.data.graph_store import load_graph, save_graph
from rgcn.errors import DataError

SETTINGS = [
    {"model": "rgcn"},
    {"model": "rgcn", "decomposition": "basis", "bases": 3, "l2_penalty": 5e-4},
    {"model": "rgcn", "decomposition": "block", "blocks": 4},
    {"model": "e-rgcn", "embedding": 8, "weight_decay": 0.005, "prune": True},
    {"model": "rgcn", "patience": 2, "layers": 3, "hidden": 8},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_loaded_classifier_gives_the_same_answers_bit_for_bit(settings, tmp_path):
    kg = load_world()
    classifier = rgcn.NodeClassifier(seed=1, epochs=3, **settings).fit(kg)
    classifier.save(tmp_path / "model")
    loaded = rgcn.NodeClassifier.load(tmp_path / "model")
    nodes = ["Peru", "Japan", "gold"]
    assert torch.equal(classifier.logits(nodes), loaded.logits(nodes))
    assert loaded.score(kg, split="test") == classifier.score(kg, split="test")
    assert loaded.settings_ == {**classifier.settings_, "device": "auto"}


def test_a_model_of_an_earlier_version_is_refused_with_advice(tmp_path):
    rgcn.NodeClassifier(epochs=1).fit(load_world()).save(tmp_path)
    about = json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps({**about, "version": 1, "rgcn": "0.1.0"}))
    with pytest.raises(DataError, match=r"written by rgcn 0\.1\.0.*Train it again"):
        rgcn.load_model(tmp_path)


def test_a_saved_graph_comes_back_with_its_fingerprint(tmp_path):
    kg = rgcn.KnowledgeGraph.from_triples(
        [("a\nb", "r", '"x\t"@en'), ("c", "r", "a\nb")],
        labels={"c": "ü"},
        edge_weights=[0.5, 2.0],
        features=[[1.0], [2.0], [3.0]],
        node_kinds=[0, 1, 0],
        triple_splits=[0, 2],
    )
    save_graph(kg, tmp_path)
    assert load_graph(tmp_path).fingerprint == kg.fingerprint


@pytest.mark.parametrize(
    "damage", ["weights.safetensors", "graph/arrays.safetensors", "graph/nodes.text", "model.json"]
)
def test_a_damaged_file_is_named(damage, tmp_path):
    rgcn.NodeClassifier(epochs=1).fit(load_world()).save(tmp_path)
    file = tmp_path / damage
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(DataError, match=damage.split("/")[0].replace(".", r"\.")):
        rgcn.NodeClassifier.load(tmp_path)


def test_a_model_of_a_newer_version_is_refused(tmp_path):
    rgcn.NodeClassifier(epochs=1).fit(load_world()).save(tmp_path)
    about = json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps({**about, "version": 99}))
    with pytest.raises(DataError, match="newer"):
        rgcn.NodeClassifier.load(tmp_path)


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        rgcn.NodeClassifier.load(tmp_path)


def test_nothing_saved_is_a_pickle(tmp_path):  # nor read as one: see test_damaged_models
    rgcn.NodeClassifier(epochs=1).fit(load_world()).save(tmp_path)
    suffixes = {path.suffix for path in tmp_path.rglob("*") if path.is_file()}
    assert suffixes == {".json", ".npy", ".safetensors", ".text"}
