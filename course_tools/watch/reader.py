"""Reads along while a job runs, in the parent of a machine's first rank."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress

from course_lib.recording.stuck_ranks import LOOK_SECONDS, ask_who_is_late
from course_tools.watch.job import Job
from course_tools.watch.job_folder import append_exit
from course_tools.watch.parent import Parent
from course_tools.watch.reports import error_report, say, waiting_report

QUIET = float(os.environ.get("COURSE_LIB_QUIET", "30"))  # seconds without a call, while some wait
SETTLE = 1.0  # seconds in which others may say what became of them, after a first failure
SETTLE_VICTIMS = 2.0  # where nobody has failed yet but those who have lost a peer
# What is wrong with calls of a job that goes on, with wrong numbers: nobody has to end it.
GOES_ON = ("outputs", "stride", "module")
LINGER = 20.0  # for ranks that torchrun has asked to end


class Watcher:
    """``local`` are the ranks of this machine, the first of which is its parent's."""

    def __init__(
        self, parent: Parent, job: Job, local: Sequence[int], as_json: bool, ends: bool
    ) -> None:
        self.parent, self.job, self.local = parent, job, local
        self.as_json, self.ends = as_json, ends
        self.told = self._concluded = False
        self._failed_at = self._ended_at = 0.0
        self._calls, self._quiet_since = -1, time.monotonic()
        self._asked_for_stacks = False
        self._noted: set[bool] = set()  # whether it was while the group formed, or later

    def watch(self) -> None:
        """Until there is nothing more to be said, and the rank has ended."""
        next_look = 0.0
        while not self._is_over():
            self.parent.wait(LOOK_SECONDS / 2)
            if self.parent.code is not None and not self._ended_at:
                self._ended_at = time.monotonic()
                append_exit(self.job.folder, self.local[0], self.parent.code, self.parent.asked_at)
                next_look = 0.0
            if (now := time.monotonic()) >= next_look:
                next_look = now + LOOK_SECONDS
                self._look(now)

    def _is_over(self) -> bool:
        job, ended = self.job, self._ended_at
        if not ended:
            return False
        waited = time.monotonic() - ended
        known = [job.ranks[r] for r in self.local if job.ranks[r].ready or waited < SETTLE_VICTIMS]
        running = [rank for rank in known if rank.outcome is None]
        failed = self.parent.code != 0 and self.parent.asked_at is None
        if not running or (waited > LINGER and self.parent.asked_at is not None):
            self._conclude()
            return True
        return failed and (self._concluded or waited > SETTLE_VICTIMS)

    def _look(self, now: float) -> None:
        job = self.job
        job.read()
        for rank in job.ranks:
            rank.look_for_parent(self.parent.asked_at is not None)
        if self._concluded:
            return
        if job.failures:
            if not self._failed_at:
                self._failed_at = now
                ask_who_is_late(job.ranks)
            most = SETTLE_VICTIMS if job.only_victims else SETTLE
            if all(rank.outcome for rank in job.ranks):  # nobody else is there to say anything
                most = 0.0
            if now - self._failed_at >= most:
                self._conclude()
        elif self.parent.asked_at is None:
            if error := job.detector.look():
                self._tell(error)
            else:
                self._note_quiet(now)

    def _conclude(self) -> None:
        self._concluded = True
        if not self.told and (error := self.job.verdict()):
            self._tell(error)

    def _tell(self, error) -> None:
        self.told = self._concluded = True
        ends = self.ends and getattr(error, "what", "") not in GOES_ON
        if self._speaks:
            say(error_report(error, self.job, self.as_json, ends))
        if ends and self.parent.code is None:
            self.parent.kill()

    @property
    def _speaks(self) -> bool:
        """Whether no other reader says the same: that of rank 0 may read this folder, too."""
        return self.local[0] == 0 or not self.job.ranks[0].ready

    def _note_quiet(self, now: float) -> None:
        job = self.job
        calls = sum(len(rank.events) for rank in job.ranks)
        running = [rank for rank in job.ranks if not rank.outcome]
        forming = any(rank.forming for rank in running)
        waits = forming or any(
            rank.blocked_in or rank.say_unmet(*rank.in_flight.values()) for rank in running
        )
        if calls != self._calls or not waits:
            self._calls, self._quiet_since = calls, now
        if forming in self._noted or now - self._quiet_since < QUIET:
            return
        if not self._asked_for_stacks:
            self._asked_for_stacks = True
            for rank in job.seen:
                if rank.outcome is None:
                    rank.stack.ask()
            return  # the next look finds what they answer
        self._asked_for_stacks = False
        self._noted.add(forming)
        if self._speaks:
            say(waiting_report(job, QUIET, self.as_json))

    def clear(self) -> None:
        """Remove the logs of a job of which nothing was said."""
        if not self.told:
            shutil.rmtree(self.job.folder, ignore_errors=True)
            with suppress(OSError):  # other starts of the job are still there
                self.job.folder.parent.rmdir()
