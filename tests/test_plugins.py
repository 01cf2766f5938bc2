"""Test components by name, class and dotted name, and which names a file may contain."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from rgcn.errors import ConfigError, DataError, RgcnError
from rgcn.plugins import Registry, allow, dotted_name, is_allowed


@pytest.fixture
def registry() -> Registry:
    return Registry("error", "rgcn.errors:RgcnError", {"data": "rgcn.errors:DataError"})


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package that has not been imported, in a folder of sys.path."""
    name = f"stranger_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(
        textwrap.dedent("""
        from rgcn.errors import RgcnError

        class Mine(RgcnError):
            pass

        class NotOne:
            pass
    """)
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("RGCN_ALLOW", raising=False)
    return name


def test_a_class_is_accepted_where_a_name_is(registry: Registry) -> None:
    class Mine(RgcnError):  # noqa: N818
        pass

    assert registry.resolve(Mine) is Mine
    assert registry.resolve(registry.name_of(Mine)) is Mine  # though it cannot be imported
    assert registry.name_of(DataError) == "data"
    assert registry.name_of("data") == "data"


def test_a_user_may_name_any_module(registry: Registry, package: str) -> None:
    component = registry.resolve(f"{package}:Mine", trusted=True)
    assert dotted_name(component) == f"{package}:Mine"
    assert is_allowed(package)  # worker processes need it too


def test_a_file_may_not_name_any_module(registry: Registry, package: str) -> None:
    with pytest.raises(DataError, match=f"--allow {package}"):
        registry.resolve(f"{package}:Mine")
    assert package not in sys.modules
    allow(package)
    assert registry.resolve(f"{package}:Mine").__name__ == "Mine"


def test_errors_name_the_missing_package_or_class(registry: Registry, package: str) -> None:
    with pytest.raises(DataError, match="package 'nowhere_to_be_found'"):
        registry.resolve("nowhere_to_be_found.errors:Mine", trusted=True)
    with pytest.raises(ConfigError, match="no Yours"):
        registry.resolve(f"{package}:Yours", trusted=True)
    with pytest.raises(ConfigError, match=r"NotOne is no error: it does not derive from rgcn\.errors:RgcnError"):
        registry.resolve(f"{package}:NotOne", trusted=True)


@pytest.mark.parametrize("choice", ["os:system", "builtins:eval"])
def test_imported_code_that_is_no_component_is_refused(registry: Registry, choice: str) -> None:
    with pytest.raises(ConfigError, match="is no error"):
        registry.resolve(choice)


@pytest.mark.parametrize(
    ("choice", "message"), [("dada", "did you mean 'data'"), (3, "a name or a class"), (int, "no error")]
)
def test_problem_describes_an_invalid_choice(registry: Registry, choice: object, message: str) -> None:
    problem = registry.problem(choice)
    assert problem is not None
    assert message in problem
