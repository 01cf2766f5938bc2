"""`rgcn predict` and `rgcn complete`: classes of nodes, missing ends of triples, all missing triples worth adding."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer
from numpy.typing import NDArray

from rgcn.answers.by_example import Kinds
from rgcn.answers.completion import WORTH_ADDING, Completion
from rgcn.answers.completion import complete as search
from rgcn.answers.links import ScoredTriples, answer_links
from rgcn.answers.reliability import as_text
from rgcn.cli.asking import MOST_ROWS, link_rows, opened_run, print_classes, print_links, write_links
from rgcn.cli.model_commands import CompleteCommand, KnownChoice, PredictCommand
from rgcn.cli.printing import print_json
from rgcn.errors import ConfigError
from rgcn.predict import OpenModel, predict_classes
from rgcn.predict.answer_tables import (
    PREDICATE,
    ClassAnswers,
    class_frame,
    class_triples,
    format_of,
    label_relation,
    nodes_to_classify,
    predicate_term,
    write_lines,
    write_table,
)
from rgcn.predict.question_files import QuestionTable, read_questions, read_table, resolve_nodes, single_question
from rgcn.progress import ProgressMeter, progress
from rgcn.words import count

QUERIES_AT_ONCE = 1024

Rows = list[dict[str, Any]]


def predict(asked: PredictCommand) -> None:
    if asked.out is not None:
        format_of(asked.out)
    opened = opened_run(asked.run, asked, asked.quiet)
    about_links = bool(asked.relation) or any(end is not None for end in (asked.subject, asked.object, asked.queries))
    _check(opened, asked, about_links)
    if asked.reliability:
        _show_reliability(opened, asked.as_json)
    elif about_links:
        _predict_links(opened, asked)
    else:
        _predict_classes(opened, asked)


def _check(opened: OpenModel, asked: PredictCommand, about_links: bool) -> None:
    """A question that fits the run's task, or words on what would."""
    about_nodes = asked.nodes is not None or bool(asked.node)
    if about_nodes and about_links:
        raise ConfigError("ask about nodes (--nodes, --node) or about links (--subject, --object, --queries), not both")
    if about_nodes or asked.predicate is not None:
        opened.must_answer("classes")
    if about_links:
        opened.must_answer("links")
    elif not opened.answers("classes") and not asked.reliability:
        raise ConfigError(
            f"{opened.path} predicts links: give --subject or --object, and --relation; or --queries FILE. "
            "`rgcn complete` asks about everything"
        )
    if asked.min_probability is not None and not opened.calibration.fitted:
        raise ConfigError(f"--min-probability needs probabilities. {opened.calibration.words}")


def _about(opened: OpenModel, **counts: int) -> dict[str, Any]:
    return {"run": str(opened.path), "task": opened.task.name, **counts, "calibration": opened.calibration.as_dict()}


def _tell(
    opened: OpenModel,
    asked: PredictCommand,
    counts: dict[str, int],
    noun: str,
    write: Callable[[Path], int],
    rows: Callable[[], Rows],
    show: Callable[[Rows], None],
) -> None:
    """Answers to the file that was asked for, else as JSON or a table."""
    written = None if asked.out is None else write(asked.out)
    found = rows() if written is None else []
    if asked.as_json:
        told = {f"{noun}s": found} if written is None else {"out": str(asked.out), "written": written}
        print_json({**_about(opened, **counts), **told})
        return
    if written is None:
        show(found)
    else:
        typer.echo(f"Written: {count(written, noun)} to {asked.out}")
        typer.echo(f"{opened.calibration.words} {opened.calibration.meaning}")
    if counts["skipped"]:
        typer.echo(f"rgcn: {count(counts['skipped'], 'name')} not known, skipped", err=True)


def _predict_classes(opened: OpenModel, asked: PredictCommand) -> None:
    ids, skipped = _chosen_nodes(opened, asked)
    chunks = _classified(opened, ids, asked)

    def write(out: Path) -> int:
        if format_of(out) != "nt":
            return write_table(out, (class_frame(opened, chunk, format_of(out) == "jsonl") for chunk in chunks))
        term = predicate_term(asked.predicate or label_relation(opened) or PREDICATE)
        return write_lines(out, (line for chunk in chunks for line in class_triples(opened, chunk, term)))

    def rows() -> Rows:
        return [row for chunk in chunks for row in class_frame(opened, chunk, nested=True).to_dicts()]

    counts = {"asked": len(ids), "skipped": skipped}
    _tell(opened, asked, counts, "prediction", write, rows, lambda found: print_classes(opened, found))


def _chosen_nodes(opened: OpenModel, asked: PredictCommand) -> tuple[NDArray[np.int64], int]:
    """(node ids, how many names were skipped)."""
    path, names = asked.nodes, asked.node or []
    if path is None and not names:
        new = np.array(opened.new_nodes, dtype=np.int64)
        return (new, 0) if len(new) else (nodes_to_classify(opened), 0)
    ids, skipped = np.array([opened.node(name) for name in names], dtype=np.int64), 0
    if path is not None:
        table = read_table(path)
        listed = [(row.line, row.cells[0]) for row in table.rows]
        found = resolve_nodes(opened, listed, table.source, skip_unknown=asked.skip_unknown)
        ids, skipped = np.concatenate([found.ids, ids]), found.skipped
    return ids, skipped


