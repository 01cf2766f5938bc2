"""Questions by name, single ones and tables of them, and notes on their answers."""

from __future__ import annotations

import csv
import io
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rgcn.data.headers import columns_by_role
from rgcn.errors import ConfigError, DataError, ParseError, UnknownNameError
from rgcn.graph.titles import Titles
from rgcn.links.relation_constraints import ANSWERED, IMPLAUSIBLE, MIN_PROBABILITY_OF_MORE, relation_constraints
from rgcn.links.top_k import LinkAnswers
from rgcn.nn.scorer import Questions
from rgcn.sampling.known_triples import KnownTriples
from rgcn.system.formatting import format_count

if TYPE_CHECKING:
    from rgcn.predict import OpenModel

STANDARD_INPUT = Path("-")
# Cells that are column headings and not names of nodes.
HEADERS = ("node", "nodes", "name", "id", "iri", "uri", "entity", "subject", "object", "head", "tail", "relation")
MAX_SHOWN_ERRORS = 5
MAX_NAMED = 3  # known answers that a note names
PROBABLE = 0.5  # if an answer that is shown is right with this probability, a note does not say that none is missing


class NameRow(NamedTuple):
    """The cells of a row with its line number, from 1 (in Parquet files the row number)."""

    line: int
    cells: tuple[str, ...]


class NameTable(NamedTuple):
    """Rows of names, with a header if there is one."""

    source: str
    header: tuple[str, ...] | None
    rows: list[NameRow]


def read_table(path: Path) -> NameTable:
    """Read rows of names.

    Args:
        path: A .csv, .tsv or .parquet file, whose first row may be a header. Any other file is plain text with a row
            per line and tabs between names. "-" is standard input. Blank lines are skipped.

    Raises:
        DataError: If the file cannot be read, or is empty.
    """
    suffix = path.suffix.lower()
    source = "standard input" if path == STANDARD_INPUT else str(path)
    # A pipe that the shell opened (/dev/stdin, /dev/fd/63) has a writer. A named pipe may wait for one forever.
    if path.is_fifo() and path.parts[:2] != ("/", "dev"):
        raise DataError(f"{source} is a pipe, not a file: give - instead, with {source} as standard input")
    header = None
    if suffix == ".parquet":
        header, rows = _parquet_rows(path)
    else:
        rows = list(_rows(_text(path, source), source, suffix == ".csv"))
        if suffix in (".csv", ".tsv") and rows:
            first = rows[0].cells
            # A single letter is more likely the name of a node.
            roles = columns_by_role([cell for cell in first if len(cell) > 1])
            if first[0].casefold() in HEADERS or ("relation" in roles and len(roles) > 1):
                header, rows = tuple(cell.casefold() for cell in first), rows[1:]
    if not rows:
        raise DataError(f"{source}: there are no names in it")
    return NameTable(source, header, rows)


def _text(path: Path, source: str) -> str:
    try:
        data = sys.stdin.buffer.read() if path == STANDARD_INPUT else path.read_bytes()
    except OSError as error:
        raise DataError(f"{source}: cannot be read: {error.strerror or error}") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        begin = data.rfind(b"\n", 0, error.start) + 1
        shown = data[begin : error.start + 20].decode("utf-8", "backslashreplace").split("\n")[0]
        reason = f"not UTF-8: byte {data[error.start]:#04x} begins no character. Save the file as UTF-8"
        raise ParseError(source, line, shown, reason) from None


def _rows(text: str, source: str, is_csv: bool) -> Iterator[NameRow]:
    tabs: dict[str, Any] = {"delimiter": "\t", "quoting": csv.QUOTE_NONE}  # quotes have no special meaning there
    reader = csv.reader(io.StringIO(text, newline=""), **({} if is_csv else tabs))
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield NameRow(reader.line_num, tuple(cell.strip() for cell in cells))
    except csv.Error as error:
        raise ParseError(source, reader.line_num, "", f"not {'CSV' if is_csv else 'lines of names'}: {error}") from None


