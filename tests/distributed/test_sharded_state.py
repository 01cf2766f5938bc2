"""Test that tables written by several real processes can be read and resumed by any number of processes.

One launch does it all: four processes, then three of them, one of which is killed while it writes, then two, then one.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
import traceback
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from rgcn import KnowledgeGraph, LinkPredictor
from rgcn.distributed import sharded_state
from rgcn.distributed.placements import DataParallel
from rgcn.errors import DataError
from rgcn.models.storage import load_as
from rgcn.nn.row_tables import NodeTable, RowTable, partitions_by_name
from rgcn.placement import LOCAL, NodePartition, Placement, current, use
from rgcn.runs.checkpoints import Checkpoints
from rgcn.training.fitting import BestWeights, Fitting, Schedule, Trainer
from rgcn.training.history import Metric

ROWS, WIDTH = 1003, 6
REACHED = torch.arange(ROWS) % 7 != 3  # rows that one process alone may hold apart, since no loss reaches them


def numbers(seed, *shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def truth(step):
    """Return all rows of weights and optimizer state after these steps."""
    reached = REACHED.float()
    return {
        "table": numbers(step, ROWS, WIDTH),
        "exp_avg": numbers(step + 100, ROWS, WIDTH) * reached[:, None],
        "step": numbers(step + 200, ROWS).round() * reached,
        "bias": numbers(step + 300, ROWS, 2),
        "bias exp_avg": numbers(step + 400, ROWS, 2),
        "best table": numbers(3, ROWS, WIDTH),
        "best bias": numbers(4, ROWS, 2),
        "dense": numbers(step + 500, 5),
    }


class Network(nn.Module):
    """A table, a bias of each node, and something dense; spread over the processes there are."""

    def __init__(self, table, bias, dense, held_apart):
        super().__init__()
        self.partition = current().partitioned(ROWS).partition
        local = self.local
        reached = REACHED if held_apart and self.partition is None else None
        self.rows = RowTable(table[local].clone(), reached, self.partition)
        self.bias, self.dense = NodeTable(bias[local].clone(), self.partition), nn.Parameter(dense.clone())

    @property
    def local(self):
        return slice(None) if self.partition is None else self.partition.nodes


class Still(Trainer):
    def __init__(self, network):
        self.network, self.generator = network, torch.Generator().manual_seed(1)
        self.optimizer = torch.optim.Adam(network.parameters())

    def step(self):
        raise NotImplementedError


def fitting(step, held_apart=False):
    """Return a training that has taken these steps; 0: a new one with other weights."""
    now = truth(step or 77)
    network = Network(now["table"], now["bias"], now["dense"], held_apart)
    made = Fitting(Still(network), Schedule(1000, Metric("mrr", "MRR")), seed=0, history=[])
    if step:
        here = trained_rows(network)
        made.steps_taken = step
        state = made.optimizer.state
        state[network.rows.trained] = {"exp_avg": now["exp_avg"][here], "step": now["step"][here]}
        state[network.bias.trained] = {"exp_avg": now["bias exp_avg"][network.local], "step": torch.tensor(float(step))}
        best = Network(now["best table"], now["best bias"], now["dense"], held_apart)
        made.best = BestWeights(0.5, 3, 1, best.state_dict())
    return made


def trained_rows(network):
    if network.partition is not None:
        return network.partition.nodes
    return torch.argsort(network.rows.position)[: len(network.rows.trained)]


def assert_stands_at(step, folder, held_apart=False):
    """Check that a new training resumes from the newest checkpoint with the rows of this step."""
    made, now = fitting(0, held_apart), truth(step)
    made.restore(Checkpoints(folder).newest())
    network, state = made.network, made.optimizer.state
    here, own = trained_rows(network), network.local
    assert made.steps_taken == step
    assert torch.equal(network.rows.values(), now["table"][own])
    assert torch.equal(network.bias.trained, now["bias"][own])
    assert torch.equal(network.dense, now["dense"])
    for name in ("exp_avg", "step"):
        assert torch.equal(state[network.rows.trained][name], now[name][here])
    assert torch.equal(state[network.bias.trained]["exp_avg"], now["bias exp_avg"][own])
    assert state[network.bias.trained]["step"] == step
    made.finish()
    assert torch.equal(network.rows.values(), now["best table"][own])
    assert torch.equal(network.bias.trained, now["best bias"][own])


def predictor():
    kg = KnowledgeGraph.from_triples([(f"n{i}", "r", f"n{(i * 7 + 1) % ROWS}") for i in range(ROWS)])
    return LinkPredictor(encoder="none", embedding=4, decoder_biases=True, sharded=True, seed=3).prepare(kg)


# -- what processes do, in their order ---------------------------------------------------------------------------


def join(root, rank, size):
    import torch.distributed as dist

    if current().is_distributed:
        dist.destroy_process_group()
        use(LOCAL)
    if size > 1:
        store = dist.FileStore(str(root / f"store-{size}"), size)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
        use(DataParallel(rank, size))


def four(root, rank):
    folder = root / "checkpoints"
    checkpoints = Checkpoints(folder, keep_last=2)
    assert checkpoints.newest() is None
    for step in (5, 6, 6, 7):  # one of them is written twice, as at the end of a run
        checkpoints.save(fitting(step).state())
        assert_stands_at(step, folder)
        current().barrier()
        if step == 5:
            best = (folder / "best-000000003.shards").stat().st_mtime_ns
    assert (folder / "best-000000003.shards").stat().st_mtime_ns == best
    names = ["best-000000003", "step-000000006", "step-000000007"]
    assert {path.name.partition(".")[0] for path in folder.iterdir()} == set(names)
    assert {path.suffix for path in folder.rglob("*")} == {".json", ".safetensors", ".shards"}  # not a pickle file
    assert len(list(folder.glob("*.shards"))) == 3
    files = json.loads((folder / "step-000000007.json").read_text())["files"]
    assert sum(length for length, _ in files["state.shards"]["files"].values()) < 1.1 * ROWS * 4 * (2 * WIDTH + 1 + 4)
    for damage in ("missing", "flipped", "cut", "stranger", "folder"):
        damaged(root, rank, damage)
    full_disk(folder, rank)
    models(root, rank)


def damaged(root, rank, how):
    folder = root / how
    if rank == 0:
        shutil.copytree(root / "checkpoints", folder)
        shards = folder / "step-000000007.shards"
        victim = shards / "00002.safetensors"
        content = bytearray(victim.read_bytes())
        content[-5] ^= 1
        if how == "folder":
            shutil.rmtree(shards)
        elif how == "missing":
            victim.unlink()
        elif how == "stranger":
            (shards / "more.safetensors").write_bytes(content)
        else:
            victim.write_bytes(content if how == "flipped" else content[:-9])
    current().barrier()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert_stands_at(6, folder)
    about = [str(warning.message) for warning in caught if "cannot be used" in str(warning.message)]
    assert len(about) == (rank == 0)  # only rank 0 warns
    words = {"folder": "missing", "missing": "00002.safetensors is missing", "stranger": "more.safetensors"}
    assert rank or words.get(how, "was changed or damaged") in about[0], about


def full_disk(folder, rank):
    """Of one process."""

    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    write, sharded_state.write_tensors = sharded_state.write_tensors, full if rank == 1 else sharded_state.write_tensors
    with pytest.raises(DataError, match=r"No space left on device.*step 7 is intact"):
        Checkpoints(folder).save(fitting(8).state())
    sharded_state.write_tensors = write
    current().barrier()
    assert not list(folder.glob(".*"))
    assert_stands_at(7, folder)


def models(root, rank):
    placement = current()
    use(LOCAL)
    alone = predictor()
    known = alone.fingerprint_, alone.num_parameters_
    if rank == 0:
        alone.save(root / "model alone")
    use(placement)
    model = predictor()
    assert (model.fingerprint_, model.num_parameters_) == known
    model.save(root / "model")
    weights = [(root / name / "weights.safetensors").read_bytes() for name in ("model alone", "model")]
    assert weights[0] == weights[1]
    loads(root, known[0])


def loads(root, fingerprint=None):
    loaded = load_as(root / "model", LinkPredictor)
    table = next(module for module in loaded.network_.modules() if isinstance(module, RowTable))
    assert (table.partition is not None) == current().is_distributed
    if table.partition is not None:
        assert len(table.trained) == len(table.partition)
        assert len(partitions_by_name(loaded.network_)) == 2  # and the biases of nodes
    assert fingerprint in (None, loaded.fingerprint_)


def three(root, rank):
    assert_stands_at(7, root / "checkpoints")
    loads(root)
    if rank == 2:
        write = sharded_state.write_tensors

        def killed(tensors, path, metadata):
            write(tensors, path, metadata)
            os.truncate(path, path.stat().st_size // 2)
            os._exit(9)

        sharded_state.write_tensors = killed
    with pytest.raises(RuntimeError):  # the other ranks detect the loss
        Checkpoints(root / "checkpoints").save(fitting(8).state())


def two(root, rank):
    assert_stands_at(7, root / "checkpoints")
    assert_stands_at(5, root / "plain")
    assert_stands_at(5, root / "held apart")  # of one process whose table has two parts
    Checkpoints(root / "checkpoints").save(fitting(9).state())
    assert not list((root / "checkpoints").glob(".*"))
    assert_stands_at(9, root / "checkpoints")


def one(root):
    for held_apart in (False, True):
        assert_stands_at(9, root / "checkpoints", held_apart)
        assert_stands_at(7, root / "of four", held_apart)
    # One process resumes a run of several. Several can read what it writes. The best weights are unchanged.
    Checkpoints(root / "checkpoints").save(fitting(10, held_apart=True).state())
    assert (root / "checkpoints" / "best-000000003.shards").exists()
    assert_stands_at(10, root / "checkpoints", held_apart=True)
    loads(root, load_as(root / "model alone", LinkPredictor).fingerprint_)


def live(rank, root):
    torch.set_num_threads(1)
    try:
        if rank == 0:
            Checkpoints(root / "plain").save(fitting(5).state())
            Checkpoints(root / "held apart").save(fitting(5, held_apart=True).state())
        join(root, rank, 4)
        four(root, rank)
        if rank == 0:
            shutil.copytree(root / "checkpoints", root / "of four")
        for size, work in ((3, three), (2, two)):
            if rank < size:
                join(root, rank, size)
                work(root, rank)
        if rank == 0:
            join(root, rank, 1)
            one(root)
    except BaseException:
        (root / f"failure-{rank}").write_text(traceback.format_exc())
        os._exit(1)
    os._exit(0)  # without closing a process group in which one rank is dead


@pytest.mark.skipif(sys.platform != "linux", reason="processes that are killed")
def test_sharded_tables_can_be_resumed_by_any_number_of_processes(tmp_path):
    from torch.multiprocessing import get_context

    started = [get_context("spawn").Process(target=live, args=(rank, tmp_path)) for rank in range(4)]
    for process in started:
        process.start()
    for process in started:
        process.join(300)
        process.kill()
        process.join()
    failures = "\n".join(path.read_text() for path in sorted(Path(tmp_path).glob("failure-*")))
    assert [process.exitcode for process in started] == [0, 0, 9, 0], failures


def test_distributed_checkpoints_of_pytorch_read_the_folder(tmp_path):
    import torch.distributed.checkpoint as checkpoint

    storage = pytest.importorskip("torch.distributed.checkpoint.hf_storage")
    if not hasattr(storage, "HuggingFaceStorageReader"):
        pytest.skip("PyTorch 2.9 has it")

    class Alone(Placement):
        def gather_values(self, value):
            return [value]

    whole, before = numbers(0, 10, 3), current()
    for rank in range(3):
        part = NodePartition(10, rank, 3)
        use(Alone(rank, 3))
        sharded_state.write_tables(tmp_path / "shards", {"t": whole[part.first :][: len(part)]}, {"t": part})
    use(before)
    found = {"t": torch.zeros(10, 3)}
    reader = storage.HuggingFaceStorageReader(str(tmp_path / "shards"))
    checkpoint.load(found, storage_reader=reader, no_dist=True)
    assert torch.equal(found["t"], whole)
