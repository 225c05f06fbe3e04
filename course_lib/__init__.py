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

# Everything public, by the module that has it, here or in a package that uses this one: the first
# of the three arrows that point upward (CONTRIBUTING.md). Each module is imported when one of its
# names is first used, so that ``import course_lib`` brings no matplotlib and no torchvision, and
# ``python -m course_lib doctor`` can say what is wrong with a torch that does not import.
_PUBLIC = {
    "course_exercises.catalogue": ("check",),
    "course_lib.context": ("compute", "device", "span"),
    "course_lib.data": ("load_digits",),
    "course_lib.draw": ("draw",),
    "course_lib.errors": (
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
    "course_lib.launching": ("run",),
    "course_lib.trace": ("Event", "Run", "Span", "Trace"),
    "course_sim": ("GPU", "Network", "simulate"),
    "course_tools.count_memory": ("count_memory",),
    "course_tools.gradient_comparison": ("compare_gradients", "gradients"),
}
_HOME = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'course_lib' has no attribute {name!r}")
    if problem := old_python():
        raise ImportError(problem)
    module = importlib.import_module(_HOME[name])
    return module if name == "draw" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
