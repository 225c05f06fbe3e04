"""A job as its folder tells of it: what each rank has called, and what is wrong."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from course_lib.diagnosis import deadlock
from course_lib.diagnosis.failure import RankOutcome, root_cause, who_left
from course_lib.diagnosis.lines import call_text, ranks_text
from course_lib.diagnosis.matching import CallMatcher
from course_lib.errors import CourseError
from course_lib.ranks.stack import Stack
from course_lib.ranks.state import RankState
from course_lib.trace import Event, Line
from course_lib.watch.folder import OF_A_CALL, LogReader, this_machine
from course_lib.watch.rank import ASK

_MANY = 20_000  # calls of a rank that are remembered before those that have met are forgotten


class Job:
    """``folders`` have the ranks' logs, each some of them; ``since`` is when it was started, of one
    that runs.
    """

    def __init__(self, folders: Collection[Path], size: int, since: float = 0.0) -> None:
        self.matcher = CallMatcher()
        self.ranks: list[RankState] = []
        self.live = since > 0
        self.asked: set[int] = set()  # whom somebody else has ended
        self._leaving: dict[int, RankOutcome] = {}  # of ranks that have called sys.exit(0)
        self._parents: dict[int, int] = {}  # by rank, where they run on this machine
        self._folders = folders
        self._enough = 0  # calls, before some are forgotten
        self._logs = [LogReader(self._folder_of(rank), rank, since) for rank in range(size)]
        nowhere = Stack(os.open(os.devnull, os.O_RDONLY))
        for number in range(size):
            records = self._records_of(number)
            self.ranks.append(RankState(number, self.matcher, records, nowhere))
        self._begin()

    def _folder_of(self, rank: int) -> Path:
        holding = (f for f in self._folders if (f / f"rank-{rank}.log").exists())
        return next(holding, next(iter(self._folders)))

    def _begin(self) -> None:
        """Where logs begin late, each at its own call, begin where all have begun."""
        for log in self._logs:
            log.open()
        keys = {key for log in self._logs for key in log.counts}
        for key in keys:
            counts = [log.counts.get(key, 0) for log in self._logs]
            for rank, count in enumerate(counts):
                self.matcher.skip(key, rank, max(counts) - count)
        for log, state in zip(self._logs, self.ranks, strict=True):
            state.events.extend([None] * log.before)  # type: ignore[list-item]

    @property
    def dropped(self) -> int:
        """How many calls its logs no longer have."""
        return sum(log.before for log in self._logs)

    @property
    def seen(self) -> list[RankState]:
        """The ranks that have written something."""
        return [rank for rank in self.ranks if rank.ready]

    def read(self) -> None:
        for rank in self.ranks:
            rank.read_log()
        if self.live and len(self.matcher.known) > max(self._enough, _MANY * len(self.ranks)):
            for event in self.matcher.forget({rank.number for rank in self.seen}):
                self.ranks[event.rank].events[event.seq] = None  # type: ignore[call-overload]
            self._enough = 2 * len(self.matcher.known)

    # -- what a rank's log says of its process -------------------------------------------------

    def _records_of(self, number: int):
        def new_records() -> Iterator[tuple]:
            for record in self._logs[number].read():
                if record[0] == "process":
                    self._is_process(self.ranks[number], *record[1:])
                    yield "flag", "ready"
                elif record[0] == "ending":
                    self._is_ending(self.ranks[number], *record[1:])
                elif record[0] == "exit":
                    self._has_ended(self.ranks[number], *record[1:])
                elif record[0] == "outcome":
                    continue  # pickled, by a rank of ``run``: whoever wrote it is a stranger
                elif record[0] not in OF_A_CALL or self.ranks[number].events[record[1]]:
                    yield record  # or else of a call that is forgotten

        return new_records

    def _is_process(self, rank: RankState, machine: str, pid: int, parent: int, _at: float) -> None:
        here = self.live and machine == this_machine()
        path = self._folder_of(rank.number) / f"rank-{rank.number}.stack"
        if path.exists():
            rank.stack = Stack(os.open(path, os.O_RDONLY), pid if here else 0, ASK)
        if here:
            self._parents[rank.number] = parent

    def _is_ending(self, rank: RankState, *facts: Any) -> None:
        """Its script has; who ends well may still call something at exit."""
        state, at, kind, message, lines, code, last_words = facts
        where = [Line(*line) for line in lines]
        outcome = RankOutcome(rank.number, state, at, kind, message, where, code)
        outcome.last_words = last_words
        if outcome.ended_well:
            self._leaving[rank.number] = outcome
        else:
            rank.outcome = outcome

    def _has_ended(self, rank: RankState, code: int, at: float, asked_at: float | None) -> None:
        told = rank.outcome
        if asked_at is not None and (told is None or told.at > asked_at):
            self.asked.add(rank.number)
        if told is None and code == 0:
            told = rank.outcome = self._leaving.get(rank.number)
        if told is None:
            state = "returned" if code == 0 and rank.number not in self.asked else "died"
            told = rank.outcome = RankOutcome(rank.number, state, at, code=code)
        if told.state == "died":
            told.lines = rank.stack.lines if code in _CRASHES else []
            told.last_call = rank.waits_for or _last(rank)

    def look_for_lost(self, all_asked: bool) -> None:
        """A parent that was killed, and its rank with it, has written nothing down."""
        for number, parent in self._parents.items():
            rank = self.ranks[number]
            if not os.path.exists(f"/proc/{parent}") and rank.outcome is None:
                rank.read_log()
                if rank.outcome is None:
                    at = float("inf") if all_asked else 0.0
                    self._has_ended(rank, -9, at, at if all_asked else None)

    # -- what is wrong -------------------------------------------------------------------------

    @property
    def failures(self) -> list[RankOutcome]:
        """Of those whom nobody else has ended; who interrupts a job knows why it ended."""
        own = (rank.outcome for rank in self.ranks if rank.number not in self.asked)
        failed = [outcome for outcome in own if outcome and not outcome.ended_well]
        return [outcome for outcome in failed if outcome.kind != "KeyboardInterrupt"]

    @property
    def only_victims(self) -> bool:
        """Whether all who failed had lost a peer."""
        return all(outcome.lost_its_peer for outcome in self.failures)

    def verdict(self) -> CourseError | None:
        """What is wrong with a job that has ended, or of which a rank has failed."""
        found: CourseError | None = self.matcher.mismatch()
        failures = self.failures
        if not found and self.only_victims:
            found = self._lost()
        if found:
            return found
        if not failures or self._left_as_one():
            return None
        error = root_cause(failures)
        more = [*(self._unmet() if self.only_victims else ()), *self._unseen()]
        error.args = ("\n".join([str(error), *more]),)
        return error

    def _left_as_one(self) -> bool:
        """Whether all who ended have called ``sys.exit()``, and nobody needed them any more."""
        left = all(outcome.state == "left" for outcome in self.failures)
        return left and not any(rank.waits_for for rank in self.ranks)

    def _stands_in(self, rank: RankState) -> Event | None:
        """The call that it stands in, or that it gave up when its peer had gone."""
        outcome = rank.outcome
        if outcome and outcome.lost_its_peer:
            return _last(rank)
        return None if outcome and outcome.ended_well else rank.blocked_in

    def _lost(self) -> CourseError | None:
        """The Deadlock of those who wait for what can never come."""
        if any(rank.has_threads for rank in self.ranks):
            return None
        blocked = {r.number: call for r in self.ranks if (call := self._stands_in(r))}
        returned = [r.number for r in self.ranks if r.returned and r.number not in self.asked]
        lost = deadlock.find_lost(self.matcher, blocked, returned)
        if not lost:
            return None
        lines = {r: self.ranks[r].blocked_at for r in lost}
        groups, calls = self.matcher.groups, self.matcher.collectives
        error = deadlock.of_calls(blocked, lines, lost, returned, groups, calls=calls)
        return who_left(error, self.outcomes)

    @property
    def outcomes(self) -> list[RankOutcome]:
        return [rank.outcome for rank in self.ranks if rank.outcome]

    def unmet(self, rank: RankState) -> bool:
        """Whether it has a call under way that others have not made."""
        return any(self.matcher.missing(call) for call in rank.in_flight.values())

    def _unmet(self) -> Iterator[str]:
        """Whose call was not made, as far as the logs say."""
        for outcome in self.failures:
            call = _last(self.ranks[outcome.rank])
            if call and (missing := self.matcher.missing(call)):
                verb = "has" if len(missing) == 1 else "have"
                yield f"{ranks_text(missing)} {verb} not made its call {call_text(call)}."
                break

    def _unseen(self) -> Iterator[str]:
        """Whose logs are on other machines."""
        if unseen := [rank.number for rank in self.ranks if not rank.ready]:
            verb = "has" if len(unseen) == 1 else "have"
            yield f"{ranks_text(unseen)} {verb} no log here: read the folders of all machines."


_CRASHES = (-4, -6, -7, -8, -11)  # at which its stack is written down


def _last(rank: RankState) -> Event | None:
    return next(reversed(rank.events), None)
