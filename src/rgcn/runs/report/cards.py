"""What a report says of the model, the data, the settings, the machine and the time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rgcn.config import LinkModelConfig, NodeModelConfig, RunConfig
from rgcn.config import Section as ConfigSection
from rgcn.runs.environment import decisive_differences
from rgcn.runs.report.charts import Bar, bar_chart
from rgcn.runs.report.figures import count, decimal, duration, moment
from rgcn.runs.report.markup import Html, breakable, definitions, details, join, named, paragraph, prose, table, tag
from rgcn.runs.report.page import Section
from rgcn.runs.report.record import RunRecord, session_seconds

if TYPE_CHECKING:
    from rgcn.graph import KnowledgeGraph
    from rgcn.tasks import LinkPredictor, NodeClassifier

SHOWN_RELATIONS, SHOWN_CLASSES = 10, 20


# -- the model -----------------------------------------------------------------------------------------------


def model_card(run: RunRecord, model: NodeClassifier | LinkPredictor | None) -> Section:
    """What the network is made of, and how many numbers it holds."""
    rows: list[tuple[object, object]] = [
        ("Architecture", architecture(run.config, model is not None and model.graph_.features is not None)),
        ("Weight matrices", decomposition(run.config.model)),
        ("Messages", _messages(run.config.model)),
    ]
    result = run.result or {}
    stored = result.get("stored_parameters") or (None if model is None else model.num_parameters_)
    counted = result.get("parameters")
    if stored is not None:
        rows.append(("Parameters held and trained", f"{stored:,}"))
    if counted is not None:
        words = "" if counted == stored else " (a row for every relation and node; those never reached are not stored)"
        rows.append(("Parameters as the paper counts", f"{counted:,}{words}"))
    body = [definitions(rows)]
    if model is not None:
        tensors = [
            [tag("code", name), " × ".join(map(str, tensor.shape)), f"{tensor.numel():,}"]
            for name, tensor in model.network_.named_parameters()
        ]
        body.append(details(count(len(tensors), "tensor"), table(["tensor", "shape", "numbers"], tensors, numeric=[2])))
    return Section("Model", "The network that was trained.", join(body))


def architecture(config: RunConfig, features: bool = False) -> str:
    """The network in a sentence; `features`: whether the graph's nodes have any.

    >>> from rgcn.runs import load_configuration
    >>> architecture(load_configuration("rgcn/nc-aifb"))
    'rgcn: 2 relational convolutions of hidden width 16 over one-hot nodes'
    """
    model = config.model
    layers = count(model.layers, "relational convolution")
    if isinstance(model, NodeModelConfig):
        if model.name == "e-rgcn":
            return f"e-rgcn: learned node embeddings of width {model.embedding}, then {layers}, the first one diagonal"
        given = model.input == "features" or (model.input == "auto" and features)
        nodes = "the nodes' features" if given else "one-hot nodes"
        return f"rgcn: {layers} of hidden width {model.hidden} over {nodes}"
    if model.name == "distmult":
        return f"distmult: node embeddings of width {model.embedding} scored by DistMult, without message passing"
    if model.name == "c-rgcn":
        return (
            f"c-rgcn: {layers} through a bottleneck of width {model.bottleneck}, the embedding of width "
            f"{model.embedding} goes around it; scored by DistMult"
        )
    brings = "one-hot nodes" if model.input == "one-hot" else f"node embeddings of width {model.embedding}"
    return f"rgcn: {layers} over {brings}; scored by DistMult"


def decomposition(model: NodeModelConfig | LinkModelConfig) -> str:
    """How a relation's weight matrix is written."""
    if model.name == "distmult":
        return "none: a vector for each relation"
    if model.decomposition == "basis":
        bases = "one basis" if model.bases == 1 else f"{model.bases} bases"
        return f"each relation's matrix is a mixture of {bases} that all relations share"
    if model.decomposition == "block":
        return f"each relation's matrix has {count(model.blocks or 0, 'block')} along its diagonal, and zeros elsewhere"
    if model.decomposition == "diagonal":
        return "each relation's matrix is a diagonal"
    return "a full matrix for each relation (no decomposition)"


def _messages(model: NodeModelConfig | LinkModelConfig) -> str:
    if model.name == "distmult":
        return "none"
    ways = "along triples and against them" if model.inverse else "along triples only"
    loops = ", and each node hears itself" if model.self_loops else ""
    shared = {
        "relation": "averaged over the neighbors of each relation",
        "node": "averaged over all neighbors",
        "direction": "averaged over the neighbors of each direction",
        "none": "not normalized",
    }[model.normalization]
    return f"{ways}{loops}; {shared}, then the {model.aggregation} over relations"


# -- the settings --------------------------------------------------------------------------------------------


