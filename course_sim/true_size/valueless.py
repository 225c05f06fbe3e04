"""Calls without values, and ranks that are not played.

A collective takes its time from when the last *played* member has called; what it would move is
not there. A rank that is not played has no thread: it does what the played ones do, and nobody can
send it a message of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from course_lib.diagnosis.lines import call_text
from course_lib.errors import CourseError
from course_lib.trace import Event
from course_sim import tensor_memory as memory
from course_sim.ends import works
from course_sim.exchange.collective import Collectives, Meeting
from course_sim.exchange.combine import Passed, Tensors
from course_sim.exchange.mail import Key
from course_sim.gpu.nccl import NcclGroup, NcclGroups, NcclMail
from course_sim.isolation import compat
from course_sim.rank import Rank


class ValuelessMail(NcclMail):
    """Refuses a message to a rank that is not played."""

    def _describe(self, kind: str, rank: Rank, *call: Any) -> tuple[Event, Key]:
        op, key = super()._describe(kind, rank, *call)
        played = rank.scheduler.played
        assert op.peer is not None  # which NCCL's rules refuse
        if op.peer not in played:
            rank.scheduler.fail(
                CourseError(
                    f"rank {op.rank} calls {call_text(op)}, and rank {op.peer} is not played: "
                    f"say play={sorted({*played, op.peer})}.   {op.line}"
                )
            )
        return op, key


class ValuelessCollectives(Collectives):
    """Computes nothing when all have called."""

    def _combine(self, meeting: Meeting) -> None:
        meeting.complete = True


class ValuelessGroups(NcclGroups):
    """All groups of a run at its true size."""

    mail = ValuelessMail
    collectives = ValuelessCollectives


class ValuelessRecv(works.RecvWork):
    """Puts into place only what has values, as the shapes that stages of a pipeline exchange."""

    __slots__ = ()

    def deliver(self) -> None:
        if isinstance(self._buffer, compat.FakeTensor):
            self._buffer = None
        else:
            super().deliver()


class ValuelessWork(works.CollectiveWork):
    """A Work that has nothing to put into place, and no buffer to guard."""

    __slots__ = ()

    def _take(self, passed: Passed, gives: bool) -> tuple[Passed, Tensors]:
        self._places, self._watched = passed.outs, []
        return passed, []

    def _put_into_place(self, places: Tensors) -> None:
        self._places = None
        self._under_way.pop(self, None)


class ValuelessGroup(NcclGroup):
    """One rank's end of a group, on which tensors have no values."""

    recv_work = ValuelessRecv
    collective_work = ValuelessWork

    @staticmethod
    def read(tensor: torch.Tensor) -> bytes:
        """Only objects are sent as bytes, of tensors that have values."""
        return b"" if isinstance(tensor, compat.FakeTensor) else memory.raw(tensor)

    def blocks(self, *tensors: torch.Tensor) -> Tensors:
        """Equal blocks have one shape, so that one of them will do."""
        if any(tensor.shape[0] % self._size for tensor in tensors):
            return super().blocks(*tensors)
        return [tensor[: tensor.shape[0] // self._size] for tensor in tensors] * self._size

    def _issue(self, op: str, ins: Tensors, outs: Tensors, *opts: Any, **more: Any) -> Any:
        if not all(isinstance(tensor, compat.FakeTensor) for tensor in (*ins, *outs)):
            raise RuntimeError(
                f"{op} of a tensor with values, which no collective moves with gpu=…: make the "
                "tensor inside of the function that you simulate"
            )
        return super()._issue(op, ins, outs, *opts, **more)

    def _make_in_order(self, tensors: Tensors, make: Callable, *args: Any, **more: Any) -> Any:
        """No value has to be there before the next call is made."""
        work = make(*args, **more)
        work.call.work = work
        return work
