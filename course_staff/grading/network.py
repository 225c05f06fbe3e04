"""The judge's network: ranks are processes elsewhere, and every message goes through here.

    rank's process 0 ◄─ plain data ─► Proxy 0 ┐
    rank's process 1 ◄─ plain data ─► Proxy 1 ┤ threads of one simulation: mail, collectives,
    rank's process 2 ◄─ plain data ─► Proxy 2 ┘ clocks, deadlocks, hazards and the trace are its own

A Proxy calls mail and collectives on its rank's behalf, with the line that the rank says it stands
at. What is sent, to whom and how much is what arrives here. Which line it was, and whether a buffer
was touched before its wait, is the rank's word: a rank can lie about itself, not about messages.

A request names one of the Proxy's ``do_…`` methods and gives its arguments. Their types are those
of the method's signature, exactly, or the request is malformed.
"""

from __future__ import annotations

import inspect
from datetime import timedelta
from functools import cache, partial
from typing import Any, get_args

import torch
import torch.distributed as dist

from course_lib.beside.kept import Kept
from course_lib.beside.seen import Seen, left
from course_lib.checks.exercise import Play
from course_lib.simulated.collective import CollectiveWork
from course_lib.simulated.mail import RecvWork
from course_lib.simulated.records import Site
from course_lib.trace import Line, Span
from course_lib.user_code import line_at
from course_staff.grading.far import MOST_SECONDS, Own
from course_staff.grading.processes import Slot
from course_staff.grading.wire import Ended, Malformed, decode, fill, mirrored, say, text_of

_COLLECTIVES = {
    "all_reduce",
    "all_reduce_coalesced",
    "broadcast",
    "reduce",
    "all_gather",
    "all_gather_single",
    "gather",
    "scatter",
    "reduce_scatter",
    "reduce_scatter_single",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "monitored_barrier",
}
LONGEST_TEXT = 600  # of a request
MOST_WORKS = 20_000
MOST_BYTES = 8 << 20  # of one call's tensors
MOST_KEPT = 256 << 20  # of one play's
MOST_SPANS = 1_000
LONGEST = 1e4  # seconds of one call; on larger clocks short times would be lost in rounding
Reply = dict[str, Any]


class Stage:
    """One play: which slot is which rank, and what each is given."""

    current: Stage | None = None

    def __init__(self, slots: list[Slot], play: Play, files: set[str], ddp: bool) -> None:
        self.slots, self.rounds, self.files, self.ddp = slots, play.prepared.by_rank, files, ddp
        self.kept = 0  # bytes that came with calls


def be_rank() -> list[Seen]:
    """What a rank of the simulation does: stand in for its process, to its end."""
    assert Stage.current is not None
    return Proxy(Stage.current, dist.get_rank()).serve()


def keeps(arg: Any) -> bool:
    """Whether an argument stays here and is called back: then the judge knows what it notes."""
    return callable(arg) and type(arg).__module__.startswith("course_exercises.")


def packed(rounds: list[tuple]) -> str:
    """The arguments of every call of one rank, with a stand-in for what stays here."""
    return text_of(
        Kept(
            [
                tuple(Own(call, place) if keeps(arg) else arg for place, arg in enumerate(args))
                for call, args in enumerate(rounds)
            ]
        ).parcel
    )


