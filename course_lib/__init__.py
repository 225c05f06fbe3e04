"""Distributed training, taught by doing it: real ranks from any cell, and every message visible.

>>> import torch.distributed as dist
>>> from course_lib import run
>>> def hello():
...     print("I am rank", dist.get_rank())
>>> run(hello)
"""

import importlib
from typing import TYPE_CHECKING, Any

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
from course_lib.trace import Event, Run, Span, Trace

if TYPE_CHECKING:
    import course_lib.draw as draw
    from course_lib.checks import check
    from course_lib.context import compute, device, span
    from course_lib.data import load_digits, load_mnist
    from course_lib.ranks import run
    from course_lib.simulated import Network, simulate

# Imported when first used, so that ``import course_lib`` brings no matplotlib and no torchvision,
# and ``python -m course_lib doctor`` can say what is wrong with a torch that does not import.
_LATER = {
    "Network": "course_lib.simulated",
    "check": "course_lib.checks",
    "compute": "course_lib.context",
    "device": "course_lib.context",
    "draw": "course_lib.draw",
    "load_digits": "course_lib.data",
    "load_mnist": "course_lib.data",
    "run": "course_lib.ranks",
    "simulate": "course_lib.simulated",
    "span": "course_lib.context",
}

__all__ = [
    "CheckFailed",
    "CourseError",
    "Deadlock",
    "Event",
    "Hang",
    "Hazard",
    "Mismatch",
    "Network",
    "RankDied",
    "RankFailed",
    "Run",
    "Span",
    "Trace",
    "check",
    "compute",
    "device",
    "draw",
    "expect",
    "load_digits",
    "load_mnist",
    "run",
    "simulate",
    "span",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'course_lib' has no attribute {name!r}")
    module = importlib.import_module(_LATER[name])
    return module if name == "draw" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
