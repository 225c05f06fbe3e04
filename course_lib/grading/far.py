"""torch.distributed's other end, for a rank whose network is the judge's.

SimulatedGroup is the simulator's own: it unpacks c10d's arguments, and then asks a post office and
an exchange for collectives. Here both only say what was called, and put what comes back into place.
"""

from __future__ import annotations

import builtins
import threading
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from course_lib.grading.frames import MOST_SECONDS, Talk
from course_lib.grading.parcels import Parcel
from course_lib.simulated import compat
from course_lib.simulated.collective import Future
from course_lib.simulated.group import SimulatedGroup
from course_lib.simulated.records import Site, call_site
from course_lib.simulated.scheduler import Abandoned
from course_lib.trace import Line
from course_lib.user_code import find_frame, line_of


class Asker:
    """Asks the judge, and raises what it says went wrong."""

    def __init__(self, talk: Talk) -> None:
        self._talk, self._lock = talk, threading.Lock()

    def __call__(self, do: str, **what: Any) -> dict[str, Any]:
        with self._lock:
            self._talk.send({"do": do, **what})
            reply = self._talk.receive()
        if "over" in reply:
            raise Abandoned
        if "error" in reply:
            kind, text = reply["error"]
            made = getattr(builtins, kind, None)
            known = isinstance(made, type) and issubclass(made, Exception)
            raise RuntimeError(text) if made is None or not known else made(text)
        return reply


def where(site: Site) -> dict[str, Any]:
    """Which line of the answer calls, and how."""
    return {"line": plain_line(site.line), "direct": site.direct, "blocking": site.blocking,
            "carries": site.carries}  # fmt: skip


def void(_: Any) -> None:
    """For callbacks that return nothing."""


def plain_line(line: Line | None) -> list[Any] | None:
    return None if line is None else [line.where, line.number, line.function]


class Told:
    """A call that the judge has taken: its Work on this side."""

    def __init__(self, ask: Asker, number: int, parcel: Parcel, done: bool) -> None:
        self._ask, self._number, self._parcel, self._done = ask, number, parcel, done
        self._source: int | None = None

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return dist.Work

    def wait(self, timeout: Any = None) -> bool:
        if not self._done:
            frame = find_frame(2)
            line = None if frame is None else plain_line(line_of(frame))
            most = min(max(0.0, timeout.total_seconds()), MOST_SECONDS) if timeout else None
            reply = self._ask("wait", work=self._number, news=self._parcel.changed(), line=line,
                              seconds=most)  # fmt: skip
            self.settle(reply)
        return True

    def settle(self, reply: dict[str, Any]) -> None:
        self._parcel.update(reply.get("news", {}))
        self._source = reply.get("source")
        self._done = True

    def is_completed(self) -> bool:
        if not self._done:
            reply = self._ask("completed", work=self._number, news=self._parcel.changed())
            if not reply["yes"]:
                return False
            if "news" in reply:
                self.settle(reply)
            return True
        return True

    def is_success(self) -> bool:
        return self._done

    def exception(self) -> None:
        return None

    def source_rank(self) -> int:
        if self._source is None:
            raise RuntimeError("the source is known once the message has been waited for")
        return self._source

    _source_rank = source_rank

    def get_future(self) -> Any:
        raise RuntimeError("gloo's send and recv have no future: call wait() on the Work")


class ToldCall(dist.Work):
    """The same for a call of a whole group, which C++ may wait for."""

    def __init__(self, told: Told, outputs: list[torch.Tensor]) -> None:
        super().__init__()
        self._told, self.outputs = told, outputs

    def wait(self, timeout: Any = None) -> bool:
        return self._told.wait(timeout)

    def is_completed(self) -> bool:
        return self._told.is_completed()

    def is_success(self) -> bool:
        return self._told.is_success()

    def exception(self) -> None:
        return None

    def result(self) -> list[torch.Tensor]:
        return self.outputs

    def get_future(self) -> torch.futures.Future:
        """As CollectiveWork's: lazy for the answer's own code, settled for code inside torch."""
        if call_site(2).direct:
            return Future(self)  # type: ignore[arg-type]
        told, future = self._told, torch.futures.Future()  # type: ignore[var-annotated]
        if not told._done:
            ask = told._ask
            reply = ask("settle", work=told._number, news=told._parcel.changed())
            told.settle(reply)
            end = reply["end"]
            if not compat.after_backward(lambda: void(ask("until", at=end))):
                ask("until", at=end)
        future.set_result(self.outputs)
        return future


