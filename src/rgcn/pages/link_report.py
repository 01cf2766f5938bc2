"""What a report shows of link prediction: every rank, exactly, and where the true answers come out."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from rgcn.graph import KnowledgeGraph
from rgcn.links.ranking import summarize
from rgcn.links.relation_constraints import rules_of
from rgcn.models.estimator import Estimator
from rgcn.models.link_predictor import LinkPredictor
from rgcn.models.task import RANKING
from rgcn.pages.layout import SPLIT_WORDS
from rgcn.pages.reporting import Figures, Measured, OnProgress, Reporting, markdown_table
from rgcn.sampling.known_triples import repeated_across_splits, splits_up_to
from rgcn.system.formatting import count

SHOWN_TRIPLES = 10
ALL_RELATIONS, BEST_AND_WORST, LISTED_RELATIONS = 24, 10, 2000
ENOUGH_QUERIES = 10
# Upper ends of the bins of ranks: fine where it matters, then by orders of magnitude.
RANK_BINS = (1, 3, 10, 100, 1_000, 10_000, 100_000)
RANK_LABELS = ("1", "2–3", "4–10", "11–100", "101–1,000", "1,001–10k", "10,001–100k", "over 100k")
RANKS = ("ranks", "object", "subject")
# A held-out triple, its score, its probability where there was enough to calibrate on, and its place among all objects
# and all subjects.
TRIPLE = ("subject", "relation", "object", "score", "probability", "object_rank", "subject_rank")
MRR = RANKING[0]


def evaluate_links(predictor: LinkPredictor, split: str, on_progress: OnProgress | None = None) -> dict[str, Any]:
    """Every held-out triple ranked among all nodes, both ways, filtered; ties count as their mean place.

    Plain values, ready for JSON: those of `RankingReport.as_dict`, and

    known                   splits whose other triples were left out of the ranks
    ranks                   how many of objects and of subjects are in each bin (RANKS)
    reversed_in_training    share of the triples whose nodes a training triple links the other way around
    repeated_across_splits  how many triples of the graph stand in more than one split
    highest                 triples with the highest scores, best first (TRIPLE); lowest likewise
    """
    graph = predictor.graph_
    triples = graph.split_triples(split)
    tell = None if on_progress is None else lambda done: on_progress(done, 2 * len(triples))
    ranks = predictor.ranks(split=split, on_progress=tell)
    by_object, by_subject = ranks.rank("object").numpy(), ranks.rank("subject").numpy()
    scores = predictor.scorer().triple_scores(torch.from_numpy(triples.copy())).cpu().numpy()
    order = np.argsort(-scores, kind="stable")

    def at(positions: NDArray[np.int64]) -> list[dict[str, Any]]:
        shown = positions[:SHOWN_TRIPLES]
        scored = predictor.score(map(tuple, triples[shown].tolist()))
        told = zip(scored, by_object[shown].tolist(), by_subject[shown].tolist(), strict=True)
        return [dict(zip(TRIPLE, (*one[:5], *both), strict=True)) for one, *both in told]

    return {
        "split": split,
        "known": list(splits_up_to(split)),
        **summarize(ranks).as_dict(graph.relations),
        "candidates": graph.num_nodes,
        "ranks": _binned(by_object, by_subject),
        "reversed_in_training": reversed_share(graph, triples),
        "repeated_across_splits": repeated_across_splits(graph),
        "highest": at(order),
        "lowest": at(order[::-1]),
    }


def _binned(by_object: NDArray[np.float64], by_subject: NDArray[np.float64]) -> list[dict[str, Any]]:
    """Counts of ranks in bins 1, 2-3, 4-10, 11-100, ...; ranks between whole numbers (ties) belong to the bin above."""
    bins = [np.searchsorted(RANK_BINS, ranks) for ranks in (by_object, by_subject)]
    counts = [np.bincount(some, minlength=len(RANK_LABELS)).tolist() for some in bins]
    used = int(np.concatenate(bins).max()) + 1
    return [dict(zip(RANKS, row, strict=True)) for row in zip(RANK_LABELS, *counts, strict=True)][:used]


def reversed_share(graph: KnowledgeGraph, triples: NDArray[np.int64]) -> float:
    """Of the triples [t, 3], how many link two nodes that a training triple links the other way around."""
    train = graph.split_triples("train")
    backwards = train[:, 2] * graph.num_nodes + train[:, 0]
    return float(np.isin(triples[:, 0] * graph.num_nodes + triples[:, 2], backwards).mean())


class LinkReporting(Reporting):
    """Links: where the true answers come out."""

    def measure(self, model: Estimator, split: str, on_progress: OnProgress | None = None) -> Measured:
        found = evaluate_links(cast(LinkPredictor, model), split, on_progress)
        cautions = ranking_cautions(found["known"], found["reversed_in_training"], found["repeated_across_splits"])
        rules = sorted(rules_of(model.graph_).profiles(), key=lambda one: -one.triples)[:LISTED_RELATIONS]
        shown = {"relations": _relation_lists(found["by_relation"]), "rules": rules, "mrr": MRR.words}
        return self.laid_out("link_report.html", model, found, cautions, **shown)

    def splits(self, graph: KnowledgeGraph) -> dict[str, Mapping[str, int]]:
        return {"triples": graph.statistics().triples_per_split}

    def uses(self, graph: KnowledgeGraph | None) -> str:
        return (
            "To rank what may be missing between the nodes of its graph, as candidates that someone looks at: facts to "
            "add, or known ones to doubt."
        )

    def limits(self) -> list[str]:
        return ["It knows the relations it was trained on, and no other."]

    def results(self, figures: Figures, graph: KnowledgeGraph | None) -> list[str]:
        """Filtered ranks of each split; below them what a choice at random gives."""
        head, rows = self.figure_rows(figures)
        for row, one in zip(rows, figures.values(), strict=True):
            row.append(f"{one.get('count', 0):,}")
        if graph is not None:
            rows.append(["at random", *_by_chance(graph.num_nodes, head[1:]), ""])
        among = "" if graph is None else f"; any of {count(graph.num_nodes, 'node')} may be the answer"
        words = f"A question is a triple without its object, or without its subject{among}."
        return [markdown_table([*head, "questions"], rows), words]

    def cautions(self, model: Estimator) -> list[str]:
        graph, split = model.graph_, next(iter(self.held_out(model)), None)
        if split is None:
            return []
        share = reversed_share(graph, graph.split_triples(split))
        return ranking_cautions(splits_up_to(split), share, repeated_across_splits(graph))


def _by_chance(num_nodes: int, titles: Sequence[str]) -> list[str]:
    """What ranks drawn at random give, in words.

    >>> _by_chance(4, ["MRR", "hits@1", "mean rank"])
    ['0.52', '25.0 %', '2.500']
    """
    chance = {f"hits@{k}": min(1.0, k / num_nodes) for k in (1, 3, 10)}
    chance |= {"mrr": sum(1 / rank for rank in range(1, num_nodes + 1)) / num_nodes, "mean_rank": (num_nodes + 1) / 2}
    words = {one.title: one.words(chance[one.name]) for one in RANKING} | {MRR.title: f"{chance['mrr']:.2g}"}
    return [words.get(title, "") for title in titles]


def ranking_cautions(known: Sequence[str], reversed_share: float, repeated: int) -> list[str]:
    """What to know of ranks; the arguments are values of `evaluate_links`."""
    splits = " or ".join(SPLIT_WORDS[split] for split in known)
    cautions = [
        f"Ranks are filtered: other answers known to be true (in {splits}) do not count as mistakes. Equal scores "
        "share the mean of their places.",
        "What is not in the data counts as false. Some of the model's “wrong” answers may be true facts that nobody "
        "wrote down.",
    ]
    if reversed_share > 0.2:
        cautions.append(
            f"For {reversed_share:.0%} of these triples, a training triple links the same two nodes the other way "
            "around. Such answers can be copied, so that the figures flatter a model that notices symmetric or inverse "
            "relations."
        )
    if repeated:
        cautions.append(
            f"{count(repeated, 'triple')} in more than one split: measured on what was learned, a model looks "
            "better than it is."
        )
    return cautions


def _relation_lists(figures: Mapping[str, Mapping[str, Any]]) -> dict[str, list[tuple[str, Mapping[str, Any]]]]:
    """{heading: relations}: all under no heading where they are few, else the best, the worst, and a list."""
    every = sorted(figures.items(), key=lambda one: (-one[1]["mrr"], one[0]))
    if len(every) <= ALL_RELATIONS:
        return {"": every}
    among = f" of those with at least {ENOUGH_QUERIES // 2} triples"
    frequent = [one for one in every if one[1]["count"] >= ENOUGH_QUERIES]
    if len(frequent) < 2 * BEST_AND_WORST:
        frequent, among = every, ""
    listed = sorted(every, key=lambda one: (-one[1]["count"], one[0]))[:LISTED_RELATIONS]
    what = f"All {len(every)}" if len(listed) == len(every) else f"The {len(listed)} most frequent"
    return {
        f"The best {BEST_AND_WORST}{among}": frequent[:BEST_AND_WORST],
        f"The worst {BEST_AND_WORST}{among}": frequent[-BEST_AND_WORST:][::-1],
        f"{what} relations": listed,
    }
