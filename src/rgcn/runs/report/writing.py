"""A run's report: one HTML file that opens anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rgcn
from rgcn.data.atomic import write_atomically
from rgcn.errors import DataError, RgcnError
from rgcn.runs.assembly import Model
from rgcn.runs.folder import RunFolder
from rgcn.runs.report.cards import caveats, data_card, environment_card, model_card, settings_card, time_card
from rgcn.runs.report.curves import curves
from rgcn.runs.report.evaluation import LinkEvaluation, NodeEvaluation, OnProgress, evaluate, held_out_splits
from rgcn.runs.report.figures import decimal, percent
from rgcn.runs.report.link_sections import link_sections, link_tiles
from rgcn.runs.report.markup import Html, join, paragraph, prose, tag
from rgcn.runs.report.node_sections import node_sections, node_tiles
from rgcn.runs.report.page import Section, Tile, page
from rgcn.runs.report.record import RunRecord, read_run
from rgcn.runs.trained import load_trained
from rgcn.words import duration

TASK_WORDS = {
    "node-classification": "Node classification: from its place in the graph, the model tells which class a node "
    "belongs to. Accuracy is the share of held-out nodes whose class it gets right.",
    "link-prediction": "Link prediction: the model scores triples (subject, relation, object), so that missing ones "
    "can be found. For each held-out triple it must find the missing object, and the missing subject, among all "
    "nodes. MRR is the mean of 1 / rank of the right one: 1 is perfect, 0.5 is as good as always coming second.",
}
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
        Section("Learning curves", _curve_words(run), curves(run)),
    ]
    if isinstance(measured, NodeEvaluation):
        sections += node_sections(measured)
    elif isinstance(measured, LinkEvaluation):
        sections += link_sections(measured)
    sections += [
        model_card(run, there),
        settings_card(run.config),
        data_card(run, None if there is None else there.graph_),
        time_card(run),
        environment_card(run),
    ]
    text = page(
        f"{run.title}: {run.task.replace('-', ' ')}",
        sections,
        introduction=_introduction(run),
        tiles=_tiles(run, measured),
        footer=f"Written by rgcn {rgcn.__version__} from the run's own files. This page loads nothing from anywhere.",
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


def _model_or_reason(run: RunRecord, mirror: Path | None) -> Model | str:
    """The model, or why there is none: the rest of the page is worth having without it."""
    try:
        return load_trained(RunFolder(run.folder), mirror)
    except RgcnError as error:
        return str(error)


def _measured_or_reason(
    run: RunRecord, model: Model | str, wanted: str | None, on_progress: OnProgress | None
) -> NodeEvaluation | LinkEvaluation | str:
    """The model on the split that is wanted, or why nothing is measured where none was asked for."""
    if run.result is None and wanted == "test":
        raise DataError(
            f"{run.folder} is not finished ({run.status}): its test split is read at the end, once; --split valid "
            "measures how far it has come"
        )
    splits: list[str] = []
    if isinstance(model, str):
        reason = model
    elif run.result is None:
        splits = [split for split in held_out_splits(model.graph_, run.task) if split != "test"]
        reason = "the data has no validation split, and a test split is read at the end, once"
    else:
        splits = held_out_splits(model.graph_, run.task)
        reason = "the data has no held-out split"
    if wanted is not None and wanted not in splits:
        have = f"this run has {', '.join(splits)}" if splits else reason
        raise DataError(f"there is nothing to measure in split {wanted!r}: {have}")
    if isinstance(model, str) or not splits:
        return reason
    return evaluate(model, wanted or splits[0], on_progress)


def _introduction(run: RunRecord) -> Html:
    kind = "good" if run.status == "finished" else "bad" if run.status in ("failed", "killed") else ""
    state = tag("span", prose(STATE_WORDS.get(run.status, run.status)), class_=f"state {kind}".strip())
    return join(
        [
            paragraph(state, f"  seed {run.config.seed}, kept in ", tag("code", run.folder.name or str(run.folder))),
            paragraph(TASK_WORDS[run.task]),
        ]
    )


def _tiles(run: RunRecord, measured: NodeEvaluation | LinkEvaluation | str) -> list[Tile]:
    if isinstance(measured, NodeEvaluation):
        tiles = node_tiles(measured)
    elif isinstance(measured, LinkEvaluation):
        tiles = link_tiles(measured)
    else:
        tiles = _so_far(run)
    seconds = run.seconds
    time = "" if seconds is None else f"in {duration(seconds)}"
    if run.result is None:
        time = f"of at most {run.config.training.epochs:,} {time}".strip()
    return [*tiles, Tile("epochs", f"{run.epochs:,}", time)]


def _so_far(run: RunRecord) -> list[Tile]:
    """The last figures of a run that could not be measured."""
    columns = {
        "valid_mrr": ("validation MRR", decimal),
        "valid_accuracy": ("validation accuracy", percent),
        "train_accuracy": ("training accuracy", percent),
        "loss": ("training loss", decimal),
    }
    tiles = []
    for column, (name, words) in columns.items():
        curve = run.curve(column)
        if curve:
            tiles.append(Tile(name, words(curve[-1][1]), f"at epoch {curve[-1][0]:,.0f}"))
    return tiles


def _curve_words(run: RunRecord) -> str:
    best = run.best()
    if best is None:
        return "What each epoch of training did. Nothing was held out for validation, and the last weights are kept."
    name = {"valid_mrr": "the highest validation MRR", "valid_loss": "the lowest validation loss"}[best[0]]
    kept = "kept" if run.result is not None else "that would be kept now"
    if run.keeps_best:
        return f"What each epoch of training did. The model {kept} is the one with {name}, of epoch {best[1]:,.0f}."
    return f"What each epoch of training did. The model {kept} is the last one; {name} was at epoch {best[1]:,.0f}."


def _values(run: RunRecord, measured: NodeEvaluation | LinkEvaluation | str) -> dict[str, Any]:
    best = run.best()
    return {
        "run": str(run.folder),
        "task": run.task,
        "dataset": run.config.data.title,
        "model": run.config.model.title,
        "seed": run.config.seed,
        "status": run.status,
        "epochs": run.epochs,
        "seconds": run.seconds,
        "best": None if best is None else dict(zip(("column", "epoch", "value"), best, strict=True)),
        "measured": None if isinstance(measured, str) else measured.as_dict(),
    }
