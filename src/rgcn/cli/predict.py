"""`rgcn predict`: classes of nodes, or missing ends of triples, for one question or a file of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rgcn.cli.opening import opened_run
from rgcn.cli.options import AcceptChangedData, AsJson, Device, Mirror, NewFeatures, NewTriples, Quiet, Run, Threads

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rgcn.answers.links import ScoredTriples
    from rgcn.predict import OpenModel
    from rgcn.predict.answer_tables import ClassAnswers
    from rgcn.predict.question_files import QuestionTable

QUERIES_AT_ONCE = 1024


class KnownChoice(str, Enum):
    """What becomes of triples and labels that the graph already has."""

    mark = "mark"
    drop = "drop"


NodeFile = Annotated[
    Path | None,
    typer.Option(
        "--nodes",
        metavar="FILE",
        help="Nodes to classify: a name a line, or the first column of .csv, .tsv, .parquet; - reads standard input.",
    ),
]
NodeNames = Annotated[list[str] | None, typer.Option("--node", help="A node to classify. May be repeated.")]
Subject = Annotated[str | None, typer.Option(help="Which objects does this subject lack?")]
Object = Annotated[str | None, typer.Option(help="Which subjects does this object lack?")]
RelationNames = Annotated[
    list[str] | None, typer.Option("--relation", help="By which relation; by default each of them. May be repeated.")
]
QueryFile = Annotated[
    Path | None,
    typer.Option(
        "--queries",
        metavar="FILE",
        help="Table of questions: columns subject and relation, or relation and object; - reads standard input.",
    ),
]
Most = Annotated[int, typer.Option("-k", min=1, max=1_000_000, help="How many answers to each question.")]
KnownOnes = Annotated[
    KnownChoice | None,
    typer.Option(
        "--known",
        help="Known triples, or nodes with a known label: mark or drop them. By default marked, but no known triple is "
        "written to .nt.",
    ),
]
MinProbability = Annotated[
    float | None,
    typer.Option("--min-probability", min=0.0, max=1.0, help="Leave out what is less probable than this."),
]
AnyDirection = Annotated[
    bool,
    typer.Option("--any-direction", help="Also known triples turned round, in a relation that only goes one way."),
]
Out = Annotated[
    Path | None, typer.Option(help="File to write: its name ends in .csv, .tsv, .parquet, .jsonl, .nt or .nt.gz.")
]
Predicate = Annotated[
    str | None,
    typer.Option(
        metavar="IRI", help="Predicate of classes written as .nt; by default the relation the labels came from."
    ),
]
SkipUnknown = Annotated[bool, typer.Option("--skip-unknown", help="Go on without names that are not known.")]
Reliability = Annotated[
    bool, typer.Option("--reliability", help="Show how far probabilities can be trusted, and stop.")
]


def predict(
    run: Run,
    nodes: NodeFile = None,
    node: NodeNames = None,
    subject: Subject = None,
    relation: RelationNames = None,
    object: Object = None,
    queries: QueryFile = None,
    k: Most = 10,
    known: KnownOnes = None,
    min_probability: MinProbability = None,
    any_direction: AnyDirection = False,
    out: Out = None,
    predicate: Predicate = None,
    skip_unknown: SkipUnknown = False,
    reliability: Reliability = False,
    with_: NewTriples = None,
    with_features: NewFeatures = None,
    mirror: Mirror = None,
    device: Device = None,
    threads: Threads = None,
    accept_changed_data: AcceptChangedData = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Predict classes of nodes (all by default), or the missing end of triples; the run's task decides."""
    from rgcn.predict.answer_tables import format_of

    if out is not None:
        format_of(out)
    opened = opened_run(run, mirror, device, accept_changed_data, with_, with_features, quiet)
    about_links = subject is not None or object is not None or queries is not None or bool(relation)
    about_nodes = nodes is not None or bool(node)
    _check(opened, about_nodes, about_links, predicate, reliability)
    if min_probability is not None:
        _check_calibrated(opened)
    if reliability:
        _show_reliability(opened, as_json)
    elif about_links:
        from rgcn.predict.question_files import read_questions, single_question

        if queries is not None:
            _only_queries(subject, object, relation)
            asked = read_questions(opened, queries, skip_unknown=skip_unknown)
        else:
            asked = single_question(opened, subject, object, relation)
        drop = known is KnownChoice.drop or (known is None and out is not None and format_of(out) == "nt")
        answers = _answered(opened, asked, k, drop, not any_direction, min_probability, quiet)
        _links_out(opened, asked, answers, out, as_json)
    else:
        ids, skipped = _chosen_nodes(opened, nodes, node or [], skip_unknown)
        chunks = _classified(opened, ids, known is KnownChoice.drop, min_probability, quiet)
        _classes_out(opened, chunks, len(ids), skipped, out, predicate, as_json)


