"""Diagnosis: 01.all-at-once

Ranks are numbered, so surely they come in that order.
"""

from collections.abc import Callable


def in_order(work: Callable[[], None]) -> None:
    work()
