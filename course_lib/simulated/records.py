"""What is written down of each call: what it is, whose line it comes from, and when it happened.

    Site     a place in somebody's code that calls          one for all calls from there
    Op       what a call is: all but its times              one for all calls that are alike
    Record   one call: its Op, and its times                a thousand ranks make millions of them

Lines of source and Events are made later, only of what somebody looks at.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from copy import copy
from functools import cached_property, lru_cache
from operator import attrgetter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from course_lib.simulated import compat
from course_lib.trace import Event, Line
from course_lib.user_code import is_user_code, line_at, line_of

_CALL, _LIBRARY, _USER = 1, 2, 3  # whose code a file is: the way into a group of ours, …
_kinds: dict[str, int] = {}
# In a process of real ranks, frames of their recorder are on the way as well.
_OURS = tuple(str(Path(__file__).parents[1] / part) + os.sep for part in ("simulated", "ranks"))
_SEND, _RECV = compat.blocking_calls()
_OBJECTS = compat.object_calls()


class Site:
    """Where a call comes from. ``code`` and ``at``, the place in its bytecode, are the user's own.

    ``direct``: they call themselves, not through some library. ``blocking``: by ``dist.send`` or
    ``dist.recv``, which wait before they return. ``carries``: the call carries an object.
    """

    __slots__ = ("at", "blocking", "carries", "code", "direct")

    def __init__(
        self, code: CodeType | None, at: int, direct: bool, blocking: bool, carries: bool
    ) -> None:
        self.code, self.at, self.direct = code, at, direct
        self.blocking, self.carries = blocking, carries

    @property
    def line(self) -> Line | None:
        return None if self.code is None else _line(self.code, self.at)


sites: dict[tuple, Site] = {}  # of this simulation: each rank has code objects of its own


def call_site(depth: int = 1) -> Site:
    """The Site of the call that is being made; ``depth`` frames out is where to begin."""
    frame: FrameType | None = sys._getframe(depth)
    blocking, carries, kind, get = False, False, 0, _kinds.get
    while frame is not None:
        code = frame.f_code
        kind = get(code.co_filename) or _kind(code.co_filename)
        if kind != _CALL:
            break
        if code is _SEND or code is _RECV:
            blocking = True
        elif code.co_name in _OBJECTS:
            carries = True
        frame = frame.f_back
    direct = kind == _USER
    user = frame if direct else _user_frame(frame)
    at = -1 if user is None else user.f_lasti
    key = user and id(user.f_code), at, direct, blocking, carries
    site = sites.get(key)
    if site is None:
        site = sites[key] = Site(user and user.f_code, at, direct, blocking, carries)
    return site


def _kind(filename: str) -> int:
    if filename in compat.call_files() or filename.startswith(_OURS):
        kind = _CALL
    else:
        kind = _USER if is_user_code(filename) else _LIBRARY
    return _kinds.setdefault(filename, kind)


def _user_frame(frame: FrameType | None) -> FrameType | None:
    """The first frame from here outwards that is the user's own, or None."""
    while frame is not None:
        name = frame.f_code.co_filename
        if (_kinds.get(name) or _kind(name)) == _USER:
            return frame
        frame = frame.f_back
    return None


def is_callers(filename: str) -> bool:
    """Whether a file is the user's, or torch.distributed's own, which works on its behalf."""
    return _kind(filename) == _USER or filename in compat.call_files()


def line_of_thread(thread: Any) -> Line | None:
    """The user's line that a thread is in now; one that acts for somebody else says whose."""
    frame = _user_frame(sys._current_frames().get(thread.ident))
    return getattr(thread, "line", None) or (frame and line_of(frame))


@lru_cache(maxsize=4096)
def _line(code: CodeType, at: int) -> Line | None:
    for start, end, number in code.co_lines():
        if start <= at < end and number is not None:
            return line_at(code.co_filename, number, code.co_name)
    return None


class Op:
    """What a call is: all but its times. The names are those of trace.Event."""

    __slots__ = (
        "async_op", "bytes_in", "bytes_out", "contiguous", "dtype", "group", "nbytes", "op",
        "peer", "rank", "reduce_op", "shape", "site", "tag", "unwatched",
    )  # fmt: skip

    def __init__(
        self, op: str, rank: int, peer: int | None, group: str, read: int, written: int,
        tensor: Any, site: Site, tag: int = 0, reduce_op: str | None = None,
        async_op: bool = False, contiguous: bool = True,
    ) -> None:  # fmt: skip
        self.op, self.rank, self.peer, self.group = op, rank, peer, group
        self.bytes_in, self.bytes_out, self.nbytes = read, written, max(read, written)
        self.dtype = None if tensor is None else str(tensor.dtype).removeprefix("torch.")
        self.shape: tuple[int, ...] = () if tensor is None else tuple(tensor.shape)
        self.site, self.tag, self.reduce_op, self.contiguous = site, tag, reduce_op, contiguous
        self.async_op = async_op
        # whether it need not be waited for: a Work inside torch is torch's business
        self.unwatched = not (async_op and site.direct)

    def coming_from(self, peer: int) -> Op:
        """The same call, once it is known who sent."""
        known = copy(self)
        known.peer = peer
        return known


class Record:
    """One call of one rank: what it is, and its times."""

    __slots__ = ("called", "completed", "issued", "op", "waited")

    def __init__(self, op: Op) -> None:
        self.op = op
        self.called: float | None = None  # by the host, where a stream of a GPU issues it
        self.issued = 0.0
        self.completed: float | None = None
        self.waited = op.unwatched  # True also where nobody has to

    def event(self, seq: int = 0) -> Event:
        op = self.op
        return Event(
            op.rank, op.op, op.peer, op.group, op.nbytes, op.dtype, op.shape, self.issued,
            self.completed, op.site.line, op.tag, op.reduce_op, op.async_op, self.waited,
            op.bytes_in, op.bytes_out, op.contiguous, seq, self.called,
        )  # fmt: skip


def to_events(by_rank: Sequence[list[Record]]) -> list[Event]:
    """All ranks' calls as Events, ordered by time, then rank."""
    events = [record.event(seq) for records in by_rank for seq, record in enumerate(records)]
    return sorted(events, key=attrgetter("issued"))


class LazyEvents(Sequence):
    """Events that are made when somebody first looks at them."""

    def __init__(self, by_rank: Sequence[list[Record]]) -> None:
        self._by_rank = by_rank

    @cached_property
    def _events(self) -> list[Event]:
        return to_events(self._by_rank)

    def __len__(self) -> int:
        return sum(map(len, self._by_rank))

    def __getitem__(self, key: Any) -> Any:
        return self._events[key]

    def __eq__(self, other: object) -> bool:
        return self._events == list(other) if isinstance(other, Sequence) else NotImplemented

    def __repr__(self) -> str:
        return repr(self._events)

    def __reduce__(self) -> Any:
        return list, (self._events,)
