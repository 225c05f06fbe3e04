"""Running ahead: in large worlds, values first and times afterwards.

    the baton at every step      rank 0 ▓░░▓░░▓░░   each turn finds its memory cold
                                 rank 1 ░▓░░▓░░▓░
                                 rank 2 ░░▓░░▓░░▓
    running ahead                rank 0 ▓▓▓░░░░░░   a rank runs until a message is not there yet,
                                 rank 1 ░░░▓▓▓░░░   and writes down what it did
                                 rank 2 ░░░░░░▓▓▓
    replay                       the logs are played again in order of virtual time, no threads:
                                 Calls and Fabric work as always, messages are two numbers

What a program computes does not depend on time, if it never looks at a clock and every recv names
its source (Kahn 1974). A program that does anything else, fails, or stands still in the replay is
simulated once more in the plain way, which is what says so.
"""

from __future__ import annotations

from array import array
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from math import nan
from typing import Any

from course_lib.simulated.collective import Calls, CollectiveWork
from course_lib.simulated.group import Groups
from course_lib.simulated.mail import Mail, RecvWork, SendWork, _Message
from course_lib.simulated.ops import Op
from course_lib.simulated.scheduler import Abandoned, Rank, Scheduler

FROM = 32  # ranks; in smaller worlds it saves nothing
# What a log entry says; its upper bits are the number of a call, or of a thing.
POST, WAIT, CALL, MEET, SPEND, NOTE, MARK = range(7)
_BITS, _KIND = 3, 7


class NeedsClock(Exception):
    """The program's next step may depend on time: it cannot run ahead."""


class Moment(float):
    """A time that is not known yet; ``at`` holds it after the replay."""

    at = 0.0


class Log:
    """What one rank has done, without times."""

    __slots__ = ("entries", "things")

    def __init__(self) -> None:
        self.entries = array("q")
        self.things: list[Any] = []

    def add(self, kind: int, thing: Any) -> None:
        self.entries.append(len(self.things) << _BITS | kind)
        self.things.append(thing)


class AheadScheduler(Scheduler):
    """Hands the baton on as always; its clock stands still at zero."""

    placed = nullcontext  # the baton seldom changes hands

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        for rank in self.ranks:
            rank.log = Log()

    def sleep_until(self, rank: Rank, at: float) -> None:
        rank.log.add(SPEND, at)

    def note(self, rank: Rank, op: Op) -> None:
        rank.log.entries.append(rank.ops.add(op) << _BITS | NOTE)

    def mark(self, rank: Rank) -> float:
        moment = Moment(0.0)
        rank.log.add(MARK, moment)
        return moment

    def read_clock(self) -> float:
        self.fail(NeedsClock())
        raise Abandoned


class AheadMail(Mail):
    """Passes messages on at once, and notes which send met which recv."""

    scheduler: Any

    def post_send(self, work: SendWork) -> None:
        work.rank.log.entries.append(work.seq << _BITS | POST)
        recvs = self.recvs.get(work.key)
        if not recvs:
            self.sends[work.key].append(work)
            return
        recv = recvs.popleft()
        self.pass_on(work, recv)
        if recv.rank.waits is recv:
            self.scheduler.wake(recv.rank, 0.0)

    def post_recv(self, work: RecvWork) -> None:
        if work.key[1] < 0:
            self.scheduler.read_clock()  # who comes first is a matter of time
        work.rank.log.entries.append(work.seq << _BITS | POST)
        sends = self.sends.get(work.key)
        if sends:
            self.pass_on(sends.popleft(), work)
        else:
            self.recvs[work.key].append(work)

    def until_done(self, work: _Message) -> None:
        self.scheduler.check(work.rank)
        work.rank.log.entries.append(work.seq << _BITS | WAIT)
        if work.data is None:
            self.scheduler.park(work.rank, work)


class AheadCalls(Calls):
    """Has the values as soon as all have called; the base class finds the times in the replay."""

    scheduler: Any

    def post(self, work: CollectiveWork) -> None:
        work.rank.log.add(CALL, work)
        if len(work.call.works) == len(self.ranks):
            for other in work.call.works.values():
                if other.rank.waits is other:
                    self.scheduler.wake(other.rank, 0.0)

    def until_done(self, work: CollectiveWork) -> None:
        self.scheduler.check(work.rank)
        work.rank.log.add(MEET, work)
        if len(work.call.works) < len(self.ranks):
            self.scheduler.park(work.rank, work)


