"""Measure a training step of link prediction on a random graph of a given size: time, memory, throughput.

python benchmarks/links_at_size.py --device cpu                    # DistMult, 2.5 million nodes, width 200
python benchmarks/links_at_size.py --device cuda --nodes 86000000 --edges 338000000 --relations 15000 --width 128 \\
                                   --batch 200000 --negatives 100
python benchmarks/links_at_size.py --device cuda --model rgcn --width 64         # the whole of wikikg2's size in a step
                                   [--optimizer row-adagrad|lazy-adam|adam] [--shared-by 1000 | --shared-by 0]
                                   [--tables disk] [--rank 100] [--peer] [--json FILE]

The steps are those of the package's trainer, on arrays without names. Nodes and relations are drawn with
probabilities that fall like a power of their rank, on the device. --peer: the same model and negatives in plain
PyTorch, `nn.Embedding(sparse=True)` and `torch.optim.Adagrad`, fed with the same kind of batches.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from pathlib import Path
from typing import Any

import _about  # isort: skip  # noqa: F401  before PyTorch

import torch
import torch.nn.functional as F
from torch import Tensor

from rgcn.adjacency import RelationalAdjacency
from rgcn.config import LinkModelConfig, LinkTrainingConfig
from rgcn.links.ranking import rank_triples, summarize
from rgcn.nn.link_network import LinkPlan
from rgcn.nn.row_tables import RowTable, zeros_on_disk
from rgcn.plugins import ENCODERS
from rgcn.system.memory import read_proc_bytes
from rgcn.training.link_trainer import LinkTrainer

PIECE = 1 << 24
# How steeply subjects, relations and objects fall: u ** power · count. Objects have hubs: a hundredth of all edges.
POWERS = (2.0, 3.0, 4.0)


class WholeGraph(LinkTrainer):
    """Take steps in which every edge carries messages, also queried ones."""

    def message_graph(self, positives: Tensor) -> RelationalAdjacency:
        return self.adjacency


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--model", default="distmult", choices=("distmult", "rgcn"))
    parser.add_argument("--nodes", type=int, default=2_500_000)
    parser.add_argument("--edges", type=int, default=16_000_000)
    parser.add_argument("--relations", type=int, default=535)
    parser.add_argument("--width", type=int, default=200)
    parser.add_argument("--batch", type=int, default=30_000)
    parser.add_argument("--negatives", type=int, default=100)
    parser.add_argument("--shared-by", type=int, default=1000, help="positives that share negatives; 0: each its own")
    parser.add_argument("--optimizer", default="row-adagrad")
    parser.add_argument("--objective", default="sampled-bce")
    parser.add_argument("--penalty", type=float, default=0.0)
    parser.add_argument("--layers", type=int, default=2, help="convolutions of rgcn")
    parser.add_argument("--decomposition", default="none", choices=("none", "basis", "block"))
    parser.add_argument("--bases", type=int, default=30, help="bases, or blocks, of rgcn's matrices")
    parser.add_argument("--tables", default="memory", choices=("memory", "disk"))
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rank", type=int, default=0, help="also rank so many triples among all nodes")
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--profile", action="store_true", help="print where the time of a step goes")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    options = parser.parse_args()
    device = torch.device(options.device)
    results: dict[str, Any] = {name: value for name, value in vars(options).items() if name not in ("json", "profile")}
    before = read_proc_bytes(Path("/proc/self/status"), "VmRSS") or 0
    triples = timed(results, "seconds_to_draw_the_graph", lambda: draw(options, device))
    trainer = timed(results, "seconds_to_build_the_trainer", lambda: build(options, triples))
    results |= {"bytes_of_the_triples": triples.numel() * 8, "rss_before": before, **measure(trainer, options)}
    if options.model == "rgcn":
        edges = trainer.adjacency.structure.num_edges
        results |= {"edges_with_inverses_and_self_loops": edges, **bandwidth(device)}
        once = edges * options.width * 4 / (results["copy_gb_s"] * 1e9)
        results["seconds_to_copy_a_message_of_each_edge_once"] = once
        results["step_in_such_copies"] = results["seconds_a_step"] / once
    if options.rank:
        ranks = timed(
            results,
            "seconds_to_rank",
            lambda: rank_triples(trainer.network.scorer(trainer.adjacency), triples[: options.rank]),
        )
        results["questions_ranked"] = 2 * len(ranks)
        results["mrr_raw"] = summarize(ranks, filtered=False).both.mrr
        results |= memory(device)
    if options.peer:
        del trainer
        results["peer"] = peer(options, triples)
    print(json.dumps(results, indent=1), flush=True)
    if options.json:
        try:
            from _about import write_result

            write_result(options.json, results)
        except ImportError:  # a machine without the packages that runs need
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps({"torch": torch.__version__, **results}, indent=1) + "\n")


def draw(options: argparse.Namespace, device: torch.device) -> Tensor:
    """int64 [edges, 3] on the device, drawn in pieces."""
    generator = torch.Generator(device=device).manual_seed(0)
    triples = torch.empty(options.edges, 3, dtype=torch.int64, device=device)
    for first in range(0, options.edges, PIECE):
        part = triples[first : first + PIECE]
        for column, (power, count) in enumerate(
            zip(POWERS, (options.nodes, options.relations, options.nodes), strict=True)
        ):
            u = torch.rand(len(part), generator=generator, device=device, dtype=torch.float64)
            rank = (u.pow_(power) * count).long().clamp_(max=count - 1)
            # A node's number is independent of its frequency, so rows that are read together are far apart.
            part[:, column] = rank if column == 1 else rank.mul_(2_654_435_761).remainder_(count)
    return triples


def build(options: argparse.Namespace, triples: Tensor) -> LinkTrainer:
    device = triples.device
    how: dict[str, Any] = {"name": options.model}
    if options.model == "rgcn":
        how |= {"layers": options.layers, "decomposition": options.decomposition}
        how |= {"basis": {"bases": options.bases}, "block": {"blocks": options.bases}}.get(options.decomposition, {})
    model = LinkModelConfig(**how, embedding=options.width)
    training = LinkTrainingConfig(
        steps=1_000_000,
        batch_edges=options.batch,
        sampler="scattered",
        objective=options.objective,
        negatives=options.negatives,
        shared_by=options.shared_by or None,
        penalty=options.penalty,
        optimizer="adam" if options.model == "rgcn" else options.optimizer,
        learning_rate=0.1 if options.optimizer == "row-adagrad" else 0.01,
        edge_dropout=0.0,
        self_loop_dropout=0.0,
        device=options.device,
    )
    messages = triples if options.model == "rgcn" else triples[:0]
    loops = {"inverse": options.model == "rgcn", "self_loops": options.model == "rgcn"}
    adjacency = RelationalAdjacency.from_triples(messages, options.nodes, options.relations, **loops)
    # The network of two nodes, then a table drawn on the device: on the CPU that would take longer than the steps.
    plan = LinkPlan(model, training, 2, options.relations, adjacency, torch.Generator().manual_seed(0))
    network: Any = ENCODERS.resolve(model.encoder).build_link_network(plan)
    size = options.nodes, options.width
    table = zeros_on_disk(size) if options.tables == "disk" else torch.empty(size, device=device)
    network.encoder.source.rows = RowTable(table.normal_(0.0, 0.1))
    kind = WholeGraph if options.model == "rgcn" else LinkTrainer
    return kind(network.to(device), triples, adjacency, model, training, seed=0)


def measure(trainer: LinkTrainer, options: argparse.Namespace) -> dict[str, Any]:
    """Time steps after warm-up: each synchronized, and without synchronization."""
    device = trainer.triples.device
    with trainer.running():
        losses = [float(trainer.step()) for _ in range(6)]
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        seconds = []
        for _ in range(options.steps):
            start = time.perf_counter()
            trainer.step()
            wait(device)
            seconds.append(time.perf_counter() - start)
        start, busy = time.perf_counter(), time.process_time()
        for _ in range(options.steps):
            last = trainer.step()
        wait(device)
        flowing, busy = (
            (now - then) / options.steps for now, then in ((time.perf_counter(), start), (time.process_time(), busy))
        )
        if options.profile:
            with torch.profiler.profile() as profile:
                for _ in range(5):
                    trainer.step()
                wait(device)
            spent = "self_device_time_total" if device.type == "cuda" else "self_cpu_time_total"
            rows = sorted(profile.key_averages(), key=lambda row: getattr(row, spent), reverse=True)
            for row in rows[:20]:
                print(f"{getattr(row, spent) / 5e3:10.3f} ms a step  {row.count:6}  {row.key[:60]}")
        recorded = trainer.recording is not None and trainer.recording.graph is not None
        return {
            "seconds_a_step": statistics.median(seconds),
            "seconds_a_step_flowing": flowing,
            "cpu_seconds_a_step": busy,
            "triples_a_second": options.batch / flowing,
            "recorded_as_a_cuda_graph": recorded,
            "loss_first": losses[0],
            "loss_last": float(last),
            **memory(device),
        }


def peer(options: argparse.Namespace, triples: Tensor) -> dict[str, Any]:
    """Sparse gradients and Adagrad of plain PyTorch, the same shared negatives as products."""
    device, chunk = triples.device, min(options.shared_by or options.batch, options.batch)
    nodes = torch.nn.Embedding(options.nodes, options.width, sparse=True, device=device)
    relations = torch.nn.Embedding(options.relations, options.width, device=device)
    torch.nn.init.normal_(nodes.weight, 0.0, 0.1)
    optimizers = torch.optim.Adagrad(nodes.parameters(), lr=0.1), torch.optim.Adagrad(relations.parameters(), lr=0.1)
    batch = options.batch // chunk * chunk

    def step() -> None:
        part = triples[torch.randint(len(triples), (batch,), device=device)]
        drawn = torch.randint(options.nodes, (2, batch // chunk, options.negatives), device=device)
        s, r, o, others = nodes(part[:, 0]), relations(part[:, 1]), nodes(part[:, 2]), nodes(drawn)
        queries = torch.stack([s * r, r * o]).view(2, -1, chunk, options.width)
        negative, positive = queries @ others.transpose(2, 3), (s * r * o).sum(1)
        loss = F.softplus(-positive).sum() + F.softplus(negative).sum()
        for optimizer in optimizers:
            optimizer.zero_grad()
        (loss / (batch + negative.numel())).backward()
        for optimizer in optimizers:
            optimizer.step()

    seconds = []
    for _ in range(3 + options.steps):
        start = time.perf_counter()
        step()
        wait(device)
        seconds.append(time.perf_counter() - start)
    middle = statistics.median(seconds[3:])
    return {"seconds_a_step": middle, "triples_a_second": batch / middle, **memory(device)}


def bandwidth(device: torch.device) -> dict[str, float]:
    """Return the bytes per second that a copy on the device reads and writes."""
    one, other = torch.zeros(2, 1 << 28, dtype=torch.uint8, device=device)
    seconds = []
    for _ in range(8):
        start = time.perf_counter()
        other.copy_(one)
        wait(device)
        seconds.append(time.perf_counter() - start)
    return {"copy_gb_s": 2 * len(one) / statistics.median(seconds) / 1e9}


def memory(device: torch.device) -> dict[str, float]:
    peak = {"peak_rss_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}
    if device.type == "cuda":
        peak["peak_gpu_gib"] = torch.cuda.max_memory_allocated() / 2**30
    return peak


def timed(results: dict[str, Any], name: str, work: Any) -> Any:
    start = time.perf_counter()
    found = work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    results[name] = time.perf_counter() - start
    return found


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
