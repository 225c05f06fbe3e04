"""python -m course_lib release --lessons 00,01 --manifest FILE --out DIR

A folder to hand to students: the lessons without their solutions, the library without what grades,
and nothing else of this tree: no sources of lessons, no tests, no zoo, no history. Beside the
lessons lies a wheel of that library: their first cell installs it where one of them is opened
alone. The manifest goes to FILE, which stays with the instructor: it is what this release will be
graded by.
"""

from __future__ import annotations

import json
import re
import shutil
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from course_check.copies.folders import Folders, LessonError, replace_file
from course_lib.versions import FOR_LEARNERS
from course_staff import manifest
from course_staff.authoring.build import chosen, drift
from course_staff.authoring.copies import drop_dead_links, version_of
from course_staff.authoring.lesson import Lesson
from course_staff.authoring.source import read_lesson
from course_staff.authoring.wheel import make_wheel

LICENCES = ("LICENSE", "LICENSE-lessons", "CITATION.cff")
PLAIN = ("requirements.txt", "pyproject.toml", ".gitignore", *LICENCES)
TEMPLATES = Path(__file__).with_name("templates")
_NOTEBOOK = re.compile(r"\(([\w./-]+)\.ipynb\)")
_ASKED = r"dist\.get_(rank|world_size)\(\)"
_COMMON = re.compile(
    rf"(return|import|from) [\w., ]+|with torch\.no_grad\(\):|(dist\.)?\w+\(\w*\)"
    rf"|(\w+\.)+\w+\(\)|[\w, ]+ = \w+|[\w, ]+ = {_ASKED}(, {_ASKED})?"
)


def main(args: Namespace) -> int:
    folders = Folders.found()
    out, kept = Path(args.out), Path(args.manifest)
    if out.exists() and any(out.iterdir()):
        raise LessonError(f"{out} is not empty: a release is made into a new folder")
    sources = chosen(folders, [n.strip() for n in args.lessons.split(",") if n.strip()])
    for source in sources:
        if found := drift(source, folders):
            raise LessonError(f"nothing is released that has drifted: {found[0]}")
    lessons = [read_lesson(source) for source in sources]
    write(folders, lessons, out)
    if leaks := list(leaked(out, lessons)):
        raise LessonError(f"{leaks[0]}: a line of a solution; nothing may go out like this")
    version = version_of(folders.root)
    replace_file(kept, json.dumps(manifest.made_from(lessons, version), indent=1) + "\n")
    print(f"{out}: release {version}\n{kept}: keep this one, submissions are graded by it")
    return 0


def write(folders: Folders, lessons: list[Lesson], out: Path) -> None:
    """The folder, from nothing."""
    root = folders.root
    (out / "notebooks").mkdir(parents=True, exist_ok=True)
    for lesson in lessons:
        file = folders.learner / f"{lesson.name}.ipynb"
        shutil.copy(file, out / "notebooks" / file.name)
    for name in (name for name in PLAIN if (root / name).exists()):
        shutil.copy(root / name, out / name)
    numbers = [lesson.name[:2] for lesson in lessons]
    for package in FOR_LEARNERS:
        _package(root / package, out / package, numbers)
    for name in ("AGENTS.md", "Makefile"):
        shutil.copy(TEMPLATES / name, out / name)
    rows = "\n".join(f"- [{le.name[:2]} {le.title}](notebooks/{le.name}.ipynb)" for le in lessons)
    readme = (TEMPLATES / "README.md").read_text(encoding="utf-8")
    replace_file(out / "README.md", readme.format(numbers=", ".join(numbers), lessons=rows))
    whole = (folders.learner / "README.md").read_text(encoding="utf-8")
    replace_file(out / "notebooks" / "README.md", _handed_out(whole, lessons))
    for file in (*out.rglob("*.md"), *out.rglob("*.ipynb")):
        drop_dead_links(file)
    make_wheel(out, out / "notebooks")


def _handed_out(readme: str, lessons: list[Lesson]) -> str:
    """The lessons' README without the other lessons, and without the way to what solves."""
    names = {lesson.name for lesson in lessons}
    way, glossary = readme.split("## Words")
    kept = []
    for line in way.splitlines():
        if line.startswith("|"):
            line = line.rsplit("|", 2)[0] + "|"  # the last column leads to solutions
        if names.issuperset(_NOTEBOOK.findall(line)) and not line.startswith("`solutions/`"):
            kept.append(line)
    return "\n".join([*kept, f"## Words{glossary}"])


def _package(source: Path, target: Path, numbers: list[str]) -> None:
    """A package without what belongs to lessons that are not out yet."""
    unwanted = {"__pycache__"} if "06" in numbers else {"__pycache__", "jobs"}

    def left_out(folder: str, names: list[str]) -> set[str]:
        later = {n for n in names if n.startswith("lesson_") and n[7:9] not in numbers}
        return later | unwanted.intersection(names)

    shutil.copytree(source, target, ignore=left_out)


# ---- no line of a solution goes out --------------------------------------------------------------


def leaked(folder: Path, lessons: list[Lesson]) -> Iterator[str]:
    """Every place in ``folder`` that holds a line of a solution of these lessons, but for lines
    that the lessons show themselves."""
    shown = [c.text for le in lessons for c in le.cells if c.kind == "code" and c.role != "answer"]
    given = {_squeezed(line) for text in shown for line in text.splitlines()}
    secret = solution_lines(lessons) - given
    for file in sorted(folder.rglob("*")):
        for line in told_in(file, secret) if file.is_file() else ():
            yield f"{file.relative_to(folder)}: {line}"


def solution_lines(lessons: list[Lesson]) -> set[str]:
    """The lines of these lessons' solutions that say something by themselves."""
    lines = {line for lesson in lessons for a in lesson.answers for line in a.solution_lines}
    return {_squeezed(line) for line in lines if telling(line)}


def told_in(file: Path, lines: set[str]) -> list[str]:
    """Which of these lines the file holds, also within a longer line; of a notebook, its cells."""
    text = file.read_text(encoding="utf-8", errors="replace")
    if file.suffix == ".ipynb":
        text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
    text = _squeezed(text)
    return [line for line in sorted(lines) if line in text]


def _squeezed(line: str) -> str:
    return re.sub(r"\s+", " ", line.strip())


def telling(line: str) -> bool:
    """Whether a line says something by itself: ``return total`` may stand anywhere, and so may
    asking for the rank, ``a, b = pair``, a bare ``dist.all_reduce(x)`` or ``sgd.step()``."""
    return len(line) >= 16 and not _COMMON.fullmatch(line)
