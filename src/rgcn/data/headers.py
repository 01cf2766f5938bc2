"""Whether the first row of a table names its columns, and which column is what then."""

import re
import warnings
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from rgcn.data.files import said
from rgcn.errors import DataError
from rgcn.system.formatting import shortened

TRIPLE = ("subject", "relation", "object")
# What people call the columns of a table of triples: in any case, with or without an ending.
WORDS = {
    "subject": "subject subj s head h source src from start entity e1 entity1 node1",
    "relation": "relation rel r predicate pred p property attribute type label edge relationship "
    "relationtype reltype relationshiptype edgetype edgelabel",
    "object": "object obj o tail t target dst destination to end value e2 entity2 node2",
    "weight": "weight",
    "split": "split",
}
ROLES = {word: role for role, words in WORDS.items() for word in words.split()}
_ENDING = re.compile("(?<=..)(id|name|iri|uri|node|entity|label)$")
_DECORATION = re.compile(r"[\s_\-.:?\"']+")  # :START_ID as Neo4j writes it, ?s as SPARQL does
_WORD = re.compile(r"[^\W\d][\w .:?-]{0,40}")
_LETTER = re.compile(r"[^\W\d_]")
_NO_WORD = "^[</]|://|^[-+]?[0-9.,]+$"  # an IRI, a path (/m/027rn, as Freebase has it), a number
FEWEST = 3  # rows that tell anything
# Relations recur. A middle column in which nearly every one of so many rows has a value of its own holds none.
MANY, NEARLY_ALL = 10, 0.9
NAMED_COLUMNS = said("columns", [0, 1, 2])
ONE_ROW_PER_THING = (
    "if each row is one thing with its properties, write a row for each of its cells first: the thing, the column's "
    "name, the value (docs/own-data.md shows how)"
)


def named_columns(cells: Sequence[str]) -> dict[str, list[int]]:
    """The positions that names of columns give each role; several where it is not clear which.

    >>> named_columns(["Source", "Target", "Type", "Weight"])
    {'subject': [0], 'object': [1], 'relation': [2], 'weight': [3]}
    """
    words = [_DECORATION.sub("", cell).casefold() for cell in cells]
    found: dict[str, list[int]] = {}
    for spelled in (words, [_ENDING.sub("", word) for word in words]):
        now: dict[str, list[int]] = {}
        for position, word in enumerate(spelled):
            if word in ROLES:
                now.setdefault(ROLES[word], []).append(position)
        found = now | found  # a bare word comes before one with an ending
    return found


def names_a_triple(cells: Sequence[str]) -> bool:
    return set(TRIPLE) <= named_columns(cells).keys()


def is_header(row: Sequence[str], others: pl.DataFrame, triple: Sequence[int] | None, path: Path) -> bool:
    """Whether the first row names the columns rather than a triple; where that is not clear it stays, with a warning.

    Words for all three columns are a header, unless one is also the name of a node below: no triple may get lost.

    others  rows below it, columns "0", "1", ...
    triple  positions of subject, relation and object, where they are known
    """
    named = names_a_triple(row)
    if named and len(row) != 3 and triple is None:  # else no table of triples
        return True
    places = named_columns(row)
    at = tuple(triple or ((places[role][0] for role in TRIPLE) if named else range(3)))
    subject, relation, object_ = at
    ends = [others[str(subject)], others[str(object_)]]
    recurs = any((end == row[node]).any() for end in ends for node in (subject, object_))
    same = others[str(relation)] == row[relation]
    if named and not recurs and (len(row[relation]) > 1 or (len(others) and not same.any())):
        return True
    if named or (not recurs and not same.any() and len(others) >= FEWEST and _stands_out(row, others, at)):
        warnings.warn(
            f"{path}: the first row ({', '.join(row)}) may be a header, and is read as a triple: header=False says "
            f"that it is one; to leave it out, {said('header', True)}",
            stacklevel=4,
        )
    return False


def refuse_unless_triples(names: Sequence[str] | None, rows: pl.DataFrame, path: Path) -> None:
    """Stop where a table of three columns may hold one thing a row, with two properties, rather than a triple.

    It may if no word of the first row, or no name of a column, occurs in the rows below, or if nearly every row has a
    value of its own in the middle column.

    Args:
        names: The names of the columns where the file's format has some; None for text, whose first row may be names.
        rows: The first rows of the file: text in the columns "0", "1" and "2".
        path: The file.

    Raises:
        DataError: With the first rows read either way, and the option that decides.
    """
    if not len(rows):
        return
    header, below = (names, rows) if names is not None else (rows.row(0)[:3], rows[1:])
    different = below["1"].n_unique()
    if unseen := len(below) > 1 and _occurs_nowhere(header, below):
        words = f"{'The first row is' if names is None else 'The columns are'} {', '.join(header)}"
        reason = f"{words}: these words do not name subject, relation and object, and none of them occurs below"
    elif len(below) >= MANY and different >= NEARLY_ALL * len(below):
        reason = f"The middle column has {different:,} different values in {len(below):,} rows, and relations recur"
    else:
        return
    called = header if unseen or names is not None else ("column 1", "column 2", "column 3")
    triples = [f"{s} —{r}→ {o}" for s, r, o in _first_cells(rows)]
    things = [f"{thing}: {called[1]} {one}, {called[2]} {other}" for thing, one, other in _first_cells(below)]
    with_header = f", and where the first row names the columns {said('header', True)}" if names is None else ""
    raise DataError(
        f"{path}: is each row a triple, or one thing with its properties? {reason}\n"
        f"    as triples: {'; '.join(triples)}; ...\n"
        f"    as a table: {'; '.join(things)}; ...\n"
        f"For triples say {NAMED_COLUMNS}{with_header}; {ONE_ROW_PER_THING}"
    )


def _occurs_nowhere(header: Sequence[str], below: pl.DataFrame) -> bool:
    """Whether three words may be names of columns: with letters, no IRIs or paths, and none of them below."""
    if len(set(header)) < 3 or any(re.search(_NO_WORD, word) or not _LETTER.search(word) for word in header):
        return False
    return not any(below[column].is_in(list(header)).any() for column in ("0", "1", "2"))


def _first_cells(rows: pl.DataFrame) -> list[list[str]]:
    return [[shortened(cell or "", 40) for cell in cells] for cells in rows.select("0", "1", "2").head(2).rows()]


def _stands_out(row: Sequence[str], others: pl.DataFrame, triple: tuple[int, ...]) -> bool:
    """Whether a row whose names stand nowhere below looks like names of columns."""
    cells = [row[position] for position in triple]
    if len(set(cells)) < 3 or not all(map(_WORD.fullmatch, cells)):
        return False
    words = sum(bool(named_columns([cell])) for cell in cells)
    columns = [others[str(position)] for position in triple]
    # Relations recur: only this row's would stand there once.
    recurs = columns[1].is_duplicated().all()
    return words > 1 or recurs or any(column.str.contains(_NO_WORD).all() for column in columns)
