"""The house is as docs/architecture.md draws it: rooms know those before them alone, and every name says one thing."""

from __future__ import annotations

import importlib.util
import re
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
