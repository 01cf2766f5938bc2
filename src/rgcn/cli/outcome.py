"""What a person sees when a training is done: the figures, and a few predictions to judge by eye."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rgcn.errors import local_name
from rgcn.graph import SPLITS, KnowledgeGraph
from rgcn.runs import RunResult
from rgcn.tasks import LinkPredictor, NodeClassifier
from rgcn.words import count, duration

EXAMPLES = 10


def print_outcome(result: RunResult) -> None:
    """Figures, then examples."""
    values = result.as_dict()
    stored, counted = values["stored_parameters"], values["parameters"]
    parameters = count(counted, "parameter") + (f" ({stored:,} of them stored)" if stored != counted else "")
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"[bold]{values['model']}[/] on [bold]{escape(values['dataset'])}[/], seed {values['seed']}: "
        f"{count(values['epochs'], 'epoch')} in {duration(values['seconds'])}, {parameters}"
    )
    if isinstance(result.model, NodeClassifier):
        accuracies = "  ".join(f"{split} {m['accuracy']:.2%}" for split, m in values["metrics"].items())
        console.print(f"accuracy  {accuracies}{_majority(result.model)}")
        _print_classes(result.model)
    else:
        for split, metrics in values["metrics"].items():
            figures = "  ".join(f"{name} {value:.3f}" for name, value in metrics.items() if name != "count")
            console.print(f"{split:<6} {figures}   ({metrics['count']:,} filtered queries)")
        _print_links(result.model)


def _majority(classifier: NodeClassifier) -> str:
    """What always guessing the most frequent training class would get on the test split."""
    labels = classifier.graph_.labels
    assert labels is not None
    _, test = labels.of("test")
    if not len(test):
        return ""
    most = np.bincount(labels.of("train")[1]).argmax()
    return f"   (always {escape(repr(local_name(labels.names[int(most)])))}: test {float((test == most).mean()):.2%})"


def _print_classes(classifier: NodeClassifier) -> None:
    """A few test nodes, spread over the split, with the class predicted and, where that is wrong, the true one."""
    labels = classifier.graph_.labels
    assert labels is not None
    split = next((s for s in reversed(SPLITS) if len(labels.of(s)[0])), "train")
    nodes, classes = labels.of(split)
    chosen = _spread(len(nodes))
    table = Table(title=f"{len(chosen)} of {len(nodes)} {split} nodes", title_justify="left")
    for name in ("node", "predicted", "sure", "truly"):
        table.add_column(name, justify="right" if name == "sure" else "left", overflow="fold")
    predictions = classifier.predict(nodes[chosen].tolist())
    for prediction, true_class in zip(predictions, classes[chosen].tolist(), strict=True):
        truth = labels.names[true_class]
        right = prediction.label == truth
        table.add_row(
            _shown(prediction.node),
            f"[{'green' if right else 'red'}]{_shown(prediction.label)}[/]",
            f"{prediction.probability:.0%}",
            "" if right else _shown(truth),
        )
    Console(highlight=False).print(table)


def _print_links(predictor: LinkPredictor) -> None:
    """Questions (subject, relation, ?) from held-out triples: what the model answers, and what is true."""
    graph = predictor.graph_
    split = next((s for s in ("test", "valid") if _count(graph, s)), "train")
    triples = graph.split_triples(split)
    known = _objects(graph.split_triples("train")) if split != "train" else {}
    chosen = _spread(len(triples))
    title = f"{len(chosen)} of {len(triples)} {split} triples: new answers, best first"
    table = Table(title=title, title_justify="left")
    for name in ("question", "the model says", "held out"):
        table.add_column(name, overflow="fold")
    for s, r, o in triples[chosen].tolist():
        trained = known.get((s, r), set())
        best = [
            p for p in predictor.predict(subject=s, relation=r, k=len(trained) + 3) if _new(graph, p.object, trained)
        ]
        answer = graph.nodes[o]
        words = [f"[green]{_shown(p.object)}[/]" if p.object == answer else _shown(p.object) for p in best[:3]]
        question = f"{_shown(graph.nodes[s])} —{_shown(graph.relations[r])}→ ?"
        table.add_row(question, ", ".join(words), _shown(answer))
    Console(highlight=False).print(table)


def _count(graph: KnowledgeGraph, split: str) -> int:
    return 0 if graph.triple_splits is None else len(graph.split_triples(split))


def _objects(triples: NDArray[np.int64]) -> dict[tuple[int, int], set[int]]:
    known: dict[tuple[int, int], set[int]] = {}
    for s, r, o in triples.tolist():
        known.setdefault((s, r), set()).add(o)
    return known


def _new(graph: KnowledgeGraph, name: str, trained: set[int]) -> bool:
    return graph.nodes.id(name) not in trained


def _shown(name: str) -> str:
    """A name in short, and such that no part of it is taken for markup."""
    return escape(local_name(name))


def _spread(length: int) -> NDArray[np.int64]:
    """Up to EXAMPLES positions, evenly over a list."""
    return np.unique(np.linspace(0, length - 1, min(EXAMPLES, length)).astype(np.int64))
