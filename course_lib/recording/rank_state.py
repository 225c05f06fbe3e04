"""What one rank's log says of it: which calls it has issued and completed, what it waits for.

    rank = RankState(0, CallMatcher(), Reader(fd).read, stack)
    rank.read_log()                    again and again, while the rank runs
    rank.events, rank.blocked_in, …    what is known by now

The log's writer may be a rank of ``run`` or a process of any other job that is watched.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from course_lib.collectives import collective
from course_lib.diagnosis import hazard
from course_lib.diagnosis.failure import RankOutcome
from course_lib.diagnosis.lines import call_text, ranks_have
from course_lib.diagnosis.matching import CallMatcher
from course_lib.errors import Hazard
from course_lib.recording.stack import Stack
from course_lib.trace import Curve, Event, Line, Span, Trace

_FLAGS = ("ready", "has_threads", "in_future", "forming")
_set = object.__setattr__  # an Event is frozen for those who read it; here it is being written


class RankState:
    """What is known of one rank. Every call in its log goes to the world's CallMatcher, once."""

    def __init__(
        self,
        number: int,
        matcher: CallMatcher,
        new_records: Callable[[], Iterable[tuple]],
        stack: Stack,
    ) -> None:
        self.number, self.matcher, self.stack = number, matcher, stack
        self._new_records = new_records
        self.ready = False
        self.outcome: RankOutcome | None = None  # None while it runs
        self.events: list[Event] = []
        self.spans: list[Span] = []
        self.memory: Curve = []
        self.has_threads = False  # threads of the reader's other than the main one make calls
        self.in_future = False  # it waits for a future
        self.forming = False  # it stands in init_process_group
        self.blocked_in: Event | None = None  # the call that it has entered and not come out of
        self.blocked_at: Line | None = None  # the line of that wait
        # asynchronous collectives that are not done, by number: C++ may wait for them
        self.in_flight: dict[int, Event] = {}
        self._gave_up: Event | None = None  # the last call that it gave up
        self.gave_up_at = math.inf
        self.unwaited: dict[int, Event] = {}  # calls whose Work the reader's code has to wait for
        self.overlap: tuple[Event, Event] | None = None  # the second is given what the first fills
        self._lines: dict[int, Line] = {}

    @property
    def returned(self) -> bool:
        return self.outcome is not None and self.outcome.ended_well

    @property
    def waits_for(self) -> Event | None:
        """The call in which it stands; or the oldest one under way, for which C++ may wait, as DDP
        does in ``backward``: see ``is_in_torch``.
        """
        return self.blocked_in or next(iter(self.in_flight.values()), None)

    @property
    def last_call(self) -> Event | None:
        """The last call that it has made."""
        return next(reversed(self.events), None)

    def say_unmet(self, *calls: Event | None) -> str:
        """Names the ranks that have not made the matching call for the first of these calls that
        lacks one, and how many calls they have made; "" if no rank is missing.
        """
        for call in filter(None, calls):
            if ranks := self.matcher.find_missing(call):
                history = self.matcher.history(call.group)
                known = [r for r in (self.number, *ranks) if history.calls.get(r)]
                made = history.tell_counts(known) if call.is_collective else []
                unmet = f"{ranks_have(ranks)} not made its call {call_text(call)}"
                return ". ".join([unmet, *made]).rstrip(".")
        return ""

    def find_hazard(self) -> Hazard | None:
        """The error for a rank that has ended well, if it never waited for a Work, or waited only
        after it had used the memory again.
        """
        for event in self.unwaited.values():
            return hazard.unwaited(event)
        return hazard.still_filled(*self.overlap) if self.overlap else None

    def find_awaited(self) -> dict[int, Event | None]:
        """The ranks for which this one waited in vain in the last call that it gave up; with each
        the call that it made later, or None.
        """
        return self.matcher.find_late(self._gave_up, self.gave_up_at) if self._gave_up else {}

    @property
    def is_in_torch(self) -> bool:
        """Whether it was inside torch when it was last asked for its stack, or is in a future."""
        return self.in_future or self.stack.is_in_torch

    def progress(self) -> object:
        """What changes when a rank that is blocked does anything."""
        if self.blocked_in:
            return self.blocked_in.seq
        cpu = self.stack.cpu_seconds()
        # to answer a signal is no computing, nor what gloo's threads do while they wait
        return len(self.events), object() if cpu is None else round(cpu, 1)

    # -- its log ------------------------------------------------------------------------------

    def read_log(self) -> None:
        """Read what is new: ``READERS`` has the method for each kind of record."""
        for kind, *fields in self._new_records():
            self.READERS[kind](self, *fields)

    def _read_flag(self, name: str, on: bool = True) -> None:
        if name in _FLAGS:  # a log that ``watch`` reads may be a stranger's: it sets nothing else
            setattr(self, name, on)

    def _read_outcome(self, pickled: bytes) -> None:
        self.outcome = pickle.loads(pickled)

    def _read_issued(self, *fields: Any) -> None:
        """A call begins: see Note [An issued record] in log.py for its fields."""
        event = Event(self.number, *fields)
        # The log has the number of a line, which has been written before.
        number: Any = event.line
        _set(event, "line", line := self._lines.get(number))
        self.events.append(event)
        if not event.waited:
            self.unwaited[event.seq] = event
        if not event.async_op:
            self.blocked_in, self.blocked_at = event, line
        elif event.is_collective:
            self.in_flight[event.seq] = event
        self.matcher.add(event)

    def _read_shares(self, seq: int, what: str) -> None:
        self.matcher.note_shared(self.events[seq], what)

    def _read_overlaps(self, seq: int, first: int) -> None:
        if self.overlap is None and self.events[first]:
            self.overlap = self.events[first], self.events[seq]

    def _read_threads(self, seq: int, line: int) -> None:
        """Two threads use one group at once: the one that makes this call, and one that was started
        at a line.
        """
        event = self.events[seq]
        self.matcher.threads.setdefault(event.group, (event, self._lines.get(line)))

    def _read_waiting(self, seq: int, line: int) -> None:
        self.blocked_in, self.blocked_at = self.events[seq], self._lines.get(line)

    def _read_ended(self, seq: int, at: float | None, source: int | None, waited: bool) -> None:
        """A call is done. After a barrier all earlier calls of its group are, too."""
        event = self.events[seq]
        if event.completed is None:
            _set(event, "completed", at)
        self.in_flight.pop(seq, None)
        if event.is_recv and event.peer is None and source is not None:
            _set(event, "peer", source)
            self.matcher.settle_source(event)
        if waited:
            self._read_waited(seq)
        if collective(event.op).ends_earlier:  # see Note [A barrier is behind all]
            earlier = [e for e in self.unwaited.values() if e.seq < seq and e.is_collective]
            for done in (e for e in earlier if e.group == event.group):
                self._read_waited(done.seq)

    def _read_waited(self, seq: int) -> None:
        """Somebody has waited for the call, or has seen that it is done."""
        event = self.events[seq]
        _set(event, "waited", True)
        self.unwaited.pop(seq, None)
        if self.blocked_in is event:
            self.blocked_in = None

    def _read_gave_up(self, seq: int, at: float = math.inf) -> None:
        self._gave_up, self.gave_up_at = self._leave_call(seq), at
        self.matcher.give_up(self._gave_up)

    def _read_refused(self, seq: int) -> None:
        self.matcher.withdraw(self._leave_call(seq))

    def _leave_call(self, seq: int) -> Event:
        """The rank has come out of this call by an exception; returns the call."""
        self._read_waited(seq)
        self.blocked_in = None
        self.in_flight.pop(seq, None)
        return self.events[seq]

    def _read_span(self, name: str, start: float, end: float) -> None:
        self.spans.append(Span(self.number, name, start, end))

    def _read_memory(self, curve: Curve) -> None:
        self.memory += curve

    def _read_group(self, name: str, ranks: tuple[int, ...]) -> None:
        self.matcher.groups[name] = ranks

    def _read_line(self, key: int, *line: Any) -> None:
        self._lines[key] = Line(*line)

    READERS: ClassVar[dict[str, Callable[..., None]]] = {
        "flag": _read_flag,
        "outcome": _read_outcome,
        "issued": _read_issued,
        "shares": _read_shares,
        "overlaps": _read_overlaps,
        "threads": _read_threads,
        "waiting": _read_waiting,
        "ended": _read_ended,
        "waited": _read_waited,
        "gave_up": _read_gave_up,
        "refused": _read_refused,
        "span": _read_span,
        "memory": _read_memory,
        "group": _read_group,
        "line": _read_line,
    }


def to_trace(ranks: Sequence[RankState], recorded: bool = True) -> Trace:
    """One Trace from all ranks' logs."""
    matcher = ranks[0].matcher
    events = sorted(matcher.known, key=lambda e: (e.issued, e.rank, e.seq))
    spans = sorted((s for r in ranks for s in r.spans), key=lambda s: (s.start, s.rank))
    note = None if recorded else "nothing was recorded: record=False"
    memory = {rank.number: rank.memory for rank in ranks if rank.memory}
    return Trace(events, spans, matcher.groups, note, memory)
