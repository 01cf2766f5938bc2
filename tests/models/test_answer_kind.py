"""Test that kinds of answers are objects, and that no file compares their names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import rgcn
from rgcn.errors import ConfigError
from rgcn.explain.question import ClassQuestion, Question
from rgcn.graph import KnowledgeGraph
from rgcn.models.answer_kind import AnswerKind, ClassKind, LinkKind, kind_of
from rgcn.models.task import NodeClassification
from rgcn.predict.answer_tables import NodeTables
from rgcn.system.progress import Budget

PACKAGE = Path(rgcn.__file__).parent
# Where kinds are made: the kinds themselves, how they are registered, and the calibrations that they bring.
OF_KINDS = ("models/answer_kind.py", "plugins.py", "links/calibration.py")


def comparing(tree: ast.AST) -> Iterator[int]:
    """Return lines that distinguish kinds of answers by name: comparisons, dictionary keys, and arguments."""
    for node in ast.walk(tree):
        parts: list[ast.expr | None] = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Dict) and {"classes", "links"} <= {getattr(key, "value", None) for key in node.keys}:
            parts = [*node.keys]
        elif isinstance(node, ast.MatchValue):
            parts = [node.value]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("answers", "require_kind"):
            parts = [*node.args]
        inner = [one for part in parts if part is not None for one in (part, *getattr(part, "elts", ()))]
        if any(isinstance(one, ast.Constant) and one.value in ("classes", "links") for one in inner):
            yield node.lineno


def test_no_file_compares_kinds_of_answers() -> None:
    files = {file.relative_to(PACKAGE).as_posix(): file for file in PACKAGE.rglob("*.py")}
    trees = {name: ast.parse(file.read_text()) for name, file in files.items() if name not in OF_KINDS}
    assert [f"{name}:{line}" for name, tree in trees.items() for line in comparing(tree)] == []


def test_a_comparison_of_kinds_is_found() -> None:
    lines = ['kind == "links"', '"classes" in task.answers', 'opened.answers("classes")', 'a in ("x", "links")']
    lines += ['{"classes": 1, "links": 2}[kind]']
    assert [list(comparing(ast.parse(line))) for line in lines] == [[1]] * len(lines)
    assert list(comparing(ast.parse('found = {"classes": 3}; kind.topic == "nodes"'))) == []


def test_a_kind_is_one_object_by_its_name_and_its_class() -> None:
    assert kind_of("classes") is kind_of(ClassKind) is NodeClassification().kind
    assert kind_of(LinkKind).part_class(Question).__name__ == "LinkQuestion"
    assert kind_of(ClassKind).part_class(Question) is ClassQuestion
    with pytest.raises(ConfigError, match="unknown answer kind 'class'; did you mean 'classes'"):
        kind_of("class")


def test_a_part_that_a_kind_lacks_is_an_error() -> None:
    with pytest.raises(ConfigError, match="links has no NodeTables"):
        kind_of(LinkKind).make_part(NodeTables)


def test_a_kind_declares_the_counts_it_needs() -> None:
    graph = KnowledgeGraph.from_triples([("a", "r", "b"), ("b", "r", "c")])
    labeled = KnowledgeGraph.from_triples([("a", "r", "b"), ("b", "r", "c")], labels={"a": "x"})
    assert (ClassKind().missing(graph) or "").startswith("no labels: read it with labels=FILE")
    assert ClassKind().missing(labeled) is LinkKind().missing(graph) is None
    assert ClassKind().split_sizes(labeled) == {"train": 1}


def test_without_a_calibration_of_its_own_there_are_no_probabilities() -> None:
    model = rgcn.LinkPredictor(encoder="none", embedding=2)
    found = AnswerKind().calibrate(model, None, Budget())
    assert (found.fitted, found.words) == (False, "No probabilities: a model that answers other questions has none.")
