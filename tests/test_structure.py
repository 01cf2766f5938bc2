"""Check the structure of the package: no back edges, unique names, and limits on its size."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("structure", ROOT / "tools" / "structure.py")
structure = importlib.util.module_from_spec(spec)
spec.loader.exec_module(structure)

# Limits on (files, changes of subpackage) of the walks of tools/walk.py. The aim is (56, 110) for train and predict.
WALKS = {"train": (63, 174), "predict": (60, 146), "links": (19, 30)}


def test_no_subpackage_imports_from_a_later_one():
    assert structure.back_edges() == []


def test_an_import_inside_a_function_and_a_subpackage_without_a_place_count(tmp_path):
    (tmp_path / "graph").mkdir()
    (tmp_path / "graph" / "triples.py").write_text("def read():\n    from rgcn.data import load\n    return load\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "__init__.py").write_text("import rgcn.graph.triples\n")
    (tmp_path / "attic").mkdir()
    (tmp_path / "attic" / "old.py").write_text("import numpy\n")
    assert structure.back_edges(tmp_path) == ["ORDER does not name attic", "graph/triples imports data/__init__"]


def test_no_two_files_share_a_name():
    assert structure.repeated_files() == {}


def test_no_two_public_classes_share_a_name():
    assert structure.repeated_classes() == {}


def test_objects_have_the_fields_their_classes_declare():
    # This class wraps a text stream: it changes only `write` and forwards all other attributes.
    assert structure.dynamic_attributes() == ["system/formatting:_VisibleTextStream"]


def test_a_dynamic_attribute_is_found_behind_a_condition(tmp_path):
    (tmp_path / "lazy.py").write_text("def __getattr__(name):\n    raise AttributeError(name)\n")
    text = "class Graph:\n    if True:\n        def __getattr__(self, name):\n            return 1\n"
    (tmp_path / "graph.py").write_text(text)
    assert structure.dynamic_attributes(tmp_path) == ["graph:Graph"]


def test_the_architecture_names_every_subpackage():
    document = (ROOT / "docs" / "reference" / "architecture.md").read_text()
    names = [path.name for path in structure.SOURCE.iterdir() if path.is_dir() and (path / "__init__.py").is_file()]
    assert [name for name in names if f"`{name}/`" not in document] == []


def test_few_files_refer_to_several_processes():
    """At most eight files outside distributed/ and training/ mention processes or sharding.

    The argument `sharded` of an estimator's constructor does not count, because constructors name every setting.
    """
    words = re.compile(
        r"shard(?!ed: bool \| None = None,)|world_size|process_group|rgcn\.distributed|torch\.distributed"
    )
    known = {
        file.relative_to(structure.SOURCE).as_posix()
        for file in structure.SOURCE.rglob("*.py")
        if words.search(file.read_text())
    }
    found = sorted(file for file in known if not file.startswith(("distributed/", "training/")))
    assert len(found) <= 8, found
    assert "placement.py" in found


def test_functions_fit_on_a_screen_and_take_few_arguments():
    assert structure.over_the_ceiling() == []


def test_the_ceilings_hold_for_functions_alone(tmp_path):
    many = ", ".join(f"a{number}" for number in range(10))
    (tmp_path / "long.py").write_text(f"def f({many}):\n    pass\n\n\n@app.command()\ndef g({many}):\n    pass\n")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "node.py").write_text(f"class A:\n    def __init__(self, {many}):\n        pass\n")
    (tmp_path / "loops.py").write_text("@_jit\ndef h():\n" + "    x = 1\n" * 80)
    (tmp_path / "body.py").write_text("def k():\n" + "    x = 1\n" * 80)
    found = structure.over_the_ceiling(tmp_path)
    assert found == ["body:k: 81 lines, 0 arguments", "long:f: 2 lines, 10 arguments"]


def test_the_package_stays_below_its_ceilings():
    files = list(structure.SOURCE.rglob("*.py"))
    assert len(files) <= structure.FILES
    assert sum(map(structure.code_lines, files)) <= structure.CODE_LINES


def test_only_lines_with_code_count(tmp_path):
    (tmp_path / "a.py").write_text(
        '"""Doc\n\nstring."""\n\n# comment\nx = (\n    1,\n)\n\n\ndef f():\n    """Doc."""\n'
    )
    assert structure.code_lines(tmp_path / "a.py") == 4


@pytest.mark.parametrize("name", WALKS)
def test_walks_stay_below_their_ceilings(name):
    walk = json.loads((ROOT / "results" / "walks.json").read_text())[name]
    files, changes = WALKS[name]
    assert walk["files"] <= files
    assert walk["changes"] <= changes