class AheadGroups(Groups):
    mail, calls = AheadMail, AheadCalls


class Replay(Scheduler):
    """Goes through the logs in order of virtual time."""

    def __init__(self, ahead: AheadScheduler, groups: AheadGroups, *args: Any) -> None:
        super().__init__(*args)
        self.ranks = ahead.ranks
        self._fabric, self._buffered = groups.fabric, groups.buffered
        for _, calls, _ in groups.shared.values():
            calls.scheduler = self
        self._at = [0] * len(self.ranks)
        # of each send: its order among all, and when its last byte is in; NaN: not yet
        self._order = [array("q", [0]) * len(rank.ops) for rank in self.ranks]
        self._in = [array("d", [nan]) * len(rank.ops) for rank in self.ranks]

    def run_logs(self) -> bool:
        """Find all times; False if the ranks come to a standstill or do not fit together."""
        for rank in self.ranks:
            rank.ops.issued = array("d", [nan]) * len(rank.ops)
            self.wake(rank, 0.0)
        while (rank := self._next()) is not None:  # type: ignore[assignment]
            self._go_on(rank)
        if any(self._at[rank.number] < len(rank.log.entries) for rank in self.ranks):
            return False
        for rank in self.ranks:
            rank.spans = [replace(s, start=s.start.at, end=s.end.at) for s in rank.spans]  # type: ignore[attr-defined]
        return True

    def _go_on(self, rank: Rank) -> None:
        """One rank's turn: until it has to wait."""
        at, heap, entries, things = (
            self._at[rank.number], self._heap, rank.log.entries, rank.log.things
        )  # fmt: skip
        ops, completed = rank.ops.ops, rank.ops.completed
        while at < len(entries):
            entry = entries[at]
            at += 1
            kind, number = entry & _KIND, entry >> _BITS
            if kind == POST:
                self._post(rank, number, ops[number])
            elif kind == CALL:
                Calls.post(things[number].calls, things[number])
            elif kind == NOTE:
                rank.ops.issued[number] = completed[number] = self.now
            elif kind == MARK:
                things[number].at = self.now
            else:
                if kind == WAIT:
                    until, waits = completed[number], number
                elif kind == MEET:
                    waits = things[number]
                    until = completed[waits.seq]
                else:
                    until = self.now + things[number]
                if until != until:
                    rank.waits = waits
                    break
                if until > self.now:
                    if heap and heap[0][0] <= until:  # others are earlier
                        self.wake(rank, until)
                        break
                    self.now = until
        rank.clock, self._at[rank.number] = self.now, at

    def _post(self, rank: Rank, seq: int, op: Op) -> None:
        """A send or recv is posted; see mail.py for what that means."""
        rank.ops.issued[seq] = self.now
        assert op.peer is not None
        peer, mate = self.ranks[op.peer], rank.ops.mates[seq]
        if op.op == "send":
            self._order[rank.number][seq] = self.next_order()
            if self._buffered:
                self._set_off(rank, seq)
        if mate >= 0 and peer.ops.issued[mate] <= self.now:
            self._meet(*((rank, seq, peer, mate) if op.op == "send" else (peer, mate, rank, seq)))

    def _meet(self, sender: Rank, sent: int, receiver: Rank, received: int) -> None:
        """Both have been posted, the later one now."""
        if not self._buffered:
            order = self._order[sender.number][sent]
            self.play_last(order, partial(self._set_off, sender, sent))
            return
        end = self._in[sender.number][sent]
        if end == end:
            self._complete(receiver, received, end if end > self.now else self.now)

    def _set_off(self, sender: Rank, sent: int) -> None:
        op = sender.ops.ops[sent]
        assert op.peer is not None
        left, _ = self._fabric.send(
            self.now, op.rank, op.peer, op.nbytes, self.play, self._arrived, sender, sent
        )
        self._complete(sender, sent, left)

    def _arrived(self, sender: Rank, sent: int, end: float) -> None:
        """It is known when the last byte is in."""
        self._in[sender.number][sent] = end
        mate = sender.ops.mates[sent]
        if mate >= 0:
            receiver = self.ranks[sender.ops.ops[sent].peer]  # type: ignore[index]
            if receiver.ops.issued[mate] <= self.now:
                self._complete(receiver, mate, end)

    def _complete(self, rank: Rank, seq: int, at: float) -> None:
        rank.ops.completed[seq] = at
        if rank.waits == seq:
            self.wake(rank, at)
