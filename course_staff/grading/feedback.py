"""What a student gets: a page of HTML, complete in itself, and the same as Gradescope reads it.

It is made from the student's copy of the marks (``marks.seen``), and tells what ``check`` would in
its words: the levels, the case where it is one of those that learners see, the hint, and pictures
of the case. No input and no expected value of a hidden case is on it, and no traceback.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from course_staff.grading.marks import Mark, Marked, percent
from course_staff.manifest import Manifest

_PAGE = Template(Path(__file__).with_name("templates").joinpath("feedback.html").read_text())


def page(copy: Marked, manifest: Manifest) -> str:
    """The whole page."""
    title = escape(f"{_lesson(copy.lesson)}{_points(copy, copy)}")
    facts = [whose(copy)]
    facts += [f"handed in on {copy.submitted:%d %B %Y}"] if copy.submitted else []
    facts += [f"release {manifest.release} of the course"] if copy.lesson else []
    body = f"<p>{escape(', '.join(facts))}</p>\n"
    body += "<br>\n".join(escape(sentence(text)) for text in notes(copy) + onward(copy, manifest))
    for mark in copy.marks:
        body += f"\n<h2>{escape(heading(copy, mark))}</h2>\n<pre>{escape(told(mark))}</pre>"
        for picture in mark.record.get("pictures", []):
            words = escape(picture["words"], quote=True)
            png = escape(picture["png"])
            body += f'\n<img alt="{words}" src="data:image/png;base64,{png}">'
    return _PAGE.substitute(title=title, body=body)


def whose(copy: Marked) -> str:
    """The student's name, where a roster has one; else what the file is called."""
    return (copy.student.name if copy.student else "") or copy.name


def _lesson(name: str) -> str:
    """``00_hello_ranks`` as a reader would say it."""
    return f"Lesson {name[:2]}, {name[3:].replace('_', ' ')}" if name else "A submission"


def onward(copy: Marked, manifest: Manifest) -> list[str]:
    """What is open, or a word for a pass and the lesson that comes next; as far as it is shown."""
    asked = [mark for mark in copy.marks if mark.counts == "full"]
    known = all("passed" in mark.record or mark.reason for mark in asked)
    if not asked or not known or copy.trouble or copy.core_alone or copy.shows == "nothing":
        return []
    if failed := [f"{mark.number} {mark.exercise}" for mark in asked if not mark.passed]:
        return [
            f"still open: {', '.join(failed)}; change the answer in its own cell, and run its "
            "check before you hand in again"
        ]
    later = [name for name in sorted(manifest.lessons) if name > copy.lesson]
    after = [f"{_lesson(later[0])}, comes next"] if later else []
    return ["everything that this lesson requires is right: well done", *after]


def gradescope(copy: Marked) -> str:
    """The results.json that Gradescope's autograders write."""
    tests = [
        {"name": f"{m.number} {m.exercise}".strip(), "number": m.number}
        | {"score": m.points, "max_score": m.worth}
        | {"status": "passed" if m.passed else "failed", "output": told(m)}
        for m in copy.marks
        if m.counts in ("full", "bonus") and copy.has_points
    ]
    said: dict[str, Any] = {"output": " ".join(map(sentence, notes(copy))), "tests": tests}
    said["visibility"] = "visible" if copy.has_points else "hidden"
    if not copy.trouble:  # without a score, it asks its instructor
        said["score"] = copy.points
    return json.dumps(said, indent=1)


def heading(copy: Marked, mark: Mark) -> str:
    """An exercise and what it has got, as much of that as is shown."""
    counts = {"full": "", "bonus": " (bonus)"}.get(mark.counts, " (does not count)")
    passed = ": not judged yet" if mark.trouble else ": passed" if mark.passed else ": not passed"
    got = _points(copy, mark) or passed
    return f"{mark.number} {mark.exercise}{got}{counts}"


def _points(copy: Marked, of: Mark | Marked) -> str:
    so_far = " so far" if copy.core_alone else ""
    share = f" ({percent(of.points / of.worth)})" if of.worth else ""
    return f": {of.points:g} of {of.worth:g}{share}{so_far}" if copy.has_points else ""


def told(mark: Mark) -> str:
    """What ``check`` says of an answer, or the marks alone, and what else there is to say."""
    rows = [
        f"  {name:<7}{level['points']:>3}   {level['state']}"
        for name, level in mark.record.get("levels", {}).items()
    ]
    earlier = mark.record.get("earlier_answers") == "reference"
    said = "it was judged with the course's answers to the earlier exercises" if earlier else ""
    more = [sentence(text) for text in (said, mark.reason, mark.note) if text]
    return "\n\n".join([*mark.record.get("told", ["\n".join(rows)]), *more]).lstrip("\n")


def notes(copy: Marked) -> list[str]:
    """About the whole submission."""
    said = [f"this file could not be graded: {copy.problem}" if copy.problem else "", copy.note]
    if copy.trouble:
        said.append(
            "not all of it could be judged, which is no fault of yours and costs you "
            "nothing: your instructor will grade it again"
        )
    if copy.shows == "nothing":
        said.append("marks and feedback come after the due date")
    elif copy.core_alone:
        said.append("this is about the level core; the others are shown after the due date")
    if copy.late and copy.submitted and copy.has_points:
        said.append(f"handed in on {copy.submitted:%d %B %Y at %H:%M} UTC, late: −{copy.late:.0%}")
    return [text for text in said if text]


def sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."
