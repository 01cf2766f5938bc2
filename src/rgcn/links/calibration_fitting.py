"""How a model is calibrated: on validation data, never on the test split.

Without any, known triples and labels do, each hidden while it is asked about, where a model can hide them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rgcn.graph import KnowledgeGraph
from rgcn.graph.splitting import Keys, drawn, label_keys, triple_keys
from rgcn.links import calibration as curves
from rgcn.links.calibration import FIRST, AnsweringModel, Calibration, LinkCurve, LinkExamples
from rgcn.links.relation_constraints import Ids, rules_of
from rgcn.links.top_k import Marks, best_of, level_of
from rgcn.nn.scorer import Questions, Scorer
from rgcn.sampling.known_triples import KnownTriples
from rgcn.system.progress import Budget, progress

FEWEST = 20
# Validation triples, and scores that are looked at: of a graph of millions of nodes fewer of them are asked about.
MOST_TRIPLES, LEAST_TRIPLES, MOST_SCORES = 1000, 40, 100_000_000
BLOCK = 32 << 20  # scores held at once, in bytes
MOST_HIDDEN = 500  # known triples and labels that are hidden in turn
# What a question waits for: as many are asked about as this work affords (`Scorer.work`), none where FEWEST would cost
# more, and time is up after so many seconds. Without a limit there are always FEWEST.
QUICK, PATIENT = Budget(work=1.5e11, seconds=15.0), Budget()


class _TimeIsUpError(Exception):
    """Within a block of questions, which then does not count."""


OnAsking = Callable[[float], object]  # called with a number of triples or labels before they are asked about


class _Sample(NamedTuple):
    """Which triples or labels were asked about, what was found of them, and words for what there was no time for."""

    place: Ids
    parts: list[Any]
    left_out: str


def _sampled(
    keys: Keys,
    at_most: int,
    work: float,
    at_once: int | None,
    budget: Budget,
    kind: str,
    ask: Callable[[Ids, Ids, OnAsking], Any],
) -> _Sample:
    """Ask about triples or labels, one block after the other, while there is time.

    They are drawn by a hash of their names: the order of the input's rows changes nothing. How many follows from counts
    alone. The clock of the budget only ends what takes too long, and then whole blocks count, whose size also follows
    from counts.

    Args:
        keys: Hashes of all there are.
        at_most: How many are drawn.
        work: Of each.
        at_once: How many suit one call; None: all.
        budget: Where even `FEWEST` would cost more, nothing is asked.
        kind: What they are.
        ask: What to do with the places of a block, given those of all blocks before it.
    """
    place, timer, parts, done = drawn(keys, at_most), budget.started(), list[Any](), 0
    is_too_much, block = FEWEST * work > budget.work, max(FEWEST, 2 * (at_once or len(place)))  # links: from both ends
    with progress("calibrating", len(place), show=budget.bars) as meter:

        def on_asking(count: float) -> None:
            if timer.is_over():
                raise _TimeIsUpError
            meter.advance(count)

        with suppress(_TimeIsUpError):
            while done < len(place) and not is_too_much:
                parts.append(ask(place[done : done + block], place[:done], on_asking))
                done = min(done + block, len(place))
    more = "`rgcn predict --reliability` takes the time, once, and keeps the result."
    left_out, seconds = "", f"{budget.seconds:g} s"
    if not parts:
        long = "takes too long on a graph of this size" if is_too_much else f"took over {seconds}"
        left_out = f"they are calibrated on {FEWEST} {kind} at least, and asking about so many {long}. {more}"
    elif done < len(place):
        left_out = f" Of {len(place)} drawn, {done} could be asked about in {seconds}: {more}"
    return _Sample(place[:done], parts, left_out)


def _most(size: int, work: float) -> int:
    """How many are asked about where each costs so much work."""
    return min(size, max(FEWEST, QUICK.times(work, size)))


def calibrate_classes(model: AnsweringModel, hiding: str | None = None, budget: Budget | None = None) -> Calibration:
    """A temperature from the validation labels; where they are few, from training labels that are hidden in turn.

    hiding  what to say of figures on known labels, which `model.logits` hides; None where they would prove nothing,
            empty where weights come from elsewhere
    budget  of what is asked for the sake of calibration alone, `QUICK` by default: not of a trained model's validation
            labels
    """
    graph, budget = model.graph_, budget or QUICK
    assert graph.labels is not None
    nodes, classes = graph.labels.of("valid")
    hidden = len(nodes) < FEWEST and hiding is not None
    if hidden:
        nodes, classes = graph.labels.of("train")
    if not len(nodes):
        return Calibration.none(
            "classes",
            "they are calibrated on validation nodes, and none were held out. Train with --set training.validation=0.1 "
            "to have some; until then the model only says which class is likeliest.",
        )
    which = "labelled" if hidden else "validation"
    too_few = f"{len(nodes)} {which} nodes are too few to calibrate on; {FEWEST} would do."
    how: tuple[int, float, int | None, Budget] = len(nodes), 0, None, PATIENT
    if hidden or hiding == "":
        if len(nodes) < FEWEST:
            return Calibration.none("classes", too_few, examples=len(nodes))
        scorer = model.scorer()
        how = _most(min(len(nodes), MOST_HIDDEN), scorer.work), scorer.work, scorer.questions_at_once, budget
        model.logits([])  # makes once what all of them need

    def ask(block: Ids, earlier: Ids, on_asking: OnAsking) -> curves.Floats:
        found = []
        for part in torch.split(torch.from_numpy(nodes[block]), how[2] or len(block)):
            on_asking(len(part))
            found.append(model.logits(part.tolist()).double().numpy())
        return np.concatenate(found)

    place, found, left_out = _sampled(label_keys(graph, nodes, classes), *how, f"{which} nodes", ask)
    if not found:
        return Calibration.none("classes", left_out, is_cut=True)
    nodes, classes, logits = nodes[place], classes[place], np.concatenate(found)
    before, bins_before = curves.class_reliability(logits, classes, 1.0)
    figures: dict[str, Any] = {"examples": len(nodes), "before": before, "hidden": hidden, "is_cut": bool(left_out)}
    if len(nodes) < FEWEST:
        return Calibration.none("classes", too_few, reliability=bins_before, **figures)
    temperature = curves.fit_temperature(logits, classes)
    after, bins = curves.class_reliability(logits, classes, temperature)
    kind = "labelled nodes, the label of each hidden while it was asked about" if hidden else "validation nodes"
    words = (
        f"Calibrated on {len(nodes):,} {kind}, with temperature {temperature:.3g}: the expected calibration "
        f"error there is {after.calibration_error:.3f}, and was {before.calibration_error:.3f} as trained."
    )
    if (logits.argmax(1) == classes).all():
        words += " The model is right about every one of them, so that only a prior keeps probabilities from 1."
    words += (hiding if hidden and hiding else "") + left_out
    figures |= {"after": after, "reliability": bins, "meaning": curves.OF_CLASSES}
    return Calibration("classes", True, words, temperature, **figures)


def calibrate_links(model: AnsweringModel, hiding: str | None = None, budget: Budget | None = None) -> Calibration:
    """A curve from the validation triples and all unknown answers to the questions they ask.

    Where these are few, from known triples, each hidden while it is asked about.

    hiding, budget  as for `calibrate_classes`, of triples
    """
    graph, budget = model.graph_, budget or QUICK
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
        return Calibration.none("links", f"{why}.", examples=len(triples))
    scorer = model.scorer()
    most, work = max(LEAST_TRIPLES, min(MOST_TRIPLES, MOST_SCORES // graph.num_nodes)), 2 * scorer.work
    if hidden:
        most, work = MOST_HIDDEN, scorer.work
    if hidden or hiding == "":
        most = _most(min(len(triples), most), work)
    else:
        budget = PATIENT

    def ask(block: Ids, earlier: Ids, on_asking: OnAsking) -> LinkExamples:
        if hidden:
            return hidden_examples(scorer, graph, triples[block], on_asking)
        return validation_examples(scorer, graph, triples[block], on_asking, triples[earlier])

    which, at_once = "known triples" if hidden else "validation triples", scorer.questions_at_once
    place, parts, left_out = _sampled(triple_keys(graph, triples), most, work, at_once, budget, which, ask)
    if not parts:
        return Calibration.none("links", left_out, is_cut=True)
    found, size = LinkExamples.together(parts), len(place)
    kind = "triples of the graph, each hidden while one end of it was asked for," if hidden else which
    if not 0 < found.true.sum() < len(found.true):
        why = "the model finds none of them" if len(found.true) else "rules leave no answer to ask for"
        return Calibration.none("links", f"of {size:,} {kind} {why}.")
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
    words += (hiding if hidden and hiding else "") + left_out
    figures: dict[str, Any] = {"examples": size, "before": before, "after": after, "reliability": bins}
    meaning = curves.OF_LINKS.format("the graph's own, had these been missing" if hidden else "in the validation split")
    figures |= {"hidden": hidden, "curve": curve, "is_cut": bool(left_out), "meaning": meaning}
    share = min((found.out_true + 1) / (found.out + 2), float(p.max()))
    return Calibration("links", True, words, ruled_out_share=share, **figures)


@torch.no_grad()
def validation_examples(
    scorer: Scorer,
    graph: KnowledgeGraph,
    triples: Ids,
    on_asking: OnAsking = lambda count: None,
    earlier: Ids | None = None,
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
    scorer: Scorer, graph: KnowledgeGraph, triples: Ids, on_asking: OnAsking = lambda count: None
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

    hidden    what is true is known, one answer to each question, and was hidden: it counts as new
    rounding  as a scorer has it
    """
    rules, index = rules_of(graph), KnownTriples.of_graph(graph, "train", device=scores.device)
    marks = Marks.of(graph, index, questions, hidden=node if hidden else None)
    true, known = torch.zeros_like(marks.out), torch.zeros_like(marks.out)
    true[row, node] = True
    known[marks.known_nodes()] = True
    true, out = true & ~known, marks.out & ~known  # a triple of both splits was learned, and proves nothing
    nodes, values, _ = best_of(scores, FIRST, marks, True, graph.nodes, rounding=rounding)
    real = nodes >= 0
    each = real.sum(1)
    right = true.gather(1, nodes.clamp(min=0).to(true.device)).cpu()[real]
    count, place = rules.known_answers(index, questions) - int(hidden), rules.answer_place(questions)
    of_questions = level_of(scores, marks).double().cpu(), count, place
    level, count, place = (torch.repeat_interleave(of, each) for of in of_questions)
    score, true_ones = values[real].double(), right.double()
    columns: list[Any] = [of.numpy() for of in (score, level, count, place, true_ones)]
    return LinkExamples._make([*columns, int(out.sum()), int((out & true).sum())])
