"""From a question by number to an explanation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from rgcn.answers.by_example import is_ruled_out
from rgcn.answers.links import triple_probabilities
from rgcn.errors import ConfigError, DataError
from rgcn.explain.attribution import Attribution
from rgcn.explain.edge_mask import edge_mask
from rgcn.explain.explanation import Explanation
from rgcn.explain.fidelity import Fidelity, fidelity
from rgcn.explain.integrated_gradients import integrated_gradients
from rgcn.explain.naming import Naming
from rgcn.explain.paths import Path, paths_between, paths_from
from rgcn.explain.question import ClassQuestion, LinkQuestion, Question, frozen
from rgcn.explain.reach import Reach
from rgcn.known import KnownTriples
from rgcn.predict import OpenModel
from rgcn.tasks.estimator import Estimator

Method = Literal["integrated-gradients", "edge-mask"]
METHODS: tuple[str, ...] = get_args(Method)
_FIND: dict[str, Callable[[Question], Attribution]] = {
    "integrated-gradients": integrated_gradients,
    "edge-mask": edge_mask,
}

EDGES, DRAWS = 10, 20
MOST_EDGES, MOST_DRAWS = 1000, 1000
AGAINST, NEIGHBORS, PATHS = 5, 10, 8


def methods_of(opened: OpenModel) -> tuple[str, ...]:
    """The methods that can explain a model's answers; none where it passes no messages."""
    return METHODS if opened.model.num_layers_ else ()


def explain_class(
    opened: OpenModel,
    node: int,
    class_: int | None = None,
    *,
    method: str = "integrated-gradients",
    edges: int = EDGES,
    draws: int = DRAWS,
    seed: int = 0,
) -> Explanation:
    """Which triples made a node this class, or the predicted one where none is given.

    edges  how many triples to name
    draws  random choices of as many, to compare with; `seed` decides which

    >>> import rgcn, tempfile
    >>> from rgcn.predict import open_model
    >>> folder = tempfile.mkdtemp()
    >>> rgcn.NodeClassifier(hidden=8, epochs=10).fit(rgcn.load("world")).save(folder)
    >>> opened = open_model(folder)
    >>> why = explain_class(opened, opened.node("Switzerland"), opened.class_("Europe"), edges=3)
    >>> why.title, len(why.edges)
    ('Why Europe for Switzerland?', 3)
    """
    opened.must_answer("classes")
    _check(method, edges, draws)
    _check_number("node", node, opened.graph.num_nodes)
    model = _hearing(opened)
    network, reach = frozen(model.network_), _reach(model, model.class_asked(node))
    with torch.no_grad():
        predicted = int(model.class_heard(network, reach.field, node)[0].argmax())
    asked = predicted if class_ is None else class_
    _check_number("class", asked, len(model.classes_))
    question = ClassQuestion(reach, opened.calibration, model, network, node, asked)
    about = {
        "kind": "class",
        "node": opened.describe(node),
        "class": opened.describe_class(asked),
        "predicted": opened.describe_class(predicted),
    }
    found = _FIND[method](question)
    measured = fidelity(question, found.supporting(edges), draws, seed)
    paths = paths_from(found, PATHS)
    return _written(Naming(opened, found), question, about, paths, measured, method=method)


