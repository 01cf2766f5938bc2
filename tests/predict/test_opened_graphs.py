"""Test graphs opened with the pretrained model: ambiguous names, errors, and no files written."""

from __future__ import annotations

import pytest
import torch

import rgcn
from rgcn.data.registry import path_or_dataset
from rgcn.errors import ConfigError, DataError, RgcnError
from rgcn.links.relation_constraints import ALLOW_ALL
from rgcn.links.top_k import answer_links
from rgcn.nn.scorer import Questions
from rgcn.predict import open_model
from rgcn.predict.answer_tables import nodes_to_classify, predict_classes
from small_models import named_rows

TRIPLES = "".join(f"p{i},works_for,c{i % 3}\np{i},lives_in,t{i % 3}\n" for i in range(12)) + "c0,based_in,t0\n"
LABELS = "node,label\n" + "".join(f"p{i},{'even' if i % 2 == 0 else 'odd'}\n" for i in range(6))


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Return the working folder, with files of a user."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.csv").write_text(TRIPLES)
    (tmp_path / "people.csv").write_text(LABELS)
    return tmp_path


def test_a_graph_file_is_queried_and_nothing_is_written_next_to_it(here):
    before = sorted(here.iterdir())
    opened = open_model("mine.csv", device="cpu")
    assert (opened.name, opened.task.name) == ("mine.csv", "link-prediction")
    assert opened.words == "the pretrained model, over mine.csv (25 triples); nothing was trained"
    assert opened.source == {"graph": "mine.csv", "model": "the pretrained model"}
    questions = Questions(torch.tensor([opened.node("p0")]), torch.tensor([opened.relation("works_for")]))
    assert answer_links(opened, questions, 3).node.shape == (1, 3)
    assert opened.calibration.words
    assert sorted(here.iterdir()) == before


def test_nodes_get_the_class_of_similar_labeled_nodes(here):
    opened = open_model("mine.csv", device="cpu", labels="people.csv", classes=True)
    assert "(25 triples, 6 labels)" in opened.words
    nodes = nodes_to_classify(opened)
    assert [opened.graph.nodes[node] for node in nodes] == [f"p{i}" for i in range(6, 12)]
    assert len(next(predict_classes(opened, nodes))) == 6


def test_labels_from_a_relation_and_files_with_splits(here):
    opened = open_model("mine.csv", device="cpu", labels_from="lives_in", classes=True)
    assert opened.data.labels_from == "lives_in"
    assert opened.graph.labels.counts() == {"train": 12}  # without training, every label is used
    graph = rgcn.read("mine.csv", labels_from="lives_in")
    assert open_model(graph, device="cpu", classes=True).graph.labels.counts() == {"train": 12}
    (here / "mine").mkdir()
    for split, rows in (("train", TRIPLES), ("test", "p1,works_for,c2\n")):
        (here / "mine" / f"{split}.csv").write_text(rows)
    assert open_model("mine", device="cpu").model.evaluate(split="test")["count"] == 2


def test_a_graph_in_memory_is_queried():
    graph = rgcn.KnowledgeGraph.from_triples([("a", "knows", "b"), ("b", "knows", "c")])
    assert open_model(graph, device="cpu").words.startswith("the pretrained model, over graph (2 triples)")


def test_a_trained_model_comes_before_the_graph_in_its_folder(here):
    graph = rgcn.read("mine.csv")
    rgcn.LinkPredictor(encoder="none", embedding=2, steps=1, device="cpu").fit(graph).save("kept")
    (here / "kept" / "train.csv").write_text(TRIPLES)
    assert open_model("kept").zero_shot_graph is None
    with pytest.raises(ConfigError, match="kept is a trained model"):
        open_model("kept", labels="people.csv")


def test_an_ambiguous_file_or_data_set_name_is_refused_with_advice(here):
    assert path_or_dataset("World").name == "world"
    (here / "world").mkdir()
    (here / "world" / "train.csv").write_text(TRIPLES)
    with pytest.raises(ConfigError, match=r"folder that is here or the data set.*\./world.*dataset:world"):
        open_model("world")
    assert len(open_model("./world", device="cpu").graph) == 25
    assert path_or_dataset(here / "world") == here / "world"
    assert path_or_dataset("dataset:world").name == "world"


@pytest.mark.parametrize(
    ("source", "reading", "words"),
    [
        ("mine.cvs", {}, r"no such file or folder.*Did you mean 'mine.csv'"),
        ("wrld", {}, r"no data set of this name. Did you mean 'world'"),
        ("empty.csv", {}, "no triples in empty.csv"),
        ("nothing", {}, r"nothing is not a run .* no readable files in nothing"),
        ("mine.csv", {"lables": "people.csv"}, "lables.*did you mean 'labels'"),
        ("mine.csv", {"classes": True}, "mine.csv has no labels"),
        ("mine.csv", {"classes": True, "labels": "one.csv"}, "mine.csv: all training labels are of one class, 'x'"),
        ("world", {"labels": "people.csv"}, "world is a data set"),
        ("one_node.csv", {}, "one_node.csv: link prediction needs at least two nodes"),
    ],
)
def test_bad_input_raises_a_package_error(here, source, reading, words):
    (here / "empty.csv").write_text("")
    (here / "nothing").mkdir()
    (here / "one.csv").write_text("node,label\np1,x\np2,x\n")
    (here / "one_node.csv").write_text("a,knows,a\n")
    with pytest.raises(RgcnError, match=f"(?s){words}"):
        open_model(source, device="cpu", **reading)


def test_small_graphs_are_answered(here):
    (here / "two.csv").write_text("a,knows,b\n")
    opened = open_model("two.csv", device="cpu")
    assert len(named_rows(opened.model.predict_frame(subject="b", relation="knows", answer_filter=ALLOW_ALL))) == 2
    assert [t.object for t in named_rows(opened.model.predict_frame(subject="a", relation="knows"))] == ["b"]
    (here / "classes.csv").write_text("node,label\np1,c1\np2,c2\np3,other\n")  # c1 and c2 are nodes
    opened = open_model("mine.csv", device="cpu", labels="classes.csv", classes=True)
    assert opened.model.predict(["p4"])[0] in ("c1", "c2", "other")


def test_unknown_names_have_close_suggestions(here):
    opened = open_model("mine.csv", device="cpu")
    with pytest.raises(RgcnError, match=r"unknown relation 'works_fro'. Did you mean 'works_for'"):
        opened.relation("works_fro")
    with pytest.raises(DataError, match=r"mine.csv: this model predicts links"):
        opened.require_kind("classes")