def _parquet_rows(path: Path) -> tuple[tuple[str, ...], list[NameRow]]:
    import polars as pl

    try:
        frame = pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(f"{path}: cannot be read as Parquet: {error}") from None
    rows = [
        NameRow(number, tuple("" if cell is None else str(cell) for cell in cells))
        for number, cells in enumerate(frame.iter_rows(), start=1)
        if cells and cells[0] is not None
    ]
    return tuple(name.casefold() for name in frame.columns), rows


class Resolved(NamedTuple):
    """Ids int64 [n] of the known names, their positions in the list, and the number of unknown names."""

    ids: NDArray[np.int64]
    place: NDArray[np.int64]
    skipped: int


def resolve_nodes(
    opened: OpenModel, names: Sequence[tuple[int, str]], source: str, *, skip_unknown: bool = False
) -> Resolved:
    """Find the nodes with the given names.

    Args:
        opened: The model.
        names: (line, name) pairs.
        source: Name of the file, for messages.
        skip_unknown: Skip unknown names.

    Raises:
        DataError: If a name is unknown (unless skipped), or all are. The message shows the first of them with their
            lines and similar known names.
    """
    resolved: dict[int, int] = {}  # position: node
    messages: list[str] = []
    unknown = 0
    for number, (line, name) in enumerate(names):
        nodes = opened.names.nodes(name)
        if len(nodes) == 1:
            resolved[number] = nodes[0]
            continue
        unknown += 1
        if len(messages) < MAX_SHOWN_ERRORS:
            try:
                opened.node(name)
            except (UnknownNameError, DataError) as error:
                messages.append(f"  line {line}: {error}")
    if unknown and (not skip_unknown or not resolved):
        more = f"\n  and {unknown - len(messages):,} more" if unknown > len(messages) else ""
        advice = "" if not resolved else "\n--skip-unknown skips them."
        unclear = " or the name of several nodes" if any("may be any of" in words for words in messages) else ""
        raise DataError(
            f"{source}: {unknown:,} of {format_count(len(names), 'name')} "
            f"{'is' if unknown == 1 else 'are'} not known{unclear}:\n" + "\n".join(messages) + more + advice
        )
    ids, place = (np.fromiter(of, np.int64, len(resolved)) for of in (resolved.values(), resolved))
    return Resolved(ids, place, unknown)


class QuestionTable(NamedTuple):
    """Questions, and the number of rows that were skipped because they name something unknown."""

    questions: Questions
    skipped: int = 0


def single_question(
    opened: OpenModel, subject: str | None, object: str | None, relations: Sequence[str] | None
) -> QuestionTable:
    """Return the questions about one node, with some relations or all.

    Raises:
        ConfigError: Unless either a subject or an object is given.
    """
    given = [name for name in (subject, object) if name is not None]
    if len(given) != 1:
        raise ConfigError("give either --subject or --object; the other is what is asked for")
    node = opened.node(given[0])
    numbers = [opened.relation(name) for name in relations] if relations else range(opened.graph.num_relations)
    relation = torch.tensor(list(numbers), dtype=torch.int64)
    return QuestionTable(Questions(torch.full_like(relation, node), relation, object is None))


