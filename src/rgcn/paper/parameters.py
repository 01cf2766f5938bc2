"""What the paper says about numbers of parameters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rgcn.axis_tables import ENCODERS
from rgcn.paper.availability import load_or_reason
from rgcn.paper.comparison import Judged, Row, Table, without_figure
from rgcn.paper.published import C_RGCN_SHARE, E_RGCN_SHARE, NODE_DATASETS, TITLES
from rgcn.runs.assembly import make_model
from rgcn.runs.configuration import load_configuration

if TYPE_CHECKING:
    from rgcn.graph import KnowledgeGraph

QUANTITY = "share of RGCN's parameters, %"
NAMES = (*NODE_DATASETS, "wn18")


def parameters_table(names: Sequence[str] = NAMES, mirror: Path | None = None) -> Table:
    """e-RGCN's share of RGCN's parameters on each data set, and c-RGCN's on WN18."""
    rows = [_node_row(name, load_or_reason(name, mirror)) for name in names if name in NODE_DATASETS]
    if "wn18" in names:
        rows.append(_link_row(load_or_reason("wn18", mirror)))
    return Table(
        "parameters",
        "Parameters",
        rows,
        rule="equal: the share rounds to the paper's 8 %. The paper does not say of which data set its 8 % is.",
        notes=(
            "Counted as the paper counts: a one-hot layer has a row for every relation and node, or with bases for "
            "every basis and node. What is really stored may be less (docs/results.md).",
        ),
    )


def _node_row(name: str, graph: KnowledgeGraph | str) -> Row:
    small, large = (_node_count(f"{model}/nc-{name}", graph) for model in ("e-rgcn", "rgcn"))
    share = 100 * small / large
    assert E_RGCN_SHARE.value is not None
    verdict = "equal" if round(share) == E_RGCN_SHARE.value else "lower" if share < E_RGCN_SHARE.value else "higher"
    source = ", from the published counts, as the data are not here" if isinstance(graph, str) else ""
    return Row(
        f"{TITLES[name]}, e-RGCN",
        QUANTITY,
        (Judged(E_RGCN_SHARE, verdict),),
        share,
        note=f"{small:,} of {large:,}{source}",
        kind="percent",
        digits=1,
    )


def _node_count(configuration: str, graph: KnowledgeGraph | str) -> int:
    config = load_configuration(configuration, (), {"training.device": "cpu"})
    if not isinstance(graph, str):
        return make_model(config).prepare(graph).num_parameters_as_published_
    assert config.data.dataset is not None
    counts, encoder = NODE_DATASETS[config.data.dataset], ENCODERS.find(config.model.encoder)
    counted = encoder.published_parameters(config.model, counts["entities"], counts["relations"], counts["classes"])
    assert isinstance(counted, int)
    return counted


def _link_row(graph: KnowledgeGraph | str) -> Row:
    row = Row("WN18, c-RGCN", QUANTITY, kind="percent", digits=1)
    if isinstance(graph, str):
        return without_figure(row, [C_RGCN_SHARE], graph)
    small, large = (_link_count(f"{model}/lp-wn18", graph) for model in ("c-rgcn", "rgcn"))
    verdict = Judged(C_RGCN_SHARE, "agrees" if small < large else "differs")
    note = f"{small:,} of {large:,}, with the shipped configurations"
    return Row(row.subject, QUANTITY, (verdict,), 100 * small / large, note=note, kind="percent", digits=1)


def _link_count(configuration: str, graph: KnowledgeGraph) -> int:
    return make_model(load_configuration(configuration, (), {"training.device": "cpu"})).prepare(graph).num_parameters_
