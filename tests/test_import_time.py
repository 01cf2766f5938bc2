"""`import rgcn` must not wait for PyTorch."""

from __future__ import annotations

import subprocess
import sys

import pytest


def modules_after(statement):
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(out.stdout.split())


def test_importing_the_package_imports_neither_pytorch_nor_numba():
    loaded = modules_after("import rgcn")
    assert "rgcn" in loaded
    assert not {"torch", "numba", "numpy", "pydantic"} & loaded


HELP = """
import contextlib
from rgcn.cli import main
sys.argv = ["rgcn", "--help"]
with contextlib.suppress(SystemExit):
    main()
"""


@pytest.mark.parametrize("statement", ["import rgcn.pages, rgcn.visualization, rgcn.explain", HELP])
def test_templates_are_loaded_when_a_page_is_made(statement):
    assert not {"jinja2"} & modules_after(statement)


def test_graphs_and_configuration_need_no_pytorch():
    loaded = modules_after("import rgcn; rgcn.KnowledgeGraph; import rgcn.config")
    assert "rgcn.graph" in loaded
    assert not {"torch", "numba"} & loaded


def test_public_names_and_training_do_not_import_the_pytorch_compiler():
    """Loading the compiler takes as long as loading the rest of PyTorch."""
    statement = """
import rgcn
[getattr(rgcn, name) for name in rgcn.__all__ if name not in ("load", "read")]
graph = rgcn.KnowledgeGraph.from_triples([("a", "knows", "b")]).with_labels({"train": {"a": "x", "b": "y"}})
rgcn.NodeClassifier(hidden=2, epochs=1).fit(graph).predict()
"""
    loaded = modules_after(statement)
    assert "torch" in loaded
    assert "torch._dynamo" not in loaded


def test_an_unknown_name_of_the_package_is_an_attribute_error():
    import rgcn

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = rgcn.nothing
