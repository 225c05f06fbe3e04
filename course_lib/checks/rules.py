"""Rules on the trace: what may be said, to whom, how often, and who has to hear of whom.

A rule is a function of a Play that yields Findings. Most are made here by a function that takes
the limit as a formula of the case: ``sends_at_most(lambda case: 2 * (case.world - 1))``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from course_lib.checks.exercise import Finding, Play, Rule
from course_lib.trace import Event, Trace

Formula = Callable[[Play], int]


def trace_of(play: Play) -> Trace:
    return play.run.trace if play.run else Trace()


def sends(play: Play, rank: int) -> list[Event]:
    return [e for e in trace_of(play).of(rank) if e.is_send]


def peers(play: Play, rank: int) -> set[int]:
    """Whom this rank sends to."""
    return {e.peer for e in sends(play, rank) if e.peer is not None}


def at_its_line(event: Event) -> str:
    """Where in the answer a call stands, for the end of a finding; empty where nobody knows."""
    return f"\n  {event.line}" if event.line else ""


def without_a_word(play: Play) -> Iterator[Finding]:
    """No rank calls anything: what it needs to know it knows already."""
    for event in trace_of(play).events:
        text = f"rank {event.rank} calls {event.op}{at_its_line(event)}"
        yield Finding("talks", text, event.rank)
        return


def no_collectives(play: Play) -> Iterator[Finding]:
    """Send and receive alone: the collective that is asked for is not the answer to itself."""
    for event in trace_of(play).events:
        if event.is_collective:
            text = f"rank {event.rank} calls {event.op}: build the answer from send and recv"
            text += at_its_line(event)
            yield Finding("collective", text, event.rank)
            return


def sends_at_most(limit: Formula) -> Rule:
    """No rank sends more than ``limit(play)`` messages."""

    def rule(play: Play) -> Iterable[Finding]:
        most = limit(play)
        for rank in range(play.case.world):
            if len(mine := sends(play, rank)) > most:
                text = f"rank {rank} sends {len(mine)} messages, at most {most} are allowed"
                yield Finding("sends", text, rank, len(mine), most)

    return rule


def bytes_at_most(limit: Formula) -> Rule:
    """No rank sends more than ``limit(play)`` bytes."""

    def rule(play: Play) -> Iterable[Finding]:
        most = limit(play)
        for rank in range(play.case.world):
            if (mine := trace_of(play).bytes_sent(rank)) > most:
                text = f"rank {rank} sends {mine} bytes, at most {most} are allowed"
                yield Finding("bytes", text, rank, mine, most)

    return rule


def messages_of_at_most(limit: Formula) -> Rule:
    """No message has more than ``limit(play)`` bytes."""

    def rule(play: Play) -> Iterable[Finding]:
        most = limit(play)
        for rank in range(play.case.world):
            if (longest := max((e.nbytes for e in sends(play, rank)), default=0)) > most:
                text = f"rank {rank} sends a message of {longest} bytes, a chunk has at most {most}"
                yield Finding("bytes", text, rank, longest, most)

    return rule


def bytes_in_total_at_least(limit: Formula) -> Rule:
    """All ranks together send at least this much: less cannot carry the answer."""

    def rule(play: Play) -> Iterable[Finding]:
        least = limit(play)
        mine = sum(trace_of(play).bytes_sent(rank) for rank in range(play.case.world))
        if mine < least:
            text = f"all ranks together send {mine} bytes, and the data are {least}"
            yield Finding("too few bytes", text, None, mine, least)

    return rule


def receives_at_least(limit: Callable[[Play, int], int]) -> Rule:
    """Rank r receives at least so many bytes: data reach a rank by messages or not at all."""

    def rule(play: Play) -> Iterable[Finding]:
        if any(no_collectives(play)):
            return  # what a collective carries is not in its messages
        for rank in range(play.case.world):
            got = sum(m.nbytes for m in trace_of(play).messages if m.dst == rank and m.recv)
            if got < (least := limit(play, rank)):
                text = f"rank {rank} receives {got} bytes, and what it should have is {least}"
                yield Finding("no message", text, rank, got, least)

    return rule


def hears_of(sources: Callable[[Play, int], Iterable[int]]) -> Rule:
    """There is a chain of messages to rank r from each of ``sources(play, r)``."""

    def rule(play: Play) -> Iterable[Finding]:
        if any(no_collectives(play)):
            return
        heard = heard_of(trace_of(play), play.case.world)
        for rank in range(play.case.world):
            if deaf := sorted(set(sources(play, rank)) - heard[rank]):
                text = f"no message carries anything from {_list(deaf)} to rank {rank}"
                yield Finding("no message", text, rank, deaf)

    return rule


def heard_of(trace: Trace, world: int) -> list[set[int]]:
    """By rank: whose data may have reached it, along messages in order of time."""
    heard = [{rank} for rank in range(world)]
    steps: list[tuple[float, int, int, int]] = []
    known: dict[int, set[int]] = {}
    for number, message in enumerate(trace.messages):
        if message.recv is not None and message.nbytes:
            done = message.recv.completed
            steps.append((message.send.issued, 1, number, message.src))
            steps.append((message.send.issued if done is None else done, 0, number, message.dst))
    # At equal times what arrives comes first: it may be what is sent on at that very moment.
    for _, leaving, number, rank in sorted(steps):
        if leaving:
            known[number] = set(heard[rank])
        elif number in known:
            heard[rank] |= known[number]
        else:  # received at the moment in which it was sent
            message = trace.messages[number]
            heard[rank] |= heard[message.src]
    return heard


def _list(ranks: list[int]) -> str:
    return ("ranks " if len(ranks) > 1 else "rank ") + ", ".join(map(str, ranks))
