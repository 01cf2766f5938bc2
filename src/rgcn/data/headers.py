"""Whether the first row of a table names its columns, and which column is what then."""

import re
import warnings
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from rgcn.data.files import said

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
_NO_WORD = "^<|://|^[-+]?[0-9.,]+$"  # an IRI, a number
FEWEST = 3  # rows that tell anything


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
