"""Scores as probabilities that mean something: fitted on validation data, never on the test split, and kept.

Without any, known triples and labels do, each hidden while it is asked about, where a model can hide them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rgcn.graph import KnowledgeGraph
from rgcn.graph.hash_draws import Keys, drawn, label_keys, triple_keys
from rgcn.links import reliability as curves
from rgcn.links.link_calibration import FIRST, LinkCurve, LinkExamples
from rgcn.links.relation_constraints import Marks, rules_of
from rgcn.links.reliability import Bin, Fit
from rgcn.links.ties import settle_ties
from rgcn.nn.scorer import Questions, Scorer
from rgcn.sampling.known_triples import KnownTriples
from rgcn.system.progress import progress
from rgcn.system.time_budget import Budget

FEWEST = 20
# Validation triples, and scores that are looked at: of a graph of millions of nodes fewer of them are asked about.
MOST_TRIPLES, LEAST_TRIPLES, MOST_SCORES = 1000, 40, 100_000_000
BLOCK = 32 << 20  # scores held at once, in bytes
MOST_HIDDEN = 500  # known triples and labels that are hidden in turn
# What a question waits for: as many are asked about as this work affords (`Scorer.work`), none where FEWEST would cost
# more, and time is up after so many seconds. Without a limit there are always FEWEST.
QUICK, PATIENT = Budget(work=1.5e11, seconds=15.0), Budget()

OF_CLASSES = "Of nodes given 0.9, about nine in ten have the class."
OF_LINKS = (
    "A probability is the share of such new answers, to a question that has one, that are {}; more are true where the "
    "graph lacks truths."
)


@dataclass(frozen=True)
class Calibration:
    """From scores to probabilities: softmax(logits / T) for classes, a curve that knows the question for links.

    >>> Calibration("classes", True, "on nothing", temperature=2.0).class_probabilities(torch.tensor([1.0, 1.0]))
    tensor([0.5000, 0.5000])
    """

    kind: str  # the name of an `AnswerKind`, or "completion"
    fitted: bool  # on held-out data; else there are no probabilities
    words: str  # how it was fitted, or why it was not
    temperature: float = 1.0
    ruled_out_share: float | None = None  # of unknown answers that rules forbid, those in the validation split
    examples: int = 0  # nodes, or triples, it was fitted on
    before: Fit | None = None  # how well probabilities agreed with these, as trained
    after: Fit | None = None  # and as calibrated
    reliability: tuple[Bin, ...] = ()  # the same in bins of probability
    hidden: bool = False  # fitted on what the model knows, each hidden while asked about; else on validation data
    curve: LinkCurve | None = None  # of answers to questions
    is_cut: bool = False  # whether a `PATIENT` calibration would ask more: there was not time for all
    meaning: str = "A score is the model's own number: higher is likelier."  # what the numbers say, in a sentence

    def class_probabilities(self, logits: Tensor) -> Tensor:
        """softmax(logits / T) [n, C], in float32 at least."""
        logits = logits if logits.dtype == torch.float64 else logits.float()
        return torch.softmax(logits / self.temperature, dim=-1)

    def answer_probabilities(self, score: Tensor, level: Tensor, known: Tensor, place: Tensor) -> Tensor:
        """[q, k], of the answers to q questions; arguments as for `LinkCurve.probabilities`."""
        assert self.curve is not None
        return self.curve.probabilities(score, level, known, place)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**asdict(self), "reliability": [asdict(row) for row in self.reliability]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Calibration:
        """Of what `as_dict` gave; KeyError, TypeError or ValueError where it is something else."""
        given = {key: values[key] for key in cls.__dataclass_fields__}
        fits = {key: None if given[key] is None else Fit(**given[key]) for key in ("before", "after")}
        curve = None if given["curve"] is None else LinkCurve.from_dict(given["curve"])
        bins = tuple(Bin(**row) for row in given["reliability"])
        made = cls(**{**given, **fits, "curve": curve, "reliability": bins})
        finite = isinstance(made.words, str) and np.isfinite([made.temperature, made.ruled_out_share or 0.0]).all()
        lacking = made.fitted and made.kind in ("links", "completion") and curve is None
        if not isinstance(made.kind, str) or not finite or made.temperature <= 0 or lacking:
            raise ValueError("this is no calibration")
        return made


class AnsweringModel(Protocol):
    """What answers are made of: a trained model with the graph it knows. Every `Estimator` is one, and `OpenModel`."""

    @property
    def graph_(self) -> KnowledgeGraph: ...

    @property
    def calibration_(self) -> Calibration: ...

    @property
    def fingerprint_(self) -> str: ...

    @property
    def new_nodes(self) -> tuple[int, ...]: ...

    def scorer(self) -> Scorer: ...

    def logits(self, nodes: Iterable[str | int]) -> Tensor: ...


class _TimeIsUpError(Exception):
    """Within a block of questions, which then does not count."""


Part = TypeVar("Part")
OnAsking = Callable[[float], object]  # called with a number of triples or labels before they are asked about


class _Drawing:
    """Which triples or labels are asked about, and how many of them there was time for.

    They are drawn by a hash of their names: the order of the input's rows changes nothing. How many follows from counts
    alone. The clock of the budget only ends what takes too long, and then whole blocks count, whose size also follows
    from counts.
    """

    def __init__(self, keys: Keys, at_most: int, work: float, at_once: int | None, budget: Budget) -> None:
        """keys: hashes of all there are; work: of each; at_once: how many suit one call, None: all."""
        self.place, self.work, self.budget = drawn(keys, at_most), work, budget
        self.at_once = at_once or max(len(self.place), 1)
        self.block = max(FEWEST, 2 * self.at_once)  # links ask for objects and for subjects
        self.done = 0

    @property
    def is_too_much(self) -> bool:
        """Whether even the fewest would take too long."""
        return FEWEST * self.work > self.budget.work

    @property
    def is_cut(self) -> bool:
        return self.done < len(self.place)

    @property
    def asked(self) -> NDArray[np.int64]:
        return self.place[: self.done]

    def parts(self, ask: Callable[[NDArray[np.int64], OnAsking], Part]) -> list[Part]:
        """What `ask` finds of one block of places after the other, while there is time."""
        timer, found = self.budget.started(), list[Part]()
        with progress("calibrating", len(self.place), show=self.budget.bars) as meter:

            def on_asking(count: float) -> None:
                if timer.is_over():
                    raise _TimeIsUpError
                meter.advance(count)

            with suppress(_TimeIsUpError):
                for first in range(0, 0 if self.is_too_much else len(self.place), self.block):
                    block = self.place[first : first + self.block]
                    found.append(ask(block, on_asking))
                    self.done += len(block)
        return found

    def words(self, kind: str) -> str:
        """What was left out, and how to have it."""
        more = "`rgcn predict --reliability` takes the time, once, and keeps the result."
        if self.done:
            return f" Of {len(self.place)} drawn, {self.done} could be asked about in {self.budget.seconds:g} s: {more}"
        long = "takes too long on a graph of this size" if self.is_too_much else f"took over {self.budget.seconds:g} s"
        return f"they are calibrated on {FEWEST} {kind} at least, and asking about so many {long}. {more}"


def _most(size: int, work: float) -> int:
    """How many are asked about where each costs so much work."""
    return min(size, max(FEWEST, QUICK.times(work, size)))


def calibrate_classes(model: AnsweringModel, hiding: str | None = None, budget: Budget = QUICK) -> Calibration:
    """A temperature from the validation labels; where they are few, from training labels that are hidden in turn.

    hiding  what to say of figures on known labels, which `model.logits` hides; None where they would prove nothing,
            empty where weights come from elsewhere
    budget  of what is asked for the sake of calibration alone: not of a trained model's validation labels
    """
    graph = model.graph_
    assert graph.labels is not None
    nodes, classes = graph.labels.of("valid")
    hidden = len(nodes) < FEWEST and hiding is not None
    if hidden:
        nodes, classes = graph.labels.of("train")
    if not len(nodes):
        words = (
            "No probabilities: they are calibrated on validation nodes, and none were held out. Train with "
            "--set training.validation=0.1 to have some; until then the model only says which class is likeliest."
        )
        return Calibration("classes", False, words)
    which = "labelled" if hidden else "validation"
    too_few = f"No probabilities: {len(nodes)} {which} nodes are too few to calibrate on; {FEWEST} would do."
    drawing = _Drawing(label_keys(graph, nodes, classes), len(nodes), 0, None, PATIENT)
    if hidden or hiding == "":
        if len(nodes) < FEWEST:
            return Calibration("classes", False, too_few, examples=len(nodes))
        scorer = model.scorer()
        most, size = _most(min(len(nodes), MOST_HIDDEN), scorer.work), scorer.questions_at_once
        drawing = _Drawing(label_keys(graph, nodes, classes), most, scorer.work, size, budget)
        model.logits([])  # makes once what all of them need

    def ask(block: NDArray[np.int64], on_asking: OnAsking) -> NDArray[np.float64]:
        found = []
        for first in range(0, len(block), drawing.at_once):
            part = block[first : first + drawing.at_once]
            on_asking(len(part))
            found.append(model.logits(nodes[part].tolist()).double().numpy())
        return np.concatenate(found)

    found = drawing.parts(ask)
    if not found:
        return Calibration("classes", False, f"No probabilities: {drawing.words(f'{which} nodes')}", is_cut=True)
    nodes, classes, logits = nodes[drawing.asked], classes[drawing.asked], np.concatenate(found)
    before, bins_before = curves.class_reliability(logits, classes, 1.0)
    figures: dict[str, Any] = {"examples": len(nodes), "before": before, "hidden": hidden, "is_cut": drawing.is_cut}
    if len(nodes) < FEWEST:
        return Calibration("classes", False, too_few, reliability=bins_before, **figures)
    temperature = curves.fit_temperature(logits, classes)
    after, bins = curves.class_reliability(logits, classes, temperature)
    kind = "labelled nodes, the label of each hidden while it was asked about" if hidden else "validation nodes"
    words = (
        f"Calibrated on {len(nodes):,} {kind}, with temperature {temperature:.3g}: the expected calibration "
        f"error there is {after.calibration_error:.3f}, and was {before.calibration_error:.3f} as trained."
    )
    if (logits.argmax(1) == classes).all():
        words += " The model is right about every one of them, so that only a prior keeps probabilities from 1."
    words += hiding if hidden and hiding else ""
    words += drawing.words(kind) if drawing.is_cut else ""
    figures |= {"after": after, "reliability": bins, "meaning": OF_CLASSES}
    return Calibration("classes", True, words, temperature, **figures)


def calibrate_links(model: AnsweringModel, hiding: str | None = None, budget: Budget = QUICK) -> Calibration:
    """A curve from the validation triples and all unknown answers to the questions they ask.

    Where these are few, from known triples, each hidden while it is asked about.

    hiding, budget  as for `calibrate_classes`, of triples
    """
    graph = model.graph_
    triples = np.empty((0, 3), np.int64) if graph.triple_splits is None else graph.split_triples("valid")
    hidden = len(triples) < FEWEST and hiding is not None
    if hidden:
        triples = graph.split_triples("train")
        triples = triples[triples[:, 0] != triples[:, 2]]  # a loop is its own inverse: hidden, it would still be heard
    if len(triples) < FEWEST:
        so_few = f"{len(triples)} validation triples are too few to fit three numbers on; {FEWEST} would do"
        why = so_few if len(triples) else "they are calibrated on validation triples, and the graph has none"
        if hidden:
            why = f"{len(triples)} known triples between two nodes are too few to calibrate on; {FEWEST} would do"
        return Calibration("links", False, f"No probabilities, only scores: {why}.", examples=len(triples))
    scorer = model.scorer()
    most, work = max(LEAST_TRIPLES, min(MOST_TRIPLES, MOST_SCORES // graph.num_nodes)), 2 * scorer.work
    if hidden:
        most, work = MOST_HIDDEN, scorer.work
    if hidden or hiding == "":
        most = _most(min(len(triples), most), work)
    else:
        budget = PATIENT
    drawing = _Drawing(triple_keys(graph, triples), most, work, scorer.questions_at_once, budget)

    def ask(block: NDArray[np.int64], on_asking: OnAsking) -> LinkExamples:
        if hidden:
            return hidden_examples(scorer, graph, triples[block], on_asking)
        return validation_examples(scorer, graph, triples[block], on_asking, triples[drawing.asked])

    parts, which = drawing.parts(ask), "known triples" if hidden else "validation triples"
    if not parts:
        return Calibration("links", False, f"No probabilities, only scores: {drawing.words(which)}", is_cut=True)
    found, size = LinkExamples.together(parts), drawing.done
    kind = "triples of the graph, each hidden while one end of it was asked for," if hidden else which
    if not 0 < found.true.sum() < len(found.true):
        why = "the model finds none of them" if len(found.true) else "rules leave no answer to ask for"
        return Calibration("links", False, f"No probabilities, only scores: of {size:,} {kind} {why}.")
    curve = LinkCurve.fitted(found, 2 * graph.num_relations)
    p = curve.of(found)
    bins = curves.bins_of(p, found.true, np.ones_like(p), curves.LINK_EDGES)
    before = curves.fit_of(1 / (1 + np.exp(-np.clip(found.score, -500, 500))), found.true)
    after = curves.fit_of(p, found.true)
    words = (
        f"Calibrated on {size:,} {kind} against the first {FIRST} new answers to the questions they ask, for "
        f"each relation; the best is given {p.max():.2g}. The expected calibration error there is "
        f"{after.calibration_error:.3f}, and was {before.calibration_error:.3f} as trained."
    )
    words += hiding if hidden and hiding else ""
    words += drawing.words(which) if drawing.is_cut else ""
    figures: dict[str, Any] = {"examples": size, "before": before, "after": after, "reliability": bins}
    share = min((found.out_true + 1) / (found.out + 2), float(p.max()))
    meaning = OF_LINKS.format("the graph's own, had these been missing" if hidden else "in the validation split")
    figures |= {"hidden": hidden, "curve": curve, "is_cut": drawing.is_cut, "meaning": meaning}
    return Calibration("links", True, words, ruled_out_share=share, **figures)


@torch.no_grad()
def validation_examples(
    scorer: Scorer,
    graph: KnowledgeGraph,
    triples: NDArray[np.int64],
    on_asking: OnAsking = lambda count: None,
    earlier: NDArray[np.int64] | None = None,
) -> LinkExamples:
    """The first answers to the questions (s, r, ?) and (?, r, o) that validation triples int64 [n, 3] ask.

    Unknown is what is not in the training split. Those in the validation split count as true, everything else as false.
    Some of that is true in the world and only not in the graph: the probabilities are lower bounds.

    earlier  triples whose questions were asked before, and are not asked again
    """
    device, at_once = scorer.device, scorer.questions_at_once or len(triples)
    earlier = triples[:0] if earlier is None else earlier
    asked, before = (torch.from_numpy(np.array(of)).to(device) for of in (triples, earlier))
    held_out, found = KnownTriples.of_graph(graph, "valid", device=device), list[LinkExamples]()
    for for_objects in (True, False):
        keys, known = (of[:, 0 if for_objects else 2] * graph.num_relations + of[:, 1] for of in (asked, before))
        keys = torch.unique(keys)
        for key in keys[~torch.isin(keys, known)].split(max(1, min(at_once, BLOCK // (4 * scorer.num_nodes)))):
            on_asking(len(key) / 2)  # the other half is asked from the other end
            questions = Questions(key // graph.num_relations, key % graph.num_relations, for_objects)
            true = held_out.objects if for_objects else held_out.subjects
            right, scores = true.expand(*true.ranges(key)), scorer.scores(questions)
            found.append(first_answers(graph, questions, scores, *right, rounding=scorer.rounding))
    return LinkExamples.together(found)


@torch.no_grad()
def hidden_examples(
    scorer: Scorer, graph: KnowledgeGraph, triples: NDArray[np.int64], on_asking: OnAsking = lambda count: None
) -> LinkExamples:
    """The same for known triples int64 [n, 3], each hidden while its object is asked for or, in turn, its subject.

    The hidden one is true, and whatever else is not known counts as false.
    """
    found, at_once = list[LinkExamples](), scorer.questions_at_once or len(triples)
    for for_objects in (True, False):
        asked = torch.from_numpy(triples[0 if for_objects else 1 :: 2].copy()).to(scorer.device)
        for part in torch.split(asked, max(1, min(at_once, BLOCK // (4 * scorer.num_nodes)))):
            on_asking(len(part))
            node, relation, answer = part[:, [0, 1, 2] if for_objects else [2, 1, 0]].unbind(1)
            questions, row = Questions(node, relation, for_objects), torch.arange(len(part), device=scorer.device)
            scores = scorer.scores_hiding(questions, answer)
            found.append(first_answers(graph, questions, scores, row, answer, True, scorer.rounding))
    return LinkExamples.together(found)


def first_answers(
    graph: KnowledgeGraph,
    questions: Questions,
    scores: Tensor,
    row: Tensor,
    node: Tensor,
    hidden: bool = False,
    rounding: float = 0.0,
) -> LinkExamples:
    """The first new answers to questions of one side, by their scores [q, N]; true are these nodes of these rows.

    hidden    what is true is known, and was hidden: it counts as new
    rounding  as a scorer has it
    """
    rules, index = rules_of(graph), KnownTriples.of_graph(graph, "train", device=scores.device)
    marks = Marks.of(graph, index, questions.node, questions.relation, bool(questions.for_objects))
    true, known, out = (torch.zeros(scores.shape, dtype=torch.bool, device=scores.device) for _ in range(3))
    true[row, node] = True
    known[marks.known_nodes()] = True
    if hidden:  # that its node has this one told what rules expect of it: then only who can stand there counts
        known, ends = known & ~true, rules.answer_place(questions).tolist()
        out = torch.stack([rules.outside(end, "seen") for end in ends]).to(scores.device)
    else:
        true, out = true & ~known, marks.out & ~known  # a triple of both splits was learned, and proves nothing
    new = scores.masked_fill(known | out, -torch.inf)
    level, best = torch.logsumexp(new, dim=1), torch.topk(new, min(FIRST + 1, scores.shape[1]), dim=1)
    every = torch.arange(scores.shape[1], device=scores.device)
    found = best.indices.cpu(), best.values.cpu()
    nodes, values, _ = settle_ties(*found, FIRST, new.__getitem__, every, graph.nodes, rounding)
    real = torch.isfinite(values)
    each = real.sum(1)
    count, place = rules.known_answers(index.to("cpu"), questions) - int(hidden), rules.answer_place(questions)
    level = torch.repeat_interleave(level, each.to(level.device))
    columns = (values[real], level, true.gather(1, nodes.to(true.device)).cpu()[real])
    score, levels, right = (column.double().cpu().numpy() for column in columns)
    counts, at = (torch.repeat_interleave(of, each).numpy() for of in (count, place))
    return LinkExamples(score, levels, counts, at, right, int((out & ~known).sum()), int((out & true).sum()))
