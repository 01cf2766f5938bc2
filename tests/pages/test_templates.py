"""Templates compile, escape their values, and report missing values."""

import re
from importlib import resources

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from rgcn.pages import PageParts, PageSection, Tile, page
from rgcn.pages.layout import _environment, parts, render

TEMPLATES = sorted(path.name for path in (resources.files("rgcn.pages") / "templates").iterdir())
HOSTILE = "<script>alert('1')</script> \"&\x00"


@pytest.mark.parametrize("name", [name for name in TEMPLATES if not name.endswith((".css", ".js"))])
def test_every_template_compiles_and_escapes(name):
    template = _environment().get_template(name)
    assert template.environment.autoescape(name) == (not name.endswith(".md"))


def test_no_template_of_a_page_marks_values_as_safe():
    for name in TEMPLATES:
        if name.endswith((".html", ".svg")):
            text = (resources.files("rgcn.pages") / "templates" / name).read_text(encoding="utf-8")
            assert re.findall(r"(?<!\")\|\s*safe\b|autoescape", text) == [], name


def test_values_are_escaped_unless_they_are_markup():
    section = PageSection(HOSTILE, HOSTILE, HOSTILE)
    text = page(HOSTILE, PageParts([section] * 3, [Tile(HOSTILE, HOSTILE, HOSTILE)], HOSTILE), footer=HOSTILE)
    assert text.count("<script>") == 1  # the page's own
    assert text.count("&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt; &#34;&amp;\ufffd") == 19
    assert "\x00" not in text


def test_markup_is_not_escaped_again():
    content = PageParts([PageSection("One", Markup("<i>lead</i>"), Markup("<p>{}</p>").format(HOSTILE))])
    text = page("A page", content)
    assert "<i>lead</i>" in text
    assert "<p>&lt;script&gt;" in text


def test_a_value_that_is_missing_is_an_error():
    with pytest.raises(UndefinedError, match="'message' is undefined"):
        render("empty.html")
    with pytest.raises(UndefinedError, match="is undefined"):
        parts("comparison.html")
