"""What is written down of each call: what it is, whose line it comes from, and when it happened.

    Site     a place in somebody's code that calls
    op       what a call is: an Event without times         one for all messages that are alike
    Record   one call: its op, and its times                a thousand ranks make millions of them

A Record becomes an Event when somebody looks at it.
"""

from __future__ import annotations

import os
import sys
from collections import UserList
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from operator import attrgetter
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from course_lib.diagnosis.history import History
from course_lib.trace import Event, Line
from course_lib.user_code import find_frame, is_user_frame, line_of, sharded_module
from course_sim.isolation import compat

# In a process of real ranks, frames of their recorder are on the way as well.
_HOUSE = Path(__file__).parents[1]
_FOLDERS = ("course_sim", "course_lib/recording", "course_lib/launching")
_OURS = tuple(f"{_HOUSE / folder}{os.sep}" for folder in _FOLDERS)
_SEND, _RECV = compat.BLOCKING_CALLS


class Site(NamedTuple):
    """Where a call comes from: ``line`` is the user's own.

    ``direct``: the user's code makes the call itself, and no library between. ``blocking``: it does
    so by ``dist.send`` or ``dist.recv``, which wait before they return. ``carries``: the call
    carries an object. ``within`` is as an Event's.
    """

    line: Line | None
    direct: bool
    blocking: bool
    carries: bool
    within: str = ""


def call_site() -> Site:
    """The Site of the call of torch.distributed that is being made."""
    frame: FrameType | None = sys._getframe(1)
    blocking, within = False, ""
    while frame is not None and _is_way_in(frame.f_code.co_filename):
        if frame.f_code is _SEND or frame.f_code is _RECV:
            blocking = True
        elif frame.f_code.co_name in compat.OBJECT_CALLS:
            within = frame.f_code.co_name
        frame = frame.f_back
    user, carries = find_frame(frame), bool(within)
    within = within or sharded_module(frame)
    return Site(user and line_of(user), user is frame is not None, blocking, carries, within)


@lru_cache(maxsize=4096)
def _is_way_in(filename: str) -> bool:
    """Whether a file's frames lie between a caller of torch.distributed and a group of ours."""
    return filename in compat.CALL_FILES or filename.startswith(_OURS)


def is_callers(frame: FrameType) -> bool:
    """Whether a frame is the user's, or torch.distributed's own, which works on its behalf."""
    return is_user_frame(frame) or frame.f_code.co_filename in compat.CALL_FILES


def line_of_thread(thread: Any) -> Line | None:
    """The user's line that a thread is in now; one that acts for somebody else says whose."""
    frame = find_frame(sys._current_frames().get(thread.ident))
    return getattr(thread, "line", None) or (frame and line_of(frame))


def make_op(
    op: str, rank: int, peer: int | None, group: str, like: Any, site: Site, **more: Any
) -> Event:
    """An Event that says what a call is, and no times; ``like`` is its first tensor."""
    size = max(more.get("bytes_in", 0), more.get("bytes_out", 0))
    dtype = None if like is None else str(like.dtype).removeprefix("torch.")
    shape = () if like is None else tuple(like.shape)
    return Event(rank, op, peer, group, size, dtype, shape, 0.0, None, site.line, **more)


_OF_A_CALL = ("called", "completed", "issued", "stream", "waited")  # and not of all like it


class Record:
    """One call of one rank: what it is, and its times."""

    __slots__ = ("op", *_OF_A_CALL)

    def __init__(self, op: Event, site: Site | None = None) -> None:
        self.op = op
        self.called: float | None = None  # by the host, where a stream of a GPU issues it
        self.stream: str | None = None
        self.issued = 0.0
        self.completed: float | None = None
        # True also where nobody has to wait: a Work inside torch is torch's business
        self.waited = not (op.async_op and site is not None and site.direct)

    def event(self, seq: int = 0) -> Event:
        return replace(self.op, seq=seq, **{name: getattr(self, name) for name in _OF_A_CALL})


def history(by_rank: Sequence[list[Record]], members: Sequence[int], group: str) -> History:
    """Each member's collective calls of a group, in order."""
    calls = ((rank, [r.op for r in by_rank[rank] if r.op.group == group]) for rank in members)
    return History({rank: [op for op in ops if op.is_collective] for rank, ops in calls})


class LazyEvents(UserList):
    """All ranks' calls as Events, ordered by time, then rank: made when somebody first looks at
    them, as there may be millions. Parts and sums are plain lists.
    """

    __class__ = list  # type: ignore[assignment]

    def __init__(self, by_rank: Sequence[list[Record]]) -> None:
        self._by_rank = by_rank

    @cached_property
    def data(self) -> list[Event]:  # type: ignore[override]
        by_rank = self._by_rank
        events = [record.event(seq) for records in by_rank for seq, record in enumerate(records)]
        return sorted(events, key=attrgetter("issued"))

    def __len__(self) -> int:
        return sum(map(len, self._by_rank))

    def __reduce__(self) -> Any:
        return list, (self.data,)
