"""Build a documentation site in a process of its own, as `make docs` does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXTENSIONS = ROOT / "docs" / "_ext"
CONFIGURATION = f"""
import sys
sys.path[:0] = [{str(EXTENSIONS)!r}, {{folder!r}}]
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_design"]
extensions += ["mathml", "notebooks", "reference", "repository"]
nitpicky, myst_heading_anchors, html_theme, html_math_renderer = True, 3, "basic", "mathml"
myst_enable_extensions = ["dollarmath", "colon_fence"]
nb_execution_mode, nb_execution_show_tb = "force", True
"""
NOTEBOOK = """---
jupytext:
  text_representation: {extension: .md, format_name: myst}
kernelspec: {name: python3, display_name: Python 3}
---
"""


def build(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """Build the HTML of a folder; warnings are errors."""
    options = ["-q", "-W", "--keep-going", "-b", "html", "-d", str(target.parent / "doctrees")]
    return subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(source), str(target)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])},
    )


def small_site(folder: Path, pages: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Build a site of a few pages with the extensions of ours. `index` lists the others."""
    source = folder / "docs"
    source.mkdir(exist_ok=True)
    (source / "conf.py").write_text(CONFIGURATION.format(folder=str(folder)), encoding="utf-8")
    names = "\n".join(name for name in pages if name != "index")
    index = pages.get("index", f"# Index\n\n```{{toctree}}\n{names}\n```\n")
    for name, text in {**pages, "index": index}.items():
        (source / f"{name}.md").write_text(text, encoding="utf-8")
    return build(source, folder / "html")
