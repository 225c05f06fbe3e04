"""Ranks that wait for what can never come.

A call is *stuck* when its counterpart has not been issued. That alone is no error: the counterpart
may be on its way. It is one when those that would have to issue it are stuck themselves, or have
left. So: start from all ranks that are stuck, and strike out whoever could still be freed by a
rank that runs. Those who remain wait for one another for ever.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from course_lib.ranks.matching import CallMatcher
from course_lib.trace import Event


def stuck_for_ever(
    matcher: CallMatcher, blocked: Mapping[int, Event], left: Collection[int]
) -> dict[int, tuple[int, ...]]:
    """rank → the ranks that it waits for in vain, for every rank that nobody can free any more.

    ``blocked`` has the call that each blocked rank stands in, ``left`` the ranks that returned.
    """
    waiting = {r: on for r, event in blocked.items() if (on := matcher.missing(event))}
    while True:
        lost = set(waiting) | set(left)
        freed = [r for r, on in waiting.items() if not _in_vain(blocked[r], on, lost)]
        if not freed:
            return {r: tuple(x for x in on if x in lost) for r, on in waiting.items()}
        for rank in freed:
            del waiting[rank]


def _in_vain(event: Event, on: Collection[int], lost: Collection[int]) -> bool:
    """A collective needs all its members, a receive from any source only one of them."""
    hopeless = [r for r in on if r in lost]
    return len(hopeless) == len(on) if event.is_recv else bool(hopeless)