def read_questions(opened: OpenModel, path: Path, *, skip_unknown: bool = False) -> QuestionTable:
    """Read a table of questions.

    Args:
        opened: The model.
        path: A file for `read_table` with the columns subject and relation, or relation and object. Without a header
            the first two columns are subject and relation.
        skip_unknown: Skip rows with unknown nodes. An unknown relation is always an error.

    Raises:
        DataError: If columns are missing, or names unknown.
    """
    table = read_table(path)
    column, relation_column, for_objects = 0, 1, True
    if table.header is not None:
        roles = columns_by_role(table.header)
        side = next((role for role in ("subject", "object") if role in roles), None)  # a table of triples: objects
        if "relation" not in roles or side is None:
            raise DataError(
                f"{table.source}: the columns are {', '.join(table.header)}; a question needs subject and relation, or "
                "relation and object"
            )
        column, relation_column, for_objects = roles[side][0], roles["relation"][0], side == "subject"
    short = [row.line for row in table.rows if len(row.cells) <= max(column, relation_column)]
    if short:
        raise DataError(
            f"{table.source}: {format_count(len(short), 'row')} without a relation, the first in line {short[0]}; a "
            "question has a node and a relation (in plain text a tab stands between them)"
        )
    names = [(row.line, row.cells[column]) for row in table.rows]
    resolved = resolve_nodes(opened, names, table.source, skip_unknown=skip_unknown)
    relations = [row.cells[relation_column] for row in table.rows]
    numbers = {name: opened.relation(name) for name in dict.fromkeys(relations)}
    relation = torch.tensor([numbers[name] for name in relations], dtype=torch.int64)[torch.from_numpy(resolved.place)]
    return QuestionTable(Questions(torch.from_numpy(resolved.ids), relation, for_objects), resolved.skipped)


def question_note(
    titles: Titles, node: int, relation: int, for_objects: bool, status: int, probabilities: Iterable[float] = ()
) -> str | None:
    """Return a note on a question for users, or None.

    Args:
        titles: Titles of the graph.
        node: The given node.
        relation: The relation.
        for_objects: Whether objects are asked for.
        status: As `LinkAnswers.status`.
        probabilities: Of the answers that are shown with the note; NaN for known ones.
    """
    graph = titles.graph
    if status == IMPLAUSIBLE:
        end, what = "a subject" if for_objects else "an object", titles.relation(relation)
        return f"{titles.of(node)} is not expected as {end} of {what}: no similar node is one"
    index = KnownTriples.of_graph(graph, "train")
    answers = index.objects if for_objects else index.subjects
    begin, end_ = (int(at) for at in answers.ranges(torch.tensor([node * graph.num_relations + relation])))
    if status == ANSWERED:
        known = [titles.of(one) for one in answers.node[begin : min(end_, begin + MAX_NAMED)].tolist()]
        return f"known: {', '.join(known)}; no other answer is expected"
    place = relation if for_objects else relation + graph.num_relations
    all_wrong = math.prod(1 - share for share in probabilities if not math.isnan(share))
    if all_wrong < 1 - PROBABLE:
        return None
    if end_ > begin and relation_constraints(graph).probability_of_more(place, end_ - begin) < MIN_PROBABILITY_OF_MORE:
        return f"{end_ - begin:,} known; probably nothing is missing here"
    return None


def answer_notes(
    titles: Titles, questions: Questions, answers: LinkAnswers, brief: bool = False, shown: Sequence[int] | None = None
) -> Iterator[str | None]:
    """Yield a note, or None, on each question and its answers.

    Args:
        titles: Titles of the graph.
        questions: q questions.
        answers: Their answers.
        brief: Only for questions without an answer or with too many known ones.
        shown: How many answers to each question are shown; by default all.
    """
    rows = zip(questions.node.tolist(), questions.relation.tolist(), questions.is_for_objects().tolist(), strict=True)
    shares = [[]] * questions.size if answers.probability is None else answers.probability.tolist()
    numbers = shown or [answers.node.shape[1]] * questions.size
    each = zip(rows, answers.status.tolist(), answers.num_omitted.tolist(), shares, numbers, strict=True)
    for question, status, num_omitted, probabilities, number in each:
        note = question_note(titles, *question, status, probabilities[:number]) if status or not brief else None
        left_out = f"{num_omitted:,} more known answers are not shown" if num_omitted else None
        yield "; ".join(filter(None, (note, left_out))) or None


def format_questions(titles: Titles, questions: Questions) -> Iterator[str]:
    """Yield each question as text: 'Peru —borders→ ?', or '? —borders→ Peru'."""
    each = zip(questions.node.tolist(), questions.relation.tolist(), questions.is_for_objects().tolist(), strict=True)
    for node, relation, for_objects in each:
        ends = (titles.of(node), "?") if for_objects else ("?", titles.of(node))
        yield f" —{titles.relation(relation)}→ ".join(ends)
