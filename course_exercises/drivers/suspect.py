"""The argument for an answer that is itself a test: somebody's all_reduce, right or wrong.

The right ones take different ways to the sum; the wrong ones change something around torch's own.
Each takes tensors of any layout, and returns what is then written into the tensor.

    Suspect(how).use(test)  ──► test(all_reduce)  ──► comes to its end: "passes"
                                                  └─► AssertionError on some rank: Caught
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from course_check.harness.answer import Caught
from course_check.harness.seen import Noted

PASSES, FAILS, NEVER = "passes", "fails", "passes, and has never called all_reduce"
BEFORE = "before it has called all_reduce"
OUTCOME = "the test"  # the name under which rank 0 notes it

NEW = "a new tensor has the sum"


class ReturnsFalse(Exception):
    """The test returns what it should have raised."""


@dataclass(repr=False, eq=False)
class Suspect(Noted):
    """An all_reduce of this kind, which a test is given. Rank 0 notes what the test says."""

    how: str
    rank: int

    def __repr__(self) -> str:
        return f"an all_reduce ({self.how})"

    def says(self, outcome: str) -> None:
        if self.rank == 0:
            self.noted[OUTCOME] = outcome

    def note_failure(self) -> None:
        self.says(FAILS)

    def use(self, test: Callable) -> None:
        """Run the test."""
        sums, calls = HOW[self.how], list[str]()
        if sums is _stale:
            sums = partial(_stale, kept={})

        def all_reduce(x: Tensor) -> Tensor | None:
            calls.append(_say_tensor(x))
            with torch.no_grad():
                y = sums(x)
                if self.how == NEW:
                    return y
                x.copy_(y)
                return None

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


def _say_tensor(x: Any) -> str:
    if not isinstance(x, Tensor):
        return type(x).__name__
    layout = "" if x.is_contiguous() else ", not contiguous"
    return f"a {str(x.dtype).replace('torch.', '')} tensor of shape {tuple(x.shape)}{layout}"


# ---- right ones ----------------------------------------------------------------------------------


def _sum(x: Tensor, op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM) -> Tensor:
    """What torch's own all_reduce makes of a copy."""
    y = x.contiguous().clone()
    dist.all_reduce(y, op)
    return y


def _by_two_calls(x: Tensor) -> Tensor:
    y = x.contiguous().clone()
    dist.reduce(y, 0)
    dist.broadcast(y, 0)
    return y


def _gather(x: Tensor) -> list[Tensor]:
    y = x.contiguous().clone()
    parts = [torch.empty_like(y) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, y)
    return parts


def _by_chunks(x: Tensor) -> Tensor:
    n, flat = dist.get_world_size(), x.contiguous().flatten()
    padded = torch.cat([flat, flat.new_zeros(-len(flat) % n)])
    part = torch.empty_like(padded[: len(padded) // n])
    if len(part):
        dist.reduce_scatter_single(part, padded)
        dist.all_gather_single(padded, part)
    return padded[: len(flat)].view(x.shape)


RIGHT: dict[str, Callable[[Tensor], Tensor]] = {
    "torch's own": _sum,
    "reduce, then broadcast": _by_two_calls,
    "gathers, adds from rank 0 on": lambda x: reduce(torch.add, _gather(x)),
    "gathers, adds from the last rank on": lambda x: reduce(torch.add, _gather(x)[::-1]),
    "reduce_scatter, then all_gather": _by_chunks,
}

# ---- wrong ones ----------------------------------------------------------------------------------


def _is_last() -> bool:
    return dist.get_rank() == dist.get_world_size() - 1


def _last_keeps_own(x: Tensor) -> Tensor:
    y = _sum(x)
    return x if _is_last() else y


def _without_rest(x: Tensor) -> Tensor:
    mine, y = x.contiguous().flatten(), _sum(x).flatten()
    end = len(y) // dist.get_world_size() * dist.get_world_size()
    return torch.cat([y[:end], mine[end:]]).view(x.shape)


def _without_last(x: Tensor) -> Tensor:
    return _sum(torch.zeros_like(x) if _is_last() and dist.get_rank() else x)


def _stale(x: Tensor, kept: dict[tuple, Tensor]) -> Tensor:
    key = x.dtype, tuple(x.shape)
    if key not in kept:
        kept[key] = _sum(x)
    return kept[key]


def _over_neighbours(x: Tensor) -> Tensor:
    y = _sum(x)
    torch.empty(0, dtype=torch.uint8).set_(x.untyped_storage()).zero_()
    return y


WRONG: dict[str, Callable[..., Tensor]] = {
    "the last rank keeps its own": _last_keeps_own,
    "the rest that does not divide stays": _without_rest,
    "everybody multiplies by n": lambda x: x * dist.get_world_size(),
    "the last rank is not in the sum": _without_last,
    NEW: _sum,
    "integers go through float32": lambda x: _sum(x if x.is_floating_point() else x.float()),
    "a second call gets the first one's sum": _stale,
    "MAX in place of SUM": lambda x: _sum(x, dist.ReduceOp.MAX),
    "a view's neighbours are overwritten": _over_neighbours,
}
HOW = RIGHT | WRONG
