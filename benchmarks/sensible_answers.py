"""Measure how plausible the answers of the pretrained model are, and how well probabilities separate true from false.

    python benchmarks/package_tables.py --out tables
    python benchmarks/sensible_answers.py world codex-s umls tables/packages.csv tables/classes.csv \
        --out results/sensible-answers.json

With and without relation constraints (`rgcn.links.relation_constraints`), on the questions of validation triples:

never     share of the first three new answers that never occurred in that slot in training; of (s, r, ?), (?, r, o)
itself    share of questions with the asked node itself among the first ten, where its relation is never reflexive
both      proposals of a completion whose reversal is also proposed, in a one-way relation
mrr       filtered, both directions, ties at the middle, validation; what rules forbid ranks after all the rest

Probabilities: a curve is fitted on half of the validation questions and measured on the other half, over the first
ten new answers: expected calibration error (ten bins), and spread, the mean probability of right answers less that of
wrong ones. For comparison, one curve of the score alone for all relations.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _about  # isort: skip  # noqa: F401  before PyTorch

import numpy as np
import torch
from _about import about, write_result
from torch import Tensor

import rgcn
from rgcn.data.graph_store import is_stored_graph, load_graph
from rgcn.graph import KnowledgeGraph
from rgcn.links.calibration import LinkCurve, LinkExamples, calibration_quality
from rgcn.links.calibration_fitting import calibrate_links, first_answers
from rgcn.links.completion import CompletionSession, complete
from rgcn.links.ranking import rank_triples, summarize
from rgcn.links.relation_constraints import ALLOW_ALL, AnswerFilter, relation_constraints
from rgcn.links.top_k import AnswerMask, answer_links
from rgcn.models.link_predictor import LinkPredictor
from rgcn.nn.scorer import Questions, Scorer
from rgcn.sampling.known_triples import KnownTriples, splits_up_to

FIRST, QUESTIONS = 10, 1000
FORBIDDEN = 1e4  # less than any score


class Ruled(Scorer):
    """A scorer that ranks answers excluded by constraints after all others."""

    def __init__(self, scorer: Scorer, graph: KnowledgeGraph) -> None:
        self.scorer, self.graph, self.num_nodes, self.device = scorer, graph, scorer.num_nodes, scorer.device
        self.questions_per_batch = scorer.questions_per_batch

    def scores(self, questions: Questions, candidates: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        scores = self.scorer.scores(questions)
        index, objects = KnownTriples.of_graph(self.graph, "train"), questions.is_for_objects()
        for side, flag in ((objects, True), (~objects, False)):
            row = torch.nonzero(side).squeeze(1)
            if len(row):
                mask = AnswerMask.of(self.graph, index, questions.take(row)._replace(for_objects=flag))
                scores[row] -= FORBIDDEN * mask.is_excluded
        return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--questions", type=int, default=QUESTIONS, help="validation triples that ask")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    for name in options.graphs:
        stored = is_stored_graph(Path(name))
        kg = load_graph(Path(name)) if stored else rgcn.read(name) if Path(name).is_file() else rgcn.load(name)
        kg = kg.split() if kg.triple_splits is None else kg
        rows.append({"graph": Path(name).stem, "triples": len(kg), **measure(kg, options.questions)})
        print(rows[-1], flush=True)
    if options.out is not None:
        write_result(options.out, {**about(), "graphs": rows})


def measure(kg: KnowledgeGraph, most: int) -> dict[str, Any]:
    model = LinkPredictor.pretrained(kg)
    model.calibration_ = calibrate_links(model)
    valid = kg.split_triples("valid")
    triples = torch.from_numpy(valid[np.random.default_rng(0).permutation(len(valid))[:most]].copy())
    filtering = KnownTriples.of_graph(kg, *splits_up_to("valid"))
    found: dict[str, Any] = {}
    for name, answer_filter, scorer in (
        ("without", ALLOW_ALL, model.scorer()),
        ("with", AnswerFilter(), Ruled(model.scorer(), kg)),
    ):
        found[name] = {
            "mrr": round(summarize(rank_triples(scorer, triples, filtering)).both.mrr, 4),
            **senseless(model, kg, triples, answer_filter),
            "both": both_ways(model, kg, answer_filter),
        }
    return {**found, "probabilities": probabilities(model, kg, most)}


def senseless(model: Any, kg: KnowledgeGraph, triples: Tensor, answer_filter: AnswerFilter) -> dict[str, Any]:
    rules = relation_constraints(kg)
    loops = torch.from_numpy(rules.loop_share == 0)
    never, itself, questions = {}, 0, 0
    for side, for_objects in (("objects", True), ("subjects", False)):
        keys = torch.unique(triples[:, [0, 1] if for_objects else [2, 1]], dim=0)
        answers = answer_links(model, Questions(keys[:, 0], keys[:, 1], for_objects), FIRST, "drop", answer_filter)
        place = keys[:, 1] + (kg.num_relations if for_objects else 0)
        seen = torch.stack([~rules.excluded_nodes(int(end), "seen") for end in place])
        first = answers.node[:, :3]
        there = first >= 0
        stood = seen.gather(1, first.clamp(min=0))
        never[side] = round(float((there & ~stood).sum() / there.sum().clamp(min=1)), 4)
        own = (answers.node == keys[:, :1]).any(1) & loops[keys[:, 1]]
        itself, questions = itself + int(own.sum()), questions + len(keys)
    return {"never": never, "itself": round(itself / max(questions, 1), 4)}


def both_ways(model: Any, kg: KnowledgeGraph, answer_filter: AnswerFilter) -> int:
    found = complete(
        model, answer_filter=answer_filter, limit=2000, min_probability=0.0, session=CompletionSession(0.3)
    )
    one_way = relation_constraints(kg).is_one_way
    there = {tuple(row) for row in found.triples.tolist()}
    return sum((o, r, s) in there for s, r, o in there if one_way[r] and s < o)


def probabilities(model: Any, kg: KnowledgeGraph, most: int) -> dict[str, Any]:
    """Split by questions, not by triples, so that both halves share no question."""
    valid, rng = kg.split_triples("valid"), np.random.default_rng(1)
    ends = np.concatenate([valid[:, :2], valid[:, [2, 1]]])
    side = np.repeat([0, 1], len(valid))
    keys = np.unique(np.concatenate([ends, side[:, None]], axis=1), axis=0)
    keys = keys[rng.permutation(len(keys))[: 2 * most]]
    halves = [examples(model, kg, keys[half::2]) for half in (0, 1)]
    curve = LinkCurve.fit(halves[0], 2 * kg.num_relations)
    first = halves[1]
    rank = within(first.normalizer, first.slot)
    kept = LinkExamples(*(column[rank < FIRST] for column in first[:5]))
    by_score = logistic(halves[0].score, halves[0].true)
    return {
        "now": brier_metrics(curve.probabilities_of(kept), kept.true),
        "by_score_alone": brier_metrics(by_score(kept.score), kept.true),
    }


def logistic(score: np.ndarray, true: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Fit σ(a · score + b) by maximum likelihood with Newton's method."""
    center, spread, weights = score.mean(), score.std() or 1.0, np.zeros(2)

    def features(of: np.ndarray) -> np.ndarray:
        return np.stack([(of - center) / spread, np.ones_like(of)], axis=1)

    x = features(score)
    for _ in range(50):
        p = 1 / (1 + np.exp(-x @ weights))
        hessian = (x * (p * (1 - p))[:, None]).T @ x + 1e-6 * np.eye(2)
        weights -= np.linalg.solve(hessian, x.T @ (p - true) + 1e-6 * weights)
    return lambda of: 1 / (1 + np.exp(-features(of) @ weights))


