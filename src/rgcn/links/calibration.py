"""Scores as probabilities that mean something: fitted on validation data, never on the test split, and kept.

Without any, known triples and labels do, each hidden while it is asked about, where a model can hide them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rgcn.graph import KnowledgeGraph
from rgcn.links import reliability as curves
from rgcn.links.link_calibration import FIRST, LinkCurve, LinkExamples
from rgcn.links.relation_constraints import Marks, rules_of
from rgcn.links.reliability import Bin, Fit
from rgcn.nn.scorer import Questions, Scorer
from rgcn.sampling.known_triples import KnownTriples

FEWEST = 20
# Validation triples, and scores that are looked at: of a graph of millions of nodes fewer of them are asked about.
MOST_TRIPLES, LEAST_TRIPLES, MOST_SCORES = 1000, 40, 100_000_000
BLOCK = 32 << 20  # scores held at once, in bytes
# Known triples that are hidden in turn: each costs a pass over all, so that fewer are drawn of a large graph.
MOST_HIDDEN, MOST_HEARD = 200, 4_000_000
LARGEST = 1_000_000  # triples; of more it would take a minute or longer

MEANING = {
    "classes": "Of nodes given 0.9, about nine in ten have the class.",
    "completion": "A probability is the share of such answers, to a question that has one, that were held out, times "
    "the chance that this subject and relation lack any.",
    "links": "A probability is the share of such new answers, to a question that has one, that are in the validation "
    "split; more are true where the graph lacks truths.",
    "hidden": "A probability is the share of such new answers, to a question that has one, that are the graph's own, "
    "had these been missing; more are true where the graph lacks truths.",
}


@dataclass(frozen=True)
class Calibration:
    """From scores to probabilities: softmax(logits / T) for classes, a curve that knows the question for links.

    >>> Calibration("classes", True, "on nothing", temperature=2.0).class_probabilities(torch.tensor([1.0, 1.0]))
    tensor([0.5000, 0.5000])
    """

    kind: Literal["classes", "links", "completion"]
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

    def class_probabilities(self, logits: Tensor) -> Tensor:
        """softmax(logits / T) [n, C], in float32 at least."""
        logits = logits if logits.dtype == torch.float64 else logits.float()
        return torch.softmax(logits / self.temperature, dim=-1)

    def answer_probabilities(self, score: Tensor, level: Tensor, known: Tensor, place: Tensor) -> Tensor:
        """[q, k], of the answers to q questions; arguments as for `LinkCurve.probabilities`."""
        assert self.curve is not None
        return self.curve.probabilities(score, level, known, place)

    @property
    def meaning(self) -> str:
        """What the numbers say, in a sentence."""
        if not self.fitted:
            return "A score is the model's own number: higher is likelier."
        return MEANING["hidden" if self.hidden and self.kind == "links" else self.kind]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**asdict(self), "reliability": [asdict(row) for row in self.reliability], "meaning": self.meaning}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Calibration:
        """Of what `as_dict` gave; KeyError, TypeError or ValueError where it is something else."""
        given = {key: values[key] for key in cls.__dataclass_fields__}
        fits = {key: None if given[key] is None else Fit(**given[key]) for key in ("before", "after")}
        curve = None if given["curve"] is None else LinkCurve.from_dict(given["curve"])
        bins = tuple(Bin(**row) for row in given["reliability"])
        made = cls(**{**given, **fits, "curve": curve, "reliability": bins})
        finite = isinstance(made.words, str) and np.isfinite([made.temperature, made.ruled_out_share or 0.0]).all()
        lacking = made.fitted and made.kind != "classes" and curve is None
        if made.kind not in MEANING or not finite or made.temperature <= 0 or lacking:
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


def calibrate_classes(model: AnsweringModel, hiding: str | None = None) -> Calibration:
    """A temperature from the validation labels; where they are few, from training labels that are hidden in turn.

    hiding  what to say of figures on known labels, which `model.logits` hides; None where they would prove nothing
    """
    graph = model.graph_
    assert graph.labels is not None
    nodes, classes = graph.labels.of("valid")
    hidden = len(nodes) < FEWEST and hiding is not None
    if hidden:
        nodes, classes = graph.labels.of("train")
        drawn = _drawn(len(nodes), len(graph.split_triples("train")))
        nodes, classes = nodes[drawn], classes[drawn]
    if not len(nodes):
        words = (
            "No probabilities: they are calibrated on validation nodes, and none were held out. Train with "
            "--set training.validation=0.1 to have some; until then scores say which class is likeliest."
        )
        return Calibration("classes", False, words)
    logits = model.logits(nodes.tolist()).double().numpy()
    before, bins_before = curves.class_reliability(logits, classes, 1.0)
    kind = "labelled nodes, the label of each hidden while it was asked about" if hidden else "validation nodes"
    figures: dict[str, Any] = {"examples": len(nodes), "before": before, "hidden": hidden}
    if len(nodes) < FEWEST:
        which = "labelled" if hidden else "validation"
        words = f"No probabilities: {len(nodes)} {which} nodes are too few to calibrate on; {FEWEST} would do."
        return Calibration("classes", False, words, reliability=bins_before, **figures)
    temperature = curves.fit_temperature(logits, classes)
    after, bins = curves.class_reliability(logits, classes, temperature)
    words = (
        f"Calibrated on {len(nodes):,} {kind}, with temperature {temperature:.3g}: the expected calibration "
        f"error there is {after.calibration_error:.3f}, and was {before.calibration_error:.3f} as trained."
    )
    if (logits.argmax(1) == classes).all():
        words += " The model is right about every one of them, so that only a prior keeps probabilities from 1."
    words += hiding if hidden and hiding else ""
    return Calibration("classes", True, words, temperature, after=after, reliability=bins, **figures)


def calibrate_links(model: AnsweringModel, hiding: str | None = None) -> Calibration:
    """A curve from the validation triples and all unknown answers to the questions they ask.

    Where these are few, from known triples, each hidden while it is asked about.

    hiding  what to say of figures on known triples; None where they would prove nothing
    """
    graph = model.graph_
    triples = np.empty((0, 3), np.int64) if graph.triple_splits is None else graph.split_triples("valid")
    known, few = triples[:0], len(triples) < FEWEST
    if few and hiding is not None and graph.num_of("train") <= LARGEST:
        known = graph.split_triples("train")
        known = known[known[:, 0] != known[:, 2]]  # a loop is itself turned round: hidden, it would still be told of
    hidden = len(known) >= FEWEST
    if few and not hidden:
        so_few = f"{len(triples)} validation triples are too few to fit three numbers on; {FEWEST} would do"
        why = so_few if len(triples) else "they are calibrated on validation triples, and the graph has none"
        return Calibration("links", False, f"No probabilities, only scores: {why}.", examples=len(triples))
    if hidden:
        chosen = known[_drawn(len(known), len(known))]
        found = hidden_examples(model.scorer(), graph, chosen)
        kind = "triples of the graph, each hidden while one end of it was asked for,"
    else:
        most = max(LEAST_TRIPLES, min(MOST_TRIPLES, MOST_SCORES // graph.num_nodes))
        chosen = triples[np.linspace(0, len(triples) - 1, min(len(triples), most)).round().astype(np.int64)]
        found, kind = validation_examples(model.scorer(), graph, chosen), "validation triples"
    if not 0 < found.true.sum() < len(found.true):
        why = "the model finds none of them" if len(found.true) else "rules leave no answer to ask for"
        return Calibration("links", False, f"No probabilities, only scores: of {len(chosen):,} {kind} {why}.")
    curve = LinkCurve.fitted(found, 2 * graph.num_relations)
    p = curve.of(found)
    bins = curves.bins_of(p, found.true, np.ones_like(p), curves.LINK_EDGES)
    before = curves.fit_of(1 / (1 + np.exp(-np.clip(found.score, -500, 500))), found.true)
    after = curves.fit_of(p, found.true)
    words = (
        f"Calibrated on {len(chosen):,} {kind} against the first {FIRST} new answers to the questions they ask, for "
        f"each relation; the best is given {p.max():.2g}. The expected calibration error there is "
        f"{after.calibration_error:.3f}, and was {before.calibration_error:.3f} as trained."
    )
    words += hiding if hidden and hiding else ""
    figures: dict[str, Any] = {"examples": len(chosen), "before": before, "after": after, "reliability": bins}
    share = min((found.out_true + 1) / (found.out + 2), float(p.max()))
    return Calibration("links", True, words, ruled_out_share=share, **figures, hidden=hidden, curve=curve)


def _drawn(size: int, heard: int) -> NDArray[np.int64]:
    """Numbers of what is hidden in turn, of `size` known: always the same, and fewer where more triples are heard."""
    most = min(size, MOST_HIDDEN, max(FEWEST, MOST_HEARD // max(heard, 1)))
    return np.sort(np.random.default_rng(0).choice(size, most, replace=False))


@torch.no_grad()
def validation_examples(scorer: Scorer, graph: KnowledgeGraph, triples: NDArray[np.int64]) -> LinkExamples:
    """The first answers to the questions (s, r, ?) and (?, r, o) that validation triples int64 [n, 3] ask.

    Unknown is what is not in the training split. Those in the validation split count as true, everything else as false.
    Some of that is true in the world and only not in the graph: the probabilities are lower bounds.
    """
    asked = torch.from_numpy(np.array(triples)).to(scorer.device)
    held_out, found = KnownTriples.of_graph(graph, "valid", device=scorer.device), list[LinkExamples]()
    subject, relation, object_ = asked.unbind(1)
    for for_objects in (True, False):
        keys = torch.unique((subject if for_objects else object_) * graph.num_relations + relation)
        for key in keys.split(max(1, BLOCK // (4 * scorer.num_nodes))):
            questions = Questions(key // graph.num_relations, key % graph.num_relations, for_objects)
            true = held_out.objects if for_objects else held_out.subjects
            found.append(first_answers(graph, questions, scorer.scores(questions), *true.expand(*true.ranges(key))))
    return LinkExamples.together(found)


@torch.no_grad()
def hidden_examples(scorer: Scorer, graph: KnowledgeGraph, triples: NDArray[np.int64]) -> LinkExamples:
    """The same for known triples int64 [n, 3], each hidden while its object is asked for or, in turn, its subject.

    The hidden one is true, and whatever else is not known counts as false.
    """
    found = list[LinkExamples]()
    for for_objects in (True, False):
        asked = torch.from_numpy(triples[0 if for_objects else 1 :: 2].copy()).to(scorer.device)
        for part in torch.split(asked, max(1, BLOCK // (4 * scorer.num_nodes))):
            node, relation, answer = part[:, [0, 1, 2] if for_objects else [2, 1, 0]].unbind(1)
            questions, row = Questions(node, relation, for_objects), torch.arange(len(part), device=scorer.device)
            scores = scorer.scores_hiding(questions, answer)
            found.append(first_answers(graph, questions, scores, row, answer, hidden=True))
    return LinkExamples.together(found)


def first_answers(
    graph: KnowledgeGraph, questions: Questions, scores: Tensor, row: Tensor, node: Tensor, hidden: bool = False
) -> LinkExamples:
    """The first new answers to questions of one side, by their scores [q, N]; true are these nodes of these rows.

    hidden  what is true is known, and was hidden: it counts as new
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
    level, best = torch.logsumexp(new, dim=1), torch.topk(new, min(FIRST, scores.shape[1]), dim=1)
    real = torch.isfinite(best.values)
    each = real.sum(1).cpu()
    count, place = rules.known_answers(index.to("cpu"), questions) - int(hidden), rules.answer_place(questions)
    level = torch.repeat_interleave(level, each.to(level.device))
    columns = (best.values[real], level, true.gather(1, best.indices)[real])
    score, levels, right = (column.double().cpu().numpy() for column in columns)
    counts, at = (torch.repeat_interleave(of, each).numpy() for of in (count, place))
    return LinkExamples(score, levels, counts, at, right, int((out & ~known).sum()), int((out & true).sum()))
