"""Formulas as MathML, which browsers draw themselves: no script, no font and no network."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx


def _visit_inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(f'<span class="math">{convert(node.astext())}</span>')
    raise nodes.SkipNode


def _visit_block(writer: Any, node: nodes.math_block) -> None:
    identifier = f' id="{node["ids"][0]}"' if node.get("ids") else ""
    number = f'<span class="eqno">({node["number"]})</span>' if node.get("number") else ""
    formula = convert(node.astext(), display="block")
    writer.body.append(f'<div class="math"{identifier}>{number}{formula}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer: `html_math_renderer = "mathml"` selects it."""
    app.add_html_math_renderer("mathml", (_visit_inline, None), (_visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
