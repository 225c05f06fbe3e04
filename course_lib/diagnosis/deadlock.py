"""Deadlock: the error for ranks that wait for what can never come.

A call is *stuck* when its counterpart has not been issued. That alone is no error: the counterpart
may be on its way. It is one when those that would have to issue it are stuck themselves, or have
returned. So: start from all ranks that are stuck, and strike out whoever could still be freed by a
rank that runs. Those who remain are *lost*: they wait for one another for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from course_lib.diagnosis import mismatch
from course_lib.diagnosis.history import History
from course_lib.diagnosis.lines import Row, among, call_text, error_text, ranks_text
from course_lib.diagnosis.matching import CallMatcher
from course_lib.errors import CourseError, Deadlock, Wait
from course_lib.trace import Event, Line


def find_lost(
    matcher: CallMatcher, blocked: Mapping[int, Event], returned: Collection[int]
) -> dict[int, tuple[int, ...]]:
    """For every rank that nobody can free any more, the ranks that it waits for in vain.

    ``blocked`` has for each blocked rank the call that it stands in, or the oldest one under way,
    for which C++ may wait.
    """
    # Begin with all that wait for a call which has not been made, and strike out who may be freed,
    # until nobody is left, or nobody else can be struck out.
    stuck = {r: on for r, event in blocked.items() if (on := matcher.find_missing(event))}
    while stuck:
        hopeless = {*stuck, *returned}
        # A collective needs all its members, a receive from any source only one of them.
        in_vain = {r: all if blocked[r].is_recv else any for r in stuck}
        freed = [r for r, on in stuck.items() if not in_vain[r](x in hopeless for x in on)]
        if not freed:
            return {r: tuple(x for x in on if x in hopeless) for r, on in stuck.items()}
        for rank in freed:
            del stuck[rank]
    return {}


# ---- from the calls that ranks stand in --------------------------------------------------------


def from_calls(
    blocked: Mapping[int, Event],
    lines: Mapping[int, Line | None],
    on: Mapping[int, tuple[int, ...]],
    returned: Collection[int],
    groups: Mapping[str, tuple[int, ...]],
    advice: str = "",
    history: Callable[[str], History] = lambda group: History(),
) -> CourseError:
    """The error for ranks that nobody can free: a Mismatch if two calls nearly met, else a
    Deadlock. If the ranks wait in several groups, each wait says in which.

    ``blocked`` and ``lines`` have each rank's call and its line, ``on`` the ranks that it waits for
    in vain. The ranks in ``returned`` will call nothing more. ``groups`` has the ranks of each
    group, ``history`` tells of a group each rank's collectives in order, and ``advice`` is as in
    ``from_waits``.
    """
    events = {r: blocked[r] for r in sorted(on)}
    where = among(groups, [event.group for event in events.values()])
    if found := _find_near_miss(events, on, returned, where):
        return found
    waits = [
        Wait(r, call_text(e) + where[e.group], lines.get(r) or e.line, on[r], e.group)
        for r, e in events.items()
    ]
    before = _tell_parting(events, returned, history)
    return from_waits(waits, returned, max(map(len, groups.values())), advice, before)


def _find_near_miss(
    events: Mapping[int, Event],
    on: Mapping[int, tuple[int, ...]],
    returned: Collection[int],
    where: Mapping[str, str],
) -> CourseError | None:
    """The error for two calls that were meant for each other and differ in one word, if there are
    such; ``where`` has the words for each group.
    """
    for a in events.values():
        for b in (events[r] for r in on[a.rank] if r in events):
            meant = a.rank in on[b.rank] and {a.op, b.op} == {"send", "recv"}
            if meant and a.group != b.group:
                one, other = (where[event.group].removeprefix(" among ") for event in (a, b))
                return mismatch.pair(a, b, "group", one, other)
            if meant and (found := mismatch.between(a, b)):
                return found
    for send in (e for e in events.values() if e.is_send):
        recv = events.get(send.peer if send.peer is not None else -1)
        if recv is not None and recv.is_recv and recv.peer in returned:
            return mismatch.peers_differ(send, recv)
    return None


def _tell_parting(
    events: Mapping[int, Event], returned: Collection[int], history: Callable[[str], History]
) -> list[str]:
    """Where the ranks that wait in a collective had gone different ways before, if they had; and
    who has made fewer calls than such a rank, if some have ``returned`` and will make no more.
    """
    for rank, event in events.items():
        if event.is_collective:
            past = history(event.group)
            own = enumerate(past.calls.get(rank, ()))
            at = max((k for k, call in own if call is event), default=0)
            lines = past._replace(at=at).tell_parting()
            lines += past.tell_counts({*events, *returned}) if returned else []
            if lines:
                return lines
    return []


# ---- from who waits for whom ---------------------------------------------------------------------


def from_waits(
    waits: Sequence[Wait],
    returned: Collection[int],
    world_size: int,
    advice: str = "",
    parted: Sequence[str] = (),
) -> Deadlock:
    """The error for ranks that wait only for one another, or for ranks that have ``returned``.

    ``advice`` is the way out, if the caller knows a better one than the calls' names suggest;
    ``parted`` are lines that say where the ranks went different ways.
    """
    waits = sorted(waits, key=lambda w: w.rank)
    gone = sorted({r for w in waits for r in w.on if r in returned})
    cycle = () if gone else _find_cycle(waits)
    rows: list[Row] = [(f"rank {w.rank} waits in {w.call}", w.line) for w in waits]
    advice = advice or _advise(waits, gone, cycle)
    text = error_text(_headline(waits, gone, world_size), rows, advice, parted)
    return Deadlock(text, waits=waits, cycle=cycle)


def _find_cycle(waits: Sequence[Wait]) -> tuple[int, ...]:
    """Ranks in waiting order, each waiting for the next and the last for the first; or ()."""
    on = {w.rank: w.on for w in waits}
    for rank in sorted(on):
        path: list[int] = []
        while rank in on and rank not in path:
            path.append(rank)
            rank = next((r for r in on[rank] if r in on), -1)
        if rank in path:
            cycle = path[path.index(rank) :]
            smallest = cycle.index(min(cycle))
            return tuple(cycle[smallest:] + cycle[:smallest])
    return ()


def _headline(waits: Sequence[Wait], gone: Sequence[int], world_size: int) -> str:
    """Who waits for whom; ``gone`` are the ranks that have returned, and are waited for."""
    who = ranks_text([w.rank for w in waits])
    verb = "waits" if len(waits) == 1 else "wait"
    if gone:
        has = "has" if len(gone) == 1 else "have"
        return f"{who} {verb} for {ranks_text(gone)}, which {has} already returned."
    if len(waits) == world_size:
        return "every rank waits for another."
    return f"{who} {verb} for one another, and nobody else can free them."


def _advise(waits: Sequence[Wait], gone: Sequence[int], cycle: Sequence[int]) -> str:
    """The way out, as far as the names of the calls suggest one."""
    if gone:
        first = next(w for w in waits if set(w.on) & set(gone))
        needed = ranks_text(set(first.on).intersection(gone))
        return f"{first.call} needs {needed} to call its counterpart before returning."
    arrows = " → ".join(map(str, (*cycle, *cycle[:1])))
    kinds = {_call_name(w) for w in waits if w.rank in cycle}
    messages = [w for w in waits if w.rank in cycle and _call_name(w) in _COUNTERPARTS]
    if not messages:
        advice = "Every rank of the group has to make the same calls in the same order."
        if len({w.group for w in waits}) > 1:
            advice = "Ranks that share groups have to use them in the same order."
    elif kinds <= {"recv", "irecv"}:
        advice = "One of them has to send before it receives."
    elif kinds == {"isend"}:
        advice = "A send is over when its recv has taken it: call that before you wait."
    elif kinds <= {"send", "isend"}:
        advice = "A send waits for its recv: one of them has to receive before it sends."
    else:
        advice = _name_missing_counterpart(messages[0], {w.rank: w for w in waits})
    return f"{arrows}. {advice}" if cycle else advice


_COUNTERPARTS = {"send": "recv", "isend": "recv", "recv": "send", "irecv": "send"}


def _name_missing_counterpart(wait: Wait, waits: Mapping[int, Wait]) -> str:
    """The advice if some wait for messages, others in collectives: which message is missing."""
    other = waits[next(rank for rank in wait.on if rank in waits)]
    return (
        f"rank {other.rank} has called no {_COUNTERPARTS[_call_name(wait)]} for rank {wait.rank}'s "
        f"{wait.call}: call it before {other.call}, or leave out what it is for."
    )


def _call_name(wait: Wait) -> str:
    """``recv`` of a rank that waits in ``recv(src=1)``."""
    return wait.call.split("(")[0]
