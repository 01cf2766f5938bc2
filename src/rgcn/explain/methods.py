"""Explanation methods, and `explain_class` and `explain_link`, which explain an answer by names."""

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
from rgcn.explain.question import ClassQuestion, ComputationGraph, LinkQuestion, Question
from rgcn.models.answer_kind import ClassKind, LinkKind
from rgcn.models.estimator import Estimator
from rgcn.plugins import EXPLAINERS
from rgcn.predict import OpenModel
from rgcn.system.progress import Budget, progress

OnStep = Callable[[], object]  # called after each step
MASK_LEARNING_RATE = 0.1
MIN_PRICE, MAX_PRICE = 1e-3, 1.0
MAX_EDGES, MAX_DRAWS = 1000, 1000
NUM_OPPOSING, NUM_NEIGHBORS, NUM_PATHS = 5, 10, 8
DEFAULT_BUDGET = Budget(work=1e11, seconds=8.0)  # for steps and random draws
# Work in units of one evaluation: a step runs forward and backward; a draw has two random choices, removed and alone.
STEP_WORK, DRAW_WORK = 3, 4
MORE_TIME_HINT = "To answer in time; `rgcn explain --minutes 5` allows more."


class Explainer(ABC):
    """An explanation method: computes the importance of each edge that an answer depends on.

    Register a method in `rgcn.plugins.EXPLAINERS`, or pass the class or its dotted name.
    `tests/strangers/test_stranger_explainer.py` is a complete example.

    Attributes:
        words: Description of the method, as part of a sentence.
        steps: Number of steps.
        min_steps: Number of steps if there is little time.
        step_words: Beginning of the sentence that says how many steps there were, if fewer than `steps`.
        prefers_paths: Whether triples on the answer's paths are listed before others.
    """

    words: ClassVar[str]
    steps: ClassVar[int] = 1
    min_steps: ClassVar[int] = 1
    step_words: ClassVar[str] = "Importances were found in"
    prefers_paths: ClassVar[bool] = False

    @abstractmethod
    def attribute(self, question: Question, steps: int, on_step: OnStep = lambda: None) -> Attribution:
        """Compute the importance of every edge in `question.subgraph`.

        Args:
            question: The answer to explain.
            steps: Number of steps.
            on_step: Called after each step.
        """

    @classmethod
    def unsupported_reason(cls, model: Estimator) -> str | None:
        """Return why the method cannot explain this model; None if it can. The model passes messages."""
        return None


class PathGradients(Explainer):
    """The importance of an edge by one gradient: how much the strength falls without it, to first order.

        importance(e in layer l) = w_e · ∂f / ∂w_e

    w are the normalized edge weights and f is the answer's strength. After Zhu et al., "Neural Bellman-Ford networks",
    2021, who use the gradients as importances of paths.
    """

    words = "gradients along the paths to it"
    prefers_paths = True

    def attribute(self, question: Question, steps: int = 1, on_step: OnStep = lambda: None) -> Attribution:
        """Compute the gradients."""
        attribution = _gradient_attribution(question.subgraph, _gradients(question, 1.0))
        on_step()
        return attribution

    @classmethod
    def unsupported_reason(cls, model: Estimator) -> str | None:
        """Refuse models that do not follow paths from the question's node to the answer."""
        return None if model.hooks_.hides_query else "compares nodes and follows no paths between them"


class IntegratedGradients(Explainer):
    """The importance of an edge as its contribution while all triples are faded in.

        importance(e) = w_e ∫₀¹ ∂f(α w) / ∂w_e dα

    w are the normalized edge weights and f is the answer's strength. (Scaling weights before normalization would change
    nothing.) Self-loops keep their weight, so that a neighbor's message counts for the triple that brings it.

    The importances sum up to f(w) - f(0), the effect of all triples. `Attribution.own` is f(0) less the strength of
    `Question.baseline_output`, for nodes without embeddings, self-loops and biases of their own.

    Sundararajan, Taly, Yan, "Axiomatic attribution for deep networks", 2017.
    """

    words = "integrated gradients over the graph's edges"
    steps, min_steps = 32, 4
    step_words = "The integral was taken at"

    def attribute(self, question: Question, steps: int = steps, on_step: OnStep = lambda: None) -> Attribution:
        """Integrate the gradients at the points of Gauss-Legendre quadrature."""
        points, weights = np.polynomial.legendre.leggauss(steps)  # on [-1, 1]
        means = [torch.zeros_like(layer.weight) for layer in question.subgraph.field.layers]
        for alpha, weight in zip(((points + 1) / 2).tolist(), (weights / 2).tolist(), strict=True):
            for mean, gradient in zip(means, _gradients(question, alpha), strict=True):
                mean += weight * gradient
            on_step()
        with torch.no_grad():
            without_triples = question.strength_with(question.subgraph.without_messages())
            baseline = question.strength(question.baseline_output())
        return _gradient_attribution(question.subgraph, means, float(without_triples - baseline))


