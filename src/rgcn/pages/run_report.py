"""A run's report: one HTML file that opens anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from rgcn.config import RunConfig
from rgcn.config import Section as ConfigSection
from rgcn.errors import DataError, RgcnError
from rgcn.graph import KnowledgeGraph
from rgcn.pages.charts import Bar, Mark, Series, bar_chart
from rgcn.pages.escaping import named
from rgcn.pages.figures import SPLIT_WORDS, decimal, moment
from rgcn.pages.layout import Tile, page, render, save_page, sections
from rgcn.pages.reporting import Measured, OnProgress, Panel, Reporting
from rgcn.runs.assembly import load_trained
from rgcn.runs.environment import decisive_differences
from rgcn.runs.folder import RunFolder
from rgcn.runs.run_record import RunRecord, read_run, session_seconds
from rgcn.tasks.estimator import Estimator
from rgcn.version import __version__
from rgcn.words import count, duration, memory, setting

SHOWN_RELATIONS = 10
STATE_WORDS = {
    "finished": "finished",
    "running": "still running",
    "interrupted": "interrupted; `rgcn resume` goes on with it",
    "terminated": "stopped from outside; `rgcn resume` goes on with it",
    "killed": "ended without a word (killed, or the power failed); `rgcn resume` goes on with it",
    "failed": "failed",
    "incomplete": "incomplete: its result is gone; `rgcn resume` makes it again",
    "not begun": "not begun",
}
Rows = list[tuple[str, str]]


@dataclass(frozen=True)
class RunReport:
    """A report as a page, and what was measured for it as plain values."""

    html: str
    values: dict[str, Any]


def make_report(
    folder: Path, split: str | None = None, on_progress: OnProgress | None = None, mirror: Path | None = None
) -> RunReport:
    """Read a run, measure its model, and lay out the page.

    split        test or valid; None takes test where there is one. A run that is not finished is measured on validation
                 data only, from its newest checkpoint: a test split is read once, at the end
    on_progress  called with (done, total) while questions about triples are answered
    mirror       folder to take data sets from; a finished run needs none
    """
    run = read_run(folder)
    try:
        model: Estimator | str = load_trained(RunFolder(run.folder), mirror)
    except RgcnError as error:  # the rest of the page is worth having without it
        model = str(error)
    measured = _measured_or_reason(run, model, split, on_progress)
    there = None if isinstance(model, str) else model
    graph = None if there is None else there.graph_
    panels = run.task.to(Reporting).panels(run.reported, run.task.watch(run.config))
    settings = list(_settings(run.config))
    shown = sections(
        "run_report.html",
        run=run,
        cautions=_cautions(run, measured),
        best=run.best(),
        pictures=[(panel, _picture(run, panel)) for panel in panels],
        measured=() if isinstance(measured, str) else measured.sections,
        model=_about_model(run, there),
        tensors=[] if there is None else list(there.network_.named_parameters()),
        settings=settings,
        changed=[row for row in settings if row[1] != row[2]],
        setting_words=setting_words,
        data=_about_data(run, graph),
        data_parts=[] if graph is None else [*run.task.to(Reporting).data_parts(graph), _relations(graph)],
        times=_times(run),
        session_seconds=session_seconds,
        moment=moment,
        machine=_machine(run),
        machine_changes=_machine_changes(run),
    )
    state = STATE_WORDS.get(run.status, run.status)
    text = page(
        f"{run.title}: {run.task.title}",
        shown,
        introduction=render("run_introduction.html", run=run, state=state),
        tiles=_tiles(run, measured, panels),
        footer=f"Written by rgcn {__version__} from the run's own files. This page loads nothing from anywhere.",
    )
    return RunReport(text, _values(run, measured))


def write_report(
    folder: Path,
    out: Path | None = None,
    split: str | None = None,
    on_progress: OnProgress | None = None,
    mirror: Path | None = None,
) -> tuple[Path, RunReport]:
    """Make a report and write it, by default as report.html into the run's folder."""
    report = make_report(folder, split, on_progress, mirror)
    target = folder / "report.html" if out is None else out
    save_page(target, report.html)
    return target, report


def one_seed(run: RunRecord) -> str:
    return (
        f"This is one run with one seed ({run.config.seed}). Another seed gives other figures; "
        "only several runs tell how much they vary (`rgcn compare` shows mean and standard error)."
    )


def setting_words(value: Any) -> Markup:
    """A setting as a configuration file has it; long names in short, the whole of them on hovering.

    >>> print(setting_words(None), setting_words(0.01), setting_words(["b"]))
    <span class="muted">null</span> 0.01 <bdi>b</bdi>
    """
    if isinstance(value, str):
        return named(value)
    if isinstance(value, Mapping) and value:
        return Markup("; ").join(Markup("{}: {}").format(key, named(str(inner))) for key, inner in value.items())
    if isinstance(value, list) and value:
        return Markup(", ").join(named(str(inner)) for inner in value)
    return Markup('<span class="muted">null</span>') if value is None else Markup("{}").format(setting(value))


