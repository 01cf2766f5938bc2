"""Test models opened from runs and folders: their descriptions, wrong tasks, and changed data."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import rgcn
from rgcn.errors import DataError, UnknownNameError
from rgcn.predict import open_model
from rgcn.runs import load_configuration, train
from rgcn.runs.assembly import load_data

TRIPLES = "".join(f"n{i}\tnext\tn{(i + 1) % 9}\nn{i}\tkind\t{'even' if i % 2 == 0 else 'odd'}\n" for i in range(9))
LABELS = "node\tclass\n" + "".join(f"n{i}\t{'A' if i % 2 == 0 else 'B'}\n" for i in range(6))


@pytest.fixture
def own_run(tmp_path: Path) -> Path:
    """Return a run on files of a user."""
    (tmp_path / "graph.tsv").write_text(TRIPLES)
    (tmp_path / "labels.tsv").write_text(LABELS)
    configuration = tmp_path / "mine.yaml"
    configuration.write_text(
        f"task: node-classification\ndata: {{path: {tmp_path / 'graph.tsv'}, labels: {tmp_path / 'labels.tsv'}}}\n"
        "training: {epochs: 2}\n"
    )
    config = load_configuration(str(configuration))
    train(config, load_data(config.data), folder=tmp_path / "run")
    return tmp_path / "run"


def test_a_run_is_opened_with_what_it_is(own_run):
    opened = open_model(own_run)
    assert (opened.name, opened.task.name) == ("run", "node-classification")
    assert opened.describe(opened.node("N0")) == {"name": "n0", "title": "n0", "description": None, "kind": "name"}
    assert opened.result is not None
    assert opened.data is not None
    assert opened.answers("classes")
    assert not opened.answers("links")


def test_a_saved_model_is_opened_too_and_load_model_takes_either(own_run, tmp_path):
    model = rgcn.load_model(own_run)
    assert isinstance(model, rgcn.NodeClassifier)
    model.save(str(tmp_path / "saved"))
    opened = open_model(tmp_path / "saved")
    assert (opened.about, opened.result, opened.data) == ({}, None, None)
    assert opened.model.predict_frame(["n0"]).equals(model.predict_frame(["n0"]))


def test_a_partial_name_is_refused_with_close_names(tmp_path):
    kg = rgcn.KnowledgeGraph.from_triples([("domestic_dog.n.01", "is", "domestic_animal.n.01")])
    rgcn.LinkPredictor(encoder="none", embedding=2, steps=1).fit(kg).save(str(tmp_path))
    with pytest.raises(UnknownNameError, match=r"unknown node 'dog'. Did you mean 'domestic_dog.n.01'\?"):
        open_model(tmp_path).node("dog")


def test_the_wrong_task_is_refused_with_what_the_run_can_do(own_run):
    with pytest.raises(DataError, match="classifies nodes; a question about triples needs"):
        open_model(own_run).require_kind("links")


@pytest.mark.parametrize("changed", ["graph.tsv", "labels.tsv"])
def test_data_that_changed_since_are_refused_unless_accepted(own_run, changed):
    path = own_run.parent / changed
    path.write_text(path.read_text().replace("n5\t", "n8\t"))
    with pytest.raises(DataError, match=r"have changed since it was trained.*--accept-changed-data"):
        open_model(own_run)
    assert open_model(own_run, accept_changed_data=True).graph.nodes.get("n5") is not None


def test_data_that_can_no_longer_be_read_are_reported_as_changed(own_run):
    (own_run.parent / "graph.tsv").write_text("only two\tcolumns\n")
    with pytest.raises(DataError, match=r"(?s)can no longer be read.*--accept-changed-data"):
        open_model(own_run)


def test_a_damaged_model_is_reported(own_run):
    path = own_run / "model" / "model.json"
    text = path.read_text()
    path.write_text(text.replace('"settings"', '"stetings"'))
    with pytest.raises(DataError, match="settings is missing"):
        open_model(own_run)
    path.write_text(text.replace('"graph": "', '"graph": "0'))
    with pytest.raises(DataError, match="not the one the model was saved with"):
        open_model(own_run)


def test_unchanged_or_missing_data_files_do_not_prevent_opening(own_run):
    graph = own_run.parent / "graph.tsv"
    os.utime(graph, ns=(1, 1))
    assert open_model(own_run).graph.num_nodes == 11
    graph.unlink()
    assert open_model(own_run).graph.num_nodes == 11


def test_untouched_files_are_not_read_again(own_run, monkeypatch):
    def read(*_):
        raise AssertionError("read again")

    monkeypatch.setattr("rgcn.runs.assembly.load_data", read)
    assert open_model(own_run).graph.num_nodes == 11


def test_a_folder_without_a_model_cannot_be_opened(tmp_path):
    with pytest.raises(DataError, match="no such file or folder"):
        open_model(tmp_path / "nothing")
    with pytest.raises(DataError, match="is not a run"):
        open_model(tmp_path)
    (tmp_path / "model.json").write_text(
        '{"format": "rgcn-model", "version": 2, "task": "oracle", "settings": {}, "graph": ""}'
    )
    with pytest.raises(DataError, match="a model of an unknown task, 'oracle'"):
        rgcn.load_model(tmp_path)
