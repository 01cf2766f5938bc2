"""Decide whether the first row of a table names its columns, and which column is which then."""

import re
import warnings
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from rgcn.data.files import option_hint
from rgcn.errors import DataError
from rgcn.system.formatting import shorten

TRIPLE = ("subject", "relation", "object")
# Usual names for the columns of a table of triples; case, and suffixes such as "id", do not matter.
ROLE_WORDS = {
    "subject": "subject subj s head h source src from start entity e1 entity1 node1",
    "relation": "relation rel r predicate pred p property attribute type label edge relationship "
    "relationtype reltype relationshiptype edgetype edgelabel",
    "object": "object obj o tail t target dst destination to end value e2 entity2 node2",
    "weight": "weight",
    "split": "split",
}
ROLES = {word: role for role, words in ROLE_WORDS.items() for word in words.split()}
_WORD_SUFFIX = re.compile("(?<=..)(id|name|iri|uri|node|entity|label)$")
_DECORATION = re.compile(r"[\s_\-.:?\"']+")  # :START_ID as Neo4j writes it, ?s as SPARQL does
_WORD = re.compile(r"[^\W\d][\w .:?-]{0,40}")
_LETTER = re.compile(r"[^\W\d_]")
_NOT_A_WORD = "^[</]|://|^[-+]?[0-9.,]+$"  # an IRI, a path (/m/027rn in Freebase) or a number
MIN_ROWS = 3  # with fewer rows the values tell nothing
# Relations recur. A middle column with a different value in nearly every one of so many rows does not hold relations.
MIN_ROWS_TO_RECUR, MAX_DISTINCT_SHARE = 10, 0.9
COLUMNS_HINT = option_hint("columns", [0, 1, 2])
RECORDS_HINT = (
    "if each row is one thing with its properties, first write a row for each of its cells: the thing, the column's "
    "name, the value (docs/guides/your-data.md shows how)"
)


def columns_by_role(cells: Sequence[str]) -> dict[str, list[int]]:
    """Return the positions of the column names that stand for each role; several if they are ambiguous.

    >>> columns_by_role(["Source", "Target", "Type", "Weight"])
    {'subject': [0], 'object': [1], 'relation': [2], 'weight': [3]}
    """
    words = [_DECORATION.sub("", cell).casefold() for cell in cells]
    positions: dict[str, list[int]] = {}
    for spellings in ([_WORD_SUFFIX.sub("", word) for word in words], words):  # prefer words without a suffix
        roles = list(map(ROLES.get, spellings))
        positions |= {role: [at for at, found in enumerate(roles) if found == role] for role in filter(None, roles)}
    return positions


def names_triple(cells: Sequence[str]) -> bool:
    """Return whether the cells name a subject, a relation and an object."""
    return set(TRIPLE) <= columns_by_role(cells).keys()


def is_header(row: Sequence[str], below: pl.DataFrame, triple: Sequence[int] | None, path: Path) -> bool:
    """Return whether the first row names the columns rather than a triple.

    A row with words for all three columns is a header, unless one of them is also a node in the rows below: no triple
    may get lost. If it is not clear, the row is a triple, and a warning says so.

    Args:
        row: The cells of the first row.
        below: The rows below it, with columns "0", "1", ...
        triple: Positions of subject, relation and object, if they are known.
        path: The file.
    """
    is_named = names_triple(row)
    if is_named and len(row) != 3 and triple is None:  # otherwise it would not be a table of triples
        return True
    by_role = columns_by_role(row)
    positions = tuple(triple or ((by_role[role][0] for role in TRIPLE) if is_named else range(3)))
    subject, relation, object_ = positions
    ends = [row[subject], row[object_]]
    is_node = any(below[str(position)].is_in(ends).any() for position in (subject, object_))
    is_relation = (below[str(relation)] == row[relation]).any()
    if is_named and not is_node and (len(row[relation]) > 1 or (len(below) and not is_relation)):
        return True
    is_new = not is_node and not is_relation and len(below) >= MIN_ROWS
    if is_named or (is_new and _looks_like_header(row, below, positions)):
        warnings.warn(
            f"{path}: the first row ({', '.join(row)}) may be a header, and is read as a triple. header=False confirms "
            f"that it is a triple; to leave it out, set {option_hint('header', True)}",
            stacklevel=4,
        )
    return False


def refuse_unless_triples(names: Sequence[str] | None, rows: pl.DataFrame, path: Path) -> None:
    """Raise DataError if the rows of a table of three columns may describe one thing each instead of triples.

    They may if no word of the first row, or no name of a column, occurs in the rows below, or if nearly every row has
    its own value in the middle column.

    Args:
        names: The names of the columns, if the file's format has them; None for text, whose first row may be names.
        rows: The first rows of the file: text in the columns "0", "1" and "2".
        path: The file.

    Raises:
        DataError: The message shows the first rows read either way, and the option that decides.
    """
    if not len(rows):
        return
    header, below = (names, rows) if names is not None else (rows.row(0)[:3], rows[1:])
    num_distinct = below["1"].n_unique()
    if is_unseen := len(below) > 1 and _may_be_header(header, below):
        words = f"{'The first row is' if names is None else 'The columns are'} {', '.join(header)}"
        reason = f"{words}: these words do not name subject, relation and object, and none of them occurs below"
    elif len(below) >= MIN_ROWS_TO_RECUR and num_distinct >= MAX_DISTINCT_SHARE * len(below):
        reason = f"The middle column has {num_distinct:,} different values in {len(below):,} rows, and relations recur"
    else:
        return
    columns = header if is_unseen or names is not None else ("column 1", "column 2", "column 3")
    triples = [f"{s} —{r}→ {o}" for s, r, o in _first_cells(rows)]
    records = [f"{thing}: {columns[1]} {one}, {columns[2]} {other}" for thing, one, other in _first_cells(below)]
    hint = f", and if the first row names the columns {option_hint('header', True)}" if names is None else ""
    raise DataError(
        f"{path}: is each row a triple, or one thing with its properties? {reason}\n"
        f"    as triples: {'; '.join(triples)}; ...\n"
        f"    as a table: {'; '.join(records)}; ...\n"
        f"For triples set {COLUMNS_HINT}{hint}; {RECORDS_HINT}"
    )


def _may_be_header(cells: Sequence[str], below: pl.DataFrame) -> bool:
    """Return whether three cells may be names of columns: different words, none of which occurs below."""
    if len(set(cells)) < 3 or any(re.search(_NOT_A_WORD, cell) or not _LETTER.search(cell) for cell in cells):
        return False
    return not any(below[column].is_in(list(cells)).any() for column in ("0", "1", "2"))


def _first_cells(rows: pl.DataFrame) -> list[list[str]]:
    return [[shorten(cell or "", 40) for cell in cells] for cells in rows.select("0", "1", "2").head(2).rows()]


def _looks_like_header(row: Sequence[str], below: pl.DataFrame, triple: tuple[int, ...]) -> bool:
    """Return whether a row whose names do not occur below looks like names of columns."""
    cells, columns = [row[position] for position in triple], [below[str(position)] for position in triple]
    if len(set(cells)) < 3 or not all(map(_WORD.fullmatch, cells)):
        return False
    num_role_words = sum(bool(columns_by_role([cell])) for cell in cells)
    relations_recur = columns[1].is_duplicated().all()  # all but the one of this row
    return num_role_words > 1 or relations_recur or any(column.str.contains(_NOT_A_WORD).all() for column in columns)