class Proxy:
    """Stands in for one rank."""

    def __init__(self, stage: Stage, rank: int) -> None:
        self._stage, self._slot = stage, stage.slots[rank]
        # An own copy for every play: what is called back remembers that it was.
        self._rounds = stage.rounds[rank].value
        world: Any = dist.group.WORLD
        self._all, self._rank = world._groups, world._rank  # the simulator's
        self._scheduler = self._all.scheduler
        self._groups = [world.shared]  # of each its mail, its collectives, its members
        self._works: list[tuple[Any, list[torch.Tensor]]] = []  # and the memory of each

    def serve(self) -> list[Seen]:
        slot, number = self._slot, self._rank.number
        try:
            slot.start(
                {
                    "play": {
                        "rank": number,
                        "world": len(self._stage.slots),
                        "ddp": self._stage.ddp,
                        "rounds": packed(self._rounds),
                    }
                }
            )
            while True:
                request = slot.talk.receive()
                do = request.pop("do", None)
                if do in ("done", "raised"):
                    slot.playing = False
                    return checked(self, f"end_{do}", request)
                slot.talk.send(self._answer(do, request))
        except Malformed as error:
            slot.end(str(error))
            raise RuntimeError("what came from the rank is not what a rank says") from None
        except Ended:
            slot.end()
            raise RuntimeError("the rank's process ended before the function returned") from None

    def _answer(self, do: Any, request: dict[str, Any]) -> Reply:
        try:
            return checked(self, f"do_{do}", request) or {}
        except Malformed:
            raise
        except Exception as error:
            return {"error": [type(error).__name__, str(error)[:300]]}

    # -- at the end ------------------------------------------------------------------------------

    def end_done(self, seen: list) -> list[Seen]:
        if len(seen) != len(self._rounds):
            raise Malformed("another number of calls")
        return [checked(self, "seen_in", *pair) for pair in zip(seen, self._rounds, strict=True)]

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

    # -- messages, and calls of a whole group ------------------------------------------------------

    def do_message(
        self, op: str, group: int, peer: int, tag: int, tensors: list, memory: list, site: list
    ) -> Reply:
        if op not in ("send", "recv"):
            raise Malformed("no such message")
        mail, _, me = self._group(group)
        there, pieces = self._mirrored(tensors, memory)
        if len(there) != 1:
            raise Malformed("no message")
        if (op, peer) != ("recv", -1):  # from anybody
            _index(peer, mail.ranks)
        place = self._site(site)
        work = getattr(mail, op)(self._rank, me, there[0], peer, tag, place)
        return self._posted(work, pieces, memory, place.blocking)

    def do_collective(
        self,
        op: str,
        group: int,
        tensors: list,
        memory: list,
        ins: int,
        site: list,
        first: list | None,
        root: int = -1,
        reduce_op: str | None = None,
        async_op: bool = False,
    ) -> Reply:
        mail, calls, me = self._group(group)
        if op not in _COLLECTIVES:
            raise Malformed("no such collective")
        there, pieces = self._mirrored(tensors, memory)
        if root != -1:
            _index(root, mail.ranks)
        meta = None
        if first is not None:  # how many bytes there are, the tensors say
            meta = torch.empty(first, dtype=there[0].dtype, device="meta")
        work = calls.issue(
            self._rank,
            me,
            op,
            there[:ins],
            there[ins:],
            site=self._site(site),
            root=root,
            first=meta,
            reduce_op=reduce_op,
            async_op=async_op,
        )
        return self._posted(work, pieces, memory)

    def _posted(
        self, work: Any, pieces: list[torch.Tensor], came: list, blocking: bool = False
    ) -> Reply:
        if len(self._works) >= MOST_WORKS:
            raise Malformed("more calls than any answer needs")
        self._works.append((work, pieces))
        if blocking:
            work.wait()
        return {"work": len(self._works) - 1} | _state(work, pieces, came)

    def do_wait(self, work: int, memory: list, seconds: float | None, line: list | None) -> Reply:
        mine, pieces = self._work(work, memory)
        if seconds is not None and not 0 <= seconds <= MOST_SECONDS:
            raise Malformed("a timeout that is none")
        self._rank.thread.line = self._line(line)  # it is that of a deadlock
        mine.wait(seconds and timedelta(seconds=seconds))
        self._rank.thread.line = None
        return _state(mine, pieces, memory)

    def do_completed(self, work: int, memory: list) -> Reply:
        mine, pieces = self._work(work, memory)
        mine.is_completed()
        return _state(mine, pieces, memory)

    def do_settle(self, work: int, memory: list) -> Reply:
        """For code inside torch: the values as soon as all have called. See CollectiveWork."""
        mine, pieces = self._work(work, memory)
        if not isinstance(mine, CollectiveWork):
            raise Malformed("no collective")
        return {"end": mine.settle()} | _state(mine, pieces, memory)

    def do_make(self, op: str, name: str, ranks: list, local: bool, site: list) -> Reply:
        if op not in ("new_group", "split_group"):
            raise Malformed("no such group")
        members = [_index(rank, self._stage.slots) for rank in ranks]
        made = self._all.make(self._rank, op, name, members, local, self._site(site))
        if made is not None:
            self._groups.append(made.shared)
        return {"group": None if made is None else len(self._groups) - 1}

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
        args = self._rounds[_index(call, self._rounds)]
        mine = args[_index(place, args)]
        if not keeps(mine):
            raise Malformed("nothing that stays with the judge")
        mine()

    # -- what a request names --------------------------------------------------------------------

    def _group(self, number: int) -> tuple[Any, Any, int]:
        """A group's mail and its collectives, and the rank's number in it."""
        mail, calls, members = self._groups[_index(number, self._groups)]
        return mail, calls, members[self._rank.number]

    def _work(self, number: int, memory: list) -> tuple[Any, list[torch.Tensor]]:
        """A call that was made before, and its memory, as the rank says that it is now."""
        work, pieces = self._works[_index(number, self._works)]
        fill(pieces, memory)
        return work, pieces

    def _mirrored(self, rows: list, memory: list) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        tensors, pieces = mirrored(rows, memory, MOST_BYTES)
        self._stage.kept += sum(map(len, pieces))
        if self._stage.kept > MOST_KEPT:
            raise Malformed("more memory than any answer needs")
        return tensors, pieces

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


def _state(work: Any, pieces: list[torch.Tensor], came: list) -> Reply:
    """How far a call is: what is in its memory, where that has changed, and from whom it came."""
    said, over = say(pieces), work.is_success()
    source = work.source_rank() if over and isinstance(work, RecvWork) else None
    return {"completed": over, "source": source, "memory": said if said != came else None}


def _index(number: Any, among: Any) -> int:
    """A number that the rank has named, as that of one of these."""
    if type(number) is not int or not 0 <= number < len(among):
        raise Malformed("a number of nothing")
    return number


_signature = cache(partial(inspect.signature, eval_str=True))


def checked(of: Any, name: str, request: Any, *more: Any) -> Any:
    """Call a method with what a rank has sent; Malformed where its signature is another one."""
    method: Any = getattr(type(of), name, None)
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
