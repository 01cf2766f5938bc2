"""Test the public interface of `rgcn`: names, version, and a fast import without side effects."""

from __future__ import annotations

import ast
import importlib.metadata
import inspect
import re
import subprocess
import sys
from pathlib import Path

import rgcn
from rgcn import errors

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "rgcn"
NAMES = {
    "KnowledgeGraph",
    "LinkClassifier",
    "LinkPredictor",
    "NodeClassifier",
    "NodeLabels",
    "RelationalAdjacency",
    "__version__",
    "allow",
    "load",
    "load_model",
    "nn",
    "open_model",
    "read",
}
MAX_IMPORT_SECONDS = 0.15


def test_the_public_names():
    exceptions = {
        name for name, value in vars(errors).items() if inspect.isclass(value) and value.__module__ == errors.__name__
    }
    assert set(rgcn.__all__) == NAMES | exceptions
    assert len(set(rgcn.__all__)) == len(rgcn.__all__)


def test_dir_lists_the_public_names_whatever_was_imported():
    import rgcn.links

    assert inspect.ismodule(rgcn.links)
    assert dir(rgcn) == sorted(rgcn.__all__)
    for name in rgcn.__all__:
        getattr(rgcn, name)
    assert dir(rgcn) == sorted(rgcn.__all__)


def exported_names(init: Path) -> set[str]:
    """Functions, classes and imported names of an `__init__.py`, its own submodules left out."""
    package = ".".join(init.parent.relative_to(SOURCE.parent).parts)
    names = set()
    for node in ast.walk(ast.parse(init.read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom) and node.module != package:
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def test_no_exported_name_is_also_the_name_of_a_submodule():
    for init in SOURCE.rglob("__init__.py"):
        modules = {path.stem for path in init.parent.iterdir() if path.suffix == ".py" or path.is_dir()}
        assert exported_names(init) & modules == set(), init


def test_submodules_can_be_imported_and_used_as_attributes():
    code = "import rgcn.links; print(rgcn.links.__name__, rgcn.graph.titles.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "rgcn.links rgcn.graph.titles\n"


def test_the_version_is_that_of_the_package_metadata():
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]
    assert rgcn.__version__ == importlib.metadata.version("rgcn") == version
    assert version not in "".join(path.read_text() for path in SOURCE.rglob("*.py"))
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()


STATE = """
import gc, locale, logging, os, random, signal, sys, threading, warnings
def state():
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    loggers = {name: logger.level for name, logger in logging.root.manager.loggerDict.items()}
    hooks = sys.excepthook, sys.displayhook, threading.excepthook, sys.gettrace(), gc.get_threshold()
    return [dict(os.environ), os.getcwd(), os.listdir(), handlers, loggers, list(logging.root.handlers), hooks,
            list(sys.path), list(sys.meta_path), list(warnings.filters), threading.enumerate(), random.getstate(),
            locale.setlocale(locale.LC_ALL), sys.getrecursionlimit()]
before = state()
import rgcn
assert state() == before
"""


def test_the_import_has_no_side_effects(tmp_path):
    done = subprocess.run([sys.executable, "-c", STATE], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


def test_the_import_is_quick():
    code = "import time; begin = time.perf_counter(); import rgcn; print(time.perf_counter() - begin)"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(5)]
    assert min(float(run.stdout) for run in runs) <= MAX_IMPORT_SECONDS
