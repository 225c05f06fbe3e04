"""A job, as the logs in its folder tell it: what each rank has called, and what is wrong.

>>> job = Job([Path("logs/restart-0")], size=4)
>>> job.read()                      # again and again, while the job runs
>>> job.verdict()                   # when it has ended, or a rank has failed
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from course_lib.diagnosis.failure import RankOutcome, root_cause
from course_lib.diagnosis.lines import ranks_have
from course_lib.diagnosis.matching import CallMatcher
from course_lib.errors import CourseError
from course_lib.recording.rank_state import RankState
from course_lib.recording.stack import Stack
from course_lib.recording.stuck_ranks import DeadlockDetector, find_late
from course_lib.trace import Event, Line
from course_tools.watch.job_folder import OF_A_CALL, LogReader, this_machine
from course_tools.watch.watched_rank import ASK

_MANY = 20_000  # calls of a rank that are remembered before those that have met are forgotten
_MOST_UNWAITED = 1000  # calls that nobody has waited for, of which a rank remembers this many
_CRASHES = (-4, -6, -7, -8, -11)  # exit codes of a crash, at which faulthandler writes the stack


class WatchedRank(RankState):
    """The state of one rank of a job. Its log also tells about its process."""

    def __init__(
        self, number: int, matcher: CallMatcher, folder: Path, since: float, nowhere: Stack
    ) -> None:
        super().__init__(number, matcher, self._new_of_log, nowhere)
        self.log = LogReader(folder, number, since)
        self.asked = False  # somebody asked its process to end
        self._live = since > 0
        self._stack = folder / f"rank-{number}.stack"
        self._leaving: RankOutcome | None = None  # of sys.exit(0), after which calls may come
        self._parent = 0  # the parent process of the rank, if that runs on this machine

    def _new_of_log(self) -> Iterator[tuple]:
        """The log's new records, without those of calls that were dropped or forgotten."""
        for record in self.log.read():
            if record[0] not in OF_A_CALL or self.events[record[1]]:
                yield record

    def forget(self, call: int) -> None:
        """Forget a call; some that nobody has waited for are kept, to be reported as Hazards."""
        if call not in self.unwaited or len(self.unwaited) > _MOST_UNWAITED:
            self.unwaited.pop(call, None)
            self.events[call] = None  # type: ignore[call-overload]

    def _read_before(self, calls: int, _counts: object) -> None:
        missing = calls - len(self.events)
        self.events.extend([None] * missing)  # type: ignore[list-item]

    def _read_process(self, machine: str, pid: int, parent: int, _at: float) -> None:
        """A rank has begun, in this process of this machine."""
        self.ready = True
        here = self._live and machine == this_machine()
        if self._stack.exists():
            self.stack = Stack(os.open(self._stack, os.O_RDONLY), pid if here else 0, ASK)
        if here:
            self._parent = parent

    def _read_outcome(self, _pickled: bytes) -> None:
        """Ignore what only ranks of ``run`` write: a stranger's log must not be unpickled."""

    def _read_ending(
        self, state: str, at: float, kind: str, said: str, lines: list, code: int, last_words: str
    ) -> None:
        """The script has ended. If it ended well, something may still be called at exit."""
        outcome = RankOutcome(self.number, state, at, kind, said, code=code, last_words=last_words)
        outcome.lines = [Line(*line) for line in lines]
        if outcome.ended_well:
            self._leaving = outcome
        else:
            self.outcome = outcome

    def _read_exit(self, code: int, at: float, asked_at: float | None) -> None:
        """The rank's process has ended: what is known of it by now is its outcome."""
        outcome = self.outcome
        if asked_at is not None and (outcome is None or outcome.at > asked_at):
            self.asked = True
        if outcome is None and code == 0:
            outcome = self._leaving
        if outcome is None:
            state = "returned" if code == 0 and not self.asked else "died"
            outcome = RankOutcome(self.number, state, at, code=code)
        if outcome.state == "died":
            outcome.lines = self.stack.lines if code in _CRASHES else []
            outcome.last_call = self.waits_for or self.last_call
        self.outcome = outcome

    READERS = RankState.READERS | {
        "before": _read_before,
        "process": _read_process,
        "outcome": _read_outcome,
        "ending": _read_ending,
        "exit": _read_exit,
    }

    def look_for_parent(self, all_asked: bool) -> None:
        """One that was killed, and this rank with it, has written nothing down."""
        if self._parent and self.outcome is None and not os.path.exists(f"/proc/{self._parent}"):
            self.read_log()
            if self.outcome is None:
                at = float("inf") if all_asked else 0.0
                self._read_exit(-9, at, at if all_asked else None)


