"""Judge a play: compare what the ranks have with what they should have, then apply the rules."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any

from course_lib.checks.compare import FACETS, differing, facet, same, same_kind
from course_lib.checks.exercise import Exercise, Finding, Outcome, Play
from course_lib.diagnosis.explain import ranks_text

NOTES = {  # any other note is the name of a tensor that has been replaced
    "shared": "the tensors that are returned share memory with one another",
    "argument's memory": "what is returned shares memory with an argument",
    "earlier memory": "what is returned shares memory with what an earlier call returned",
}
REPLACED = "{} is another tensor now, or has other memory, than before the call"


def judge(exercise: Exercise, play: Play) -> None:
    """Fill in ``play.findings`` and, for what came to its end, ``wrong`` and ``over_budget``."""
    if play.error is not None:
        play.findings = [Finding(type(play.error).__name__, str(play.error))]
        return
    play.expected = play.comes_to(exercise.right)
    if exercise.settle is not None:
        play.expected = [
            Outcome(exercise.settle(copy.deepcopy(list(want)), got))
            for want, got in zip(play.expected, play.seen, strict=True)
        ]
    play.findings = [f for call in range(play.case.calls) for f in _in_call(exercise, play, call)]
    wrong = exercise.differing(play.seen, play.expected) if play.findings else ()
    play.wrong = [name for name in FACETS if name in wrong]
    if play.where == "simulated":
        play.findings += [f for rule in exercise.rules for f in rule(play)]
        budget = exercise.budget if play.case.calls == 1 else ()  # limits are those of one call
        play.over_budget = [f for rule in budget for f in rule(play)]


def right_with_zeros(play: Play) -> bool:
    """Whether a play is right although its messages carried zeros."""
    return play.done and not {f.kind for f in play.findings} & {"returned", "type", "left"}


def which_differ(play: Play) -> str:
    """On which ranks it is wrong, and in which elements of their tensors, where not all are."""
    values = [f for f in play.findings if f.kind in ("returned", "left")]
    wrong = {f.rank for f in values if f.rank is not None}
    everyone = set(range(play.case.world))
    parts = []
    if len(wrong) > 1 == len(everyone - wrong):
        parts = [f"all ranks but {ranks_text(everyone - wrong).removeprefix('rank ')} are wrong"]
    elif wrong and wrong < everyone:
        parts = [f"only {ranks_text(wrong)} {'is' if len(wrong) == 1 else 'are'} wrong"]
    places = {tuple(differing(f.got, f.want)) for f in values}
    if len(places) == 1 and (at := places.pop()):
        parts.append(
            f"element{'s' * (len(at) > 1)} {', '.join(map(str, at[:4]))} differ"
            f"{'s' * (len(at) == 1)}, and no other"
        )
    return f"Here {', and '.join(parts)}." if parts else ""


def _in_call(exercise: Exercise, play: Play, call: int) -> Iterator[Finding]:
    same_here = partial(same, tolerance=exercise.tolerance)
    for rank, want in enumerate(play.expected[call]):
        find, got = partial(Finding, rank=rank, call=call), play.got(rank, call)
        if "returned" not in exercise.free and not same_here(got.returned, want.returned):
            kind = "returned" if same_kind(got.returned, want.returned) else "type"
            yield find(kind, "returns", got=got.returned, want=want.returned)
        for args in zip(play.before(rank, call), got.args, want.args, strict=True):
            old, new, wanted = (_counted(exercise, arg) for arg in args)
            if "left" not in exercise.free and not same_here(new, wanted):
                stays = same_here(old, wanted) and "written" not in want.notes
                kind = "argument changed" if stays else "left"
                yield find(kind, "has", got=new, want=wanted, old=old)
        yield from (
            find(note if note in NOTES else "replaced", NOTES.get(note, REPLACED.format(note)))
            for note in got.notes
            if facet(note) not in exercise.free
        )


def _counted(exercise: Exercise, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: v for name, v in value.items() if facet(name) not in exercise.free}