def _check(opened: OpenModel, about_nodes: bool, about_links: bool, predicate: str | None, reliability: bool) -> None:
    """A question that fits the run's task, or words on what would."""
    from rgcn.errors import ConfigError

    if about_nodes and about_links:
        raise ConfigError("ask about nodes (--nodes, --node) or about links (--subject, --object, --queries), not both")
    if about_nodes or predicate is not None:
        opened.must_answer("classes")
    if about_links:
        opened.must_answer("links")
    elif not opened.answers("classes") and not reliability:
        raise ConfigError(
            f"{opened.path} predicts links: give --subject or --object, and --relation; or --queries FILE. "
            "`rgcn complete` asks about everything"
        )


def _check_calibrated(opened: OpenModel) -> None:
    from rgcn.errors import ConfigError

    if not opened.calibration.fitted:
        raise ConfigError(f"--min-probability needs probabilities. {opened.calibration.words}")


def _only_queries(subject: str | None, object: str | None, relation: list[str] | None) -> None:
    from rgcn.errors import ConfigError

    if subject is not None or object is not None or relation:
        raise ConfigError("--queries brings its own subjects, relations and objects: leave the other options out")


# -- classes ----------------------------------------------------------------------------------------------


def _chosen_nodes(
    opened: OpenModel, path: Path | None, names: list[str], skip_unknown: bool
) -> tuple[NDArray[np.int64], int]:
    """(node ids, how many names were skipped)."""
    import numpy as np

    from rgcn.predict.answer_tables import nodes_to_classify
    from rgcn.predict.question_files import read_table, resolve_nodes

    if path is None and not names:
        new = np.array(opened.new_nodes, dtype=np.int64)
        return (new, 0) if len(new) else (nodes_to_classify(opened), 0)
    parts, skipped = [], 0
    if path is not None:
        table = read_table(path)
        listed = [(row.line, row.cells[0]) for row in table.rows]
        found = resolve_nodes(opened, listed, table.source, skip_unknown=skip_unknown)
        parts.append(found.ids)
        skipped = found.skipped
    parts.append(np.array([opened.node(name) for name in names], dtype=np.int64))
    return np.concatenate(parts), skipped


def _classified(
    opened: OpenModel, ids: NDArray[np.int64], drop_labelled: bool, min_probability: float | None, quiet: bool
) -> Iterator[ClassAnswers]:
    from rgcn.predict.answer_tables import predict_classes
    from rgcn.progress import progress

    with progress("classifying", len(ids), "nodes", show=False if quiet else None) as meter:
        for chunk in predict_classes(opened, ids):
            keep = chunk.label < (0 if drop_labelled else len(opened.model.classes_))
            if min_probability is not None and chunk.probability is not None:
                keep &= chunk.probability >= min_probability
            yield chunk.where(keep)
            meter.advance(len(chunk))


