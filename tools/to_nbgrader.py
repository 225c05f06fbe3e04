"""Put the marks of a grading into nbgrader's gradebook; run it with the Python that has nbgrader:

    python tools/to_nbgrader.py marks/grades.csv sqlite:///gradebook.db

A lesson is an assignment of one notebook, an exercise a cell of it. Lateness has been taken off.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from nbgrader.api import Gradebook


def put(row: dict[str, str], book: Gradebook) -> None:
    """One submission of one student."""
    lesson, student = row["lesson"], row["student"]
    exercises = [name[:-3] for name in row if name.endswith(" of") and row[name]]
    book.update_or_create_assignment(lesson)
    book.update_or_create_notebook(lesson, lesson)
    for name in exercises:
        worth = float(row[f"{name} of"])
        book.update_or_create_grade_cell(name, lesson, lesson, cell_type="code", max_score=worth)
    book.update_or_create_student(student)
    if student in [s.student.id for s in book.assignment_submissions(lesson)]:
        book.remove_submission(lesson, student)  # its cells may be others than those of today
    book.add_submission(lesson, student, timestamp=row["submitted"])
    for name in exercises:
        grade = book.find_grade(name, lesson, lesson, student)
        judged = row[name] != ""
        grade.auto_score = float(row[name]) if judged else None
        grade.needs_manual_grade = not judged
    book.db.commit()


if __name__ == "__main__":
    with Gradebook(sys.argv[2]) as gradebook, Path(sys.argv[1]).open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["student"] and row["lesson"]]
        for one in sorted(rows, key=lambda row: row["submitted"]):  # the last one counts
            put(one, gradebook)
