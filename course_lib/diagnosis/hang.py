"""Hang: the error for ranks that are out of time, though nobody can say that they never end."""

from __future__ import annotations

from collections.abc import Sequence

from course_lib.diagnosis.lines import call_text, ranks_text
from course_lib.diagnosis.rank_state import RankState
from course_lib.errors import Hang, Wait


def of_ranks(running: Sequence[RankState], timeout: float) -> Hang:
    """The error for ranks that still run, of which each was asked where it stands."""
    who = ranks_text([rank.number for rank in running])
    lines, waits = [f"{who} did not return within {timeout:g} s."], []
    for rank in running:
        path, event = rank.stack.lines, rank.blocked_in
        doing = "was running" if rank.stack.text else "did not answer: it may be stopped"
        doing += _unmet(rank)
        wait = Wait(rank.number, "", path[-1] if path else None)
        if event is not None:
            on = tuple(r for r in rank.matcher.groups.get(event.group, ()) if r != event.rank)
            if event.peer is not None and not event.is_collective:
                on = (event.peer,)
            wait = Wait(rank.number, call_text(event), rank.blocked_at, on, event.group)
            doing = f"waits in {wait.call}"
        waits.append(wait)
        lines.append(f"  rank {rank.number} {doing}")
        lines += [f"    {line}" for line in path or filter(None, [wait.line])]
    lines.append("If it is only slow, give it longer: run(…, timeout=seconds).")
    return Hang("\n".join(lines), waits=tuple(waits))


def _unmet(rank: RankState) -> str:
    """Which of its calls that are under way others have not made."""
    for event in rank.in_flight.values():
        if missing := rank.matcher.missing(event):
            has = "has" if len(missing) == 1 else "have"
            return f", and {ranks_text(missing)} {has} not made its call {call_text(event)}"
    return ""
