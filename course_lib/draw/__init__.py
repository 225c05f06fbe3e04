"""Pictures of runs, each with a text twin: ``print(draw.timeline(run).words)``.

    timeline(run)     who did what when          values(run)    who has what
    traffic(run)      who sent how much          frames(run)    the same, step by step
    waits(error)      who waits for whom         bars, lines    measured numbers
    heat(rows)        numbers of any size, as colour
    areas(xs, rows)   which name holds where, and what was found there

Each returns a matplotlib Figure that a cell shows as its last expression, without pyplot. The
text twin, rank by rank, is what the notebook stores beside the image.
"""

from course_lib.draw.areas import areas
from course_lib.draw.charts import bars, lines
from course_lib.draw.graph import waits
from course_lib.draw.grid import frames, values
from course_lib.draw.heat import heat
from course_lib.draw.matrix import traffic
from course_lib.draw.spacetime import timeline
from course_lib.draw.style import (
    ALARM,
    COLLECTIVE,
    COMPUTE,
    RANKS,
    RECV,
    SEND,
    WAITING,
    Picture,
)

__all__ = [
    "ALARM", "COLLECTIVE", "COMPUTE", "RANKS", "RECV", "SEND", "WAITING", "Picture",
    "areas", "bars", "frames", "heat", "lines", "timeline", "traffic", "values", "waits",
]  # fmt: skip
