"""What a play shows: pictures for the student's page, three questions for a talk of five minutes.

The questions are made from the trace of this answer in one of the cases that learners see: whoever
wrote it can say why. Each comes with what the trace says, for the instructor; right and wrong
answers get their questions alike.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from typing import Any

from course_check.compare import show
from course_check.exercise import Exercise, Play
from course_check.verdict import Verdict
from course_lib import Event, Trace
from course_lib.errors import Blocked

MOST_EVENTS = 400  # or spans; above, a picture shows nothing
HOW_MANY = 3
ALWAYS = (
    (
        "Which line would you change first to break it for one rank alone, and what would `check` "
        "say?",
        "no trace: listen for a prediction, then try it together",
    ),
    ("What did you try before this, and how did you see that it was wrong?", "no trace"),
)


def drawn(play: Play) -> list[dict[str, str]]:
    """Who waits for whom, where that is the trouble; and what was said, where something was."""
    from course_lib import draw  # half a second, which right answers need not pay

    out = []
    if isinstance(play.error, Blocked) and any(w.call for w in play.error.waits):
        out.append(_picture(draw.waits(play.error, caption="Who waits for whom.")))
    run = play.run
    few = run and max(len(run.trace.events), len(run.trace.spans)) <= MOST_EVENTS
    if run and few and _takes_time(run.trace):
        caption = "What your ranks said to one another in this case (modelled time)."
        out.append(_picture(draw.timeline(run, caption=caption)))
    return out


def _takes_time(trace: Trace) -> bool:
    """Whether a timeline would show something: a call that makes a group takes none."""
    return any(e.completed is not None and e.completed > e.issued for e in trace.events)


def _picture(figure: Any) -> dict[str, str]:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=80)
    return {"png": base64.b64encode(file.getvalue()).decode(), "words": figure.words[:2000]}


def questions(exercise: Exercise, verdict: Verdict) -> list[dict[str, str]]:
    """Questions with the trace's own answers; empty where nothing was played."""
    played = [p for level in verdict.levels.values() for p in level.plays if p.run is not None]
    plays = [p for p in played if p.case.seed < 1 << 60]  # those that learners may see
    if not plays:
        return []
    play = min(plays, key=_hard_to_play_by_hand)
    asked = [*_on_messages(play), *_on_values(exercise, play), *ALWAYS][:HOW_MANY]
    about = exercise.describe(play.case)
    return [{"about": about, "ask": ask, "trace": answer} for ask, answer in asked]


def _hard_to_play_by_hand(play: Play) -> tuple:
    case = play.case
    far = abs(case.world - 3), play.error is not None, abs(case.length - 6)
    return case.numbers == "special", *far


def _on_messages(play: Play) -> Iterator[tuple[str, str]]:
    trace = play.run.trace if play.run else Trace()
    sends = [e for e in trace.events if e.is_send]
    rank = min(play.case.world - 1, 1)
    mine = trace.of(rank)
    if first := next((e for e in mine if e.is_send), None):
        ask = "carry, to whom does it go, and which line of yours chose that rank?"
        yield f"What does the first message of rank {rank} {ask}", _said(first)
    if sends:
        count = sum(e.rank == rank for e in sends)
        nbytes = trace.bytes_sent(rank)
        ask = "in this case, how many bytes in all, and how do both change with one rank more?"
        yield f"How many messages does rank {rank} send {ask}", f"{count} messages, {nbytes} bytes"
    waits = [(e.completed - e.issued, e) for e in trace.events if e.completed is not None]
    if waits and (longest := max(waits, key=lambda w: w[0]))[0] > 0:
        event = longest[1]
        yield f"In which call does rank {event.rank} wait longest, and for what?", _said(event)
    if collectives := [e for e in mine if e.is_collective]:
        ask = f"calls {collectives[0].op}. What would happen if one rank left it out?"
        yield f"Rank {rank} {ask}", _said(collectives[0])


def _on_values(exercise: Exercise, play: Play) -> Iterator[tuple[str, str]]:
    rank = play.case.world - 1
    if play.done and play.seen:
        got = play.got(rank)
        given = ", ".join(show(a) for a in play.inputs[0][rank])
        ask = "Play it by hand: what does it have afterwards, and why?"
        yield f"Rank {rank} is called with {given}. {ask}", f"returned {show(got.returned)}"
        if rank and exercise.in_ranks:
            ask = "Which values here would differ on rank 0, and by which expression of yours?"
            yield ask, f"rank 0 returned {show(play.got(0).returned)}"


def _said(event: Event) -> str:
    line: Any = event.line
    place = f", at {line}" if line is not None else ""
    return f"{event}{place}"
