"""Explanation methods, and from a question by number to an explanation in names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rgcn.errors import ConfigError, DataError
from rgcn.explain.attribution import Attribution, Path, best_paths, best_paths_both_ways, paths_between, paths_from
from rgcn.explain.explanation import ExplainedEdge, ExplainedNeighbor, ExplainedPath, Explanation, Named, Step, fidelity
from rgcn.explain.question import ClassQuestion, LinkQuestion, Question, Reach
from rgcn.models.answer_kind import ClassKind, LinkKind
from rgcn.models.estimator import Estimator
from rgcn.plugins import EXPLAINERS
from rgcn.predict import OpenModel
from rgcn.system.progress import Budget, progress

OnStep = Callable[[], object]  # called after each step
MASK_RATE = 0.1
FIRST_PRICE, LAST_PRICE = 1e-3, 1.0
EDGES, DRAWS = 10, 20
MOST_EDGES, MOST_DRAWS = 1000, 1000
AGAINST, NEIGHBORS, PATHS = 5, 10, 8
# What an explanation may cost beyond asking a few times: how often follows from counts (`LinkNetwork.question_work`).
QUICK = Budget(work=1e11, seconds=8.0)
OF_A_STEP, OF_A_DRAW = 3, 4  # questions that cost as much: forward and backward; two choices, left out and alone
ALLOWING_MORE = "To answer in time; `rgcn explain --minutes 5` allows more."


class Explainer(ABC):
    """An explanation method: finds how much each edge in reach of an answer mattered.

    words       what it does, for people
    steps       how many steps it takes; where time is short fewer, but `fewest`
    step_words  what is said before the steps where they were fewer
    along_paths whether the triples of an answer's paths are named before others
    """

    words: ClassVar[str]
    steps: ClassVar[int] = 1
    fewest: ClassVar[int] = 1
    step_words: ClassVar[str] = "Importances were found in"
    along_paths: ClassVar[bool] = False

    @abstractmethod
    def attribute(self, question: Question, steps: int, on_step: OnStep = lambda: None) -> Attribution:
        """The importance of every edge in `question.reach`, in so many steps; on_step: to be called after each."""

    @classmethod
    def why_not(cls, model: Estimator) -> str | None:
        """Why it cannot explain this model's answers, which come from messages; None where it can."""
        return None


class PathGradients(Explainer):
    """What the answer would lose with each edge, were it linear in them: one backward pass.

        importance(e in layer l) = w_e · ∂f / ∂w_e

    w are the operator's entries, already normalized, and f is the answer's strength. After Zhu et al., "Neural
    Bellman-Ford Networks", 2021, whose paths have gradients alone for importances.
    """

    words = "gradients along the paths to it"
    along_paths = True

    def attribute(self, question: Question, steps: int = 1, on_step: OnStep = lambda: None) -> Attribution:
        found = by_slopes(question.reach, slopes_at(question, 1.0))
        on_step()
        return found

    @classmethod
    def why_not(cls, model: Estimator) -> str | None:
        # Paths lead from the asked node to the answer: only networks that walk so, and hide what is asked, have them.
        return None if model.hides_asked_ else "compares nodes and walks no paths from one to the other"


