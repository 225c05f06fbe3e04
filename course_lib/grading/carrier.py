"""The judge's network: ranks are processes elsewhere, and every message goes through here.

    rank process 0 ◄─ plain data ─► Proxy 0 ┐
    rank process 1 ◄─ plain data ─► Proxy 1 ┤ threads of one simulation: mail, clocks,
    rank process 2 ◄─ plain data ─► Proxy 2 ┘ deadlocks, hazards and the trace are the simulator's

A Proxy does in the simulator what its rank asks for, from the line that the rank says it stands
at, so that a trace reads as if the answer ran here. What is sent, to whom and how much is what
arrives here: a rank can lie about itself, and not about its messages.
"""

from __future__ import annotations

import base64
import io
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from course_lib import context
from course_lib.checks.exercise import Play, Seen
from course_lib.checks.kept import Kept, Pickler
from course_lib.grading.frames import MOST_SECONDS, Ended, Malformed
from course_lib.grading.lines import CARRYING, closed_over, closing, plainly, standing_at
from course_lib.grading.parcels import MOST_BYTES, Parcel
from course_lib.grading.plain import decode, decode_left
from course_lib.grading.runner import Slot
from course_lib.simulated.collective import CollectiveWork
from course_lib.simulated.private import current
from course_lib.simulated.records import call_site
from course_lib.simulated.scheduler import Abandoned

_COLLECTIVES = {
    "all_reduce", "all_reduce_coalesced", "broadcast", "reduce", "all_gather", "all_gather_single",
    "gather", "scatter", "reduce_scatter", "reduce_scatter_single", "all_to_all",
    "all_to_all_single", "barrier", "monitored_barrier",
}  # fmt: skip
_MORE: dict[str, tuple[type, ...]] = {"root": (int,), "reduce_op": (str, type(None)),
                                      "async_op": (bool,)}  # fmt: skip
MOST_WORKS = 20_000
MOST_KEPT = 256 << 20  # bytes of one play's calls
MOST_SPANS = 1_000
LONGEST = 1e4  # seconds of one call; on larger clocks short times would be lost in rounding


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


class _Pickler(Pickler):
    """What the judge gives; a thing that is to be called back stays here, behind a number."""

    def __init__(self, file: io.BytesIO, kept: list[Any]) -> None:
        super().__init__(file, protocol=5)
        self._kept = kept

    def persistent_id(self, obj: Any) -> int | None:
        mine = type(obj).__module__.startswith("course_lib.checks.lesson_")
        if not (mine and callable(obj)):
            return None
        if not any(obj is known for known in self._kept):
            self._kept.append(obj)
        return next(n for n, known in enumerate(self._kept) if known is obj)


def packed(rounds: list[tuple]) -> tuple[bytes, list[Any]]:
    """The arguments of every call of one rank, and what of them stays with the judge."""
    kept: list[Any] = []
    file = io.BytesIO()
    _Pickler(file, kept).dump(rounds)
    return file.getvalue(), kept


