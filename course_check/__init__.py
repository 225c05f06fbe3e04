"""Is the answer right, how was it made, and if it is wrong: which mistake is it?

    verdict_on(exercise, answer)                                  exercise.py, checking.py
      │
      ├─ play     its cases, small ones first, elsewhere          cases.py, play.py
      ├─ judge    values, memory, rules on the trace              judge.py, compare.py, rules.py
      ├─ diagnose from all that was seen, never from the source   diagnose.py, usual_diagnoses.py
      └─ Verdict  a table, a case, a hint                         verdict.py, cli.py

``docs/adding-an-exercise.md`` shows how to declare one.
"""
