"""Running ahead: in large worlds, values first and times afterwards.

    the baton at every step      rank 0 ▓░░▓░░▓░░   each turn finds its memory cold
                                 rank 1 ░▓░░▓░░▓░
                                 rank 2 ░░▓░░▓░░▓
    running ahead                rank 0 ▓▓▓░░░░░░   a rank runs until a message is not there yet,
                                 rank 1 ░░░▓▓▓░░░   and writes down what it did
                                 rank 2 ░░░░░░▓▓▓
    replay                       the logs are played again in order of virtual time, no threads:
                                 Mail, Calls and Fabric work as always, on messages without bytes

What a program computes does not depend on time, if it never looks at a clock and every recv names
its source (Kahn 1974). A program that does anything else, fails, or stands still in the replay is
simulated once more in the plain way, which is what says so.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from course_lib.simulated.collective import Calls, CollectiveWork
from course_lib.simulated.group import Groups
from course_lib.simulated.mail import Mail, RecvWork, SendWork, _Message
from course_lib.simulated.scheduler import Abandoned, Rank, Scheduler

FROM = 32  # ranks; in smaller worlds it saves nothing
SEND, RECV, CALL, WAIT, SPEND, NOTE, MARK = range(7)  # what a log entry says


class NeedsClock(Exception):
    """The program's next step may depend on time: it cannot run ahead."""


class Moment(float):
    """A time that is not known yet; ``at`` holds it after the replay."""

    at = 0.0


class AheadScheduler(Scheduler):
    """Hands the baton on as always; its clock stands still at zero."""

    placed = nullcontext  # the baton seldom changes hands

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # kind, thing, kind, thing, …: pairs of their own would be most of the memory
        self.logs: list[list[Any]] = [[] for _ in self.ranks]

    def sleep_until(self, rank: Rank, at: float) -> None:
        self.logs[rank.number].extend((SPEND, at))

    def note(self, rank: Rank, op: Any) -> None:
        self.logs[rank.number].extend((NOTE, op))

    def mark(self, rank: Rank) -> float:
        moment = Moment(0.0)
        self.logs[rank.number].extend((MARK, moment))
        return moment

    def read_clock(self) -> float:
        self.fail(NeedsClock())
        raise Abandoned


class AheadMail(Mail):
    """Passes messages on at once; the base class does the rest in the replay."""

    scheduler: Any

    def post_send(self, work: SendWork) -> None:
        self.scheduler.logs[work.op.rank].extend((SEND, work))
        key = (work.peer, work.me, work.op.tag)
        recvs = self.recvs.get(key)
        if not recvs:
            self.queue(self.sends, key).append(work)
            return
        recv = recvs.popleft()
        recv.data, work.taken = work.data, True
        if recv.rank.waits is recv:
            self.scheduler.wake(recv.rank, 0.0)

    def post_recv(self, work: RecvWork) -> None:
        if work.peer < 0:
            self.scheduler.read_clock()  # who comes first is a matter of time
        self.scheduler.logs[work.op.rank].extend((RECV, work))
        key = (work.me, work.peer, work.op.tag)
        sends = self.sends.get(key)
        if not sends:
            self.queue(self.recvs, key).append(work)
            return
        send = sends.popleft()
        work.data, send.taken = send.data, True
        if send.buffer is None:  # nobody will compare them any more
            send.data = None

    def until_done(self, work: _Message) -> None:
        self.scheduler.check()
        self.scheduler.logs[work.op.rank].extend((WAIT, work))
        if type(work) is RecvWork and work.data is None:
            self.scheduler.park(work.rank, work)


class AheadCalls(Calls):
    """Has the values as soon as all have called; the base class finds the times in the replay."""

    scheduler: Any

    def post(self, work: CollectiveWork) -> None:
        self.scheduler.logs[work.op.rank].extend((CALL, work))
        if len(work.call.works) == len(self.ranks):
            for other in work.call.works.values():
                if other.rank.waits is other:
                    self.scheduler.wake(other.rank, 0.0)

    def until_done(self, work: CollectiveWork) -> None:
        self.scheduler.check()
        self.scheduler.logs[work.op.rank].extend((WAIT, work))
        if len(work.call.works) < len(self.ranks):
            self.scheduler.park(work.rank, work)


class AheadGroups(Groups):
    mail, calls = AheadMail, AheadCalls

    def replay_on(self, scheduler: Scheduler) -> None:
        """Forget what was passed on, and ask this scheduler for the time from now on."""
        for mail, calls, _ in self.shared.values():
            mail.scheduler = calls.scheduler = scheduler
            mail.sends, mail.recvs = {}, {}


class Replay(Scheduler):
    """Goes through the logs in order of virtual time."""

    def __init__(self, ahead: AheadScheduler, groups: AheadGroups, *args: Any) -> None:
        super().__init__(*args)
        self.ranks, self._logs, self._groups = ahead.ranks, ahead.logs, groups
        self._at = [0] * len(self.ranks)

    def run_logs(self) -> bool:
        """Find all times; False if the ranks come to a standstill or do not fit together."""
        self._groups.replay_on(self)
        for rank in self.ranks:
            self.wake(rank, 0.0)
        try:
            while (rank := self._next()) is not None:  # type: ignore[assignment]
                self._go_on(rank)
        except Abandoned:
            return False
        if any(at < len(log) for at, log in zip(self._at, self._logs, strict=True)):
            return False
        for rank in self.ranks:
            rank.spans = [replace(s, start=s.start.at, end=s.end.at) for s in rank.spans]  # type: ignore[attr-defined]
        return True

    def _go_on(self, rank: Rank) -> None:
        """One rank's turn: until it has to wait."""
        log, at, heap = self._logs[rank.number], self._at[rank.number], self._heap
        while at < len(log):
            kind, thing = log[at], log[at + 1]
            at += 2
            if kind == SEND:
                Mail.post_send(thing.mail, thing)
            elif kind == RECV:
                Mail.post_recv(thing.mail, thing)
            elif kind == CALL:
                Calls.post(thing.calls, thing)
            elif kind == NOTE:
                self.note(rank, thing)
            elif kind == MARK:
                thing.at = self.now
            else:
                until = self.now + thing if kind == SPEND else thing.op.completed
                if until is None:
                    rank.waits = thing
                    break
                if until > self.now:
                    if heap and heap[0][0] <= until:  # others are earlier
                        self.wake(rank, until)
                        break
                    self.now = until
        rank.clock, self._at[rank.number] = self.now, at
