"""From the ranks' logs to Events: what has been said, and what is still waiting for an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isnan
from typing import Any

from course_lib.ranks.log import Reader
from course_lib.ranks.recorder import unavailable
from course_lib.trace import Event, Line, Span, Trace


class History:
    """One rank's log, read as it grows."""

    def __init__(self, rank: int, fd: int) -> None:
        self.rank = rank
        self.events: list[Event] = []
        self.spans: list[Span] = []
        self.groups: dict[str, tuple[int, ...]] = {}
        self.direct: set[int] = set()  # events whose Work went to the reader's own code
        self.taken: set[int] = set()  # events whose future somebody took
        self._done: set[int] = set()  # came back, whether or not anybody knows when the data did
        self.several_threads = False  # the reader's code speaks from more threads than the main one
        self._waiting: tuple[int, Line | None] | None = None  # the Work that is being waited for
        self._lines: dict[int, Line] = {}
        self._kinds: dict[int, tuple] = {}  # what calls have in common, by the number they give
        self._reader = Reader(fd)

    def update(self) -> bool:
        """Read on; says whether anything was new."""
        records = self._reader.read()
        for kind, *values in records:
            getattr(self, f"_read_{kind}")(*values)
        return bool(records)

    def _read_K(self, number: int, *kind: Any) -> None:
        self._kinds[number] = kind

    def _read_E(self, seq: int, kind: int, issued: float) -> None:
        (op, peer, group, bytes_in, bytes_out, dtype, shape, line, tag, reduce_op, is_async, direct,
         contiguous) = self._kinds[kind]  # fmt: skip
        if direct:
            self.direct.add(seq)
        self.events.append(
            Event(self.rank, op, None if peer < 0 else peer, group, max(bytes_in, bytes_out), dtype,
                  shape, issued, None, self._lines.get(line), tag, reduce_op, is_async,
                  not is_async, bytes_in, bytes_out, contiguous, seq)
        )  # fmt: skip

    def _read_C(self, seq: int, at: float, peer: int, waited: bool) -> None:
        event = self.events[seq]
        self._done.add(seq)
        if waited:
            self._waiting = None
        self.events[seq] = replace(
            event,
            completed=at if event.completed is None and not isnan(at) else event.completed,
            peer=peer if event.peer is None and peer >= 0 else event.peer,
            waited=event.waited or waited,
        )

    def _read_W(self, seq: int, line: int) -> None:
        self._waiting = seq, self._lines.get(line)

    def _read_T(self) -> None:
        self.several_threads = True

    def _read_F(self, seq: int) -> None:
        self.taken.add(seq)
        if self._waiting is not None and self._waiting[0] == seq:
            self._waiting = None

    def _read_S(self, name: str, start: float, end: float) -> None:
        self.spans.append(Span(self.rank, name, start, end))

    def _read_G(self, name: str, ranks: tuple[int, ...]) -> None:
        self.groups[name] = ranks

    def _read_L(self, key: int, where: str, number: int, source: str, function: str) -> None:
        self._lines[key] = Line(where, number, source, function)

    @property
    def cut_short(self) -> bool:
        """Whether the log had no room for all that was said."""
        return self._reader.full

    @property
    def last(self) -> Event | None:
        return self.events[-1] if self.events else None

    @property
    def blocked_in(self) -> Event | None:
        """The call that this rank has entered and not come out of, if its log shows one."""
        if self._waiting is not None:
            return self.events[self._waiting[0]]
        last = self.last
        inside = last is not None and last.seq not in self._done and not last.async_op
        return last if inside else None

    @property
    def blocked_at(self) -> Line | None:
        """The line that it stands in: of the wait, where that is not the line of the call."""
        if self._waiting is not None:
            return self._waiting[1]
        return self.last.line if self.last else None

    @property
    def unwaited(self) -> Event | None:
        """The first Work that went to the reader's code and was never waited for."""
        for event in self.events:
            if event.async_op and not event.waited and event.seq in self.direct - self.taken:
                return event
        return None


def to_trace(histories: Sequence[History], recorded: bool = True) -> Trace:
    """One Trace from all ranks' logs."""
    events = [replace(e, waited=e.waited or e.seq in h.taken or e.seq not in h.direct)
              for h in histories for e in h.events]  # fmt: skip
    events.sort(key=lambda e: (e.issued, e.rank, e.seq))
    spans = sorted((s for h in histories for s in h.spans), key=lambda s: (s.start, s.rank))
    groups: dict[str, tuple[int, ...]] = {}
    for history in histories:
        groups.update(history.groups)
    return Trace(events, spans, groups, _note(histories, recorded))


def _note(histories: Sequence[History], recorded: bool) -> str | None:
    if not recorded:
        return "nothing was recorded: record=False"
    if any(history.cut_short for history in histories):
        return "the log was full: later events are missing"
    return unavailable()
