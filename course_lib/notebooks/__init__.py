"""One source for each lesson; everything else about notebooks is made from it.

notebooks/src/NN_name.py          what people write (jupytext's percent format)
          │  build
          ├─► notebooks/NN_name.ipynb             for learners: no solutions, no outputs
          │        │  update
          │        └─► work/NN_name.ipynb         a learner's own copy, never overwritten
          └─► notebooks/solutions/NN_name.ipynb   solved and executed: what nbval compares

ids.py      gives every cell of a source an id that it keeps
lesson.py   reads a source, and refuses a malformed one with its line
copies.py   makes the two notebooks out of a Lesson
execute.py  runs a solved notebook
tidy.py     takes out of outputs what belongs to one machine or one moment
build.py    the command, and what --check compares
update.py   carries a learner's answers into a newer lesson
"""
