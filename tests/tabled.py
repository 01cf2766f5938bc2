"""A scorer that looks its scores up: no vectors, no encoder, nothing but the one interface that everything asks."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rgcn.nn.scorer import Questions, Scorer


class TableScorer(Scorer):
    """Scores of a table [subject, relation, object]; `hear` is told of every block of questions."""

    def __init__(self, table: Tensor, hear: Callable[[Questions], None] = lambda questions: None) -> None:
        self.table, self.hear = table, hear
        self.num_nodes, self.device = len(table), table.device

    def scores(self, questions: Questions, candidates: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        self.hear(questions)
        node, relation, _ = questions
        for_objects = questions.asks_objects()[:, None].to(self.device)
        scores = torch.where(for_objects, self.table[node, relation], self.table[:, relation, node].movedim(0, 1))
        return scores if candidates is None else scores[:, candidates]
