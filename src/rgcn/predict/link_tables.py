"""Answers to questions about links, and new triples, as rows and as N-Triples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from rgcn.answers.links import LinkAnswers
from rgcn.predict.writing import Terms, said
from rgcn.scoring import Questions

if TYPE_CHECKING:
    import polars as pl

    from rgcn.answers.completion import Completion
    from rgcn.predict import OpenModel

CHUNK = 1 << 16
WORDS = ("subject", "relation", "object", "subject_title", "relation_title", "object_title")


@dataclass(frozen=True, eq=False)
class ScoredTriples:
    """Triples with what a model says of them.

    triples      int64 [n, 3]
    score        float32 [n]   the model's own number
    probability  float32 [n]   calibrated; None where there was nothing to calibrate on
    known        bool [n]      whether it is a training triple
    """

    triples: NDArray[np.int64]
    score: NDArray[np.float32]
    probability: NDArray[np.float32] | None
    known: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.triples)

    def __getitem__(self, part: slice | NDArray[np.bool_]) -> ScoredTriples:
        share = None if self.probability is None else self.probability[part]
        return ScoredTriples(self.triples[part], self.score[part], share, self.known[part])

    def at_least(self, probability: float) -> ScoredTriples:
        """Those that are at least so probable."""
        return self if self.probability is None else self[self.probability >= probability]

    @classmethod
    def of_answers(cls, questions: Questions, answers: LinkAnswers) -> ScoredTriples:
        """The triples that answers make with their questions, question by question, best first."""
        row, column = torch.nonzero(answers.node >= 0, as_tuple=True)
        node, asked = answers.node[row, column], questions.node[row]
        is_object = questions.asks_objects()[row]
        subject, object_ = torch.where(is_object, asked, node), torch.where(is_object, node, asked)
        share = answers.probability
        return cls(
            torch.stack([subject, questions.relation[row], object_], dim=1).numpy(),
            answers.score[row, column].float().numpy(),
            None if share is None else share[row, column].float().numpy(),
            answers.known[row, column].numpy(),
        )

    @classmethod
    def of_completion(cls, completion: Completion) -> ScoredTriples:
        """New triples, best first."""
        new = np.zeros(len(completion), dtype=bool)
        return cls(completion.triples, completion.score, completion.probability, new)


def link_frames(opened: OpenModel, rows: ScoredTriples) -> Iterator[pl.DataFrame]:
    """subject, relation, object, their titles, score, probability, known; at least one frame."""
    import polars as pl

    graph, titles = opened.graph, opened.titles
    for first in range(0, max(len(rows), 1), CHUNK):
        part = rows[first : first + CHUNK]
        subjects, relations, objects = part.triples.T.tolist() if len(part) else ([], [], [])
        yield pl.DataFrame(
            {
                "subject": [graph.nodes[node] for node in subjects],
                "relation": [graph.relations[relation] for relation in relations],
                "object": [graph.nodes[node] for node in objects],
                "subject_title": [titles.of(node) for node in subjects],
                "relation_title": [titles.relation(relation) for relation in relations],
                "object_title": [titles.of(node) for node in objects],
                "score": part.score,
                "probability": [None] * len(part) if part.probability is None else part.probability,
                "known": part.known,
            },
            schema_overrides={**dict.fromkeys(WORDS, pl.String), "probability": pl.Float32},
        )


def link_triples(opened: OpenModel, rows: ScoredTriples) -> Iterator[str]:
    """Lines of N-Triples, score and probability in a comment; literals, which can be no subject, are left out."""
    terms = Terms(opened.graph)
    for first in range(0, len(rows), CHUNK):
        part = rows[first : first + CHUNK]
        shares = [None] * len(part) if part.probability is None else part.probability.tolist()
        numbers = zip(part.triples.tolist(), part.score.tolist(), shares, strict=True)
        for (subject, relation, object_), score, p in numbers:
            if terms.can_be_subject(subject):
                line = f"{terms.node(subject)} {terms.relation(relation)} {terms.node(object_)} ."
                yield f"{line} # {said(score, p)}"
