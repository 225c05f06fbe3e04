"""What a run writes for instructors and their systems: CSV, JUnit, a summary, talks."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as xml

from course_check.copies.folders import replace_file
from course_staff.grading.marks import Mark, Marked, percent
from course_staff.grading.students import Student


def write_all(out: Path, results: list[Marked]) -> None:
    for name, rows in (("grades", grades), ("canvas", canvas), ("moodle", moodle)):
        replace_file(out / f"{name}.csv", _csv(rows(results)))
    replace_file(out / "junit.xml", junit(results))
    replace_file(out / "summary.txt", summary(results) + "\n")
    for marked in results:
        replace_file(out / "oral" / f"{marked.name}.md", oral(marked))


def grades(results: list[Marked]) -> list[dict[str, Any]]:
    """One row a submission: total, then points and diagnosis of every exercise. What this machine
    could not judge has no points, not even none."""
    rows = []
    for r in results:
        row = {
            "submission": r.name,
            "student": r.student.id if r.student else "",
            "lesson": r.lesson,
            "submitted": r.submitted.isoformat() if r.submitted else "",
            "late": r.late,
            "status": r.status,
            "points": "" if r.trouble else r.points,
            "of": r.worth,
            "problem": r.problem or r.trouble or r.note,
            "undefended": " ".join(r.undefended),
        }
        for m in r.marks:
            row |= {
                m.exercise: "" if m.trouble else m.points,
                f"{m.exercise} of": m.worth * (m.counts == "full"),
                f"{m.exercise} diagnosis": m.diagnosis,
                f"{m.exercise} reason": m.reason or m.trouble,
            }
        rows.append(row)
    return rows


def canvas(results: list[Marked]) -> list[dict[str, Any]]:
    """What Canvas's gradebook imports: a column a lesson; students are found by SIS User ID."""
    worth = {r.lesson: r.worth for r in results if r.lesson}
    rows = {Student(id="", name="    Points Possible"): worth} | _by_student(results)
    return [
        {"Student": s.name, "ID": "", "SIS User ID": s.id}
        | {"SIS Login ID": s.login, "Section": s.section}
        | points
        for s, points in rows.items()
    ]


def moodle(results: list[Marked]) -> list[dict[str, Any]]:
    """What Moodle's grade import maps: students by ID number or e-mail, a column a lesson."""
    return [
        {"ID number": s.id, "Email address": s.email} | points
        for s, points in _by_student(results).items()
    ]


def _by_student(results: list[Marked]) -> dict[Student, dict[str, Any]]:
    """Each student's points by lesson. Of several submissions of a lesson, the last counts. One
    that was not judged is an empty cell, which changes nothing in the LMS."""
    found: dict[Student, dict[str, Any]] = {}
    for marked in sorted(results, key=lambda r: r.submitted.timestamp() if r.submitted else 0):
        if marked.student and marked.lesson:
            points = "" if marked.trouble else marked.points
            found.setdefault(marked.student, {})[marked.lesson] = points
    return found


def _csv(rows: list[dict[str, Any]]) -> str:
    file = io.StringIO()
    columns = list(dict.fromkeys(k for row in rows for k in row))
    writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: _harmless(v) for k, v in row.items()} for row in rows)
    return file.getvalue()


def _harmless(cell: Any) -> str:
    """A cell's text, quoted if a spreadsheet would take it for a formula."""
    text = f"{cell:g}" if isinstance(cell, float) else str(cell)
    return "'" + text if text.startswith(tuple("=+-@\t\r")) else text


