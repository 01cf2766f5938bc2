"""`rgcn complete`: all missing triples worth adding."""

from __future__ import annotations

import math
from contextlib import ExitStack
from typing import Any

import torch
import typer

from rgcn.answers.by_example import Kinds
from rgcn.answers.completion import WORTH_ADDING, Completion
from rgcn.answers.completion import complete as search
from rgcn.cli.model_commands import CompleteCommand
from rgcn.cli.opening import opened_run
from rgcn.cli.prediction_tables import MOST_ROWS, link_rows, print_links, say_written, write_links
from rgcn.cli.printing import print_json
from rgcn.errors import ConfigError
from rgcn.predict import OpenModel
from rgcn.predict.link_tables import ScoredTriples
from rgcn.predict.writing import format_of
from rgcn.progress import ProgressMeter, progress
from rgcn.words import count


def complete(asked: CompleteCommand) -> None:
    if asked.out is not None:
        format_of(asked.out)
    if asked.min_score is not None:
        raise ConfigError(
            "--min-score is gone: a score is the model's own number now, not one between 0 and 1. Use "
            "--min-probability, which is calibrated"
        )
    if asked.only_seen and asked.any_node:
        raise ConfigError("--only-seen and --any-node contradict each other: leave one out")
    opened = opened_run(asked.run, asked.opening, asked.new, asked.telling.quiet)
    _tell(opened, _completed(opened, asked), asked)


def _completed(opened: OpenModel, asked: CompleteCommand) -> Completion:
    kinds: Kinds = "seen" if asked.only_seen else "any" if asked.any_node else "fitting"
    with ExitStack() as stack:
        meter = ProgressMeter()

        def begin(pairs: int) -> None:
            nonlocal meter
            meter = stack.enter_context(progress("completing", pairs, "pairs", show=asked.telling.bars))

        def advance(done: int) -> None:
            meter.advance(done - meter.done)

        return search(
            opened,
            relations=[opened.relation(name) for name in asked.relation] if asked.relation else None,
            k=asked.k,
            min_probability=asked.min_probability,
            limit=asked.limit,
            nodes=kinds,
            by_example=not asked.any_direction,
            on_begin=begin,
            on_progress=advance,
        )


def _tell(opened: OpenModel, found: Completion, asked: CompleteCommand) -> None:
    rows, out = ScoredTriples.of_completion(found), asked.out
    about: dict[str, Any] = {"run": str(opened.path), "pairs": found.pairs, "found": len(found)}
    if out is not None:
        about |= {"out": str(out), "written": write_links(opened, [rows], out)}
    if asked.telling.as_json:
        if out is None:
            about["triples"] = link_rows(opened, [rows])
        print_json({**about, "calibration": found.calibration.as_dict()})
        return
    cut = " (the best of more: --limit)" if found.found > len(found) else ""
    typer.echo(f"{count(len(found), 'missing triple')}{cut}, of {count(found.pairs, 'subject-relation pair')} asked")
    if not len(found):
        typer.echo(_best_of_none(found, asked.min_probability))
    if out is not None:
        say_written(out, "", found.calibration)
    elif len(found):
        print_links(link_rows(opened, [rows[:MOST_ROWS]]), len(rows), found.calibration)
    else:
        typer.echo(f"{found.calibration.words} {found.calibration.meaning}")


def _best_of_none(found: Completion, min_probability: float | None) -> str:
    """What to ask for instead."""
    if not math.isfinite(found.best):
        return "There was no unknown triple to look at: every candidate is known, or none is like those seen."
    probability = float(found.calibration.link_probabilities(torch.tensor(found.best)))
    least = WORTH_ADDING if min_probability is None else min_probability
    return f"The best has probability {probability:.2g}, below --min-probability {least:g}: lower that to have some."
