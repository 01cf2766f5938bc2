"""Write tests/links/pykeen_fixture.json: the metrics of PyKEEN's RankBasedEvaluator for a small table of scores.

PyKEEN is not a dependency of this project, not even of its tests, which read the recorded metrics. To record them
again, use a separate environment:

    python -m venv /tmp/pykeen && /tmp/pykeen/bin/pip install torch pykeen
    /tmp/pykeen/bin/python tools/make_pykeen_fixture.py
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from pykeen.evaluation import RankBasedEvaluator
from pykeen.models.mocks import FixedModel
from pykeen.triples import CoreTriplesFactory

NODES, RELATIONS, LEVELS = 7, 3, 4
TIES = ("optimistic", "pessimistic", "realistic")
SIDES = {"head": "subject", "tail": "object", "both": "both"}
METRICS = {"inverse_harmonic_mean_rank": "mrr", "arithmetic_mean_rank": "mean_rank"} | {
    f"hits_at_{k}": f"hits@{k}" for k in (1, 3, 5, 10)
}
OUT = Path(__file__).parent.parent / "tests" / "links" / "pykeen_fixture.json"


class TableModel(FixedModel):
    """Scores looked up in a table [subject, relation, object]."""

    def __init__(self, table: torch.Tensor, triples_factory: CoreTriplesFactory) -> None:
        super().__init__(triples_factory=triples_factory)
        self.table = table

    def score_t(self, hr_batch: torch.Tensor, **_: Any) -> torch.Tensor:
        return self.table[hr_batch[:, 0], hr_batch[:, 1]]

    def score_h(self, rt_batch: torch.Tensor, **_: Any) -> torch.Tensor:
        return self.table[:, rt_batch[:, 0], rt_batch[:, 1]].T


def main() -> None:
    generator = torch.Generator().manual_seed(3)
    # Few distinct values: most rows have ties, many at the true answer.
    table = torch.randint(LEVELS, (NODES, RELATIONS, NODES), generator=generator).float()
    every = torch.cartesian_prod(torch.arange(NODES), torch.arange(RELATIONS), torch.arange(NODES))
    chosen = every[torch.randperm(len(every), generator=generator)[:60]]
    # The last node is in no training triple: it must be ranked, and ranked against, all the same.
    unseen = (chosen[:, [0, 2]] == NODES - 1).any(1)
    train, rest = chosen[~unseen][:30], torch.cat([chosen[~unseen][30:], chosen[unseen]])
    valid, test = rest[::3], torch.cat([rest[1::3], rest[2::3]])
    factory = CoreTriplesFactory(train, num_entities=NODES, num_relations=RELATIONS)
    model = TableModel(table, factory)
    expected: dict[str, Any] = {}
    for name, filtered in (("filtered", True), ("raw", False)):
        evaluator = RankBasedEvaluator(filtered=filtered)
        if filtered:
            result = evaluator.evaluate(
                model, test, batch_size=4, use_tqdm=False, additional_filter_triples=[train, valid]
            )
        else:
            # evaluate() itself stops at raw scores in PyKEEN 1.11: it passes no true scores on.
            for target, column, scores in (
                ("head", 0, model.score_h(test[:, 1:])),
                ("tail", 2, model.score_t(test[:, :2])),
            ):
                true = scores.gather(1, test[:, column, None])
                evaluator.process_scores_(hrt_batch=test, target=target, scores=scores, true_scores=true)
            result = evaluator.finalize()
        expected[name] = {
            ties: {
                ours: {metric: result.get_metric(f"{side}.{ties}.{theirs}") for theirs, metric in METRICS.items()}
                for side, ours in SIDES.items()
            }
            for ties in TIES
        }
    document = {
        "made_by": f"tools/make_pykeen_fixture.py with PyKEEN {version('pykeen')}",
        "num_nodes": NODES,
        "num_relations": RELATIONS,
        "scores": table.int().tolist(),
        **{name: triples.tolist() for name, triples in (("train", train), ("valid", valid), ("test", test))},
        "expected": expected,
    }
    lines = ",\n".join(f'"{key}": {json.dumps(value)}' for key, value in document.items())
    OUT.write_text("{\n" + lines + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
