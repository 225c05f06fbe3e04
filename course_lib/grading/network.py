"""The judge's network: ranks are processes elsewhere, and every message goes through here.

    rank's process 0 ◄─ plain data ─► Proxy 0 ┐
    rank's process 1 ◄─ plain data ─► Proxy 1 ┤ threads of one simulation: mail, collectives,
    rank's process 2 ◄─ plain data ─► Proxy 2 ┘ clocks, deadlocks, hazards and the trace are its own

A Proxy calls mail and collectives on its rank's behalf, with the line that the rank says it stands
at. What is sent, to whom and how much is what arrives here. Which line it was, and whether a buffer
was touched before its wait, is the rank's word: a rank can lie about itself, not about messages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from course_lib import explain
from course_lib.checks.compare import left
from course_lib.checks.exercise import Play, Seen
from course_lib.checks.kept import Kept
from course_lib.grading.far import Own
from course_lib.grading.frames import MOST_SECONDS, Ended, Malformed
from course_lib.grading.plain import decode, opened, text_of
from course_lib.grading.processes import Slot
from course_lib.simulated import hazards
from course_lib.simulated.collective import CollectiveWork
from course_lib.simulated.mail import RecvWork
from course_lib.simulated.scheduler import Abandoned
from course_lib.trace import Line, Span
from course_lib.user_code import line_at

_COLLECTIVES = {
    "all_reduce", "all_reduce_coalesced", "broadcast", "reduce", "all_gather", "all_gather_single",
    "gather", "scatter", "reduce_scatter", "reduce_scatter_single", "all_to_all",
    "all_to_all_single", "barrier", "monitored_barrier",
}  # fmt: skip
_OPTIONS: dict[str, tuple[type, ...]] = {"root": (int,), "reduce_op": (str, type(None)),
                                         "async_op": (bool,)}  # fmt: skip
_TOUCHED = {"filled": explain.written_into, "sent": explain.written_before_wait}
MOST_WORKS = 20_000
MOST_BYTES = 8 << 20  # of one call's tensors
MOST_KEPT = 256 << 20  # of one play's
MOST_SPANS = 1_000
LONGEST = 1e4  # seconds of one call; on larger clocks short times would be lost in rounding
Request = dict[str, Any]


class Stage:
    """One play: which slot is which rank, and what each is given."""

    current: Stage | None = None

    def __init__(self, slots: list[Slot], play: Play, files: set[str], ddp: bool) -> None:
        self.slots, self.inputs, self.files, self.ddp = slots, play.inputs, files, ddp
        self.kept = 0  # bytes that came with calls
        self.given = [packed(list(rounds)) for rounds in zip(*play.inputs, strict=True)]


def be_rank() -> list[Seen]:
    """What a rank of the simulation does: stand in for its process, to its end."""
    stage, rank = Stage.current, dist.get_rank()
    assert stage is not None
    return Proxy(stage, rank).serve()


def keeps(arg: Any) -> bool:
    """Whether an argument stays here and is called back: then the judge knows what it notes."""
    return callable(arg) and type(arg).__module__.startswith("course_lib.checks.lesson_")


def packed(rounds: list[tuple]) -> str:
    """The arguments of every call of one rank, with a stand-in for what stays here."""
    return text_of(Kept([
        tuple(Own(call, place) if keeps(arg) else arg for place, arg in enumerate(args))
        for call, args in enumerate(rounds)
    ]).parcel)  # fmt: skip


@dataclass(frozen=True)
class Place:
    """Where a call comes from, as its rank says: a Site without bytecode."""

    line: Line | None
    direct: bool
    blocking: bool
    carries: bool


class Proxy:
    """Stands in for one rank."""

    def __init__(self, stage: Stage, rank: int) -> None:
        self._stage, self._slot = stage, stage.slots[rank]
        # An own copy for every play: what is called back remembers that it was.
        self._rounds = Kept([by_rank[rank] for by_rank in stage.inputs]).value
        world: Any = dist.group.WORLD
        self._all, self._rank = world._groups, world._rank  # the simulator's
        self._scheduler = self._all.scheduler
        self._groups = [world.shared]  # of each its mail, its collectives, its members
        self._works: list[tuple[Any, list[torch.Tensor]]] = []  # and what each of them fills

    def serve(self) -> list[Seen]:
        slot = self._slot
        try:
            slot.start({"play": {
                "rank": self._rank.number, "world": len(self._stage.slots),
                "ddp": self._stage.ddp, "rounds": self._stage.given[self._rank.number],
            }})  # fmt: skip
            while True:
                request = slot.talk.receive()
                do = request.get("do")
                if do == "done":
                    slot.state = "idle"
                    return self._seen(request)
                if do == "raised":
                    slot.state = "idle"
                    raise self._raised(request)
                slot.talk.send(self._answer(do, request))
        except Abandoned:
            slot.abandon()
            raise
        except Malformed as error:
            slot.spoil(str(error))
            raise RuntimeError("what came from the rank is not what a rank says") from None
        except Ended:
            slot.spoil("")
            raise RuntimeError("the rank's process ended before the function returned") from None

    def _answer(self, do: Any, request: Request) -> Request:
        handler = _HANDLERS.get(do) if isinstance(do, str) else None
        if handler is None:
            raise Malformed("no such request")
        try:
            return handler(self, request)
        except Malformed:
            raise
        except (KeyError, AttributeError) as error:
            raise Malformed(f"a request without its parts: {type(error).__name__}") from None
        except Exception as error:
            return {"error": [type(error).__name__, str(error)[:300]]}

    # -- at the end ------------------------------------------------------------------------------

    def _seen(self, request: Request) -> list[Seen]:
        calls = request.get("seen")
        if type(calls) is not list or len(calls) != len(self._rounds):
            raise Malformed("another number of calls")
        return [self._seen_in(*one) for one in zip(calls, self._rounds, strict=True)]

    def _seen_in(self, call: Request, args: tuple) -> Seen:
        notes = call["notes"]
        if type(notes) is not list or any(type(n) is not str or len(n) > 200 for n in notes):
            raise Malformed("notes that are none")
        said = decode({"tuple": call["args"]})
        if len(said) != len(args):
            raise Malformed("another number of arguments")
        after = tuple(left(arg) if keeps(arg) else now
                      for arg, now in zip(args, said, strict=True))  # fmt: skip
        for arg, now in zip(args, after, strict=True):
            if type(now) is dict and not all(type(name) is str for name in now):
                raise Malformed("tensors without names")
            if hasattr(arg, "believes") and not arg.believes(now):
                raise Malformed("notes of forward passes that cannot be")
        return Seen(decode(call["returned"]), after, tuple(notes))

    def _raised(self, request: Request) -> BaseException:
        """What the rank has raised, with the lines at which it stood."""
        kind, text, lines = (request.get(name) for name in ("kind", "text", "lines"))
        if type(kind) is not str or type(text) is not str or not kind.isidentifier():
            raise Malformed("an error that is none")
        if type(lines) is not list:
            raise Malformed("an error without lines")
        error: Any = SystemExit(text)
        if request.get("left") is not True:
            error = type(kind[:60], (RuntimeError,), {})(text[:600])
        error.__lines__ = [line for line in map(self._line, lines[:8]) if line]
        return error

    # -- messages, and calls of a whole group ------------------------------------------------------

    def _send(self, request: Request) -> Request:
        (mail, _, me), site, (tensor,) = self._call_of(request)
        work = mail.send(self._rank, me, tensor, self._peer(request, mail, 0), request["tag"], site)
        return self._posted(work, [], site)

    def _recv(self, request: Request) -> Request:
        (mail, _, me), site, (tensor,) = self._call_of(request)
        peer = self._peer(request, mail, -1)  # from anybody
        work = mail.recv(self._rank, me, tensor, peer, request["tag"], site)
        return self._posted(work, [tensor], site, [work.poison])

    def _issue(self, request: Request) -> Request:
        (mail, calls, me), site, tensors = self._call_of(request)
        op, more = request["op"], request["more"]
        if op not in _COLLECTIVES or type(more) is not dict:
            raise Malformed("no such collective")
        if any(type(value) not in _OPTIONS.get(name, ()) for name, value in more.items()):
            raise Malformed("no such option")
        if more.get("root", -1) >= len(mail.ranks):
            raise Malformed("a root that there is not")
        ins, outs = ([tensors[i] for i in request[side]] for side in ("ins", "outs"))
        if (shape := request["first"]) is not None:  # how many bytes there are, the tensors say
            like = (ins or outs)[0]
            more = more | {"first": torch.empty(shape, dtype=like.dtype, device="meta")}
        work = calls.issue(self._rank, me, op, ins, outs, site=site, **more)
        if request["shared"] is True:  # where it reads and fills one memory, nothing is poisoned
            work.poisons = []
        return self._posted(work, outs, site, work.poisons)

    def _posted(
        self, work: Any, fills: list[torch.Tensor], site: Place, poisons: Any = ()
    ) -> Request:
        if len(self._works) >= MOST_WORKS:
            raise Malformed("more calls than any answer needs")
        self._works.append((work, fills))
        reply = {"work": len(self._works) - 1, "poison": [p and p.side for p in poisons]}
        if not site.blocking:
            return reply
        work.wait()
        return reply | self._over(work, fills)

    def _over(self, work: Any, fills: list[torch.Tensor]) -> Request:
        """What has arrived, and of a message from whom."""
        source = work.source_rank() if isinstance(work, RecvWork) else None
        return {"values": [text_of(hazards.contents(t)) for t in fills], "source": source}

    def _wait(self, request: Request) -> Request:
        work, fills = self._work(request)
        seconds = request.get("seconds")
        if seconds is not None and not (type(seconds) is float and 0 <= seconds <= MOST_SECONDS):
            raise Malformed("a timeout that is none")
        self._rank.thread.line = self._line(request["line"])  # it is that of a deadlock
        work.wait(seconds and timedelta(seconds=seconds))
        self._rank.thread.line = None
        self._untouched(work, request)
        return self._over(work, fills)

    def _completed(self, request: Request) -> Request:
        work, fills = self._work(request)
        if not work.is_completed():
            return {}
        self._untouched(work, request)
        return self._over(work, fills)

    def _settle(self, request: Request) -> Request:
        """For code inside torch: the values as soon as all have called. See CollectiveWork."""
        work, fills = self._work(request)
        if not isinstance(work, CollectiveWork):
            raise Malformed("no collective")
        return {"end": work.settle()} | self._over(work, fills)

    def _untouched(self, work: Any, request: Request) -> None:
        """End the play if the rank says that it has used the call's memory before its time."""
        if hazard := _TOUCHED.get(request["touched"]):
            self._scheduler.fail(hazard(work.record.event()))
            raise Abandoned

    def _make(self, request: Request) -> Request:
        op, name, ranks = request["op"], request["name"], request["ranks"]
        world = len(self._stage.slots)
        if op not in ("new_group", "split_group") or type(name) is not str or len(name) > 200:
            raise Malformed("no such group")
        if type(ranks) is not list or any(type(r) is not int or not 0 <= r < world for r in ranks):
            raise Malformed("ranks that there are not")
        local = request["local"] is True
        made = self._all.make(self._rank, op, name, ranks, local, self._site(request))
        if made is None:
            return {"group": None}
        self._groups.append(made.shared)
        return {"group": len(self._groups) - 1}

    # -- time, spans, and what the judge keeps -----------------------------------------------------

    def _clock(self, request: Request) -> Request:
        return {"at": self._scheduler.read_clock()}

    def _spend(self, request: Request) -> Request:
        self._scheduler.check(self._rank)
        self._scheduler.spend(self._rank, _seconds(request["seconds"]))
        return {}

    def _span(self, request: Request) -> Request:
        name, start, end = request["name"], float(request["start"]), float(request["end"])
        if type(name) is not str or len(self._rank.spans) > MOST_SPANS:
            raise Malformed("a span that is none")
        if not 0 <= start <= end <= self._scheduler.now:
            raise Malformed("a span of a time that has not been")
        self._rank.spans.append(Span(self._rank.number, name[:60], start, end))
        return {}

    def _call(self, request: Request) -> Request:
        call, place = _ints(request, "call", "place")
        mine = self._rounds[call][place]
        if not keeps(mine):
            raise Malformed("nothing that stays with the judge")
        if request["given"]:
            raise TypeError("it takes no arguments")
        mine()
        return {}

    # -- what a request names --------------------------------------------------------------------

    def _call_of(self, request: Request) -> tuple[Any, Place, list[torch.Tensor]]:
        """Its group, with the rank's number in that; its place; and its tensors."""
        group, _ = _ints(request, "group", "tag")
        mail, calls, members = self._groups[group]
        tensors = opened(request["tensors"], MOST_BYTES)
        self._stage.kept += sum(t.nbytes for t in tensors)
        if self._stage.kept > MOST_KEPT:
            raise Malformed("more memory than any answer needs")
        return (mail, calls, members[self._rank.number]), self._site(request), tensors

    def _peer(self, request: Request, mail: Any, least: int) -> int:
        (peer,) = _ints(request, "peer")
        if not least <= peer < len(mail.ranks):
            raise Malformed("a peer that there is not")
        return peer

    def _site(self, request: Request) -> Any:
        direct, blocking, carries = (request[n] is True for n in ("direct", "blocking", "carries"))
        return Place(self._line(request["line"]), direct, blocking, carries)

    def _line(self, line: Any) -> Line | None:
        """The line of the answer that a rank names; None where it names none."""
        if type(line) is not list or len(line) != 3:
            return None
        file, number, name = line
        if type(name) is not str or len(name) > 60 or not name.isprintable():
            raise Malformed("a line that is none")
        known = type(file) is str and file in self._stage.files
        if not known or type(number) is not int or not 0 < number < 100_000:
            return None
        return line_at(file, number, name)

    def _work(self, request: Request) -> tuple[Any, list[torch.Tensor]]:
        (number,) = _ints(request, "work")
        return self._works[number]


_HANDLERS: dict[str, Callable[[Proxy, Request], Request]] = {
    "send": Proxy._send, "recv": Proxy._recv, "issue": Proxy._issue, "wait": Proxy._wait,
    "completed": Proxy._completed, "settle": Proxy._settle, "make": Proxy._make,
    "clock": Proxy._clock, "spend": Proxy._spend, "span": Proxy._span, "call": Proxy._call,
}  # fmt: skip


def _ints(request: Request, *names: str) -> list[int]:
    values = [request[name] for name in names]
    if any(type(v) is not int or abs(v) >= 1 << 31 for v in values):
        raise Malformed("a number that is none")
    return values


def _seconds(value: Any) -> float:
    """A time to spend. NaN or infinity on a clock would come before and after everything."""
    seconds = float(value)
    if not 0 <= seconds <= LONGEST:
        raise ValueError(f"{seconds!r} seconds: give a time from 0 to {LONGEST:g}")
    return seconds
