"""Running ahead: in large worlds, values first and times afterwards.

    the baton at every step      rank 0 ▓░░▓░░▓░░   each turn finds its memory cold
                                 rank 1 ░▓░░▓░░▓░
                                 rank 2 ░░▓░░▓░░▓
    running ahead                rank 0 ▓▓▓░░░░░░   a rank runs until a message is not there yet,
                                 rank 1 ░░░▓▓▓░░░   and writes down what it did
                                 rank 2 ░░░░░░▓▓▓
    replay                       the logs are played again in order of virtual time, no threads

What a program computes does not depend on time, if it never looks at a clock, spends no time and
every recv names its source (Kahn 1974). A program that does anything else, fails, or stands still
in the replay is simulated once more in the plain way, which is what says so. Without this, a ring
of 256 ranks takes twice as long.

Note [Two agendas]. A call is made once and posted once, and running ahead takes these two apart: a
rank makes its calls on an AheadScheduler, which writes them down; the Replay posts them, when their
time has come. So there is ``rank.scheduler``, which knows whether the rank may make a call now, and
the ``agenda`` of Mail and Collectives, which knows what time it is. What happens when a call is
posted, or later, may ask the agenda alone: by then the scheduler's clock has stood at 0 all along,
and nobody looks at its heap any more. Step by step, both are one Scheduler.
"""

from __future__ import annotations

from typing import Any

from course_lib.trace import Event
from course_sim.agenda import Agenda
from course_sim.exchange.groups import Groups
from course_sim.rank import Call, Rank
from course_sim.records import Record
from course_sim.scheduler import Scheduler

FROM = 32  # ranks; in smaller worlds it saves nothing


class NeedsClock(Exception):
    """The program's next step may depend on time: it cannot run ahead."""


class AheadScheduler(Scheduler):
    """Lets a rank run as long as the values that it needs are there. Its clock stands still."""

    def post(self, call: Call) -> None:
        call.rank.log.append(call)
        for other in call.counterparts if call.ready else ():
            if other.rank.waits is other:
                self.wake(other.rank, 0.0)

    def wait_for(self, call: Call, timeout: Any = None) -> None:
        """Go on if the values are there, and wait for them if not; the Replay finds the time."""
        self.check(call.rank)
        if timeout:
            self.read_clock()
        call.rank.log.append(call)
        if not call.ready:
            self.park(call.rank, call)

    def note(self, rank: Rank, op: Event) -> None:
        rank.log.append(rank.record(op))

    def read_clock(self) -> float:
        self.fail(NeedsClock())


class Replay(Agenda):
    """Goes through the logs in order of virtual time."""

    def __init__(self, groups: Groups, seed: int) -> None:
        super().__init__(seed)
        self.ranks = groups.scheduler.ranks  # those that have run
        for channel in groups.channels.values():  # which no rank calls any more
            channel.mail.agenda = channel.collectives.agenda = self
        self._logs = [iter(rank.log) for rank in self.ranks]

    def run_logs(self) -> bool:
        """Find all times; False if the ranks come to a standstill or do not fit together."""
        for each in self.ranks:
            self.wake(each, 0.0)
        while rank := self.next_rank():
            self._go_on(rank)
        return self.error is None and not any(rank.waits for rank in self.ranks)

    def _go_on(self, rank: Rank) -> None:
        """One rank's turn: until it has to wait."""
        heap = self._heap
        for call in self._logs[rank.number]:
            if isinstance(call, Record):  # a group made without this rank: see Scheduler.note
                call.issued = call.completed = self.now
            elif not call.posted:
                call.post()
            elif (until := call.record.completed) is None:
                rank.waits = call
                break
            elif until > self.now:
                if heap and heap[0][0] <= until:  # others are earlier
                    self.wake(rank, until)
                    break
                self.now = until
        rank.clock = self.now
