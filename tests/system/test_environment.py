"""Test that importing and calling rgcn writes no environment variable, except in one module for its own processes."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rgcn import plugins
from rgcn.errors import ConfigError
from rgcn.plugins import allow
from rgcn.runs.worker_pool import ProcessSettings
from rgcn.system import memory, threads
from rgcn.system.memory import limit_memory, memory_limit
from rgcn.system.threads import DEFAULT_VARIABLES, THREAD_VARIABLES, WAIT_POLICY_VARIABLES, prepare_process
from rgcn.training.fitting import CUBLAS_WORKSPACE, FIXED_WORKSPACES, _fixed_order
from test_structure import structure

SOURCE = Path(threads.__file__).parents[1]
WRITTEN = (*DEFAULT_VARIABLES, *WAIT_POLICY_VARIABLES, *THREAD_VARIABLES, "MKL_DYNAMIC", "TORCH_CPP_LOG_LEVEL")

LIBRARY = """
import json, os
import polars  # writes a variable of its own allocator

before = dict(os.environ)
import rgcn
from rgcn.system.memory import limit_memory

world = rgcn.load("world").subgraph(range(60))
rgcn.allow("somebody")
limit_memory("64GiB")
rgcn.NodeClassifier(hidden=2, epochs=1, device="cpu").fit(rgcn.load("world")).predict([0, 1])
rgcn.LinkPredictor(encoder="none", embedding=2, steps=1, device="cpu").fit(world).predict(subject=0, relation=0, k=2)
opened = rgcn.open_model(world)
opened.model.predict(subject=0, relation=0, k=2)
after = dict(os.environ)
print(json.dumps([sorted(after.items() - before.items()), sorted(before.keys() - after.keys())]))
"""


def test_importing_and_calling_the_library_writes_no_variable(tmp_path):
    place = {name: value for name, value in os.environ.items() if name not in WRITTEN}
    place |= {"RGCN_CACHE": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", LIBRARY], env=place, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[], []]


READS = {"get", "keys", "items"}


def writes(tree: ast.Module) -> Iterator[int]:
    """Return lines that use `os.environ` other than for reading, or write the environment in another way."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "os":
            yield from (node.lineno for alias in node.names if alias.name in ("environ", "environb", "putenv"))
        if not (isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "putenv", "unsetenv")):
            continue
        user = parents[node]
        reads = node.attr == "environ" and (
            (isinstance(user, ast.Attribute) and user.attr in READS)
            or (isinstance(user, ast.Subscript) and isinstance(user.ctx, ast.Load))
            or (isinstance(user, ast.Compare) and node in user.comparators)
            or (isinstance(user, ast.Dict) and user.keys[user.values.index(node)] is None)  # {**os.environ}
        )
        if not reads:
            yield node.lineno


def names_in(tree: ast.AST) -> set[str]:
    """Return the names that code imports, uses, or accesses as attributes."""
    nodes = list(ast.walk(tree))
    found = {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    found |= {node.id for node in nodes if isinstance(node, ast.Name)}
    return found | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def test_one_module_writes_variables():
    found = {file: lines for file, tree in structure.parse_files(SOURCE).items() if (lines := list(writes(tree)))}
    assert list(found) == ["system/threads"]


def test_only_processes_of_its_own_write_variables():
    """Return the functions of that module that write, directly or indirectly, except `wait_passively`, which users
    call."""
    module = structure.parse_files(SOURCE)["system/threads"]
    functions = [node for node in module.body if isinstance(node, ast.FunctionDef)]
    writers = {function.name for function in functions if list(writes(function))}
    while more := {function.name for function in functions if writers & names_in(function)} - writers:
        writers |= more
    assert writers >= {"prepare_process", "use_threads", "limit_threads", "silence_distributed_logs", "wait_passively"}
    assert "map_in_threads" not in writers
    writers.remove("wait_passively")
    others = {file: tree for file, tree in structure.parse_files(SOURCE).items() if file != "system/threads"}
    users = {file for file, tree in others.items() if writers & names_in(tree)}
    assert {user for user in users if not user.startswith("cli/")} == {
        "runs/worker_pool",
        "bench/__main__",
        "distributed/launch",
    }


@pytest.mark.parametrize(
    "line",
    ["os.environ['A'] = 'b'", "del os.environ['A']", "os.environ.update(A='b')", "os.environ.setdefault('A', 'b')",
     "os.putenv('A', 'b')", "from os import environ", "os.environ |= {}", "change(os.environ)"],
)  # fmt: skip
def test_writes_are_recognized(line):
    assert list(writes(ast.parse(line))) == [1]


def test_variables_set_by_the_user_are_kept(monkeypatch):
    for name in WRITTEN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DO_NOT_TRACK", "0")
    monkeypatch.setenv("GOMP_SPINCOUNT", "1")
    prepare_process()
    assert {name: os.environ.get(name) for name in DEFAULT_VARIABLES} == {**DEFAULT_VARIABLES, "DO_NOT_TRACK": "0"}
    assert threads.WAIT_POLICY_VARIABLE not in os.environ


def test_deterministic_training_on_a_gpu_says_which_variable_is_missing(monkeypatch):
    assert DEFAULT_VARIABLES[CUBLAS_WORKSPACE] in FIXED_WORKSPACES
    monkeypatch.delenv(CUBLAS_WORKSPACE, raising=False)
    with pytest.raises(ConfigError, match=r"CUBLAS_WORKSPACE_CONFIG=:4096:8 in .* it is not set"):
        _fixed_order().__enter__()
    assert CUBLAS_WORKSPACE not in os.environ
    chosen = []
    monkeypatch.setattr("torch.use_deterministic_algorithms", chosen.append)
    monkeypatch.setenv(CUBLAS_WORKSPACE, FIXED_WORKSPACES[1])
    with _fixed_order():
        assert chosen == [True]


def test_a_limit_of_memory_and_trusted_packages_are_state_of_the_process(monkeypatch):
    monkeypatch.setenv(memory.MEMORY_VARIABLE, "2GiB")
    monkeypatch.setenv(plugins.ALLOW_VARIABLE, "theirs, ours")
    monkeypatch.setattr(memory, "_limit_bytes", None)
    monkeypatch.setattr(plugins, "_allowed", [])
    assert ProcessSettings(1) == ProcessSettings(1, 2 << 30, ("theirs", "ours"))
    limit_memory("1GiB")
    allow("ours", "mine:Class")
    assert ProcessSettings(3) == ProcessSettings(3, 1 << 30, ("theirs", "ours", "mine"))
    assert (os.environ[memory.MEMORY_VARIABLE], os.environ[plugins.ALLOW_VARIABLE]) == ("2GiB", "theirs, ours")


def test_a_limit_in_the_environment_that_is_no_size_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "_limit_bytes", None)
    monkeypatch.setenv(memory.MEMORY_VARIABLE, "much")
    with pytest.raises(ConfigError, match="RGCN_MEMORY in the environment: 'much' is not a size; write one like 8GiB"):
        memory_limit()
