"""What a report says of the data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rgcn.pages.charts import Bar, bar_chart
from rgcn.pages.figures import SPLIT_WORDS, decimal
from rgcn.pages.markup import Html, definitions, join, named, paragraph, tag
from rgcn.pages.page import Section
from rgcn.pages.reporting import Reporting
from rgcn.runs.run_record import RunRecord
from rgcn.words import count

if TYPE_CHECKING:
    from rgcn.graph import KnowledgeGraph

SHOWN_RELATIONS = 10


def data_card(run: RunRecord, graph: KnowledgeGraph | None) -> Section:
    """Counts, splits, what the task adds, relations, fingerprint."""
    source = run.config.data
    rows: list[tuple[object, object]] = [("Source", named(source.dataset or str(source.path))), *_sizes(run, graph)]
    parts: list[Html] = []
    if graph is not None:
        reporting = run.task.to(Reporting)
        rows += [
            *_figures(graph),
            *((f"Splits ({what})", _splits(sizes)) for what, sizes in reporting.splits(graph).items()),
        ]
        parts += reporting.data_parts(graph)
        counts = graph.statistics().relation_counts
        parts += _frequent("Most frequent relations", "relation", "triples", counts, SHOWN_RELATIONS)
    fingerprint = run.fingerprint or (graph.fingerprint if graph is not None else None)
    if fingerprint:
        rows.append(("Fingerprint (sha256)", tag("code", fingerprint)))
    words = "The graph the model learned from. Runs on data with the same fingerprint can be compared."
    return Section("Data", words, join([definitions(rows), *parts]))


def _sizes(run: RunRecord, graph: KnowledgeGraph | None) -> list[tuple[object, object]]:
    """Nodes, relations and triples as the run wrote them down; the graph kept with the model may be a part of it."""
    known = run.about.get("data", {})
    sizes = {name: known.get(name) for name in ("nodes", "relations", "triples")}
    if graph is not None and sizes["nodes"] is None:
        sizes = {"nodes": graph.num_nodes, "relations": graph.num_relations, "triples": len(graph)}
    rows: list[tuple[object, object]] = [
        (name.capitalize(), f"{size:,}") for name, size in sizes.items() if size is not None
    ]
    if graph is not None and run.config.data.prune and known.get("nodes") is not None:
        kept = f"{count(graph.num_nodes, 'node')}, {count(len(graph), 'triple')}"
        why = "the graph kept with the model is pruned to what labelled nodes can hear"
        rows.append(("Kept with the model", f"{kept} ({why})"))
    return rows


def _figures(graph: KnowledgeGraph) -> list[tuple[object, object]]:
    statistics = graph.statistics()
    degrees = f"{decimal(statistics.mean_degree)} on average, at most {statistics.max_degree:,}"
    rows: list[tuple[object, object]] = [("Triples a node", degrees)]
    if statistics.literals:
        rows.insert(0, ("Literals among the nodes", f"{statistics.literals:,}"))
    return rows


def _splits(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{SPLIT_WORDS[split]} {size:,}" for split, size in sizes.items() if size) or "none"


def _frequent(heading: str, label: str, column: str, counts: Mapping[str, int], shown: int) -> list[Html]:
    bars = [Bar(named(name), [float(number)]) for name, number in list(counts.items())[:shown]]
    rest = len(counts) - len(bars)
    note = [paragraph(f"and {count(rest, label)} more", class_="muted")] if rest else []
    return [tag("h3", heading), bar_chart(bars, [column], label=label, value_format=lambda v: f"{v:,.0f}"), *note]
