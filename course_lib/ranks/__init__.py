"""Real ranks: processes that start in milliseconds, are recorded, and never outlive their cell.

launcher    how a world starts, works and ends      (read this first)
forkserver  the process that ranks are forked from
worker      what happens inside a rank
recorder    writes down what a rank says            → log
history     reads it back as Events                 ← log
diagnosis   from how a world ended to the error that says why
interrupts  when an interrupt may come
job, parcel, wire, output                           what is asked, how it travels, what is printed
"""

from course_lib.ranks.launcher import run

__all__ = ["run"]
