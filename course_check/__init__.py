"""Check an answer to an exercise: whether it is right, how it was made, and which mistake it makes.

    verdict_on(exercise, answer)                                  checking.py, exercise.py
      │
      ├─ play     its cases, small ones first, elsewhere          cases.py, play.py
      ├─ judge    values, memory, rules on the trace              judge.py, compare.py, rules.py
      ├─ diagnose from all that was seen, never from the source   diagnose.py, usual_diagnoses.py
      └─ Verdict  a table, a case, a hint                         verdict.py, check_command.py

``docs/adding-an-exercise.md`` shows how to declare one.
"""