class Proxy:
    """Stands in for one rank."""

    def __init__(self, stage: Stage, rank: int) -> None:
        self._stage, self._rank, self._slot = stage, rank, stage.slots[rank]
        data, kept = stage.given[rank]
        self._data = data
        # An own copy for every play: what is called back remembers that it was.
        self._rounds, self._kept = Kept(([by_rank[rank] for by_rank in stage.inputs], kept)).value
        self._groups: list[Any] = [dist.group.WORLD]
        self._works: list[tuple[Any, Parcel, bool]] = []
        self._lines: dict[tuple, Callable] = {}

    def serve(self) -> list[Seen]:
        slot = self._slot
        try:
            play = {"rank": self._rank, "world": len(self._stage.slots), "ddp": self._stage.ddp}
            slot.start({"play": play | {"rounds": base64.b64encode(self._data).decode()}})
            while True:
                request = slot.receive()
                do = request.get("do")
                if do == "done":
                    slot.idle()
                    return self._seen(request)
                if do == "raised":
                    slot.idle()
                    self._raise(request)
                slot.send(self._answer(do, request))
        except Abandoned:
            slot.abandon()
            raise
        except Malformed as error:
            slot.spoil(str(error))
            raise RuntimeError("what came from the rank is not what a rank says") from None
        except Ended:
            slot.spoil("")
            raise RuntimeError("the rank's process ended before the function returned") from None

    def _answer(self, do: Any, request: dict[str, Any]) -> dict[str, Any]:
        handler = _HANDLERS.get(do) if isinstance(do, str) else None
        if handler is None:
            raise Malformed("no such request")
        try:
            return handler(self, request)
        except Malformed:
            raise
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            if "line" in request and isinstance(error, TypeError | IndexError):
                return {"error": [type(error).__name__, str(error)[:300]]}
            raise Malformed(f"a request without its parts: {type(error).__name__}") from None
        except Exception as error:
            return {"error": [type(error).__name__, str(error)[:300]]}

    # -- at the end ------------------------------------------------------------------------------

    def _seen(self, request: dict[str, Any]) -> list[Seen]:
        calls = request.get("seen")
        if type(calls) is not list or len(calls) != len(self._rounds):
            raise Malformed("another number of calls")
        out = []
        for call, args in zip(calls, self._rounds, strict=True):
            after = decode_left(call["args"], args)
            notes = call["notes"]
            if type(notes) is not list or any(type(n) is not str or len(n) > 200 for n in notes):
                raise Malformed("notes that are none")
            out.append(Seen(decode(call["returned"]), after, tuple(notes)))
        return out

    def _raise(self, request: dict[str, Any]) -> None:
        """Raise what the rank has raised, in frames that stand where it stood."""
        kind, text = request.get("kind"), request.get("text")
        if type(kind) is not str or type(text) is not str or not kind.isidentifier():
            raise Malformed("an error that is none")
        if request.get("left") is True:
            error: BaseException = SystemExit(text)
        else:
            error = type(kind[:60], (RuntimeError,), {})(text[:600])

        def fall() -> None:
            raise error

        call: Callable = fall
        for line in reversed((request.get("lines") or [])[:8]):
            call = closing(self._at(line), call)
        call()

    # -- where the rank stands -------------------------------------------------------------------

    def _at(self, line: Any) -> Callable:
        """A function whose frame stands at this line of the answer; it calls what it is given."""
        if line is None:
            return plainly
        file, number, name = line
        if file not in self._stage.files or type(number) is not int or not 0 < number < 100_000:
            return plainly
        if type(name) is not str or len(name) > 60 or not name.isprintable():
            raise Malformed("a line that is none")
        key = (file, number, name)
        if key not in self._lines:
            self._lines[key] = standing_at(*key)
        return self._lines[key]

    def _from(self, request: dict[str, Any]) -> Callable:
        """How to call on behalf of the rank, so that the simulator sees what it would have seen."""
        at = self._at(request["line"])
        if request["carries"] is True:
            at = closed_over(at, CARRYING)
        return at if request["direct"] is True else closed_over(at, plainly)

    # -- requests ------------------------------------------------------------------------------

    def _send(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._post(request, dist.send, "group_dst", lambda g: g.send)

    def _recv(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._post(request, dist.recv, "group_src",
                          lambda g: g.recv if request["peer"] >= 0 else _any(g))  # fmt: skip

    def _post(
        self, request: dict[str, Any], blocking: Callable, peer_is: str, quick: Callable
    ) -> dict[str, Any]:
        group, (peer, tag) = self._group(request), self._ints(request, "peer", "tag")
        parcel = Parcel.opened(request["tensors"])
        (tensor,) = parcel.tensors
        call = self._from(request)
        if request["blocking"] is True:
            who = {} if peer < 0 and peer_is == "group_src" else {peer_is: peer}
            source = call(blocking, tensor, group=group, tag=tag, **who)
            if peer_is == "group_src" and group.size() > 1 and isinstance(source, int):
                source = dist.get_group_rank(group, source)
            return {"work": -1, "done": 1, "news": parcel.changed(), "source": source}
        work = call(quick(group), [tensor], peer, tag)
        return {"work": self._keep(work, parcel), "news": parcel.changed()}

    def _issue(self, request: dict[str, Any]) -> dict[str, Any]:
        group, op, more = self._group(request), request["op"], request["more"]
        if op not in _COLLECTIVES or type(more) is not dict:
            raise Malformed("no such collective")
        for name, value in more.items():
            if type(value) not in _MORE.get(name, ()):
                raise Malformed("no such option")
        parcel = Parcel.opened(request["tensors"])
        ins, outs = ([parcel.tensors[i] for i in request[side]] for side in ("ins", "outs"))
        if sum(t.nbytes for t in (*ins, *outs)) > 2 * MOST_BYTES:
            raise Malformed("a call with too much memory")
        if (shape := request["first"]) is not None:  # how many bytes there are, the tensors say
            dtype = (ins or outs)[0].dtype
            more = more | {"first": torch.empty(shape, dtype=dtype, device="meta")}
        work = self._from(request)(group._issue, op, ins, outs, None, **more)
        return {"work": self._keep(work, parcel), "news": parcel.changed()}

    def _wait(self, request: dict[str, Any]) -> dict[str, Any]:
        work, parcel, source = self._work(request)
        parcel.update(request["news"])
        seconds = request.get("seconds")
        if seconds is not None and not (type(seconds) is float and 0 <= seconds <= MOST_SECONDS):
            raise Malformed("a timeout that is none")
        self._at(request["line"])(work.wait, seconds and timedelta(seconds=seconds))
        return {"news": parcel.changed(), "source": work.source_rank() if source else None}

    def _completed(self, request: dict[str, Any]) -> dict[str, Any]:
        work, parcel, _ = self._work(request)
        parcel.update(request["news"])
        yes = bool(work.is_completed())
        return {"yes": yes} | ({"news": parcel.changed()} if yes and _has_values(work) else {})

    def _settle(self, request: dict[str, Any]) -> dict[str, Any]:
        """For code inside torch: the values as soon as all have called. See CollectiveWork."""
        work, parcel, _ = self._work(request)
        if not isinstance(work, CollectiveWork):
            raise Malformed("no collective")
        parcel.update(request["news"])
        end = work.settle()
        return {"news": parcel.changed(), "end": end}

    def _until(self, request: dict[str, Any]) -> dict[str, Any]:
        rank = current()
        assert rank is not None
        scheduler = rank.state.scheduler
        at = float(request["at"])
        scheduler.spend(rank, _seconds(max(0.0, at - scheduler.now)))
        return {}

    def _make(self, request: dict[str, Any]) -> dict[str, Any]:
        op, name, ranks = request["op"], request["name"], request["ranks"]
        world = len(self._stage.slots)
        if op not in ("new_group", "split_group") or type(name) is not str or len(name) > 200:
            raise Malformed("no such group")
        if type(ranks) is not list or any(type(r) is not int or not 0 <= r < world for r in ranks):
            raise Malformed("ranks that there are not")
        groups, rank = self._groups[0]._groups, current()
        made = self._from(request)(_make, groups, rank, op, name, ranks, request["local"] is True)
        if made is None:
            return {"group": None}
        self._groups.append(made)
        return {"group": len(self._groups) - 1}

    def _clock(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"at": time.perf_counter()}  # the simulation's: see private.py

    def _sleep(self, request: dict[str, Any]) -> dict[str, Any]:
        time.sleep(_seconds(request["seconds"]))
        return {}

    def _compute(self, request: dict[str, Any]) -> dict[str, Any]:
        context.current().compute(_seconds(request["seconds"]))
        return {}

    def _span(self, request: dict[str, Any]) -> dict[str, Any]:
        name, start, end = request["name"], float(request["start"]), float(request["end"])
        rank = current()
        if type(name) is not str or rank is None or len(rank.spans) > MOST_SPANS:
            raise Malformed("a span that is none")
        if not 0 <= start <= end <= time.perf_counter():
            raise Malformed("a span of a time that has not been")
        context.current().add_span(name[:60], start, end)
        return {}

    def _call(self, request: dict[str, Any]) -> dict[str, Any]:
        (number,) = self._ints(request, "number")
        if request["given"]:
            raise TypeError("it takes no arguments")
        self._kept[number]()
        return {}

    # -- what a request names --------------------------------------------------------------------

    def _ints(self, request: dict[str, Any], *names: str) -> list[int]:
        values = [request[name] for name in names]
        if any(type(v) is not int or abs(v) >= 1 << 31 for v in values):
            raise Malformed("a number that is none")
        return values

    def _group(self, request: dict[str, Any]) -> Any:
        (number,) = self._ints(request, "group")
        return self._groups[number]

    def _keep(self, work: Any, parcel: Parcel) -> int:
        if len(self._works) >= MOST_WORKS:
            raise Malformed("more calls than any answer needs")
        self._stage.kept += parcel.nbytes
        if self._stage.kept > MOST_KEPT:
            raise Malformed("more memory than any answer needs")
        source = hasattr(work, "source_rank") and not isinstance(work, CollectiveWork)
        self._works.append((work, parcel, source))
        return len(self._works) - 1

    def _work(self, request: dict[str, Any]) -> tuple[Any, Parcel, bool]:
        (number,) = self._ints(request, "work")
        if not 0 <= number < len(self._works):
            raise Malformed("no such work")
        return self._works[number]


_HANDLERS: dict[str, Callable[[Proxy, dict[str, Any]], dict[str, Any]]] = {
    "send": Proxy._send, "recv": Proxy._recv, "issue": Proxy._issue, "wait": Proxy._wait,
    "completed": Proxy._completed, "settle": Proxy._settle, "until": Proxy._until,
    "make": Proxy._make, "clock": Proxy._clock, "sleep": Proxy._sleep, "compute": Proxy._compute,
    "span": Proxy._span, "call": Proxy._call,
}  # fmt: skip


def _seconds(value: Any) -> float:
    """A time to spend. NaN or infinity on a clock would come before and after everything."""
    seconds = float(value)
    if not 0 <= seconds <= LONGEST:
        raise ValueError(f"{seconds!r} seconds: give a time from 0 to {LONGEST:g}")
    return seconds


def _any(group: Any) -> Callable:
    return lambda tensors, _, tag: group.recv_anysource(tensors, tag)


def _make(groups: Any, rank: Any, *what: Any) -> Any:
    return groups.make(rank, *what, call_site(2))


def _has_values(work: Any) -> bool:
    """Whether the values are where they belong: a Work of the mail is filled by ``wait`` alone."""
    return isinstance(work, CollectiveWork)
