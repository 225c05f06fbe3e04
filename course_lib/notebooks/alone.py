"""What lets a notebook stand alone, in a folder of its own on a machine without the course.

Its first code cell installs the library where it is missing. The learner's copy has its pictures in
its text, where Colab, too, finds them: it shows neither attachments nor files beside a notebook.
And if pyproject.toml names a repository on GitHub, the cover links to places that open it there:

    [project.urls]
    Repository = "https://github.com/OWNER/NAME"
"""

from __future__ import annotations

import base64
import re
import tomllib
from pathlib import Path

import nbformat
from nbformat import NotebookNode

_INSTALL = """\
#@title Installs the course's library where it is missing, as in Colab; does nothing elsewhere
import importlib.util, subprocess, sys

if not importlib.util.find_spec("course_lib"):
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "{package}"], check=True)
    importlib.invalidate_caches()"""
_PICTURE = re.compile(r"(?<=\]\()\.\./(figures/[\w.-]+\.png)(?=\))")
_GITHUB = re.compile(r"https://github\.com/([\w.-]+/[\w.-]+?)(?:\.git)?/?")


def install_cell(lesson: str, root: Path) -> NotebookNode:
    """Folded in JupyterLab and in Colab, which show what it prints if it does print something."""
    where = _repository(root)
    package = f"course_lib @ git+https://github.com/{where}" if where else "course_lib"
    folded = {"jupyter": {"source_hidden": True}, "cellView": "form"}
    source = _INSTALL.format(package=package)
    return nbformat.v4.new_code_cell(source, id=f"{lesson[:2]}-install", metadata=folded)


def badges(lesson: str, root: Path) -> str:
    """What is added to a cover: where else the notebook can be opened."""
    if not (where := _repository(root)):
        return ""
    colab = f"https://colab.research.google.com/github/{where}/blob/main/notebooks/{lesson}.ipynb"
    return (f"\n\n[Open in Colab]({colab}) · "
            f"[Open in Codespaces](https://codespaces.new/{where})")  # fmt: skip


def with_pictures(text: str, root: Path) -> str:
    """The text of a learner's cell, with the pictures that lie below ``root`` inside it."""

    def inside(found: re.Match[str]) -> str:
        picture = Path(root, found[1]).read_bytes()
        return f"data:image/png;base64,{base64.b64encode(picture).decode()}"

    return _PICTURE.sub(inside, text)


def _repository(root: Path) -> str:
    """OWNER/NAME of the course's repository on GitHub, or ""."""
    file = root / "pyproject.toml"
    urls = tomllib.loads(file.read_text())["project"].get("urls", {}) if file.exists() else {}
    found = _GITHUB.fullmatch(urls.get("Repository", ""))
    return found[1] if found else ""
