"""One rank as the notebook sees it: its socket, pipe and files, and what its log says of it."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import torch

from course_lib.diagnosis.failures import Outcome
from course_lib.diagnosis.matching import CallMatcher
from course_lib.pickling import unpack
from course_lib.ranks.log import Reader, nameless_file
from course_lib.ranks.output import RankOutput
from course_lib.trace import Event, Line, Span, Trace
from course_lib.user_code import user_lines

_set = object.__setattr__  # an Event is frozen for those who read it; here it is being written
_TORCH = os.path.dirname(torch.__file__) + os.sep
_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$', re.M)


class Rank:
    """Every call that its log tells of goes to the world's CallMatcher, once."""

    def __init__(
        self,
        number: int,
        matcher: CallMatcher,
        files: ExitStack,
        world_socket: socket.socket,
        shared: Sequence[int],
    ) -> None:
        """Have the fork server start it; ``files`` closes our ends of what it is given."""
        self.number, self.pid, self.ready = number, 0, False
        self.outcome: Outcome | None = None  # None while it runs
        self.control, its_control = socket.socketpair()
        output, its_output = os.pipe()
        with its_control, os.fdopen(its_output, "wb"):
            files.enter_context(self.control)
            files.callback(os.close, output)
            files.callback(os.close, log := nameless_file("log"))
            files.callback(os.close, stack := nameless_file("stack"))
            its_own = [its_control.fileno(), its_output, log, stack]
            socket.send_fds(world_socket, [b"r"], [*its_own, *shared])  # as worker.main has them
        self.output = RankOutput(number, output)
        self.events: list[Event] = []
        self.spans: list[Span] = []
        self.has_threads = False  # the reader's code speaks from more than the main one
        self.in_future = False  # somebody waits for a future
        self._log, self._stack_fd, self.matcher = Reader(log), stack, matcher
        self.blocked_in: Event | None = None  # the call that it has entered and not come out of
        self.blocked_at: Line | None = None  # of the wait, where that is not the line of the call
        # asynchronous collectives that are not done, by number: C++ may wait for them
        self.in_flight: dict[int, Event] = {}
        self._lines: dict[int, Line] = {}
        self._shares = ""  # what the outputs of the next call have in common
        self.wake(number)

    def wake(self, byte: int = 0) -> None:
        """Tell it that there is something to read; its first byte is its number."""
        with suppress(OSError):  # the fork server will say that it has died
            self.control.send(bytes([byte]))

    def listen(self) -> bool:
        """After its own byte: read its log; whether there may be another byte."""
        there = False
        with suppress(ConnectionResetError):  # it has died, and had not read ours
            there = bool(self.control.recv(1))
        self.read_log()
        return there

    @property
    def returned(self) -> bool:
        return self.outcome is not None and self.outcome.ended_well

    @property
    def stack(self) -> str:
        """What faulthandler has written: at a crash, or when it was asked by a signal."""
        size = os.fstat(self._stack_fd).st_size
        return os.pread(self._stack_fd, size, 0).decode("utf-8", "replace")

    @property
    def _frames(self) -> list[tuple[str, int, str]]:
        """File, line number and function of that in the main thread, innermost first: faulthandler
        lists the main one last.
        """
        main = re.split(r"^(?:Current thread|Thread) .*$", self.stack, flags=re.M)[-1]
        return [(file, int(number), function) for file, number, function in _FRAME.findall(main)]

    @property
    def stack_lines(self) -> list[Line]:
        """The reader's lines of that, outermost first."""
        return user_lines(self._frames[::-1])

    # -- where it stands, if it does ------------------------------------------------------------

    @property
    def waits_for(self) -> Event | None:
        """The call that it stands in; or else the oldest of those under way, for which C++ may
        wait, as DDP does in ``backward``: see ``is_in_torch``.
        """
        return self.blocked_in or next(iter(self.in_flight.values()), None)

    def ask_for_stack(self) -> None:
        """Have it write down where it stands; nothing that it does is disturbed."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR1)

    def cpu_seconds(self) -> float | None:
        """What it has computed so far; None while its main thread does not sleep, because it runs
        or was stopped, and where nobody knows.
        """
        try:
            words = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        state, user, system = words[0], int(words[11]), int(words[12])
        return (user + system) / os.sysconf("SC_CLK_TCK") if state == "S" else None

    @property
    def is_in_torch(self) -> bool:
        """Whether its main thread was inside torch when it was last asked, and not in a function
        of the reader's that torch has called, or in one that torch waits by, as for a file.
        """
        return self.in_future or (bool(self._frames) and self._frames[0][0].startswith(_TORCH))

    # -- its log ------------------------------------------------------------------------------

    def read_log(self) -> None:
        """Read on: each of the Recorder's records goes to the ``_read_`` method of its name."""
        for record in self._log.read():
            getattr(self, "_read_" + record[0])(*record[1:])

    def _read_flag(self, name: str, on: bool = True) -> None:
        setattr(self, name, on)  # ready, has_threads or in_future

    def _read_outcome(self, pickled: bytes) -> None:
        self.outcome = unpack(pickled)

    def _read_issued(self, *fields: Any) -> None:
        """The fields of an Event, but for its rank, its completion, and its line, a number here."""
        line = self._lines.get(fields[7])
        event = Event(self.number, *fields[:7], None, line, *fields[8:])  # type: ignore[call-arg]
        self.events.append(event)
        if not event.async_op:
            self.blocked_in, self.blocked_at = event, line
        elif event.is_collective:
            self.in_flight[event.seq] = event
        self.matcher.add(event)
        if self._shares:
            self.matcher.shares(event, self._shares)
            self._shares = ""

    def _read_shares(self, what: str) -> None:
        self._shares = what

    def _read_waiting(self, seq: int, line: int) -> None:
        self.blocked_in, self.blocked_at = self.events[seq], self._lines.get(line)

    def _read_ended(self, seq: int, at: float | None, source: int | None, waited: bool) -> None:
        event = self.events[seq]
        if event.completed is None:
            _set(event, "completed", at)
        self.in_flight.pop(seq, None)
        if event.is_recv and event.peer is None and source is not None:
            _set(event, "peer", source)
            self.matcher.found_source(event)
        if waited:
            _set(event, "waited", True)
            if self.blocked_in is event:
                self.blocked_in = None

    def _read_taken(self, seq: int) -> None:
        event = self.events[seq]
        _set(event, "waited", True)
        if self.blocked_in is event:
            self.blocked_in = None

    def _read_gave_up(self, seq: int) -> None:
        event = self.events[seq]
        _set(event, "waited", True)
        self.blocked_in = None
        self.in_flight.pop(seq, None)
        self.matcher.give_up(event)

    def _read_refused(self, seq: int) -> None:
        event = self.events[seq]
        self.blocked_in = None
        self.in_flight.pop(seq, None)
        _set(event, "waited", True)
        self.matcher.withdraw(event)

    def _read_span(self, name: str, start: float, end: float) -> None:
        self.spans.append(Span(self.number, name, start, end))

    def _read_group(self, name: str, ranks: tuple[int, ...]) -> None:
        self.matcher.groups[name] = ranks

    def _read_line(self, key: int, where: str, number: int, source: str, function: str) -> None:
        self._lines[key] = Line(where, number, source, function)


def to_trace(ranks: Sequence[Rank], recorded: bool) -> Trace:
    """One Trace from all ranks' logs."""
    matcher = ranks[0].matcher
    events = sorted(matcher.known, key=lambda e: (e.issued, e.rank, e.seq))
    spans = sorted((s for r in ranks for s in r.spans), key=lambda s: (s.start, s.rank))
    note = None if recorded else "nothing was recorded: record=False"
    return Trace(events, spans, matcher.groups, note)
