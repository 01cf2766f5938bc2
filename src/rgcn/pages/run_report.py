"""The report of a run, one HTML file; and the model card, in Markdown, for those who receive the model.

A model card says what the model is, what it can be used for, and how it was trained and measured, with the front matter
that model hubs read. It names no path of the machine that it was made on.
"""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from markupsafe import Markup

from rgcn.config import Section as ConfigSection
from rgcn.data.catalog import CATALOG
from rgcn.errors import DataError, RgcnError
from rgcn.models.estimator import Estimator
from rgcn.pages.charts import Mark, Series
from rgcn.pages.layout import SPLIT_TITLES, page, parts, render
from rgcn.pages.reporting import NameMarkup, OnProgress, Panel, Reporting, SplitEvaluation
from rgcn.runs.assembly import load_trained, titles_of
from rgcn.runs.configuration import SETTINGS_WITHOUT_EFFECT, flat_settings, non_default_settings, with_short_paths
from rgcn.runs.folder import RunFolder, environment_changes
from rgcn.runs.run_record import RunRecord, read_run, session_seconds
from rgcn.runs.selection import read_selection
from rgcn.version import __version__


class RunReport(NamedTuple):
    """A report as a page, and its measurements as plain values."""

    html: str
    values: dict[str, Any]


def make_report(
    folder: Path, split: str | None = None, on_progress: OnProgress | None = None, mirror: Path | None = None
) -> RunReport:
    """Read a run, measure its model, and render the page.

    An unfinished run is measured on validation data only, from its newest checkpoint: a test split is read once, at the
    end.

    Args:
        folder: The folder of the run.
        split: "test" or "valid"; None takes "test" if there is one.
        on_progress: Called with (done, total) while the model is measured.
        mirror: Folder with copies of the data sets.

    Raises:
        DataError: The folder is not a run, or the split cannot be measured.
    """
    run = read_run(folder)
    reporting = run.task.make_part(Reporting)
    model, measured, reason = _measure(run, reporting, split, on_progress, mirror)
    settings, best = _settings(with_short_paths(run.config)), run.best()
    panels = reporting.panels(run.reported, run.task.watch(run.config.training), run.unit)
    shown: dict[str, Any] = {"run": run, "model": model, "measured": measured, "reason": reason, "reporting": reporting}
    shown |= {"settings": settings, "changed": [row for row in settings if row[1] != row[2]]}
    shown |= {"command": _command(run), "session_seconds": session_seconds, "changes": _environment_changes(run)}
    content = parts(
        "run_report.html",
        charts=[(panel, _chart(run, panel)) for panel in panels],
        names=None if reporting.titles is None else NameMarkup(reporting.titles),
        selection=read_selection(folder),
        **shown,
    )
    footer = f"Written by rgcn {__version__} from the files of the run. This page loads nothing from anywhere."
    values = {"run": str(run.folder), **run.config.about, "status": run.status}
    values |= {run.config.training.length_key: run.length, "seconds": run.seconds}
    values["best"] = best and {"metric": best.metric.name, run.unit: best.number, "value": best.value}
    values["measured"] = measured and dict(measured.values)
    return RunReport(page(f"{run.title}: {run.task.title}", content, footer=footer), values)


def _measure(
    run: RunRecord, reporting: Reporting, split: str | None, on_progress: OnProgress | None, mirror: Path | None
) -> tuple[Estimator | None, SplitEvaluation | None, str]:
    """Return the model and its evaluation; None if there is none, with the reason."""
    model, reason = None, "the data have no held-out split"
    try:
        model = load_trained(RunFolder(run.folder), mirror)
    except RgcnError as error:  # the rest of the page is useful without the model
        reason = str(error)
    splits = [] if model is None else reporting.held_out_splits(model)
    if model is not None:
        reporting.titles = titles_of(model.graph_, run.config.data.dataset, mirror)
    if run.result is None:
        if split == "test":
            advice = "its test split is read once, at the end; --split valid measures the current model"
            raise DataError(f"{run.folder} is not finished ({run.status}): {advice}")
        if model is not None:
            splits = [one for one in splits if one != "test"]
            reason = "the data have no validation split, and a test split is read once, at the end"
    if split is not None and split not in splits:
        available = f"this run has {', '.join(splits)}" if splits else reason
        raise DataError(f"there is nothing to measure in split {split!r}: {available}")
    if model is None or not splits:
        return model, None, reason
    return model, reporting.measure(model, split or splits[0], on_progress), reason


