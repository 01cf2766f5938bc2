"""Questions about links, by name: one from the command line, or a table of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from rgcn.errors import ConfigError, DataError
from rgcn.predict.node_lists import NameTable, read_table, resolve_nodes
from rgcn.scoring import Questions
from rgcn.words import count

if TYPE_CHECKING:
    from rgcn.predict import OpenModel

SIDES = {"subject": True, "head": True, "object": False, "tail": False}


class QuestionTable(NamedTuple):
    """Questions, and how many rows of a table were none, since they name something unknown."""

    questions: Questions
    skipped: int = 0


def single_question(
    opened: OpenModel, subject: str | None, object: str | None, relations: Sequence[str] | None
) -> QuestionTable:
    """One node, and some relations or all."""
    if (subject is None) == (object is None):
        raise ConfigError("give either --subject or --object; the other is what is asked for")
    node = opened.node(subject if object is None else object)  # type: ignore[arg-type]
    wanted = range(opened.graph.num_relations)
    numbers = [opened.relation(name) for name in relations] if relations else list(wanted)
    relation = torch.tensor(numbers, dtype=torch.int64)
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
    numbers: dict[str, int] = {}
    for row in table.rows:
        name = row.cells[relation_column]
        if name not in numbers:
            numbers[name] = opened.relation(name)
    relation = torch.tensor([numbers[row.cells[relation_column]] for row in table.rows], dtype=torch.int64)
    chosen = relation[torch.from_numpy(found.place)]
    return QuestionTable(Questions(torch.from_numpy(found.ids), chosen, for_objects), found.skipped)


def _columns(table: NameTable) -> tuple[int, int, bool]:
    """(column of the given node, column of the relation, whether objects are asked for)."""
    if table.header is None:
        return 0, 1, True
    sides = [name for name in table.header if name in SIDES]
    if "relation" not in table.header or not sides:
        raise DataError(
            f"{table.source}: the columns are {', '.join(table.header)}; a question needs subject and relation, or "
            "relation and object"
        )
    # A whole triple asks for its object.
    return table.header.index(sides[0]), table.header.index("relation"), SIDES[sides[0]]
