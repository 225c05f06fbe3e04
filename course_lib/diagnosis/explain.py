"""From what happened to the sentence that says so.

Real and simulated ranks fail in the same ways, so both take their words from here: a few Events
or Waits go in, an error with its complete text comes out. Nothing here looks at a process, a
clock or a log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product

from course_lib.errors import Deadlock, Hazard, Mismatch, Wait
from course_lib.trace import Event, Line

# What must be equal on all ranks of one call: the bytes that a rank reads, or those that it writes.
_READS_EQUAL = {
    "gather",
    "reduce_scatter",
    "reduce_scatter_single",
    "all_reduce",
    "reduce",
    "broadcast",
}
_WRITES_EQUAL = {"scatter", "all_gather", "all_gather_single"}
_MOST_ROWS = 16
Row = tuple[str, Line | None]  # what a rank does, and where


def call_text(event: Event) -> str:
    """The call as a reader would write it: ``recv(src=1)``, ``all_reduce(SUM)``."""
    words = [event.reduce_op] if event.reduce_op else []
    if event.peer is not None:
        to_peer = event.is_send or event.op in ("reduce", "gather")
        words.append(f"{'dst' if to_peer else 'src'}={event.peer}")
    if event.tag:
        words.append(f"tag={event.tag}")
    return f"{event.name}({', '.join(words)})"


def ranks_text(ranks: Collection[int]) -> str:
    """``rank 3``, ``ranks 0 and 2``, ``ranks 0, 1 and 2``; long lists are cut."""
    names = [str(r) for r in sorted(ranks)]
    if len(names) == 1:
        return f"rank {names[0]}"
    if len(names) > 8:
        names = [*names[:6], f"{len(names) - 6} more"]
    return f"ranks {', '.join(names[:-1])} and {names[-1]}"


def _text(headline: str, rows: Sequence[Row], advice: str, parted: Sequence[str] = ()) -> str:
    """What happened; in two columns what each rank does, and its line; where the ranks had
    ``parted``; the way out.
    """
    return "\n".join([headline, *_table(rows), *parted, advice])


def _table(rows: Sequence[Row]) -> list[str]:
    width = max(len(what) for what, _ in rows)
    lines = [f"  {what:<{width}}   {line or ''}".rstrip() for what, line in rows[:_MOST_ROWS]]
    if len(rows) > _MOST_ROWS:
        lines.append(f"  … and {len(rows) - _MOST_ROWS} more ranks")
    return lines


def parted(calls: Mapping[int, Sequence[Event]], at: int) -> list[str]:
    """Where ranks began to go different ways, who at last, at call number ``at`` (from 0) of a
    group, did not meet; [] if that was only there. ``calls`` are each rank's collectives of the
    group. Calls of one number from different lines are no fault, as an ``if`` has two branches: it
    is only said where one follows them.
    """
    start = _first_apart(calls, at)
    if start == at:  # two different ways may pass the same line once
        before = _first_apart(calls, at - 1)
        start = before if before < at - 2 else at
    if start == at:
        return []
    rows = [(ranks_text(ranks), line) for line, ranks in _lines_at(calls, start).items()]
    return [f"They had parted before, at collective call {start + 1}:", *_table(rows)]


def _first_apart(calls: Mapping[int, Sequence[Event]], at: int) -> int:
    """From which call on, up to the one before ``at``, no call is at one line on all ranks."""
    while at > 0 and len(_lines_at(calls, at - 1)) > 1:
        at -= 1
    return at


def _lines_at(calls: Mapping[int, Sequence[Event]], at: int) -> dict[Line, list[int]]:
    """Who makes their call of this number at which line."""
    ranks: dict[Line, list[int]] = {}
    for rank, events in sorted(calls.items()):
        if len(events) > at and (line := events[at].line) is not None:
            ranks.setdefault(line, []).append(rank)
    return ranks


def _row(event: Event, how: str = "") -> Row:
    return f"rank {event.rank} calls {call_text(event)}{how}", event.line


# ---- deadlock -------------------------------------------------------------------------------


def _find_cycle(waits: Sequence[Wait]) -> tuple[int, ...]:
    """Ranks in waiting order, each waiting for the next and the last for the first; or ()."""
    on = {w.rank: w.on for w in waits}
    for start in sorted(on):
        path: list[int] = []
        rank: int | None = start
        while rank is not None and rank not in path:
            path.append(rank)
            rank = next((r for r in on[rank] if r in on), None)
        if rank is not None:
            cycle = path[path.index(rank) :]
            smallest = cycle.index(min(cycle))
            return tuple(cycle[smallest:] + cycle[:smallest])
    return ()


def deadlock(
    waits: Sequence[Wait],
    returned: Collection[int],
    world_size: int,
    advice: str = "",
    parted: Sequence[str] = (),
) -> Deadlock:
    """The error for ranks that wait only for one another, or for ranks that have ``returned``.
    ``advice`` is the way out, where there is a better one than the calls' names tell.
    """
    waits = sorted(waits, key=lambda w: w.rank)
    gone = sorted({r for w in waits for r in w.on if r in returned})
    cycle = () if gone else _find_cycle(waits)
    rows = [(f"rank {w.rank} waits in {w.call}", w.line) for w in waits]
    headline = _headline(waits, gone, world_size)
    text = _text(headline, rows, advice or _way_out(waits, gone, cycle), parted)
    return Deadlock(text, waits=waits, cycle=cycle)


def _headline(waits: Sequence[Wait], gone: Sequence[int], world_size: int) -> str:
    who = ranks_text([w.rank for w in waits])
    verb = "waits" if len(waits) == 1 else "wait"
    if gone:
        has = "has" if len(gone) == 1 else "have"
        return f"{who} {verb} for {ranks_text(gone)}, which {has} already returned."
    if len(waits) == world_size:
        return "every rank waits for another."
    return f"{who} {verb} for one another, and nobody else can free them."


def _way_out(waits: Sequence[Wait], gone: Sequence[int], cycle: Sequence[int]) -> str:
    if gone:
        first = next(w for w in waits if set(w.on) & set(gone))
        needed = ranks_text(set(first.on).intersection(gone))
        return f"{first.call} needs {needed} to call its counterpart before returning."
    arrows = " → ".join(map(str, (*cycle, *cycle[:1])))
    kinds = {_kind(w) for w in waits if w.rank in cycle}
    messages = [w for w in waits if w.rank in cycle and _kind(w) in _COUNTERPARTS]
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
        advice = _counterpart_missing(messages[0], {w.rank: w for w in waits})
    return f"{arrows}. {advice}" if cycle else advice


_COUNTERPARTS = {"send": "recv", "isend": "recv", "recv": "send", "irecv": "send"}


def _counterpart_missing(wait: Wait, waits: Mapping[int, Wait]) -> str:
    other = waits[next(rank for rank in wait.on if rank in waits)]
    return (
        f"rank {other.rank} has called no {_COUNTERPARTS[_kind(wait)]} for rank {wait.rank}'s "
        f"{wait.call}: call it before {other.call}, or leave out what it is for."
    )


def _kind(wait: Wait) -> str:
    return wait.call.split("(")[0]


# ---- mismatch -------------------------------------------------------------------------------


def mismatch(a: Event, b: Event, parted: Sequence[str] = ()) -> Mismatch | None:
    """The error if two calls that met, or were meant to (a send and its recv, or two ranks' calls
    of the same collective), do not fit together; None if they do. What nobody has told (of a call
    that C++ makes, the reduce op) differs from nothing.
    """
    for what, left, right in _compared(a, b):
        if left != right and left is not None and right is not None:
            return _pair(a, b, what, left, right, parted)
    return None


def splits_differ(
    calls: Iterable[Event], others: Iterable[Event], members: Sequence[int]
) -> Mismatch | None:
    """The error if, of collective calls that met, one of ``calls`` gives one of ``others`` more or
    fewer elements than that one expects, or the other way round; None if every two fit.
    ``members`` are the group's ranks.
    """
    for one, other in product(calls, others):
        for giver, taker in (one, other), (other, one):
            if giver.in_splits is None or taker.out_splits is None:
                continue
            given = giver.in_splits[members.index(taker.rank)]
            expected = taker.out_splits[members.index(giver.rank)]
            if given != expected:
                return _split_differs(giver, taker, given, expected)
    return None


def _split_differs(giver: Event, taker: Event, given: int, expected: int) -> Mismatch:
    to = "itself and" if giver.rank == taker.rank else f"rank {taker.rank}, which"
    headline = f"rank {giver.rank} sends {_seen((given,))} to {to} expects {expected}."
    events = [giver] if giver is taker else sorted((giver, taker), key=lambda e: e.rank)
    return _mismatch(headline, "splits", events, _RULES["splits"])


def _compared(a: Event, b: Event) -> Iterator[tuple[str, object, object]]:
    """What has to be equal, and what it is on both sides; what comes first is told."""
    if a.is_collective:
        yield "op", a.op, b.op
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
    """Those that are as many on both sides; none where each rank may have a number of its own."""
    reads, writes = event.op in _READS_EQUAL, event.op in _WRITES_EQUAL
    both = event.nbytes if not event.is_collective else 0
    return event.bytes_in if reads else event.bytes_out if writes else both


_RULES = {
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
}


def _pair(
    a: Event, b: Event, what: str, left: object, right: object, parted: Sequence[str] = ()
) -> Mismatch:
    a, b, left, right = (a, b, left, right) if a.rank <= b.rank else (b, a, right, left)
    said = [f" with {_seen(v)}" if what in ("dtype", "shape") else "" for v in (left, right)]
    headline = f"{_who(a, b)} on the {what}: {_seen(left)} and {_seen(right)}."
    return _mismatch(headline, what, (a, b), _RULES[what], said, parted)


def _mismatch(
    headline: str,
    what: str,
    events: Sequence[Event],
    advice: str,
    said: Sequence[str] = ("", ""),
    parted: Sequence[str] = (),
) -> Mismatch:
    rows = [_row(event, how) for event, how in zip(events, said, strict=False)]
    text = _text(headline, rows, advice, parted)
    ranks, lines = tuple(e.rank for e in events), tuple(e.line for e in events)
    return Mismatch(text, what=what, ranks=ranks, lines=lines)


def _who(a: Event, b: Event) -> str:
    if a.rank == b.rank:
        return f"rank {a.rank} does not agree with itself"
    return f"ranks {a.rank} and {b.rank} do not agree"


def _seen(value: object) -> str:
    if not isinstance(value, tuple):
        return str(value)
    return "1 element" if value in ((), (1,)) else "x".join(map(str, value)) + " elements"


def tags_ignored(send: Event, recv: Event) -> Mismatch:
    """The error for a send and a recv that meet on NCCL although their tags differ."""
    return _pair(send, recv, "tag on NCCL", send.tag, recv.tag)


def no_source(recv: Event) -> Mismatch:
    """The error for a recv from any source on NCCL, which has no such thing."""
    advice = "NCCL receives only from a rank that is named: recv(x, src)."
    return _mismatch(f"rank {recv.rank} receives from any source.", "peer", [recv], advice)


def groups_differ(a: Event, b: Event) -> Mismatch:
    """The error for two calls that would meet, were it not for their groups."""
    return _pair(a, b, "group", a.group, b.group)


def peers_differ(send: Event, recv: Event) -> Mismatch:
    """The error for a send to a rank that receives from somebody else, who will never send."""
    what = f"rank {send.rank} sends to rank {recv.rank}, which receives from rank {recv.peer}."
    advice = "The sender has to name the rank that receives, and the receiver the rank that sends."
    return _mismatch(what, "peer", (send, recv), advice)


def absent(event: Event, ranks: Collection[int], parted: Sequence[str] = ()) -> Mismatch:
    """The error for a collective that some members of its group never called, though all ended."""
    what = f"rank {event.rank} calls {event.op}, and {ranks_text(ranks)} never did."
    advice = "Every rank of a group has to make the same calls; for new_group, that is every rank."
    error = _mismatch(what, "op", [event], advice, parted=parted)
    error.ranks += tuple(ranks)
    return error


# Of a tensor with gaps, gloo silently touches the memory in between. A transposed one it takes as
# it lies, but for outputs that it fills in order.
NEED_DENSE = {"all_reduce", "broadcast", "reduce", "scatter", "reduce_scatter", "all_to_all_single"}
FILL_IN_ORDER = {"all_to_all_single", "reduce_scatter"}
FILL_A_LIST = {
    "all_gather",
    "all_gather_coalesced",
    "all_reduce_coalesced",
    "all_to_all",
    "gather",
}


def strided(event: Event) -> Mismatch:
    """The error for a tensor whose elements do not lie side by side, given to a call that would
    silently read or write the memory between them.
    """
    what = f"rank {event.rank} gives {event.op} a strided tensor, whose elements do not lie "
    advice = "The backend touches the memory between them: use x.contiguous(), then copy back."
    return _mismatch(f"{what}side by side.", "stride", [event], advice)


def outputs_shared(event: Event, what: str) -> Mismatch:
    """The error for a call whose list of outputs is ``what`` shared_memory says."""
    advice = (
        "What is filled last stays in all of them: use [torch.empty(2) for _ in range(n)], "
        "not [torch.empty(2)] * n."
    )
    if not what.startswith("one"):
        advice = "What is filled last stays where they meet: give each rank's part its own memory."
    headline = f"rank {event.rank} lets {event.op} fill {what}."
    return _mismatch(headline, "outputs", [event], advice)


# ---- hazard: the error for a call … -------------------------------------------------------------


def _hazard(kind: str, what: str, advice: str, event: Event) -> Hazard:
    headline = f"rank {event.rank} {what.format(call_text(event))}"
    text = _text(headline, [_row(event)], advice)
    return Hazard(text, kind=kind, rank=event.rank, line=event.line)


_Telling = Callable[[Event], Hazard]
# … that still read the buffer when it was changed
written_before_wait: _Telling = partial(
    _hazard,
    "written before wait",
    "writes to a buffer that {} is still sending.",
    "The receiver may get either value: wait for the Work before you write, or send a copy.",
)
# … that had yet to fill the buffer when it was used
read_before_wait: _Telling = partial(
    _hazard,
    "read before wait",
    "reads a buffer that {} has not filled yet.",
    "What it finds there is left to chance: wait for the Work before you read.",
)


def written_into(event: Event, twice: bool = False) -> Hazard:
    """… that had yet to fill the buffer when it was written to, or shares it with another message:
    then it is filled ``twice``.
    """
    what = "writes to a buffer that {} is still filling."
    advice = "Whether it or what arrives comes last is left to chance: wait for the Work first."
    if twice:
        what = "calls {}, and another message fills the same tensor."
        advice = "Whichever comes last stays: give each message a tensor of its own."
    return _hazard("written before wait", what, advice, event)


def unwaited(event: Event) -> Hazard:
    """The error for a call whose Work went to the reader's code and was never waited for."""
    why = "Until wait() returns, nobody knows whether the data has moved"
    if event.called is not None:  # on a modelled GPU
        why = "wait() makes the current stream wait for the data; without it, nothing does"
    what = "never waits for its {}."
    return _hazard("never waited for", what, f"{why}: keep the Work and wait.", event)


def received_into(send: Event, writer: Event) -> Hazard:
    """The error for a call that fills a tensor which another one is still sending."""
    given = call_text(send)
    what = f"rank {send.rank} fills a tensor that it has given to {given} and not waited for."
    advice = (
        "torch forbids to change a tensor between isend and its wait(), even where what comes is "
        "an answer to what was sent: wait for the Work first, or fill another tensor."
    )
    text = _text(what, [_row(writer), _row(send)], advice)
    return Hazard(text, kind="written before wait", rank=send.rank, line=writer.line)
