"""python -m course_lib build: from each source a learner's notebook and a solved, executed one.

What ``--check`` compares, without running anything:

    learner's notebook    all of it, byte for byte
    solved notebook       ids, kinds, texts and metadata of its cells; that each was executed; and a
                          digest, stored when it was built, of its code and its text outputs
    pictures              never, and whether new outputs would be the same is nbval's question

A solved notebook that passes these is left alone by ``build``: only changed lessons are run again.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course_lib.notebooks.copies import learner_copy, solved_copy, to_text
from course_lib.notebooks.execute import execute
from course_lib.notebooks.folders import Folders, replace_file
from course_lib.notebooks.ids import with_ids
from course_lib.notebooks.lesson import Lesson, LessonError
from course_lib.notebooks.source import parse_lesson, read_lesson, read_text
from course_lib.notebooks.tidy import read_rules, tidy

LARGEST = 300_000  # bytes of a solved notebook


def main(args: Namespace) -> int:
    """Exit code 0 where all is well, 1 where something drifted or a lesson could not be built."""
    folders = Folders.found()
    sources = chosen(folders, args.lessons)
    failed = False
    for source in sources:
        try:
            if args.check:
                for line in drift(source, folders):
                    failed = True
                    print(line)
            else:
                build(source, folders, force=args.force)
        except LessonError as error:
            failed = True
            print(error, file=sys.stderr)
    if not args.lessons:
        for line in strangers(folders):
            failed = True
            print(line, file=sys.stderr)
    if args.check and not failed:
        print(f"no drift in {len(sources)} lesson{'s' * (len(sources) != 1)}")
    return int(failed)


def chosen(folders: Folders, names: list[str]) -> list[Path]:
    """The sources called ``names``, by number or by name; all of them where none is given."""
    sources = sorted(folders.sources.glob("*.py"))
    if not names:
        return sources
    by_name = {key: path for path in sources for key in (path.stem, path.stem[:2], str(path))}
    for name in names:
        if name not in by_name:
            known = ", ".join(path.stem for path in sources) or "there is none"
            raise LessonError(f"no lesson {name!r} in notebooks/src: {known}")
    return list(dict.fromkeys(by_name[name] for name in names))


def build(source: Path, folders: Folders, *, force: bool = False) -> None:
    """Give ids, write the learner's notebook, and execute the solved one where it is stale."""
    text = with_ids(read_text(source), source.stem)
    lesson = parse_lesson(text, source.stem)
    replace_file(source, text)
    learner, solved = _paths(lesson, folders)
    wrote = replace_file(learner, to_text(learner_copy(lesson)))
    if force or any(_solved_drift(lesson, solved)):
        start = time.monotonic()
        try:
            notebook = executed(lesson, folders)
        except LessonError as error:
            raise LessonError(f"{source.name}: {error}") from None
        replace_file(solved, notebook)
        seconds = time.monotonic() - start
        print(f"{lesson.name}: executed in {seconds:.1f} s, {len(notebook.encode()) // 1000} KB")
    else:
        print(f"{lesson.name}: {'learner copy written' if wrote else 'up to date'}")


def executed(lesson: Lesson, folders: Folders) -> str:
    """The solved notebook's text, with its outputs; LessonError where it is too large."""
    notebook = solved_copy(lesson)
    execute(notebook, folders.root)
    tidy(notebook, read_rules(folders.rules))
    notebook.metadata["course"]["executed"] = _digest(notebook)
    text = to_text(notebook)
    if (size := len(text.encode())) > LARGEST:
        sizes = {cell.id: len(json.dumps(cell)) // 1000 for cell in notebook.cells}
        worst = sorted(sizes, key=lambda id: -sizes[id])[:3]
        named = ", ".join(f"{id} {sizes[id]} KB" for id in worst)
        raise LessonError(f"{size // 1000} KB solved, {LARGEST // 1000} allowed; largest: {named}")
    return text


def drift(source: Path, folders: Folders) -> list[str]:
    """One line for each difference between the source and what was built from it."""
    lesson = read_lesson(source)
    learner, solved = _paths(lesson, folders)
    found = [*_learner_drift(lesson, learner), *_solved_drift(lesson, solved)]
    return [f"{line}; run: python -m course_lib build {lesson.name[:2]}" for line in found]


def strangers(folders: Folders) -> Iterator[str]:
    """Notebooks that no source stands behind."""
    known = {path.stem for path in folders.sources.glob("*.py")}
    for folder in (folders.learner, folders.solutions):
        for path in sorted(folder.glob("*.ipynb")):
            if path.stem not in known:
                place = path.relative_to(folders.root)
                yield f"{place}: no notebooks/src/{path.stem}.py stands behind it: delete it"


def _paths(lesson: Lesson, folders: Folders) -> tuple[Path, Path]:
    file = f"{lesson.name}.ipynb"
    return folders.learner / file, folders.solutions / file


def _learner_drift(lesson: Lesson, path: Path) -> Iterator[str]:
    wanted = learner_copy(lesson)
    if not path.exists():
        yield f"notebooks/{path.name} is missing"
    elif (text := path.read_text(encoding="utf-8")) != to_text(wanted):
        place = f"notebooks/{path.name}"
        found = list(_differences(wanted, text, place))
        yield from found or [f"{place} differs outside of its cells"]


def _solved_drift(lesson: Lesson, path: Path) -> Iterator[str]:
    place = f"notebooks/solutions/{path.name}"
    if not path.exists():
        yield f"{place} is missing"
        return
    text = path.read_text(encoding="utf-8")
    found = list(_differences(solved_copy(lesson), text, place))
    if found:
        yield from found
        return
    notebook = nbformat.reads(text, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code" and cell.source.strip() and cell.execution_count is None:
            yield f"{place}: cell {cell.id} was not executed"
            return
    if notebook.metadata["course"].get("executed") != _digest(notebook):
        yield f"{place}: outputs are not those that were executed"


def _differences(wanted: NotebookNode, text: str, place: str) -> Iterator[str]:
    """The first cell that is not as it should be, or what makes the file no notebook."""
    try:
        # Straight from JSON: nbformat.reads would mend ids before anyone could see them.
        stored = json.loads(text)
        cells = [_facts(cell) for cell in stored["cells"]]
        metadata = dict(stored["metadata"]["course"])
    except (ValueError, KeyError, TypeError):
        yield f"{place} is not a notebook of this course"
        return
    metadata.pop("executed", None)
    expected = [_facts(cell) for cell in wanted.cells]
    for ours, theirs in zip(expected, cells, strict=False):
        if ours != theirs:
            yield f"{place}: cell {ours['id']} differs from the source"
            return
    if len(cells) != len(expected):
        yield f"{place}: {len(cells)} cells, and the source has {len(expected)}"
    elif metadata != wanted.metadata["course"]:
        yield f"{place}: it says that it is {metadata}"


def _facts(cell: dict) -> dict:
    """What of a cell comes from the source."""
    source = cell["source"]
    text = source if isinstance(source, str) else "".join(source)
    return {
        "id": cell["id"],
        "kind": cell["cell_type"],
        "text": text,
        "metadata": cell["metadata"],
    }


def _digest(notebook: NotebookNode) -> str:
    """A hash of every code cell with the text, not the pictures, that came of it."""
    facts = [
        [cell.id, cell.source, [_text(output) for output in cell.outputs]]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def _text(output: NotebookNode) -> list:
    if output.output_type == "stream":
        return [output.name, output.text]
    if output.output_type == "error":
        return [output.ename, output.evalue]
    pairs = sorted(output.data.items())
    return [[kind, value if kind.startswith("text/") else ""] for kind, value in pairs]
