"""Rules on the trace: what may be said, to whom, how often and how much; and patterns of messages.

A rule is a function of a Play that yields Findings. Most are made here by a function that takes
the limit as a formula of the play: ``sends_at_most(lambda play: 2 * (play.case.world - 1))``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from course_check.exercise import Finding, Play, Rule
from course_lib.trace import Event

Formula = Callable[[Play], int]


def sends(play: Play, rank: int) -> list[Event]:
    """The messages that this rank sends."""
    return [e for e in play.trace.of(rank) if e.is_send]


def peers(play: Play, rank: int) -> set[int]:
    """Whom this rank sends to."""
    return {e.peer for e in sends(play, rank) if e.peer is not None}


def between_barriers(play: Play, rank: int) -> list[list[Event]]:
    """The calls of a rank after each barrier that no line of the answer makes."""
    parts: list[list[Event]] = []
    for e in play.trace.of(rank):
        if e.op == "barrier" and not e.line:
            parts.append([])
        elif parts:
            parts[-1].append(e)
    return parts


def _find_call(play: Play, kind: str, test: Callable[[Event], bool], why: str) -> Iterator[Finding]:
    """The first call of which the test is true."""
    for event in [e for e in play.trace.events if test(e)][:1]:
        line = f"\n  {event.line}" if event.line else ""
        yield Finding(kind, f"rank {event.rank} calls {event.op}{why}{line}", event.rank)


def without_a_word(play: Play) -> Iterator[Finding]:
    """No rank calls anything: it knows already what it needs to know."""
    return _find_call(play, "talks", lambda e: True, "")


def no_collectives(play: Play) -> Iterator[Finding]:
    """Send and receive alone: the collective that is asked for is not the answer to itself."""
    why = ": build the answer from send and recv"
    return _find_call(play, "collective", lambda e: e.is_collective, why)


def at_most(kind: str, does: str, count: Callable[[Play, int], int], limit: Formula) -> Rule:
    """No rank may have a higher count than the limit of the play."""

    def rule(play: Play) -> Iterable[Finding]:
        most = limit(play)
        for rank in play.ranks:
            if (mine := count(play, rank)) > most:
                text = f"rank {rank} {does.format(mine)}, at most {most} are allowed"
                yield Finding(kind, text, rank, mine, most)

    return rule


def count_received(play: Play, rank: int) -> int:
    """Bytes that arrive on this rank."""
    return sum(m.nbytes for m in play.trace.messages if m.dst == rank)


def measure_longest(play: Play, rank: int) -> int:
    """Bytes of the longest message that this rank sends."""
    return max((e.nbytes for e in sends(play, rank)), default=0)


sends_at_most = partial(at_most, "sends", "sends {} messages", lambda p, r: len(sends(p, r)))
bytes_at_most = partial(at_most, "bytes", "sends {} bytes", lambda p, r: p.trace.bytes_sent(r))
receives_at_most = partial(at_most, "bytes", "receives {} bytes", count_received)
messages_of_at_most = partial(at_most, "bytes", "sends a message of {} bytes", measure_longest)


def bytes_in_total_at_least(limit: Formula) -> Rule:
    """All ranks together send at least this much: less cannot carry the answer."""

    def rule(play: Play) -> Iterable[Finding]:
        least = limit(play)
        mine = sum(play.trace.bytes_sent(rank) for rank in play.ranks)
        if mine < least:
            text = f"all ranks together send {mine} bytes, and the data have {least}"
            yield Finding("too few bytes", text, None, mine, least)

    return rule


# ---- memory: bytes of tensors alive in a rank, which counts them itself --------------------------


def holds_at_most(when: str, limit: Callable[[Play, int], int | None]) -> Rule:
    """No rank may hold more bytes than ``limit(play, rank)``; None means as many as it likes.

    The exercise's argument notes them in the rank, by a ``reading`` of its memory counter at the
    moment that ``when`` names. It is the rank's own word.
    """

    def rule(play: Play) -> Iterator[Finding]:
        for rank in range(play.case.world if play.done else 0):
            noted, most = play.got(rank).args[0], limit(play, rank)
            mine = noted.get("memory") if isinstance(noted, dict) else None
            if most is not None and (not isinstance(mine, int) or mine > most):
                text = f"rank {rank} holds {_bytes(mine)} {when}, at most {most:,}"
                whose = noted.get("largest") if isinstance(mine, int) else ""
                more = f"; what it made itself, the largest first: {whose}" if whose else ""
                yield Finding("memory", text + more, rank, mine, most)

    return rule


# when all is done that the exercise does with its answer, and while it drives it
rests_at, peaks_at = partial(holds_at_most, "at rest"), partial(holds_at_most, "at the peak")


def _bytes(count: object) -> str:
    return f"{count:,} bytes" if isinstance(count, int) else "an unknown number of bytes"


# ---- patterns of messages, for every exercise with a budget ------------------------------------


def whole_tensors(play: Play) -> bool:
    """Each message is as long as the tensor, which is cut into parts elsewhere."""
    size, messages = getattr(play.given(0), "nbytes", 0), play.trace.messages
    return size > 0 and bool(messages) and all(m.nbytes >= size for m in messages)


def to_everyone(play: Play) -> bool:
    """Every rank sends to every other one."""
    return all(len(peers(play, r)) == play.case.world - 1 for r in play.ranks)


def through_one(play: Play) -> bool:
    """One rank is an end of every message."""
    return any(all(root in (m.src, m.dst) for m in play.trace.messages) for root in play.ranks)
