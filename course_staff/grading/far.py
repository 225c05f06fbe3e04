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

from course_lib.context import Context
from course_lib.simulated.ends.future import Future
from course_lib.simulated.ends.group import SimulatedGroup
from course_lib.simulated.isolation import compat
from course_lib.simulated.records import Site, call_site
from course_lib.simulated.scheduler import Abandoned
from course_lib.trace import Line
from course_lib.user_code import find_frame, line_of
from course_staff.grading.wire import Talk, fill, laid_out, say

MOST_SECONDS = 1e6  # that a wait may be told to take


class Asker(Context):
    """Asks the judge, and raises what it says went wrong. It is this rank's course_lib.context."""

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
            raise (made if known else RuntimeError)(text)  # type: ignore[misc]
        return reply

    def now(self) -> float:
        return self("clock")["at"]

    def compute(self, seconds: float) -> None:
        self("spend", seconds=float(seconds))

    def add_span(self, name: str, start: float, end: float) -> None:
        self("span", name=str(name)[:60], start=start, end=end)


def where(site: Site) -> list[Any]:
    """Which line of the answer calls, and how."""
    return [plain_line(site.line), site.direct, site.blocking, site.carries]


def plain_line(line: Line | None) -> list[Any] | None:
    return None if line is None else [line.where, line.number, line.function]


class Posted(dist.Work):
    """A call that the judge has taken: its Work on this side. While it is not over, the judge's
    mirror of its memory and the memory itself are brought to the same state at every question, so
    that the judge sees what the answer does to it, and the answer what the judge does."""

    def __init__(
        self,
        ask: Asker,
        reply: dict[str, Any],
        pieces: list[torch.Tensor],
        outputs: list[torch.Tensor] | None,
    ) -> None:
        super().__init__()
        self._ask, self._number, self._pieces = ask, reply["work"], pieces
        self.outputs = outputs  # of a call of a whole group, which C++ may wait for
        self._take(reply)

    def _take(self, reply: dict[str, Any]) -> dict[str, Any]:
        if reply["memory"] is not None:
            fill(self._pieces, reply["memory"])
        self._over, self._source = reply["completed"], reply["source"]
        return reply

    def _tell(self, do: str, **what: Any) -> dict[str, Any]:
        return self._take(self._ask(do, work=self._number, memory=say(self._pieces), **what))

    def wait(self, timeout: Any = None) -> bool:
        if not self._over:
            frame = find_frame()
            line = None if frame is None else plain_line(line_of(frame))
            most = min(max(0.0, timeout.total_seconds()), MOST_SECONDS) if timeout else None
            self._tell("wait", line=line, seconds=most)
        return True

    def is_completed(self) -> bool:
        if not self._over:
            self._tell("completed")
        return self._over

    def is_success(self) -> bool:
        return self._over

    def exception(self) -> None:
        return None

    def source_rank(self) -> int:
        if self._source is None:
            raise RuntimeError("the source is known once the message has been waited for")
        return self._source

    _source_rank = source_rank

    def result(self) -> Any:
        return self.outputs

    def get_future(self) -> Any:
        """As CollectiveWork's: lazy for the answer's own code, settled for code inside torch."""
        if self.outputs is None:
            raise RuntimeError("gloo's send and recv have no future: call wait() on the Work")
        if call_site(2).direct and not compat.in_comm_hook():
            return Future(self)
        if not self._over:
            end = self._tell("settle")["end"]
            pay = lambda: self._ask.compute(max(0.0, end - self._ask.now()))  # noqa: E731
            if not compat.after_backward(pay):
                pay()
        future: torch.futures.Future = torch.futures.Future()
        future.set_result(self.outputs)
        return future


class Group:
    """A group's mail and collectives, at the judge's."""

    def __init__(self, ask: Asker, number: int, name: str, ranks: list[int]) -> None:
        self._ask, self._number, self.name, self.ranks = ask, number, name, ranks

    def send(self, _: Any, me: int, tensor: torch.Tensor, dst: int, tag: int, site: Site) -> Posted:
        return self._post("message", [tensor], site, op="send", peer=dst, tag=tag)

    def recv(self, _: Any, me: int, tensor: torch.Tensor, src: int, tag: int, site: Site) -> Posted:
        return self._post("message", [tensor], site, op="recv", peer=src, tag=tag)

    def issue(
        self,
        _: Any,
        me: int,
        op: str,
        ins: list[torch.Tensor],
        outs: list[torch.Tensor],
        *,
        site: Site,
        first: torch.Tensor | None = None,
        **more: Any,
    ) -> Posted:
        shape = None if first is None else list(first.shape)
        return self._post(
            "collective", [*ins, *outs], site, outs, op=op, ins=len(ins), first=shape, **more
        )

    def _post(
        self,
        do: str,
        tensors: list[torch.Tensor],
        site: Site,
        outputs: list[torch.Tensor] | None = None,
        **what: Any,
    ) -> Posted:
        rows, pieces = laid_out(tensors)
        reply = self._ask(
            do, group=self._number, tensors=rows, memory=say(pieces), site=where(site), **what
        )
        return Posted(self._ask, reply, pieces, outputs)


class Groups:
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
        reply = self._ask("make", op=op, name=name, ranks=members, local=local, site=where(site))
        if reply["group"] is None:
            return None
        return self._made(name, reply["group"], members)

    def _made(self, name: str, number: int, ranks: list[int]) -> Any:
        group = Group(self._ask, number, name, ranks)
        shared = (group, group, {rank: at for at, rank in enumerate(ranks)})
        return SimulatedGroup(self, self._rank, name, shared)  # type: ignore[arg-type]


class Own:
    """Stands for an argument that stays with the judge: to be called, and told apart by nothing."""

    ask: Asker

    def __init__(self, call: int, place: int) -> None:
        self._call, self._place = call, place

    def __call__(self) -> None:
        self.ask("call", call=self._call, place=self._place)

    def left(self) -> None:
        """The judge knows."""
