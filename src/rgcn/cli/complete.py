"""`rgcn complete`: all missing triples worth adding."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rgcn.cli.opening import opened_run
from rgcn.cli.options import AcceptChangedData, AsJson, Device, Mirror, NewFeatures, NewTriples, Quiet, Run, Threads

if TYPE_CHECKING:
    from rgcn.answers.by_example import Kinds
    from rgcn.answers.completion import Completion
    from rgcn.predict import OpenModel


def complete(
    run: Run,
    relation: Annotated[
        list[str] | None, typer.Option(help="Only triples of this relation. May be repeated; by default all.")
    ] = None,
    k: Annotated[
        int, typer.Option("-k", min=1, max=10_000, help="At most so many objects for each subject and relation.")
    ] = 10,
    min_probability: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Least probability, calibrated on validation triples; 0.01 by default. A model that is not calibrated "
            "has none.",
            show_default=False,
        ),
    ] = None,
    min_score: Annotated[float | None, typer.Option(hidden=True)] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=100_000_000, help="At most so many triples, the best of all.")
    ] = 1_000_000,
    only_seen: Annotated[
        bool,
        typer.Option("--only-seen", help="Only nodes that already are subject, or object, of the relation."),
    ] = False,
    any_node: Annotated[
        bool,
        typer.Option("--any-node", help="Any node as subject and object, also where none of its like was ever seen."),
    ] = False,
    any_direction: Annotated[
        bool,
        typer.Option("--any-direction", help="Also known triples turned round, in a relation that only goes one way."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="File to write: its name ends in .nt, .nt.gz, .csv, .tsv, .parquet or .jsonl.")
    ] = None,
    with_: NewTriples = None,
    with_features: NewFeatures = None,
    mirror: Mirror = None,
    device: Device = None,
    threads: Threads = None,
    accept_changed_data: AcceptChangedData = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Find all missing triples worth adding, over every subject and relation, best first."""
    from rgcn.errors import ConfigError
    from rgcn.predict.answer_tables import format_of

    if out is not None:
        format_of(out)
    if min_score is not None:
        raise ConfigError(
            "--min-score is gone: a score is the model's own number now, not one between 0 and 1. Use "
            "--min-probability, which is calibrated"
        )
    if only_seen and any_node:
        raise ConfigError("--only-seen and --any-node contradict each other: leave one out")
    opened = opened_run(run, mirror, device, accept_changed_data, with_, with_features, quiet)
    settings = {
        "relations": [opened.relation(name) for name in relation] if relation else None,
        "k": k,
        "min_probability": min_probability,
        "limit": limit,
        "nodes": _kinds(only_seen, any_node),
        "by_example": not any_direction,
    }
    found = _completed(opened, settings, quiet)
    _tell(opened, found, settings, out, as_json)


def _kinds(only_seen: bool, any_node: bool) -> Kinds:
    return "seen" if only_seen else "any" if any_node else "fitting"


def _completed(opened: OpenModel, settings: dict[str, Any], quiet: bool) -> Completion:
    from rgcn.answers.completion import complete as search
    from rgcn.progress import ProgressMeter, progress

    with ExitStack() as stack:
        meter = ProgressMeter()

        def begin(pairs: int) -> None:
            nonlocal meter
            meter = stack.enter_context(progress("completing", pairs, "pairs", show=False if quiet else None))

        def advance(done: int) -> None:
            meter.advance(done - meter.done)

        return search(opened, **settings, on_begin=begin, on_progress=advance)


def _tell(opened: OpenModel, found: Completion, settings: dict[str, Any], out: Path | None, as_json: bool) -> None:
    from rgcn.cli.prediction_tables import MOST_ROWS, print_links
    from rgcn.predict.answer_tables import format_of, link_frames, link_triples, write_lines, write_table
    from rgcn.words import count

    about: dict[str, Any] = {"run": str(opened.path), "pairs": found.pairs, "found": len(found)}
    if out is not None:
        nt = format_of(out) == "nt"
        written = write_lines(out, link_triples(opened, found)) if nt else write_table(out, link_frames(opened, found))
        about |= {"out": str(out), "written": written}
    if as_json:
        if out is None:
            about["triples"] = [row for frame in link_frames(opened, found) for row in frame.to_dicts()]
        typer.echo(json.dumps({**about, "calibration": found.calibration.as_dict()}))
        return
    cut = " (the best of more: --limit)" if found.found > len(found) else ""
    typer.echo(f"{count(len(found), 'missing triple')}{cut}, of {count(found.pairs, 'subject-relation pair')} asked")
    if not len(found):
        typer.echo(_best_of_none(found, settings))
    elif out is None:
        first = [row for frame in link_frames(opened, found[:MOST_ROWS]) for row in frame.to_dicts()]
        print_links(first, len(found), found.calibration)
        return
    if out is not None:
        typer.echo(f"Written: {out}")
    typer.echo(f"{found.calibration.words} {found.calibration.meaning}")


def _best_of_none(found: Completion, settings: dict[str, Any]) -> str:
    """What to ask for instead."""
    import math

    import torch

    from rgcn.answers.completion import WORTH_ADDING

    if not math.isfinite(found.best):
        return "There was no unknown triple to look at: every candidate is known, or none is like those seen."
    probability = float(found.calibration.link_probabilities(torch.tensor(found.best)))
    least = WORTH_ADDING if settings["min_probability"] is None else settings["min_probability"]
    return f"The best has probability {probability:.2g}, below --min-probability {least:g}: lower that to have some."