class EdgeMask(Explainer):
    """The importance of a triple: how long a learned mask keeps it while the price per triple rises.

    The messages of each triple are multiplied by a mask σ(m) between 0 and 1, the same in all layers, and Adam
    minimizes

        loss = - log p(answer | mask) + price · Σ σ(m)

    No single price suits all questions: with a low price all masks become 1, with a high one 0. So the price rises from
    step to step. The importance of a triple is its mean mask over the steps, less that of a mask which multiplies
    nothing. It is negative for triples that are removed faster, which oppose the answer.

    After Ying et al., "GNNExplainer", 2019, whose mask has a constant price and a random start.
    """

    words = "a learned mask over the graph's triples"
    steps, min_steps = 60, 12
    step_words = "The mask was learned in"

    def attribute(self, question: Question, steps: int = steps, on_step: OnStep = lambda: None) -> Attribution:
        """Learn the mask."""
        subgraph = question.subgraph
        # The last mask belongs to no triple: it shows the effect of the price alone.
        logits = subgraph.field.layers[0].weight.new_zeros(len(subgraph) + 1).requires_grad_()
        # With fewer steps, the learning rate is higher in proportion.
        optimizer = torch.optim.Adam([logits], lr=MASK_LEARNING_RATE * self.steps / steps)
        mean_mask = torch.zeros_like(logits)
        for price in np.geomspace(MIN_PRICE, MAX_PRICE, steps).tolist():
            mask = torch.sigmoid(logits)
            mean_mask += mask.detach() / steps
            log_probability = question.log_probability(question.output(subgraph.scale_messages(mask[:-1])))
            (logits.grad,) = torch.autograd.grad(price * mask.sum() - log_probability, [logits])
            optimizer.step()
            on_step()
        # The edges of a triple share its importance equally; self-loops have none.
        importance = np.append((mean_mask[:-1] - mean_mask[-1]).double().cpu().numpy(), 0.0)
        edge_triples = [triple.cpu().numpy() for triple in subgraph.edge_triples]
        count = np.bincount(np.concatenate(edge_triples), minlength=len(importance))
        return Attribution(subgraph, tuple(importance[triple] / count[triple] for triple in edge_triples), None)


def _gradients(question: Question, alpha: float) -> tuple[Tensor, ...]:
    """Return ∂f / ∂w_e `[num_edges]` for each layer, with the edge weights of all triples multiplied by alpha."""
    subgraph = question.subgraph
    weights = [
        torch.where(triple == len(subgraph), layer.weight, layer.weight * alpha).detach().requires_grad_()
        for layer, triple in zip(subgraph.field.layers, subgraph.edge_triples, strict=True)
    ]
    layers = tuple(replace(layer, weight=weight) for layer, weight in zip(subgraph.field.layers, weights, strict=True))
    return torch.autograd.grad(question.strength_with(replace(subgraph.field, layers=layers)), weights)


def _gradient_attribution(
    subgraph: ComputationGraph, gradients: Iterable[Tensor], own: float | None = None
) -> Attribution:
    """Return importance(e) = w_e · gradient_e, and 0 for self-loops."""
    each = zip(subgraph.field.layers, subgraph.edge_triples, gradients, strict=True)
    found = (torch.where(triple == len(subgraph), 0.0, layer.weight * gradient) for layer, triple, gradient in each)
    return Attribution(subgraph, tuple(one.detach().double().cpu().numpy() for one in found), own)


