"""Ranks that wait for what can never come.

A call is *stuck* when its counterpart has not been issued. That alone is no error: the counterpart
may be on its way. It is one when those that would have to issue it are stuck themselves, or have
left. So: start from all ranks that are stuck, and strike out whoever could still be freed by a
rank that runs. Those who remain wait for one another for ever.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from course_lib import explain
from course_lib.errors import CourseError, Wait
from course_lib.ranks.matching import CallMatcher
from course_lib.trace import Event, Line


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


def explained(
    blocked: Mapping[int, Event],
    lines: Mapping[int, Line | None],
    lost: Mapping[int, tuple[int, ...]],
    left: Collection[int],
    world_size: int,
) -> CourseError:
    """The error for a standstill: a Mismatch if two calls nearly met, else a Deadlock."""
    events = {r: blocked[r] for r in sorted(lost)}
    if found := _near_miss(events, left, lost):
        return found
    waits = [
        Wait(r, explain.call_text(e), lines.get(r) or e.line, lost[r], e.group)
        for r, e in events.items()
    ]
    return explain.deadlock(waits, left, world_size)


def _near_miss(
    events: Mapping[int, Event], left: Collection[int], lost: Mapping[int, tuple[int, ...]]
) -> CourseError | None:
    """Two calls that were meant for each other and differ in one word."""
    for a in events.values():
        for b in (events[r] for r in lost[a.rank] if r in events):
            if a.rank not in lost[b.rank]:
                continue
            pair = {a.op, b.op} == {"send", "recv"}
            if pair and a.group == b.group and a.tag != b.tag:
                return explain.tags_differ(a, b)
            if (pair or (a.op == b.op and a.is_collective)) and a.group != b.group:
                return explain.groups_differ(a, b)
    for send in (e for e in events.values() if e.is_send):
        recv = events.get(send.peer if send.peer is not None else -1)
        if recv is not None and recv.is_recv and recv.peer in left:
            return explain.peers_differ(send, recv)
    return None