class IntegratedGradients(Explainer):
    """What each edge adds to the answer on the way from no triples to all of them.

        importance(e) = w_e ∫₀¹ ∂f(α w) / ∂w_e dα

    w are the operator's entries, already normalized, and f is the answer's strength. (Over weights *before*
    normalization nothing would happen on the way: a common factor α is divided out again.) Self-loops stay as they are,
    so that a neighbor's message counts for the triple that brings it. The importances add up to f(w) - f(0), the
    difference that all triples together make; `own` is f(0) less the answer for nodes that bring nothing either
    (`Question.unheard`): no vectors, no self-loops, no biases of their own.

    Sundararajan, Taly, Yan, "Axiomatic attribution for deep networks", 2017.
    """

    words = "integrated gradients over the graph's edges"
    steps, fewest = 32, 4
    step_words = "The integral was taken at"

    def attribute(self, question: Question, steps: int = steps, on_step: OnStep = lambda: None) -> Attribution:
        # Gauss-Legendre points in [-1, 1] and their weights: exact for smooth pieces, dense near both ends.
        points, parts = np.polynomial.legendre.leggauss(steps)
        means = [torch.zeros_like(layer.weight) for layer in question.reach.field.layers]
        for alpha, share in zip(((points + 1) / 2).tolist(), (parts / 2).tolist(), strict=True):
            for mean, slope in zip(means, slopes_at(question, alpha), strict=True):
                mean += share * slope
            on_step()
        with torch.no_grad():
            alone = question.strength_with(question.reach.silent())
            unheard = question.strength(question.unheard())
        return by_slopes(question.reach, means, float(alone - unheard))


class EdgeMask(Explainer):
    """How long each triple was kept while keeping became dearer.

    Every triple's messages are multiplied by a mask σ(m) in 0 .. 1, one for the triple in all layers, and Adam
    looks for the mask that keeps the answer cheaply:

        loss = - log p(answer | mask) + price · Σ σ(m)

    One price suits no two questions: too low, and all masks end at one; too high, and all at nothing. So the price
    grows from step to step, and the importance of a triple is its mean mask on the way, less that of a triple which
    nothing reads and which only pays. Negative is what was given up faster than that: it speaks against the answer.

    After Ying et al., "GNNExplainer", 2019, whose mask has one price and begins at random; here nothing is random.
    """

    words = "a learned mask over the graph's triples"
    steps, fewest = 60, 12
    step_words = "The mask was learned in"

    def attribute(self, question: Question, steps: int = steps, on_step: OnStep = lambda: None) -> Attribution:
        reach = question.reach
        # The last mask belongs to no triple: it shows what the price alone does.
        logits = reach.field.layers[0].weight.new_zeros(len(reach) + 1).requires_grad_()
        optimizer = torch.optim.Adam([logits], lr=MASK_RATE * self.steps / steps)  # fewer steps go as far
        kept = torch.zeros_like(logits)
        for price in np.geomspace(FIRST_PRICE, LAST_PRICE, steps).tolist():
            mask = torch.sigmoid(logits)
            kept += mask.detach() / steps
            answer = question.log_probability(question.output(reach.weighted(mask[:-1])))
            (logits.grad,) = torch.autograd.grad(price * mask.sum() - answer, [logits])
            optimizer.step()
            on_step()
        # A triple has one mask for all its edges: each gets an equal part of its importance, a self-loop none.
        every = np.append((kept[:-1] - kept[-1]).double().cpu().numpy(), 0.0)
        places = [place.cpu().numpy() for place in reach.place]
        count = np.bincount(np.concatenate(places), minlength=len(every))
        return Attribution(reach, tuple(every[place] / count[place] for place in places), None)


def slopes_at(question: Question, alpha: float) -> tuple[Tensor, ...]:
    """For each layer ∂f / ∂w_e [E], the entries of all triples' edges times alpha."""
    reach = question.reach
    weights = [
        torch.where(place == len(reach), layer.weight, layer.weight * alpha).detach().requires_grad_()
        for layer, place in zip(reach.field.layers, reach.place, strict=True)
    ]
    scaled = (replace(layer, weight=weight) for layer, weight in zip(reach.field.layers, weights, strict=True))
    return torch.autograd.grad(question.strength_with(replace(reach.field, layers=tuple(scaled))), weights)


def by_slopes(reach: Reach, slopes: Iterable[Tensor], own: float | None = None) -> Attribution:
    """importance(e) = w_e · slope_e, and 0 of self-loops."""
    each = zip(reach.field.layers, reach.place, slopes, strict=True)
    found = (torch.where(place == len(reach), 0.0, layer.weight * slope) for layer, place, slope in each)
    return Attribution(reach, tuple(one.detach().double().cpu().numpy() for one in found), own)


