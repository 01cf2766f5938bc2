"""The documentation site: `make docs` builds docs/_build/html. Warnings are errors, and nothing needs a network."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import rgcn

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

logging.getLogger("traitlets").setLevel(logging.WARNING)
# Notebooks run with IPython's own settings instead of the user's, and quietly.
profile = Path(__file__).parent / "_build" / "ipython" / "profile_default"
profile.mkdir(parents=True, exist_ok=True)
(profile / "ipython_kernel_config.py").write_text("c.IPKernelApp.log_level = 40\n", encoding="utf-8")
os.environ["IPYTHONDIR"] = str(profile.parent)

project = "rgcn"
author = "The rgcn founders"
version = release = rgcn.__version__
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "mathml",
    "notebooks",
    "reference",
    "repository",
]
suppress_warnings = ["ref.python"]  # several methods of one name: a docstring that says the name alone is not wrong
exclude_patterns = ["_build", "**/.ipynb_checkpoints"]
nitpicky = True
# Only names of this package must resolve: types of other libraries would need their sites.
nitpick_ignore_regex = [(r"py:.*", r"(?!rgcn\b).*")]

# Pages are MyST Markdown; those with a Jupytext header are notebooks, executed here and cached in _build.
myst_enable_extensions = ["amsmath", "attrs_inline", "colon_fence", "deflist", "dollarmath", "fieldlist"]
myst_heading_anchors = 4
nb_execution_mode = "cache"
nb_execution_raise_on_error = False  # code that fails is a warning with its traceback, hence an error of `make docs`
nb_execution_timeout = 180  # seconds a cell; a machine with other work is slow
nb_execution_show_tb = True
nb_merge_streams = True
copybutton_exclude = ".linenos, .gp, .go"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

default_role = "py:obj"  # `KnowledgeGraph` in a docstring is a link, as far as the site has such a name
autodoc_typehints = "signature"
autodoc_default_options = {"inherited-members": "Module,Exception,BaseModel,tuple,Enum,str,int"}
autodoc_member_order = "bysource"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
add_module_names = False
maximum_signature_line_length = 90
smartquotes_action = "D"  # dashes, not quotes: names in quotes are often code

html_theme = "furo"
html_title = f"rgcn {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
math_number_all = False
html_math_renderer = "mathml"
