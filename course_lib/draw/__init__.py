"""Pictures of runs, each with a text twin: ``print(draw.timeline(run).words)``.

    timeline(run)     who did what when          values(run)    who has what
    traffic(run)      who sent how much          bars, lines    measured numbers
    waits(error)      who waits for whom         steps(run)     step by step, with a pause button
    mesh(run, shape)  who is in which group
    memory(run)       how many bytes of tensors were alive
    areas(xs, rows)   which name holds where, and what was found there

Each returns a matplotlib Figure that a cell shows as its last expression, without pyplot. The
text twin, rank by rank, is what the notebook stores beside the image.
"""

from course_lib.draw.charts import areas, bars, lines
from course_lib.draw.graph import waits
from course_lib.draw.grid import values
from course_lib.draw.matrix import traffic
from course_lib.draw.memory import memory
from course_lib.draw.mesh import mesh
from course_lib.draw.spacetime import timeline
from course_lib.draw.stepper import steps
from course_lib.draw.style import Picture

__all__ = [
    "Picture",
    "areas",
    "bars",
    "lines",
    "memory",
    "mesh",
    "steps",
    "timeline",
    "traffic",
    "values",
    "waits",
]
