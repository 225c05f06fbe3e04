"""One page of HTML for each submission, complete in itself: for the student.

It shows what ``check`` would: levels, the diagnosis, its hint, the case where that is one of those
that learners see, and pictures of it. No input and no expected value of a hidden case is on it, no
traceback, and nothing that the answer has printed.
"""

from __future__ import annotations

from html import escape
from typing import Any

from course_lib.grading.manifest import Manifest
from course_lib.grading.marks import Mark, Marked
from course_lib.grading.report import CARRIED, undefended

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem;
       color: #1b1b1b; background: #fff; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; } td, th { padding: .2rem .8rem .2rem 0; text-align: left; }
.hint { border-left: 4px solid #0072b2; padding-left: .8rem; }
.note { color: #555; } img { max-width: 100%; }
"""


def page(marked: Marked, manifest: Manifest) -> str:
    """The whole page."""
    title = f"{marked.name}: {marked.points:g} of {marked.worth:g}"
    parts = [f"<h1>{escape(title)}</h1>"]
    said = f"Lesson {marked.lesson}, release {manifest.release}." if marked.lesson else ""
    parts.append(f'<p class="note">{escape(said)}</p>')
    if marked.note:
        parts.append(f"<p>{_sentence(marked.note)}</p>")
    if marked.problem:
        parts.append(f"<p>This file could not be graded: {escape(marked.problem)}.</p>")
    parts += [_exercise(mark) for mark in marked.marks]
    parts.append(f'<p class="note">{escape(CARRIED)} {escape(undefended(marked))}</p>')
    body = "\n".join(parts)
    return (f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head>"
            f"<body>\n{body}\n</body></html>\n")  # fmt: skip


def _exercise(mark: Mark) -> str:
    counts = {"bonus": " (bonus)", "none": " (does not count)"}.get(mark.counts, "")
    head = f"{mark.number} {mark.exercise}: {mark.points:g} of {mark.worth:g}{counts}"
    parts = [f"<h2>{escape(head)}</h2>"]
    record = mark.record
    if record.get("levels") and record.get("written"):
        parts.append(_levels(record["levels"]))
    if record.get("hint") and record.get("written"):
        parts.append(f'<p class="hint">{escape(record["hint"])}</p>')
    if record.get("case"):
        parts.append(f"<p>The smallest case that fails: {escape(record['case'])}. "
                     "<code>check</code> in your notebook shows it in full.</p>")  # fmt: skip
    for text in (_earlier(record), mark.reason, mark.note):
        if text:
            parts.append(f'<p class="note">{_sentence(text)}</p>')
    for picture in record.get("pictures", []):
        parts.append(f'<p><img alt="{escape(picture["words"], quote=True)}" '
                     f'src="data:image/png;base64,{escape(picture["png"])}"></p>')  # fmt: skip
    return "\n".join(parts)


def _levels(levels: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{level['points']} of {level['worth']}</td>"
        f"<td>{escape(level['state'])}</td><td>{escape(level['diagnosis'] or '')}</td></tr>"
        for name, level in levels.items()
    )
    head = "".join(f"<th>{word}</th>" for word in ("level", "percent", "result", "diagnosis"))
    return f"<table><tr>{head}</tr>{rows}</table>"


def _sentence(text: str) -> str:
    return escape(f"{text[:1].upper()}{text[1:]}.")


def _earlier(record: dict[str, Any]) -> str:
    if record.get("earlier_answers") == "reference":
        return "It was judged with the course's answers to the earlier exercises"
    return ""
