"""From submitted notebooks to marks. For instructors: README.md says how, and what to rely on.

    SUBMISSION.ipynb
      │ answers     text by exercise; nothing of it runs           answers.py
      │ notebook    the lesson's checks, the answers as strings    grading_notebook.py
      ▼
    pytest --nbval  check cells only, in the judge's kernel        plugin.py, grading_notebook.py
      │ judge       cases, expected values, verdict                carried_player.py
      │ network     the only one between the ranks                 proxies.py, wire.py
      │ processes   one a rank, from a fork server of its own      processes.py
      │ rank        the answer; says what it calls                 walled_rank.py, far.py
      │ walls       around each of them                            walls.py, seccomp.py
      ▼
    records ── marks ──► feedback, CSV, JUnit, Gradescope          marks.py, feedback.py, exports.py

Read in this order: grade.main, grade_all, _graded, answers.read, depends_on, _run and
grading_notebook.write; in the kernel begin, answer, grade and _judged, carried_player.grade_answer,
namespace, verdict_on, CarriedPlayer.play_all, Runner.slots, Stage, be_rank, Proxy.serve; in the
keeper's process walled_rank.main, in the rank's _be_rank, serve, _played, far.Channel, Asker; in
the kernel again note_result, judge and the record; then, in grade.py's process, marks.mark,
feedback.page and exports.write_all.

grade.py is the command. The release's manifest (../manifest.py) and the instructor's policy.py say
what is worth how much, students.py whose a submission is, evidence.py what a play shows,
load_factor.py by how much a busy machine stretches the limits of time.
"""
