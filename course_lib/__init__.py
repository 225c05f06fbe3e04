"""Distributed training, taught by doing it: real ranks from any cell, and every message visible.

>>> import torch.distributed as dist
>>> from course_lib import run
>>> def hello():
...     print("I am rank", dist.get_rank())
>>> run(hello)
"""

import importlib
from typing import Any

# Where each public name is defined. A module is imported when a name of it is first used, so that
# ``import course_lib`` brings no matplotlib and no torchvision, and ``python -m course_lib doctor``
# can say what is wrong with a torch that does not import.
_MODULES = {
    "CheckFailed": "errors",
    "CourseError": "errors",
    "Deadlock": "errors",
    "Event": "trace",
    "Hang": "errors",
    "Hazard": "errors",
    "Mismatch": "errors",
    "Network": "simulated",
    "RankDied": "errors",
    "RankFailed": "errors",
    "Run": "trace",
    "Span": "trace",
    "Trace": "trace",
    "check": "checks",
    "compute": "context",
    "device": "context",
    "draw": "draw",
    "expect": "errors",
    "load_digits": "data",
    "load_mnist": "data",
    "run": "ranks",
    "simulate": "simulated",
    "span": "context",
}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'course_lib' has no attribute {name!r}")
    module = importlib.import_module(f"course_lib.{_MODULES[name]}")
    return module if name == "draw" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
