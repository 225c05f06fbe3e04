"""One world: its processes, from their start to their end, and everything they say meanwhile.

Sockets, pipes and files of all ranks are watched at once in the thread that waits for them: there
is no thread to be left behind, an interrupt comes through, and output appears in its own cell.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from functools import partial
from selectors import EVENT_READ as READ
from selectors import DefaultSelector
from typing import Any

from course_lib.errors import CourseError, Hang, RankFailed
from course_lib.failures import root_cause
from course_lib.pickling import unpack, why
from course_lib.ranks import diagnosis, job, wire
from course_lib.ranks.diagnosis import Standing
from course_lib.ranks.history import History, to_trace
from course_lib.ranks.log import nameless_file
from course_lib.ranks.matching import CallMatcher
from course_lib.ranks.output import RankOutput, show
from course_lib.ranks.server import Server, Store
from course_lib.ranks.worker import Job, Setup
from course_lib.trace import Run
from course_lib.user_code import notebook_cells

SETTLE_SECONDS = 1.0  # after a first failure, for others to say what became of them
LOOK_SECONDS = 0.25  # between two looks at the logs of ranks that take their time
DEADLOCK_SECONDS = 1.5  # for which a standstill must last, unchanged, before it is called one
STACK_SECONDS = 1.0  # for a rank to write down where it stands


class Rank:
    """The notebook's ends of one rank's socket, pipe and files."""

    def __init__(self, number: int, matcher: CallMatcher) -> None:
        self.control, self._their_control = socket.socketpair()
        out, self._their_out = os.pipe()
        self.log_fd, self.stack_fd = nameless_file("log"), nameless_file("stack")
        self.pid, self.ready = 0, False
        self.channel = wire.Channel(self.control)
        self.output = RankOutput(number, out)
        self.standing = Standing(number, history=History(number, self.log_fd, matcher))
        self.parcel = b""  # its result, or the exception that it raised
        self.span = (0.0, 0.0)

    def their_fds(self) -> list[int]:
        return [self._their_control.fileno(), self._their_out, self.log_fd, self.stack_fd]

    def handed_over(self) -> None:
        self._their_control.close()
        os.close(self._their_out)

    def close(self) -> None:
        self.control.close()
        for fd in (self.output.fd, self.log_fd, self.stack_fd):
            os.close(fd)


class World:
    """A number of ranks with one process group, for one job."""

    def __init__(self, plan: job.Plan, server: Server) -> None:
        self.plan = plan
        self.ranks: list[Rank] = []
        self._born = time.perf_counter()
        self._keep = job.spare_seconds() or job.SPARE_SECONDS
        self._surroundings = job.surroundings()
        self._matcher = CallMatcher()
        self._stuck: dict[int, int] = {}  # rank → number of the call it is stuck in
        self._stuck_since = self._next_look = 0.0
        self._server = server.open_world()
        self._server_channel = wire.Channel(self._server)
        self._last_words = server.last_words
        self._store = Store(plan.init)
        self._selector = DefaultSelector()
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        self._selector.register(self._server, READ, self._from_server)
        for number in range(self.plan.world_size):
            self.ranks.append(rank := Rank(number, self._matcher))
            try:
                socket.send_fds(self._server, [b"r"], [*rank.their_fds(), self._store.fd])
            finally:
                rank.handed_over()
            self._selector.register(rank.control, READ, partial(self._from_rank, rank))
            self._selector.register(rank.output.fd, READ, partial(self._printed, rank))
            who = job.identity(number, self.plan.world_size, self._store.port)
            setup = Setup(number, self.plan, self._surroundings | who, self._keep)
            self._send(rank, wire.packed(setup))

    def end(self) -> None:
        """Have the fork server kill the ranks, and all that they started."""
        with contextlib.suppress(OSError):  # the fork server may have died before
            self._server.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End it, and give back its files."""
        self.end()
        self.release()

    def release(self) -> None:
        """Give back this process's files, and leave the world alone."""
        if self._server.fileno() < 0:
            return
        self._server.close()
        self._selector.close()
        for rank in self.ranks:
            rank.close()
        self.ranks = []
        self._store.close()

    def _turn(self, until: float) -> None:
        """Wait for something to happen, until a time on the perf_counter at most; react to it."""
        for key, _ in self._selector.select(max(0.0, until - time.perf_counter())):
            key.data()

    # -- forming ------------------------------------------------------------------------------

    def form(self, deadline: float | None = None) -> None:
        """Wait until the processes are there and have formed their process group."""
        deadline = deadline or time.perf_counter() + self.plan.timeout
        while not all(rank.ready for rank in self.ranks):
            self._turn(deadline)
            if failed := [s for s in self.standings if s.failed]:
                raise CourseError(f"the ranks could not form a process group: {failed[0].message}")
            if time.perf_counter() > deadline:
                raise Hang(
                    f"the ranks did not start within {self.plan.timeout:g} s, and the first run() "
                    "of a kernel takes longest: give it longer, run(…, timeout=seconds)"
                )

    @property
    def fresh(self) -> bool:
        """Whether a world that waits for its job is still what a new one would be."""
        try:
            self._turn(until=0.0)  # has one of its ranks died, or the fork server?
        except CourseError:
            return False
        if any(s.failed for s in self.standings):
            return False
        young = time.perf_counter() - self._born < 0.9 * self._keep  # its ranks count, too
        return young and self._surroundings == job.surroundings()

    # -- working ------------------------------------------------------------------------------

    def work(self, parcel: bytes, deadline: float) -> Run:
        """Give every rank its job, and wait for all of them."""
        names, sources = notebook_cells()
        t0 = time.perf_counter()
        self._next_look = t0 + LOOK_SECONDS
        todo = Job(parcel, t0, os.getcwd(), list(sys.path), self.plan.record, names, sources)
        order = wire.packed(todo)
        for rank in self.ranks:
            self._send(rank, order)
        while any(s.state != "returned" for s in self.standings):
            self._turn(min(deadline, time.perf_counter() + LOOK_SECONDS))
            if any(s.failed for s in self.standings):
                self._settle()
                found = self._matcher.mismatch()
                raise self._told(found or root_cause(self.standings))
            if lost := self._find_deadlock():
                raise self._told(diagnosis.why_stuck(self.standings, self._matcher, lost))
            if time.perf_counter() > deadline:
                self._take_stacks()
                if not any(s.state == "running" for s in self.standings):
                    continue  # they came back while we asked
                raise self._told(diagnosis.hang(self.standings, self.plan.timeout))
        return self._finished()

    @property
    def standings(self) -> list[Standing]:
        return [rank.standing for rank in self.ranks]

    def _find_deadlock(self) -> dict[int, tuple[int, ...]]:
        """Who waits in vain and for whom; empty until it has been so for long enough."""
        now = time.perf_counter()
        if now < self._next_look:
            return {}
        self._next_look = now + LOOK_SECONDS
        self._look()
        lost = diagnosis.find_deadlock(self.standings, self._matcher)
        stuck = {r: e.seq for r in lost if (e := self.standings[r].history.blocked_in)}
        if stuck != self._stuck:
            self._stuck, self._stuck_since = stuck, now
        return lost if now - self._stuck_since >= DEADLOCK_SECONDS else {}

    def _look(self) -> None:
        """Read what the ranks have written down since the last look."""
        for standing in self.standings:
            standing.history.update()

    def _finished(self) -> Run:
        self._look()
        if error := diagnosis.check_finished(self.standings, self._matcher):
            raise self._told(error)
        start = min(rank.span[0] for rank in self.ranks)
        end = max(rank.span[1] for rank in self.ranks)
        return self._run([self._result(rank) for rank in self.ranks], end - start)

    def _result(self, rank: Rank) -> Any:
        try:
            return unpack(rank.parcel)
        except Exception as error:
            s = rank.standing
            message = f"rank {s.rank} returned a {s.kind}, which cannot be unpickled here"
            failed = RankFailed(f"{message} ({why(error)}): return plain data", s.rank, s.kind)
            raise self._told(failed) from error

    def _run(self, results: list[Any], seconds: float) -> Run:
        self._show_all()
        self._look()
        trace = to_trace([s.history for s in self.standings], self.plan.record)
        output = "".join(rank.output.text for rank in self.ranks)
        return Run(results, trace, seconds, self.plan.world_size, self.plan.backend, output)

    def _told(self, error: CourseError) -> CourseError:
        """Attach what was recorded until then, and show everything that was printed."""
        error.run = self._run([None] * self.plan.world_size, 0.0)
        return error

    def _show_all(self) -> None:
        for number, rank in enumerate(self.ranks):
            new = rank.output.read() + rank.output.finish()
            show(new if number == 0 else rank.output.text)

    # -- reacting -----------------------------------------------------------------------------

    def _printed(self, rank: Rank) -> None:
        new = rank.output.read()
        if rank.standing.rank == 0:
            show(new)
        if rank.output.ended:
            self._selector.unregister(rank.output.fd)

    def _from_rank(self, rank: Rank) -> None:
        if rank.channel.closed:
            return
        for state, fields in rank.channel.serve():
            self._said(rank, state, fields)
        if rank.channel.closed:
            self._selector.unregister(rank.control)
        else:
            react = self._selector.get_key(rank.control).data
            self._selector.modify(rank.control, rank.channel.wants, react)

    def _send(self, rank: Rank, message: bytes) -> None:
        rank.channel.put(message)
        self._from_rank(rank)

    def _said(self, rank: Rank, state: str, fields: dict[str, Any]) -> None:
        """What a rank says of itself: that it is ready, or how its part ended."""
        if state == "ready":
            rank.ready = True
            return
        rank.parcel = fields.pop("parcel", b"")
        rank.span = (fields.pop("start", 0.0), fields["at"])
        vars(rank.standing).update(fields, state=state)
        if state == "raised" and rank.parcel:
            with contextlib.suppress(Exception):  # the words say as much
                rank.standing.exception = unpack(rank.parcel)

    def _from_server(self) -> None:
        for kind, *values in self._server_channel.serve():
            if kind == "pid":
                next(rank for rank in self.ranks if not rank.pid).pid = values[0]
            else:
                self._ended(*values)
        if self._server_channel.closed:
            words = self._last_words()
            raise CourseError(f"the process that starts ranks has died{words}: run the cell again")

    def _ended(self, pid: int, code: int) -> None:
        rank = next(rank for rank in self.ranks if rank.pid == pid)
        self._from_rank(rank)  # its last words go before its death
        if not rank.standing.failed:
            rank.standing.state, rank.standing.at = "died", time.perf_counter()
            rank.standing.code = code
            rank.standing.message = f"rank {rank.standing.rank} ended with code {code}"

    # -- when something went wrong --------------------------------------------------------------

    def _settle(self) -> None:
        """After a first failure: let every rank that can still say something say it."""
        deadline = time.perf_counter() + SETTLE_SECONDS
        may_speak = True  # once at least: a call that is refused at once looks like one that blocks
        while may_speak and time.perf_counter() < deadline:
            self._turn(min(deadline, time.perf_counter() + 0.02))
            self._look()
            may_speak = any(map(self._may_speak, self.ranks))
        for rank in self.ranks:
            self._remember_where(rank)

    @staticmethod
    def _may_speak(rank: Rank) -> bool:
        return rank.standing.state == "running" and rank.standing.history.blocked_in is None

    def _take_stacks(self) -> None:
        """Ask every rank that is still running where it stands; faulthandler writes it down."""
        asked = [rank for rank in self.ranks if rank.standing.state == "running"]
        for rank in asked:
            rank.standing.history.update()
            os.kill(rank.pid, signal.SIGUSR1)
        deadline = time.perf_counter() + STACK_SECONDS
        while time.perf_counter() < deadline and not all(map(self._read_stack, asked)):
            self._turn(time.perf_counter() + 0.02)
        for rank in asked:
            rank.standing.stack = self._read_stack(rank)

    def _remember_where(self, rank: Rank) -> None:
        """The last thing that a rank did."""
        s = rank.standing
        s.last_call = s.history.blocked_in or s.history.last
        s.lines = diagnosis.stack_lines(self._read_stack(rank)) or s.lines

    @staticmethod
    def _read_stack(rank: Rank) -> str:
        size = os.fstat(rank.stack_fd).st_size
        return os.pread(rank.stack_fd, size, 0).decode("utf-8", "replace")
