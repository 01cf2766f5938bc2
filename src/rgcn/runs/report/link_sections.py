"""What a report shows of link prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from rgcn.answers.calibration import Calibration
from rgcn.graph import KnowledgeGraph
from rgcn.known import repeated_across_splits, splits_up_to
from rgcn.ranking.metrics import RankMetrics
from rgcn.runs.report import markdown
from rgcn.runs.report.charts import Bar, bar_chart, column_chart
from rgcn.runs.report.figures import SPLIT_WORDS, decimal, percent
from rgcn.runs.report.link_evaluation import LinkEvaluation, RankedTriple, RankingModel, evaluate_links, reversed_share
from rgcn.runs.report.markup import Html, details, join, named, paragraph, table, tag
from rgcn.runs.report.page import Section, Tile
from rgcn.runs.report.reporting import Figures, Measured, OnProgress, Reporting
from rgcn.tasks.estimator import Estimator
from rgcn.tasks.link_prediction import RANKING
from rgcn.words import count

ALL_RELATIONS, BEST_AND_WORST, LISTED_RELATIONS = 24, 10, 2000
ENOUGH_QUERIES = 10
MRR = RANKING[0]


class LinkReporting(Reporting):
    """Links: where the true answers come out."""

    def measure(self, model: Estimator, split: str, on_progress: OnProgress | None = None) -> Measured:
        measured = evaluate_links(cast(RankingModel, model), split, on_progress)
        cautions = ranking_cautions(measured.known, measured.reversed, measured.repeated)
        sections = link_sections(measured, model.calibration_)
        return Measured(split, measured.as_dict(), link_tiles(measured), sections, cautions)

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
        return [markdown.table([*head, "questions"], rows), words]

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


def link_tiles(measured: LinkEvaluation) -> list[Tile]:
    both, split = measured.report.both, SPLIT_WORDS[measured.split]
    return [
        Tile(
            f"{split} MRR",
            MRR.words(both.mrr),
            f"{count(both.count, 'question')} about {count(both.count // 2, 'triple')}",
        ),
        Tile("first answer is right", percent(both.hits[1]), "hits@1"),
        Tile("among the first ten", percent(both.hits[10]), "hits@10"),
        Tile("mean rank", decimal(both.mean_rank), f"of {count(measured.candidates, 'node')}"),
    ]


def ranking_cautions(known: Sequence[str], reversed_share: float, repeated: int) -> list[str]:
    """What to know of ranks; the arguments are those of `LinkEvaluation`."""
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


def link_sections(measured: LinkEvaluation, calibration: Calibration) -> list[Section]:
    return [
        Section(
            "Ranks",
            "Each held-out triple (subject, relation, object) asks two questions: which object, and which subject? The "
            f"model orders all {measured.candidates:,} nodes by its score; the rank is the place of the true one. "
            "Columns at the left are good.",
            join([_histogram(measured), _directions(measured)]),
        ),
        Section(
            "Relation by relation",
            "Some relations are easier than others. MRR is the mean of 1 / rank over both questions of every triple "
            "of the relation.",
            _relations(measured),
        ),
        Section(
            "Held-out triples by name",
            f"{calibration.words} The ranks say where the true object and the true subject came out.",
            _triples(measured),
        ),
    ]


def _histogram(measured: LinkEvaluation) -> Html:
    labels = [label for label, _, _ in measured.bins]
    asked = [("which object?", [o for _, o, _ in measured.bins]), ("which subject?", [s for _, _, s in measured.bins])]
    return column_chart(
        labels, asked, title="How many questions got which rank", x_label="rank of the true node", y_label="questions"
    )


def _directions(measured: LinkEvaluation) -> Html:
    report = measured.report
    rows = [
        [name, MRR.words(m.mrr), *(percent(m.hits[k]) for k in (1, 3, 10)), decimal(m.mean_rank), f"{m.count:,}"]
        for name, m in (("which object?", report.object), ("which subject?", report.subject), ("both", report.both))
    ]
    return table(
        ["question", "MRR", "hits@1", "hits@3", "hits@10", "mean rank", "questions"], rows, numeric=range(1, 7)
    )


def _relations(measured: LinkEvaluation) -> Html:
    found = [(measured.relations[r], metrics) for r, metrics in measured.report.by_relation.items()]
    found.sort(key=lambda one: (-one[1].mrr, one[0]))
    if len(found) <= ALL_RELATIONS:
        return _relation_bars(found)
    frequent = [one for one in found if one[1].count >= ENOUGH_QUERIES]
    if len(frequent) < 2 * BEST_AND_WORST:
        frequent = found
    among = f" of those with at least {ENOUGH_QUERIES // 2} triples" if frequent is not found else ""
    listed = sorted(found, key=lambda one: (-one[1].count, one[0]))[:LISTED_RELATIONS]
    all_words = (
        f"All {len(found)} relations" if len(listed) == len(found) else f"The {len(listed)} most frequent relations"
    )
    return join(
        [
            tag("h3", f"The best {BEST_AND_WORST}{among}"),
            _relation_bars(frequent[:BEST_AND_WORST]),
            tag("h3", f"The worst {BEST_AND_WORST}{among}"),
            _relation_bars(frequent[-BEST_AND_WORST:][::-1]),
            details(all_words, _relation_bars(listed)),
        ]
    )


def _relation_bars(relations: Sequence[tuple[str, RankMetrics]]) -> Html:
    bars = [
        Bar(named(name), [metrics.mrr], [percent(metrics.hits[10]), f"{metrics.count // 2:,}"])
        for name, metrics in relations
    ]
    return bar_chart(
        bars,
        ["MRR"],
        label="relation",
        notes=["hits@10", "triples"],
        maximum=1.0,
        value_format=MRR.words,
        sortable=len(relations) > 2,
    )


def _triples(measured: LinkEvaluation) -> Html:
    parts: list[Html] = []
    for heading, triples in (("Highest scores", measured.highest), ("Lowest scores", measured.lowest)):
        parts += [tag("h3", heading), _named_triples(triples)]
    return join(parts) if measured.highest else paragraph("There is none.", class_="empty")


def _named_triples(triples: Sequence[RankedTriple]) -> Html:
    calibrated = any(one.probability is not None for one in triples)
    rows = [
        [
            tag(
                "td",
                named(one.subject),
                " ",
                tag("span", named(one.relation), class_="relation"),
                " ",
                named(one.object),
                class_="triple",
            ),
            decimal(one.score),
            *([] if one.probability is None else [percent(one.probability)]),
            f"{one.object_rank:,.6g}",
            f"{one.subject_rank:,.6g}",
        ]
        for one in triples
    ]
    numbers = ["score", *(["probability"] if calibrated else []), "rank of object", "rank of subject"]
    return table(["triple", *numbers], rows, numeric=range(1, 1 + len(numbers)))
