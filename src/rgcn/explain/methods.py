"""From a question by number to an explanation in names."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rgcn.errors import ConfigError, DataError
from rgcn.explain.attribution import (
    GRADIENT_STEPS,
    MASK_STEPS,
    Attribution,
    Path,
    edge_mask,
    integrated_gradients,
    paths_between,
    paths_from,
)
from rgcn.explain.best_paths import best_paths, best_paths_both_ways, gradients
from rgcn.explain.explanation import ExplainedEdge, ExplainedNeighbor, ExplainedPath, Explanation, Named, Step
from rgcn.explain.fidelity import fidelity
from rgcn.explain.question import ClassQuestion, LinkQuestion, Question, Reach, frozen
from rgcn.links.top_k import standing_of
from rgcn.models.estimator import Estimator
from rgcn.predict import OpenModel
from rgcn.system.progress import Budget, Timer, progress

Method = Literal["paths", "integrated-gradients", "edge-mask"]
METHODS: tuple[str, ...] = get_args(Method)


class _Finding(NamedTuple):
    """How a method finds importances: in so many steps, or in fewer, but for the fewest, where time is short."""

    find: Callable[..., Attribution]
    steps: int
    fewest: int


_FIND: dict[str, _Finding] = {
    "paths": _Finding(gradients, 1, 1),
    "integrated-gradients": _Finding(integrated_gradients, GRADIENT_STEPS, 4),
    "edge-mask": _Finding(edge_mask, MASK_STEPS, 12),
}

EDGES, DRAWS = 10, 20
MOST_EDGES, MOST_DRAWS = 1000, 1000
AGAINST, NEIGHBORS, PATHS = 5, 10, 8
# What an explanation may cost beyond asking a few times: how often follows from counts (`LinkNetwork.question_work`).
QUICK = Budget(work=1e11, seconds=8.0)
OF_A_STEP, OF_A_DRAW = 3, 4  # questions that cost as much: forward and backward; two choices, left out and alone
ALLOWING_MORE = "To answer in time; `rgcn explain --minutes 5` allows more."


class _How(NamedTuple):
    """How something is explained: see `explain_class`."""

    method: str
    edges: int
    draws: int
    seed: int
    timer: Timer


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
    budget: Budget = QUICK,
) -> Explanation:
    """Which triples made a node this class, or the predicted one where none is given.

    method one of `methods_of`, the first of them where none is given
    edges  how many triples to name
    draws  random choices of as many, to compare with; `seed` decides which
    budget where more draws, or steps of a method, would cost more than this, there are fewer: `Explanation.left_out`

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
    opened.calibrate(budget.bars)
    how = _How(method, edges, draws, seed, budget.started())
    network, links = frozen(model.network_), model.class_links(node)
    reach = _reach(model, model.class_asked(node), links)
    with torch.no_grad():
        output = model.class_heard(network, reach.field, node)
    predicted = int(output[0].argmax())
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
    return _explained(opened, question, output, about, how)


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
    budget: Budget = QUICK,
) -> Explanation:
    """Which triples make this triple likely; arguments as those of `explain_class`."""
    opened.must_answer("links")
    model, method = _hearing(opened, method, edges, draws)
    for node in (subject, object):
        _check_number("node", node, opened.graph.num_nodes)
    _check_number("relation", relation, opened.graph.num_relations)
    opened.calibrate(budget.bars)
    how = _How(method, edges, draws, seed, budget.started())
    triple = (subject, relation, object)
    reach, standing = _reach(model, [subject, object], [triple], both=True), standing_of(opened, torch.tensor([triple]))
    question = LinkQuestion(reach, opened.calibration, frozen(model.network_), *triple, standing)
    with torch.no_grad():
        output = question.output(reach.field)
    question = question.shifted(output)
    about = {
        "kind": "link",
        "subject": opened.describe(subject),
        "relation": opened.describe_relation(relation),
        "object": opened.describe(object),
        "known": bool(standing.known[0]),
    }
    same = np.flatnonzero((reach.triples == triple).all(axis=1))
    itself = int(same[0]) if len(same) else None
    return _explained(opened, question, output - question.shift, about, how, itself, bool(standing.ruled_out[0]))


def _explained(
    opened: OpenModel,
    question: Question,
    output: Tensor,
    about: dict[str, Any],
    how: _How,
    itself: int | None = None,
    ruled_out: bool = False,
) -> Explanation:
    """output: what the network gives when it hears everything in reach. itself: the place in reach of the triple that
    is asked about, where it is there."""
    reach, calibration, budget = question.reach, opened.calibration, how.timer.budget
    by_score = ruled_out and calibration.fitted and calibration.ruled_out_share is not None
    finding, work = _FIND[how.method], question.work
    steps = max(finding.fewest, budget.times(OF_A_STEP * work, finding.steps))
    draws = budget.times(OF_A_DRAW * work, how.draws)
    with progress("explaining", steps + draws, "steps", show=budget.bars) as meter:
        found = finding.find(question, steps, meter.advance)
        paths = _paths(found, question, both=len(output) == 2, edges=how.edges, itself=itself)
        named = found.supporting(how.edges, paths if how.method == "paths" else [])
        against = found.opposing(AGAINST)
        measured = fidelity(question, output, named, draws, how.seed, by_score, how.timer, meter.advance)
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
        method=how.method,
        calibration=calibration.words,
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
        left_out=_left_out(how, finding.steps, steps, measured.draws),
    )


def _paths(found: Attribution, question: Question, both: bool, edges: int, itself: int | None) -> list[Path]:
    """The paths that made the answer: a walking network's own, else those its messages may have taken.

    both  whether the network walked from both ends
    """
    if question.reach.walk is not None:
        find = best_paths_both_ways if both else best_paths
        return find(found, *question.reach.walk, max(PATHS, edges))
    ends = (question.subject, question.object) if isinstance(question, LinkQuestion) else None
    paths = paths_between(found, *ends, itself, PATHS) if ends else []
    return paths + paths_from(found, PATHS - len(paths))


def _left_out(how: _How, most_steps: int, steps: int, draws: int) -> tuple[str, ...]:
    """What there was not time for, in sentences."""
    said = []
    if steps < most_steps:
        what = "The integral was taken at" if how.method == "integrated-gradients" else "The mask was learned in"
        said.append(f"{what} {steps} steps instead of {most_steps}.")
    if draws < how.draws:
        said.append(
            f"Only {draws} of {how.draws} random choices to compare with were made."
            if draws
            else "The named triples were not compared with random ones."
        )
    return (*said, ALLOWING_MORE) if said else ()


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
