"""What happens in a rank: call the answer, and write down what is there afterwards."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache, partial
from itertools import combinations, product
from types import CodeType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from course_check.harness.kept import snapshot
from course_check.harness.seen import Seen, leaves, left, overlap
from course_lib.diagnosis.lines import ranks_text
from course_lib.user_code import show_lines

GIVEN: dict[str, Any] = {"torch": torch, "dist": dist, "Tensor": Tensor, "Callable": Callable}
NOT_WRITTEN = "not written yet"
Places = dict[str, tuple[Tensor, int]]  # by name a tensor, and where its memory is


class AtImport(Exception):
    """The answer's own file cannot be run, before anything in it is called."""


class BadSignature(TypeError):
    """The answer cannot be called with the arguments of its exercise."""


class Caught(AssertionError):
    """The answer is a test, and has failed on this rank. The others may stand in a collective
    meanwhile. Its argument has ``note_failure()``."""


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
        """The function or class. A source is run, in a namespace of its own."""
        if self.function is not None:
            return self.function
        show_lines(self.file, self.source)
        space = {"__name__": "answer", **GIVEN}
        try:
            exec(_compile(self.source, self.file), space)
        except (Exception, SystemExit) as error:
            text = f"the answer's file raises {type(error).__name__}: {error}"
            raise AtImport(text) from error
        return space[self.name]


@cache
def _compile(source: str, file: str) -> CodeType:
    """Compile a source once for all simulated ranks of a process."""
    return compile(source, file, "exec", dont_inherit=True)


def call_all(function: Callable, calls: list[tuple], ddp: bool = False) -> list[Seen]:
    """Call the answer with the arguments of each call; returns what is there after each."""
    ends: list[tuple] = []
    returned: list[Any] = []
    for args in calls:
        mine = tuple(map(_wrap, args)) if ddp else args
        before = _find_places(mine)
        value = _name_groups(_call(function, mine))
        remarks = [text for arg in args for text in getattr(arg, "remarks", ())]
        notes = _note_memory(before, _find_places(mine), value, returned)
        ends.append((left(mine), (*notes, *remarks)))
        returned.append(value)
    # The copies are taken after the last call, so that a call which writes into what an earlier one
    # returned is seen.
    return [Seen(snapshot(v), *end) for v, end in zip(returned, ends, strict=True)]


def _wrap(arg: Any) -> Any:
    """A model in DistributedDataParallel; anything else as it is."""
    return nn.parallel.DistributedDataParallel(arg) if isinstance(arg, nn.Module) else arg


def _call(function: Callable, args: tuple) -> Any:
    """Call the answer, or let an argument use it. A stub returns NOT_WRITTEN."""
    try:
        if hasattr(args[0] if args else None, "use"):  # an argument that drives the answer
            return args[0].use(partial(_try_call, function))
        return _try_call(function, *args)
    except SystemExit as error:
        raise CalledExit(f"sys.exit({error.code!r})") from None
    except NotImplementedError as error:
        if str(error) == NOT_WRITTEN:
            return NOT_WRITTEN
        raise


def _try_call(function: Callable, *args: Any, **options: Any) -> Any:
    """Call the answer. A TypeError becomes a BadSignature if the arguments do not fit."""
    try:
        return function(*args, **options)
    except TypeError:
        try:
            inspect.signature(function).bind(*args, **options)
        except TypeError as error:
            raise BadSignature(str(error)) from None
        raise


def _name_groups(value: Any) -> Any:
    """What is returned, with a name in the place of each group: a group cannot travel."""
    if isinstance(value, dist.ProcessGroup):
        return group_of(dist.get_process_group_ranks(value))
    return type(value)(map(_name_groups, value)) if type(value) in (list, tuple) else value


def group_of(ranks: Collection[int]) -> str:
    """The name of a group whose members are these ranks."""
    return f"group of {ranks_text(ranks)}"


def _find_places(args: tuple) -> Places:
    """By name every tensor among the arguments, and where its memory is."""
    found: dict[str, Any] = {}
    for number, arg in enumerate(args, 1):
        if isinstance(arg, nn.Module):
            found |= dict(arg.named_parameters()) | dict(arg.named_buffers())
            found |= {f"{name}.grad": p.grad for name, p in arg.named_parameters()}
        else:
            found |= leaves(arg, f"argument {number}")
    return {name: (t, t.data_ptr()) for name, t in found.items() if isinstance(t, Tensor)}


def _note_memory(before: Places, after: Places, returned: Any, earlier: list) -> tuple[str, ...]:
    """What values do not show: which memory is shared, and which tensors are other ones now."""
    parts, own = _list_tensors(returned), [t for t, _ in before.values()]
    shared = {
        "shared": combinations(parts, 2),
        "argument's memory": product(parts, own),
        "earlier memory": product(parts, _list_tensors(earlier)),
    }
    notes = [name for name, pairs in shared.items() if any(overlap(a, b) for a, b in pairs)]
    moved = [
        name
        for name, (tensor, place) in before.items()
        if name in after and (after[name][0] is not tensor or after[name][1] != place)
    ]
    return tuple(notes + moved)


def _list_tensors(value: Any) -> list[Tensor]:
    return [leaf for _, leaf in leaves(value) if isinstance(leaf, Tensor)]