@dataclass(frozen=True)
class How:
    """How an answer is explained.

    method  a name of `EXPLAINERS` or a class; None: the first of `methods_of`
    edges   how many triples to name
    draws   random choices of as many, to compare with; `seed` decides which
    budget  where more draws, or steps of a method, would cost more than this, there are fewer: `Explanation.left_out`
    """

    method: str | type[Explainer] | None = None
    edges: int = EDGES
    draws: int = DRAWS
    seed: int = 0
    budget: Budget = QUICK

    def __post_init__(self) -> None:
        for name, value, most in (("edges", self.edges, MOST_EDGES), ("draws", self.draws, MOST_DRAWS)):
            if not 1 <= value <= most:
                raise ConfigError(f"{name} lies in 1..{most}, not {value}")


def methods_of(opened: OpenModel) -> tuple[str, ...]:
    """The methods that can explain a model's answers, the one to begin with first; none where it passes no messages."""
    model = opened.model
    return tuple(name for name in EXPLAINERS.names() if model.num_layers_ and not EXPLAINERS.find(name).why_not(model))


def explain_class(opened: OpenModel, node: int, class_: int | None = None, **how: Any) -> Explanation:
    """Which triples made a node this class, or the predicted one where none is given; how: the fields of `How`.

    >>> import rgcn, tempfile
    >>> from rgcn.predict import open_model
    >>> folder = tempfile.mkdtemp()
    >>> rgcn.NodeClassifier(hidden=8, epochs=10).fit(rgcn.load("world")).save(folder)
    >>> opened = open_model(folder)
    >>> why = explain_class(opened, opened.node("Switzerland"), opened.class_("Europe"), edges=3)
    >>> why.title, len(why.edges)
    ('Why Europe for Switzerland?', 3)
    """
    opened.must_answer(ClassKind)
    return explain(opened, ClassQuestion, (node, class_), How(**how))


def explain_link(opened: OpenModel, subject: int, relation: int, object: int, **how: Any) -> Explanation:
    """Which triples make this triple likely; how: the fields of `How`."""
    opened.must_answer(LinkKind)
    return explain(opened, LinkQuestion, (subject, relation, object), How(**how))


def explain(
    opened: OpenModel, question: type[Question], asked: tuple[int | None, ...], how: How | None = None
) -> Explanation:
    """Which triples decided an answer: to the question of this class about these numbers (`Question.numbers`)."""
    how = how or How()
    name, explainer = _chosen(opened, how.method)
    sizes = {"node": opened.graph.num_nodes, "relation": opened.graph.num_relations, "class": len(opened.classes)}
    for what, number in zip(question.named, asked, strict=False):
        if number is not None and not 0 <= number < sizes[what]:
            raise DataError(f"there is no {what} {number}: {what} numbers lie in 0..{sizes[what] - 1}")
    opened.calibrate(how.budget.bars)
    timer = how.budget.started()
    made = question.of(opened, *asked)
    steps = max(explainer.fewest, how.budget.times(OF_A_STEP * made.work, explainer.steps))
    draws = how.budget.times(OF_A_DRAW * made.work, how.draws)
    with progress("explaining", steps + draws, "steps", show=how.budget.bars) as meter:
        found = explainer.attribute(made, steps, meter.advance)
        paths = _paths(found, made, how.edges)
        named, against = found.supporting(how.edges, paths if explainer.along_paths else []), found.opposing(AGAINST)
        measured = fidelity(made, named, draws, how.seed, timer, meter.advance)
    left_out = [f"{explainer.step_words} {steps} steps instead of {explainer.steps}."] * (steps < explainer.steps)
    if measured.draws < how.draws:
        left_out.append(
            f"Only {measured.draws} of {how.draws} random choices to compare with were made."
            if measured.draws
            else "The named triples were not compared with random ones."
        )
    names, reach = _Names(opened, found, made.itself), made.reach
    return Explanation(
        question=made.about(opened),
        title=made.title(opened),
        asked=tuple(map(opened.describe, made.nodes)),
        notes=made.notes(opened),
        known=made.known,
        model=opened.name,
        method=name,
        found_by=explainer.words,
        calibration=opened.calibration.words,
        probability=made.predicted(made.full),
        score=float(made.score(made.full)),
        own_share=found.own_share,
        ruled_out=made.ruled_out,
        hidden=reach.hidden,
        walked=reach.walk is not None,
        added=tuple(opened.describe(node) for node in reach.asked if node in opened.new_nodes),
        edges=names.edges(named),
        against=names.edges(against),
        connections=names.edges(found.connections(np.concatenate([named, against]))),
        neighbors=names.neighbors(),
        paths=tuple(map(names.path, paths[:PATHS])),
        fidelity=measured,
        considered=len(reach),
        left_out=(*left_out, ALLOWING_MORE) if left_out else (),
    )