def settings_card(config: RunConfig) -> Section:
    """Settings that differ from the defaults first, then every one."""
    every = _settings(config)
    changed = [row for row in every if row[1] != row[2]]
    head = ["setting", "value", "default", "what it does"]
    parts = [
        table(head, [_setting_cells(*row) for row in changed])
        if changed
        else paragraph("Every setting has its default.", class_="empty"),
        details(f"All {len(every)} settings", table(head, [_setting_cells(*row) for row in every])),
    ]
    words = "What was chosen otherwise than by default. Every random choice follows from the seed."
    return Section("Settings", words, join(parts))


def _settings(config: ConfigSection, prefix: str = "") -> list[tuple[str, Any, Any, str]]:
    """(key, value, default, description) of every setting."""
    rows: list[tuple[str, Any, Any, str]] = []
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if isinstance(value, ConfigSection):
            rows += _settings(value, f"{prefix}{name}.")
        elif name != "task":
            rows.append((prefix + name, value, field.get_default(call_default_factory=True), field.description or ""))
    return rows


def _setting_cells(key: str, value: Any, default: Any, description: str) -> list[object]:
    words = tag("td", prose(description), class_="words")
    return [
        tag("code", breakable(key)),
        tag("strong", shown(value)) if value != default else shown(value),
        shown(default),
        words,
    ]


def shown(value: Any) -> Html:
    """A setting as a person writes it."""
    if value is None:
        return tag("span", "none", class_="muted")
    if isinstance(value, bool):
        return tag("span", "yes" if value else "no")
    if isinstance(value, float):
        return tag("span", f"{value:.6g}")
    if isinstance(value, str):
        return named(value)
    if isinstance(value, Mapping):
        return join([join([f"{key}: ", named(str(inner))]) for key, inner in value.items()], "; ")
    if isinstance(value, list):
        return join([named(str(inner)) for inner in value], ", ") if value else tag("span", "none", class_="muted")
    return tag("span", str(value))


# -- the data ------------------------------------------------------------------------------------------------


def data_card(run: RunRecord, graph: KnowledgeGraph | None) -> Section:
    """Counts, splits, classes, relations, fingerprint."""
    source = run.config.data
    known = run.about.get("data", {})
    rows: list[tuple[object, object]] = [("Source", named(source.dataset or str(source.path)))]
    sizes = ("nodes", "relations", "triples")
    rows += [(name.capitalize(), f"{known[name]:,}") for name in sizes if known.get(name) is not None]
    parts: list[Html] = []
    if graph is not None:
        statistics = graph.statistics()
        pruned = " (the graph kept with the model is pruned to what labelled nodes can hear)" if source.prune else ""
        if known.get("nodes") is None:
            rows += [
                ("Nodes", f"{graph.num_nodes:,}"),
                ("Relations", f"{graph.num_relations:,}"),
                ("Triples", f"{len(graph):,}"),
            ]
        elif pruned:
            rows.append(
                ("Kept with the model", f"{count(graph.num_nodes, 'node')}, {count(len(graph), 'triple')}{pruned}")
            )
        if statistics.literals:
            rows.append(("Literals among the nodes", f"{statistics.literals:,}"))
        rows.append(
            ("Triples a node", f"{decimal(statistics.mean_degree)} on average, at most {statistics.max_degree:,}")
        )
        if run.task == "link-prediction":
            rows.append(("Splits (triples)", _splits(statistics.triples_per_split)))
        else:
            rows.append(("Splits (labelled nodes)", _splits(statistics.labels_per_split)))
            parts += _distribution(graph)
        parts += _frequent(
            "Most frequent relations", "relation", "triples", statistics.relation_counts, SHOWN_RELATIONS
        )
    fingerprint = run.fingerprint or (graph.fingerprint if graph is not None else None)
    if fingerprint:
        rows.append(("Fingerprint (sha256)", tag("code", fingerprint)))
    words = "The graph the model learned from. Runs on data with the same fingerprint can be compared."
    return Section("Data", words, join([definitions(rows), *parts]))


def _splits(sizes: Mapping[str, int]) -> str:
    words = {"train": "training", "valid": "validation", "test": "test"}
    return ", ".join(f"{words[split]} {size:,}" for split, size in sizes.items() if size) or "none"


