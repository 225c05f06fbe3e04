"""What is asked wherever models train together: equal weights, and the mean of all gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import nn

from course_check.exercise import Play
from course_check.harness.seen import Seen
from course_exercises.declare import Mistakes
from course_exercises.drivers.driven import PASSES
from course_lib.trace import Event

MISSING = "without gradient"  # the name of an option


def average(
    given: list[tuple],
    divisor: Callable[[int], float] = lambda n: n,
    of: str = "grad",
    which: slice = slice(None),
    missing_stays: bool = False,
) -> None:
    """Each gradient the mean of all ranks', a missing one counted as zero. The rest: mistakes."""
    by_parameter = [*zip(*(args[0].parameters() for args in given), strict=True)]
    for column in by_parameter[which]:
        there = [t.clone() for t in (getattr(p, of) for p in column) if t is not None]
        mean = sum(t.double() for t in there) / divisor(len(given))
        for p in column if there else ():
            if p.grad is not None or not missing_stays:
                setattr(p, of, torch.empty_like(p).copy_(mean).detach())


HINTS = {
    "sum": "Every rank has the sum of all gradients, not their mean.",
    "divided-twice": "It is divided by the number of ranks a second time somewhere.",
    "one-too-few": "The sum is divided by n − 1. The mean of n numbers is their sum over n.",
    "none-stays": "A rank that had no gradient still has none, while the others have the mean: "
    "its weights will fall behind theirs.",
}
MISTAKES: Mistakes = {
    "sum": {"divisor": lambda n: 1},
    "divided-twice": {"divisor": lambda n: n**2},
    "one-too-few": {"divisor": lambda n: n - 1},
    "none-stays": {"missing_stays": True},
}


def zero_or_none(want: list[Seen], got: list[Seen]) -> list[Seen]:
    """Where nobody has a gradient it may stay None or become zero."""
    for mine, theirs in zip(want, got, strict=True):
        for name, value in mine.args[0].items():
            if name.endswith(".grad") and value is None and isinstance(theirs.args[0], dict):
                now = theirs.args[0].get(name)
                mine.args[0][name] = None if now is None else torch.zeros_like(now)
    return want


def state(model: nn.Module) -> list[torch.Tensor]:
    """Its parameters and buffers."""
    return [t.detach() for t in (*model.parameters(), *model.buffers())]


def broadcast(given: list[tuple], averages: bool = False) -> None:
    """Every rank has the parameters and buffers of src, rank 0 where none is given; or, which is a
    mistake, all have the means."""
    states = [state(model) for model, *_ in given]
    src = given[0][1] if given[0][1:] else 0
    for column in zip(*states, strict=True):
        mean = torch.stack([t.double() for t in column]).mean(0)
        sent = mean if averages else column[src].clone()
        for t in column:
            t.copy_(sent)


def passes(play: Play) -> Iterator[tuple[int, str, list[Event]]]:
    """The calls of each rank's "forward" and "backward" pass, where its argument marks them."""
    for one in play.trace.spans:
        if one.name in PASSES:
            calls = [e for e in play.trace.of(one.rank) if one.start <= e.issued <= one.end]
            yield one.rank, one.name.split()[0], calls
