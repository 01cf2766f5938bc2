"""From a question by number to an explanation in names."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from rgcn.errors import ConfigError, DataError
from rgcn.explain.attribution import Attribution, Path, edge_mask, integrated_gradients, paths_between, paths_from
from rgcn.explain.best_paths import best_paths, best_paths_both_ways, gradients
from rgcn.explain.explanation import ExplainedEdge, ExplainedNeighbor, ExplainedPath, Explanation, Named, Step
from rgcn.explain.fidelity import fidelity
from rgcn.explain.question import ClassQuestion, LinkQuestion, Question, Reach, frozen
from rgcn.links.top_k import standing_of
from rgcn.models.estimator import Estimator
from rgcn.predict import OpenModel

Method = Literal["paths", "integrated-gradients", "edge-mask"]
METHODS: tuple[str, ...] = get_args(Method)
_FIND: dict[str, Callable[[Question], Attribution]] = {
    "paths": gradients,
    "integrated-gradients": integrated_gradients,
    "edge-mask": edge_mask,
}

EDGES, DRAWS = 10, 20
MOST_EDGES, MOST_DRAWS = 1000, 1000
AGAINST, NEIGHBORS, PATHS = 5, 10, 8


def methods_of(opened: OpenModel) -> tuple[str, ...]:
    """The methods that can explain a model's answers, the one to begin with first; none where it passes no messages."""
    if not opened.model.num_layers_:
        return ()
    # Paths lead from the asked node to the answer: only networks that walk so, and hide what is asked, have them.
    return METHODS if opened.model.hides_asked_ else METHODS[1:]


