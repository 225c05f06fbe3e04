"""python -m course_lib build: from each source a learner's notebook and a solved, executed one.

``--check`` makes both again, byte for byte, and runs nothing: the solved notebook with the outputs
that are stored, which a hash of code and text, pictures aside, ties to the execution that they came
of. Whether new outputs would be the same is nbval's question. ``build`` runs a lesson again only if
its code has changed. If only prose has, the stored outputs stay.
"""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course_check.copies.folders import Folders, LessonError, replace_file
from course_check.copies.notebook import fingerprint, to_text
from course_staff.authoring.copies import learner_copy, solved_copy
from course_staff.authoring.execute import execute, read_rules, tidy
from course_staff.authoring.lesson import Lesson
from course_staff.authoring.source import parse_lesson, read_lesson, with_ids

LARGEST = 300_000  # bytes of a solved notebook


def main(args: Namespace) -> int:
    """Exit code 0 where all is well, 1 where something drifted or a lesson could not be built."""
    folders = Folders.found()
    sources = chosen(folders, args.lessons)
    wrong: list[str] = []
    for source in sources:
        try:
            if args.check:
                wrong += drift(source, folders)
            else:
                build(source, folders, force=args.force)
        except LessonError as error:
            wrong.append(str(error))
    wrong += [] if args.lessons else strangers(folders)
    for line in wrong:
        print(line, file=sys.stderr)
    if args.check and not wrong:
        print(f"no drift in {len(sources)} lesson{'s' * (len(sources) != 1)}")
    return int(bool(wrong))


def chosen(folders: Folders, names: list[str]) -> list[Path]:
    """The sources called ``names``, by number or by name; all of them where none is given."""
    sources = sorted(folders.sources.glob("[0-9][0-9]_*.py"))
    by_name = {
        key: path
        for path in sources
        for key in (path.stem, path.stem[:2], str(int(path.stem[:2])), str(path))
    }
    for name in names:
        if name not in by_name:
            known = ", ".join(path.stem for path in sources) or "there is none"
            raise LessonError(f"no lesson {name!r} in notebooks/src: {known}")
    return list(dict.fromkeys(by_name[name] for name in names)) if names else sources


def build(source: Path, folders: Folders, *, force: bool = False) -> None:
    """Give ids, write the learner's notebook, and execute the solved one where it is stale."""
    text = with_ids(source.read_text(encoding="utf-8"), source.stem)
    lesson = parse_lesson(text, source.stem, folders.root)
    replace_file(source, text)
    (learner, copy), (solved, stored) = _wanted(lesson, folders)
    wrote = replace_file(learner, copy)
    if not force and stored is not None and _seal_of(solved.read_text("utf-8")) == _seal_of(stored):
        wrote |= replace_file(solved, stored)  # only prose has changed
        print(f"{lesson.name}: {'copies written' if wrote else 'up to date'}")
        return
    start = time.monotonic()
    notebook = solved_copy(lesson)
    execute(notebook, folders.root)
    tidy(notebook, read_rules(folders.rules))
    text = _sealed(notebook)
    if (size := len(text.encode())) > LARGEST:
        raise LessonError(f"{lesson.name}: {size // 1000} KB, and {LARGEST // 1000} are allowed")
    replace_file(solved, text)
    print(f"{lesson.name}: executed in {time.monotonic() - start:.1f} s, {size // 1000} KB")


def drift(source: Path, folders: Folders) -> list[str]:
    """One line for each notebook that is not what its source makes."""
    lesson = read_lesson(source)
    way = f"is not what its source makes; run: python -m course_lib build {lesson.name[:2]}"
    wanted = _wanted(lesson, folders)
    return [
        f"{path.relative_to(folders.root)} {way}" for path, text in wanted if not _is(path, text)
    ]


def strangers(folders: Folders) -> Iterator[str]:
    """Notebooks that no source stands behind."""
    known = {path.stem for path in chosen(folders, [])}
    for path in (*folders.learner.glob("*.ipynb"), *folders.solutions.glob("*.ipynb")):
        if path.stem not in known:
            yield f"{path.relative_to(folders.root)} has no source: delete it"


def _wanted(lesson: Lesson, folders: Folders) -> tuple[tuple[Path, str], tuple[Path, str | None]]:
    """Both notebooks' files and what is to be in them, None where a lesson has to be executed."""
    file = f"{lesson.name}.ipynb"
    learner, solved = folders.learner / file, folders.solutions / file
    stored = _with_stored_outputs(lesson, solved)
    return (learner, to_text(learner_copy(lesson))), (solved, stored)


def _is(path: Path, text: str | None) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


def _with_stored_outputs(lesson: Lesson, path: Path) -> str | None:
    """The solved notebook as it was written, if what is stored in ``path`` are its outputs."""
    notebook = solved_copy(lesson)
    try:
        stored = {cell.id: cell for cell in nbformat.read(path, as_version=4).cells}
        for number, cell in enumerate((c for c in notebook.cells if c.cell_type == "code"), 1):
            cell.outputs, cell.execution_count = stored[cell.id].outputs, number
        return _sealed(notebook)
    except (OSError, ValueError, LookupError, AttributeError, nbformat.ValidationError):
        return None  # no notebook, or another one


def _sealed(notebook: NotebookNode) -> str:
    """The file's text, with a hash of every code cell and of the text that came of it."""
    facts = [
        [cell.id, cell.source, [_text(output) for output in cell.outputs]]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]
    notebook.metadata["course"]["executed"] = fingerprint(json.dumps(facts), 32)
    return to_text(notebook)


def _seal_of(text: str) -> str | None:
    """The seal in a solved notebook's text: it ties the outputs to the code that they came from."""
    return json.loads(text)["metadata"]["course"].get("executed")


def _text(output: NotebookNode) -> list:
    if output.output_type == "stream":
        return [output.name, output.text]
    pairs = sorted(output.data.items())
    return [[kind, value if kind.startswith("text/") else ""] for kind, value in pairs]
