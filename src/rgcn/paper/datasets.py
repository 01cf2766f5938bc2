"""The paper's two tables of data sets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rgcn.data.registry import counts_of
from rgcn.paper.availability import load_or_reason
from rgcn.paper.comparison import Row, Table, judge_count, without_figure
from rgcn.paper.published import (
from rgcn.data.catalog import counts_of
from rgcn.paper.availability import load_or_reason
from rgcn.paper.comparison import Row, Table, judge_count, without_figure
from rgcn.paper.published import (
    LINK_DATASETS,
    LINK_DATASETS_TABLE,
    NODE_DATASETS,
    NODE_DATASETS_TABLE,
    PRUNED,
    TITLES,
    Figure,
)

if TYPE_CHECKING:
    from rgcn.graph import KnowledgeGraph

HOPS = 2
NAMES = (*NODE_DATASETS, *LINK_DATASETS)


def datasets_table(names: Sequence[str] = NAMES, mirror: Path | None = None) -> Table:
    """Every count the paper gives of these data sets, beside what we read."""
    rows = [row for name in names for row in _rows(name, load_or_reason(name, mirror))]
    return Table(
        "datasets",
        "Data sets",
        rows,
        rule="equal: the same count.",
        notes=(
            "BGS* and AM* are counted after entities more than two hops from a labeled one were taken away.",
            "The paper takes over the splits of labeled entities without stating their sizes: train and test are ours.",
        ),
    )


def _rows(name: str, graph: KnowledgeGraph | str) -> list[Row]:
    pruned = name in PRUNED
    subject = TITLES[name] + ("*" if pruned else "")
    table = NODE_DATASETS_TABLE if name in NODE_DATASETS else LINK_DATASETS_TABLE
    ours = {} if isinstance(graph, str) else count(graph.prune(HOPS) if pruned else graph)
    rows = []
    for quantity, published in (NODE_DATASETS.get(name) or LINK_DATASETS[name]).items():
        row = Row(subject, quantity, kind="count", digits=0)
        figure = Figure(published, "", table)
        if isinstance(graph, str):
            rows.append(without_figure(row, [figure], graph))
        else:
            rows.append(
                Row(subject, quantity, (judge_count(figure, ours[quantity]),), ours[quantity], kind="count", digits=0)
            )
    extra = [quantity for quantity in ours if quantity.startswith("labeled, ")]
    return rows + [Row(subject, quantity, ours=ours[quantity], kind="count", digits=0) for quantity in extra]


def count(graph: KnowledgeGraph) -> dict[str, int]:
    """A graph's counts under the names of the paper's tables.

    >>> import rgcn
    >>> count(rgcn.load("world"))["classes"]
    11
    """
    counts = counts_of(graph)
    ours = {"entities": graph.num_nodes, "relations": graph.num_relations, "edges": graph.num_triples}
    ours |= {f"{split} edges": number for split, number in counts.triples_per_split.items()}
    ours |= {"labeled": counts.labels, "classes": counts.classes or 0}
    return ours | {f"labeled, {split}": number for split, number in counts.labels_per_split.items()}