def _distribution(graph: KnowledgeGraph) -> list[Html]:
    """How many labelled nodes each class has, in training and held out."""
    labels = graph.labels
    if labels is None:
        return []
    splits = list(labels.counts())
    sizes = {split: [0] * labels.num_classes for split in splits}
    for split in splits:
        for class_id in labels.of(split)[1].tolist():
            sizes[split][class_id] += 1
    order = sorted(range(labels.num_classes), key=lambda c: (-sum(sizes[s][c] for s in splits), labels.names[c]))
    bars = [
        Bar(named(labels.names[c]), [float(sum(sizes[s][c] for s in splits))], [f"{sizes[s][c]:,}" for s in splits])
        for c in order
    ]
    notes = ["training" if s == "train" else "validation" if s == "valid" else s for s in splits]

    def chart(some: list[Bar]) -> Html:
        return bar_chart(some, ["labelled nodes"], label="class", notes=notes, value_format=lambda v: f"{v:,.0f}")

    parts = [tag("h3", "Classes"), chart(bars[:SHOWN_CLASSES])]
    if len(bars) > SHOWN_CLASSES:
        parts.append(details(f"All {len(bars)} classes", chart(bars)))
    return parts


def _frequent(heading: str, label: str, column: str, counts: Mapping[str, int], shown: int) -> list[Html]:
    bars = [Bar(named(name), [float(number)]) for name, number in list(counts.items())[:shown]]
    rest = len(counts) - len(bars)
    note = [paragraph(f"and {count(rest, label)} more", class_="muted")] if rest else []
    return [tag("h3", heading), bar_chart(bars, [column], label=label, value_format=lambda v: f"{v:,.0f}"), *note]


# -- time and machine ----------------------------------------------------------------------------------------


def time_card(run: RunRecord) -> Section:
    """How long it took, session by session."""
    rows: list[tuple[object, object]] = []
    seconds = run.seconds
    if run.about.get("created"):
        rows.append(("Begun", moment(run.about["created"])))
    rows.append(("Epochs", f"{run.epochs:,} of at most {run.config.training.epochs:,}"))
    if seconds is not None:
        rows.append(("Time in all", duration(seconds)))
        if run.epochs:
            rows.append(("Time an epoch", f"{duration(seconds / run.epochs)} (with everything around it)"))
    parts = [definitions(rows)]
    if run.sessions:
        cells = []
        for number, session in enumerate(run.sessions, start=1):
            spent = session_seconds(session)
            cells.append(
                [
                    str(number),
                    moment(session.get("began", "")),
                    "" if spent is None else duration(spent),
                    f"{session.get('from_step') or 0:,}",
                    "" if session.get("to_step") is None else f"{session['to_step']:,}",
                    session.get("outcome") or ("running" if run.status == "running" else "ended without a word"),
                ]
            )
        head = ["session", "began", "time", "from epoch", "to epoch", "how it ended"]
        parts.append(table(head, cells, numeric=[2, 3, 4]))
    return Section("Time", "A run that is interrupted and resumed has several sessions.", join(parts))


def environment_card(run: RunRecord) -> Section:
    """Versions, hardware, git and command of the last session; what changed between sessions."""
    if not run.environment:
        body = paragraph("Nothing was written down about the machine.", class_="empty")
        return Section("Environment", "", body)
    last = run.environment[-1]
    rows: list[tuple[object, object]] = []
    if last.get("command"):
        rows.append(("Command", tag("code", last["command"])))
    rows += [(_heading(key), _plain(key, value)) for key, value in (last.get("hardware") or {}).items()]
    rows.append(("Git, where the command ran", _git(last.get("git"))))
    versions = last.get("versions") or {}
    rows.append(("Versions", ", ".join(f"{name} {version}" for name, version in versions.items())))
    known = {"command", "hardware", "git", "versions"}
    rows += [(_heading(key), _plain(key, value)) for key, value in last.items() if key not in known]
    parts = [definitions(rows)]
    changes = [
        f"session {number + 1}: {'; '.join(different)}"
        for number, (before, now) in enumerate(zip(run.environment, run.environment[1:], strict=False), start=1)
        if (different := decisive_differences(before, {"versions": {}, "hardware": {}, **now}))
    ]
    if changes:
        parts.append(paragraph(f"Changed between sessions: {'. '.join(changes)}. Last digits may depend on this."))
    return Section(
        "Environment", "What the last session ran on, to tell why another machine gives other digits.", join(parts)
    )


def _git(state: Mapping[str, Any] | None) -> Html | str:
    if not state:
        return "not under git"
    changed = ", with uncommitted changes" if state.get("changed") else ""
    return join([tag("code", str(state.get("commit", ""))[:12]), f" on {state.get('branch', '?')}{changed}"])


def _heading(key: object) -> str:
    """memory_bytes → Memory, cpu → CPU."""
    words = str(key).removesuffix("_bytes").replace("_", " ")
    return words.upper() if len(words) <= 3 else words.capitalize()


def _plain(key: object, value: object) -> str:
    if value is None:
        return "none"
    if str(key).endswith("bytes") and isinstance(value, (int, float)):
        return f"{value / 2**30:.1f} GiB"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {inner}" for name, inner in value.items())
    return str(value)
