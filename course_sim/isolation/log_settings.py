"""Python's logging in simulated ranks: levels and handlers of each rank's own.

A logger belongs to the whole process. While a simulation runs, those of its attributes that
programs set are looked up for the rank that asks; what a rank sets is gone with it.
"""

from __future__ import annotations

import logging
from typing import Any

from course_lib.terminal import handler_for_rank
from course_sim.rank import current

_OWN = {
    logging.Logger: ("level", "handlers", "filters", "propagate", "disabled", "_cache"),
    logging.Manager: ("_disable",),
}


def _first_value(owner: Any, name: str) -> Any:
    """What a rank finds when it first looks at an attribute of a logger."""
    value = vars(owner)[name]
    if name == "_cache":
        return {}
    if name == "handlers":
        kept = [h for h in value if owner is not logging.root or _is_pythons(h)]
        return [handler_for_rank(handler) or handler for handler in kept]
    return list(value) if isinstance(value, list) else value


def _is_pythons(handler: logging.Handler) -> bool:
    """Whether its class is one of Python's: a front end's or a test runner's at the root would make
    a rank believe that a program has set up logging.
    """
    return type(handler).__module__.partition(".")[0] == "logging"


class _RanksOwn:
    """An attribute of which each rank has its own; others find it where it always is."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, original: Any) -> _RanksOwn:
        return self  # is what stands in its place

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        rank = current()
        if rank is None or owner is None:
            return vars(owner)[self._name]
        key = id(owner), self._name
        if key not in rank.logging:
            rank.logging[key] = _first_value(owner, self._name)
        return rank.logging[key]

    def __set__(self, owner: Any, value: Any) -> None:
        rank = current()
        if rank is not None and self._name in vars(owner):
            rank.logging[id(owner), self._name] = value
        else:  # also of a logger that a rank has just made, which stays
            vars(owner)[self._name] = value


# owner, name and replacement, as private.py puts them in place
PATCHES = [(kind, name, _RanksOwn(name)) for kind, own in _OWN.items() for name in own]
