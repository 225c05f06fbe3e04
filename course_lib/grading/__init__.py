"""From submitted notebooks to marks. For instructors: README.md says how, and what to rely on.

    SUBMISSION.ipynb
      │ answers     text by exercise; nothing of it runs           answers.py
      │ transplant  into the pristine lesson, as strings           transplant.py
      ▼
    pytest --nbval  check cells only, in the judge's kernel        plugin.py, cells.py
      │ judge       cases, expected values, verdict                judge.py, namespace.py
      │ network     the only one between the ranks                 network.py, frames.py, plain.py
      │ processes   one a rank, from run()'s fork server           processes.py, keeper.py
      │ walls       around each of them                            walls.py, seccomp.py
      │ rank        the answer; says what it calls                 rank.py, far.py
      ▼
    records ── marks ──► CSV, JUnit, Gradescope, feedback          marks.py, report.py, feedback.py

manifest.py and policy.py say what is worth how much, release.py makes the folder for students,
grade.py is the command.
"""