# -- what is measured ----------------------------------------------------------------------------------------


def _measured_or_reason(
    run: RunRecord, model: Estimator | str, wanted: str | None, on_progress: OnProgress | None
) -> Measured | str:
    """The model on the split that is wanted, or why nothing is measured where none was asked for."""
    if run.result is None and wanted == "test":
        raise DataError(
            f"{run.folder} is not finished ({run.status}): its test split is read at the end, once; --split valid "
            "measures how far it has come"
        )
    reporting = run.task.to(Reporting)
    splits = [] if isinstance(model, str) else reporting.held_out(model)
    reason = model if isinstance(model, str) else "the data has no held-out split"
    if run.result is None and not isinstance(model, str):
        splits = [split for split in splits if split != "test"]
        reason = "the data has no validation split, and a test split is read at the end, once"
    if wanted is not None and wanted not in splits:
        have = f"this run has {', '.join(splits)}" if splits else reason
        raise DataError(f"there is nothing to measure in split {wanted!r}: {have}")
    if isinstance(model, str) or not splits:
        return reason
    return reporting.measure(model, wanted or splits[0], on_progress)


def _cautions(run: RunRecord, measured: Measured | str) -> list[str]:
    """What a reader should know before believing the figures."""
    words: list[str] = []
    if run.status != "finished":
        words.append(f"This run is not finished ({run.status}): it shows what there is so far.")
    if isinstance(measured, str):
        return [*words, f"Nothing was measured beyond the curves: {measured}.", one_seed(run)]
    if run.result is None:
        words.append("Measured were the best weights of its newest checkpoint. The test split had no part in it.")
    if measured.split == "valid":
        words.append(
            "These figures are of the validation split, which may have had a say in the training; they flatter."
        )
    words += measured.cautions
    metric = run.task.headline
    written = (run.result or {}).get("metrics", {}).get(measured.split, {}).get(metric.name)
    now = measured.values.get(metric.name)
    if written is not None and now is not None and abs(written - now) >= 5e-4:
        words.append(
            f"Measured again for this report, {metric.title} is {now:.4f}; the run wrote down {written:.4f}. They "
            "should agree."
        )
    return [*words, one_seed(run)]


def _tiles(run: RunRecord, measured: Measured | str, panels: list[Panel]) -> list[Tile]:
    """Figures first; of a run that could not be measured its last ones, those of validation before the others."""
    tiles: list[Tile] = [] if isinstance(measured, str) else list(measured.tiles)
    for panel in panels if isinstance(measured, str) else ():
        for column, of in reversed(panel.columns):
            curve = run.curve(column)
            if curve:
                words = panel.value_format(curve[-1][1])
                tiles.append(Tile(f"{of} {panel.metric.title}", words, f"at epoch {curve[-1][0]:,.0f}"))
    time = "" if run.seconds is None else f"in {duration(run.seconds)}"
    if run.result is None:
        time = f"of at most {run.config.training.epochs:,} {time}".strip()
    return [*tiles, Tile("epochs", f"{run.epochs:,}", time)]


def _picture(run: RunRecord, panel: Panel) -> Markup:
    """The curves of a training, where it was taken up again, and where it was best."""
    series = [Series(name, run.curve(column), color=i) for i, (column, name) in enumerate(panel.columns)]
    resumed = dict.fromkeys(one.get("from_step") for one in run.sessions[1:])
    marks = [Mark("resumed", float(step)) for step in resumed if step]
    best = run.best()
    if best is not None and best.metric == panel.metric:
        words = f"best validation: {panel.value_format(best.value)} at epoch {best.epoch:,}"
        marks.append(Mark(words, float(best.epoch), best.value))
    return panel.chart(f"{panel.title} over the training of {run.title}", series, marks)


def _values(run: RunRecord, measured: Measured | str) -> dict[str, Any]:
    best = run.best()
    return {
        "run": str(run.folder),
        "task": run.config.task,
        "dataset": run.config.data.title,
        "model": run.config.model.title,
        "seed": run.config.seed,
        "status": run.status,
        "epochs": run.epochs,
        "seconds": run.seconds,
        "best": None if best is None else {"metric": best.metric.name, "epoch": best.epoch, "value": best.value},
        "measured": None if isinstance(measured, str) else dict(measured.values),
    }


# -- what stands on every report, whatever the task ----------------------------------------------------------


def _about_model(run: RunRecord, model: Estimator | None) -> Rows:
    """What the network is made of, and how many numbers it holds."""
    rows = list(run.config.model.described(model is not None and model.graph_.features is not None).made_of.items())
    result = run.result or {}
    stored = result.get("stored_parameters") or (None if model is None else model.num_parameters_)
    counted = result.get("parameters")
    if stored is not None:
        rows.append(("Parameters held and trained", f"{stored:,}"))
    if counted is not None:
        words = "" if counted == stored else " (a row for every relation and node; those never reached are not stored)"
        rows.append(("Parameters as the paper counts", f"{counted:,}{words}"))
    return rows