def _classes_out(
    opened: OpenModel,
    chunks: Iterator[ClassAnswers],
    asked: int,
    skipped: int,
    out: Path | None,
    predicate: str | None,
    as_json: bool,
) -> None:
    from rgcn.cli.prediction_tables import print_classes
    from rgcn.predict.answer_tables import (
        PREDICATE,
        class_frame,
        class_triples,
        format_of,
        label_relation,
        predicate_term,
        write_lines,
        write_table,
    )

    about = _about(opened, asked=asked, skipped=skipped)
    if out is None:
        rows = [row for chunk in chunks for row in class_frame(opened, chunk, nested=True).to_dicts()]
        if as_json:
            typer.echo(json.dumps({**about, "predictions": rows}))
        else:
            print_classes(opened, rows)
            _say_skipped(skipped)
        return
    if format_of(out) == "nt":
        term = predicate_term(predicate or label_relation(opened) or PREDICATE)
        written = write_lines(out, (line for chunk in chunks for line in class_triples(opened, chunk, term)))
    else:
        nested = format_of(out) == "jsonl"
        written = write_table(out, (class_frame(opened, chunk, nested) for chunk in chunks))
    _say_written(opened, about, out, written, "prediction", as_json)
    if not as_json:
        _say_skipped(skipped)


# -- links ------------------------------------------------------------------------------------------------


def _answered(
    opened: OpenModel,
    asked: QuestionTable,
    k: int,
    drop_known: bool,
    by_example: bool,
    min_probability: float | None,
    quiet: bool,
) -> Iterator[ScoredTriples]:
    from rgcn.answers.links import ScoredTriples, answer_links
    from rgcn.progress import progress

    with progress("asking", asked.questions.size, "questions", show=False if quiet else None) as meter:
        for part in asked.questions.parts(QUERIES_AT_ONCE):
            answers = answer_links(opened, part, k, "drop" if drop_known else "mark", by_example=by_example)
            rows = ScoredTriples.of_answers(part, answers)
            yield rows if min_probability is None else rows.at_least(min_probability)
            meter.advance(part.size)


def _links_out(
    opened: OpenModel, asked: QuestionTable, answers: Iterator[ScoredTriples], out: Path | None, as_json: bool
) -> None:
    from rgcn.cli.prediction_tables import MOST_ROWS, print_links
    from rgcn.predict.answer_tables import format_of, link_frames, link_triples, write_lines, write_table

    about = _about(opened, asked=asked.questions.size, skipped=asked.skipped)
    if out is None:
        frames = [frame for rows in answers for frame in link_frames(opened, rows)]
        found = [row for frame in frames for row in frame.to_dicts()]
        if as_json:
            typer.echo(json.dumps({**about, "answers": found}))
        else:
            most = len(found) if asked.questions.size == 1 else MOST_ROWS
            print_links(found[:most], len(found), opened.calibration)
            _say_skipped(asked.skipped)
        return
    if format_of(out) == "nt":
        written = write_lines(out, (line for rows in answers for line in link_triples(opened, rows)))
    else:
        written = write_table(out, (frame for rows in answers for frame in link_frames(opened, rows)))
    _say_written(opened, about, out, written, "answer", as_json)
    if not as_json:
        _say_skipped(asked.skipped)


# -- what is said -----------------------------------------------------------------------------------------


def _about(opened: OpenModel, **counts: int) -> dict[str, Any]:
    return {"run": str(opened.path), "task": opened.task.name, **counts, "calibration": opened.calibration.as_dict()}


def _say_written(opened: OpenModel, about: dict[str, Any], out: Path, written: int, what: str, as_json: bool) -> None:
    from rgcn.words import count

    if as_json:
        typer.echo(json.dumps({**about, "out": str(out), "written": written}))
    else:
        typer.echo(f"Written: {count(written, what)} to {out}")
        typer.echo(f"{opened.calibration.words} {opened.calibration.meaning}")


def _say_skipped(skipped: int) -> None:
    from rgcn.words import count

    if skipped:
        typer.echo(f"rgcn: {count(skipped, 'name')} not known, skipped", err=True)


def _show_reliability(opened: OpenModel, as_json: bool) -> None:
    from rgcn.answers.reliability import as_text

    calibration = opened.calibration
    if as_json:
        typer.echo(json.dumps(_about(opened)))
        return
    typer.echo(calibration.words)
    if calibration.fitted:
        typer.echo(calibration.meaning)
    if calibration.reliability:
        typer.echo("\nOn validation, where it was fitted; the bar is the share that was right, | what was said:\n")
        typer.echo(as_text(calibration.reliability))
