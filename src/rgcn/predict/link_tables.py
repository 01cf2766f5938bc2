"""Answers to questions about links, and new triples, as rows and as N-Triples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rgcn.answers.links import LinkAnswers
from rgcn.predict.writing import Terms

if TYPE_CHECKING:
    import polars as pl

    from rgcn.answers.completion import Completion
    from rgcn.predict import OpenModel

CHUNK = 1 << 16


@dataclass(frozen=True, eq=False)
class ScoredTriples:
    """Triples with what a model says of them.

    triples      int64 [n, 3]
    score        float32 [n]   σ of the model's raw score: its own number between 0 and 1
    raw_score    float32 [n]
    probability  float32 [n]   calibrated
    known        bool [n]      whether the graph has the triple
    """

    triples: NDArray[np.int64]
    score: NDArray[np.float32]
    raw_score: NDArray[np.float32]
    probability: NDArray[np.float32]
    known: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.triples)

    def __getitem__(self, part: slice | NDArray[np.bool_]) -> ScoredTriples:
        return ScoredTriples(
            self.triples[part], self.score[part], self.raw_score[part], self.probability[part], self.known[part]
        )

    @classmethod
    def of_answers(
        cls, given: Tensor, relation: Tensor, for_objects: bool | Tensor, answers: LinkAnswers
    ) -> ScoredTriples:
        """The triples that answers make with their questions, question by question, best first."""
        side = for_objects if isinstance(for_objects, Tensor) else torch.full(given.shape, for_objects)
        row, column = torch.nonzero(answers.node >= 0, as_tuple=True)
        node, asked = answers.node[row, column], given[row]
        subject, object_ = torch.where(side[row], asked, node), torch.where(side[row], node, asked)
        return cls._of(
            torch.stack([subject, relation[row], object_], dim=1).numpy(),
            answers.score[row, column],
            answers.probability[row, column].float().numpy(),
            answers.known[row, column].numpy(),
        )

    @classmethod
    def of_completion(cls, completion: Completion) -> ScoredTriples:
        """New triples, best first."""
        new = np.zeros(len(completion), dtype=bool)
        return cls._of(completion.triples, torch.from_numpy(completion.score), completion.probability, new)

    @classmethod
    def _of(
        cls,
        triples: NDArray[np.int64],
        raw: Tensor,
        probability: NDArray[np.float32],
        known: NDArray[np.bool_],
    ) -> ScoredTriples:
        return cls(triples, torch.sigmoid(raw.float()).numpy(), raw.float().numpy(), probability, known)


def link_frames(opened: OpenModel, rows: ScoredTriples) -> Iterator[pl.DataFrame]:
    """subject, relation, object, their titles, score, probability, known, raw_score; at least one frame."""
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
                "probability": part.probability,
                "known": part.known,
                "raw_score": part.raw_score,
            },
            schema_overrides=dict.fromkeys(
                ("subject", "relation", "object", "subject_title", "relation_title", "object_title"), pl.String
            ),
        )


def link_triples(opened: OpenModel, rows: ScoredTriples) -> Iterator[str]:
    """Lines of N-Triples, score and probability in a comment; literals, which can be no subject, are left out."""
    terms = Terms(opened.graph)
    for first in range(0, len(rows), CHUNK):
        part = rows[first : first + CHUNK]
        numbers = zip(part.triples.tolist(), part.score.tolist(), part.probability.tolist(), strict=True)
        for (subject, relation, object_), score, p in numbers:
            if terms.can_be_subject(subject):
                line = f"{terms.node(subject)} {terms.relation(relation)} {terms.node(object_)} ."
                yield f"{line} # score {score:.4f}, probability {p:.4g}"
