"""Hazard: the error for a call whose buffer was touched too early, or that nobody waited for.

Each function is named after the hazard that it makes an error for. Real ranks find only
``still_filled`` and ``unwaited``; a simulation, which sees every access, finds all of them.
"""

from __future__ import annotations

from course_lib.diagnosis.lines import Row, call_text, error_text, row
from course_lib.errors import Hazard
from course_lib.trace import Event


def _make(kind: str, event: Event, does: str, advice: str, *before: Row) -> Hazard:
    text = error_text(f"rank {event.rank} {does}", [*before, row(event)], advice)
    line = before[0][1] if before else event.line
    return Hazard(text, kind=kind, rank=event.rank, line=line)


def written_before_wait(event: Event) -> Hazard:
    """A rank changed a buffer that this send was still reading."""
    does = f"writes to a buffer that {call_text(event)} is still sending."
    advice = (
        "The receiver may get either value: wait for the Work before you write, or send a copy."
    )
    return _make("written before wait", event, does, advice)


def read_before_wait(event: Event) -> Hazard:
    """A rank used a buffer that this call had yet to fill."""
    does = f"reads a buffer that {call_text(event)} has not filled yet."
    advice = "What it finds there is left to chance: wait for the Work before you read."
    return _make("read before wait", event, does, advice)


def written_into(event: Event, twice: bool = False) -> Hazard:
    """A rank wrote to a buffer that this call had yet to fill; or, if ``twice``, gave the same
    buffer to another call that fills it.
    """
    does = f"writes to a buffer that {call_text(event)} is still filling."
    advice = "Whether it or what arrives comes last is left to chance: wait for the Work first."
    if twice:
        does = f"calls {call_text(event)}, and another message fills the same tensor."
        advice = "Whichever comes last stays: give each message a tensor of its own."
    return _make("written before wait", event, does, advice)


def still_filled(first: Event, second: Event) -> Hazard:
    """A rank gave ``second`` memory that the collective ``first`` had yet to fill."""
    does = f"gives {call_text(second)} a tensor that {call_text(first)} is still filling."
    advice = "Which is first is left to chance: wait for the Work, or use a tensor for each call."
    return _make("written before wait", second, does, advice, row(first))


def received_into(send: Event, writer: Event) -> Hazard:
    """Another call, ``writer``, fills the tensor that this one is still sending."""
    does = f"fills a tensor that it has given to {call_text(send)} and not waited for."
    advice = (
        "torch forbids to change a tensor between isend and its wait(), even where what comes is "
        "an answer to what was sent: wait for the Work first, or fill another tensor."
    )
    return _make("written before wait", send, does, advice, row(writer))


def unwaited(event: Event) -> Hazard:
    """The Work of this call went to the reader's code, and nobody waited for it."""
    why = "Until wait() returns, nobody knows whether the data has moved"
    if event.called is not None:  # on a modelled GPU
        why = "wait() makes the current stream wait for the data; without it, nothing does"
    does = f"never waits for its {call_text(event)}."
    return _make("never waited for", event, does, f"{why}: keep the Work and wait.")
