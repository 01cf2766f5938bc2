"""What the server says of a model: a line in the list, the details, the card, and something to begin with."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from msgspec.structs import astuple

from rgcn.errors import RgcnError
from rgcn.explain import methods_of
from rgcn.graph import NodeKind
from rgcn.runs.folder import RunFolder
from rgcn.runs.model_card import model_card
from rgcn.serve.served import Served
from rgcn.serve.shapes import AnswerShape, Class, Node, Relation
from rgcn.tasks.task import Task

FEW, NODES = 2, 5


class RelationWithCount(Relation, frozen=True):
    count: Annotated[int, Meta(description="Triples of this relation in the graph.")]


class ClassWithCount(Class, frozen=True):
    count: Annotated[int, Meta(description="Nodes labelled with this class.")]


class GraphCounts(AnswerShape):
    nodes: int
    relations: int
    triples: int
    classes: int


class ModelLine(AnswerShape):
    """A served model in a line."""

    name: str
    task: str
    answers: Annotated[list[str], Meta(description="Kinds of questions it answers: `classes`, `links`.")]
    model: str
    dataset: str
    counts: GraphCounts
    headline: Annotated[str, Meta(description="The figure it is judged by, in words.")]


class ModelExamples(AnswerShape):
    """Something to begin with."""

    nodes: list[Node]
    relation: str | None


Calibrated = Annotated[dict[str, Any], Meta(description="How scores become probabilities, and how well that works.")]


class ModelDetails(ModelLine):
    """Everything about a model that a page or a program needs to begin."""

    seed: int | None
    created: str | None
    metrics: dict[str, dict[str, Any]]
    relations: list[RelationWithCount]
    classes: list[ClassWithCount]
    calibration: Calibrated
    explain_methods: Annotated[list[str], Meta(description="Empty where the model looks at no neighbors.")]
    examples: ModelExamples


def line(served: Served) -> ModelLine:
    """The model in the list of models."""
    graph, opened = served.graph, served.opened
    classes = len(opened.model.classes_) if opened.answers("classes") else 0
    counts = GraphCounts(graph.num_nodes, graph.num_relations, graph.num_triples, classes)
    dataset = opened.about.get("dataset") or graph.name or "unnamed"
    about, figure = (served.name, opened.task.name, list(opened.task.answers)), headline(opened.task, opened.result)
    return ModelLine(*about, opened.model.model.title, dataset, counts, figure)


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


def details(served: Served) -> ModelDetails:
    """The line, and everything to begin with."""
    graph, opened, shown = served.graph, served.opened, Shown(served)
    labels = graph.labels if opened.answers("classes") else None
    relations = np.bincount(graph.triples[:, 1], minlength=graph.num_relations).tolist()
    classes = [] if labels is None else np.bincount(labels.classes, minlength=labels.num_classes).tolist()
    return ModelDetails(
        *astuple(line(served)),
        seed=opened.about.get("seed", opened.model.seed),
        created=opened.about.get("created"),
        metrics=(opened.result or {}).get("metrics") or {},
        relations=[RelationWithCount(r.name, r.title, n) for r, n in zip(served.relations, relations, strict=True)],
        classes=[ClassWithCount(c.name, c.title, n) for c, n in zip(served.classes, classes, strict=False)],
        calibration=served.calibration.as_dict(),
        explain_methods=list(methods_of(opened)),
        examples=ModelExamples(list(map(served.node, shown.nodes)), shown.words.get("relation")),
    )


def card(served: Served) -> str:
    """The model card in Markdown; a few words where there was no run to make one of."""
    opened = served.opened
    try:
        if opened.about:
            return model_card(RunFolder(opened.path), opened.model)
    except RgcnError as error:
        return f"# {served.name}\n\nNo card could be made: {error}\n"
    about = line(served)
    counts = ", ".join(f"{getattr(about.counts, what):,} {what}" for what in ("nodes", "relations", "triples"))
    words = f"A {about.model} model for {about.task}, saved outside a run, over {about.dataset} ({counts})."
    return f"# {served.name}\n\n{words}\n"


class Shown:
    """Something to begin with, and what the examples of a model's endpoints are about.

    nodes   a few well-connected ones; of a graph with labels, those that have one
    triple  one of the first node with the relation of which it is most often the subject, where there is one
    words   what stands for a parameter of some name, where an example does not say
    """

    def __init__(self, served: Served) -> None:
        graph, labels = served.graph, served.graph.labels
        subject, relation, object_ = graph.triples.T
        worth = np.bincount(np.concatenate([subject, object_[subject != object_]]), minlength=graph.num_nodes)
        if graph.node_kinds is not None:
            worth[graph.node_kinds != NodeKind.IRI] = -1
        if labels is not None:
            worth[labels.nodes] += worth.max() + 1  # their answers can be checked
        self.nodes: list[int] = np.argsort(-worth, kind="stable")[:NODES].tolist()
        first = self.nodes[0]
        used = relation[subject == first] if (subject == first).any() else relation
        often = int(np.bincount(used, minlength=1).argmax())
        linked = object_[(subject == first) & (relation == often)]
        self.triple = first, often, int(linked[0]) if len(linked) else self.nodes[-1]
        ends = dict.fromkeys(("node", "subject"), graph.nodes[first])
        self.words = {"model": served.name, "q": served.opened.titles.of(first)[:4], **ends}
        self.words["object"] = graph.nodes[self.triple[2]]
        if labels is not None and len(labels.names):
            self.words["class"] = labels.names[0]
        if len(used):
            self.words["relation"] = graph.relations[often]