class Job:
    """A job of ``size`` ranks, whose logs are in ``folders``, each rank's in one of them.

    The name of the first folder says which start of the job it is. ``since`` is the time of that
    start for a job that runs, 0 for one that has ended.
    """

    def __init__(self, folders: Sequence[Path], size: int, since: float = 0.0) -> None:
        self.matcher = CallMatcher()
        self.folder = folders[0]
        self.live = since > 0
        self._enough = 0  # calls, before some are forgotten
        self.ranks: list[WatchedRank] = []
        # Every rank has this stack until it has one of its own.
        nowhere = Stack(os.open(os.devnull, os.O_RDONLY))
        for number in range(size):
            holding = (f for f in folders if (f / f"rank-{number}.log").exists())
            folder = next(holding, self.folder)
            self.ranks.append(WatchedRank(number, self.matcher, folder, since, nowhere))
        self.detector = DeadlockDetector(self.ranks, self.matcher)
        self._skip_dropped_calls()

    def _skip_dropped_calls(self) -> None:
        """Begin where all logs have begun: each may have dropped another number of first calls."""
        logs = [rank.log for rank in self.ranks]
        for log in logs:
            log.open()
        for key in {key for log in logs for key in log.counts}:
            self.matcher.skip(key, [log.counts.get(key, 0) for log in logs])

    @property
    def dropped(self) -> int:
        """How many calls the logs no longer have."""
        return sum(rank.log.before for rank in self.ranks)

    @property
    def seen(self) -> list[WatchedRank]:
        """The ranks that have written something."""
        return [rank for rank in self.ranks if rank.ready]

    def read(self) -> None:
        """Read what is new in all logs, and forget old calls of a job that makes very many."""
        for rank in self.ranks:
            rank.read_log()
        if self.live and len(self.matcher.known) > max(self._enough, _MANY * len(self.ranks)):
            for event in self.matcher.forget({rank.number for rank in self.seen}):
                self.ranks[event.rank].forget(event.seq)
            self._enough = 2 * len(self.matcher.known)

    # -- what is wrong -------------------------------------------------------------------------

    @property
    def failures(self) -> list[RankOutcome]:
        """The failures of ranks that nobody asked to end. Whoever types Ctrl-C knows the reason."""
        own = (rank.outcome for rank in self.ranks if not rank.asked)
        failed = [outcome for outcome in own if outcome and not outcome.ended_well]
        return [outcome for outcome in failed if outcome.kind != "KeyboardInterrupt"]

    @property
    def only_victims(self) -> bool:
        """Whether every failed rank had lost a peer, or had waited in vain for one."""
        return all(outcome.is_victim for outcome in self.failures)

    def verdict(self) -> CourseError | None:
        """What is wrong with a job that has ended, or in which a rank has failed."""
        found: CourseError | None = self.matcher.mismatch()
        failures = self.failures
        if not found and self.only_victims:
            found = self._find_deadlock()
        if found:
            return found
        if not failures:
            ended = (rank for rank in self.ranks if rank.returned and not rank.asked)
            return next(filter(None, (rank.find_hazard() for rank in ended)), None)
        if self._have_all_left():
            return None
        find_late(self.ranks)
        more = [*self.matcher.two_threads(), *self._say_missing_call(), *self._say_missing_logs()]
        return root_cause(failures, more)

    def _have_all_left(self) -> bool:
        """Whether each failed rank has called ``sys.exit()``, and nobody waits for it."""
        left = all(outcome.state == "left" for outcome in self.failures)
        return left and not any(rank.waits_for for rank in self.ranks)

    def _find_call(self, rank: WatchedRank) -> Event | None:
        """The call in which a rank waits, or that it gave up because its peer did not come."""
        if rank.outcome:  # a rank that has raised waits no more
            return rank.last_call if rank.outcome.is_victim else None
        return rank.blocked_in

    def _find_deadlock(self) -> CourseError | None:
        """The Deadlock of the ranks that wait for what can never come."""
        if any(rank.has_threads for rank in self.ranks):
            return None
        blocked = {r.number: call for r in self.ranks if (call := self._find_call(r))}
        returned = [r.number for r in self.ranks if r.returned and not r.asked]
        return self.detector.error(blocked, returned)

    def _say_missing_call(self) -> list[str]:
        """Say which rank has not made which call, if nothing better is known."""
        if not self.only_victims or any(outcome.late for outcome in self.failures):
            return []
        failed = (self.ranks[outcome.rank] for outcome in self.failures)
        unmet = (rank.say_unmet(rank.last_call) for rank in failed)
        return [f"{who}." for who in unmet if who][:1]

    def _say_missing_logs(self) -> Iterator[str]:
        """Say which ranks have not begun yet, or are on other machines."""
        if unseen := [rank.number for rank in self.ranks if not rank.ready]:
            yield f"{ranks_have(unseen)} no log here: none was begun, or another machine has it."
