"""What a run writes for instructors and their systems: CSV, JUnit, Gradescope, a summary."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as xml

from course_lib.grading.manifest import Manifest
from course_lib.grading.marks import Mark, Marked
from course_lib.grading.policy import Policy
from course_lib.notebooks.folders import replace_file

CARRIED = ("Messages and bytes were counted by the judge, which carried them: a submission cannot "
           "forge them.")  # fmt: skip


def write_all(out: Path, results: list[Marked], manifest: Manifest, policy: Policy) -> None:
    replace_file(out / "grades.csv", grades(results, manifest))
    replace_file(out / "junit.xml", junit(results))
    replace_file(out / "summary.txt", summary(results) + "\n")
    for marked in results:
        replace_file(
            out / "results" / f"{marked.name}.json", json.dumps(gradescope(marked), indent=1)
        )
        replace_file(out / "oral" / f"{marked.name}.md", oral(marked))


def grades(results: list[Marked], manifest: Manifest) -> str:
    """One row a submission: total, then points and diagnosis of every exercise of the release."""
    names = [i.exercise for items in manifest.lessons.values() for i in items]
    names = [n for n in names if any(m.exercise == n for r in results for m in r.marks)]
    file = io.StringIO()
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(
        [
            "submission",
            "lesson",
            "points",
            "of",
            "problem",
            "undefended",
            *(f"{n}{what}" for n in names for what in ("", " diagnosis", " reason")),
        ]
    )
    for marked in results:
        mine = {m.exercise: m for m in marked.marks}
        cells: list[Any] = [
            marked.name,
            marked.lesson,
            f"{marked.points:g}",
            f"{marked.worth:g}",
            marked.problem or marked.trouble or marked.note,
            " ".join(marked.undefended),
        ]
        for name in names:
            mark = mine.get(name)
            cells += [f"{mark.points:g}", mark.diagnosis, mark.reason] if mark else ["", "", ""]
        rows.writerow([_harmless(c) for c in cells])
    return file.getvalue()


def _harmless(cell: Any) -> str:
    """A spreadsheet takes what begins so for a formula."""
    text = str(cell)
    return "'" + text if text.startswith(tuple("=+-@\t\r")) else text


def junit(results: list[Marked]) -> str:
    """One suite a submission, one case an exercise, with its cell's id."""
    top = xml.Element("testsuites", name="course_lib grade")
    for marked in results:
        suite = xml.SubElement(top, "testsuite", name=marked.name, skipped="0", errors="0")
        failures = 0
        for mark in marked.marks:
            seconds = str(mark.record.get("seconds", 0))
            case = xml.SubElement(suite, "testcase", classname=marked.lesson, name=mark.exercise,
                                  time=seconds)  # fmt: skip
            properties = xml.SubElement(case, "properties")
            for name, value in (
                ("cell", mark.cell),
                ("exercise", mark.exercise),
                ("points", f"{mark.points:g}"),
                ("worth", f"{mark.worth:g}"),
            ):
                xml.SubElement(properties, "property", name=name, value=value)
            if not mark.passed:
                failures += 1
                why = mark.diagnosis or mark.reason or "not passed"
                xml.SubElement(case, "failure", message=_printable(why))
        if marked.problem:
            failures += 1
            case = xml.SubElement(suite, "testcase", classname="submission", name=marked.name)
            xml.SubElement(case, "failure", message=_printable(marked.problem))
        suite.set("tests", str(len(marked.marks) or 1))
        suite.set("failures", str(failures))
    return '<?xml version="1.0" encoding="utf-8"?>\n' + xml.tostring(top, encoding="unicode") + "\n"


def _printable(text: str) -> str:
    return "".join(c for c in text if c.isprintable())