def brier_metrics(p: np.ndarray, right: np.ndarray) -> dict[str, float]:
    spread = float(p[right == 1].mean() - p[right == 0].mean())
    error = calibration_quality(p, right).calibration_error
    return {"error": round(error, 4), "spread": round(spread, 4), "best": round(float(p.max()), 3)}


def within(level: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Return the number of each answer within its question; answers to a question are consecutive, best first."""
    begins = np.r_[True, (level[1:] != level[:-1]) | (place[1:] != place[:-1])]
    start = np.maximum.accumulate(np.where(begins, np.arange(len(level)), 0))
    return np.arange(len(level)) - start


def examples(model: Any, kg: KnowledgeGraph, keys: np.ndarray) -> Any:
    """Return the first new answers to questions int64 [q, 3]: node, relation, whether subjects are asked for."""
    held_out, found = KnownTriples.of_graph(kg, "valid"), []
    for for_objects in (True, False):
        pairs = torch.from_numpy(keys[keys[:, 2] == (0 if for_objects else 1)])
        for part in torch.split(pairs, 64):
            questions = Questions(part[:, 0], part[:, 1], for_objects)
            true = held_out.objects if for_objects else held_out.subjects
            key = part[:, 0] * kg.num_relations + part[:, 1]
            scores = model.scorer().scores(questions)
            found.append(first_answers(kg, questions, scores, *true.expand(*true.ranges(key))))
    return LinkExamples.concatenate(found)


if __name__ == "__main__":
    main()
