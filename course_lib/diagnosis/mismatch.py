"""Mismatch: the error for calls that met, or were meant to meet, and do not fit together.

``between``, ``of_splits`` and the functions under "one call" are named after what they find, and
return the error for it. ``past`` is always how the ranks came to these calls.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import product

from course_lib.collectives import collective
from course_lib.diagnosis.history import History
from course_lib.diagnosis.lines import call_name, error_text, ranks_text, row
from course_lib.errors import Mismatch
from course_lib.trace import Event, Line

_ADVICE = {
    "op": "Every rank of a group has to call the same collectives in the same order.",
    "root": "All ranks of one call have to name the same root.",
    "reduce op": "All ranks of one call have to use the same reduce op.",
    "dtype": "Convert one of them, so that both sides use the same dtype.",
    "shape": "Both sides have to use the same number of elements.",
    "splits": "What a rank sends another has to be as long as what that one expects from it: "
    "exchange the lengths first.",
    "tag on NCCL": "NCCL ignores tags: between two ranks, the first send meets the first recv. "
    "Call them in the same order.",
    "tag": "Give a send and its recv the same tag, or receive in the order of the sends.",
    "group": "All of them have to name the same group.",
    "module": "Under fully_shard all ranks have to run the same modules in the same order.",
}
_LEFT_OUT = "One of them makes a call that the other leaves out, or makes only later."
_MAY_BE_LEFT_OUT = (
    "One of them may leave out a call that the other makes. If these two belong together"
)
_UNKNOWN = History()


def _make(
    headline: str,
    what: str,
    events: Sequence[Event],
    advice: str,
    said: Sequence[str] = ("", ""),
    parted: Sequence[str] = (),
) -> Mismatch:
    """The error for one or two calls; ``said`` is what follows the name of each in its row."""
    rows = [row(event, how) for event, how in zip(events, said, strict=False)]
    ranks, lines = tuple(e.rank for e in events), tuple(e.line for e in events)
    text = error_text(headline, rows, advice, parted)
    return Mismatch(text, what=what, ranks=ranks, lines=lines)


# ---- two calls ----------------------------------------------------------------------------------


def between(a: Event, b: Event, past: History = _UNKNOWN) -> Mismatch | None:
    """The error if two calls do not fit together, a send and its recv or two ranks' calls of one
    collective; None if they fit. What nobody knows (as the reduce op of a call that C++ makes) is
    never a difference.
    """
    for what, left, right in _compare(a, b):
        if left != right and left is not None and right is not None:
            return pair(a, b, what, left, right, past)
    return None


def _compare(a: Event, b: Event) -> Iterator[tuple[str, object, object]]:
    """What has to be equal, and its value on both sides. The first difference is reported."""
    if a.is_collective:
        yield "op", call_name(a), call_name(b)
        yield "module", a.within or None, b.within or None
        yield "root", a.peer, b.peer
    if a.op == "new_group":  # of real ranks, where its shape is the list of members
        if max(len(a.shape), len(b.shape)) > 1:  # each rank may make one for itself
            yield "group", str(list(a.shape)), str(list(b.shape))
        return
    if a.is_collective:
        yield "reduce op", a.reduce_op, b.reduce_op
    else:
        yield "group", a.group, b.group
        yield "tag", a.tag, b.tag
    yield "dtype", a.dtype, b.dtype
    if _bytes_that_count(a) != _bytes_that_count(b):
        yield "shape", a.shape, b.shape


def _bytes_that_count(event: Event) -> int:
    """How many bytes have to be equal on both sides; 0 if each rank may have its own number."""
    equal = collective(event.op).equal if event.is_collective else "nbytes"
    return getattr(event, equal) if equal else 0


def pair(
    a: Event, b: Event, what: str, left: object, right: object, past: History = _UNKNOWN
) -> Mismatch:
    """The error for two calls that differ in ``what``: it is ``left`` in a and ``right`` in b."""
    a, b, left, right = (a, b, left, right) if a.rank <= b.rank else (b, a, right, left)
    who = f"ranks {a.rank} and {b.rank} do not agree"
    if a.rank == b.rank:
        who = f"rank {a.rank} does not agree with itself"
    how = {"dtype": " with ", "shape": " with ", "module": " for "}.get(what)
    said = [how + _value_text(value) if how else "" for value in (left, right)]
    headline = f"{who} on the {what}: {_value_text(left)} and {_value_text(right)}."
    return _make_for_two(headline, what, (a, b), past, said)


def _make_for_two(
    headline: str, what: str, events: Sequence[Event], past: History, said: Sequence[str] = ("", "")
) -> Mismatch:
    """The error for calls that do not fit, or that were never meant for each other because a rank
    has left a call out.
    """
    a, b, advice = events[0], events[-1], _ADVICE[what]
    before, left_out = past.tell_parting(), a.is_collective and past.has_left_out(a, b)
    if left_out is None and what != "op":  # for "op" the usual advice says so already
        advice = f"{_MAY_BE_LEFT_OUT}, {advice[0].lower()}{advice[1:]}"
    elif left_out:
        headline, advice = f"ranks {a.rank} and {b.rank} do not make the same calls.", _LEFT_OUT
    if left_out is not False:
        before = (before or past.tell_last_together()) + past.tell_fewer(a, b)
    return _make(headline, what, events, advice, said, before)


def _value_text(value: object) -> str:
    """A value in words; of a shape, its number of elements."""
    if not isinstance(value, tuple):
        return str(value)
    return "1 element" if value in ((), (1,)) else "x".join(map(str, value)) + " elements"


def peers_differ(send: Event, recv: Event) -> Mismatch:
    """A send goes to a rank that receives from another rank, which will never send."""
    what = f"rank {send.rank} sends to rank {recv.rank}, which receives from rank {recv.peer}."
    advice = "The sender has to name the rank that receives, and the receiver the rank that sends."
    return _make(what, "peer", (send, recv), advice)


# ---- what each rank of a call gives each ---------------------------------------------------------


def of_splits(
    calls: Sequence[Event],
    others: Sequence[Event],
    members: Sequence[int],
    past: History = _UNKNOWN,
) -> Mismatch | None:
    """The error if one of ``calls`` gives one of ``others``, which it met, a number of elements
    that the other does not expect, or the other way round; None if every pair fits. ``members`` are
    the group's ranks.
    """
    for one, other in product(calls, others):
        for giver, taker in (one, other), (other, one):
            if giver.in_splits is None or taker.out_splits is None:
                continue
            given = giver.in_splits[members.index(taker.rank)]
            expected = taker.out_splits[members.index(giver.rank)]
            if given != expected:
                return _make_for_split(giver, taker, given, expected, past)
    return None


def _make_for_split(
    giver: Event, taker: Event, given: int, expected: int, past: History
) -> Mismatch:
    """The error for a giver and a taker that disagree on how many elements go between them."""
    to = "itself and" if giver.rank == taker.rank else f"rank {taker.rank}, which"
    headline = f"rank {giver.rank} sends {_value_text((given,))} to {to} expects {expected}."
    events = [giver] if giver is taker else sorted((giver, taker), key=lambda e: e.rank)
    return _make_for_two(headline, "splits", events, past)


# ---- one call -----------------------------------------------------------------------------------


def absent(event: Event, ranks: Collection[int], past: History = _UNKNOWN) -> Mismatch:
    """A collective that some members of its group never called, although all have ended."""
    what = f"rank {event.rank} calls {call_name(event)}, and {ranks_text(ranks)} never did."
    advice = "Every rank of a group has to make the same calls; for new_group, that is every rank."
    history = past.tell_parting() + past.tell_counts(past.calls)
    error = _make(what, "op", [event], advice, parted=history)
    error.ranks += tuple(ranks)
    return error


def of_threads(event: Event, line: Line | None) -> Mismatch:
    """Two threads of a rank use a group at once; the second one was started at this line."""
    headline = f"two threads of rank {event.rank} use one group at once."
    advice = "Their calls mix in any order: give each a group of its own, or let one end first."
    other = [f"Another thread of it, which uses the group, too, was started at {line}"]
    return _make(headline, "op", [event], advice, parted=other)


def no_source(recv: Event) -> Mismatch:
    """A recv from any source on NCCL, which cannot do that."""
    advice = "NCCL receives only from a rank that is named: recv(x, src)."
    return _make(f"rank {recv.rank} receives from any source.", "peer", [recv], advice)


def strided(event: Event) -> Mismatch:
    """A call is given a tensor whose elements do not lie side by side, and would silently read or
    write the memory between them.
    """
    what = f"rank {event.rank} gives {event.op} a strided tensor, whose elements do not lie "
    advice = "The backend touches the memory between them: use x.contiguous(), then copy back."
    return _make(f"{what}side by side.", "stride", [event], advice)


def outputs_shared(event: Event, what: str) -> Mismatch:
    """A call is given outputs that share memory; ``what`` is what overlap.shared_memory says."""
    advice = "What is filled last stays where they meet: give each rank's part its own memory"
    more = ", [torch.empty(2) for _ in range(n)], not [torch.empty(2)] * n"
    advice += f"{more * what.startswith('one')}."
    headline = f"rank {event.rank} lets {event.op} fill {what}."
    return _make(headline, "outputs", [event], advice)
