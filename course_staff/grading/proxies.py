"""The judge's network: ranks are processes elsewhere, and every message goes through here.

    rank's process 0 ◄─ plain data ─► Proxy 0 ┐
    rank's process 1 ◄─ plain data ─► Proxy 1 ┤ threads of one simulation: its exchange, its clocks,
    rank's process 2 ◄─ plain data ─► Proxy 2 ┘ its deadlocks and its trace

A Proxy calls the simulator's exchange on its rank's behalf, with the line that the rank says it
stands at. What is sent, to whom and how much is what arrives here. Which line it was, and whether
a buffer was touched before its wait, is the rank's word: a rank can lie about itself, not about
messages.

A request names a method in the Proxy's table ``ANSWERS`` and gives its arguments. Their types are
those of the method's signature, exactly, or the request is malformed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from functools import cache, partial
from typing import Any, ClassVar, get_args

import torch

from course_check.exercise import Play
from course_check.harness.kept import Kept
from course_check.harness.seen import Seen, left
from course_lib.collectives import COLLECTIVES, MAKE_GROUPS
from course_lib.diagnosis import hazard as hazards
from course_lib.trace import Line, Span
from course_lib.user_code import line_at
from course_sim.exchange.collective import Part
from course_sim.exchange.combine import Passed
from course_sim.exchange.groups import Channel
from course_sim.exchange.mail import Recv, Send
from course_sim.rank import Rank, current
from course_sim.records import Site
from course_sim.tensor_memory import contents
from course_staff.grading.far import MOST_SECONDS, Own
from course_staff.grading.processes import Slot
from course_staff.grading.wire import Ended, Malformed, decode, flat, of_kind, text_of

_HAZARDS = {
    "written_before_wait": hazards.written_before_wait,
    "read_before_wait": hazards.read_before_wait,
    "received_into": hazards.received_into,
    "written_into": hazards.written_into,
}
LONGEST_TEXT = 600  # of a request
MOST_CALLS = 20_000
MOST_KEPT = 256 << 20  # of one play's
MOST_SPANS = 1_000
LONGEST = 1e4  # seconds of one call; on larger clocks short times would be lost in rounding
Reply = dict[str, Any]
Table = dict[str, Callable[..., Any]]  # methods of Proxy, by the word that a rank says


class Stage:
    """One play: which slot is which rank, and what each is given."""

    current: Stage | None = None

    def __init__(self, slots: list[Slot], play: Play, files: set[str], ddp: bool) -> None:
        self.slots = slots
        self.by_rank = play.prepared.by_rank
        self.files = files
        self.ddp = ddp
        self.kept = 0  # bytes that came with calls


def be_rank() -> list[Seen]:
    """What a rank of the simulation does: stand in for its process, to its end."""
    rank = current()
    assert Stage.current is not None and rank is not None
    return Proxy(Stage.current, rank).serve()


def keeps(arg: Any) -> bool:
    """Whether an argument stays here and is called back: then the judge knows what it notes."""
    home = type(arg).__module__
    return callable(arg) and home.startswith("course_exercises.") and ".drivers." not in home


def packed(calls: list[tuple]) -> str:
    """The arguments of every call of one rank, with a stand-in for what stays here."""
    given = [
        tuple(Own(call, place) if keeps(arg) else arg for place, arg in enumerate(args))
        for call, args in enumerate(calls)
    ]
    return text_of(Kept(given).pickled)


class Proxy:
    """Stands in for one rank."""

    def __init__(self, stage: Stage, rank: Rank) -> None:
        self._stage, self._slot = stage, stage.slots[rank.number]
        # An own copy for every play: what is called back remembers that it was.
        self._given = stage.by_rank[rank.number].value
        self._rank, self._scheduler = rank, rank.scheduler
        self._channels: list[Channel] = [rank.groups.world]
        self._calls: dict[int, Any] = {}  # by number

    def serve(self) -> list[Seen]:
        slot = self._slot
        number = self._rank.number
        buffers = self._rank.buffers
        try:
            play = {
                "rank": number,
                "world": len(self._stage.slots),
                "ddp": self._stage.ddp,
                "calls": packed(self._given),
                "buffers": [buffers.most, buffers.side, buffers.flipped],
            }
            slot.start({"play": play})
            while True:
                request = slot.talk.receive()
                do = request.pop("do", None)
                if end := self.ENDS.get(str(do)):
                    slot.playing = False
                    slot.note_tried(request.pop("tried", []))
                    return checked(self, end, request)
                slot.talk.send(self._answer(do, request))
        except Malformed as error:
            slot.end(str(error))
            raise RuntimeError("what came from the rank is not what a rank says") from None
        except Ended:
            slot.end()
            raise RuntimeError("the rank's process ended before the function returned") from None

    def _answer(self, do: Any, request: dict[str, Any]) -> Reply:
        try:
            return checked(self, self.ANSWERS.get(str(do)), request) or {}
        except Malformed:
            raise
        except Exception as error:
            return {"error": [type(error).__name__, str(error)[:300]]}

    # -- at the end ------------------------------------------------------------------------------

    def end_done(self, seen: list) -> list[Seen]:
        if len(seen) != len(self._given):
            raise Malformed("another number of calls")
        return [checked(self, Proxy.seen_in, *pair) for pair in zip(seen, self._given, strict=True)]

    def seen_in(self, given: tuple, returned: Any, args: list, notes: list) -> Seen:
        if any(type(note) is not str for note in notes):
            raise Malformed("notes that are none")
        said = decode({"tuple": args})
        if len(said) != len(given):
            raise Malformed("another number of arguments")
        after = tuple(
            left(arg) if keeps(arg) else now for arg, now in zip(given, said, strict=True)
        )
        for now in after:
            if type(now) is dict and not all(type(name) is str for name in now):
                raise Malformed("tensors without names")
        return Seen(decode(returned), after, tuple(notes))

    def end_raised(self, kind: str, text: str, lines: list) -> None:
        """What the rank has raised, with the lines at which it stood."""
        if not kind.isidentifier():
            raise Malformed("an error that is none")
        error: Any = type(kind, (RuntimeError,), {})(text)
        error.__lines__ = [line for line in map(self._line, lines[:8]) if line]
        raise error

    ENDS: ClassVar[Table] = {"done": end_done, "raised": end_raised}

    # -- messages, and calls of a whole group ------------------------------------------------------

    def do_message(
        self, op: str, group: int, peer: int, tag: int, like: list, given: list, site: list
    ) -> Reply:
        channel = self._channel(group)
        if (op, peer) != ("recv", -1):  # from anybody
            _index(peer, channel.ranks)
        call: Send | Recv
        place, kind = self._site(site), of_kind(like)
        if op == "send":
            (data,) = self._kept([kind], given)
            call = channel.mail.send(self._rank, kind, contents(data), peer, tag, place)
        elif op == "recv":
            call = channel.mail.recv(self._rank, kind, peer, tag, place)
        else:
            raise Malformed("no such message")
        if place.blocking:
            call.wait()
        return self._taken(call) | _state(call, place.blocking)

    def do_collective(
        self,
        op: str,
        group: int,
        ins: list,
        outs: list,
        given: list,
        site: list,
        first: list | None,
        dense: bool,
        shared: str,
        poisoned: int,
        root: int,
        reduce_op: str | None,
        async_op: bool,
    ) -> Reply:
        channel = self._channel(group)
        if op not in COLLECTIVES or op in MAKE_GROUPS:
            raise Malformed("no such collective")
        if root != -1:
            _index(root, channel.ranks)
        if not 0 <= poisoned <= len(outs):
            raise Malformed("more buffers than it has")
        kinds = list(map(of_kind, ins))
        passed = Passed(
            op,
            kinds,
            list(map(of_kind, outs)),
            self._site(site),
            root=root,
            reduce_op=reduce_op,
            async_op=async_op,
            first=None if first is None else of_kind(first),
            given=self._kept(kinds, given),
            dense=dense,
            shared=shared,
            poisoned=poisoned,
        )
        call = channel.collectives.issue(self._rank, passed)
        return self._taken(call) | _state(call, False)

    def do_wait(self, call: int, seconds: float | None, line: list | None) -> Reply:
        mine = self._call(call)
        if seconds is not None and not 0 <= seconds <= MOST_SECONDS:
            raise Malformed("a timeout that is none")
        thread: Any = self._rank.thread
        thread.line = self._line(line)  # it is that of a deadlock
        mine.wait(seconds and timedelta(seconds=seconds))
        thread.line = None
        return _state(mine, True)

    def do_poll(self, call: int) -> Reply:
        mine = self._call(call)
        return _state(mine, bool(mine.poll()))

    def do_wait_until_all_called(self, call: int) -> Reply:
        """For code inside torch: the values as soon as all have called. See CollectiveWork."""
        mine = self._call(call)
        if not isinstance(mine, Part):
            raise Malformed("no collective")
        return {"end": mine.wait_until_all_called()} | _state(mine, True)

    def do_accuse(self, hazard: str, numbers: list, twice: bool | None = None) -> None:
        mine = [self._call(number) for number in numbers]
        if not mine or hazard not in _HAZARDS:
            raise Malformed("no such hazard")
        mine[0].accuse(_HAZARDS[hazard], *numbers, **({} if twice is None else {"twice": twice}))

    def do_make(self, op: str, name: str, ranks: list, local: bool, site: list) -> Reply:
        if op not in MAKE_GROUPS:
            raise Malformed("no such group")
        members = [_index(rank, self._stage.slots) for rank in ranks]
        made = self._rank.groups.make(self._rank, op, name, members, local, self._site(site))
        if made is None:
            return {"group": None}
        self._channels.append(made)
        return {"group": len(self._channels) - 1}

    ANSWERS: ClassVar[Table] = {"message": do_message, "collective": do_collective, "make": do_make}
    ANSWERS |= {"wait": do_wait, "poll": do_poll, "accuse": do_accuse}
    ANSWERS |= {"wait_until_all_called": do_wait_until_all_called}

    # -- time, spans, and what the judge keeps -----------------------------------------------------

    def do_clock(self) -> Reply:
        return {"at": self._scheduler.read_clock()}

    def do_spend(self, seconds: float) -> None:
        self._scheduler.check(self._rank)
        if not 0 <= seconds <= LONGEST:  # NaN on a clock would come before and after everything
            raise ValueError(f"{seconds!r} seconds: give a time from 0 to {LONGEST:g}")
        self._scheduler.spend(self._rank, seconds)

    def do_span(self, name: str, start: float, end: float) -> None:
        if len(self._rank.spans) > MOST_SPANS or not 0 <= start <= end <= self._scheduler.now:
            raise Malformed("a span of a time that has not been, or too many")
        self._rank.spans.append(Span(self._rank.number, name[:60], start, end))

    def do_call(self, call: int, place: int) -> None:
        args = self._given[_index(call, self._given)]
        mine = args[_index(place, args)]
        if not keeps(mine):
            raise Malformed("nothing that stays with the judge")
        mine()

    ANSWERS |= {"clock": do_clock, "spend": do_spend, "span": do_span, "call": do_call}

    # -- what a request names --------------------------------------------------------------------

    def _channel(self, number: int) -> Channel:
        return self._channels[_index(number, self._channels)]

    def _taken(self, call: Any) -> Reply:
        if len(self._calls) >= MOST_CALLS:
            raise Malformed("more calls than any answer needs")
        self._calls[call.number] = call
        return {"number": call.number}

    def _call(self, number: Any) -> Any:
        """A call that was made before."""
        if type(number) is not int or number not in self._calls:
            raise Malformed("a number of nothing")
        return self._calls[number]

    def _kept(self, kinds: list[torch.Tensor], given: list) -> list[torch.Tensor]:
        """What is in tensors of these kinds, flat."""
        if len(given) != len(kinds):
            raise Malformed("other tensors than it has")
        out = [flat(text, kind.dtype) for kind, text in zip(kinds, given, strict=True)]
        if any(data.numel() != kind.numel() for kind, data in zip(kinds, out, strict=True)):
            raise Malformed("another number of bytes")
        self._stage.kept += sum(data.nbytes for data in out)
        if self._stage.kept > MOST_KEPT:
            raise Malformed("more memory than any answer needs")
        return out

    def _site(self, site: list) -> Site:
        line, *flags = site
        if len(flags) != 3 or any(type(flag) is not bool for flag in flags):
            raise Malformed("a place that is none")
        return Site(self._line(line), *flags)

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


def _state(call: Any, over: bool) -> Reply:
    """How far a call is; once it is over, what has come, and from whom."""
    came, source = [], None
    if over and isinstance(call, Recv):
        came, source = [text_of(call.take())], call.source
    elif over and isinstance(call, Part):
        came = [text_of(contents(value)) for value in call.take()]
    return {"completed": over, "came": came, "source": source}


def _index(number: Any, among: Any) -> int:
    """A number that the rank has named, as that of one of these."""
    if type(number) is not int or not 0 <= number < len(among):
        raise Malformed("a number of nothing")
    return number


_signature = cache(partial(inspect.signature, eval_str=True))


def checked(of: Proxy, method: Any, request: Any, *more: Any) -> Any:
    """Call a method with what a rank has sent; Malformed where its signature is another one, or
    where there is no such method (None)."""
    try:
        given = _signature(method).bind(of, *more, **request)
    except TypeError:
        raise Malformed("no such request") from None
    for part, value in request.items():
        kind = given.signature.parameters[part].annotation
        if kind is Any:
            continue
        if type(value) not in (get_args(kind) or (kind,)):
            raise Malformed(f"a request with {part} of another type")
        if (type(value) is int and abs(value) >= 1 << 31) or (
            type(value) is str and len(value) > LONGEST_TEXT
        ):
            raise Malformed(f"a request with {part} too large")
    return method(of, *more, **request)