def _classified(opened: OpenModel, ids: NDArray[np.int64], asked: PredictCommand) -> Iterator[ClassAnswers]:
    unlabelled_only = asked.known is KnownChoice.drop
    with progress("classifying", len(ids), "nodes", show=asked.bars) as meter:
        for chunk in predict_classes(opened, ids):
            keep = chunk.label < (0 if unlabelled_only else len(opened.model.classes_))
            if asked.min_probability is not None and chunk.probability is not None:
                keep &= chunk.probability >= asked.min_probability
            yield chunk.where(keep)
            meter.advance(len(chunk))


def _predict_links(opened: OpenModel, asked: PredictCommand) -> None:
    if asked.queries is None:
        questions = single_question(opened, asked.subject, asked.object, asked.relation)
    elif asked.subject is not None or asked.object is not None or asked.relation:
        raise ConfigError("--queries brings its own subjects, relations and objects: leave the other options out")
    else:
        questions = read_questions(opened, asked.queries, skip_unknown=asked.skip_unknown)
    size = questions.questions.size
    answers = _answered(opened, questions, asked)

    def show(found: Rows) -> None:
        print_links(found if size == 1 else found[:MOST_ROWS], len(found), opened.calibration)

    _tell(
        opened,
        asked,
        {"asked": size, "skipped": questions.skipped},
        "answer",
        write=lambda out: write_links(opened, answers, out),
        rows=lambda: link_rows(opened, answers),
        show=show,
    )


def _answered(opened: OpenModel, asked: QuestionTable, how: PredictCommand) -> Iterator[ScoredTriples]:
    to_nt = how.out is not None and format_of(how.out) == "nt"
    drop = how.known is KnownChoice.drop or (how.known is None and to_nt)
    with progress("asking", asked.questions.size, "questions", show=how.bars) as meter:
        for part in asked.questions.parts(QUERIES_AT_ONCE):
            answers = answer_links(opened, part, how.k, "drop" if drop else "mark", by_example=not how.any_direction)
            rows = ScoredTriples.of_answers(part, answers)
            yield rows if how.min_probability is None else rows.at_least(how.min_probability)
            meter.advance(part.size)


def _show_reliability(opened: OpenModel, as_json: bool) -> None:
    calibration = opened.calibration
    if as_json:
        print_json(_about(opened))
        return
    typer.echo(calibration.words)
    if calibration.fitted:
        typer.echo(calibration.meaning)
    if calibration.reliability:
        typer.echo("\nOn validation, where it was fitted; the bar is the share that was right, | what was said:\n")
        typer.echo(as_text(calibration.reliability))


# -- all missing triples -----------------------------------------------------------------------------------


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
    opened = opened_run(asked.run, asked, asked.quiet)
    found, out = _completed(opened, asked), asked.out
    about: dict[str, Any] = {"run": str(opened.path), "pairs": found.pairs, "found": len(found)}
    if out is not None:
        about |= {"out": str(out), "written": write_links(opened, [found], out)}
    if asked.as_json:
        triples = {} if out is not None else {"triples": link_rows(opened, [found])}
        print_json({**about, **triples, "calibration": found.calibration.as_dict()})
        return
    cut = " (the best of more: --limit)" if found.found > len(found) else ""
    typer.echo(f"{count(len(found), 'missing triple')}{cut}, of {count(found.pairs, 'subject-relation pair')} asked")
    if len(found) and out is None:
        print_links(link_rows(opened, [found[:MOST_ROWS]]), len(found), found.calibration)
        return
    if not len(found):
        typer.echo(_best_of_none(found, asked.min_probability))
    if out is not None:
        typer.echo(f"Written: {out}")
    typer.echo(f"{found.calibration.words} {found.calibration.meaning}")


def _completed(opened: OpenModel, asked: CompleteCommand) -> Completion:
    kinds: Kinds = "seen" if asked.only_seen else "any" if asked.any_node else "fitting"
    with ExitStack() as stack:
        meter = ProgressMeter()

        def begin(pairs: int) -> None:
            nonlocal meter
            meter = stack.enter_context(progress("completing", pairs, "pairs", show=asked.bars))

        return search(
            opened,
            relations=[opened.relation(name) for name in asked.relation] if asked.relation else None,
            k=asked.k,
            min_probability=asked.min_probability,
            limit=asked.limit,
            nodes=kinds,
            by_example=not asked.any_direction,
            on_begin=begin,
            on_progress=lambda done: meter.advance(done - meter.done),
        )


def _best_of_none(found: Completion, min_probability: float | None) -> str:
    """What to ask for instead."""
    if not math.isfinite(found.best):
        return "There was no unknown triple to look at: every candidate is known, or none is like those seen."
    probability = float(found.calibration.link_probabilities(torch.tensor(found.best)))
    least = WORTH_ADDING if min_probability is None else min_probability
    return f"The best has probability {probability:.2g}, below --min-probability {least:g}: lower that to have some."
