"""Folders that rgcn 0.2.0 wrote (tests/folders_of_0_2_0: a graph, two finished runs, a stopped one) still open."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

import rgcn
from rgcn import runs
from rgcn.errors import DataError
from rgcn.runs.configuration import load_configuration, stored_configuration

FOLDERS = Path(__file__).parent / "folders_of_0_2_0"


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """Copy the folders and insert the paths of the data."""
    copy = tmp_path / "folders"
    shutil.copytree(FOLDERS, copy)
    for path in (*copy.glob("*/run.json"), *copy.glob("*/config.yaml")):
        path.write_text(path.read_text().replace("@FOLDER@", str(copy)))
    return copy


def test_a_model_of_links_has_its_weights(folders: Path) -> None:
    model = rgcn.load_model(folders / "links")
    result = json.loads((folders / "links" / "result.json").read_text())
    assert model.measure()["valid"] == pytest.approx(result["metrics"]["valid"])
    assert model.network_.decoder.node_bias.trained.abs().sum() > 0


def test_a_model_of_nodes_gives_the_same_answers(folders: Path) -> None:
    model = rgcn.load_model(folders / "nodes")
    result = json.loads((folders / "nodes" / "result.json").read_text())
    assert model.measure() == {split: pytest.approx(row) for split, row in result["metrics"].items()}


def test_a_stopped_run_ends_as_it_would_have_in_0_2_0(folders: Path) -> None:
    """The checkpoint has Adam moments of node biases, which had another position in the order of parameters."""
    expected = json.loads((FOLDERS / "expected.json").read_text())
    with pytest.warns(UserWarning, match="environment of this run has changed"):
        result = runs.resume(folders / "stopped")
    assert result.metrics == {split: pytest.approx(row) for split, row in expected["metrics"].items()}
    weights = result.model.network_.state_dict()
    for name, values in expected["weights"].items():
        now = weights[name.replace("decoder.node_bias", "decoder.node_bias.trained")]
        torch.testing.assert_close(now, torch.tensor(values, dtype=now.dtype).view_as(now), rtol=0, atol=1e-7)


def test_british_spelling_of_a_pretraining_setting_is_converted() -> None:
    config = load_configuration("universal/pretraining-labels").model_dump(mode="json")
    config["training"]["labelled"] = config["training"].pop("labeled")
    assert stored_configuration("pretraining", config, "run.json").training.labeled == 0.4


def test_a_built_graph_opens(folders: Path) -> None:
    kg = rgcn.read(folders / "built")
    assert kg.fingerprint == rgcn.read(folders / "graph.tsv").fingerprint


def test_folders_of_older_versions_raise_an_error_that_names_the_version_to_use(folders: Path) -> None:
    path = folders / "links" / "model" / "model.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 1, "rgcn": "0.1.0"}))
    with pytest.raises(DataError, match=r"written by rgcn 0\.1\.0.*the version that wrote it"):
        rgcn.load_model(folders / "links")
