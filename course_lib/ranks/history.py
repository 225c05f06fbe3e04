"""From the ranks' logs to Events: what has been said, and what is still waiting for an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from course_lib.ranks.log import Reader
from course_lib.ranks.matching import CallMatcher
from course_lib.trace import Event, Line, Span, Trace

_set = object.__setattr__  # an Event is frozen for those who read it; here it is being written


class History:
    """One rank's log, read as it grows; every call goes to the world's CallMatcher, once."""

    def __init__(self, rank: int, fd: int, matcher: CallMatcher) -> None:
        self.rank = rank
        self.events: list[Event] = []
        self.spans: list[Span] = []
        self.groups: dict[str, tuple[int, ...]] = {}
        self.several_threads = False  # the reader's code speaks from more threads than the main one
        self.full = False  # there was no room for all that was said
        self._matcher = matcher
        self.refused: set[int] = set()  # by torch: these were never issued
        self._inside: Event | None = None  # the last call, while it blocks its rank
        self._waiting: tuple[Event, Line | None] | None = None  # whose Work is being waited for
        self._lines: dict[int, Line] = {}
        self._log = Reader(fd)

    def update(self) -> None:
        """Read on: each of the Recorder's records goes to the ``_read_`` method of its name."""
        for record in self._log.read():
            getattr(self, "_read_" + record[0])(*record[1:])

    def _read_issued(self, *fields: Any) -> None:
        """The fields of an Event, but for its rank, its completion, and its line, a number here."""
        line = self._lines.get(fields[7])
        event = Event(self.rank, *fields[:7], None, line, *fields[8:])  # type: ignore[call-arg]
        self.events.append(event)
        self._inside = None if event.async_op else event
        self._matcher.add(event)

    def _read_ended(self, seq: int, at: float | None, source: int | None, waited: bool) -> None:
        event = self.events[seq]
        if event is self._inside:
            self._inside = None
        if event.completed is None:
            _set(event, "completed", at)
        if event.is_recv and event.peer is None and source is not None:
            _set(event, "peer", source)
            self._matcher.found_source(event)
        if waited:
            self._waiting = None
            _set(event, "waited", True)

    def _read_refused(self, seq: int) -> None:
        event = self.events[seq]
        self.refused.add(seq)
        self._inside = None
        _set(event, "waited", True)
        self._matcher.withdraw(event)

    def _read_waiting(self, seq: int, line: int) -> None:
        self._waiting = self.events[seq], self._lines.get(line)

    def _read_threads(self) -> None:
        self.several_threads = True

    def _read_full(self) -> None:
        self.full = True

    def _read_taken(self, seq: int) -> None:
        """Somebody took its future, or heard that it is complete: as good as waiting."""
        event = self.events[seq]
        _set(event, "waited", True)
        if self._waiting is not None and self._waiting[0] is event:
            self._waiting = None

    def _read_span(self, name: str, start: float, end: float) -> None:
        self.spans.append(Span(self.rank, name, start, end))

    def _read_group(self, name: str, ranks: tuple[int, ...]) -> None:
        self.groups[name] = self._matcher.groups[name] = ranks

    def _read_line(self, key: int, where: str, number: int, source: str, function: str) -> None:
        self._lines[key] = Line(where, number, source, function)

    @property
    def last_call(self) -> Event | None:
        """The call that it stands in, or else has made last."""
        return self.blocked_in or (self.events[-1] if self.events else None)

    @property
    def blocked_in(self) -> Event | None:
        """The call that this rank has entered and not come out of, if its log shows one."""
        return self._waiting[0] if self._waiting else self._inside

    @property
    def blocked_at(self) -> Line | None:
        """The line that it stands in: of the wait, where that is not the line of the call."""
        if self._waiting is not None:
            return self._waiting[1]
        return self._inside.line if self._inside else None

    @property
    def unwaited(self) -> Event | None:
        """The first Work that went to the reader's code and was never waited for."""
        return next((event for event in self.events if not event.waited), None)


def to_trace(histories: Sequence[History], recorded: bool) -> Trace:
    """One Trace from all ranks' logs."""
    events = [e for h in histories for e in h.events if e.seq not in h.refused]
    events.sort(key=lambda e: (e.issued, e.rank, e.seq))
    spans = sorted((s for h in histories for s in h.spans), key=lambda s: (s.start, s.rank))
    groups = {name: ranks for h in histories for name, ranks in h.groups.items()}
    full = any(history.full for history in histories)
    note = None if recorded else "nothing was recorded: record=False"
    return Trace(
        events, spans, groups, "the log was full: later events are missing" if full else note
    )