def _chosen(opened: OpenModel, method: str | type[Explainer] | None) -> tuple[str, Explainer]:
    """The name of the method and the method, of a model that must hear messages for triples to decide anything."""
    title, model = opened.model.model.title, opened.model
    explainer = None if method is None else EXPLAINERS.find(method, trusted=True)
    if not model.num_layers_:
        raise DataError(
            f"{title} has no message passing: no triple decides its answers, only what it learned about the nodes; "
            "explain a run of rgcn or c-rgcn instead"
        )
    if explainer is not None and (reason := explainer.why_not(model)):
        raise DataError(f"{title} {reason}: take {' or '.join(methods_of(opened))} as the method")
    name = EXPLAINERS.name_of(method or methods_of(opened)[0])
    return name, (explainer or EXPLAINERS.find(name))()


def _paths(found: Attribution, question: Question, edges: int) -> list[Path]:
    """The paths that made the answer: a walking network's own, else those its messages may have taken."""
    if question.reach.walk is not None:
        find = best_paths_both_ways if len(question.full) == 2 else best_paths  # walked from both ends, or from one
        return find(found, *question.reach.walk, max(PATHS, edges))
    paths = paths_between(found, *question.ends, question.itself, PATHS) if question.ends else []
    return paths + paths_from(found, PATHS - len(paths))


@dataclass(frozen=True, eq=False)
class _Names:
    """What was found, in names."""

    opened: OpenModel
    found: Attribution
    itself: int | None  # the place in reach of the triple that is asked about, where it is there

    def _triple(self, place: int) -> tuple[Named, Named, Named]:
        subject, relation, object_ = self.found.reach.triples[place].tolist()
        return self.opened.describe(subject), self.opened.describe_relation(relation), self.opened.describe(object_)

    def edges(self, places: NDArray[np.int64]) -> tuple[ExplainedEdge, ...]:
        importances, hops = self.found.triples, self.found.reach.hop
        total = float(np.abs(importances).sum()) or 1.0
        rows = zip(places.tolist(), importances[places].tolist(), hops[places].tolist(), strict=True)
        return tuple(
            ExplainedEdge(*self._triple(place), importance, abs(importance) / total, hop, place == self.itself)
            for place, importance, hop in rows
        )

    def neighbors(self) -> tuple[ExplainedNeighbor, ...]:
        neighbors = self.found.neighbors()
        total = sum(abs(importance) for _, importance in neighbors) or 1.0
        return tuple(
            ExplainedNeighbor(self.opened.describe(node), importance, abs(importance) / total)
            for node, importance in neighbors[:NEIGHBORS]
            if importance
        )

    def path(self, path: Path) -> ExplainedPath:
        steps, here = [], path.start
        for place in path.triples:
            subject, _, object_ = self.found.reach.triples[place].tolist()
            steps.append(Step(*self._triple(place), forward=subject == here))
            here = object_ if subject == here else subject
        return ExplainedPath(tuple(steps), path.importance)
