"""Words what watch has to say: as text for people, or as one JSON object for tools."""

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


def report_error(error: CourseError, job: Job, as_json: bool, ends: bool = False) -> str:
    """Word the verdict on a job."""
    kind, text = type(error).__name__, str(error)
    ranks, lines = name_ranks(error)
    if isinstance(error, Blocked):
        awaited = {job.ranks[r] for wait in error.waits for r in wait.on}
        for rank in sorted(awaited, key=lambda rank: rank.number):
            if rank.returned and rank.last_call:
                text += f"\nrank {rank.number} {_say_end(rank)}"
        text += "".join(f"\n{row}" for row in _say_callers(job, ranks))
    elif not isinstance(error, Mismatch):
        outcome = job.ranks[ranks[0]].outcome
        lines = list(outcome.lines[-1:]) if outcome else []
    if isinstance(error, Blocked | Mismatch) and not all(r.outcome for r in job.seen) and job.live:
        stands = "Where the job still stands, Ctrl-C ends it."  # gloo may have aborted it
        text += "\nThe job is ended now." if ends else f"\n{stands}"
    if job.live and not as_json:
        text += f"\nIts calls: python -m course_lib.watch --read {job.folder}"
    return _format(kind, text, ranks, lines, job, as_json)


def name_ranks(error: CourseError | None) -> tuple[list[int], list[Line | None]]:
    """The ranks that an error names, and the line of each, where the error knows it."""
    if isinstance(error, Blocked):
        return [w.rank for w in error.waits], [w.line for w in error.waits]
    if isinstance(error, Mismatch):
        return list(error.ranks), list(error.lines)
    rank: int | None = getattr(error, "rank", None)
    return [] if rank is None else [rank], []


def report_waiting(job: Job, seconds: float, as_json: bool) -> str:
    """Word who waits in what, and where the others are, according to their stacks."""
    ranks, lines = [], []
    alike: dict[str, list[int]] = {}  # what several ranks do at one line is said once
    calls = [rank.blocked_in for rank in job.seen if rank.blocked_in and not rank.outcome]
    groups = among(job.matcher.groups, [call.group for call in calls])
    for rank in job.seen:
        if rank.outcome:
            alike.setdefault(_say_end(rank), []).append(rank.number)
            continue
        call, path = rank.blocked_in, rank.stack.lines
        line = rank.blocked_at if call else next(reversed(path), None)
        ranks.append(rank.number)
        lines.append(line)
        where = f"   {line}" if line else ""
        doing = "is at" if line else "is somewhere"
        if call or rank.forming:
            where_in = call_text(call) + groups[call.group] if call else "init_process_group"
            doing = f"waits in {where_in}"
        alike.setdefault(doing + where, []).append(rank.number)
    odd_first = sorted(alike.items(), key=lambda item: len(item[1]))
    rows = [_make_row(what, those) for what, those in odd_first[:_MOST_ROWS]]
    if more := odd_first[_MOST_ROWS:]:
        rows.append(f"  … and {sum(len(those) for _, those in more)} more ranks")
    if absent := [rank.number for rank in job.ranks if not rank.ready]:
        rows.append(_make_row("has no log here", absent))
        rows.append(_SHARE)
    text = "\n".join([f"nothing was called for {seconds:g} s.", *rows])
    return _format("Waiting", text, ranks, lines, job, as_json)


def _say_callers(job: Job, ranks: Sequence[int]) -> list[str]:
    """Say from which line each rank has come, where a helper of the script makes the call."""
    alike: dict[str, list[int]] = {}
    for number in ranks:
        path = job.ranks[number].stack.lines
        # The outermost line of a script is hardly more than main(), unless it is in another file.
        if len(path) > 2 or (len(path) == 2 and path[0].where != path[1].where):
            alike.setdefault(f"has come from   {path[-2]}", []).append(number)
    return [_make_row(what, those) for what, those in [*alike.items()][:_MOST_ROWS]]


def _say_end(rank: WatchedRank) -> str:
    """Say that a rank has ended, and after which call."""
    call = rank.last_call
    after = f", after {call_text(call)}   {call.line or ''}".rstrip() if call else ""
    return f"has ended{after}"


_MOST_ROWS = 16
_SHARE = (
    "A rank without a log has not come yet, or runs on another machine. For one diagnosis of all "
    "machines, start watch on each with --keep FOLDER, a folder that all of them share."
)


def _make_row(what: str, ranks: Sequence[int]) -> str:
    """Say which ranks do ``what``, which is in the singular, as "waits in …"."""
    verb, _, rest = what.partition(" ")
    many = {"is": "are", "waits": "wait", "has": "have"}
    return f"  {_name_ranges(ranks)} {verb if len(ranks) == 1 else many[verb]} {rest}"


def _name_ranges(ranks: Sequence[int]) -> str:
    """``rank 7``, ``ranks 0–6, 8–511``; a long list is cut."""
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


def _format(
    kind: str, text: str, ranks: list[int], lines: list[Line | None], job: Job, as_json: bool
) -> str:
    start = start_of(job.folder)
    if as_json:
        facts = {"kind": kind, "text": text, "ranks": ranks, "lines": lines}
        return json.dumps(facts | {"restart": start, "time": time.time()}) + "\n"
    which = f", restart {start}" if start else ""
    return f"\ncourse_lib.watch{which}: {kind}: {text}\n\n"


def say(text: str) -> None:
    """Write it to stderr at once, so that nothing that others print comes between."""
    os.write(2, text.encode("utf-8", "backslashreplace"))
