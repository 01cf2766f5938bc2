"""Classes of many nodes, a chunk at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rgcn.graph import SPLITS

if TYPE_CHECKING:
    import polars as pl

    from rgcn.predict import OpenModel

CHUNK = 1 << 16
# The predicate of predictions written as RDF, where nobody knows which relation the labels came from.
PREDICATE = "urn:rgcn:predictedClass"


@dataclass(frozen=True, eq=False)
class ClassAnswers:
    """The classes of n nodes.

    node          int64 [n]
    class_        int64 [n]        the most likely class
    scores        float32 [n, C]   the model's own number for every class
    probabilities float32 [n, C]   calibrated; None where there was nothing to calibrate on
    label         int64 [n]        the class that the graph knows; -1 where it knows none
    split         int8 [n]         index into ("train", "valid", "test") of that label; -1 without one
    """

    node: NDArray[np.int64]
    class_: NDArray[np.int64]
    scores: NDArray[np.float32]
    probabilities: NDArray[np.float32] | None
    label: NDArray[np.int64]
    split: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.node)

    @property
    def score(self) -> NDArray[np.float32]:
        """[n]: of the most likely class."""
        return self.scores[np.arange(len(self)), self.class_]

    @property
    def probability(self) -> NDArray[np.float32] | None:
        """[n]: likewise."""
        return None if self.probabilities is None else self.probabilities[np.arange(len(self)), self.class_]

    def where(self, keep: NDArray[np.bool_]) -> ClassAnswers:
        """The answers marked in keep [n]."""
        return ClassAnswers(
            self.node[keep],
            self.class_[keep],
            self.scores[keep],
            None if self.probabilities is None else self.probabilities[keep],
            self.label[keep],
            self.split[keep],
        )


def nodes_to_classify(opened: OpenModel) -> NDArray[np.int64]:
    """Every node that is no literal."""
    return np.flatnonzero(~opened.graph.is_literal)


def predict_classes(
    opened: OpenModel, ids: Sequence[int] | NDArray[np.int64], chunk: int = CHUNK
) -> Iterator[ClassAnswers]:
    """The classes of nodes, in the order given, `chunk` of them at a time."""
    opened.must_answer("classes")
    labels = opened.graph.labels
    assert labels is not None
    label = np.full(opened.graph.num_nodes, -1, dtype=np.int64)
    split = np.full(opened.graph.num_nodes, -1, dtype=np.int8)
    label[labels.nodes], split[labels.nodes] = labels.classes, labels.splits
    wanted = np.asarray(ids, dtype=np.int64)
    for first in range(0, len(wanted), chunk):
        part = wanted[first : first + chunk]
        logits = opened.logits(part.tolist())
        calibration, probabilities = opened.calibration, None
        if calibration.fitted:
            probabilities = calibration.class_probabilities(logits).float().numpy()
        yield ClassAnswers(
            part, logits.argmax(1).numpy(), logits.float().numpy(), probabilities, label[part], split[part]
        )


def class_frame(opened: OpenModel, answers: ClassAnswers, nested: bool = False) -> pl.DataFrame:
    """A row a node: node, title, class, class_title, score, probability, label, label_split, and of every class its
    score(...) and, where there are any, its probability p(...).

    nested: the classes' scores and probabilities as columns of {class: number}, for JSON.
    """
    import polars as pl

    names, nodes = list(opened.model.classes_), answers.node.tolist()
    titles = [opened.titles.class_(number) for number in range(len(names))]
    known = [number if number >= 0 else None for number in answers.label.tolist()]
    probability = answers.probability
    frame = pl.DataFrame(
        {
            "node": [opened.graph.nodes[node] for node in nodes],
            "title": [opened.titles.of(node) for node in nodes],
            "class": [names[number] for number in answers.class_.tolist()],
            "class_title": [titles[number] for number in answers.class_.tolist()],
            "score": answers.score,
            "probability": [None] * len(nodes) if probability is None else probability,
            "label": [None if number is None else names[number] for number in known],
            "label_split": [None if split < 0 else SPLITS[split] for split in answers.split.tolist()],
        },
        schema_overrides={"label": pl.String, "label_split": pl.String, "probability": pl.Float32},
    )
    numbers = {"scores": ("score", answers.scores), "probabilities": ("p", answers.probabilities)}
    for column, (prefix, table) in numbers.items():
        if table is None:
            if nested:
                frame = frame.with_columns(pl.lit(None).alias(column))
            continue
        columns = [pl.Series(name, table[:, number]) for number, name in enumerate(names)]
        if nested:
            frame = frame.with_columns(pl.DataFrame(columns).to_struct(column))
        else:
            frame = frame.with_columns([series.alias(f"{prefix}({series.name})") for series in columns])
    return frame


def class_triples(opened: OpenModel, answers: ClassAnswers, predicate: str) -> Iterator[str]:
    """Lines of N-Triples, with score and probability in a comment; literals, which can be no subject, are left out."""
    from rgcn.graph.interop.rdf_terms import rdf_class
    from rgcn.predict.writing import Terms, said

    terms = Terms(opened.graph)
    classes = [str(rdf_class(name)) for name in opened.model.classes_]
    shares = [None] * len(answers) if answers.probability is None else answers.probability.tolist()
    rows = zip(answers.node.tolist(), answers.class_.tolist(), answers.score.tolist(), shares, strict=True)
    for node, number, score, p in rows:
        if terms.can_be_subject(node):
            yield f"{terms.node(node)} {predicate} {classes[number]} . # {said(score, p)}"


def label_relation(opened: OpenModel) -> str | None:
    """The relation that the labels were taken from, where the run knows it."""
    return None if opened.config is None else opened.config.data.labels_from