def junit(results: list[Marked]) -> str:
    """One suite a submission, one case an exercise, with its cell's id."""
    top = xml.Element("testsuites", name="course_lib grade")
    for marked in results:
        suite = xml.SubElement(top, "testsuite", name=marked.name)
        whole = Mark(marked.name, "", "", 0, "none", {}, marked.problem, marked.trouble)
        for m in marked.marks or [whole]:
            seconds = str(m.record.get("seconds", 0))
            said = {"classname": marked.lesson, "name": m.exercise, "time": seconds}
            case = xml.SubElement(suite, "testcase", said)
            properties = xml.SubElement(case, "properties")
            for name in ("cell", "exercise", "points", "worth"):
                xml.SubElement(properties, "property", name=name, value=str(getattr(m, name)))
            if not m.passed:
                why = m.trouble or m.diagnosis or m.reason or "not passed"
                outcome = "error" if m.trouble else "failure"
                outcome = "skipped" if m.counts == "skipped" else outcome
                xml.SubElement(case, outcome, message="".join(filter(str.isprintable, why)))
        suite.set("tests", str(len(suite)))
        for count, what in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            suite.set(count, str(len(suite.findall(f"*/{what}"))))
    return '<?xml version="1.0" encoding="utf-8"?>\n' + xml.tostring(top, encoding="unicode") + "\n"


def oral(marked: Marked) -> str:
    """The instructor's page for a talk: three questions an exercise, with what the trace says."""
    text = f"# {marked.name}\n\nFor the instructor. Ask about the answer, not about the topic.\n"
    for mark in marked.marks:
        text += f"\n## {mark.number} {mark.exercise}: {mark.points:g} of {mark.worth:g}\n"
        asked = mark.record.get("questions", [])
        why = mark.reason or mark.trouble or "no answer"
        text += "" if asked else f"\nNothing was played: {why}.\n"
        for number, q in enumerate(asked, 1):
            text += f"\n{number}. *{q['about']}.* {q['ask']}\n   - {q['trace']}\n"
    return text


def summary(results: list[Marked]) -> str:
    """How it went: by exercise the distribution, and the commonest diagnoses."""
    judged = [m for m in results if not m.problem and not m.trouble]
    lines = [f"{len(results)} submissions: {_distribution(judged)}"]
    for what, of in (
        ("not judged, by no fault of theirs", lambda m: m.trouble),
        ("not gradable", lambda m: m.problem and not m.trouble),
        ("of nobody in the roster", lambda m: m.student is None),
    ):
        names = [m.name for m in results if of(m)]
        more = f" and {len(names) - 10} more" if len(names) > 10 else ""
        lines += [f"{len(names)} {what}: {', '.join(names[:10])}{more}"] if names else []
    by_exercise: dict[str, list[Mark]] = {}
    for mark in (m for marked in results for m in marked.marks if not m.trouble):
        by_exercise.setdefault(f"{mark.number} {mark.exercise}", []).append(mark)
    for name, marks in sorted(by_exercise.items()):
        if marks[0].counts == "skipped":
            lines += ["", f"{name:<28} {marks[0].reason}"]
            continue
        lines += ["", f"{name:<28} {_distribution(marks)}"]
        why = Counter(m.diagnosis or m.reason or "not passed" for m in marks if not m.passed)
        lines += [f"    {count:>3} × {what}" for what, count in why.most_common(5)]
        lines += [f"        and {len(why) - 5} more, see grades.csv"] if len(why) > 5 else []
        tried = Counter(what for mark in marks for what in mark.record.get("tried", []))
        told = ", ".join(f"{what} ({count})" for what, count in tried.most_common(5))
        lines += [f"    reached for what it may not have: {told}"] if told else []
    if open_ := {k: v for m in results for k, v in m.undefended.items()}:
        could = "; ".join(open_.values())
        lines.append(f"UNDEFENDED here: {', '.join(open_)}. An answer could {could}.")
        lines.append("Do not rely on these marks against intent.")
    return "\n".join(lines)


def _distribution(of: Sequence[Mark | Marked]) -> str:
    shares = [m.points / m.worth if m.worth else 0.0 for m in of]
    if not shares:
        return "none could be read"
    full = sum(s >= 0.999 for s in shares)
    none = sum(s == 0 for s in shares)
    mean = percent(sum(shares) / len(shares), most=max(shares))
    return f"{full} full, {len(shares) - full - none} in part, {none} none; mean {mean}"
