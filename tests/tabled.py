"""A scorer that looks up its scores in a table: the smallest implementation of the `Scorer` interface."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rgcn.nn.scorer import Questions, Scorer


class TableScorer(Scorer):
    """A scorer with the scores of a table.

    Args:
        table: [num_nodes, num_relations, num_nodes], indexed by subject, relation and object.
        on_questions: Function called with every batch of questions.
    """

    def __init__(self, table: Tensor, on_questions: Callable[[Questions], None] = lambda questions: None) -> None:
        self.table, self.on_questions = table, on_questions
        self.num_nodes, self.device = len(table), table.device

    def scores(self, questions: Questions, candidates: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        self.on_questions(questions)
        node, relation, _ = questions
        for_objects = questions.is_for_objects()[:, None].to(self.device)
        scores = torch.where(for_objects, self.table[node, relation], self.table[:, relation, node].movedim(0, 1))
        return scores if candidates is None else scores[:, candidates]
