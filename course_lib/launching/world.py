"""One world: its ranks, from their start to their end, and everything they say meanwhile.

Sockets, pipes and files of all ranks are watched at once in the thread that waits for them: there
is no thread to be left behind, an interrupt comes through, and output appears in its own cell.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from selectors import EVENT_READ, DefaultSelector
from typing import Any

from course_lib.diagnosis.failure import RankOutcome, root_cause
from course_lib.diagnosis.matching import CallMatcher
from course_lib.errors import CourseError, Hang, NotStarted
from course_lib.launching.forkserver import ForkServer
from course_lib.launching.plan import Deadline, Plan, RankJob
from course_lib.launching.rank_process import RankProcess
from course_lib.recording import stuck_ranks
from course_lib.recording.log import nameless_file
from course_lib.recording.rank_state import to_trace
from course_lib.terminal import arguments, log_settings, show
from course_lib.trace import Run, many_events
from course_lib.user_code import notebook_cells

LISTEN_SECONDS = 1.0  # for ranks to say what became of them, or where they stand


class World:
    """Some ranks, with a process group unless the function is to form it, for one job."""

    def __init__(self, plan: Plan, server: ForkServer) -> None:
        self.plan = plan
        self.ranks: list[RankProcess] = []
        self.files = ExitStack()  # this process's: closing them leaves the ranks alone
        self._born = time.perf_counter()
        self._matcher = CallMatcher()
        self._server = server
        self._socket = self.files.enter_context(server.open_world())
        try:
            self._start()
        except BaseException:
            self.end()
            raise

    def _start(self) -> None:
        """Write down the Plan, have the ranks forked, and listen to each of them."""
        self._selector = self.files.enter_context(DefaultSelector())
        self._orders = self.files.enter_context(os.fdopen(nameless_file("orders"), "wb"))
        self.files.callback(os.close, store := nameless_file("store"))
        self._selector.register(self._socket, EVENT_READ, self._hear_server)
        self._write_orders(self.plan)
        for number in range(self.plan.world_size):
            shared = [store, self._orders.fileno()]
            rank = RankProcess(number, self._matcher, self.files, self._socket, shared)
            self._selector.register(rank.control, EVENT_READ, partial(self._hear, rank))
            self._selector.register(rank.output.fd, EVENT_READ, partial(self._read_output, rank))
            self.ranks.append(rank)

    def _write_orders(self, what: Plan | RankJob) -> None:
        """Write down what every rank will read: see plan.py."""
        pickle.dump(what, self._orders, protocol=5)
        self._orders.flush()

    def end(self) -> None:
        """Have the fork server kill the ranks and all that they started; close our files."""
        for rank in self.ranks:
            self._server.imports.update(dict.fromkeys(rank.outcome.imports if rank.outcome else ()))
        with suppress(OSError):  # the fork server may have died before
            self._socket.shutdown(socket.SHUT_RDWR)
        self.files.close()
        self.ranks = []

    def _react(self, until: float) -> None:
        """Wait for something to happen, until a time on the perf_counter at most; react to it."""
        for key, _ in self._selector.select(max(0.0, until - time.perf_counter())):
            key.data()

    # -- starting -----------------------------------------------------------------------------

    def wait_until_ready(self, deadline: Deadline) -> None:
        """Wait until the processes are there and have formed their group, if they shall."""
        while not all(rank.ready for rank in self.ranks):
            self._react(deadline.at)
            if failed := self._failures():
                raise NotStarted(f"the ranks could not form a process group: {failed[0].message}")
            if deadline.passed:
                raise Hang(
                    f"the ranks did not start within {deadline.seconds:g} s, and the first run() "
                    "of a kernel takes longest: give it longer, run(…, timeout=seconds)"
                )

    def is_fresh(self) -> bool:
        """Whether a world that stands by is still what a new one would be."""
        try:
            self._react(until=0.0)  # has one of its ranks died, or the fork server?
        except CourseError:
            return False
        # its ranks count these seconds as well, and leave when they are over
        young = time.perf_counter() - self._born < 0.9 * self.plan.standby
        return young and not self._failures()

    # -- working ------------------------------------------------------------------------------

    def work(self, call: bytes, deadline: Deadline, record: bool) -> Run:
        """Give every rank its job, and wait for all of them."""
        t0 = time.perf_counter()
        surroundings = os.getcwd(), list(sys.path), arguments(), log_settings()
        self._write_orders(RankJob(call, t0, *surroundings, record, notebook_cells()))
        for rank in self.ranks:
            rank.wake()
        detector = stuck_ranks.DeadlockDetector(self.ranks, self._matcher)
        try:
            with many_events():
                while not all(rank.returned for rank in self.ranks):
                    self._react(min(deadline.at, detector.next_look))
                    # A mismatch explains more than the failures that it has led to.
                    if self._failures():
                        self._hear_others()
                        threads = self._matcher.two_threads()
                        raise self._matcher.mismatch() or root_cause(self._failures(), threads)
                    if error := detector.look():
                        raise error
                    if deadline.passed and (running := self._ask_for_stacks()):
                        raise stuck_ranks.hang_error(running, deadline.seconds)
                self._check_calls()
            ends = self._outcomes()
            results = [end.value() for end in ends]
        except CourseError as error:
            error.run = self._make_run([None] * len(self.ranks), 0.0, record)
            raise
        # All ranks' times are of one clock, as they are processes of one machine.
        seconds = max(end.at for end in ends) - min(end.began for end in ends)
        return self._make_run(results, seconds, record)

    def _outcomes(self) -> list[RankOutcome]:
        return [rank.outcome for rank in self.ranks if rank.outcome]

    def _failures(self) -> list[RankOutcome]:
        return [outcome for outcome in self._outcomes() if not outcome.ended_well]

    def _check_calls(self) -> None:
        """Every rank has returned. Raises if calls met that do not fit, although the backend
        "succeeded"; if a call met nobody; or if a Work was waited for too late, or never.
        """
        self._read_logs()
        found: CourseError | None = self._matcher.mismatch() or self._matcher.absence()
        if found := found or next(filter(None, (rank.find_hazard() for rank in self.ranks)), None):
            raise found

    def _make_run(self, results: list[Any], seconds: float, record: bool) -> Run:
        """The Run, once everything that was printed has been shown."""
        for rank in self.ranks:
            new = rank.output.read() + rank.output.finish()
            show(new if rank is self.ranks[0] else rank.output.text)
        self._read_logs()
        trace = to_trace(self.ranks, record)
        output = "".join(rank.output.text for rank in self.ranks)
        return Run(results, trace, seconds, self.plan.world_size, self.plan.backend, output)

    def _read_logs(self) -> None:
        for rank in self.ranks:
            rank.read_log()

    # -- reacting -----------------------------------------------------------------------------

    def _read_output(self, rank: RankProcess) -> None:
        new = rank.output.read()
        if rank is self.ranks[0]:
            show(new)
        if rank.output.ended:
            self._selector.unregister(rank.output.fd)

    def _hear(self, rank: RankProcess) -> None:
        if not rank.listen():
            self._selector.unregister(rank.control)

    def _hear_server(self) -> None:
        """Take what the fork server says of ranks. Raises NotStarted if it has died."""
        try:
            while packet := self._socket.recv(1 << 10, socket.MSG_DONTWAIT):
                kind, *values = pickle.loads(packet)
                if kind == "pid":  # they are forked in the order in which they were asked for
                    next(rank for rank in self.ranks if not rank.pid).stack.pid = values[0]
                else:
                    self._note_death(*values)
        except OSError as error:
            if isinstance(error, BlockingIOError):  # that was all, so far
                return
        words = self._server.last_complaint()
        raise NotStarted(f"the process that starts ranks has died{words}: run the cell again")

    def _note_death(self, pid: int, code: int) -> None:
        """A rank's process has ended: if it had not said how, that is its outcome."""
        rank = next(rank for rank in self.ranks if rank.pid == pid)
        rank.read_log()  # its RankOutcome, if it wrote one, goes before its death
        if rank.outcome is None or rank.returned:  # others may not have read what it sent
            message = f"rank {rank.number} ended with code {code}"
            now = time.perf_counter()
            rank.outcome = RankOutcome(rank.number, "died", now, message=message, code=code)

    # -- when something went wrong --------------------------------------------------------------

    def _hear_others(self) -> None:
        """After a first failure, wait for what the other ranks still have to say.

        A rank that waits for a call which all have made will come out of it. If so far only
        connections were lost, any rank that waits is about to say why.
        """
        self._read_logs()
        stuck_ranks.ask_who_is_late(self.ranks)
        only_lost = all(outcome.lost_its_peer for outcome in self._failures())

        def has_spoken(rank: RankProcess) -> object:
            call = None if only_lost else rank.blocked_in
            return rank.outcome or (call and self._matcher.find_missing(call))

        self._listen(has_spoken)
        stuck_ranks.ask_who_is_late(self.ranks)
        stuck_ranks.find_late(self.ranks)
        for rank in self.ranks:
            if rank.outcome and rank.outcome.state == "died":
                rank.outcome.lines = rank.stack.lines
                rank.outcome.last_call = rank.blocked_in or rank.last_call
                rank.outcome.last_words = rank.output.terminated_with

    def _ask_for_stacks(self) -> list[RankProcess]:
        """Have every rank that still runs write down where it stands; returns those ranks."""
        running = [rank for rank in self.ranks if rank.outcome is None]
        for rank in running:
            rank.stack.ask()
        self._listen(lambda rank: rank.outcome or rank.stack.text)
        return [rank for rank in running if rank.outcome is None]

    def _listen(self, has_spoken: Callable[[RankProcess], object]) -> None:
        """React until every rank has spoken, or for a second. React at least once, because a call
        that torch refuses at once looks like one that blocks.
        """
        end = time.perf_counter() + LISTEN_SECONDS
        while time.perf_counter() < end:
            self._react(time.perf_counter() + 0.02)
            self._read_logs()
            if all(map(has_spoken, self.ranks)):
                return
