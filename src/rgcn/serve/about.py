"""What the server says of a model: a line in the list, the details, the card. Made once, when it is loaded."""

from __future__ import annotations

from typing import Any

import numpy as np

from rgcn.errors import RgcnError
from rgcn.explain import methods_of
from rgcn.graph import NodeKind
from rgcn.predict.opened import CLASSIFIES
from rgcn.runs.folder import RunFolder
from rgcn.runs.model_card import model_card
from rgcn.serve.served import EXAMPLES, Served


def line(served: Served) -> dict[str, Any]:
    """The model in the list of models."""
    graph, opened = served.graph, served.opened
    return {
        "name": served.name,
        "task": opened.task,
        "model": opened.model.model.title,
        "dataset": opened.about.get("dataset") or graph.name or "unnamed",
        "nodes": graph.num_nodes,
        "relations": graph.num_relations,
        "triples": graph.num_triples,
        "headline": headline(opened.task, opened.result),
    }


def headline(task: str, result: dict[str, Any] | None) -> str:
    """The figure a model is judged by.

    >>> headline("node-classification", {"metrics": {"valid": {"accuracy": 0.9}, "test": {"accuracy": 0.9667}}})
    'test accuracy 96.7 %'
    """
    metrics = (result or {}).get("metrics") or {}
    for split in ("test", "valid"):
        figures = metrics.get(split) or {}
        if task == CLASSIFIES and "accuracy" in figures:
            return f"{split} accuracy {100 * figures['accuracy']:.1f} %"
        if "mrr" in figures:
            return f"{split} MRR {figures['mrr']:.3f}"
    return "not measured"


def details(served: Served) -> dict[str, Any]:
    """Everything about the model that a page or a program needs to begin."""
    graph, opened = served.graph, served.opened
    about = line(served)
    relation_counts = np.bincount(graph.triples[:, 1], minlength=graph.num_relations)
    labels = graph.labels if opened.task == CLASSIFIES else None
    class_counts = [] if labels is None else np.bincount(labels.classes, minlength=labels.num_classes).tolist()
    examples = example_nodes(served)
    relation = example_relation(served, examples[0])
    return {
        **{key: about[key] for key in ("name", "task", "model", "dataset")},
        "seed": opened.about.get("seed", opened.model.seed),
        "created": opened.about.get("created"),
        "metrics": (opened.result or {}).get("metrics") or {},
        "counts": {
            **{key: about[key] for key in ("nodes", "relations", "triples")},
            "classes": len(class_counts),
        },
        "relations": [
            {**opened.describe_relation(i), "count": count} for i, count in enumerate(relation_counts.tolist())
        ],
        "classes": [{**opened.describe_class(i), "count": count} for i, count in enumerate(class_counts)],
        "calibration": served.calibration.as_dict(),
        "explain_methods": explain_methods(served),
        "examples": {
            "nodes": [opened.describe(node) for node in examples],
            "relation": None if relation is None else graph.relations[relation],
        },
    }


def explain_methods(served: Served) -> list[str]:
    """How answers can be explained; a model that passes no messages has no edges to blame."""
    return list(methods_of(served.opened))


def example_nodes(served: Served) -> list[int]:
    """A few well-connected nodes; of a classifier, those that have a label."""
    graph, degree = served.graph, served.facts.degree.astype(np.float64)
    worth = degree.copy()
    if graph.node_kinds is not None:
        worth[graph.node_kinds != NodeKind.IRI] = -1.0
    if graph.labels is not None:
        worth[graph.labels.nodes] += degree.max() + 1  # labelled ones first: their answers can be checked
    return [int(node) for node in np.argsort(-worth, kind="stable")[:EXAMPLES]]


def example_relation(served: Served, node: int) -> int | None:
    """The relation of which a node is most often the subject, else the commonest one; None without triples."""
    triples = served.graph.triples
    if not len(triples):
        return None
    own = triples[triples[:, 0] == node, 1]
    return int(np.bincount(own if len(own) else triples[:, 1]).argmax())


def card(served: Served) -> str:
    """The model card in Markdown; a few words where there was no run to make one of."""
    opened = served.opened
    try:
        if opened.about:
            return model_card(RunFolder(opened.path), opened.model)
    except RgcnError as error:
        return f"# {served.name}\n\nNo card could be made: {error}\n"
    about = line(served)
    counts = f"{about['nodes']:,} nodes, {about['relations']:,} relations, {about['triples']:,} triples"
    words = f"A {about['model']} model for {about['task']}, saved outside a run, over {about['dataset']} ({counts})."
    return f"# {served.name}\n\n{words}\n"
