"""The README says what results/ holds, and what it shows runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_the_tables_are_those_of_the_results():
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "readme_tables.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_every_link_leads_somewhere():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]+)\)", text)
    assert links
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


@pytest.mark.parametrize(
    "name", re.findall(r"rgcn train ((?:e-|c-)?\w+/[\w-]+)", (ROOT / "README.md").read_text("utf-8"))
)
def test_every_configuration_it_names_is_shipped(name):
    from rgcn.runs import shipped_configurations

    assert name in shipped_configurations()
