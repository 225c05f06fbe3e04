"""One source for each lesson; everything else about notebooks is made from it.

notebooks/src/NN_name.py          what people write (the percent format)
          │  build
          ├─► notebooks/NN_name.ipynb             for learners: no solutions, no outputs
          │        └ ─ ─ work/NN_name.ipynb       a learner's own copy: course_check/copies makes it
          ├─► notebooks/solutions/NN_name.ipynb   solved and executed: what nbval compares
          └─► notebooks/manifest.json             what each exercise is worth: ../manifest.py

source.py   reads a source as a Lesson (lesson.py), refuses a malformed one, gives ids to its cells
copies.py   makes the two notebooks out of a Lesson
execute.py  runs a solved notebook, and cleans its outputs
build.py    makes the notebooks, and what --check compares; the command, ../manifest.py, calls it
release.py  makes the folder for students, and wheel.py the wheel that lies beside its notebooks
"""
