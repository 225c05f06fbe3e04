"""Reads the logs while a job runs, in the parent of a machine's first rank.

>>> watcher = Watcher(parent, Job([folder], size, began), range(first, last + 1), False, False)
>>> watcher.watch()                 # until the rank has ended and nothing more is to be said
>>> watcher.clear()
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress

from course_lib.errors import Blocked
from course_lib.recording.stuck_ranks import LOOK_SECONDS, ask_who_is_late
from course_tools.watch.job import Job
from course_tools.watch.job_folder import append_exit
from course_tools.watch.parent import Parent
from course_tools.watch.reports import report_error, report_waiting, say

QUIET = float(os.environ.get("COURSE_LIB_QUIET", "30"))  # seconds without a call, while some wait
SETTLE = 1.0  # seconds after the first failure in which other ranks may still write theirs
SETTLE_VICTIMS = 2.0  # the same, if only ranks have failed that have lost a peer
# Mismatches (``error.what``) with which a job goes on, with wrong numbers: --end leaves it alone.
GOES_ON = ("outputs", "stride", "module")
LINGER = 20.0  # seconds to wait for ranks that torchrun has asked to end


class Watcher:
    """Watches a job: reads its logs, says what is wrong with it, and with ``ends`` ends it.

    ``local`` are the ranks of this machine; the first one is the child of ``parent``.
    """

    def __init__(
        self, parent: Parent, job: Job, local: Sequence[int], as_json: bool, ends: bool
    ) -> None:
        self.parent, self.job, self.local = parent, job, local
        self.as_json, self.ends = as_json, ends
        self.has_reported = self._concluded = False
        self._failed_at = self._ended_at = 0.0
        self._calls, self._quiet_since = -1, time.monotonic()
        self._asked_for_stacks = False
        self._noted: set[bool] = set()  # True: noted while the group formed; False: later

    def watch(self) -> None:
        """Watch until the rank has ended, and there is nothing more to be said."""
        while not self._is_over():
            self.parent.wait(LOOK_SECONDS)
            if self.parent.code is not None and not self._ended_at:
                self._ended_at = time.monotonic()
                append_exit(self.job.folder, self.local[0], self.parent.code, self.parent.asked_at)
            self._look(time.monotonic())

    def _is_over(self) -> bool:
        """Whether the rank has ended, and with it the job, as far as this machine knows."""
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
        """Read what is new. If something failed, conclude a moment later; if not, look for more."""
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
            if all(rank.outcome for rank in job.ranks):  # nobody is left to write anything
                most = 0.0
            if now - self._failed_at >= most:
                self._conclude()
        elif self.parent.asked_at is None:
            if not (error := job.detector.look()):
                self._note_quiet(now)
            elif not (isinstance(error, Blocked) and self._ask_for_stacks()):
                self._tell(error)  # of ranks that wait, with the lines from which they have come

    def _conclude(self) -> None:
        """Say what was wrong, unless that has been said, and look no more."""
        self._concluded = True
        if not self.has_reported and (error := self.job.verdict()):
            self._tell(error)

    def _tell(self, error) -> None:
        """Say what is wrong, and with --end also end the job, if it can never go on."""
        self.has_reported = self._concluded = True
        ends = self.ends and getattr(error, "what", "") not in GOES_ON
        if self._speaks:
            say(report_error(error, self.job, self.as_json, ends))
        if ends and self.parent.code is None:
            self.parent.kill()

    @property
    def _speaks(self) -> bool:
        """Whether this reader is the one that speaks: that of rank 0 may read the same folder."""
        return self.local[0] == 0 or not self.job.ranks[0].ready

    def _note_quiet(self, now: float) -> None:
        """Say once who waits in what, if nothing was called for QUIET seconds."""
        job = self.job
        calls = sum(len(rank.events) for rank in job.ranks)
        running = [rank for rank in job.ranks if not rank.outcome]
        forming = any(rank.forming for rank in running)
        waits = forming or any(
            rank.blocked_in or rank.say_unmet(*rank.in_flight.values()) for rank in running
        )
        if calls != self._calls or not waits:
            self._calls, self._quiet_since = calls, now
            self._asked_for_stacks = False  # what they have answered is old
        if forming in self._noted or now - self._quiet_since < QUIET:
            return
        if self._ask_for_stacks():
            return
        self._asked_for_stacks = False
        self._noted.add(forming)
        if self._speaks:
            say(report_waiting(job, QUIET, self.as_json))

    def _ask_for_stacks(self) -> bool:
        """Have each rank write down by which path it came to where it stands, unless they have
        been asked. The next look finds the stacks.
        """
        asks, self._asked_for_stacks = not self._asked_for_stacks, True
        for rank in self.job.seen:
            if asks and rank.outcome is None:
                rank.stack.ask()
        return asks

    def clear(self) -> None:
        """Remove the logs of a job about which nothing was said."""
        if not self.has_reported:
            shutil.rmtree(self.job.folder, ignore_errors=True)
            with suppress(OSError):  # the folder has other starts of the job
                self.job.folder.parent.rmdir()
