"""Formulas on the site as MathML, which browsers draw by themselves: no script, no font to fetch.

A Sphinx extension; ``make_site.py`` names it. The formulas are written as LaTeX in the lessons.
"""

from __future__ import annotations

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator


def write_inline(page: HTML5Translator, node: nodes.math) -> None:
    page.body.append(convert(node.astext()))
    raise nodes.SkipNode


def write_display(page: HTML5Translator, node: nodes.math_block) -> None:
    page.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def setup(site: Sphinx) -> dict[str, bool]:
    site.add_html_math_renderer("mathml", (write_inline, None), (write_display, None))
    return {"parallel_read_safe": True}
