"""Reports about link predictors: the exact rank of every held-out triple, metrics per relation, and examples."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from rgcn.graph import KnowledgeGraph
from rgcn.links.ranking import summarize
from rgcn.links.relation_constraints import relation_constraints
from rgcn.models.estimator import Estimator
from rgcn.models.link_predictor import LinkPredictor
from rgcn.models.task import RANKING
from rgcn.pages.layout import SPLIT_TITLES
from rgcn.pages.reporting import OnProgress, Reporting, SplitEvaluation, SplitMetrics, markdown_table
from rgcn.sampling.known_triples import repeated_across_splits, splits_up_to
from rgcn.system.formatting import format_count

NUM_TRIPLES_SHOWN = 10
MAX_RELATIONS, NUM_BEST_AND_WORST, MAX_RELATIONS_LISTED = 24, 10, 2000
MIN_QUERIES = 10  # of a relation that may be among the best or the worst
# Upper ends of the bins of ranks: narrow for low ranks, then by orders of magnitude.
RANK_BINS = (1, 3, 10, 100, 1_000, 10_000, 100_000)
RANK_LABELS = ("1", "2–3", "4–10", "11–100", "101–1,000", "1,001–10k", "10,001–100k", "over 100k")
RANKS = ("ranks", "object", "subject")
TRIPLE = ("subject", "relation", "object", "score", "probability", "object_rank", "subject_rank")
MRR = RANKING[0]


def evaluate_links(predictor: LinkPredictor, split: str, on_progress: OnProgress | None = None) -> dict[str, Any]:
    """Rank every held-out triple among all nodes, in both directions, filtered. Ties have their mean rank.

    Args:
        predictor: The model.
        split: The split.
        on_progress: Called with the number of ranked queries and their total.

    Returns:
        Plain values for JSON: those of `RankingReport.as_dict`, "known" (splits whose other triples are filtered),
        "ranks" (how many queries for objects and for subjects have a rank in each bin), "reversed_in_training" (the
        share of triples whose nodes a training triple links in the other direction), "repeated_across_splits" (the
        number of triples of the graph in more than one split), and "highest" and "lowest" (the triples with the highest
        and the lowest scores, with the keys TRIPLE; the probability is None if the model is not calibrated).
    """
    graph = predictor.graph_
    triples = graph.split_triples(split)
    progress = None if on_progress is None else lambda done: on_progress(done, 2 * len(triples))
    ranks = predictor.ranks(split=split, on_progress=progress)
    by_object, by_subject = ranks.rank("object").numpy(), ranks.rank("subject").numpy()
    scores = predictor.scorer().triple_scores(torch.from_numpy(triples.copy())).cpu().numpy()
    order = np.argsort(-scores, kind="stable")

    def examples(positions: NDArray[np.int64]) -> list[dict[str, Any]]:
        shown = positions[:NUM_TRIPLES_SHOWN]
        scored = predictor.triples_frame(map(tuple, triples[shown].tolist())).iter_rows()
        rows = zip(scored, by_object[shown].tolist(), by_subject[shown].tolist(), strict=True)
        return [dict(zip(TRIPLE, (*one[:5], *both), strict=True)) for one, *both in rows]

    return {
        "split": split,
        "known": list(splits_up_to(split)),
        **summarize(ranks).as_dict(graph.relations),
        "candidates": graph.num_nodes,
        "ranks": _binned(by_object, by_subject),
        "reversed_in_training": reversed_share(graph, triples),
        "repeated_across_splits": repeated_across_splits(graph),
        "highest": examples(order),
        "lowest": examples(order[::-1]),
    }


def _binned(by_object: NDArray[np.float64], by_subject: NDArray[np.float64]) -> list[dict[str, Any]]:
    """Count the ranks in the bins 1, 2-3, 4-10, 11-100, ... A fractional rank (a tie) belongs to the bin above."""
    bins = [np.searchsorted(RANK_BINS, ranks) for ranks in (by_object, by_subject)]
    counts = [np.bincount(some, minlength=len(RANK_LABELS)).tolist() for some in bins]
    used = int(np.concatenate(bins).max()) + 1
    return [dict(zip(RANKS, row, strict=True)) for row in zip(RANK_LABELS, *counts, strict=True)][:used]


def reversed_share(graph: KnowledgeGraph, triples: NDArray[np.int64]) -> float:
    """Return the share of triples, [num_triples, 3], whose nodes a training triple links in the other direction."""
    train = graph.split_triples("train")
    backwards = train[:, 2] * graph.num_nodes + train[:, 0]
    return float(np.isin(triples[:, 0] * graph.num_nodes + triples[:, 2], backwards).mean())


class LinkReporting(Reporting):
    """Pages and model cards about link predictors."""

    def measure(self, model: Estimator, split: str, on_progress: OnProgress | None = None) -> SplitEvaluation:
        """Measure a model: metrics, ranks, metrics per relation, and examples."""
        found = evaluate_links(cast(LinkPredictor, model), split, on_progress)
        cautions = ranking_cautions(found["known"], found["reversed_in_training"], found["repeated_across_splits"])
        profiles = sorted(relation_constraints(model.graph_).profiles(), key=lambda one: -one.triples)
        values = {"relations": _relation_lists(found["by_relation"]), "profiles": profiles[:MAX_RELATIONS_LISTED]}
        return self.render_evaluation("link_report.html", model, found, cautions, mrr=MRR.format, **values)

    def splits(self, graph: KnowledgeGraph) -> dict[str, Mapping[str, int]]:
        """Return the numbers of triples per split."""
        return {"triples": graph.statistics().triples_per_split}

    def uses(self, graph: KnowledgeGraph | None) -> str:
        """Describe the use of a link predictor."""
        return (
            "To rank links that may be missing between the nodes of its graph, as candidates for a person to check: "
            "facts to add, or known ones to doubt."
        )

    def limits(self) -> list[str]:
        """Return what no metric shows."""
        return ["It knows the relations it was trained on, and no others."]

    def results(self, metrics: SplitMetrics, graph: KnowledgeGraph | None) -> list[str]:
        """Return the filtered metrics of each split, and those of random ranks."""
        head, rows = self.metric_rows(metrics)
        for row, values in zip(rows, metrics.values(), strict=True):
            row.append(f"{values.get('count', 0):,}")
        if graph is not None:
            rows.append(["at random", *_random_metrics(graph.num_nodes, head[1:]), ""])
        among = "" if graph is None else f"; any of {format_count(graph.num_nodes, 'node')} may be the answer"
        text = f"A question is a triple without its object, or without its subject{among}."
        return [markdown_table([*head, "questions"], rows), text]

    def cautions(self, model: Estimator) -> list[str]:
        """Return the cautions about the last held-out split."""
        graph, split = model.graph_, next(iter(self.held_out_splits(model)), None)
        if split is None:
            return []
        share = reversed_share(graph, graph.split_triples(split))
        return ranking_cautions(splits_up_to(split), share, repeated_across_splits(graph))


def _random_metrics(num_nodes: int, titles: Sequence[str]) -> list[str]:
    """Return the metrics of random ranks as text.

    Examples:
        >>> _random_metrics(4, ["MRR", "hits@1", "mean rank"])
        ['0.52', '25.0 %', '2.500']
    """
    values = {f"hits@{k}": min(1.0, k / num_nodes) for k in (1, 3, 10)}
    values |= {"mrr": sum(1 / rank for rank in range(1, num_nodes + 1)) / num_nodes, "mean_rank": (num_nodes + 1) / 2}
    texts = {one.title: one.format(values[one.name]) for one in RANKING} | {MRR.title: f"{values['mrr']:.2g}"}
    return [texts.get(title, "") for title in titles]


def ranking_cautions(known: Sequence[str], reversed_share: float, repeated: int) -> list[str]:
    """Return what to know before relying on ranks; the arguments are values of `evaluate_links`."""
    splits = " or ".join(SPLIT_TITLES[split] for split in known)
    cautions = [
        f"Ranks are filtered: other answers that are known to be true (in {splits}) do not count as mistakes. Equal "
        "scores share the mean of their ranks.",
        "Triples that are not in the data count as false. Some of the model's “wrong” answers may be true facts that "
        "are missing in the data.",
    ]
    if reversed_share > 0.2:
        cautions.append(
            f"For {reversed_share:.0%} of these triples, a training triple links the same two nodes in the other "
            "direction. A model can copy such answers, so the metrics flatter models that recognize symmetric or "
            "inverse relations."
        )
    if repeated:
        cautions.append(
            f"{format_count(repeated, 'triple')} in more than one split: measured on triples that it was trained on, a "
            "model looks better than it is."
        )
    return cautions


def _relation_lists(metrics: Mapping[str, Mapping[str, Any]]) -> dict[str, list[tuple[str, Mapping[str, Any]]]]:
    """Return `{heading: relations}`: all without heading if they are few, else the best, the worst, and a list."""
    relations = sorted(metrics.items(), key=lambda one: (-one[1]["mrr"], one[0]))
    if len(relations) <= MAX_RELATIONS:
        return {"": relations}
    among = f" of those with at least {MIN_QUERIES // 2} triples"
    frequent = [one for one in relations if one[1]["count"] >= MIN_QUERIES]
    if len(frequent) < 2 * NUM_BEST_AND_WORST:
        frequent, among = relations, ""
    listed = sorted(relations, key=lambda one: (-one[1]["count"], one[0]))[:MAX_RELATIONS_LISTED]
    which = f"All {len(relations)}" if len(listed) == len(relations) else f"The {len(listed)} most frequent"
    return {
        f"The best {NUM_BEST_AND_WORST}{among}": frequent[:NUM_BEST_AND_WORST],
        f"The worst {NUM_BEST_AND_WORST}{among}": frequent[-NUM_BEST_AND_WORST:][::-1],
        f"{which} relations": listed,
    }
