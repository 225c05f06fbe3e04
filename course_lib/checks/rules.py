"""Rules on the trace: what may be said, to whom, how often and how much; and patterns of messages.

A rule is a function of a Play that yields Findings. Most are made here by a function that takes
the limit as a formula of the play: ``sends_at_most(lambda play: 2 * (play.case.world - 1))``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from course_lib.checks.exercise import Diagnosis, Finding, Play, Rule
from course_lib.trace import Event, Trace

Formula = Callable[[Play], int]


def trace_of(play: Play) -> Trace:
    return play.run.trace if play.run else Trace()


def sends(play: Play, rank: int) -> list[Event]:
    return [e for e in trace_of(play).of(rank) if e.is_send]


def peers(play: Play, rank: int) -> set[int]:
    """Whom this rank sends to."""
    return {e.peer for e in sends(play, rank) if e.peer is not None}


def _first(play: Play, kind: str, of_kind: Callable[[Event], bool], why: str) -> Iterator[Finding]:
    for event in filter(of_kind, trace_of(play).events):
        line = f"\n  {event.line}" if event.line else ""
        yield Finding(kind, f"rank {event.rank} calls {event.op}{why}{line}", event.rank)
        return


def without_a_word(play: Play) -> Iterator[Finding]:
    """No rank calls anything: what it needs to know it knows already."""
    return _first(play, "talks", lambda e: True, "")


def no_collectives(play: Play) -> Iterator[Finding]:
    """Send and receive alone: the collective that is asked for is not the answer to itself."""
    return _first(
        play, "collective", lambda e: e.is_collective, ": build the answer from send and recv"
    )


def _at_most(kind: str, text: str, limit: Formula, count: Callable[[Play, int], int]) -> Rule:
    """No rank may have a higher count than ``limit(play)``."""

    def rule(play: Play) -> Iterable[Finding]:
        most = limit(play)
        for rank in range(play.case.world):
            if (mine := count(play, rank)) > most:
                yield Finding(kind, text.format(rank=rank, mine=mine, most=most), rank, mine, most)

    return rule


def sends_at_most(limit: Formula) -> Rule:
    return _at_most(
        "sends",
        "rank {rank} sends {mine} messages, at most {most} are allowed",
        limit,
        lambda play, rank: len(sends(play, rank)),
    )


def bytes_at_most(limit: Formula) -> Rule:
    return _at_most(
        "bytes",
        "rank {rank} sends {mine} bytes, at most {most} are allowed",
        limit,
        lambda play, rank: trace_of(play).bytes_sent(rank),
    )


def receives_at_most(limit: Formula) -> Rule:
    return _at_most(
        "bytes",
        "rank {rank} receives {mine} bytes, at most {most} are allowed",
        limit,
        lambda play, rank: sum(m.nbytes for m in trace_of(play).messages if m.dst == rank),
    )


def messages_of_at_most(limit: Formula) -> Rule:
    return _at_most(
        "bytes",
        "rank {rank} sends a message of {mine} bytes, at most {most} are allowed",
        limit,
        lambda play, rank: max((e.nbytes for e in sends(play, rank)), default=0),
    )


def bytes_in_total_at_least(limit: Formula) -> Rule:
    """All ranks together send at least this much: less cannot carry the answer."""

    def rule(play: Play) -> Iterable[Finding]:
        least = limit(play)
        mine = sum(trace_of(play).bytes_sent(rank) for rank in range(play.case.world))
        if mine < least:
            text = f"all ranks together send {mine} bytes, and the data have {least}"
            yield Finding("too few bytes", text, None, mine, least)

    return rule


def one_way_round(play: Play) -> Iterator[Finding]:
    """Messages go to one neighbour, on every rank the same one; so they come from the other."""
    world = play.case.world
    for step in (1, -1):
        if all(peers(play, r) <= {(r + step) % world} for r in range(world)):
            return
    rank = next(r for r in range(world) if not peers(play, r) <= {(r + 1) % world})
    mine = ", ".join(map(str, sorted(peers(play, rank))))
    text = f"rank {rank} sends to {mine}; its right neighbour is {(rank + 1) % world}"
    yield Finding("peers", text, rank)


# ---- patterns of messages, for every exercise with a budget ------------------------------------


def whole_tensors(play: Play) -> bool:
    """Each message is as long as the tensor, which is cut into parts elsewhere."""
    size, messages = getattr(play.given(0), "nbytes", 0), trace_of(play).messages
    return size > 0 and bool(messages) and all(m.nbytes >= size for m in messages)


def to_everyone(play: Play) -> bool:
    return all(len(peers(play, r)) == play.case.world - 1 for r in range(play.case.world))


def through_one(play: Play) -> bool:
    """One rank is an end of every message."""
    return any(
        all(root in (m.src, m.dst) for m in trace_of(play).messages)
        for root in range(play.case.world)
    )


PATTERNS = [  # told apart where there are more than three ranks
    Diagnosis(
        "whole-tensors",
        "Every message is as long as the tensor. What if each one carried only a part of it?",
        whole_tensors,
    ),
    Diagnosis(
        "everyone-to-everyone",
        "Everyone sends to everyone. On a ring each rank sends to "
        "one neighbour and hears from the other.",
        to_everyone,
    ),
    Diagnosis(
        "through-one",
        "One rank hears from everybody and tells everybody: its link carries "
        "everything while the others idle.",
        through_one,
        lambda p: p.case.world > 3,
    ),
]
