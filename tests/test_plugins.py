"""Names, classes and dotted names on an axis; what a file may name and what it may not."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from rgcn.errors import ConfigError, DataError, RgcnError
from rgcn.plugins import Axis, allow, dotted_name, is_allowed


@pytest.fixture
def axis() -> Axis[RgcnError]:
    return Axis("error", "rgcn.errors:RgcnError", {"data": "rgcn.errors:DataError"})


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package that nobody has imported yet, in a folder of the path."""
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


def test_a_class_fits_wherever_a_name_does(axis: Axis[RgcnError]) -> None:
    class Mine(RgcnError):  # noqa: N818
        pass

    assert axis.find(Mine) is Mine
    assert axis.find(axis.name_of(Mine)) is Mine  # also one that no import could find again
    assert axis.name_of(DataError) == "data"
    assert axis.name_of("data") == "data"


def test_a_user_may_name_any_module(axis: Axis[RgcnError], package: str) -> None:
    found = axis.find(f"{package}:Mine", trusted=True)
    assert dotted_name(found) == f"{package}:Mine"
    assert is_allowed(package)  # the processes that this one starts need it too


def test_a_file_may_not(axis: Axis[RgcnError], package: str) -> None:
    with pytest.raises(DataError, match=f"--allow {package}"):
        axis.find(f"{package}:Mine")
    assert package not in sys.modules
    allow(package)
    assert axis.find(f"{package}:Mine").__name__ == "Mine"


def test_what_is_missing_is_named(axis: Axis[RgcnError], package: str) -> None:
    with pytest.raises(DataError, match="package 'nowhere_to_be_found'"):
        axis.find("nowhere_to_be_found.errors:Mine", trusted=True)
    with pytest.raises(ConfigError, match="no Yours"):
        axis.find(f"{package}:Yours", trusted=True)
    with pytest.raises(ConfigError, match=r"NotOne is no error: it does not derive from rgcn\.errors:RgcnError"):
        axis.find(f"{package}:NotOne", trusted=True)


@pytest.mark.parametrize("choice", ["os:system", "builtins:eval"])
def test_code_that_is_no_member_is_refused_though_it_is_imported(axis: Axis[RgcnError], choice: str) -> None:
    with pytest.raises(ConfigError, match="is no error"):
        axis.find(choice)


@pytest.mark.parametrize(
    ("choice", "words"), [("dada", "did you mean 'data'"), (3, "a name or a class"), (int, "no error")]
)
def test_nonsense_is_said_in_words(axis: Axis[RgcnError], choice: object, words: str) -> None:
    problem = axis.problem(choice)
    assert problem is not None
    assert words in problem
