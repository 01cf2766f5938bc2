"""A run's report: one HTML file that opens anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rgcn
from rgcn.data.atomic import write_atomically
from rgcn.errors import DataError
from rgcn.runs.report.cards import data_card, environment_card, model_card, settings_card, time_card
from rgcn.runs.report.curves import curves
from rgcn.runs.report.evaluation import (
    LinkEvaluation,
    NodeEvaluation,
    OnProgress,
    evaluate,
    held_out_splits,
    load_kept,
)
from rgcn.runs.report.figures import decimal, duration, percent
from rgcn.runs.report.link_sections import link_cautions, link_sections, link_tiles
from rgcn.runs.report.markup import Html, join, paragraph, prose, tag
from rgcn.runs.report.node_sections import node_cautions, node_sections, node_tiles
from rgcn.runs.report.page import Section, Tile, page
from rgcn.runs.report.record import RunRecord, read_run

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
    "not begun": "not begun",
}


@dataclass(frozen=True)
class Report:
    """A report as a page, and what was measured for it as plain values."""

    html: str
    values: dict[str, Any]


def make_report(folder: Path, split: str | None = None, on_progress: OnProgress | None = None) -> Report:
    """Read a run, measure its model, and lay out the page.

    split        test or valid; None takes test where there is one
    on_progress  called with (done, total) while triples are ranked
    """
    run = read_run(folder)
    model = None if run.model_folder is None else load_kept(run.model_folder, run.task)
    measured = None
    if model is not None:
        chosen = _chosen(held_out_splits(model.graph_, run.task), split)
        measured = None if chosen is None else evaluate(model, chosen, on_progress)
    sections = [
        Section("Read with care", "", _care(run, measured)),
        Section("Learning curves", _curve_words(run), curves(run)),
    ]
    if isinstance(measured, NodeEvaluation):
        sections += node_sections(measured)
    elif measured is not None:
        sections += link_sections(measured)
    sections += [
        model_card(run, model),
        settings_card(run.config),
        data_card(run, None if model is None else model.graph_),
        time_card(run),
        environment_card(run),
    ]
    title = f"{run.title}: {run.task.replace('-', ' ')}"
    text = page(
        title,
        sections,
        introduction=_introduction(run),
        tiles=_tiles(run, measured),
        footer=f"Written by rgcn {rgcn.__version__} from the run's own files. This page loads nothing from anywhere.",
    )
    return Report(text, _values(run, measured))


def write_report(
    folder: Path, out: Path | None = None, split: str | None = None, on_progress: OnProgress | None = None
) -> tuple[Path, Report]:
    """Make a report and write it, by default as report.html into the run's folder."""
    report = make_report(folder, split, on_progress)
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


def _chosen(there: list[str], wanted: str | None) -> str | None:
    if wanted is None:
        return there[0] if there else None
    if wanted not in there:
        raise DataError(
            f"there is nothing to measure in split {wanted!r}; this run has {', '.join(there) or 'no held-out data'}"
        )
    return wanted


def _introduction(run: RunRecord) -> Html:
    kind = "good" if run.status == "finished" else "bad" if run.status in ("failed", "killed") else ""
    state = tag("span", prose(STATE_WORDS.get(run.status, run.status)), class_=f"state {kind}".strip())
    return join(
        [
            paragraph(state, f"  seed {run.config.seed}, kept in ", tag("code", run.folder.name or str(run.folder))),
            paragraph(TASK_WORDS[run.task]),
        ]
    )


def _tiles(run: RunRecord, measured: NodeEvaluation | LinkEvaluation | None) -> list[Tile]:
    if isinstance(measured, NodeEvaluation):
        tiles = node_tiles(measured)
    elif measured is not None:
        tiles = link_tiles(measured)
    else:
        tiles = _so_far(run)
    seconds = run.seconds
    time = "" if seconds is None else f"in {duration(seconds)}"
    if run.result is None:
        time = f"of at most {run.config.training.epochs:,} {time}".strip()
    return [*tiles, Tile("epochs", f"{run.epochs:,}", time)]


def _so_far(run: RunRecord) -> list[Tile]:
    """The last figures of a run without a model."""
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


def _care(run: RunRecord, measured: NodeEvaluation | LinkEvaluation | None) -> Html:
    """What a reader should know before believing the figures."""
    words: list[str] = []
    if run.status != "finished":
        words.append(f"This run is not finished ({run.status}): it shows what there is so far.")
    if measured is None:
        why = "There is no trained model yet" if run.model_folder is None else "The data has no held-out split"
        words.append(f"{why}: there is nothing to measure beyond the curves.")
    else:
        if measured.split == "valid":
            words.append(
                "These figures are of the validation split, which may have had a say in the training; they flatter."
            )
        words += node_cautions(measured) if isinstance(measured, NodeEvaluation) else link_cautions(measured)
        words += _disagreement(run, measured)
    words.append(
        f"This is one run with one seed ({run.config.seed}). Another seed gives other figures; "
        "only several runs tell how much they vary (`rgcn compare` shows mean and standard error)."
    )
    return tag("ul", *(tag("li", prose(one)) for one in words), class_="care")


def _disagreement(run: RunRecord, measured: NodeEvaluation | LinkEvaluation) -> list[str]:
    """Whether the model, measured again, still gives what the run wrote down."""
    written = (run.result or {}).get("metrics", {}).get(measured.split, {})
    name = "accuracy" if isinstance(measured, NodeEvaluation) else "mrr"
    now = measured.as_dict()[name]
    if name not in written or abs(written[name] - now) < 5e-4:
        return []
    return [
        f"Measured again for this report, {name} is {now:.4f}; the run wrote down {written[name]:.4f}. They should "
        "agree."
    ]


def _values(run: RunRecord, measured: NodeEvaluation | LinkEvaluation | None) -> dict[str, Any]:
    best = run.best()
    return {
        "run": str(run.folder),
        "task": run.task,
        "dataset": run.config.data.title,
        "model": run.config.model.name,
        "seed": run.config.seed,
        "status": run.status,
        "epochs": run.epochs,
        "seconds": run.seconds,
        "best": None if best is None else dict(zip(("column", "epoch", "value"), best, strict=True)),
        "measured": None if measured is None else measured.as_dict(),
    }
