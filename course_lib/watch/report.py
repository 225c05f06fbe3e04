"""What is said: as text for people, or as one object for tools."""

from __future__ import annotations

import json
import os
import time

from course_lib.diagnosis.lines import among, call_text, ranks_have
from course_lib.errors import Blocked, CourseError, Mismatch
from course_lib.trace import Line
from course_lib.watch.folder import start_of
from course_lib.watch.job import Job


def error_report(error: CourseError, job: Job, as_json: bool, ends: bool = False) -> str:
    """The verdict on a job."""
    kind, text = type(error).__name__, str(error)
    if isinstance(error, Blocked):
        ranks, lines = [w.rank for w in error.waits], [w.line for w in error.waits]
    elif isinstance(error, Mismatch):
        ranks, lines = list(error.ranks), list(error.lines)
    else:
        ranks = [error.rank]  # type: ignore[attr-defined]
        outcome = job.ranks[ranks[0]].outcome
        lines = list(outcome.lines[-1:]) if outcome else []
    if isinstance(error, Blocked | Mismatch) and not all(r.outcome for r in job.seen) and job.live:
        stands = "Where the job still stands, Ctrl-C ends it."  # of a Mismatch gloo may abort
        text += "\nThe job is ended now." if ends else f"\n{stands}"
    if job.live and not as_json:
        text += f"\nIts calls: python -m course_lib.watch --read {job.folder}"
    return _block(kind, text, ranks, lines, job, as_json)


def waiting_report(job: Job, seconds: float, as_json: bool) -> str:
    """Who waits in what, and where the others are: ranks that have been asked for their stacks."""
    rows, ranks, lines = [f"nothing was called for {seconds:g} s."], [], []
    calls = [rank.blocked_in for rank in job.seen if rank.blocked_in and not rank.outcome]
    groups = among(job.matcher.groups, [call.group for call in calls])
    for rank in job.seen:
        if rank.outcome:
            continue
        call, path = rank.blocked_in, rank.stack.lines
        line = rank.blocked_at if call else next(reversed(path), None)
        ranks.append(rank.number)
        lines.append(line)
        where = f"   {line}" if line else ""
        doing = "is at" if line else "is somewhere"
        if call or rank.forming:
            told = call_text(call) + groups[call.group] if call else "init_process_group"
            doing = f"waits in {told}"
        rows.append(f"  rank {rank.number} {doing}{where}")
    if ended := [r.number for r in job.seen if r.outcome]:
        rows.append(f"  {ranks_have(ended)} ended")
    missing = "has no log here: it has not come yet, or runs on another machine"
    rows += [f"  rank {rank.number} {missing}" for rank in job.ranks if not rank.ready]
    return _block("Waiting", "\n".join(rows), ranks, lines, job, as_json)


def _block(
    kind: str, text: str, ranks: list[int], lines: list[Line | None], job: Job, as_json: bool
) -> str:
    start = start_of(job.folder)
    if as_json:
        facts = {"kind": kind, "text": text, "ranks": ranks, "lines": lines}
        return json.dumps(facts | {"restart": start, "time": time.time()}) + "\n"
    which = f", restart {start}" if start else ""
    return f"\ncourse_lib.watch{which}: {kind}: {text}\n\n"


def say(text: str) -> None:
    """Say it whole, between what others print."""
    os.write(2, text.encode("utf-8", "backslashreplace"))
