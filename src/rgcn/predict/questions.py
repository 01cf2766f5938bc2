"""Questions by name, one or a file of them, and what is to be said of each: it makes no sense, its answer is known."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rgcn.data.headers import named_columns
from rgcn.errors import ConfigError, DataError, ParseError, UnknownNameError
from rgcn.nn.scorer import Questions
from rgcn.system.formatting import count

if TYPE_CHECKING:
    from rgcn.predict import OpenModel


import math
from collections.abc import Iterable

from rgcn.graph.titles import Titles
from rgcn.links.relation_constraints import FINISHED, SENSELESS, UNLIKELY, rules_of
from rgcn.links.top_k import LinkAnswers
from rgcn.sampling.known_triples import KnownTriples

STANDARD_INPUT = Path("-")
# First cells of a table that name a column rather than a node.
HEADERS = ("node", "nodes", "name", "id", "iri", "uri", "entity", "subject", "object", "head", "tail", "relation")
SHOWN = 5


class NameRow(NamedTuple):
    """The cells of a line, and its number from 1 (of a Parquet file: of its row)."""

    line: int
    cells: tuple[str, ...]


class NameTable(NamedTuple):
    """Rows of names, and what the first line calls their columns, where it does."""

    source: str
    header: tuple[str, ...] | None
    rows: list[NameRow]


def read_table(path: Path) -> NameTable:
    """Rows of names: .csv, .tsv, .parquet, or else plain text, a row a line, tabs between names; "-": standard input.

    Blank lines are skipped. In .csv, .tsv and .parquet the first row may name the columns.
    """
    suffix = path.suffix.lower()
    source = "standard input" if path == STANDARD_INPUT else str(path)
    # A pipe that the shell has opened (/dev/stdin, /dev/fd/63) has a writer. A named one may wait for one for good.
    if path.is_fifo() and path.parts[:2] != ("/", "dev"):
        raise DataError(f"{source} is a pipe, not a file: give - instead, with {source} as standard input")
    header = None
    if suffix == ".parquet":
        header, rows = _parquet_rows(path)
    else:
        rows = list(_rows(_text(path, source), source, suffix == ".csv"))
        if suffix in (".csv", ".tsv") and rows and _names_columns(rows[0].cells):
            header, rows = tuple(cell.casefold() for cell in rows[0].cells), rows[1:]
    if not rows:
        raise DataError(f"{source}: there are no names in it")
    return NameTable(source, header, rows)


def _names_columns(cells: tuple[str, ...]) -> bool:
    roles = named_columns([cell for cell in cells if len(cell) > 1])  # a letter is a node's name rather
    return cells[0].casefold() in HEADERS or ("relation" in roles and len(roles) > 1)


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
    tabs: dict[str, Any] = {"delimiter": "\t", "quoting": csv.QUOTE_NONE}  # quotes are letters like others there
    reader = csv.reader(io.StringIO(text, newline=""), **({} if is_csv else tabs))
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield NameRow(reader.line_num, tuple(cell.strip() for cell in cells))
    except csv.Error as error:
        raise ParseError(source, reader.line_num, "", f"no {'CSV' if is_csv else 'lines of names'}: {error}") from None


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
    """ids int64 [n] of the names that are known, their places in the list, and how many were not known."""

    ids: NDArray[np.int64]
    place: NDArray[np.int64]
    skipped: int


def resolve_nodes(
    opened: OpenModel, names: Sequence[tuple[int, str]], source: str, *, skip_unknown: bool = False
) -> Resolved:
    """The nodes that (line, name) pairs stand for.

    All unknown names are counted, and the first few said with their lines and the closest known names; unless they are
    to be skipped, that is an error.
    """
    found: dict[int, int] = {}  # by their places
    complaints: list[str] = []
    unknown = 0
    for number, (line, name) in enumerate(names):
        meant = opened.names.nodes(name)
        if len(meant) == 1:
            found[number] = meant[0]
            continue
        unknown += 1
        if len(complaints) < SHOWN:
            try:
                opened.node(name)
            except (UnknownNameError, DataError) as error:
                complaints.append(f"  line {line}: {error}")
    if unknown and (not skip_unknown or not found):
        more = f"\n  and {unknown - len(complaints):,} more" if unknown > len(complaints) else ""
        advice = "" if not found else "\n--skip-unknown goes on without them."
        unclear = " or the name of several nodes" if any("may be any of" in words for words in complaints) else ""
        raise DataError(
            f"{source}: {unknown:,} of {count(len(names), 'name')} "
            f"{'is' if unknown == 1 else 'are'} not known{unclear}:\n" + "\n".join(complaints) + more + advice
        )
    ids, place = (np.fromiter(of, np.int64, len(found)) for of in (found.values(), found))
    return Resolved(ids, place, unknown)


class QuestionTable(NamedTuple):
    """Questions, and how many rows of a table were none, since they name something unknown."""

    questions: Questions
    skipped: int = 0


def single_question(
    opened: OpenModel, subject: str | None, object: str | None, relations: Sequence[str] | None
) -> QuestionTable:
    """One node, and some relations or all."""
    given = [name for name in (subject, object) if name is not None]
    if len(given) != 1:
        raise ConfigError("give either --subject or --object; the other is what is asked for")
    node = opened.node(given[0])
    numbers = [opened.relation(name) for name in relations] if relations else range(opened.graph.num_relations)
    relation = torch.tensor(list(numbers), dtype=torch.int64)
    return QuestionTable(Questions(torch.full_like(relation, node), relation, object is None))


def read_questions(opened: OpenModel, path: Path, *, skip_unknown: bool = False) -> QuestionTable:
    """A table of questions: columns subject and relation, or relation and object; without a header the first two
    columns are subject and relation.

    A row's line is of the file; unknown nodes are counted, an unknown relation is an error.
    """
    table = read_table(path)
    column, relation_column, for_objects = _columns(table)
    short = [row.line for row in table.rows if len(row.cells) <= max(column, relation_column)]
    if short:
        raise DataError(
            f"{table.source}: {count(len(short), 'row')} without a relation, the first in line {short[0]}; a question "
            "has a node and a relation (in plain text a tab stands between them)"
        )
    names = [(row.line, row.cells[column]) for row in table.rows]
    found = resolve_nodes(opened, names, table.source, skip_unknown=skip_unknown)
    relations = [row.cells[relation_column] for row in table.rows]
    numbers = {name: opened.relation(name) for name in dict.fromkeys(relations)}
    relation = torch.tensor([numbers[name] for name in relations], dtype=torch.int64)[torch.from_numpy(found.place)]
    return QuestionTable(Questions(torch.from_numpy(found.ids), relation, for_objects), found.skipped)


def _columns(table: NameTable) -> tuple[int, int, bool]:
    """(column of the given node, column of the relation, whether objects are asked for)."""
    if table.header is None:
        return 0, 1, True
    roles = named_columns(table.header)
    side = next((role for role in ("subject", "object") if role in roles), None)  # a whole triple asks for its object
    if "relation" not in roles or side is None:
        raise DataError(
            f"{table.source}: the columns are {', '.join(table.header)}; a question needs subject and relation, or "
            "relation and object"
        )
    return roles[side][0], roles["relation"][0], side == "subject"


NAMED = 3  # known answers that are named
PROBABLE = 0.5  # that one of the answers shown is right: above, nobody is told that probably none is missing


def question_note(
    titles: Titles, node: int, relation: int, for_objects: bool, expected: int, probabilities: Iterable[float] = ()
) -> str | None:
    """A sentence for people; None where there is nothing to say.

    expected       as `LinkAnswers` has it
    probabilities  of the answers that are shown with the note; NaN for known ones
    """
    graph = titles.graph
    if expected == SENSELESS:
        end, what = "subject" if for_objects else "object", titles.relation(relation)
        return f"{what} is not a question for {titles.of(node)}: nothing like it is {end} of it"
    index = KnownTriples.of_graph(graph, "train")
    answers = index.objects if for_objects else index.subjects
    begin, end_ = (int(at) for at in answers.ranges(torch.tensor([node * graph.num_relations + relation])))
    if expected == FINISHED:
        known = [titles.of(one) for one in answers.node[begin : min(end_, begin + NAMED)].tolist()]
        return f"known: {', '.join(known)}; nothing else is expected"
    place = relation if for_objects else relation + graph.num_relations
    shown_wrong = math.prod(1 - share for share in probabilities if not math.isnan(share))
    if shown_wrong < 1 - PROBABLE:
        return None
    if end_ > begin and rules_of(graph).chance_of_more(place, end_ - begin) < UNLIKELY:
        return f"{end_ - begin:,} known; probably nothing is missing here"
    return None


def notes_of(
    titles: Titles, questions: Questions, answers: LinkAnswers, brief: bool = False, shown: Sequence[int] | None = None
) -> Iterator[str | None]:
    """What is to be said of each question and its answers.

    brief  only where there is no answer, or too many known ones
    shown  how many answers to each question are shown; by default all
    """
    asked = zip(questions.node.tolist(), questions.relation.tolist(), questions.asks_objects().tolist(), strict=True)
    shares = [[]] * len(answers) if answers.probability is None else answers.probability.tolist()
    numbers = shown or [answers.node.shape[1]] * len(answers)
    each = zip(asked, answers.expected.tolist(), answers.not_shown.tolist(), shares, numbers, strict=True)
    for question, expected, not_shown, probabilities, number in each:
        note = question_note(titles, *question, expected, probabilities[:number]) if expected or not brief else None
        left_out = f"{not_shown:,} more known answers are not shown" if not_shown else None
        yield "; ".join(filter(None, (note, left_out))) or None


def question_words(titles: Titles, questions: Questions) -> Iterator[str]:
    """'Peru —borders→ ?', or '? —borders→ Peru'."""
    each = zip(questions.node.tolist(), questions.relation.tolist(), questions.asks_objects().tolist(), strict=True)
    for node, relation, for_objects in each:
        ends = (titles.of(node), "?") if for_objects else ("?", titles.of(node))
        yield f" —{titles.relation(relation)}→ ".join(ends)
