"""What happens in a rank: call the answer, and write down what is there afterwards.

Nothing here, and nothing that this module imports, knows what is expected of an answer: in grading
it runs beside the student's code, which may read it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from course_lib.checks.compare import left, overlap, snapshot, tensors
from course_lib.checks.exercise import Seen
from course_lib.user_code import show_lines

NOT_WRITTEN = "not written yet"


class BadSignature(TypeError):
    """The answer cannot be called with the arguments of its exercise."""


class CalledExit(RuntimeError):
    """The answer ended its rank by ``sys.exit``."""


@dataclass(frozen=True)
class Answer:
    """What is checked: a function or class, or a source text that defines one of this name."""

    name: str
    function: Callable | None = None
    source: str = ""
    file: str = ""

    def load(self) -> Callable:
        if self.function is not None:
            return self.function
        show_lines(self.file, self.source)
        space: dict[str, Any] = {"__name__": "answer", "torch": torch, "dist": dist,
                                 "Tensor": torch.Tensor, "Callable": Callable}  # fmt: skip
        exec(compile(self.source, self.file, "exec", dont_inherit=True), space)
        return space[self.name]


def this_rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def call_all(function: Callable, rounds: list[tuple], ddp: bool = False) -> list[Seen]:
    """Call the answer once for each round of arguments; what is there afterwards.

    Tensors and models like those of the call before are the same ones, with other numbers in them:
    so does a loop that keeps its buffers.
    """
    mine: tuple = ()
    ends: list[tuple] = []
    returned: list[Any] = []
    for args in rounds:
        mine = _refilled(mine, _wrapped(args) if ddp else args)
        before, lists = _places(mine), [list(a) for a in mine if isinstance(a, list)]
        value = _call(function, mine)
        notes = _notes(mine, before, lists, value, returned)
        # What is the argument's own memory will not be what it was after another call.
        returned.append(snapshot(value) if "argument's memory" in notes else value)
        ends.append((left(mine), notes))
    # Only now, after the last call: one that writes into what an earlier one returned shows.
    return [Seen(snapshot(v), *end) for v, end in zip(returned, ends, strict=True)]


def _wrapped(args: tuple) -> tuple:
    from torch.nn.parallel import DistributedDataParallel

    return tuple(DistributedDataParallel(a) if isinstance(a, nn.Module) else a for a in args)


def _refilled(before: tuple, args: tuple) -> tuple:
    """The arguments of the call before, with the numbers of the new ones, where they fit."""
    return tuple(map(_refill, before, args)) if len(before) == len(args) else args


def _refill(old: Any, new: Any) -> Any:
    if isinstance(old, nn.Module):
        with torch.no_grad():
            for mine, theirs in zip(_state(old), _state(new), strict=True):
                mine.copy_(theirs)
                mine.grad = theirs.grad
        return old
    if isinstance(old, torch.optim.Optimizer):  # of the model's parameters, as before
        old.load_state_dict(new.state_dict())
        return old
    if isinstance(old, Tensor) and isinstance(new, Tensor) and (
        old.shape, old.dtype, old.stride()) == (new.shape, new.dtype, new.stride()):  # fmt: skip
        return old.copy_(new)
    return new


def _state(model: nn.Module) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()]


def _call(function: Callable, args: tuple) -> Any:
    try:
        inspect.signature(function).bind(*args)
    except TypeError as error:
        raise BadSignature(str(error)) from None
    try:
        return function(*args)
    except SystemExit as error:
        raise CalledExit(f"sys.exit({error.code!r})") from None
    except NotImplementedError as error:
        if str(error) == NOT_WRITTEN:
            return NOT_WRITTEN
        raise


def _places(args: tuple) -> dict[str, tuple[Tensor, int]]:
    """By name every tensor among the arguments, and where its memory is."""
    found: dict[str, Tensor] = {}
    for number, arg in enumerate(args):
        if isinstance(arg, nn.Module):
            found |= dict(arg.named_parameters()) | dict(arg.named_buffers())
            grads = {f"{name}.grad": p.grad for name, p in arg.named_parameters()}
            found |= {name: grad for name, grad in grads.items() if grad is not None}
        for place, t in enumerate(arg if isinstance(arg, list) else [arg]):
            if isinstance(t, Tensor):
                found[f"argument {number + 1}" + f"[{place}]" * isinstance(arg, list)] = t
    return {name: (t, t.data_ptr()) for name, t in found.items()}


def _notes(
    args: tuple, before: dict[str, tuple[Tensor, int]], lists: list, returned: Any, earlier: list
) -> tuple[str, ...]:
    """What the values do not show: which memory is whose."""
    notes, parts, now = [], tensors(returned), _places(args)
    own = [t for t, _ in before.values()]
    if any(overlap(a, b) for a, b in combinations(parts, 2)):
        notes.append("shared")
    if any(part is argument or overlap(part, argument) for part in parts for argument in own):
        notes.append("argument's memory")
    if any(overlap(part, old) for part in parts for old in tensors(earlier)):
        notes.append("earlier memory")
    if any(len(a) != len(b) for a, b in zip([a for a in args if isinstance(a, list)], lists,
                                            strict=True)):  # fmt: skip
        notes.append("other entries")
    notes += [name for name, (t, place) in before.items()
              if name in now and (now[name][0] is not t or now[name][1] != place)]  # fmt: skip
    return tuple(notes)
