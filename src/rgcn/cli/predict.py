"""`rgcn predict`: classes of nodes, or missing ends of triples, for one question or a file of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import typer
from numpy.typing import NDArray

from rgcn.answers.links import answer_links
from rgcn.answers.reliability import as_text
from rgcn.cli.model_commands import KnownChoice, PredictCommand
from rgcn.cli.opening import opened_run
from rgcn.cli.prediction_tables import MOST_ROWS, link_rows, print_classes, print_links, say_written, write_links
from rgcn.cli.printing import print_json
from rgcn.errors import ConfigError
from rgcn.predict import OpenModel, predict_classes
from rgcn.predict.classes import (
    PREDICATE,
    ClassAnswers,
    class_frame,
    class_triples,
    label_relation,
    nodes_to_classify,
)
from rgcn.predict.link_tables import ScoredTriples
from rgcn.predict.node_lists import read_table, resolve_nodes
from rgcn.predict.questions import QuestionTable, read_questions, single_question
from rgcn.predict.writing import format_of, predicate_term, write_lines, write_table
from rgcn.progress import progress
from rgcn.words import count

QUERIES_AT_ONCE = 1024


def predict(asked: PredictCommand) -> None:
    if asked.out is not None:
        format_of(asked.out)
    opened = opened_run(asked.run, asked.opening, asked.new, asked.telling.quiet)
    links = asked.links
    about_links = bool(links.relation) or any(end is not None for end in (links.subject, links.object, links.queries))
    _check(opened, asked, about_links)
    if asked.reliability:
        _show_reliability(opened, asked.telling.as_json)
    elif about_links:
        _predict_links(opened, asked)
    else:
        _predict_classes(opened, asked)


def _check(opened: OpenModel, asked: PredictCommand, about_links: bool) -> None:
    """A question that fits the run's task, or words on what would."""
    about_nodes = asked.classes.nodes is not None or bool(asked.classes.node)
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


def _tell(opened: OpenModel, asked: PredictCommand, counts: dict[str, int], found: dict[str, Any] | int) -> bool:
    """Say what was found, or how much was written; False where a table is still to be printed."""
    about = {"run": str(opened.path), "task": opened.task.name, **counts, "calibration": opened.calibration.as_dict()}
    if asked.telling.as_json:
        print_json({**about, **(found if isinstance(found, dict) else {"out": str(asked.out), "written": found})})
        return True
    if counts.get("skipped"):
        typer.echo(f"rgcn: {count(counts['skipped'], 'name')} not known, skipped", err=True)
    return False


# -- classes -----------------------------------------------------------------------------------------------


def _predict_classes(opened: OpenModel, asked: PredictCommand) -> None:
    ids, skipped = _chosen_nodes(opened, asked)
    counts, chunks, out = {"asked": len(ids), "skipped": skipped}, _classified(opened, ids, asked), asked.out
    if out is None:
        rows = [row for chunk in chunks for row in class_frame(opened, chunk, nested=True).to_dicts()]
        if not _tell(opened, asked, counts, {"predictions": rows}):
            print_classes(opened, rows)
        return
    if format_of(out) == "nt":
        term = predicate_term(asked.predicate or label_relation(opened) or PREDICATE)
        written = write_lines(out, (line for chunk in chunks for line in class_triples(opened, chunk, term)))
    else:
        nested = format_of(out) == "jsonl"
        written = write_table(out, (class_frame(opened, chunk, nested) for chunk in chunks))
    if not _tell(opened, asked, counts, written):
        say_written(out, f"{count(written, 'prediction')} to ", opened.calibration)


def _chosen_nodes(opened: OpenModel, asked: PredictCommand) -> tuple[NDArray[np.int64], int]:
    """(node ids, how many names were skipped)."""
    path, names = asked.classes.nodes, asked.classes.node or []
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
    with progress("classifying", len(ids), "nodes", show=asked.telling.bars) as meter:
        for chunk in predict_classes(opened, ids):
            keep = chunk.label < (0 if unlabelled_only else len(opened.model.classes_))
            if asked.min_probability is not None and chunk.probability is not None:
                keep &= chunk.probability >= asked.min_probability
            yield chunk.where(keep)
            meter.advance(len(chunk))


# -- links -------------------------------------------------------------------------------------------------


def _predict_links(opened: OpenModel, asked: PredictCommand) -> None:
    links = asked.links
    if links.queries is None:
        questions = single_question(opened, links.subject, links.object, links.relation)
    elif links.subject is not None or links.object is not None or links.relation:
        raise ConfigError("--queries brings its own subjects, relations and objects: leave the other options out")
    else:
        questions = read_questions(opened, links.queries, skip_unknown=asked.skip_unknown)
    counts = {"asked": questions.questions.size, "skipped": questions.skipped}
    answers = _answered(opened, questions, asked)
    if asked.out is None:
        found = link_rows(opened, answers)
        if not _tell(opened, asked, counts, {"answers": found}):
            most = len(found) if questions.questions.size == 1 else MOST_ROWS
            print_links(found[:most], len(found), opened.calibration)
        return
    written = write_links(opened, answers, asked.out)
    if not _tell(opened, asked, counts, written):
        say_written(asked.out, f"{count(written, 'answer')} to ", opened.calibration)


def _answered(opened: OpenModel, asked: QuestionTable, how: PredictCommand) -> Iterator[ScoredTriples]:
    to_nt = how.out is not None and format_of(how.out) == "nt"
    drop = how.known is KnownChoice.drop or (how.known is None and to_nt)
    with progress("asking", asked.questions.size, "questions", show=how.telling.bars) as meter:
        for part in asked.questions.parts(QUERIES_AT_ONCE):
            answers = answer_links(opened, part, how.k, "drop" if drop else "mark", by_example=not how.any_direction)
            rows = ScoredTriples.of_answers(part, answers)
            yield rows if how.min_probability is None else rows.at_least(how.min_probability)
            meter.advance(part.size)


def _show_reliability(opened: OpenModel, as_json: bool) -> None:
    calibration = opened.calibration
    if as_json:
        print_json({"run": str(opened.path), "task": opened.task.name, "calibration": calibration.as_dict()})
        return
    typer.echo(calibration.words)
    if calibration.fitted:
        typer.echo(calibration.meaning)
    if calibration.reliability:
        typer.echo("\nOn validation, where it was fitted; the bar is the share that was right, | what was said:\n")
        typer.echo(as_text(calibration.reliability))
