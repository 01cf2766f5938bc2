"""Test that the README agrees with results/, and that its commands run."""

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


SITE = [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob("docs/**/*.md")) if "_build" not in path.parts]
PAGES = ["README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", *SITE]


@pytest.mark.parametrize("page", PAGES)
def test_every_link_has_a_target(page):
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    assert [link for link in links if not (ROOT / page).parent.joinpath(link).exists()] == []


def test_the_readme_fits_three_screens():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 100


NAMED = {
    name
    for page in PAGES
    for name in re.findall(
        r"rgcn \w+ ((?:rgcn|e-rgcn|c-rgcn|path|distmult|universal)/[\w-]+)", (ROOT / page).read_text("utf-8")
    )
}


@pytest.mark.parametrize("name", sorted(NAMED))
def test_every_configuration_that_a_page_names_is_built_in(name):
    from rgcn.runs import builtin_configurations

    assert name in builtin_configurations()
