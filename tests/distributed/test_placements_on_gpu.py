"""Test the placements over NCCL, in one process, which exchanges all rows with itself through the collectives."""

from __future__ import annotations

import pytest
import torch

import rgcn
from rgcn.distributed.placements import DataParallel
from rgcn.placement import LOCAL, use

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


@pytest.fixture(scope="module")
def alone():
    """Results of a single process, computed first: steps are not captured while NCCL uses the GPU."""
    kg = rgcn.load("world")
    fitted = {name: make().fit(kg) for name, make in MODELS.items()}
    return {name: (model.history_, model.evaluate(kg)) for name, model in fitted.items()}


@pytest.fixture
def nccl(alone, tmp_path):
    import torch.distributed as dist

    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("cpu:gloo,cuda:nccl", store=store, rank=0, world_size=1)
    yield DataParallel(0, 1)  # a process group of one rank that uses the collectives
    use(LOCAL)
    dist.destroy_process_group()


MODELS = {
    "e-rgcn": lambda: rgcn.NodeClassifier("e-rgcn", epochs=5, validation=0.2, sharded=True, device="cuda"),
    "e-rgcn in batches": lambda: rgcn.NodeClassifier(
        "e-rgcn", epochs=3, batch_labels=50, fan_out=3, dropout=0.0, sharded=True, device="cuda"
    ),
    "distmult": lambda: rgcn.LinkPredictor(
        encoder="none", embedding=8, steps=5, batch_edges=500, optimizer="row-adagrad", sharded=True, device="cuda"
    ),
    "rgcn": lambda: rgcn.LinkPredictor(
        "rgcn", embedding=8, steps=5, bases=2, decomposition="basis", sharded=True, device="cuda"
    ),
    "path": lambda: rgcn.LinkPredictor("path", width=32, layers=2, steps=3, device="cuda"),
}


@pytest.mark.parametrize("name", MODELS)
def test_nccl_computes_the_same_as_one_process(alone, nccl, name, tmp_path):
    kg, (history, expected) = rgcn.load("world"), alone[name]
    use(nccl)
    together = MODELS[name]().fit(kg)
    losses = [[epoch.loss for epoch in epochs] for epochs in (together.history_, history)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    found = together.evaluate(kg, split="test")
    figure = "accuracy" if "e-rgcn" in name else "mrr"
    assert found[figure] == pytest.approx(expected[figure], rel=0.02)
    together.save(str(tmp_path / "model"))
    use(LOCAL)
    loaded = rgcn.load_model(tmp_path / "model", device="cuda")
    assert loaded.evaluate(kg, split="test")[figure] == pytest.approx(found[figure], rel=1e-6)
