"""Test batches of labels: every label once per epoch, used for large graphs, and equal to full steps on small ones."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import rgcn
from rgcn.adjacency import ReceptiveField
from rgcn.config import NodeModelConfig, NodeTrainingConfig
from rgcn.runs import load_configuration, resume, train
from rgcn.runs.configuration import replace_settings
from rgcn.training import plan as plans
from rgcn.training.plan import default_batches, field_edges


@pytest.fixture(scope="module")
def world():
    return rgcn.load("world")


def test_an_epoch_is_every_label_once_in_another_order_each_time(world):
    model = rgcn.NodeClassifier(seed=1, batch_labels=60).prepare(world)
    trainer, (nodes, classes) = model.trainer(), world.labels.of("train")
    assert trainer.steps_per_unit == 3
    epochs = []
    for epoch in range(2):
        batches = [trainer.batch(3 * epoch + part) for part in range(3)]
        nodes_seen = torch.cat([field.outputs for field, *_ in batches])
        assert max(len(target) for _, target, _ in batches) - min(len(target) for _, target, _ in batches) <= 1
        class_of = dict(zip(nodes_seen.tolist(), torch.cat([target for _, target, _ in batches]).tolist(), strict=True))
        assert class_of == dict(zip(nodes.tolist(), classes.tolist(), strict=True))
        epochs.append(nodes_seen.tolist())
    assert epochs[0] != epochs[1]
    again = trainer.batch(1)[0]  # independent of other random draws in between
    assert torch.equal(again.outputs, torch.tensor(epochs[0])[len(trainer.batch(0)[1]) :][: len(again.outputs)])


def test_one_batch_of_all_labels_and_all_edges_is_a_step_on_the_whole_graph(world):
    """Equal up to rounding, because sums have another order."""
    shared = {"seed": 2, "model": "e-rgcn", "epochs": 4, "weight_decay": 0.005, "dropout": 0.0}
    whole = rgcn.NodeClassifier(**shared).fit(world)
    most = max(np.bincount(world.triples[:, [0, 2]].ravel()))
    batch = rgcn.NodeClassifier(**shared, fan_out=int(most)).fit(world)
    assert [e.number for e in batch.history_] == [e.number for e in whole.history_] == [1, 2, 3, 4]
    for ours, theirs in zip(batch.history_, whole.history_, strict=True):
        assert ours.loss == pytest.approx(theirs.loss, rel=1e-4)
        assert ours["valid_loss"] == pytest.approx(theirs["valid_loss"], rel=1e-3)


def test_a_run_of_batches_cut_off_within_an_epoch_is_resumed_to_the_same_bits(world, tmp_path):
    settings = {"training.batch_labels": 60, "training.fan_out": 3, "training.epochs": 3, "training.edge_dropout": 0.1}
    config = replace_settings(load_configuration("rgcn/nc-world"), {**settings, "checkpoints.every_steps": 2})
    parts = []
    whole = train(config, world, tmp_path / "whole", on_step=parts.append)
    assert parts == pytest.approx([step / 3 for step in range(1, 10)])
    assert whole.length == 3

    def killed(reached):
        if reached > 1.5:  # a step after the checkpoint, in the middle of the second epoch
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        train(config, world, tmp_path / "cut", on_step=killed)
    again = resume(tmp_path / "cut", graph=world)
    for name, tensor in whole.model.network_.state_dict().items():
        assert torch.equal(tensor, again.model.network_.state_dict()[name])
    rows = [json.loads(line) for line in (tmp_path / "cut" / "metrics.jsonl").read_text().splitlines()]
    assert [row["number"] for row in rows] == [1, 2, 3]


def test_batches_are_chosen_where_the_graph_is_large_and_has_many_labels_or_does_not_fit(world, monkeypatch):
    model, training = NodeModelConfig(), NodeTrainingConfig()
    chosen = {"batch_labels": plans.DEFAULT_BATCH_LABELS, "fan_out": plans.DEFAULT_FAN_OUT}
    assert default_batches(model, training, world) == {}
    monkeypatch.setattr(plans, "MAX_FULL_TRIPLES", 100)
    assert default_batches(model, training, world) == {}
    edges = field_edges(model, world, world.labels.of("train")[0])
    at_most = edges * plans.FULL_EDGE_BYTES
    for free, found in ((at_most, {}), (at_most - 1, chosen), (None, {})):
        monkeypatch.setattr(plans, "available_bytes", lambda device, free=free: free)
        assert default_batches(model, training, world) == found
    monkeypatch.setattr(plans, "MAX_FULL_LABELS", 100)
    assert default_batches(model, training, world) == chosen
    assert default_batches(model, NodeTrainingConfig(batch_labels=7), world) == {}
    assert default_batches(model, NodeTrainingConfig(fan_out=7), world) == {}
    fitted = rgcn.NodeClassifier(epochs=1).fit(world)
    assert (fitted.training.batch_labels, fitted.training.fan_out) == (10_000, 10)


@pytest.mark.parametrize("inverse", [True, False])
@pytest.mark.parametrize("self_loops", [True, False])
def test_edges_of_a_field_are_counted_without_making_it(world, inverse, self_loops):
    model = NodeModelConfig(inverse=inverse, self_loops=self_loops, layers=3)
    adjacency = rgcn.RelationalAdjacency.from_graph(world, inverse=inverse, self_loops=self_loops)
    nodes = world.labels.of("train")[0][:3]
    field = ReceptiveField.of(adjacency, torch.from_numpy(nodes.copy()), 3)
    assert field_edges(model, world, nodes) == sum(layer.num_edges for layer in field.layers)


def test_a_saved_model_of_batches_answers_the_same(world, tmp_path):
    model = rgcn.NodeClassifier(epochs=2, batch_labels=60, fan_out=2, decomposition="basis", bases=3).fit(world)
    model.save(str(tmp_path / "model"))
    nodes = list(range(20))
    assert torch.equal(rgcn.NodeClassifier.load(str(tmp_path / "model")).logits(nodes), model.logits(nodes))
