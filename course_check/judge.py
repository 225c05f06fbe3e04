"""Judge a play: compare what the ranks have with what they should have, then apply the rules."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any

from torch import Tensor

from course_check.compare import FACETS, facet, find_places, read_between, same, same_kind
from course_check.exercise import After, Exercise, Finding, Play
from course_lib.diagnosis.lines import ranks_text

NOTES = {  # any other note is the name of a tensor that has been replaced
    "shared": "the tensors that are returned share memory with one another",
    "argument's memory": "what is returned shares memory with an argument",
    "earlier memory": "what is returned shares memory with what an earlier call returned",
    "used twice": "used twice in one graph, its first use gives another gradient than alone",
}
BETWEEN = "memory between the elements of a tensor has changed"
REPLACED = "{} is another tensor now, or has other memory, than before the call"


def judge(exercise: Exercise, play: Play) -> None:
    """Fill in ``play.findings`` and, for what came to its end, ``wrong`` and ``over_budget``."""
    if play.error is not None:
        play.findings = [Finding(type(play.error).__name__, str(play.error))]
        return
    play.expected = play.comes_to(exercise.right)
    if exercise.settle is not None:
        play.expected = [
            After(exercise.settle(copy.deepcopy(list(want)), got))
            for want, got in zip(play.expected, play.seen, strict=True)
        ]
    play.findings = [f for call in range(play.case.calls) for f in _compare(exercise, play, call)]
    if play.caught and play.findings:
        play.findings.append(Finding("refused", play.caught))
    wrong = exercise.differing(play.seen, play.expected) if play.findings else ()
    play.wrong = [name for name in FACETS if name in wrong]
    if play.where == "simulated":
        play.findings += [f for rule in exercise.rules for f in rule(play)]
        budget = exercise.budget if play.case.calls == 1 else ()  # limits are those of one call
        play.over_budget = [f for rule in budget for f in rule(play)]


def right_with_zeros(play: Play) -> bool:
    """Whether a play is right although its messages carried zeros."""
    return play.done and not {f.kind for f in play.findings} & {"returned", "type", "left"}


def say_which_differ(play: Play) -> str:
    """A sentence that names the ranks and elements that are wrong; empty if all of them are."""
    values = [f for f in play.findings if f.kind in ("returned", "left")]
    wrong = {f.rank for f in values if f.rank is not None}
    right = set(range(play.case.world)) - wrong
    said = []
    if wrong and right:
        are = "is" if len(wrong) == 1 else "are"
        said = [f"only {ranks_text(wrong)} {are} wrong"]
        if len(wrong) > 1 == len(right):
            said = [f"all ranks but {right.pop()} are wrong"]
    where = {tuple(find_places(f.got, f.want)) for f in values}
    at = where.pop() if len(where) == 1 else ()
    if 0 < len(at) < values[0].got.numel():
        elements, differ = ("element", "differs") if len(at) == 1 else ("elements", "differ")
        said.append(f"{elements} {', '.join(map(str, at[:4]))} {differ}, and no other")
    return f"Here {', and '.join(said)}." if said else ""


def _compare(exercise: Exercise, play: Play, call: int) -> Iterator[Finding]:
    """What differs on each rank, after this call, from what was expected."""
    same_here = partial(same, tolerance=exercise.tolerance)
    for rank, want in enumerate(play.expected[call]):
        find, got = partial(Finding, rank=rank, call=call), play.got(rank, call)
        if "returned" not in exercise.free and not same_here(got.returned, want.returned):
            kind = "returned" if same_kind(got.returned, want.returned) else "type"
            yield find(kind, "returns", got=got.returned, want=want.returned)
        for args in zip(play.before(rank, call), got.args, want.args, strict=True):
            old, new, wanted = (_keep_counted(exercise, arg) for arg in args)
            if "left" not in exercise.free and not same_here(new, wanted):
                stays = same_here(old, wanted) and "written" not in want.notes
                kind = "argument changed" if stays else "left"
                yield find(kind, "has", got=new, want=wanted, old=old)
        if any(map(_written_between, play.before(rank, call), got.args)):
            yield find("between", BETWEEN)
        yield from (
            find(note if note in NOTES else "replaced", NOTES.get(note, REPLACED.format(note)))
            for note in got.notes
            if facet(note) not in exercise.free
        )


def _written_between(before: Any, after: Any) -> bool:
    """Whether memory between a tensor's elements has changed, if it still lies as it did."""
    if not (isinstance(before, Tensor) and isinstance(after, Tensor)):
        return False
    one, other = read_between(before), read_between(after)
    return before.stride() == after.stride() and len(one) == len(other) and not same(one, other)


def _keep_counted(exercise: Exercise, value: Any) -> Any:
    """What is compared of an argument: of a dict, the entries whose facets are not free."""
    if not isinstance(value, dict):
        return value
    return {name: v for name, v in value.items() if facet(name) not in exercise.free}
