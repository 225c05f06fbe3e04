"""What tries an answer that is itself a test: somebody's all_reduce, right or wrong.

The right ones go different ways; the wrong ones are knobs around torch's own. Every one takes
tensors of any layout, and sums in place.

    Suspect(how).use(test)  ──► test(all_reduce)  ──► comes to its end: "passes"
                                                  └─► AssertionError on some rank: Caught
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from course_lib.beside.seen import Noted

PASSES, FAILS, NEVER = "passes", "fails", "passes, and has never called all_reduce"
BEFORE = "before it has called all_reduce"
OUTCOME = "the test"  # the name under which rank 0 notes it

AllReduce = Callable[[Tensor], Any]


class Caught(AssertionError):
    """The test has failed on some rank. The others may stand in a collective meanwhile."""


class ReturnsFalse(Exception):
    """The test returns what it should have raised."""


@dataclass(repr=False, eq=False)
class Suspect(Noted):
    """An all_reduce of this kind, which a test is given. Rank 0 notes what the test says."""

    how: str
    rank: int
    noted: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"an all_reduce ({self.how})"

    def says(self, outcome: str) -> None:
        if self.rank == 0:
            self.noted[OUTCOME] = outcome

    def use(self, test: Callable) -> None:
        """Run the test."""
        made, calls = HOW[self.how](), list[str]()

        def all_reduce(x: Tensor) -> Any:
            calls.append(_in_words(x))
            with torch.no_grad():
                return made(x)

        try:
            returned = test(all_reduce)
        except AssertionError as error:
            text = " ".join(str(error).split())[:80]
            after = f"after all_reduce of {calls[-1]}" if calls else BEFORE
            caught = Caught(f"{after}. {text}".rstrip(". "))
            raise caught.with_traceback(error.__traceback__) from None
        if returned is False or (isinstance(returned, Tensor) and not returned.all()):
            raise ReturnsFalse("nobody looks at what a test returns")
        self.says(PASSES if calls or dist.get_world_size() == 1 else NEVER)


def _in_words(x: Any) -> str:
    if not isinstance(x, Tensor):
        return type(x).__name__
    layout = "" if x.is_contiguous() else ", not contiguous"
    return f"a {str(x.dtype).replace('torch.', '')} tensor of shape {tuple(x.shape)}{layout}"


# ---- right ones ----------------------------------------------------------------------------------


def _summed(x: Tensor, op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM) -> Tensor:
    """What torch's own all_reduce makes of a copy."""
    y = x.contiguous().clone()
    dist.all_reduce(y, op)
    return y


def _by_torch(x: Tensor) -> None:
    x.copy_(_summed(x))


def _by_two_calls(x: Tensor) -> None:
    y = x.contiguous().clone()
    dist.reduce(y, 0)
    dist.broadcast(y, 0)
    x.copy_(y)


def _gathered(x: Tensor) -> list[Tensor]:
    y = x.contiguous().clone()
    parts = [torch.empty_like(y) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, y)
    return parts


def _in_order(x: Tensor) -> None:
    x.copy_(_added(_gathered(x)))


def _from_the_last(x: Tensor) -> None:
    x.copy_(_added(_gathered(x)[::-1]))


def _added(parts: list[Tensor]) -> Tensor:
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total


def _by_chunks(x: Tensor) -> None:
    n, flat = dist.get_world_size(), x.contiguous().flatten()
    padded = torch.cat([flat, flat.new_zeros(-len(flat) % n)])
    part = torch.empty_like(padded[: len(padded) // n])
    if len(part):
        dist.reduce_scatter_single(part, padded)
        dist.all_gather_single(padded, part)
    x.copy_(padded[: len(flat)].view(x.shape))


# ---- wrong ones ----------------------------------------------------------------------------------


def _last_keeps_own(x: Tensor) -> None:
    y = _summed(x)
    if dist.get_rank() != dist.get_world_size() - 1:
        x.copy_(y)


def _without_rest(x: Tensor) -> None:
    mine, y, n = x.contiguous().flatten().clone(), _summed(x).flatten(), dist.get_world_size()
    end = len(y) // n * n
    x.copy_(torch.cat([y[:end], mine[end:]]).view(x.shape))


def _times_n(x: Tensor) -> None:
    x *= dist.get_world_size()


def _without_last(x: Tensor) -> None:
    y, n = x.contiguous().clone(), dist.get_world_size()
    if 0 < dist.get_rank() == n - 1:
        y.zero_()
    dist.all_reduce(y)
    x.copy_(y)


def _through_float32(x: Tensor) -> None:
    x.copy_(_summed(x if x.is_floating_point() else x.float()))


def _stale() -> AllReduce:
    kept: dict[tuple, Tensor] = {}

    def all_reduce(x: Tensor) -> None:
        key = x.dtype, tuple(x.shape)
        if key not in kept:
            kept[key] = _summed(x)
        x.copy_(kept[key])

    return all_reduce


def _largest(x: Tensor) -> None:
    x.copy_(_summed(x, dist.ReduceOp.MAX))


def _over_neighbours(x: Tensor) -> None:
    y = _summed(x)
    torch.empty(0, dtype=torch.uint8).set_(x.untyped_storage()).zero_()
    x.copy_(y)


def _plain(fn: AllReduce) -> Callable[[], AllReduce]:
    return lambda: fn


RIGHT: dict[str, Callable[[], AllReduce]] = {
    "torch's own": _plain(_by_torch),
    "reduce, then broadcast": _plain(_by_two_calls),
    "gathers, adds from rank 0 on": _plain(_in_order),
    "gathers, adds from the last rank on": _plain(_from_the_last),
    "reduce_scatter, then all_gather": _plain(_by_chunks),
}
WRONG: dict[str, Callable[[], AllReduce]] = {
    "the last rank keeps its own": _plain(_last_keeps_own),
    "the rest that does not divide stays": _plain(_without_rest),
    "everybody multiplies by n": _plain(_times_n),
    "the last rank is not in the sum": _plain(_without_last),
    "a new tensor has the sum": _plain(_summed),
    "integers go through float32": _plain(_through_float32),
    "a second call gets the first one's sum": _stale,
    "MAX in place of SUM": _plain(_largest),
    "a view's neighbours are overwritten": _plain(_over_neighbours),
}
HOW = RIGHT | WRONG