def _settings(config: ConfigSection | RunConfig, prefix: str = "") -> list[tuple[str, Any, Any, str]]:
    """(key, value, default, description) of every setting."""
    rows: list[tuple[str, Any, Any, str]] = []
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if isinstance(value, ConfigSection):
            rows += _settings(value, f"{prefix}{name}.")
        elif name != "task" and not field.exclude:
            rows.append((prefix + name, value, field.get_default(call_default_factory=True), field.description or ""))
    return rows


def _about_data(run: RunRecord, graph: KnowledgeGraph | None) -> Rows:
    """Source, sizes as the run wrote them down (the graph kept with the model may be a part of it), splits, print."""
    source, known = run.config.data, run.about.get("data", {})
    sizes = {name: known.get(name) for name in ("nodes", "relations", "triples")}
    if graph is not None and sizes["nodes"] is None:
        sizes = {"nodes": graph.num_nodes, "relations": graph.num_relations, "triples": len(graph)}
    rows: Rows = [("Source", named(source.dataset or str(source.path)))]
    rows += [(name.capitalize(), f"{size:,}") for name, size in sizes.items() if size is not None]
    if graph is not None:
        if source.prune and known.get("nodes") is not None:
            kept = f"{count(graph.num_nodes, 'node')}, {count(len(graph), 'triple')}"
            why = "the graph kept with the model is pruned to what labelled nodes can hear"
            rows.append(("Kept with the model", f"{kept} ({why})"))
        statistics = graph.statistics()
        if statistics.literals:
            rows.append(("Literals among the nodes", f"{statistics.literals:,}"))
        degrees = f"{decimal(statistics.mean_degree)} on average, at most {statistics.max_degree:,}"
        rows.append(("Triples a node", degrees))
        rows += [(f"Splits ({what})", split_sizes(some)) for what, some in run.task.to(Reporting).splits(graph).items()]
    fingerprint = run.fingerprint or (graph.fingerprint if graph is not None else None)
    return [*rows, ("Fingerprint (sha256)", Markup("<code>{}</code>").format(fingerprint))] if fingerprint else rows


def split_sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{SPLIT_WORDS[split]} {size:,}" for split, size in sizes.items() if size) or "none"


def _relations(graph: KnowledgeGraph) -> Markup:
    counts = list(graph.statistics().relation_counts.items())
    bars = [Bar(named(name), [float(number)]) for name, number in counts[:SHOWN_RELATIONS]]
    chart = bar_chart(bars, ["triples"], label="relation", value_format="{:,.0f}".format)
    return render("frequent_relations.html", chart=chart, rest=len(counts) - len(bars))


def _times(run: RunRecord) -> Rows:
    rows: Rows = [("Begun", moment(run.about["created"]))] if run.about.get("created") else []
    rows.append(("Epochs", f"{run.epochs:,} of at most {run.config.training.epochs:,}"))
    if run.seconds is not None:
        rows.append(("Time in training", f"{duration(run.seconds)}, all sessions together"))
        if run.epochs:
            rows.append(("Time an epoch", f"{duration(run.seconds / run.epochs)} (with everything around it)"))
    return rows


def _machine(run: RunRecord) -> Rows:
    """Command, hardware, git and versions of the last session, and whatever else it wrote down."""
    if not run.environment:
        return []
    last = {"hardware": {}, "git": None, "versions": {}, "command": "", **run.environment[-1]}
    git, versions = last.pop("git"), last.pop("versions") or {}
    command, hardware = last.pop("command"), last.pop("hardware") or {}
    state: str = "not under git"
    if git:
        changed = ", with uncommitted changes" if git.get("changed") else ""
        commit, branch = str(git.get("commit", ""))[:12], git.get("branch", "?")
        state = Markup("<code>{}</code> on {}{}").format(commit, branch, changed)
    return [
        *([("Command", Markup("<code>{}</code>").format(command))] if command else []),
        *(_plain(key, value) for key, value in hardware.items()),
        ("Git, where the command ran", state),
        ("Versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
        *(_plain(key, value) for key, value in last.items()),
    ]


def _plain(key: str, value: object) -> tuple[str, str]:
    """
    >>> _plain("memory_bytes", 2**30), _plain("cpu", None), _plain("threads", {"torch": 2})
    (('Memory', '1 GiB'), ('CPU', 'none'), ('Threads', 'torch 2'))
    """
    heading = key.removesuffix("_bytes").replace("_", " ")
    heading = heading.upper() if len(heading) <= 3 else heading.capitalize()
    if key.endswith("bytes") and isinstance(value, (int, float)):
        return heading, memory(value)
    if isinstance(value, Mapping):
        return heading, ", ".join(f"{name} {inner}" for name, inner in value.items())
    return heading, "none" if value is None else str(value)


def _machine_changes(run: RunRecord) -> list[str]:
    return [
        f"session {number + 1}: {'; '.join(different)}"
        for number, (before, now) in enumerate(zip(run.environment, run.environment[1:], strict=False), start=1)
        if (different := decisive_differences(before, {"versions": {}, "hardware": {}, **now}))
    ]