class FarMail:
    """A group's post office, at the judge's."""

    def __init__(self, ask: Asker, group: int, name: str, ranks: list[int]) -> None:
        self._ask, self._group, self.name, self.ranks = ask, group, name, ranks

    def send(self, _: Any, me: int, tensor: torch.Tensor, dst: int, tag: int, site: Site) -> Told:
        return self._tell("send", tensor, dst, tag, site)

    def recv(self, _: Any, me: int, tensor: torch.Tensor, src: int, tag: int, site: Site) -> Told:
        return self._tell("recv", tensor, src, tag, site)

    def _tell(self, do: str, tensor: torch.Tensor, peer: int, tag: int, site: Site) -> Told:
        if not tensor.is_cpu:
            raise RuntimeError("a rank has only the CPU here: use course_lib.device()")
        parcel, data = Parcel.of([tensor])
        reply = self._ask(do, group=self._group, tensors=data, peer=peer, tag=tag, **where(site))
        parcel.update(reply.get("news", {}))
        told = Told(self._ask, reply["work"], parcel, bool(reply.get("done")))
        told._source = reply.get("source")
        return told


class FarCalls:
    """A group's collectives, at the judge's."""

    def __init__(self, ask: Asker, group: int) -> None:
        self._ask, self._group = ask, group

    def issue(
        self, rank: Any, me: int, op: str, ins: list[torch.Tensor], outs: list[torch.Tensor], *,
        site: Site, first: torch.Tensor | None = None, **more: Any,
    ) -> ToldCall:  # fmt: skip
        if any(not t.is_cpu for t in (*ins, *outs)):
            raise RuntimeError("a rank has only the CPU here: use course_lib.device()")
        tensors: list[torch.Tensor] = []
        numbers = [[_number(tensors, t) for t in side] for side in (ins, outs)]
        parcel, data = Parcel.of(tensors)
        reply = self._ask("issue", group=self._group, op=op, tensors=data, ins=numbers[0],
                          outs=numbers[1], first=None if first is None else list(first.shape),
                          more=more, **where(site))  # fmt: skip
        parcel.update(reply.get("news", {}))
        return ToldCall(Told(self._ask, reply["work"], parcel, False), list(outs))


def _number(known: list[torch.Tensor], tensor: torch.Tensor) -> int:
    """Its place among the tensors of a call; one that is passed twice has one place."""
    for number, other in enumerate(known):
        if other is tensor:
            return number
    known.append(tensor)
    return len(known) - 1


class FarGroups:
    """All groups of a rank."""

    def __init__(self, ask: Asker, number: int, world: int) -> None:
        self._ask, self._rank = ask, SimpleNamespace(number=number)
        self.store = compat.store()
        self.world = self._made("0", 0, list(range(world)))

    def check(self, rank: Any) -> None:
        """A rank that is a process has only groups of its own."""

    def make(
        self, rank: Any, op: str, name: str, ranks: Iterable[int], local: bool, site: Site
    ) -> Any:
        members = [int(r) for r in ranks]
        reply = self._ask("make", op=op, name=name, ranks=members, local=local, **where(site))
        if reply["group"] is None:
            return None
        return self._made(name, reply["group"], members)

    def _made(self, name: str, number: int, ranks: list[int]) -> Any:
        members = {rank: at for at, rank in enumerate(ranks)}
        shared = (FarMail(self._ask, number, name, ranks), FarCalls(self._ask, number), members)
        return SimulatedGroup(self, self._rank, name, shared)  # type: ignore[arg-type]


class FarContext:
    """What course_lib.context asks about this rank."""

    device = torch.device("cpu")

    def __init__(self, ask: Asker) -> None:
        self._ask = ask

    def now(self) -> float:
        return self._ask("clock")["at"]

    def add_span(self, name: str, start: float, end: float) -> None:
        self._ask("span", name=str(name)[:60], start=start, end=end)

    def compute(self, seconds: float) -> None:
        self._ask("compute", seconds=seconds)
