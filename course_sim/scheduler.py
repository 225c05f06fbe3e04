"""One baton for all ranks: only its holder runs, and the rank with the smallest clock gets it.

        heap of (time, tie, …)                     threads, one per rank
     ┌───────────────────────────┐        rank 0  ▓▓▓▓░░░░░░░▓▓▓░░░░░
     │ 0.0  rank 2 is ready      │ ─pop─► rank 1  ░░░░▓▓░░░░░░░░▓▓░░░   ▓ holds the baton
     │ 5e-6 a message arrives    │        rank 2  ░░░░░░▓▓▓▓▓░░░░░▓▓▓   ░ parked
     │ 2.0  rank 0 has computed  │
     └───────────────────────────┘

A rank runs until it has to wait. Then it pops the heap itself: what happens in the network is
played at once, and the first rank that comes up gets the baton. So everything happens in order of
virtual time, and in the same order every time (agenda.py). Nobody ready and somebody parked is a
deadlock.

Note [Exceptions from outside]. Python cannot stop a thread. The caller's thread, which alone is
awake when the limit is over, asks CPython to raise Abandoned in the running rank, and again every
0.1 s, as the rank's code may swallow it (tests/course_sim/test_limits.py has such a function). It
may land anywhere in that thread, in our own code as well, or in another rank that has just got the
baton. That is safe because ``error`` is set before: from then on nobody's result counts, and every
rank that gets the baton does nothing but leave. Code in C does not look for exceptions; a rank that
stays there is given up, and its thread never gets the baton again.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Collection
from datetime import timedelta
from typing import TYPE_CHECKING

from course_lib.diagnosis.failure import LateRank
from course_lib.diagnosis.lines import call_text
from course_lib.errors import CourseError, NotStarted
from course_lib.trace import Event
from course_sim.agenda import Abandoned, Agenda
from course_sim.rank import Call, Rank
from course_sim.records import line_of_thread

if TYPE_CHECKING:
    from course_sim.engine import Execution

LOOK = 0.25  # seconds between two looks at how much has been computed
LEAST_SHARE = 0.1  # of a processor, which ranks get that compute, however busy the machine is
GRACE = 2.0  # seconds that an overdue rank gets to come out of C code
_start = threading.Thread.start  # the original: ranks may not start threads of their own
_STACK = 1 << 20  # bytes; the least in which backward passes of deep models have room


class Scheduler(Agenda):
    """Runs all ranks of an execution, in virtual time."""

    backend = "gloo"  # whose rules hold

    def __init__(self, world_size: int, seed: int, played: Collection[int] = ()) -> None:
        """``played``: the ranks that run, in order, where they stand for all."""
        super().__init__(seed)
        self.ranks = [Rank(self, number) for number in range(world_size)]
        self.played = played or range(world_size)
        self.running: Rank | None = None
        self._finished = threading.Event()

    # -- from the caller's thread -----------------------------------------------------------------

    def run(self, execution: Execution, limit: float) -> None:
        """Run until all ranks have returned, or ``limit`` seconds have been spent on it.

        ``execution.live(rank)`` is what a rank does; ``switch(before, rank)`` is called when the
        baton goes on, and None stands for the caller of this. ``explain_standstill(ranks)`` is the
        error of ranks that cannot go on, ``explain_overdue(rank, frame, stuck)`` of those that do
        not end.
        """
        self._execution = execution
        usual = threading.stack_size(_STACK)
        try:
            self._start_threads()
        finally:
            threading.stack_size(usual)
        if self.error is None:
            self._give(None, self.next_rank())
        else:
            self._unwind(None)
        try:
            if not self._finished_within(limit):
                self._end_overdue()
        except BaseException:  # an interrupt: end the ranks, then pass it on
            self.error = self.error or Abandoned()
            self._end_overdue()
            raise
        for rank in self.ranks:
            if rank.thread is not None and rank.gone:
                rank.thread.join()

    def _finished_within(self, seconds: float) -> bool:
        """Wait for the end. Seconds of the processor count, as a busy machine does not change them.
        If the ranks spend none, they stand still, and seconds of the wall count.
        """
        while seconds > 0:
            wall, cpu = time.monotonic(), time.process_time()
            if self._finished.wait(min(seconds, LOOK)):
                return True
            wall = time.monotonic() - wall
            cpu = time.process_time() - cpu
            seconds -= min(wall, cpu) if cpu > LEAST_SHARE * wall else wall
        return self._finished.is_set()

    def _start_threads(self) -> None:
        """Each waits for the baton at once."""
        for rank in self.ranks:
            if rank.number not in self.played:
                rank.gone = True
                continue
            name = f"rank {rank.number}"
            thread = threading.Thread(target=self._live, args=(rank,), name=name, daemon=True)
            try:
                _start(thread)
            except RuntimeError:  # the system has none left
                self.error = NotStarted(
                    f"world_size={len(self.ranks)}: there is no thread for {name}; "
                    f"simulate at most {rank.number} ranks here"
                )
                return
            rank.thread = thread
            self.wake(rank, 0.0)

    def _end_overdue(self) -> None:
        """Stop the ranks that do not end by themselves: see Note [Exceptions from outside]."""
        rank = self.running
        if rank is None or rank.thread is None or self._finished.is_set():
            return
        frame = sys._current_frames().get(rank.thread.ident or -1)
        self.error = self.error or self._execution.explain_overdue(rank, frame, False)
        raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
        for _ in range(int(GRACE / 0.1)):  # again and again: the user's code may swallow it
            current = self.running
            if current is not None and current.thread is not None:
                raise_in(ctypes.c_ulong(current.thread.ident or 0), ctypes.py_object(Abandoned))
            if self._finished.wait(0.1):
                return
        stuck = self.running
        if stuck is not None and not isinstance(self.error, Abandoned):
            self.error = self._execution.explain_overdue(stuck, frame, True)
            stuck.gone, stuck.thread = True, None  # nobody waits for that
            self._unwind(None)
            self._finished.wait(GRACE)

    # -- time -----------------------------------------------------------------------------------

    def sleep_until(self, rank: Rank, at: float) -> None:
        """Let the running rank's clock go on to ``at``; others that are earlier run first."""
        if at <= self.now:
            return
        heap = self._heap
        if not heap or heap[0][0] > at:  # nobody is earlier: keep the baton
            self.now = rank.clock = at
            return
        self.wake(rank, at)
        self.hand_over(rank)

    def spend(self, rank: Rank, seconds: float) -> None:
        """The running rank computes, or sleeps, so long."""
        self.check(rank)
        self.sleep_until(rank, self.read_clock() + seconds)

    def read_clock(self) -> float:
        """The running rank's clock, for somebody whose next step may depend on it."""
        return self.now

    # -- calls ----------------------------------------------------------------------------------

    def note(self, rank: Rank, op: Event) -> None:
        """A call that takes no time."""
        record = rank.record(op)
        record.issued = record.completed = self.now

    def post(self, call: Call) -> None:
        """The running rank makes a call."""
        call.post()

    def wait_for(self, call: Call, timeout: timedelta | None = None) -> None:
        """The running rank waits until its call is over."""
        if timeout:
            self.wait_at_most(call, timeout)
        rank, completed = call.rank, call.record.completed
        if self.running is not rank or self.error is not None:
            self.check(rank)
        if completed is None:  # nobody knows yet when
            self.park(rank, call)
        else:
            self.sleep_until(rank, completed)

    def poll(self, call: Call) -> None:
        """Asking whether a call is over takes a microsecond, so that asking in a loop does not
        stop the clock.
        """
        self.spend(call.rank, 1e-6)

    def park(self, rank: Rank, waits: Call) -> None:
        """The running rank waits until somebody wakes it."""
        rank.waits = waits
        self.hand_over(rank)

    def wait_at_most(self, call: Call, timeout: timedelta) -> None:
        """Wait for the running rank's call until the timeout is over; then raise what gloo raises.
        (A message that is on its way by then still counts as come.)
        """
        rank, record = call.rank, call.record
        self.check(rank)
        end = self.read_clock() + max(0.0, timeout.total_seconds())

        def give_up() -> None:
            if rank.waits is call:
                self.wake(rank, end)

        if record.completed is None:
            self.schedule(end, give_up)
            self.park(rank, call)
        elif record.completed > end:
            self.sleep_until(rank, end)
        if record.completed is None or record.completed > max(end, self.now):
            record.waited = True
            error = RuntimeError(f"Timed out waiting {timeout} for the operation to complete")
            error.late = [self._describe(self.ranks[r]) for r in call.on]  # type: ignore[attr-defined]
            raise error

    def _describe(self, rank: Rank) -> LateRank:
        """Say where a rank stands that another one has waited for too long."""
        if rank.gone:
            return LateRank(rank.number, "had returned.")
        did = f"waited in {call_text(rank.waits.record.op)} at:" if rank.waits else "stood at:"
        line = line_of_thread(rank.thread)
        return LateRank(rank.number, did, [line] if line else [])

    # -- the baton ------------------------------------------------------------------------------

    def hand_over(self, rank: Rank) -> None:
        """Pass the baton to whoever is next, and wait until it comes back."""
        following = self.next_rank()
        if following is rank:
            return
        if following is None:
            self._stop()
            raise Abandoned
        self._give(rank, following)
        rank.baton.acquire()
        if self.error is not None:
            raise Abandoned

    def _give(self, before: Rank | None, rank: Rank | None) -> None:
        """Pass the baton on; None is the caller of run()."""
        self._execution.switch(before, rank)
        self.running = rank
        if rank is not None:
            rank.baton.release()

    def _live(self, rank: Rank) -> None:
        """A rank's thread from its first turn to its end."""
        rank.baton.acquire()
        try:
            if self.error is None:
                self._execution.live(rank)
        except Abandoned:  # the error that ended the simulation is kept in self.error
            self.error = self.error or CourseError(
                f"rank {rank.number} was stopped, and nothing says why"
            )
        finally:
            self._leave(rank)

    def _leave(self, rank: Rank) -> None:
        """The rank's function has ended: pass the baton on, or end the simulation."""
        if rank.gone:  # it was given up long ago
            return
        rank.gone = True
        if self.error is None:
            following = self.next_rank()
            if following is not None:
                self._give(rank, following)
                return
            if any(not r.gone for r in self.ranks):
                self._stop()
        self._unwind(rank)

    def _stop(self) -> None:
        """Nobody is ready: say why, if nobody has said so already."""
        if self.error is None:
            try:
                self.error = self._execution.explain_standstill(
                    [r for r in self.ranks if not r.gone]
                )
            except Exception as error:  # a fault of ours must not become a hang
                self.error = error

    def _unwind(self, before: Rank | None) -> None:
        """The simulation is over: let the parked ranks leave, one after another."""
        following = next((r for r in self.ranks if r.thread is not None and not r.gone), None)
        self._give(before, following)
        if following is None:
            self._finished.set()

    def check(self, rank: Rank) -> None:
        """Raise if the simulation has failed or is over, or if another rank calls: a rank's groups
        and Works are its own.
        """
        if self.running is None:
            raise CourseError(
                "this process group or Work belongs to a simulation that is over: make it and use "
                "it inside the function that you simulate"
            )
        if self.running is not rank:
            raise CourseError(
                f"rank {self.running.number} uses a process group or Work of rank {rank.number}: "
                "ranks share nothing, so each has to make its own"
            )
        if self.error is not None:
            raise Abandoned
