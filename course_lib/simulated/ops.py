"""What is written down of each call, in as little time as possible, and read out as Events later.

A thousand ranks make millions of calls. While they run, a call leaves a few numbers, and the place
in the bytecode that it came from; lines and Events are made only of what is looked at.
"""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Iterator, Sequence
from copy import copy
from functools import cached_property, lru_cache
from math import nan
from types import CodeType
from typing import Any

import torch

from course_lib.simulated import compat
from course_lib.trace import Event, Line
from course_lib.user_code import is_user_code, line_at

_CALL, _LIBRARY, _READER = 1, 2, 3  # whose code a file is: torch.distributed's calls, …
_kinds: dict[str, int] = {}
_HERE = os.path.dirname(__file__) + os.sep
_SEND, _RECV = compat.blocking_calls()
_OBJECTS = compat.object_calls()


class Op:
    """What a call is: all but its times. Calls that are alike share one. The names are those of
    trace.Event; ``site`` is the code that called, and where in it.
    """

    __slots__ = (
        "async_op", "bytes_in", "bytes_out", "contiguous", "direct", "dtype", "group",
        "nbytes", "op", "peer", "rank", "reduce_op", "shape", "site", "tag", "unwatched",
    )  # fmt: skip

    def __init__(
        self, op: str, rank: int, peer: int | None, group: str, read: int, written: int,
        tensor: Any, site: tuple[CodeType, int] | None, tag: int = 0, reduce_op: str | None = None,
        async_op: bool = False, direct: bool = False, contiguous: bool = True,
    ) -> None:  # fmt: skip
        self.op, self.rank, self.peer, self.group = op, rank, peer, group
        self.bytes_in, self.bytes_out, self.nbytes = read, written, max(read, written)
        self.dtype: str | None = None if tensor is None else dtype_name(tensor.dtype)
        self.shape: tuple[int, ...] = () if tensor is None else tuple(tensor.shape)
        self.site, self.tag, self.reduce_op, self.contiguous = site, tag, reduce_op, contiguous
        self.async_op, self.direct = async_op, direct
        # whether it need not be waited for: a Work inside torch is torch's business
        self.unwatched = not (async_op and direct)

    def coming_from(self, peer: int) -> Op:
        """The same call, once it is known who sent."""
        known = copy(self)
        known.peer = peer
        return known

    @property
    def line(self) -> Line | None:
        return None if self.site is None else _line(*self.site)

    def event(
        self,
        issued: float = 0.0,
        completed: float | None = None,
        waited: bool = False,
        seq: int = 0,
    ) -> Event:
        return Event(
            self.rank, self.op, self.peer, self.group, self.nbytes, self.dtype, self.shape,
            issued, completed, self.line, self.tag, self.reduce_op, self.async_op, waited,
            self.bytes_in, self.bytes_out, self.contiguous, seq,
        )  # fmt: skip


class Records:
    """All calls of one rank, column by column. As objects of their own, the four million calls of
    a thousand ranks would fill gigabytes, and looking for garbage among them takes seconds. The
    columns are longer than there are calls: they grow by half of what they hold.
    """

    __slots__ = ("completed", "issued", "mates", "ops", "waited")

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.issued = array("d")
        self.completed = array("d")  # NaN: not yet
        self.waited = bytearray()  # 1 also where nobody has to
        self.mates = array("q")  # the peer's number of this message; −1: not yet

    def __len__(self) -> int:
        return len(self.ops)

    def add(self, op: Op) -> int:
        """Write down one more call; returns its number."""
        seq = len(self.ops)
        self.ops.append(op)
        if seq == len(self.issued):
            self._grow(32 + seq // 2)
        if op.unwatched:
            self.waited[seq] = 1
        return seq

    def _grow(self, more: int) -> None:
        self.issued.frombytes(bytes(8 * more))
        self.completed.extend(array("d", [nan]) * more)
        self.waited.extend(bytes(more))
        self.mates.extend(array("q", [-1]) * more)

    def unwaited(self) -> list[int]:
        """The numbers of the calls that should have been waited for and were not."""
        waited = self.waited[: len(self.ops)]
        return [seq for seq, done in enumerate(waited) if not done] if 0 in waited else []

    def event(self, seq: int) -> Event:
        at = self.completed[seq]
        return self.ops[seq].event(
            self.issued[seq], None if at != at else at, bool(self.waited[seq]), seq
        )


@lru_cache
def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _kind(filename: str) -> int:
    if filename in compat.call_files() or filename.startswith(_HERE):
        kind = _CALL
    else:
        kind = _READER if is_user_code(filename) else _LIBRARY
    return _kinds.setdefault(filename, kind)


def _reader(frame: Any) -> Any:
    """The first frame from here outwards that is the reader's own, or None."""
    get = _kinds.get
    while frame is not None:
        name = frame.f_code.co_filename
        if (get(name) or _kind(name)) == _READER:
            return frame
        frame = frame.f_back
    return None


def call_site(depth: int) -> tuple[tuple[CodeType, int] | None, bool, bool, bool]:
    """Where the reader's code called from; whether it called itself, not through some library;
    whether the call is ``dist.send`` or ``dist.recv``, which wait before they return; and whether
    it carries an object.
    """
    frame: Any = sys._getframe(depth)
    blocking, carries, get = False, False, _kinds.get
    while frame is not None:
        code = frame.f_code
        kind = get(code.co_filename) or _kind(code.co_filename)
        if kind == _READER:
            return (code, frame.f_lasti), True, blocking, carries
        if kind != _CALL:
            break
        if code is _SEND or code is _RECV:
            blocking = True
        elif code.co_name in _OBJECTS:
            carries = True
        frame = frame.f_back
    reader = _reader(frame)
    if reader is None:
        return None, False, blocking, carries
    return (reader.f_code, reader.f_lasti), False, blocking, carries


def line_of_thread(ident: int | None) -> Line | None:
    """The reader's line that a thread is in now."""
    frame = _reader(sys._current_frames().get(ident or -1))
    return None if frame is None else line_at(
        frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)  # fmt: skip


@lru_cache(maxsize=4096)
def _lines_of(code: CodeType) -> list[tuple[int, int, int | None]]:
    return list(code.co_lines())


@lru_cache(maxsize=4096)
def _line(code: CodeType, at: int) -> Line | None:
    for start, end, number in _lines_of(code):
        if start <= at < end and number is not None:
            return line_at(code.co_filename, number, code.co_name)
    return None


class LazyEvents(Sequence):
    """Events that are made when somebody first looks at them."""

    def __init__(self, records: Sequence[Records]) -> None:
        self._records = records

    @cached_property
    def _events(self) -> list[Event]:
        return to_events(self._records)

    def __len__(self) -> int:
        return sum(map(len, self._records))

    def __iter__(self) -> Iterator[Event]:
        return iter(self._events)

    def __getitem__(self, key: Any) -> Any:
        return self._events[key]

    def __eq__(self, other: object) -> bool:
        return self._events == list(other) if isinstance(other, Sequence) else NotImplemented

    def __repr__(self) -> str:
        return repr(self._events)

    def __reduce__(self) -> Any:
        return list, (self._events,)


def to_events(records: Sequence[Records]) -> list[Event]:
    """All ranks' calls as Events, ordered by time, then rank."""
    events = [calls.event(seq) for calls in records for seq in range(len(calls))]
    events.sort(key=lambda e: (e.issued, e.rank, e.seq))
    return events
