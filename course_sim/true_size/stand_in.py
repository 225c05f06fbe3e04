"""What a script that says "cuda" gets where it asks for a value that its tensors do not have.

A number in a log line does no harm, so ``loss.item()`` gives one that says nothing. Whoever decides
by it, as in ``if loss.item() < best``, is refused: nobody knows what comes next.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

import torch

from course_sim.isolation import compat
from course_sim.isolation.private import Patch
from course_sim.rank import Rank, current
from course_sim.true_size.sized_gpu import SizedGpu

STAND_IN = 1.0
_TOLD = f"tensors have no values here: what item() is asked for is given as {STAND_IN}\n"
_CALCULATING = "add radd sub rsub mul rmul truediv rtruediv floordiv pow rpow neg abs"
_DECIDING = "bool int lt le gt ge eq ne"


class StandIn(float):
    """A number that can be shown and calculated with, and that nothing can be decided by."""

    __hash__ = float.__hash__


def _calculate(name: str) -> Any:
    return lambda _, *args: StandIn(getattr(float, name)(STAND_IN, *args))


def _decide(*_: Any) -> None:
    rank = current()
    assert rank is not None and isinstance(rank.gpu, SizedGpu)
    rank.gpu.refuse_value("deciding by what item() gave")


for names, make in ((_CALCULATING, _calculate), (_DECIDING, lambda _: _decide)):
    for word in names.split():
        setattr(StandIn, f"__{word}__", make(f"__{word}__"))


def _has_no_value(tensor: Any) -> Rank | None:
    """The rank that asks for a value, if it says "cuda" and the tensor has none."""
    rank = current()
    valueless = isinstance(tensor, compat.FakeTensor) and tensor.constant is None
    return rank if valueless and rank is not None and rank.says_cuda else None


def _give(original: Any) -> Any:
    @wraps(original)
    def item(tensor: torch.Tensor) -> Any:
        rank = _has_no_value(tensor)
        if rank is None or tensor.numel() != 1:
            return original(tensor)
        rank.gpu.current.synchronize()
        if _TOLD not in rank.pages.getvalue():
            rank.pages.write(_TOLD)
        return StandIn(STAND_IN)

    return item


def _show(original: Any) -> Any:
    @wraps(original)
    def show(tensor: torch.Tensor, spec: str = "") -> str:
        single = _has_no_value(tensor) and tensor.numel() == 1
        return format(tensor.item(), spec) if single else original(tensor, spec)

    return show


def patches() -> list[Patch]:
    return [(torch.Tensor, "item", _give), (torch.Tensor, "__format__", _show)]