def _chart(run: RunRecord, panel: Panel) -> Markup:
    """Draw the curves of a training, with marks where it was resumed and where it was best."""
    series = [Series(name, run.curve(column), color=i) for i, (column, name) in enumerate(panel.columns)]
    steps = dict.fromkeys(session.get("from_step") for session in run.sessions[1:])
    marks = [Mark("resumed", float(step)) for step in steps if step]
    best = run.best()
    if best is not None and best.metric == panel.metric:
        label = f"best validation: {panel.value_format(best.value)} at {run.unit} {best.number:,}"
        marks.append(Mark(label, float(best.number), best.value))
    return panel.chart(f"{panel.title} over the training of {run.title}", series, marks)


def _settings(config: ConfigSection, prefix: str = "") -> list[tuple[str, Any, Any, str]]:
    """Return (key, value, default, description) of every setting."""
    rows: list[tuple[str, Any, Any, str]] = []
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if isinstance(value, ConfigSection):
            rows += _settings(value, f"{prefix}{name}.")
        elif name != "task" and not field.exclude:
            rows.append((prefix + name, value, field.get_default(call_default_factory=True), field.description or ""))
    return rows


def _command(run: RunRecord) -> str:
    """Return the command of the last session, absolute paths without their folders."""
    command = str((run.environment or [{}])[-1].get("command") or "")
    return re.sub(r"'[^']*'|\S+", lambda word: re.sub("(^'?|=)/.*/", r"\1", word[0]), command)


def _environment_changes(run: RunRecord) -> list[str]:
    return [
        f"session {number + 1}: {'; '.join(changes)}"
        for number, (before, now) in enumerate(pairwise(run.environment), start=1)
        if (changes := environment_changes(before, {"versions": {}, "hardware": {}, **now}))
    ]


# -- a model card ------------------------------------------------------------------------------------------


def model_card(run: RunFolder, model: Estimator | None = None) -> str:
    """Return the model card of a run, finished or not, as Markdown.

    Args:
        run: The run.
        model: Its model, if it is loaded already.
    """
    record = read_run(run.path)
    reporting, missing = record.task.make_part(Reporting), ""
    if record.result is None:
        model, missing = None, "It is not finished, so there is no model to measure yet."
    elif model is None:
        try:
            model = load_trained(run, device="cpu")
        except RgcnError:  # its message would name a folder of this machine
            missing = "Its folder `model/` is missing or damaged, so this card is incomplete."
    settings = flat_settings(non_default_settings(record.config), ("task", "seed", "data", *SETTINGS_WITHOUT_EFFECT))
    values = {"run": record, "reporting": reporting, "model": model, "settings": settings, "missing": missing}
    values |= {"front_matter": _front_matter(record), "version": __version__, "calibration": _calibration(run.path)}
    return str(render("model_card.md", dataset=CATALOG.get((record.config.data.dataset or "").lower()), **values))


def _front_matter(run: RunRecord) -> str:
    source = run.config.data.title
    tags = list(dict.fromkeys(["rgcn", run.config.model.title, run.task.name, "knowledge-graph"]))
    about: dict[str, Any] = {"library_name": "rgcn", "pipeline_tag": "graph-ml", "tags": tags, "datasets": [source]}
    metrics = [
        {"type": metric, "value": round(float(value), 4), "name": f"{SPLIT_TITLES['test']} {metric}"}
        for metric, value in (run.result or {}).get("metrics", {}).get("test", {}).items()
        if metric != "count"
    ]
    if metrics:
        task = {"type": run.task.name, "name": run.task.title.capitalize()}
        results = [{"task": task, "dataset": {"name": source, "type": source}, "metrics": metrics}]
        about["model-index"] = [{"name": run.folder.resolve().name, "results": results}]
    return yaml.safe_dump(about, sort_keys=False, allow_unicode=True)


def _calibration(folder: Path) -> str | None:
    """Return what `rgcn predict` stored about the calibration of probabilities, if anything."""
    try:
        return str(json.loads((folder / "calibration.json").read_text(encoding="utf-8"))["words"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
