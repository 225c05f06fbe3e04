"""What is written down of each call, in as little time as possible, and read out as Events later.

A thousand ranks make millions of calls. While they run, a call leaves one small record with the
place in the bytecode that it came from; lines and Events are made only of what is looked at.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from types import CodeType
from typing import Any

import torch

from course_lib.simulated import compat
from course_lib.sites import is_readers, line_at
from course_lib.trace import Event, Line

DTYPES: dict[torch.dtype, str] = {}
_CALL, _LIBRARY, _READER = 1, 2, 3  # whose code a file is: torch.distributed's calls, …
_kinds: dict[str, int] = {}
_HERE = os.path.dirname(__file__) + os.sep
_SEND, _RECV = compat.blocking_calls()
_OBJECTS = compat.object_calls()


class Op:
    """One call on one rank; the names are those of trace.Event."""

    __slots__ = (
        "async_op",
        "completed",
        "direct",
        "dtype",
        "group",
        "issued",
        "nbytes",
        "peer",
        "rank",
        "shape",
        "site",
        "tag",
        "waited",
    )  # fmt: skip
    op: str
    reduce_op: str | None = None
    contiguous = True
    reads = writes = 1  # times nbytes

    def __init__(
        self, rank: int, peer: int | None, group: str, nbytes: int, tensor: Any, issued: float,
        site: tuple[CodeType, int] | None, tag: int, async_op: bool, direct: bool,
    ) -> None:  # fmt: skip
        self.rank, self.peer, self.group, self.nbytes = rank, peer, group, nbytes
        if tensor is None:
            self.dtype, self.shape = None, ()
        else:
            dtype = tensor.dtype
            self.dtype = DTYPES.get(dtype) or dtype_name(dtype)
            self.shape = tensor.shape
        self.issued, self.site = issued, site
        self.completed: float | None = None
        self.tag, self.async_op, self.direct = tag, async_op, direct
        self.waited = not (async_op and direct)  # a Work inside torch is torch's business

    @property
    def bytes_in(self) -> int:
        return self.nbytes * self.reads

    @property
    def bytes_out(self) -> int:
        return self.nbytes * self.writes

    @property
    def line(self) -> Line | None:
        return None if self.site is None else _line(*self.site)

    def event(self, seq: int = 0) -> Event:
        return Event(
            self.rank, self.op, self.peer, self.group, self.nbytes, self.dtype, tuple(self.shape),
            self.issued, self.completed, self.line, self.tag, self.reduce_op, self.async_op,
            self.waited, self.bytes_in, self.bytes_out, self.contiguous, seq,
        )  # fmt: skip


class SendOp(Op):
    __slots__ = ()
    op, writes = "send", 0


class RecvOp(Op):
    __slots__ = ()
    op, reads = "recv", 0


class CollectiveOp(Op):
    __slots__ = ("_in", "_out", "contiguous", "op", "reduce_op")

    def __init__(
        self, op: str, reduce_op: str | None, contiguous: bool, read: int, written: int, *rest: Any
    ) -> None:
        super().__init__(*rest)
        self.op, self.reduce_op, self.contiguous = op, reduce_op, contiguous
        self._in, self._out = read, written

    @property
    def bytes_in(self) -> int:
        return self._in

    @property
    def bytes_out(self) -> int:
        return self._out


def dtype_name(dtype: torch.dtype) -> str:
    return DTYPES.setdefault(dtype, str(dtype).removeprefix("torch."))


def _kind(filename: str) -> int:
    if filename in compat.call_files() or filename.startswith(_HERE):
        kind = _CALL
    else:
        kind = _READER if is_readers(filename) else _LIBRARY
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
        if (get(code.co_filename) or _kind(code.co_filename)) != _CALL:
            break
        if code is _SEND or code is _RECV:
            blocking = True
        elif code.co_name in _OBJECTS:
            carries = True
        frame = frame.f_back
    reader = _reader(frame)
    if reader is None:
        return None, False, blocking, carries
    return (reader.f_code, reader.f_lasti), reader is frame, blocking, carries


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


class LazyEvents(list):
    """A list of Events that is filled when somebody first looks into it."""

    def __init__(self, ops: Sequence[Sequence[Op]]) -> None:
        super().__init__()
        self._ops: Sequence[Sequence[Op]] | None = ops

    def _fill(self) -> LazyEvents:
        if self._ops is not None:
            ops, self._ops = self._ops, None
            list.extend(self, to_events(ops))
        return self

    def __len__(self) -> int:
        return list.__len__(self) if self._ops is None else sum(map(len, self._ops))

    def __iter__(self) -> Iterator[Event]:
        return list.__iter__(self._fill())

    def __getitem__(self, key: Any) -> Any:
        return list.__getitem__(self._fill(), key)

    def __eq__(self, other: object) -> bool:
        return list(self) == (list(other) if isinstance(other, LazyEvents) else other)

    def __repr__(self) -> str:
        return list.__repr__(self._fill())

    def __reversed__(self) -> Iterator[Event]:
        return list.__reversed__(self._fill())

    def __contains__(self, event: object) -> bool:
        return list.__contains__(self._fill(), event)

    def __add__(self, other: Any) -> list:
        return [*self, *other]

    def __reduce__(self) -> Any:
        return list, (list(self),)


def to_events(ops: Sequence[Sequence[Op]]) -> list[Event]:
    """All ranks' calls as Events, ordered by time, then rank."""
    events = [op.event(seq) for of_rank in ops for seq, op in enumerate(of_rank)]
    events.sort(key=lambda e: (e.issued, e.rank, e.seq))
    return events
