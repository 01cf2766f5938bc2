"""Time a training step of DistMult or ComplEx by a softmax over all nodes, against the same in plain PyTorch.

    python benchmarks/softmax_step.py [complex/lp-codex-s ...] [--rounds 5] [--json results/softmax-step-cpu.json]

Both take the same batches of directed triples, the same width, N3 and Adagrad, and start from the same weights. Plain
PyTorch scores all nodes for every triple of a batch; rgcn for every distinct question. Rounds alternate between both,
and medians are compared. The losses of the first steps must agree.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import _about  # isort: skip  # noqa: F401  before PyTorch

import torch
import torch.nn.functional as F
from _about import write_result
from torch import Tensor

from rgcn.runs import load_configuration, load_data
from rgcn.runs.assembly import make_model

NUM_STEPS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configurations", nargs="*", default=["distmult/lp-codex-s", "complex/lp-codex-s"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the results to this file")
    options = parser.parse_args()
    rows = []
    for name in options.configurations:
        rows.append({"configuration": name, **measure(name, options.rounds)})
        print(rows[-1], flush=True)
    if options.json:
        write_result(options.json, {"steps_per_round": NUM_STEPS, "rows": rows})


class Plain:
    """The same training in plain PyTorch.

    Args:
        nodes: Initial node vectors [num_nodes, dim].
        relations: Initial relation vectors [2 num_relations, dim].
        is_complex: ComplEx instead of DistMult.
        training: The settings of the training.
    """

    def __init__(self, nodes: Tensor, relations: Tensor, is_complex: bool, training) -> None:  # type: ignore[no-untyped-def]
        self.nodes, self.relations = (torch.nn.Parameter(table.detach().clone()) for table in (nodes, relations))
        self.is_complex, self.penalty = is_complex, training.penalty
        self.optimizer = torch.optim.Adagrad([self.nodes, self.relations], lr=training.learning_rate, eps=1e-8)

    def step(self, batch: Tensor) -> Tensor:
        node, relation, answer = batch.unbind(1)
        s, r, o = self.nodes[node], self.relations[relation], self.nodes[answer]
        if self.is_complex:
            (a, b), (c, d) = s.chunk(2, 1), r.chunk(2, 1)
            query = torch.cat([a * c - b * d, a * d + b * c], 1)
            factors = [(x.chunk(2, 1)[0] ** 2 + x.chunk(2, 1)[1] ** 2) ** 1.5 for x in (s, r, o)]
        else:
            query, factors = s * r, [x.abs() ** 3 for x in (s, r, o)]
        loss = F.cross_entropy(query @ self.nodes.T, answer)
        loss = loss + self.penalty * sum(x.sum() for x in factors) / len(batch)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.detach()


def measure(name: str, rounds: int) -> dict[str, object]:
    config = load_configuration(name)
    trainer = make_model(config).prepare(load_data(config.data)).trainer()
    network, batches = trainer.network, trainer.batches()
    weights = network.encoder.source.rows.values(), network.decoder.relation_vectors()
    peer = Plain(*weights, network.decoder.is_complex, config.training)
    given = [next(batches) for _ in range(NUM_STEPS)]
    first = [(float(trainer.step_on(batch)), float(peer.step(batch))) for batch in given]
    assert all(abs(ours - theirs) < 1e-3 * theirs for ours, theirs in first[:5]), first
    seconds: dict[str, list[float]] = {"rgcn": [], "PyTorch": []}
    for _ in range(rounds):
        for side, step in (("rgcn", trainer.step_on), ("PyTorch", peer.step)):
            start = time.perf_counter()
            for batch in given:
                step(batch)
            seconds[side].append((time.perf_counter() - start) / NUM_STEPS)
    batches.close()
    ours, theirs = (statistics.median(seconds[side]) for side in ("rgcn", "PyTorch"))
    keys = [(batch[:, 0] * 2 * trainer.num_relations + batch[:, 1]).unique().numel() for batch in given]
    return {
        "width": weights[0].shape[1],
        "triples_per_step": len(given[0]),
        "distinct_questions_per_step": round(statistics.mean(keys), 1),
        "rgcn_ms": round(1000 * ours, 2),
        "pytorch_ms": round(1000 * theirs, 2),
        "ratio": round(ours / theirs, 3),
        "rounds": {side: [round(1000 * each, 2) for each in found] for side, found in seconds.items()},
        "threads": torch.get_num_threads(),
    }


if __name__ == "__main__":
    main()
