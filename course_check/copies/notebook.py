"""Notebooks as text: the same bytes for the same notebook, and digits that stand for a cell."""

from __future__ import annotations

import hashlib

import nbformat
from nbformat import NotebookNode


def fingerprint(text: str, digits: int = 12) -> str:
    """Hexadecimal digits that stand for a text, white space at its end aside."""
    return hashlib.sha256(text.rstrip().encode()).hexdigest()[:digits]


def to_text(notebook: NotebookNode) -> str:
    """The file's content: the same bytes for the same notebook."""
    nbformat.validate(notebook)
    return nbformat.writes(notebook).rstrip("\n") + "\n"
