"""From what happened to the sentence that says so.

Real and simulated ranks fail in the same ways, so both take their words from here: a few Events
or Waits go in, an error with its complete text comes out. Nothing here looks at a process, a
clock or a log.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from course_lib.errors import Deadlock, Hazard, Mismatch, Wait
from course_lib.trace import Event, Line

# What must be equal on all ranks of one call: the bytes that a rank reads, or those that it writes.
_READS_EQUAL = {"gather", "reduce_scatter",
                "reduce_scatter_single", "all_reduce", "reduce", "broadcast"}  # fmt: skip
_WRITES_EQUAL = {"scatter", "all_gather", "all_gather_single"}


def call_text(event: Event) -> str:
    """The call as a reader would write it: ``recv(src=1)``, ``all_reduce(SUM)``."""
    words = []
    if event.reduce_op:
        words.append(event.reduce_op)
    if event.peer is not None:
        words.append(
            f"{'dst' if event.is_send or event.op in ('reduce', 'gather') else 'src'}={event.peer}"
        )
    if event.tag:
        words.append(f"tag={event.tag}")
    name = event.op
    if event.async_op and (event.is_send or event.is_recv):
        name = "i" + name
    return f"{name}({', '.join(words)})"


def ranks_text(ranks: Collection[int]) -> str:
    """``rank 3``, ``ranks 0 and 2``, ``ranks 0, 1 and 2``; long lists are cut."""
    names = [str(r) for r in sorted(ranks)]
    if len(names) == 1:
        return f"rank {names[0]}"
    if len(names) > 8:
        names = [*names[:6], f"{len(names) - 6} more"]
    return f"ranks {', '.join(names[:-1])} and {names[-1]}"


def columns(rows: Sequence[tuple[str, Line | None]]) -> list[str]:
    """Two aligned columns: what a rank does, and the line it does it in."""
    width = max(len(text) for text, _ in rows)
    return [f"  {text:<{width}}   {line or ''}".rstrip() for text, line in rows]


def _cut(rows: list[str], most: int = 16) -> list[str]:
    return rows if len(rows) <= most else [*rows[:most], f"  … and {len(rows) - most} more ranks"]


# ---- deadlock -------------------------------------------------------------------------------


def find_cycle(waits: Sequence[Wait]) -> tuple[int, ...]:
    """Ranks in waiting order, each waiting for the next and the last for the first; or ()."""
    on = {w.rank: w.on for w in waits}
    for start in sorted(on):
        path: list[int] = []
        seen: dict[int, int] = {}
        rank = start
        while rank in on and rank not in seen:
            seen[rank] = len(path)
            path.append(rank)
            following = [r for r in on[rank] if r in on]
            if not following:
                break
            rank = following[0]
        else:
            if rank in seen:
                cycle = path[seen[rank] :]
                smallest = cycle.index(min(cycle))
                return tuple(cycle[smallest:] + cycle[:smallest])
    return ()


def deadlock(
    waits: Sequence[Wait], returned: Collection[int], world_size: int, advice: str = ""
) -> Deadlock:
    """The error for ranks that wait only for one another, or for ranks that have ``returned``.
    ``advice`` is the way out, where there is a better one than the calls' names tell.
    """
    waits = sorted(waits, key=lambda w: w.rank)
    gone = sorted({r for w in waits for r in w.on if r in returned})
    cycle = () if gone else find_cycle(waits)
    rows = [(f"rank {w.rank} waits in {w.call}", w.line) for w in waits]
    advice = advice or _way_out(waits, gone, cycle)
    lines = [_headline(waits, gone, world_size), *_cut(columns(rows)), advice]
    return Deadlock("\n".join(lines), waits, cycle)


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
    calls = {w.rank: w.call.split("(")[0] for w in waits}
    if gone:
        first = next(w for w in waits if set(w.on) & set(gone))
        return f"{first.call} needs {ranks_text(gone)} to call its counterpart before it returns."
    arrows = " → ".join(str(r) for r in (*cycle, cycle[0])) + ". " if cycle else ""
    kinds = {calls[r] for r in cycle}
    if kinds <= {"recv", "irecv"} and kinds:
        return f"{arrows}One of them has to send before it receives."
    if kinds == {"isend"}:
        return f"{arrows}A send is over when its recv has taken it: call that before you wait."
    if kinds <= {"send", "isend"} and kinds:
        return f"{arrows}A send waits for its recv: one of them has to receive before it sends."
    if kinds & {"send", "isend", "recv", "irecv"}:
        return f"{arrows}Reorder the calls so that each one meets its counterpart."
    if len({w.group for w in waits}) > 1:
        return f"{arrows}Ranks that share groups have to use them in the same order."
    return f"{arrows}Every rank of the group has to make the same calls in the same order."


# ---- mismatch -------------------------------------------------------------------------------


def mismatch(a: Event, b: Event) -> Mismatch | None:
    """The error if two calls that met (a send and its recv, or two ranks' calls of the same
    collective) do not fit together; None if they do.
    """
    if a.is_send or a.is_recv:
        return _message_mismatch(a, b)
    for what, left, right in _differences(a, b):
        if left != right:
            return _pair(a, b, what, left, right)
    return None


def _differences(a: Event, b: Event) -> list[tuple[str, object, object]]:
    out: list[tuple[str, object, object]] = [("op", a.op, b.op), ("root", a.peer, b.peer)]
    if a.op != b.op:
        return out
    if a.op == "new_group":  # of real ranks, where its shape is the list of members
        return [*out, ("group", str(list(a.shape)), str(list(b.shape)))]
    out += [("reduce op", a.reduce_op, b.reduce_op), ("dtype", a.dtype, b.dtype)]
    if a.op in _READS_EQUAL and a.bytes_in != b.bytes_in:
        out.append(("shape", a.shape, b.shape))
    if a.op in _WRITES_EQUAL and a.bytes_out != b.bytes_out:
        out.append(("shape", a.shape, b.shape))
    return out


def _message_mismatch(a: Event, b: Event) -> Mismatch | None:
    if a.dtype != b.dtype:
        return _pair(a, b, "dtype", a.dtype, b.dtype)
    if a.nbytes != b.nbytes:
        return _pair(a, b, "shape", a.shape, b.shape)
    return None


_RULES = {
    "op": "Every rank of a group has to call the same collectives in the same order.",
    "root": "All ranks of one call have to name the same root.",
    "reduce op": "All ranks of one call have to use the same reduce op.",
    "dtype": "Convert one of them, so that both sides use the same dtype.",
    "shape": "Both sides have to use the same number of elements.",
    "tag on NCCL": "NCCL ignores tags: between two ranks, the first send meets the first recv. "
    "Call them in the same order.",
    "tag": "A send and its recv have to use the same tag.",
    "group": "All of them have to name the same group.",
}


def _pair(a: Event, b: Event, what: str, left: object, right: object) -> Mismatch:
    a, b, left, right = (a, b, left, right) if a.rank <= b.rank else (b, a, right, left)
    extra = what in ("dtype", "shape")
    rows = [
        (f"rank {e.rank} calls {call_text(e)}" + (f" with {_seen(value)}" if extra else ""), e.line)
        for e, value in ((a, left), (b, right))
    ]
    headline = f"{_who(a, b)} on the {what}: {_seen(left)} and {_seen(right)}."
    text = "\n".join([headline, *columns(rows), _RULES[what]])
    return Mismatch(text, what, (a.rank, b.rank), (a.line, b.line))


def _who(a: Event, b: Event) -> str:
    if a.rank == b.rank:
        return f"rank {a.rank} does not agree with itself"
    return f"ranks {a.rank} and {b.rank} do not agree"


def _seen(value: object) -> str:
    if not isinstance(value, tuple):
        return str(value)
    return "1 element" if value in ((), (1,)) else "x".join(map(str, value)) + " elements"


def tags_differ(a: Event, b: Event) -> Mismatch:
    """The error for a send and a recv that would meet, were it not for their tags."""
    return _pair(a, b, "tag", a.tag, b.tag)


def tags_ignored(send: Event, recv: Event) -> Mismatch:
    """The error for a send and a recv that meet on NCCL although their tags differ."""
    return _pair(send, recv, "tag on NCCL", send.tag, recv.tag)


def no_source(recv: Event) -> Mismatch:
    """The error for a recv from any source on NCCL, which has no such thing."""
    advice = "NCCL receives only from a rank that is named: recv(x, src)."
    what = "receives from any source."
    return Mismatch(_alone(recv, what, advice), "peer", (recv.rank,), (recv.line,))


def groups_differ(a: Event, b: Event) -> Mismatch:
    """The error for two calls that would meet, were it not for their groups."""
    return _pair(a, b, "group", a.group, b.group)


def peers_differ(send: Event, recv: Event) -> Mismatch:
    """The error for a send to a rank that receives from somebody else, who will never send."""
    text = "\n".join(
        [
            f"rank {send.rank} sends to rank {recv.rank}, which receives from rank {recv.peer}.",
            *columns([(f"rank {e.rank} calls {call_text(e)}", e.line) for e in (send, recv)]),
            "The sender has to name the rank that receives, and the receiver the rank that sends.",
        ]
    )
    return Mismatch(text, "peer", (send.rank, recv.rank), (send.line, recv.line))


def absent(event: Event, ranks: Collection[int]) -> Mismatch:
    """The error for a collective that some members of its group never called, though all ended."""
    what = f"calls {event.op}, and {ranks_text(ranks)} never did."
    advice = "Every rank of a group has to make the same calls; for new_group, that is every rank."
    return Mismatch(_alone(event, what, advice), "op", (event.rank, *ranks), (event.line,))


def strided(event: Event) -> Mismatch:
    """The error for a tensor whose elements do not lie side by side, given to a call that would
    silently read or write the memory between them.
    """
    what = f"gives {event.op} a strided tensor, whose elements do not lie side by side."
    advice = "The backend touches the memory between them: use x.contiguous(), then copy back."
    return Mismatch(_alone(event, what, advice), "stride", (event.rank,), (event.line,))


def _alone(event: Event, what: str, advice: str) -> str:
    """The text about one rank's one call."""
    row = (f"rank {event.rank} calls {call_text(event)}", event.line)
    return "\n".join([f"rank {event.rank} {what}", *columns([row]), advice])