def gradescope(marked: Marked) -> dict[str, Any]:
    """The results.json that Gradescope's autograders write."""
    tests = [
        {"name": f"{m.number} {m.exercise}".strip(), "number": m.number, "score": m.points,
         "max_score": m.worth, "status": "passed" if m.passed else "failed",
         "output": outline(m), "visibility": "visible"}
        for m in marked.marks if m.counts != "none"
    ]  # fmt: skip
    said = marked.problem or marked.trouble or marked.note
    output = " ".join(filter(None, [said, undefended(marked), CARRIED]))
    return {"score": marked.points, "output": output, "visibility": "visible", "tests": tests}


def outline(mark: Mark) -> str:
    """What a student may read about one exercise, in lines: no inputs, no expected values."""
    record = mark.record
    lines = [f"{name}: {level['state']}, {level['points']} of {level['worth']}"
             + (f" ({level['diagnosis']})" if level["diagnosis"] else "")
             for name, level in record.get("levels", {}).items()]  # fmt: skip
    if record.get("hint"):
        lines.append(f"Hint: {record['hint']}")
    if record.get("case"):
        lines.append(f"The smallest case that fails: {record['case']}")
    if record.get("earlier_answers") == "reference":
        lines.append("Judged with the course's answers to the earlier exercises.")
    lines += [text for text in (mark.reason, mark.note) if text]
    return "\n".join(lines)


def undefended(marked: Marked) -> str:
    """What a system without walls has left open, for a report; empty where all walls stood."""
    if not marked.undefended:
        return ""
    what = "; ".join(marked.undefended.values())
    return (
        f"Undefended on this machine: an answer could {what}. "
        "Do not rely on these marks against intent."
    )


def oral(marked: Marked) -> str:
    """The instructor's page for a talk: three questions an exercise, with what the trace says."""
    lines = [
        f"# {marked.name}",
        "",
        "For the instructor. Ask about the answer, not about the topic.",
        "",
    ]
    for mark in marked.marks:
        lines += [f"## {mark.number} {mark.exercise}: {mark.points:g} of {mark.worth:g}", ""]
        asked = mark.record.get("questions", [])
        if not asked:
            lines += [f"Nothing was played: {mark.reason or 'no answer'}.", ""]
        for number, question in enumerate(asked, 1):
            lines += [f"{number}. *{question['about']}.* {question['ask']}",
                      f"   - {question['trace']}", ""]  # fmt: skip
    return "\n".join(lines)


def summary(results: list[Marked]) -> str:
    """How it went: by exercise the distribution, and the commonest diagnoses."""
    read = [m for m in results if not m.problem]
    shares = [m.points / m.worth if m.worth else 0.0 for m in read]
    lines = [f"{len(results)} submissions: {_distribution(shares)}" if read else
             f"{len(results)} submissions"]  # fmt: skip
    if problems := [m.name for m in results if m.problem]:
        more = f" and {len(problems) - 10} more" if len(problems) > 10 else ""
        lines.append(f"{len(problems)} not gradable: {', '.join(problems[:10])}{more}")
    lines.append("")
    by_exercise: dict[str, list[Mark]] = {}
    for marked in results:
        for mark in marked.marks:
            by_exercise.setdefault(f"{mark.number} {mark.exercise}", []).append(mark)
    for name, all_marks in sorted(by_exercise.items()):
        shares = [m.points / m.worth if m.worth else 0.0 for m in all_marks]
        lines.append(f"{name:<28} {_distribution(shares)}")
        why = Counter(m.diagnosis or m.reason or "" for m in all_marks if not m.passed)
        lines += [f"    {count:>3} × {what}" for what, count in why.most_common(5) if what]
        if rest := len([what for what in why if what]) - 5:
            lines += [f"        and {rest} more, see grades.csv"] if rest > 0 else []
    if open_ := {k: v for m in results for k, v in m.undefended.items()}:
        lines.append(
            f"UNDEFENDED here: {', '.join(open_)}. An answer could {'; '.join(open_.values())}."
        )
    return "\n".join(lines)


def _distribution(shares: list[float]) -> str:
    full, none = sum(s >= 0.999 for s in shares), sum(s == 0 for s in shares)
    mean = 100 * sum(shares) / len(shares)
    return f"{full} full, {len(shares) - full - none} in part, {none} none; mean {mean:.0f}%"
