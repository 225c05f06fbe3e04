"""How a lesson declares an exercise: by each mistake's name its hint, and what makes or shows it.

``docs/adding-an-exercise.md`` has an example. Several ways to make one mistake stand in a list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

from course_check.exercise import Diagnosis, Exercise, Mistake, Play, Right
from course_check.usual_diagnoses import OfPlay, found, gravest

Knobs = dict[str, Any]
Ways = Knobs | list[Knobs]
Mistakes = dict[str, Ways]

declared: dict[str, Exercise] = {}  # by the name of its function


def several(ways: Ways) -> list[Knobs]:
    """The ways to make a mistake as a list, also where there is one."""
    return ways if isinstance(ways, list) else [ways]


def mistake(right: Right, id: str, hint: str, ways: Ways | Mistake) -> Mistake:
    """Made of the right function, by turning its knobs: one way or several."""
    if isinstance(ways, Mistake):
        return ways
    return Mistake(id, hint, tuple(partial(right, **way) for way in several(ways)))


def exercise(
    title: str,
    right: Right,
    *,
    hints: dict[str, str],
    mistakes: Mapping[str, Ways | Mistake] | None = None,
    diagnoses: dict[str, OfPlay] | None = None,
    **fields: Any,
) -> Exercise:
    """Declare an exercise, as ``title`` names it: "04.1 ring_all_reduce".

    ``hints`` has a hint for each mistake and each diagnosis, by its id. Any other key is the kind
    of a Finding: its hint is told where a rule has found that. The first that fits is told:
    diagnoses in the order of ``hints``, then mistakes in the order of ``mistakes``. ``words`` are
    for the features of its cases: how "It goes wrong only where …" goes on, and a question.
    """
    number, name = title.split()
    made, seen = mistakes or {}, diagnoses or {}
    assert hints.keys() >= made.keys() | seen.keys(), f"{title}: a mistake without a hint"
    fields["mistakes"] = [mistake(right, id, hints[id], ways) for id, ways in made.items()]
    fields["diagnoses"] = [
        Diagnosis(id, hint, seen.get(id) or gravest(id))
        for id, hint in hints.items()
        if id in seen or id not in made
    ]
    declared[name] = Exercise(number, name, right, **fields)
    return declared[name]


def each(**values: Iterable) -> list[Knobs]:
    """Knobs turned in all combinations: ``each(a=(1, 2), b=(0, 1))`` are four ways."""
    return [dict(zip(values, way, strict=True)) for way in product(*values.values())]


def unequal(sizes: Sequence[int]) -> set[str]:
    """What is special about the ranks' batches."""
    return marked({"an empty batch": 0 in sizes, "batches of unequal size": len({*sizes}) > 1})


def marked(marks: dict[str, bool]) -> set[str]:
    """The features of a case, of those that it may have."""
    return {feature for feature, there in marks.items() if there}


def over_budget(*kinds: str) -> OfPlay:
    """All is right, and the budget has a finding of one of these kinds."""
    return lambda play: not play.findings and found(*kinds)(play)


def apart_in_new_group(play: Play) -> bool:
    """The ranks do not all make the same groups in the same order."""
    return found("Mismatch", "Deadlock")(play) and "new_group" in str(play.error)
