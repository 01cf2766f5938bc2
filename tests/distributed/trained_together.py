"""Training of small models in one of several processes; `test_placements` starts it and compares the results.

python tests/distributed/trained_together.py FOLDER    under torchrun, or alone; rank 0 writes FOLDER/<processes>.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

import rgcn
from rgcn.adjacency import ReceptiveField
from rgcn.distributed import placements
from rgcn.distributed.rendezvous import is_rank, join, leave
from rgcn.links.top_k import answer_links
from rgcn.nn.scorer import Questions
from rgcn.placement import current

BASES = {"bases": 2, "decomposition": "basis"}
CASES: dict[str, Callable[[bool], Any]] = {
    "e-rgcn": lambda spread: rgcn.NodeClassifier(
        "e-rgcn", epochs=4, sharded=spread, validation=0.2, edge_dropout=0.2, weight_decay=0.01
    ),
    "e-rgcn in batches": lambda spread: rgcn.NodeClassifier(
        "e-rgcn", epochs=2, sharded=spread, batch_labels=40, fan_out=2, edge_dropout=0.1, class_weights="balanced"
    ),
    "rgcn": lambda _: rgcn.NodeClassifier("rgcn", epochs=3, **BASES),
    "distmult": lambda spread: rgcn.LinkPredictor(
        encoder="none", embedding=6, steps=3, sharded=spread, decoder_biases=True, clip=0.5
    ),
    "distmult by rows": lambda spread: rgcn.LinkPredictor(
        encoder="none", embedding=6, steps=3, sharded=spread, batch_edges=500, sampler="scattered", shared_by=100,
        optimizer="row-adagrad", negatives=20, decoder_biases=True, clip=1.0,
    ),
    "complex, unfiltered softmax": lambda _: rgcn.LinkPredictor("complex", embedding=6, steps=3, batch_edges=400),
    "rgcn for links": lambda spread: rgcn.LinkPredictor(
        "rgcn", embedding=6, layers=2, steps=3, sharded=spread, optimizer="lazy-adam", **BASES
    ),
    "rgcn for links in batches": lambda spread: rgcn.LinkPredictor(
        "rgcn", embedding=6, layers=2, steps=3, sharded=spread, batch_edges=300, blocks=2, decomposition="block",
        self_loop_apart=True,
    ),
    "rgcn, messages dropped": lambda spread: rgcn.LinkPredictor(
        "rgcn", embedding=6, layers=2, steps=3, sharded=spread, self_loop_apart=True, self_loop_dropout_on="message",
        **BASES,
    ),
    "e-rgcn, states dropped": lambda spread: rgcn.NodeClassifier("e-rgcn", epochs=3, sharded=spread, dropout=0.3),
    "c-rgcn": lambda spread: rgcn.LinkPredictor("c-rgcn", embedding=6, bottleneck=4, steps=3, sharded=spread),
    "path": lambda _: rgcn.LinkPredictor("path", width=6, layers=2, steps=2),
}  # fmt: skip
HOLD_EVERYTHING = ("rgcn", "path", "complex, unfiltered softmax")  # whose nodes have no rows of their own to be spread
ALSO_WHOLE = ("e-rgcn in batches", "distmult by rows")  # which any model may be
BY_TWO = ("rgcn", "distmult", "rgcn for links in batches", "c-rgcn")  # four would say the same, and take long
ANSWERED = ("distmult by rows", "rgcn for links")
IN_SINGLE = ("e-rgcn", "rgcn for links")  # precision, besides the double one


@contextmanager
def numbers_of(kind: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(kind)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def measure(model: Any, kg: rgcn.KnowledgeGraph, answers: bool) -> dict[str, Any]:
    """Losses and validation losses of a training; metrics; scores; answers, whose calibration takes long."""
    model.fit(kg)
    losses = [epoch.loss for epoch in model.history_]
    losses += [epoch.metrics["valid_loss"] for epoch in model.history_ if "valid_loss" in epoch.metrics]
    if isinstance(model, rgcn.NodeClassifier):
        return {
            "losses": losses,
            "metrics": model.evaluate(split="test"),
            "scores": model.logits(range(20)).flatten().tolist(),
        }
    measured = model.evaluate(split="valid", at_most=30)
    questions = Questions(torch.arange(12), torch.arange(12) % kg.num_relations, torch.arange(12) % 2 == 0)
    found = answer_links(model, questions, 5).node.tolist() if answers else []
    return {
        "losses": losses,
        "metrics": {name: measured[name] for name in ("mrr", "hits@1", "hits@10", "mean_rank", "count")},
        "scores": model.scorer().triple_scores(torch.from_numpy(kg.triples[:20].copy())).tolist(),
        "answers": found,
    }


def exchanged() -> None:
    """Rows and gradients of an exchange equal those of indexing, for any requests; a walk equals that of all nodes."""
    placement, draw = current().partitioned(23), torch.Generator().manual_seed(7)
    partition = placement.partition
    table = torch.randn(23, 3, generator=draw)
    wanted = [
        torch.randperm(23, generator=draw)[: 5 * rank] for rank in range(placement.size)
    ]  # the first requests none
    weight = torch.randn(23, 3, generator=draw)
    own = table[partition.nodes].requires_grad_()
    exchange = placement.exchange(wanted[placement.rank])
    rows = exchange(own[partition.row(exchange.needed)])
    assert torch.equal(rows, table[wanted[placement.rank]])
    (rows * weight[wanted[placement.rank]]).sum().backward()
    expected = torch.zeros(23, 3)
    for nodes in wanted:
        expected[nodes] += weight[nodes]
    assert own.grad is not None
    torch.testing.assert_close(own.grad, expected[partition.nodes])
    placements.ROWS_PER_MESSAGE, before = 4, placements.ROWS_PER_MESSAGE
    gathered = placement.gather_rows(own.detach())
    placements.ROWS_PER_MESSAGE = before
    assert gathered is None or torch.equal(gathered, table)
    kg = rgcn.load("world")
    rule = {"normalization": "direction", "aggregation": "mean"}
    whole, divided = rgcn.RelationalAdjacency.from_graph(kg, **rule), current().partitioned(kg.num_nodes)
    local = divided.partition.nodes
    held = rgcn.RelationalAdjacency.from_graph(kg, targets=divided.partition, **rule)
    assert held.num_targets == len(local)
    assert torch.equal(held.num_edges_into(divided.partition.row(local)), whole.num_edges_into(local))
    field = ReceptiveField.of(held, local[:7], 2, divided)
    expected_field, _ = whole.restrict(local[:7])
    torch.testing.assert_close(field.layers[-1].weight, expected_field.weight)


def main() -> None:
    folder, kg = Path(sys.argv[1]), rgcn.load("world")
    if is_rank():
        join()
        exchanged()
    found = {}
    for kind in (torch.float64, torch.float32):
        with numbers_of(kind):
            for name, make in CASES.items():
                if current().size > 2 and name in BY_TWO:
                    continue
                spreading = [name not in HOLD_EVERYTHING]
                if kind == torch.float64 and name in ALSO_WHOLE and current().is_distributed:
                    spreading.append(False)
                for spread in spreading if kind == torch.float64 or name in IN_SINGLE else ():
                    found[f"{name}, {'in shards' if spread else 'whole'}, {kind}"] = measure(
                        make(spread), kg, name in ANSWERED
                    )
    placement = current()
    if placement.is_main:
        (folder / f"{placement.size}.json").write_text(json.dumps(found))
    leave()


if __name__ == "__main__":
    main()
