"""The way to the exchange, for a rank whose exchange is the judge's.

Process groups, Works and buffers beside the answer are the simulator's own, course_sim's
ends. What they ask of an exchange goes to the judge as plain data, and what comes of it comes back.
"""

from __future__ import annotations

import builtins
import sys
import threading
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import torch

from course_lib.context import Context
from course_lib.trace import Line
from course_lib.user_code import find_frame, line_of
from course_sim.agenda import Abandoned
from course_sim.ends.poison import Buffers
from course_sim.ends.simulated_group import SimulatedGroup
from course_sim.exchange.combine import Passed, Tensors
from course_sim.isolation import compat
from course_sim.records import Site
from course_sim.tensor_memory import contents
from course_staff.grading.wire import Talk, bytes_of, flat, kind_of, text_of

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


class Call:
    """A call that the judge has taken: what its Work asks of it, it asks the judge."""

    def __init__(self, ask: Asker, reply: dict[str, Any], outs: Tensors | None) -> None:
        self.number = reply["number"]
        self.waited = False
        self.source = None
        self._ask = ask
        self._outs = outs
        self._over = False
        self._came: list[str] = []  # in the memory of what it fills
        self._take(reply)

    def _take(self, reply: dict[str, Any]) -> dict[str, Any]:
        if reply["completed"] and not self._over:
            self._over = True
            self._came = reply["came"]
            self.source = reply["source"]
        return reply

    def _tell(self, do: str, **what: Any) -> dict[str, Any]:
        return self._take(self._ask(do, call=self.number, **what))

    def wait(self, timeout: Any = None) -> None:
        if not self._over:
            frame = find_frame(sys._getframe())
            line = None if frame is None else plain_line(line_of(frame))
            most = min(max(0.0, timeout.total_seconds()), MOST_SECONDS) if timeout else None
            self._tell("wait", line=line, seconds=most)
        self.waited = True

    def poll(self) -> bool:
        if not self._over:
            self._tell("poll")
        return self._over

    def wait_until_all_called(self) -> float:
        return self._tell("wait_until_all_called")["end"]

    def not_before(self, at: float) -> None:
        self._ask.compute(max(0.0, at - self._ask.now()))

    def accuse(self, make: Callable, *numbers: int, **more: bool) -> None:
        self._ask("accuse", hazard=make.__name__, numbers=list(numbers), **more)

    def take(self) -> bytes | Tensors:
        """What has come: of a message its bytes, else what goes into the outputs."""
        if self._outs is None:
            return bytes_of(self._came[0])
        return [flat(text, out.dtype) for text, out in zip(self._came, self._outs, strict=True)]


class Channel:
    """A group, at the judge's: its mail, and its collectives."""

    def __init__(self, ask: Asker, number: int, ranks: list[int]) -> None:
        self._ask = ask
        self._number = number
        self.ranks = ranks
        self.members = {rank: at for at, rank in enumerate(ranks)}
        self.mail = self.collectives = self

    def send(self, _: Any, like: torch.Tensor, data: bytes, dst: int, tag: int, site: Site) -> Call:
        more = {"op": "send", "peer": dst, "tag": tag, "given": [text_of(data)]}
        return self._made("message", None, site, like=kind_of(like), **more)

    def recv(self, _: Any, like: torch.Tensor, src: int, tag: int, site: Site) -> Call:
        more = {"op": "recv", "peer": src, "tag": tag, "given": []}
        return self._made("message", None, site, like=kind_of(like), **more)

    def issue(self, _: Any, passed: Passed) -> Call:
        more = passed._asdict() | {
            "ins": list(map(kind_of, passed.ins)),
            "outs": list(map(kind_of, passed.outs)),
            "given": [text_of(contents(tensor)) for tensor in passed.given],
            "first": None if passed.first is None else kind_of(passed.first),
        }
        return self._made("collective", passed.outs, **more)

    def _made(self, do: str, fills: Tensors | None, site: Site, **what: Any) -> Call:
        return Call(self._ask, self._ask(do, group=self._number, site=where(site), **what), fills)


class Groups:
    """All groups of a rank, as SimulatedGroup asks for them."""

    def __init__(self, ask: Asker, number: int, world: int, buffers: Buffers) -> None:
        self._ask, self.store = ask, compat.store()
        self._rank = SimpleNamespace(number=number, buffers=buffers, says_cuda=False)
        channel = Channel(ask, 0, list(range(world)))
        self.world = SimulatedGroup(self, self._rank, "0", channel)

    def check(self, rank: Any) -> None:
        """A rank that is a process has only groups of its own."""

    def make(
        self, rank: Any, op: str, name: str, ranks: Iterable[int], local: bool, site: Site
    ) -> Channel | None:
        members = [int(r) for r in ranks]
        reply = self._ask("make", op=op, name=name, ranks=members, local=local, site=where(site))
        return None if reply["group"] is None else Channel(self._ask, reply["group"], members)


class Own:
    """Stands for an argument that stays with the judge: it can be called, and shows nothing."""

    ask: Asker

    def __init__(self, call: int, place: int) -> None:
        self._call, self._place = call, place

    def __call__(self) -> None:
        self.ask("call", call=self._call, place=self._place)

    def left(self) -> None:
        """The judge knows."""
