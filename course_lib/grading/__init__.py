"""From submitted notebooks to marks. For instructors: README.md says how, and what to rely on.

    SUBMISSION.ipynb
      │ answers     text by exercise; nothing of it runs           answers.py
      │ transplant  into the pristine lesson, as strings           transplant.py
      ▼
    pytest --nbval  check cells only, in the judge's kernel        plugin.py, cells.py
      │ judge       cases, expected values, verdict                judge.py, namespace.py
      │ carrier     the only network between the ranks             carrier.py, parcels.py
      │ runner      one process a rank, behind walls               runner.py, zygote.py, walls.py
      ▼                                                        rank.py, far.py, plain.py, frames.py
    records ── marks ──► CSV, JUnit, Gradescope, feedback          marks.py, report.py, feedback.py

manifest.py and policy.py say what is worth how much, release.py makes the folder for students,
grade.py is the command.
"""
