"""Distributed training, taught by doing it: real ranks from any cell, and every message visible.

>>> import torch.distributed as dist
>>> from course_lib import run
>>> def hello():
...     print("I am rank", dist.get_rank())
>>> run(hello)
"""

import importlib
from typing import Any

from course_lib.versions import old_python

# Everything public, by the module that has it. Each is imported when it is first used, so that
# ``import course_lib`` brings no matplotlib and no torchvision, and ``python -m course_lib doctor``
# can say what is wrong with a torch that does not import.
_PUBLIC = {
    "beside.memory": ("count_memory",),
    "checks": ("check",),
    "context": ("compute", "device", "span"),
    "data": ("load_digits",),
    "draw": ("draw",),
    "errors": (
        "CheckFailed",
        "CourseError",
        "Deadlock",
        "Hang",
        "Hazard",
        "Mismatch",
        "RankDied",
        "RankFailed",
        "expect",
    ),
    "gradient_comparison": ("compare_gradients", "gradients"),
    "ranks": ("run",),
    "simulated": ("Network", "simulate"),
    "trace": ("Event", "Run", "Span", "Trace"),
}
_HOME = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'course_lib' has no attribute {name!r}")
    if problem := old_python():
        raise ImportError(problem)
    module = importlib.import_module(f"course_lib.{_HOME[name]}")
    return module if name == "draw" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
