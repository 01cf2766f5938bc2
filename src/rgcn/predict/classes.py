"""Classes of many nodes, a chunk at a time, with calibrated probabilities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
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
    probability   float32 [n]      its probability, calibrated
    probabilities float32 [n, C]   those of all classes
    label         int64 [n]        the class that the graph knows; -1 where it knows none
    split         int8 [n]         index into ("train", "valid", "test") of that label; -1 without one
    """

    node: NDArray[np.int64]
    class_: NDArray[np.int64]
    probability: NDArray[np.float32]
    probabilities: NDArray[np.float32]
    label: NDArray[np.int64]
    split: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.node)

    def where(self, keep: NDArray[np.bool_]) -> ClassAnswers:
        """The answers marked in keep [n]."""
        return ClassAnswers(
            self.node[keep],
            self.class_[keep],
            self.probability[keep],
            self.probabilities[keep],
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
    model = opened.classifier
    labels = opened.graph.labels
    assert labels is not None
    label = np.full(opened.graph.num_nodes, -1, dtype=np.int64)
    split = np.full(opened.graph.num_nodes, -1, dtype=np.int8)
    label[labels.nodes], split[labels.nodes] = labels.classes, labels.splits
    wanted = np.asarray(ids, dtype=np.int64)
    for first in range(0, len(wanted), chunk):
        part = wanted[first : first + chunk]
        logits = torch.from_numpy(model.embeddings(part.tolist(), layer=-1))
        probabilities = opened.calibration.class_probabilities(logits).float().numpy()
        best = probabilities.argmax(1)
        yield ClassAnswers(
            part, best, probabilities[np.arange(len(part)), best], probabilities, label[part], split[part]
        )


def class_frame(opened: OpenModel, answers: ClassAnswers, nested: bool = False) -> pl.DataFrame:
    """A row a node: node, title, class, class_title, probability, label, label_split, and p(...) of every class.

    nested: the classes' probabilities as one column of {class: probability}, for JSON.
    """
    import polars as pl

    names, nodes = list(opened.classifier.classes_), answers.node.tolist()
    titles = [opened.titles.class_(number) for number in range(len(names))]
    known = [number if number >= 0 else None for number in answers.label.tolist()]
    frame = pl.DataFrame(
        {
            "node": [opened.graph.nodes[node] for node in nodes],
            "title": [opened.titles.of(node) for node in nodes],
            "class": [names[number] for number in answers.class_.tolist()],
            "class_title": [titles[number] for number in answers.class_.tolist()],
            "probability": answers.probability,
            "label": [None if number is None else names[number] for number in known],
            "label_split": [None if split < 0 else SPLITS[split] for split in answers.split.tolist()],
        },
        schema_overrides={"label": pl.String, "label_split": pl.String},
    )
    columns = [pl.Series(name, answers.probabilities[:, number]) for number, name in enumerate(names)]
    if nested:
        return frame.insert_column(5, pl.DataFrame(columns).to_struct("probabilities"))
    return frame.with_columns([column.alias(f"p({column.name})") for column in columns])


def class_triples(opened: OpenModel, answers: ClassAnswers, predicate: str) -> Iterator[str]:
    """Lines of N-Triples, with the probability in a comment; literals, which can be no subject, are left out."""
    from rgcn.graph.interop.rdf import rdf_class
    from rgcn.predict.writing import Terms

    terms = Terms(opened.graph)
    classes = [str(rdf_class(name)) for name in opened.classifier.classes_]
    for node, number, p in zip(
        answers.node.tolist(), answers.class_.tolist(), answers.probability.tolist(), strict=True
    ):
        if terms.can_be_subject(node):
            yield f"{terms.node(node)} {predicate} {classes[number]} . # {p:.4g}"


def label_relation(opened: OpenModel) -> str | None:
    """The relation that the labels were taken from, where the run knows it."""
    return None if opened.config is None else opened.config.data.labels_from
