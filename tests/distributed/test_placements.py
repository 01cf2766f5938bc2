"""Test that several real processes train the same model as one: equal losses, metrics, scores and answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import rgcn
from rgcn.placement import NodePartition

SCRIPT = Path(__file__).parent / "trained_together.py"
SECONDS = 300


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, dict[str, object]]]:
    """Return the results by number of processes; all are started at the same time."""
    folder = tmp_path_factory.mktemp("together")
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{Path(rgcn.__file__).parents[1]}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    }
    running = []
    for size in (1, 2, 4):
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)] if size > 1 else []
        command = [sys.executable, *launch, str(SCRIPT), str(folder)]
        running.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    for process in running:
        _, words = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, words
    return {size: json.loads((folder / f"{size}.json").read_text()) for size in (1, 2, 4)}


@pytest.mark.parametrize("size", [2, 4])
def test_several_processes_compute_the_same_as_one(found, size):
    for name, ours in found[size].items():
        as_few = 2 if "dropped" in name else 1  # of several: one draws the number of every edge and column
        alone = found[as_few].get(name) or found[as_few][name.replace("whole", "in shards")]
        near = {"rel": 0, "abs": 1e-12} if "float64" in name else {"rel": 1e-6, "abs": 1e-6}
        assert ours["losses"] == pytest.approx(alone["losses"], **near), name
        wide = {key: 20 * value for key, value in near.items()}  # scores are as large as twenty
        assert ours["scores"] == pytest.approx(alone["scores"], **wide), name
        if "float64" in name:  # rounded to float32 a tie may fall either way
            assert ours["metrics"] == pytest.approx(alone["metrics"], rel=1e-12), name
            assert ours.get("answers") == alone.get("answers"), name


def test_all_kinds_were_trained(found):
    assert len(found[2]) > len(found[1]) > len(found[4]) > 8


@pytest.mark.parametrize("count", [1, 2, 3, 7, 10, 16, 100, 997])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
def test_every_node_has_one_owner_and_one_position(count, size):
    parts = [NodePartition(count, rank, size) for rank in range(size)]
    assert sorted(torch.cat([each.nodes for each in parts]).tolist()) == list(range(count))
    for each in parts:
        assert len(each) == len(each.nodes)
        assert (each.owner(each.nodes) == each.rank).all()
        assert torch.equal(each.row(each.nodes), torch.arange(len(each)))
        assert torch.equal(each.node_at(each.position(each.nodes)), each.nodes)


def test_parts_are_balanced_and_mix_neighbors():
    """Nodes that came into a graph together are spread evenly, whatever the number of processes."""
    for size in (2, 3, 8):
        part = NodePartition(100_000, 0, size)
        for nodes in (torch.arange(1000), torch.arange(50_000, 51_000), torch.arange(0, 100_000, 100)):
            held = torch.bincount(part.owner(nodes), minlength=size)
            assert int(held.max() - held.min()) <= 0.05 * len(nodes)


def test_initial_tables_do_not_depend_on_the_number_of_processes():
    from rgcn.nn.initialization import Initializer
    from rgcn.nn.row_tables import NodeEmbedding

    for scheme in ("glorot-uniform", "normal"):
        whole = NodeEmbedding(70_003, 3, Initializer(scheme), torch.Generator().manual_seed(1)).rows.trained
        for rank in range(3):
            partition, draw = NodePartition(70_003, rank, 3), torch.Generator().manual_seed(1)
            part = NodeEmbedding(70_003, 3, Initializer(scheme), draw, partition=partition).rows.trained
            assert torch.equal(part, whole[partition.nodes])
