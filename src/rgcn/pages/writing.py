"""A run's report: one HTML file that opens anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rgcn.data.atomic import write_atomically
from rgcn.errors import DataError, RgcnError
from rgcn.pages.cards import caveats, data_card, environment_card, model_card, settings_card, time_card
from rgcn.pages.curves import Panel, curves
from rgcn.pages.markup import Html, join, paragraph, prose, tag
from rgcn.pages.page import Section, Tile, page
from rgcn.pages.reporting import Measured, OnProgress, Reporting
from rgcn.runs.assembly import load_trained
from rgcn.runs.folder import RunFolder
from rgcn.runs.run_record import RunRecord, read_run
from rgcn.tasks.estimator import Estimator
from rgcn.version import __version__
from rgcn.words import duration

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


@dataclass(frozen=True)
class Report:
    """A report as a page, and what was measured for it as plain values."""

    html: str
    values: dict[str, Any]


def make_report(
    folder: Path, split: str | None = None, on_progress: OnProgress | None = None, mirror: Path | None = None
) -> Report:
    """Read a run, measure its model, and lay out the page.

    split        test or valid; None takes test where there is one. A run that is not finished is measured on validation
                 data only, from its newest checkpoint: a test split is read once, at the end
    on_progress  called with (done, total) while questions about triples are answered
    mirror       folder to take data sets from; a finished run needs none
    """
    run = read_run(folder)
    model = _model_or_reason(run, mirror)
    measured = _measured_or_reason(run, model, split, on_progress)
    there = None if isinstance(model, str) else model
    sections = [
        Section("Read with care", "", caveats(run, measured)),
        Section("Learning curves", _curve_words(run), curves(run, _panels(run))),
        *([] if isinstance(measured, str) else measured.sections),
        model_card(run, there),
        settings_card(run.config),
        data_card(run, None if there is None else there.graph_),
        time_card(run),
        environment_card(run),
    ]
    text = page(
        f"{run.title}: {run.task.title}",
        sections,
        introduction=_introduction(run),
        tiles=_tiles(run, measured),
        footer=f"Written by rgcn {__version__} from the run's own files. This page loads nothing from anywhere.",
    )
    return Report(text, _values(run, measured))


def write_report(
    folder: Path,
    out: Path | None = None,
    split: str | None = None,
    on_progress: OnProgress | None = None,
    mirror: Path | None = None,
) -> tuple[Path, Report]:
    """Make a report and write it, by default as report.html into the run's folder."""
    report = make_report(folder, split, on_progress, mirror)
    target = folder / "report.html" if out is None else out
    save_page(target, report.html)
    return target, report


def save_page(target: Path, text: str) -> None:
    """Write a page, whole or not at all."""
    if target.is_dir():
        raise DataError(f"{target} is a folder; --out takes the name of a file")
    try:
        write_atomically(target, text)
    except OSError as error:
        raise DataError(f"cannot write {target}: {error.strerror}; choose another place with --out") from error


def _model_or_reason(run: RunRecord, mirror: Path | None) -> Estimator | str:
    """The model, or why there is none: the rest of the page is worth having without it."""
    try:
        return load_trained(RunFolder(run.folder), mirror)
    except RgcnError as error:
        return str(error)


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


def _introduction(run: RunRecord) -> Html:
    kind = "good" if run.status == "finished" else "bad" if run.status in ("failed", "killed") else ""
    state = tag("span", prose(STATE_WORDS.get(run.status, run.status)), class_=f"state {kind}".strip())
    return join(
        [
            paragraph(state, f"  seed {run.config.seed}, kept in ", tag("code", run.folder.name or str(run.folder))),
            paragraph(run.task.about),
        ]
    )


def _tiles(run: RunRecord, measured: Measured | str) -> list[Tile]:
    tiles = _so_far(run) if isinstance(measured, str) else list(measured.tiles)
    seconds = run.seconds
    time = "" if seconds is None else f"in {duration(seconds)}"
    if run.result is None:
        time = f"of at most {run.config.training.epochs:,} {time}".strip()
    return [*tiles, Tile("epochs", f"{run.epochs:,}", time)]


def _panels(run: RunRecord) -> list[Panel]:
    return run.task.to(Reporting).panels(run.reported, run.task.watch(run.config))


def _so_far(run: RunRecord) -> list[Tile]:
    """The last figures of a run that could not be measured, those of validation first."""
    tiles: list[Tile] = []
    for panel in _panels(run):
        for column, of in reversed(panel.columns):
            curve = run.curve(column)
            if curve:
                words = panel.value_format(curve[-1][1])
                tiles.append(Tile(f"{of} {panel.metric.title}", words, f"at epoch {curve[-1][0]:,.0f}"))
    return tiles


def _curve_words(run: RunRecord) -> str:
    best, did = run.best(), "What each epoch of training did."
    if best is None:
        return f"{did} Nothing was held out for validation, and the last weights are kept."
    kept = "kept" if run.result is not None else "that would be kept now"
    if run.keeps_best:
        return f"{did} The model {kept} is the one with {best.metric.best}, of epoch {best.epoch:,}."
    return f"{did} The model {kept} is the last one; {best.metric.best} was at epoch {best.epoch:,}."


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
