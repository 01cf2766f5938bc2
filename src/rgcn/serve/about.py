"""What the server says of a model: a line in the list, the details, the card, and something to begin with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from rgcn.errors import RgcnError
from rgcn.explain import methods_of
from rgcn.graph import NodeKind
from rgcn.pages.model_card import model_card
from rgcn.runs.folder import RunFolder
from rgcn.serve.shapes import Answered, Class, Node, Relation
from rgcn.tasks.task import Task

if TYPE_CHECKING:
    from rgcn.serve.served import Served


FEW, NODES = 2, 5


class RelationWithCount(Relation):
    count: int = Field(description="Triples of this relation in the graph.")


class ClassWithCount(Class):
    count: int = Field(description="Nodes labelled with this class.")


class Counts(Answered):
    nodes: int
    relations: int
    triples: int
    classes: int


class ModelLine(Answered):
    """A served model in a line."""

    name: str
    task: str
    answers: list[str] = Field(description="Kinds of questions it answers: `classes`, `links`.")
    model: str
    dataset: str
    counts: Counts
    headline: str = Field(description="The figure it is judged by, in words.")


class Examples(Answered):
    """Something to begin with."""

    nodes: list[Node]
    relation: str | None


class ModelDetails(ModelLine):
    """Everything about a model that a page or a program needs to begin."""

    seed: int | None
    created: str | None
    metrics: dict[str, dict[str, Any]]
    relations: list[RelationWithCount]
    classes: list[ClassWithCount]
    calibration: dict[str, Any] = Field(description="How scores become probabilities, and how well that works.")
    explain_methods: list[str] = Field(description="Empty where the model looks at no neighbors.")
    examples: Examples


def line(served: Served) -> dict[str, Any]:
    """The model in the list of models."""
    graph, opened = served.graph, served.opened
    return {
        "name": served.name,
        "task": opened.task.name,
        "answers": list(opened.task.answers),
        "model": opened.model.model.title,
        "dataset": opened.about.get("dataset") or graph.name or "unnamed",
        "counts": {
            "nodes": graph.num_nodes,
            "relations": graph.num_relations,
            "triples": graph.num_triples,
            "classes": len(opened.model.classes_) if opened.answers("classes") else 0,
        },
        "headline": headline(opened.task, opened.result),
    }


def headline(task: Task, result: dict[str, Any] | None) -> str:
    """The figure a model is judged by.

    >>> from rgcn.tasks.node_classification import NodeClassification
    >>> headline(NodeClassification(), {"metrics": {"test": {"accuracy": 0.9667}}})
    'test accuracy 96.7 %'
    """
    metric, metrics = task.headline, (result or {}).get("metrics") or {}
    for split in ("test", "valid"):
        value = (metrics.get(split) or {}).get(metric.name)
        if value is not None:
            return f"{split} {metric.title} {metric.words(value)}"
    return "not measured"


def details(served: Served) -> dict[str, Any]:
    """The line, and everything to begin with."""
    graph, opened, about = served.graph, served.opened, line(served)
    relations = np.bincount(graph.triples[:, 1], minlength=graph.num_relations).tolist()
    labels = graph.labels if opened.answers("classes") else None
    classes = [] if labels is None else np.bincount(labels.classes, minlength=labels.num_classes).tolist()
    examples = example_nodes(served)
    relation = example_relation(served, examples[0])
    return {
        **about,
        "seed": opened.about.get("seed", opened.model.seed),
        "created": opened.about.get("created"),
        "metrics": (opened.result or {}).get("metrics") or {},
        "relations": [{**opened.describe_relation(i), "count": count} for i, count in enumerate(relations)],
        "classes": [{**opened.describe_class(i), "count": count} for i, count in enumerate(classes)],
        "calibration": served.calibration.as_dict(),
        "explain_methods": list(methods_of(opened)),
        "examples": {
            "nodes": [opened.describe(node) for node in examples],
            "relation": None if relation is None else graph.relations[relation],
        },
    }


def card(served: Served) -> str:
    """The model card in Markdown; a few words where there was no run to make one of."""
    opened = served.opened
    try:
        if opened.about:
            return model_card(RunFolder(opened.path), opened.model)
    except RgcnError as error:
        return f"# {served.name}\n\nNo card could be made: {error}\n"
    about = line(served)
    counts = ", ".join(f"{about['counts'][what]:,} {what}" for what in ("nodes", "relations", "triples"))
    words = f"A {about['model']} model for {about['task']}, saved outside a run, over {about['dataset']} ({counts})."
    return f"# {served.name}\n\n{words}\n"


# -- something to begin with -----------------------------------------------------------------------------


def example_nodes(served: Served) -> list[int]:
    """A few well-connected nodes; of a graph with labels, those that have one."""
    graph, degree = served.graph, served.facts.degree.astype(np.float64)
    worth = degree.copy()
    if graph.node_kinds is not None:
        worth[graph.node_kinds != NodeKind.IRI] = -1.0
    if graph.labels is not None:
        worth[graph.labels.nodes] += degree.max() + 1  # labelled ones first: their answers can be checked
    return [int(node) for node in np.argsort(-worth, kind="stable")[:NODES]]


def example_relation(served: Served, node: int) -> int | None:
    """The relation of which a node is most often the subject, else the commonest one; None without triples."""
    triples = served.graph.triples
    if not len(triples):
        return None
    own = triples[triples[:, 0] == node, 1]
    return int(np.bincount(own if len(own) else triples[:, 1]).argmax())


class Shown:
    """The things that the examples of a model's endpoints are about.

    words  what stands for a parameter of some name, where an example does not say
    """

    def __init__(self, served: Served) -> None:
        graph, labels = served.graph, served.graph.labels
        self.node, *others = example_nodes(served)
        self.relation = example_relation(served, self.node) or 0
        linked = graph.triples[(graph.triples[:, 0] == self.node) & (graph.triples[:, 1] == self.relation), 2]
        self.object = int(linked[0]) if len(linked) else others[0] if others else self.node
        self.words = {
            "model": served.name,
            "q": served.opened.titles.of(self.node)[:4],
            "node": graph.nodes[self.node],
            "class": labels.names[0] if labels is not None and len(labels.names) else "a class",
            "subject": graph.nodes[self.node],
            "relation": graph.relations[self.relation] if graph.num_relations else "a relation",
            "object": graph.nodes[self.object],
        }
