"""From submitted notebooks to marks. For instructors: README.md says how, and what to rely on.

    SUBMISSION.ipynb
      │ answers     text by exercise; nothing of it runs           answers.py
      │ notebook    the lesson's checks, the answers as strings    notebook.py
      ▼
    pytest --nbval  check cells only, in the judge's kernel        plugin.py, notebook.py
      │ judge       cases, expected values, verdict                judge.py
      │ network     the only one between the ranks                 network.py, wire.py
      │ processes   one a rank, from a fork server of its own      processes.py
      │ rank        the answer; says what it calls                 rank.py, far.py
      │ walls       around each of them                            walls.py, seccomp.py
      ▼
    records ── marks ──► CSV, JUnit, Gradescope, feedback          marks.py, report.py, feedback.py

In this order: main, grade_all, _graded, answers.read, _run, notebook.write; in the kernel begin,
answer, grade, grade_answer, namespace, verdict_on, play_all, Stage, be_rank, Proxy.serve; in the
keeper's process main, in the rank's _be_rank, serve, _played, far.Channel, Asker; then
note_result, and marks.mark.

grade.py is the command. The release's manifest (../manifest.py) and the instructor's policy.py say
what is worth how much, students.py whose a submission is, evidence.py what a play shows.
"""
