"""Distributed training, taught by doing it: real ranks from any cell, and every message visible.

>>> import torch.distributed as dist
>>> from course_lib import run
>>> def hello():
...     print("I am rank", dist.get_rank())
>>> run(hello)
"""

from course_lib.context import compute, device, span
from course_lib.errors import (
    CheckFailed,
    CourseError,
    Deadlock,
    Hang,
    Hazard,
    Mismatch,
    RankDied,
    RankFailed,
    expect,
)
from course_lib.ranks import run
from course_lib.trace import Event, Run, Span, Trace

__all__ = [
    "CheckFailed",
    "CourseError",
    "Deadlock",
    "Event",
    "Hang",
    "Hazard",
    "Mismatch",
    "RankDied",
    "RankFailed",
    "Run",
    "Span",
    "Trace",
    "compute",
    "device",
    "expect",
    "run",
    "span",
]
