"""A run's report, one HTML file that opens anywhere; and a model card in Markdown, for those who get its model.

A card says what the model is, what it is good for, how it was made and measured, with the front matter that model hubs
read. It names no path of the machine it was made on.
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
from rgcn.pages.layout import SPLIT_WORDS, page, parts, render
from rgcn.pages.reporting import NamesOnPage, OnProgress, Panel, Reporting
from rgcn.runs.assembly import load_trained, titles_of
from rgcn.runs.configuration import WITHOUT_EFFECT, changed_settings, flat_settings, without_folders
from rgcn.runs.folder import RunFolder, decisive_differences
from rgcn.runs.run_record import RunRecord, read_run, session_seconds
from rgcn.runs.selection import read_selection
from rgcn.version import __version__


class RunReport(NamedTuple):
    """A report as a page, and what was measured for it as plain values."""

    html: str
    values: dict[str, Any]


def make_report(
    folder: Path, split: str | None = None, on_progress: OnProgress | None = None, mirror: Path | None = None
) -> RunReport:
    """Read a run, measure its model, and lay out the page.

    split  test or valid; None takes test where there is one. A run that is not finished is measured on validation data
           only, from its newest checkpoint: a test split is read once, at the end
    """
    run = read_run(folder)
    reporting, model, reason = run.task.to(Reporting), None, "the data has no held-out split"
    try:
        model = load_trained(RunFolder(run.folder), mirror)
    except RgcnError as error:  # the rest of the page is worth having without it
        reason = str(error)
    if model is not None:
        reporting.titles = titles_of(model.graph_, run.config.data.dataset, mirror)
    splits = [] if model is None else reporting.held_out(model)
    if run.result is None:
        if split == "test":
            raise DataError(
                f"{run.folder} is not finished ({run.status}): its test split is read at the end, once; --split valid "
                "measures how far it has come"
            )
        if model is not None:
            splits = [one for one in splits if one != "test"]
            reason = "the data has no validation split, and a test split is read at the end, once"
    if split is not None and split not in splits:
        have = f"this run has {', '.join(splits)}" if splits else reason
        raise DataError(f"there is nothing to measure in split {split!r}: {have}")
    measured = reporting.measure(model, split or splits[0], on_progress) if model is not None and splits else None
    settings, best = _settings(without_folders(run.config)), run.best()
    panels = reporting.panels(run.reported, run.task.watch(run.config.training))
    content = parts(
        "run_report.html",
        run=run,
        measured=measured,
        reason=reason,
        pictures=[(panel, _picture(run, panel)) for panel in panels],
        model=model,
        settings=settings,
        changed=[row for row in settings if row[1] != row[2]],
        reporting=reporting,
        names=None if reporting.titles is None else NamesOnPage(reporting.titles),
        session_seconds=session_seconds,
        command=_command(run),
        machine_changes=_machine_changes(run),
        selection=read_selection(folder),
    )
    footer = f"Written by rgcn {__version__} from the run's own files. This page loads nothing from anywhere."
    values = {
        "run": str(run.folder),
        "task": run.config.task,
        "dataset": run.config.data.title,
        "model": run.config.model.title,
        "seed": run.config.seed,
        "status": run.status,
        "epochs": run.epochs,
        "seconds": run.seconds,
        "best": None if best is None else {"metric": best.metric.name, "epoch": best.epoch, "value": best.value},
        "measured": None if measured is None else dict(measured.values),
    }
    return RunReport(page(f"{run.title}: {run.task.title}", content, footer=footer), values)


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


def _settings(config: ConfigSection, prefix: str = "") -> list[tuple[str, Any, Any, str]]:
    """(key, value, default, description) of every setting."""
    rows: list[tuple[str, Any, Any, str]] = []
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if isinstance(value, ConfigSection):
            rows += _settings(value, f"{prefix}{name}.")
        elif name != "task" and not field.exclude:
            rows.append((prefix + name, value, field.get_default(call_default_factory=True), field.description or ""))
    return rows


def _command(run: RunRecord) -> str:
    """What was typed for the last session, absolute paths without their folders."""
    command = str((run.environment or [{}])[-1].get("command") or "")
    return re.sub(r"'[^']*'|\S+", lambda word: re.sub("(^'?|=)/.*/", r"\1", word[0]), command)


def _machine_changes(run: RunRecord) -> list[str]:
    return [
        f"session {number + 1}: {'; '.join(different)}"
        for number, (before, now) in enumerate(pairwise(run.environment), start=1)
        if (different := decisive_differences(before, {"versions": {}, "hardware": {}, **now}))
    ]


# -- a model card ------------------------------------------------------------------------------------------


def model_card(run: RunFolder, model: Estimator | None = None) -> str:
    """The card of a run, finished or not; `model` spares loading it again where it is at hand."""
    record = read_run(run.path)
    reporting, missing = record.task.to(Reporting), ""
    if record.result is None:
        model, missing = None, "It is not finished, so that there is no model to measure yet."
    elif model is None:
        try:
            model = load_trained(run, device="cpu")
        except RgcnError:  # its words would name a folder of this machine
            missing = "Its folder `model/` is missing or damaged, so that less is said here."
    config = record.config
    card = render(
        "model_card.md",
        front_matter=_front_matter(record),
        run=record,
        version=__version__,
        missing=missing,
        reporting=reporting,
        model=model,
        dataset=CATALOG.get((config.data.dataset or "").lower()),
        settings=flat_settings(changed_settings(config), ("task", "seed", "data", *WITHOUT_EFFECT)),
        calibration=_calibration(run.path),
    )
    return str(card)


def _front_matter(run: RunRecord) -> str:
    source = run.config.data.title
    about: dict[str, Any] = {
        "library_name": "rgcn",
        "pipeline_tag": "graph-ml",
        "tags": list(dict.fromkeys(["rgcn", run.config.model.title, run.task.name, "knowledge-graph"])),
        "datasets": [source],
    }
    figures = [
        {"type": metric, "value": round(float(value), 4), "name": f"{SPLIT_WORDS['test']} {metric}"}
        for metric, value in (run.result or {}).get("metrics", {}).get("test", {}).items()
        if metric != "count"
    ]
    if figures:
        task = {"type": run.task.name, "name": run.task.title.capitalize()}
        results = [{"task": task, "dataset": {"name": source, "type": source}, "metrics": figures}]
        about["model-index"] = [{"name": run.folder.resolve().name, "results": results}]
    return yaml.safe_dump(about, sort_keys=False, allow_unicode=True)


def _calibration(folder: Path) -> str | None:
    """What `rgcn predict` wrote down of its probabilities, if it did."""
    try:
        return str(json.loads((folder / "calibration.json").read_text(encoding="utf-8"))["words"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