@dataclass(frozen=True)
class ExplainOptions:
    """How an answer is explained.

    Attributes:
        method: A name in `EXPLAINERS`, or a class; None for the first of `available_methods`.
        edges: Number of triples to return.
        draws: Number of random sets of as many triples to compare with.
        seed: Seed of the random sets.
        budget: Limit for steps and draws; `Explanation.left_out` says if there were fewer because of it.
    """

    method: str | type[Explainer] | None = None
    edges: int = 10
    draws: int = 20
    seed: int = 0
    budget: Budget = DEFAULT_BUDGET

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name, value, limit in (("edges", self.edges, MAX_EDGES), ("draws", self.draws, MAX_DRAWS)):
            if not 1 <= value <= limit:
                raise ConfigError(f"{name} must be between 1 and {limit}, not {value}")


def available_methods(opened: OpenModel) -> tuple[str, ...]:
    """Return the names of methods that can explain a model, the default first; none for models without messages."""
    model = opened.model
    names = EXPLAINERS.names() if model.hooks_.num_layers else ()
    return tuple(name for name in names if not EXPLAINERS.resolve(name).unsupported_reason(model))


def explain_class(opened: OpenModel, node: int, class_: int | None = None, **options: Any) -> Explanation:
    """Explain why a node has a class, by the triples that the prediction depends on.

    Args:
        opened: A model that predicts classes.
        node: Id of the node.
        class_: Id of the class; None for the predicted one.
        options: Fields of `ExplainOptions`.

    Raises:
        DataError: If an id does not exist, or the model does not pass messages.

    >>> import rgcn, tempfile
    >>> from rgcn.predict import open_model
    >>> folder = tempfile.mkdtemp()
    >>> rgcn.NodeClassifier(hidden=8, epochs=10).fit(rgcn.load("world")).save(folder)
    >>> opened = open_model(folder)
    >>> explanation = explain_class(opened, opened.node("Switzerland"), opened.class_("Europe"), edges=3)
    >>> explanation.title, len(explanation.edges)
    ('Why Europe for Switzerland?', 3)
    """
    opened.require_kind(ClassKind)
    return explain(opened, ClassQuestion, (node, class_), ExplainOptions(**options))


def explain_link(opened: OpenModel, subject: int, relation: int, object: int, **options: Any) -> Explanation:
    """Explain why a triple is likely, by the triples that its score depends on.

    Args:
        opened: A model that predicts links.
        subject: Id of the subject.
        relation: Id of the relation.
        object: Id of the object.
        options: Fields of `ExplainOptions`.

    Raises:
        DataError: If an id does not exist, or the model does not pass messages.
    """
    opened.require_kind(LinkKind)
    return explain(opened, LinkQuestion, (subject, relation, object), ExplainOptions(**options))


def explain(
    opened: OpenModel, kind: type[Question], ids: tuple[int | None, ...], options: ExplainOptions | None = None
) -> Explanation:
    """Explain an answer.

    Args:
        opened: The model.
        kind: The kind of question.
        ids: The question's arguments (`Question.find_ids`).
        options: The method, and how much to return.

    Raises:
        DataError: If an id does not exist, or the model does not pass messages.
    """
    options = options or ExplainOptions()
    name, explainer = _resolve_method(opened, options.method)
    sizes = {"node": opened.graph.num_nodes, "relation": opened.graph.num_relations, "class": len(opened.classes)}
    for argument, number in zip(kind.argument_kinds, ids, strict=False):
        if number is not None and not 0 <= number < sizes[argument]:
            raise DataError(f"there is no {argument} {number}: ids of this kind are 0..{sizes[argument] - 1}")
    opened.calibrate(options.budget.show_progress)
    timer = options.budget.start_timer()
    question = kind.of(opened, *ids)
    steps = max(explainer.min_steps, options.budget.max_repetitions(STEP_WORK * question.work, explainer.steps))
    draws = options.budget.max_repetitions(DRAW_WORK * question.work, options.draws)
    with progress("explaining", steps + draws, "steps", show=options.budget.show_progress) as meter:
        found = explainer.attribute(question, steps, meter.advance)
        paths = _find_paths(found, question, options.edges)
        supporting = found.supporting(options.edges, paths if explainer.prefers_paths else [])
        opposing = found.opposing(NUM_OPPOSING)
        measured = fidelity(question, supporting, draws, options.seed, timer, meter.advance)
    left_out = [f"{explainer.step_words} {steps} steps instead of {explainer.steps}."] * (steps < explainer.steps)
    if measured.draws < options.draws:
        some = f"Only {measured.draws} of {options.draws} random sets of triples were compared."
        left_out.append(some if measured.draws else "The triples were not compared with random ones.")
    describe, subgraph = _Describer(opened, found, question.own_triple), question.subgraph
    return Explanation(
        question=question.about(opened),
        title=question.title(opened),
        query_nodes=tuple(map(opened.describe, question.nodes)),
        notes=question.notes(opened),
        known=question.known,
        model=opened.name,
        method=name,
        found_by=explainer.words,
        calibration=opened.calibration.words,
        probability=question.predicted_probability(question.full_output),
        score=float(question.score(question.full_output)),
        own_share=found.own_share,
        ruled_out=question.ruled_out,
        hidden=subgraph.is_hidden,
        walked=subgraph.path_ends is not None,
        added=tuple(opened.describe(node) for node in subgraph.query_nodes if node in opened.new_nodes),
        edges=describe.edges(supporting),
        against=describe.edges(opposing),
        connections=describe.edges(found.connections(np.concatenate([supporting, opposing]))),
        neighbors=describe.neighbors(),
        paths=tuple(map(describe.path, paths[:NUM_PATHS])),
        fidelity=measured,
        considered=len(subgraph),
        left_out=(*left_out, MORE_TIME_HINT) if left_out else (),
    )


