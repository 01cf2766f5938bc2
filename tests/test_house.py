"""The house is as docs/architecture.md draws it: rooms know those before them alone, and every name says one thing."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("house", ROOT / "tools" / "house.py")
house = importlib.util.module_from_spec(spec)
spec.loader.exec_module(house)


def test_no_room_imports_from_one_further_along():
    assert house.backwards() == []


def test_a_lazy_import_and_a_room_without_a_place_count(tmp_path):
    (tmp_path / "graph").mkdir()
    (tmp_path / "graph" / "triples.py").write_text("def read():\n    from rgcn.data import load\n    return load\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "__init__.py").write_text("import rgcn.graph.triples\n")
    (tmp_path / "attic").mkdir()
    (tmp_path / "attic" / "old.py").write_text("import numpy\n")
    assert house.backwards(tmp_path) == ["attic has no place in ROOMS", "graph/triples imports data/__init__"]


def test_no_two_files_share_a_name():
    assert house.repeated_files() == {}


def test_no_two_public_classes_share_a_name():
    assert house.repeated_classes() == {}


def test_objects_have_the_fields_their_classes_declare():
    # A stream that only cleans what is written passes everything else on to the stream it stands for.
    assert house.made_up_attributes() == ["system/terminal:_Shown"]


def test_an_attribute_that_is_made_up_is_found_behind_a_condition(tmp_path):
    (tmp_path / "lazy.py").write_text("def __getattr__(name):\n    raise AttributeError(name)\n")
    text = "class Graph:\n    if True:\n        def __getattr__(self, name):\n            return 1\n"
    (tmp_path / "graph.py").write_text(text)
    assert house.made_up_attributes(tmp_path) == ["graph:Graph"]


def test_the_architecture_names_every_room():
    drawn = (ROOT / "docs" / "architecture.md").read_text()
    rooms = [path.name for path in house.SOURCE.iterdir() if path.is_dir() and (path / "__init__.py").is_file()]
    assert [room for room in rooms if f"`{room}/`" not in drawn] == []


def test_few_files_know_of_several_processes():
    """Outside distributed/ and training/, and but for the launch of commands: at most eight."""
    words = re.compile(r"shard|world_size|process_group|rgcn\.distributed|torch\.distributed")
    known = {
        file.relative_to(house.SOURCE).as_posix()
        for file in house.SOURCE.rglob("*.py")
        if words.search(file.read_text())
    }
    found = sorted(file for file in known if not file.startswith(("distributed/", "training/")))
    assert len(found) <= 8, found
    assert "placement.py" in found


# Where kinds of answers are made: the kinds themselves, and the calibrations that they bring.
OF_KINDS = {"models/answer_kind", "links/calibration"}


def comparing(tree: ast.AST) -> Iterator[int]:
    """Lines that tell kinds of answers apart by name: in comparisons, keys of a table, and what a model is asked."""
    for node in ast.walk(tree):
        parts: list[ast.expr | None] = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Dict) and {"classes", "links"} <= {getattr(key, "value", None) for key in node.keys}:
            parts = [*node.keys]
        elif isinstance(node, ast.MatchValue):
            parts = [node.value]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("answers", "must_answer"):
            parts = [*node.args]
        inner = [one for part in parts if part is not None for one in (part, *getattr(part, "elts", ()))]
        if any(isinstance(one, ast.Constant) and one.value in ("classes", "links") for one in inner):
            yield node.lineno


def test_no_file_compares_kinds_of_answers():
    trees = {file: tree for file, tree in house.parsed(house.SOURCE).items() if file not in {*OF_KINDS, "plugins"}}
    assert [f"{file}:{line}" for file, tree in trees.items() for line in comparing(tree)] == []


def test_a_comparison_of_kinds_is_found():
    lines = ['kind == "links"', '"classes" in task.answers', 'opened.answers("classes")', 'a in ("x", "links")']
    lines += ['{"classes": 1, "links": 2}[kind]']
    assert [list(comparing(ast.parse(line))) for line in lines] == [[1]] * len(lines)
    assert list(comparing(ast.parse('found = {"classes": 3}; kind.about == "nodes"'))) == []
