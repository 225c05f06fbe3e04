"""Where each Event of a trace belongs in a space-time diagram, before anything is drawn.

collectives(trace)   which Events are one collective
boxes(trace)         each Event's place: when the other side was there (until then the call was
                     waiting), and how calls that overlap share their rank's lane
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from course_lib.collectives import collective
from course_lib.trace import Event, Trace

_TOP, _BOTTOM = -0.2, 0.38  # a lane's boxes, in lanes from its middle: names of spans go above
COMPUTING = (-0.41, -0.22)  # on a modelled GPU, the band of the stream that computes
_TOUCHING = 1e-9  # seconds: ends this close are one moment, and a float's last digits


class Box(NamedTuple):
    """An Event's place: times in seconds, heights in lanes."""

    event: Event
    left: float
    waited_until: float  # until the other side was there; ``left`` where it did not wait
    right: float | None
    top: float
    bottom: float


def collectives(trace: Trace) -> list[list[Event]]:
    """The Events of each collective: the k-th one of a group on every rank that came."""
    counts: Counter[tuple[str, int]] = Counter()
    calls: dict[tuple[str, int, str], list[Event]] = defaultdict(list)
    for event in trace.by_rank:
        if event.is_collective:
            calls[event.group, counts[event.group, event.rank], event.op].append(event)
            counts[event.group, event.rank] += 1
    return list(calls.values())


def boxes(trace: Trace) -> dict[int, Box]:
    """The Box of each Event, by the Event's ``id``."""
    ready, placed = _ready_times(trace), {}
    lanes: dict[int, list[Event]] = defaultdict(list)
    for event in sorted(trace.events, key=lambda e: (e.rank, e.issued, e.seq)):
        lanes[event.rank].append(event)
    for rank, events in lanes.items():
        for event, row, rows in _rows(events):
            top, bottom = _heights(event, row, rows)
            left, right, until = event.issued, event.completed, ready.get(id(event), event.issued)
            if right is None or not left < until <= right:  # over before the other side came
                until = left
            placed[id(event)] = Box(event, left, until, right, rank + top, rank + bottom)
    return placed


def _heights(event: Event, row: int, rows: int) -> tuple[float, float]:
    """Top and bottom of a box, in lanes from the lane's middle. A call in the stream that computes
    has its box in that stream's band; if nothing runs beside it, the box goes down to the bottom.
    """
    height = (_BOTTOM - _TOP) / rows
    top, bottom = _TOP + row * height, _TOP + (row + 1) * height
    if event.stream != "compute":
        return top, bottom
    return COMPUTING if rows > 1 else (COMPUTING[0], bottom)


def _ready_times(trace: Trace) -> dict[int, float]:
    """For each Event's id, the time at which those it depends on had called too."""
    ready = {}
    for message in trace.messages:
        if message.recv is not None:
            ready[id(message.send)] = message.recv.issued
            ready[id(message.recv)] = message.send.issued
    for call in collectives(trace):
        issued = {e.rank: e.issued for e in call}
        last = max(issued.values())
        for e in call:
            root = e.issued if e.peer is None else issued.get(e.peer, e.issued)
            # if the root gives, the others wait for the root alone
            ready[id(e)] = root if collective(e.op).root == "gives" else last
    return ready


def _rows(events: Iterable[Event]) -> Iterator[tuple[Event, int, int]]:
    """Share a lane among the calls that are under way together: each one's row, of how many.

    A call without a known end counts as over at once: an overlap is drawn only where it is known.
    """
    bunch: list[tuple[Event, int]] = []
    ends: list[float] = []  # of each row, when its last call ends
    for event in events:
        free = [row for row, end in enumerate(ends) if end <= event.issued + _TOUCHING]
        if len(free) == len(ends):
            yield from ((e, row, len(ends)) for e, row in bunch)
            bunch, ends, free = [], [], []
        row = free[0] if free else len(ends)
        ends[row : row + 1] = [event.issued if event.completed is None else event.completed]
        bunch.append((event, row))
    yield from ((e, row, len(ends)) for e, row in bunch)
