"""Is the answer right, how was it made, and if it is wrong: which mistake is it?

    check(fn) ── find the exercise by the function's name         exercise.py
      │
      ├─ play     its cases, small ones first, elsewhere          cases.py, play.py
      ├─ judge    values, memory, rules on the trace              judge.py, compare.py, rules.py
      ├─ diagnose from all that was seen, never from the source   diagnose.py, usual_diagnoses.py
      └─ Verdict  a table, a case, a hint                         verdict.py, cli.py

``docs/adding-an-exercise.md`` shows how to declare one.
"""

from course_lib.checks.checking import check
from course_lib.checks.own_cells import watch
from course_lib.checks.verdict import Verdict

__all__ = ["Verdict", "check"]

watch()  # a lesson's first cell imports this: before any cell with an answer is run