def explain_class(
    opened: OpenModel,
    node: int,
    class_: int | None = None,
    *,
    method: str | None = None,
    edges: int = EDGES,
    draws: int = DRAWS,
    seed: int = 0,
) -> Explanation:
    """Which triples made a node this class, or the predicted one where none is given.

    method one of `methods_of`, the first of them where none is given
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
    model, method = _hearing(opened, method, edges, draws)
    _check_number("node", node, opened.graph.num_nodes)
    network, links = frozen(model.network_), model.class_links(node)
    reach = _reach(model, model.class_asked(node), links)
    with torch.no_grad():
        predicted = int(model.class_heard(network, reach.field, node)[0].argmax())
    asked = predicted if class_ is None else class_
    _check_number("class", asked, len(model.classes_))
    if reach.walk is not None:
        reach = replace(reach, walk=(node, links[asked][2]))
    question = ClassQuestion(reach, opened.calibration, model, network, node, asked)
    about = {
        "kind": "class",
        "node": opened.describe(node),
        "class": opened.describe_class(asked),
        "predicted": opened.describe_class(predicted),
    }
    return _explained(opened, question, about, method, edges, draws, seed)


def explain_link(
    opened: OpenModel,
    subject: int,
    relation: int,
    object: int,
    *,
    method: str | None = None,
    edges: int = EDGES,
    draws: int = DRAWS,
    seed: int = 0,
) -> Explanation:
    """Which triples make this triple likely; arguments as those of `explain_class`."""
    opened.must_answer("links")
    model, method = _hearing(opened, method, edges, draws)
    for node in (subject, object):
        _check_number("node", node, opened.graph.num_nodes)
    _check_number("relation", relation, opened.graph.num_relations)
    triple = (subject, relation, object)
    reach, standing = _reach(model, [subject, object], [triple], both=True), standing_of(opened, torch.tensor([triple]))
    question = LinkQuestion(reach, opened.calibration, frozen(model.network_), *triple, standing).shifted()
    about = {
        "kind": "link",
        "subject": opened.describe(subject),
        "relation": opened.describe_relation(relation),
        "object": opened.describe(object),
        "known": bool(standing.known[0]),
    }
    same = np.flatnonzero((reach.triples == triple).all(axis=1))
    itself = int(same[0]) if len(same) else None
    return _explained(opened, question, about, method, edges, draws, seed, itself, bool(standing.ruled_out[0]))


def _explained(
    opened: OpenModel,
    question: Question,
    about: dict[str, Any],
    method: str,
    edges: int,
    draws: int,
    seed: int,
    itself: int | None = None,
    ruled_out: bool = False,
) -> Explanation:
    """itself: the place in reach of the triple that is asked about, where it is there."""
    found, reach, calibration = _FIND[method](question), question.reach, opened.calibration
    by_score = ruled_out and calibration.fitted and calibration.ruled_out_share is not None
    with torch.no_grad():
        output = question.output(reach.field)
    if reach.walk is not None:
        find = best_paths_both_ways if len(output) == 2 else best_paths
        paths = find(found, *reach.walk, max(PATHS, edges))
    else:
        ends = (question.subject, question.object) if isinstance(question, LinkQuestion) else None
        paths = paths_between(found, *ends, itself, PATHS) if ends else []
        paths += paths_from(found, PATHS - len(paths))
    named, against = found.supporting(edges, paths if method == "paths" else []), found.opposing(AGAINST)
    measured = fidelity(question, named, draws, seed, by_score)
    total, neighbors = float(np.abs(found.triples).sum()) or 1.0, found.neighbors()
    of_neighbors = sum(abs(importance) for _, importance in neighbors) or 1.0

    def triple(place: int) -> tuple[Named, Named, Named]:
        subject, relation, object_ = reach.triples[place].tolist()
        return opened.describe(subject), opened.describe_relation(relation), opened.describe(object_)

    def explained_edges(places: NDArray[np.int64]) -> tuple[ExplainedEdge, ...]:
        rows = zip(places.tolist(), found.triples[places].tolist(), reach.hop[places].tolist(), strict=True)
        return tuple(
            ExplainedEdge(*triple(place), importance, abs(importance) / total, hop, place == itself)
            for place, importance, hop in rows
        )

    def explained_path(path: Path) -> ExplainedPath:
        steps, here = [], path.start
        for place in path.triples:
            subject, _, object_ = reach.triples[place].tolist()
            steps.append(Step(*triple(place), forward=subject == here))
            here = object_ if subject == here else subject
        return ExplainedPath(tuple(steps), path.importance)

    return Explanation(
        question=about,
        model=opened.name,
        method=method,
        probability=question.predicted(output),
        score=float(question.score(output)),
        own_share=found.own_share,
        ruled_out=ruled_out,
        hidden=reach.hidden,
        walked=reach.walk is not None,
        added=tuple(opened.describe(node) for node in reach.asked if node in opened.new_nodes),
        edges=explained_edges(named),
        against=explained_edges(against),
        connections=explained_edges(found.connections(np.concatenate([named, against]))),
        neighbors=tuple(
            ExplainedNeighbor(opened.describe(node), importance, abs(importance) / of_neighbors)
            for node, importance in neighbors[:NEIGHBORS]
            if importance
        ),
        paths=tuple(map(explained_path, paths[:PATHS])),
        fidelity=measured,
        considered=len(reach),
    )


def _hearing(opened: OpenModel, method: str | None, edges: int, draws: int) -> tuple[Estimator, str]:
    """The model, which must hear messages for triples to decide anything, and the method."""
    if method is not None and method not in METHODS:
        raise ConfigError(f"unknown method {method!r}; there are {', '.join(METHODS)}")
    for name, value, most in (("edges", edges, MOST_EDGES), ("draws", draws, MOST_DRAWS)):
        if not 1 <= value <= most:
            raise ConfigError(f"{name} lies in 1..{most}, not {value}")
    model = opened.model
    if not model.num_layers_:
        raise DataError(
            f"{model.model.title} has no message passing: no triple decides its answers, only what it learned about "
            "the nodes; explain a run of rgcn or c-rgcn instead"
        )
    possible = methods_of(opened)
    if method is not None and method not in possible:
        raise DataError(
            f"{model.model.title} compares nodes and walks no paths from one to the other: take "
            f"{' or '.join(possible)} as the method"
        )
    return model, method or possible[0]


def _check_number(kind: str, number: int, size: int) -> None:
    if not 0 <= number < size:
        raise DataError(f"there is no {kind} {number}: {kind} numbers lie in 0..{size - 1}")


def _reach(model: Estimator, asked: list[int], links: list[tuple[int, int, int]], both: bool = False) -> Reach:
    """links: the triples asked about, which a network that walks must not hear; both: from either end."""
    if model.hides_asked_:
        return Reach.walking(model, links, both)
    return Reach.of(model.rows_, model.message_triples_, asked, model.num_layers_)