# ---- hazard ---------------------------------------------------------------------------------


def unwaited(event: Event) -> Hazard:
    """The error for a Work that was returned to the reader's code and never waited for."""
    what = f"never waits for its {call_text(event)}."
    advice = (
        "Until wait() returns, nobody knows whether the data has moved: keep the Work and wait."
    )
    return _hazard(event, "never waited for", what, advice)


def written_before_wait(event: Event) -> Hazard:
    """The error for a buffer that a call still reads, and that was changed before ``wait()``."""
    what = f"writes to a buffer that {call_text(event)} is still sending."
    advice = (
        "The receiver may get either value: wait for the Work before you write, or send a copy."
    )
    return _hazard(event, "written before wait", what, advice)


def written_into(event: Event, twice: bool = False) -> Hazard:
    """The error for a buffer that a call has yet to fill, and that was written to before
    ``wait()``, or that another message has filled as well: then it happened ``twice``.
    """
    what = f"writes to a buffer that {call_text(event)} is still filling."
    advice = "Whether it or what arrives comes last is left to chance: wait for the Work first."
    if twice:
        what = f"calls {call_text(event)}, and another message fills the same tensor."
        advice = "Whichever comes last stays: give each message a tensor of its own."
    return _hazard(event, "written before wait", what, advice)


def read_before_wait(event: Event) -> Hazard:
    """The error for a buffer that a call has yet to fill, and that was used before ``wait()``."""
    what = f"reads a buffer that {call_text(event)} has not filled yet."
    advice = "What it finds there is left to chance: wait for the Work before you read."
    return _hazard(event, "read before wait", what, advice)


def _hazard(event: Event, kind: str, what: str, advice: str) -> Hazard:
    return Hazard(_alone(event, what, advice), kind, event.rank, event.line)
