"""What is said: as text for people, or as one object for tools."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence

from course_lib.diagnosis.lines import among, call_text
from course_lib.errors import Blocked, CourseError, Mismatch
from course_lib.trace import Line
from course_tools.watch.job import Job, WatchedRank
from course_tools.watch.job_folder import start_of


def error_report(error: CourseError, job: Job, as_json: bool, ends: bool = False) -> str:
    """The verdict on a job."""
    kind, text = type(error).__name__, str(error)
    if isinstance(error, Blocked):
        ranks, lines = [w.rank for w in error.waits], [w.line for w in error.waits]
        awaited = {job.ranks[r] for wait in error.waits for r in wait.on}
        for rank in sorted((r for r in awaited if r.last_call), key=lambda r: r.number):
            text += f"\nrank {rank.number} {_end_of(rank)}" * rank.returned
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
    ranks, lines = [], []
    alike: dict[str, list[int]] = {}  # what several do at one line is said once
    calls = [rank.blocked_in for rank in job.seen if rank.blocked_in and not rank.outcome]
    groups = among(job.matcher.groups, [call.group for call in calls])
    for rank in job.seen:
        if rank.outcome:
            alike.setdefault(_end_of(rank), []).append(rank.number)
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
        alike.setdefault(doing + where, []).append(rank.number)
    odd_first = sorted(alike.items(), key=lambda item: len(item[1]))
    rows = [f"  {_ranges(those)} {_plural(what, those)}" for what, those in odd_first[:_MOST_ROWS]]
    if more := odd_first[_MOST_ROWS:]:
        rows.append(f"  … and {sum(len(those) for _, those in more)} more ranks")
    if absent := [rank.number for rank in job.ranks if not rank.ready]:
        rows.append(f"  {_ranges(absent)} {_plural('has no log here', absent)}")
        rows.append(_SHARE)
    text = "\n".join([f"nothing was called for {seconds:g} s.", *rows])
    return _block("Waiting", text, ranks, lines, job, as_json)


def _end_of(rank: WatchedRank) -> str:
    """What there is to say of a rank that has ended."""
    call = rank.last_call
    return (
        f"has ended, after {call_text(call)}   {call.line or ''}".rstrip() if call else "has ended"
    )


_MOST_ROWS = 16
_SHARE = (
    "A rank without a log has not come yet, or runs on another machine. For one diagnosis of all "
    "machines, start watch on each with --keep FOLDER, a folder that all of them share."
)


def _plural(what: str, ranks: Sequence[int]) -> str:
    """What one rank does, of so many."""
    verb, _, rest = what.partition(" ")
    many = {"is": "are", "waits": "wait", "has": "have"}
    return f"{verb if len(ranks) == 1 else many[verb]} {rest}"


def _ranges(ranks: Sequence[int]) -> str:
    """``rank 7``, ``ranks 0–6, 8–511``; those that lie scattered are cut."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1][1:] = [rank]
        else:
            runs.append([rank])
    names = ["–".join(map(str, run)) for run in runs]
    if len(names) > _MOST_ROWS:
        return f"{len(ranks)} ranks, the first of them {', '.join(names[:3])},"
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(names)}"


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
