"""One source for each lesson; everything else about notebooks is made from it.

notebooks/src/NN_name.py          what people write (the percent format)
          │  build
          ├─► notebooks/NN_name.ipynb             for learners: no solutions, no outputs
          │        │  update
          │        └─► work/NN_name.ipynb         a learner's own copy, never overwritten
          └─► notebooks/solutions/NN_name.ipynb   solved and executed: what nbval compares

source.py   reads a source as a Lesson (lesson.py), refuses a malformed one, gives ids to its cells
copies.py   makes the two notebooks out of a Lesson
execute.py  runs a solved notebook, and cleans its outputs
build.py    the command, and what --check compares
wheel.py    makes the library's wheel, to lie beside notebooks that are handed out
update.py   carries a learner's answers into a newer lesson
"""