def explain_link(
    opened: OpenModel,
    subject: int,
    relation: int,
    object: int,
    *,
    method: str = "integrated-gradients",
    edges: int = EDGES,
    draws: int = DRAWS,
    seed: int = 0,
) -> Explanation:
    """Which triples make this triple likely; arguments as those of `explain_class`.

    >>> import rgcn, tempfile
    >>> from rgcn.predict import open_model
    >>> folder = tempfile.mkdtemp()
    >>> rgcn.LinkPredictor(embedding=8, epochs=2).fit(rgcn.load("world")).save(folder)
    >>> opened = open_model(folder)
    >>> why = explain_link(opened, opened.node("Peru"), opened.relation("borders"), opened.node("Bolivia"))
    >>> why.title
    'Why Peru —borders→ Bolivia?'
    """
    opened.must_answer("links")
    _check(method, edges, draws)
    for node in (subject, object):
        _check_number("node", node, opened.graph.num_nodes)
    _check_number("relation", relation, opened.graph.num_relations)
    model = _hearing(opened)
    reach = _reach(model, [subject, object])
    question = LinkQuestion(reach, opened.calibration, frozen(model.network_), subject, relation, object)
    about = {
        "kind": "link",
        "subject": opened.describe(subject),
        "relation": opened.describe_relation(relation),
        "object": opened.describe(object),
    }
    found = _FIND[method](question)
    same = np.flatnonzero((reach.triples == (subject, relation, object)).all(axis=1))
    itself = int(same[0]) if len(same) else None
    paths = paths_between(found, subject, object, itself, PATHS)
    paths += paths_from(found, PATHS - len(paths))
    triple = torch.tensor([[subject, relation, object]])
    ruled_out = bool(is_ruled_out(opened.graph, KnownTriples.of_graph(opened.graph, "train"), triple)[0])
    by_score = ruled_out and opened.calibration.fitted and opened.calibration.ruled_out_share is not None
    measured = fidelity(question, found.supporting(edges), draws, seed, by_score)
    naming = Naming(opened, found, itself)
    return _written(naming, question, about, paths, measured, method=method, ruled_out=ruled_out)


def _written(
    naming: Naming,
    question: Question,
    about: dict[str, Any],
    paths: list[Path],
    measured: Fidelity,
    *,
    method: str,
    ruled_out: bool = False,
) -> Explanation:
    """What was found, in names."""
    attribution, opened = naming.found, naming.opened
    named, against = attribution.supporting(measured.edges), attribution.opposing(AGAINST)
    with torch.no_grad():
        output = question.output(question.reach.field)
    return Explanation(
        question=about,
        model=opened.name,
        method=method,
        probability=_probability(opened, question, output),
        score=float(question.score(output)),
        own_share=attribution.own_share,
        ruled_out=ruled_out,
        added=tuple(opened.describe(node) for node in question.reach.asked if node in opened.new_nodes),
        edges=naming.edges(named),
        against=naming.edges(against),
        connections=naming.edges(attribution.connections(np.concatenate([named, against]))),
        neighbors=naming.neighbors(NEIGHBORS),
        paths=tuple(map(naming.path, paths)),
        fidelity=measured,
        considered=len(question.reach),
    )


def _probability(opened: OpenModel, question: Question, output: Tensor) -> float | None:
    """What a prediction of the same answer says."""
    if not isinstance(question, LinkQuestion):
        return question.probability(output)
    triple = torch.tensor([[question.subject, question.relation, question.object]])
    found = triple_probabilities(opened, triple, output)
    return None if found is None else float(found[0])


def _hearing(opened: OpenModel) -> Estimator:
    """The model, which must hear messages for triples to decide anything."""
    model = opened.model
    if not model.num_layers_:
        raise DataError(
            f"{model.model.title} has no message passing: no triple decides its answers, only what it learned about "
            "the nodes; explain a run of rgcn or c-rgcn instead"
        )
    return model


def _reach(model: Estimator, asked: list[int]) -> Reach:
    return Reach.of(model.adjacency_, model.message_triples_, asked, model.num_layers_)


def _check(method: str, edges: int, draws: int) -> None:
    if method not in METHODS:
        raise ConfigError(f"unknown method {method!r}; there are {' and '.join(METHODS)}")
    for name, value, most in (("edges", edges, MOST_EDGES), ("draws", draws, MOST_DRAWS)):
        if not 1 <= value <= most:
            raise ConfigError(f"{name} lies in 1..{most}, not {value}")


def _check_number(kind: str, number: int, size: int) -> None:
    if not 0 <= number < size:
        raise DataError(f"there is no {kind} {number}: {kind} numbers lie in 0..{size - 1}")
