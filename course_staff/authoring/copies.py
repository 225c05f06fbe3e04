"""The two notebooks of a Lesson: the learner's, and the solved one before it is executed.

Metadata of a cell in the learner's copy:

    given        a hash of the text as it was handed out: whoever differs from it was edited
    exercise, role, points, required, difficulty       on the cells of an exercise
    tags         raises-exception on the same cells: Run All goes on past what is not written yet

A solved copy has the same cells with the same ids, without ``given`` and that tag.

Links and pictures are written as seen from notebooks/src, which is as deep as notebooks/solutions;
learners' copies (notebooks/ and work/) lie one folder higher, and their links are shortened by one.

A notebook can stand alone, in a folder of its own on a machine without the course. Its first code
cell installs the library where it is missing: the wheel that lies beside it, if that is the one of
this version. It never asks a registry for a name that anybody may take there. Pictures are in the
learner's text, where Colab, too, finds them: it shows neither attachments nor files beside a
notebook. If pyproject.toml names a repository on GitHub, the cell takes the library from there
where no wheel is, at the tag of the version, as v0.1.0; and the learner's cover links to places
that open the notebook:

    [project.urls]
    Repository = "https://github.com/OWNER/NAME"
"""

from __future__ import annotations

import base64
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from course_check.copies.folders import replace_file
from course_check.copies.notebook import fingerprint, to_text
from course_lib.versions import OLDEST_PYTHON
from course_staff.authoring.lesson import Cell, Lesson

_LINK = re.compile(r"""(\]\(|\b(?:src|href)=["'])\.\./\.\./""")
_INSTALL = """\
#@title Installs the course's library where it is missing, as in Colab; does nothing elsewhere
import glob, importlib.util, subprocess, sys
wheel, address, beside = "{wheel}", "{address}", glob.glob("course_lib-*.whl")
absent = [name for name in "{needed}".split()
          if importlib.util.find_spec(name) is None]
if sys.version_info < {oldest}:
    print("The course needs Python {python} or later: choose another kernel")
elif importlib.util.find_spec("course_lib") is None:
    if wheel not in beside:
        print(", but ".join([f"{{wheel}} is not beside this notebook", *beside]) + ":",
              f"taking {{address}}" if address else "put it there, and run this cell again")
    pip = [sys.executable, "-m", "pip", "install", "-qq", wheel if wheel in beside else address]
    if pip[-1] and subprocess.run([*pip, "--no-index"], capture_output=True).returncode:
        print(f"pip fetches {{', '.join(absent) or 'newer versions'}}, which the library needs"
              + ": gigabytes" * ("torch" in absent))
        done = subprocess.run(pip, capture_output=True, text=True)
        print(done.stderr.partition("\\n")[0] if done.returncode else "installed")"""
_NAME = re.compile(r"^[\w-]+", re.M)
_WORDS_AND_TARGET = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
_PICTURE = re.compile(r"(?<=\]\()\.\./(figures/[\w.-]+\.png)(?=\))")
_GITHUB = re.compile(r"https://github\.com/([\w.-]+/[\w.-]+?)(?:\.git)?/?")


def learner_copy(lesson: Lesson) -> NotebookNode:
    notebook = solved_copy(lesson)
    cells = {cell.id: cell for cell in lesson.cells}
    for node in notebook.cells:
        cell = cells.get(node.id)
        if cell and cell.kind == "markdown":
            text = _LINK.sub(r"\1../", cell.text)
            node.source = with_pictures(text, lesson.root) if lesson.root else text
        if cell and cell.exercise:
            node.source = cell.stub
            node.metadata["tags"] = ["raises-exception"]
    if lesson.root:
        notebook.cells[0].source += badges(lesson.name, lesson.root)
    for node in notebook.cells:
        node.metadata["given"] = fingerprint(node.source)
    return notebook


def solved_copy(lesson: Lesson) -> NotebookNode:
    answers = {answer.exercise: answer for answer in lesson.answers}
    metadata = {
        "course": {"lesson": lesson.name},
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    cells = [_node(cell, answers.get(cell.exercise)) for cell in lesson.cells]
    if lesson.root:
        cells.insert(1, install_cell(lesson.name, lesson.root))
    return nbformat.v4.new_notebook(cells=cells, metadata=metadata)


def _node(cell: Cell, answer: Cell | None) -> NotebookNode:
    metadata: dict[str, Any] = {}
    if answer:
        metadata = {
            "exercise": cell.exercise,
            "role": cell.role,
            "points": answer.points,
            "required": answer.required,
            "difficulty": answer.difficulty,
        }
    make = nbformat.v4.new_code_cell if cell.kind == "code" else nbformat.v4.new_markdown_cell
    return make(cell.solved, id=cell.id, metadata=metadata)


def install_cell(lesson: str, root: Path) -> NotebookNode:
    """Folded in JupyterLab and in Colab, which show what it prints if it does print something."""
    where, version = _repository(root), version_of(root)
    source = _INSTALL.format(
        wheel=f"course_lib-{version}-py3-none-any.whl",
        address=f"git+https://github.com/{where}@v{version}" if where else "",
        needed=" ".join(_NAME.findall("\n".join(_project(root).get("dependencies", [])))),
        oldest=OLDEST_PYTHON,
        python=".".join(map(str, OLDEST_PYTHON)),
    )
    folded = {"jupyter": {"source_hidden": True}, "cellView": "form"}
    return nbformat.v4.new_code_cell(source, id=f"{lesson[:2]}-install", metadata=folded)


def badges(lesson: str, root: Path) -> str:
    """What is added to a cover: where else the notebook can be opened."""
    if not (where := _repository(root)):
        return ""
    colab = f"https://colab.research.google.com/github/{where}/blob/main/notebooks/{lesson}.ipynb"
    return f"\n\n[Open in Colab]({colab}) · [Open in Codespaces](https://codespaces.new/{where})"


def with_pictures(text: str, root: Path) -> str:
    """The text of a learner's cell, with the pictures that lie below ``root`` inside it."""

    def inside(found: re.Match[str]) -> str:
        picture = Path(root, found[1]).read_bytes()
        return f"data:image/png;base64,{base64.b64encode(picture).decode()}"

    return _PICTURE.sub(inside, text)


def with_living_links(text: str, target: Callable[[str], str | None]) -> str:
    """The text with each link leading where ``target`` says; None makes it plain words."""

    def kept(found: re.Match[str]) -> str:
        words, to = found[1], target(found[2])
        return f"[{words}]({to})" if to else words

    return _WORDS_AND_TARGET.sub(kept, text)


def drop_dead_links(file: Path) -> None:
    """Make words of what a page or a learner's notebook links to where that is not handed out."""

    def target(link: str) -> str | None:
        there = "://" in link or (file.parent / link.partition("#")[0]).exists()
        return link if there else None

    if file.suffix == ".md":
        replace_file(file, with_living_links(file.read_text(encoding="utf-8"), target))
        return
    notebook = nbformat.read(file, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = with_living_links(cell.source, target)
            cell.metadata["given"] = fingerprint(cell.source)
    replace_file(file, to_text(notebook))


def version_of(root: Path) -> str:
    """The library's; "0" in a course that has none."""
    return str(_project(root).get("version", "0"))


def _project(root: Path) -> dict[str, Any]:
    """What pyproject.toml says of the library; nothing, where there is none."""
    file = root / "pyproject.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))["project"] if file.exists() else {}


def _repository(root: Path) -> str:
    """OWNER/NAME of the course's repository on GitHub, or ""."""
    found = _GITHUB.fullmatch(_project(root).get("urls", {}).get("Repository", ""))
    return found[1] if found else ""
