"""Fit the calibration of a model on validation data, never on the test split.

Without validation data, known triples and labels are used. Each is hidden while it is predicted, if the model can hide
triples.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rgcn.graph import KnowledgeGraph
from rgcn.graph.splitting import label_hashes, smallest_hashes, triple_hashes
from rgcn.kernels.ahead import compile_now
from rgcn.links import calibration as curves
from rgcn.links.calibration import NUM_ANSWERS, AnsweringModel, Calibration, LinkCurve, LinkExamples
from rgcn.links.relation_constraints import Ids, relation_constraints
from rgcn.links.top_k import AnswerMask, best_of, question_normalizer, questions_of
from rgcn.nn.scorer import Questions, Scorer
from rgcn.sampling.known_triples import KnownTriples
from rgcn.system.progress import Budget, progress

MIN_EXAMPLES = 20
# Bounds on the number of validation triples and of their scores: on graphs of millions of nodes fewer triples are used.
MAX_TRIPLES, MIN_TRIPLES, MAX_SCORES = 1000, 40, 100_000_000
BLOCK_BYTES = 32 << 20  # scores held at once
MAX_HIDDEN = 500  # known triples or labels that are hidden, one at a time
# The time for a calibration that a prediction waits for. The work (`Scorer.work`) limits the number of examples; if it
# does not suffice for MIN_EXAMPLES there is no calibration. The seconds are an upper bound for slow machines.
DEFAULT_BUDGET, UNLIMITED_BUDGET = Budget(work=1.5e11, seconds=15.0), Budget()


class _TimeIsUpError(Exception):
    """Raised within a block of examples, which is then discarded."""


OnExamples = Callable[[float], object]  # called with a number of triples or labels before they are scored


def _score_sample(
    index: Ids,
    work: float,
    at_once: int | None,
    budget: Budget,
    kind: str,
    score: Callable[[Ids, Ids, OnExamples], Any],
) -> tuple[Ids, list[Any], str]:
    """Score sampled triples or labels block by block until the time is up.

    The sample depends on hashes of names, not on the order of the rows in the input. Sample size and block size follow
    from counts alone. The time limit only determines how many whole blocks are used.

    Args:
        index: Positions of the sampled triples or labels.
        work: Work to score one of them (`Scorer.work`).
        at_once: How many are scored in one call; None: all.
        budget: If not even `MIN_EXAMPLES` fit its work, nothing is scored.
        kind: What is sampled, for messages.
        score: Called with the positions of a block, those of all earlier blocks, and a progress callback.

    Returns:
        The positions of the scored triples or labels, results per block, and a message if time was too short for all.
    """
    if budget.seconds < math.inf:  # in a new installation, compiling takes longer than scoring
        compile_now("gather_product_sum", "gather_wide_sum", "layer_update")
    timer, parts, done = budget.start_timer(), list[Any](), 0
    is_too_much = MIN_EXAMPLES * work > budget.work
    block = max(MIN_EXAMPLES, 2 * (at_once or len(index)))  # a triple asks two questions
    with progress("calibrating", len(index), show=budget.show_progress) as meter:

        def on_examples(count: float) -> None:
            if timer.is_over():
                raise _TimeIsUpError
            meter.advance(count)

        with suppress(_TimeIsUpError):
            while done < len(index) and not is_too_much:
                parts.append(score(index[done : done + block], index[:done], on_examples))
                done = min(done + block, len(index))
    advice = "Run `rgcn predict --reliability` once to calibrate without a time limit; the result is stored."
    message, seconds = "", f"{budget.seconds:g} s"
    if not parts:
        reason = "takes too long on a graph of this size" if is_too_much else f"took over {seconds}"
        message = f"calibration needs at least {MIN_EXAMPLES} {kind}, and scoring these {reason}. {advice}"
    elif done < len(index):
        message = f" Only {done} of {len(index)} sampled {kind} were scored in {seconds}. {advice}"
    return index[:done], parts, message


def _affordable(size: int, work: float) -> int:
    """The number of examples that fit the default budget, at least `MIN_EXAMPLES` where there are so many."""
    return min(size, max(MIN_EXAMPLES, DEFAULT_BUDGET.max_repetitions(work, size)))


def calibrate_classes(model: AnsweringModel, note: str | None = None, budget: Budget | None = None) -> Calibration:
    """Fit a temperature on the validation labels or, if there are too few, on hidden training labels.

    Args:
        model: A model that predicts classes, with its graph.
        note: What to tell users about a calibration on known labels, which `model.logits` hides. None if the
            model cannot be calibrated on them. Empty if its weights were trained on other graphs.
        budget: Limit for predictions that are made for the calibration alone, `DEFAULT_BUDGET` by default. The
            validation labels of a trained model have no limit.

    Returns:
        The calibration, which is not `fitted` if there are too few labels or too little time.
    """
    graph, budget = model.graph_, budget or DEFAULT_BUDGET
    assert graph.labels is not None
    nodes, classes = graph.labels.of("valid")
    hidden = len(nodes) < MIN_EXAMPLES and note is not None
    if hidden:
        nodes, classes = graph.labels.of("train")
    if not len(nodes):
        return Calibration.unfitted(
            "classes",
            "they are calibrated on validation nodes, and none were held out. To hold some out, train with "
            "--set training.validation=0.1.",
        )
    kind = "labeled nodes" if hidden else "validation nodes"
    too_few = f"{len(nodes)} {kind} are too few to calibrate on; at least {MIN_EXAMPLES} are needed."
    size, work, at_once = len(nodes), 0, None
    if hidden or note == "":
        if len(nodes) < MIN_EXAMPLES:
            return Calibration.unfitted("classes", too_few, examples=len(nodes))
        work, at_once = model.scorer().work, model.scorer().questions_per_batch
        size = _affordable(min(size, MAX_HIDDEN), work)
        model.logits([])  # computes and caches what all questions share
    else:
        budget = UNLIMITED_BUDGET

    def score(block: Ids, earlier: Ids, on_examples: OnExamples) -> curves.Floats:
        parts = []
        for part in torch.split(torch.from_numpy(nodes[block]), at_once or len(block)):
            on_examples(len(part))
            parts.append(model.logits(part.tolist()).double().numpy())
        return np.concatenate(parts)

    index = smallest_hashes(label_hashes(graph, nodes, classes), size)
    index, parts, message = _score_sample(index, work, at_once, budget, kind, score)
    if not parts:
        return Calibration.unfitted("classes", message, is_cut=True)
    classes, logits = classes[index], np.concatenate(parts)
    before, bins_before = curves.class_reliability(logits, classes, 1.0)
    fields: dict[str, Any] = {"examples": len(index), "before": before, "hidden": hidden, "is_cut": bool(message)}
    if len(index) < MIN_EXAMPLES:
        return Calibration.unfitted("classes", too_few, reliability=bins_before, **fields)
    temperature = curves.fit_temperature(logits, classes)
    after, bins = curves.class_reliability(logits, classes, temperature)
    how = ", the label of each hidden while its class was predicted" if hidden else ""
    words = (
        f"Calibrated on {len(index):,} {kind}{how}, with temperature {temperature:.3g}: the expected calibration "
        f"error there is {after.calibration_error:.3f}, and was {before.calibration_error:.3f} as trained."
    )
    if (logits.argmax(1) == classes).all():
        words += " The model predicts all of them correctly, so only the prior keeps the probabilities below 1."
    words += (note if hidden and note else "") + message
    fields |= {"after": after, "reliability": bins, "meaning": curves.CLASS_MEANING}
    return Calibration("classes", True, words, temperature, **fields)


def calibrate_links(model: AnsweringModel, note: str | None = None, budget: Budget | None = None) -> Calibration:
    """Fit a curve on validation triples and the other new answers to their questions, or on hidden known triples.

    Args:
        model: A model that predicts links, with its graph.
        note: As for `calibrate_classes`, about known triples.
        budget: As for `calibrate_classes`.

    Returns:
        The calibration, which is not `fitted` if there are too few triples or too little time.
    """
    graph, budget = model.graph_, budget or DEFAULT_BUDGET
    triples = np.empty((0, 3), np.int64) if graph.triple_splits is None else graph.split_triples("valid")
    hidden = len(triples) < MIN_EXAMPLES and note is not None
    if hidden:
        triples = graph.split_triples("train")
        triples = triples[triples[:, 0] != triples[:, 2]]  # the inverse edge of a hidden loop would remain
    kind = "known triples" if hidden else "validation triples"
    if len(triples) < MIN_EXAMPLES:
        purpose = "between two nodes are too few to calibrate on" if hidden else "are too few to calibrate on"
        reason = f"{len(triples)} {kind} {purpose}; at least {MIN_EXAMPLES} are needed"
        if not len(triples) and not hidden:
            reason = "they are calibrated on validation triples, and the graph has none"
        return Calibration.unfitted("links", f"{reason}.", examples=len(triples))
    scorer = model.scorer()
    size, work = max(MIN_TRIPLES, min(MAX_TRIPLES, MAX_SCORES // graph.num_nodes)), 2 * scorer.work
    if hidden:
        size, work = MAX_HIDDEN, scorer.work
    is_extra = hidden or note == ""  # work that a trained model would not do otherwise
    size, budget = (_affordable(min(len(triples), size), work), budget) if is_extra else (size, UNLIMITED_BUDGET)

    def score(block: Ids, earlier: Ids, on_examples: OnExamples) -> LinkExamples:
        if hidden:
            return hidden_examples(scorer, graph, triples[block], on_examples)
        return validation_examples(scorer, graph, triples[block], on_examples, triples[earlier])

    index, at_once = smallest_hashes(triple_hashes(graph, triples), size), scorer.questions_per_batch
    index, parts, message = _score_sample(index, work, at_once, budget, kind, score)
    if not parts:
        return Calibration.unfitted("links", message, is_cut=True)
    examples, size = LinkExamples.concatenate(parts), len(index)
    kind = "triples of the graph, each hidden while one of its ends was predicted," if hidden else kind
    if not 0 < examples.true.sum() < len(examples.true):
        reason = "the model finds none of them" if len(examples.true) else "the constraints exclude every answer"
        return Calibration.unfitted("links", f"of {size:,} {kind} {reason}.")
    curve = LinkCurve.fit(examples, 2 * graph.num_relations)
    p = curve.probabilities_of(examples)
    before = curves.calibration_quality(1 / (1 + np.exp(-np.clip(examples.score, -500, 500))), examples.true)
    after = curves.calibration_quality(p, examples.true)
    words = (
        f"Calibrated on {size:,} {kind} against the first {NUM_ANSWERS} new answers to the questions they ask, for "
        f"each relation; the highest probability is {p.max():.2g}. The expected calibration error there is "
        f"{after.calibration_error:.3f}, and was {before.calibration_error:.3f} as trained."
    )
    truth = "hidden triples of the graph" if hidden else "validation triples"
    fields: dict[str, Any] = {"examples": size, "before": before, "after": after, "hidden": hidden, "curve": curve}
    fields |= {"is_cut": bool(message), "meaning": curves.LINK_MEANING.format(truth)}
    fields["reliability"] = curves.reliability_bins(p, examples.true, np.ones_like(p), curves.LINK_EDGES)
    fields["ruled_out_share"] = min((examples.num_excluded_true + 1) / (examples.num_excluded + 2), float(p.max()))
    return Calibration("links", True, words + (note if hidden and note else "") + message, **fields)


@torch.no_grad()
def validation_examples(
    scorer: Scorer,
    graph: KnowledgeGraph,
    triples: Ids,
    on_examples: OnExamples = lambda count: None,
    earlier: Ids | None = None,
) -> LinkExamples:
    """Return the best new answers to the questions (s, r, ?) and (?, r, o) of validation triples.

    An answer is new if it is not in the training split. It is true if it is in the validation split. Some of the others
    are true in the world and only missing in the graph: the probabilities are lower bounds.

    Args:
        scorer: Scores the questions.
        graph: The graph with its splits.
        triples: int64 [n, 3].
        on_examples: Called with a number of triples before they are scored.
        earlier: Triples whose questions were already asked and are skipped.
    """
    device, at_once = scorer.device, _questions_at_once(scorer, len(triples))
    earlier = triples[:0] if earlier is None else earlier
    rows, skipped = (torch.from_numpy(np.array(part)).to(device) for part in (triples, earlier))
    held_out, parts = KnownTriples.of_graph(graph, "valid", device=device), list[LinkExamples]()
    for for_objects in (True, False):
        keys, old = (of[:, 0 if for_objects else 2] * graph.num_relations + of[:, 1] for of in (rows, skipped))
        keys = torch.unique(keys)
        for key in keys[~torch.isin(keys, old)].split(at_once):
            on_examples(len(key) / 2)  # the questions of the other direction are the other half of the progress
            questions = Questions(key // graph.num_relations, key % graph.num_relations, for_objects)
            true = held_out.objects if for_objects else held_out.subjects
            row, node = true.expand(*true.ranges(key))
            parts.append(first_answers(graph, questions, scorer.scores(questions), row, node, rounding=scorer.rounding))
    return LinkExamples.concatenate(parts)


@torch.no_grad()
def hidden_examples(
    scorer: Scorer, graph: KnowledgeGraph, triples: Ids, on_examples: OnExamples = lambda count: None
) -> LinkExamples:
    """Return the best new answers to questions of known triples, each of which is hidden and then counts as new.

    Of every second triple the object is asked for, of the others the subject. The hidden answer is true, all other
    unknown answers are false. Arguments as for `validation_examples`.
    """
    parts, at_once = list[LinkExamples](), _questions_at_once(scorer, len(triples))
    for for_objects in (True, False):
        rows = torch.from_numpy(triples[0 if for_objects else 1 :: 2].copy()).to(scorer.device)
        for block in torch.split(rows, at_once):
            on_examples(len(block))
            questions, answer = questions_of(block, for_objects)
            scores = scorer.scores_hiding_answers(questions, answer)
            row = torch.arange(len(block), device=scorer.device)
            parts.append(first_answers(graph, questions, scores, row, answer, True, scorer.rounding))
    return LinkExamples.concatenate(parts)


def _questions_at_once(scorer: Scorer, num_triples: int) -> int:
    return max(1, min(scorer.questions_per_batch or num_triples, BLOCK_BYTES // (4 * scorer.num_nodes)))


def first_answers(
    graph: KnowledgeGraph,
    questions: Questions,
    scores: Tensor,
    row: Tensor,
    node: Tensor,
    hidden: bool = False,
    rounding: float = 0.0,
) -> LinkExamples:
    """Return the best new answers to questions of one direction.

    Args:
        graph: The graph whose training triples are known.
        questions: q questions.
        scores: [q, N]: their scores.
        row: int64 [t]: the question of each true answer.
        node: int64 [t]: the true answers.
        hidden: There is one true answer to each question, which is known and was hidden: it counts as new.
        rounding: As `Scorer.rounding`.
    """
    slot = relation_constraints(graph).answer_slot(questions)
    index = KnownTriples.of_graph(graph, "train", device=scores.device)
    mask = AnswerMask.of(graph, index, questions, hidden=node if hidden else None)
    known, true = mask.is_known(), torch.zeros_like(mask.is_excluded)
    true[row, node] = True
    true, excluded = true & ~known, mask.is_excluded & ~known  # a triple that is also in the training split is not new
    nodes, values, _ = best_of(scores, NUM_ANSWERS, mask, True, graph.nodes, rounding)
    is_answer = nodes >= 0
    is_true = true.gather(1, nodes.clamp(min=0).to(true.device)).cpu()[is_answer]
    per_question = question_normalizer(scores, mask).double().cpu(), mask.num_known.cpu(), slot
    repeated = (torch.repeat_interleave(column, is_answer.sum(1)) for column in per_question)
    columns: list[Any] = [column.numpy() for column in (values[is_answer].double(), *repeated, is_true.double())]
    return LinkExamples._make([*columns, int(excluded.sum()), int((excluded & true).sum())])