def _resolve_method(opened: OpenModel, method: str | type[Explainer] | None) -> tuple[str, Explainer]:
    """Return the name and an instance of a method that supports the model."""
    title, model = opened.model.model.title, opened.model
    explainer = None if method is None else EXPLAINERS.resolve(method, trusted=True)
    if not model.hooks_.num_layers:
        raise DataError(
            f"{title} has no message passing: its answers depend on learned embeddings, not on triples; explain a run "
            "of rgcn or c-rgcn instead"
        )
    if explainer is not None and (reason := explainer.unsupported_reason(model)):
        raise DataError(f"{title} {reason}: use the method {' or '.join(available_methods(opened))}")
    name = EXPLAINERS.name_of(method or available_methods(opened)[0])
    return name, (explainer or EXPLAINERS.resolve(name))()


def _find_paths(found: Attribution, question: Question, num_edges: int) -> list[Path]:
    """Return the paths that a path network follows, or those that messages of another network can take."""
    if question.subgraph.path_ends is not None:
        is_asked_both_ways = len(question.full_output) == 2
        find = best_paths_both_ways if is_asked_both_ways else best_paths
        return find(found, *question.subgraph.path_ends, max(NUM_PATHS, num_edges))
    paths = paths_between(found, *question.ends, question.own_triple, NUM_PATHS) if question.ends else []
    return paths + paths_from(found, NUM_PATHS - len(paths))


@dataclass(frozen=True, eq=False)
class _Describer:
    """Converts an attribution from ids to names; own_triple is the index of the triple that is asked about."""

    opened: OpenModel
    found: Attribution
    own_triple: int | None

    def _triple(self, index: int) -> tuple[Named, Named, Named]:
        subject, relation, object_ = self.found.subgraph.triples[index].tolist()
        return self.opened.describe(subject), self.opened.describe_relation(relation), self.opened.describe(object_)

    def edges(self, triples: NDArray[np.int64]) -> tuple[ExplainedEdge, ...]:
        importances, hops = self.found.triples, self.found.subgraph.hop
        total = float(np.abs(importances).sum()) or 1.0
        rows = zip(triples.tolist(), importances[triples].tolist(), hops[triples].tolist(), strict=True)
        return tuple(
            ExplainedEdge(*self._triple(triple), importance, abs(importance) / total, hop, triple == self.own_triple)
            for triple, importance, hop in rows
        )

    def neighbors(self) -> tuple[ExplainedNeighbor, ...]:
        neighbors, describe = self.found.neighbors(), self.opened.describe
        total = sum(abs(importance) for _, importance in neighbors)
        return tuple(ExplainedNeighbor(describe(node), i, abs(i) / total) for node, i in neighbors[:NUM_NEIGHBORS])

    def path(self, path: Path) -> ExplainedPath:
        steps, node = [], path.start
        for triple in path.triples:
            subject, _, object_ = self.found.subgraph.triples[triple].tolist()
            steps.append(Step(*self._triple(triple), forward=subject == node))
            node = object_ if subject == node else subject
        return ExplainedPath(tuple(steps), path.importance)
