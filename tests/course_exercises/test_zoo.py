"""Right answers get full marks; wrong ones the diagnosis that is true of them, and a case on which
it can be seen; and no two mistakes of an exercise would be taken for one another."""

from __future__ import annotations

import json
import random
import re
from functools import cache
from itertools import combinations
from pathlib import Path

import pytest
import zoo

from course_check.checking import verdict_on
from course_check.compare import same
from course_check.exercise import Right
from course_check.harness.answer import Answer
from course_check.light import lightly
from course_check.play import HERE, Player, make_play
from course_check.verdict import Verdict
from course_exercises.catalogue import exercises, find

NAMES = sorted(exercises())
SOLVED = Path(__file__).parents[2] / "notebooks" / "solutions"


class Simulated(Player):
    def play_real(self, *_: object) -> None:
        """No real ranks."""


@pytest.fixture(autouse=True)
def nobody_stands_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """No world that real ranks were asked for is made a second time: nobody would use it."""
    monkeypatch.setenv("COURSE_LIB_STANDBY", "0")


@cache
def verdict_of(exercise: str, source: str) -> Verdict:
    """Real ranks play the first right answer only: what they show is the same for all."""
    player = HERE if source == next(iter(zoo.right(exercise).values())) else Simulated()
    answer = Answer(exercise, source=source, file=f"{exercise}.py")
    return verdict_on(find(exercise), answer, player)


@cache
def stored() -> str:
    """All that the cells of solved notebooks show."""
    cells = [
        cell for path in SOLVED.glob("*.ipynb") for cell in json.loads(path.read_text())["cells"]
    ]
    outputs = [out.get("data", {}) for cell in cells for out in cell.get("outputs", ())]
    return "\n".join("".join(data.get("text/plain", "")) for data in outputs)


def undrawn(text: str) -> str:
    """How many ranks a crowd has, is drawn by the answer's text."""
    return re.sub(r"\d\d ranks", "many ranks", text)


@pytest.mark.slow
@pytest.mark.parametrize(("exercise", "name"), [(e, n) for e in NAMES for n in zoo.right(e)])
def test_a_right_answer_gets_full_marks(exercise: str, name: str) -> None:
    verdict = verdict_of(exercise, zoo.right(exercise)[name])
    assert verdict.passed, str(verdict)
    assert verdict.points == 100
    if name == next(iter(zoo.right(exercise))):
        assert undrawn(str(verdict)) in undrawn(stored())


@pytest.mark.slow
@pytest.mark.parametrize(("exercise", "name"), [(e, n) for e in NAMES for n in zoo.wrong(e)])
def test_a_wrong_answer_gets_its_diagnosis_and_a_case_that_shows_it(
    exercise: str, name: str
) -> None:
    """Of two mistakes at once the other is named next, and no point is lost."""
    wrong = zoo.wrong(exercise)[name]
    verdict = verdict_of(exercise, wrong.source())
    assert verdict.diagnosis == wrong.diagnosis, str(verdict)
    assert verdict.points < 100
    level = verdict.first_failing
    assert level is not None and level.explanation is not None and level.play is not None
    assert level.explanation.when(level.play), str(verdict)
    if "two at once" in wrong.why:
        each = [verdict_of(exercise, wrong.source(but=edit)) for edit in range(len(wrong.edits))]
        diagnoses = {one.diagnosis for one in each}
        assert verdict.diagnosis in diagnoses
        assert len(diagnoses) == len(wrong.edits)
        assert min(one.points for one in each) >= verdict.points


@pytest.mark.slow
@pytest.mark.parametrize("exercise", ["exchange", "star_seconds"])  # in ranks, and called alone
def test_a_stub_says_one_line(exercise: str) -> None:
    stub = f'def {exercise}(*args):\n    raise NotImplementedError("not written yet")\n'
    verdict = verdict_of(exercise, stub)
    assert str(verdict) == f"{find(exercise).title}: not written yet"
    assert (verdict.passed, verdict.points, verdict.diagnosis) == (False, 0, "not-written")


@pytest.mark.slow
@pytest.mark.parametrize("exercise", NAMES)
@lightly()
def test_mistakes_differ_from_right_and_from_one_another(exercise: str) -> None:
    """A hint cannot be said of another mistake, unless nothing that is played tells them apart."""
    ex = find(exercise)
    rng = random.Random(0)
    cases = [case for case in ex.core(rng) + ex.sturdy(rng) if case.world <= 5]
    plays = [make_play(ex, case) for case in sorted(cases, key=lambda case: -case.world)]

    def differ(one: Right, other: Right) -> bool:
        outcomes = ([p.prepared.outcome(way).facets for way in (one, other)] for p in plays)
        return any(not same(*pair, ex.tolerance) for pair in outcomes)

    known = [(mistake.id, way) for mistake in ex.mistakes for way in mistake.wrong]
    for id, way in known:
        assert differ(way, ex.right), f"{id} ({way}) is right"
    for (a, one), (b, other) in combinations(known, 2):
        assert a == b or differ(one, other), f"{a} and {b} are one"


@pytest.mark.parametrize("exercise", NAMES)
def test_an_exercise_has_right_answers_that_differ_and_wrong_ones(exercise: str) -> None:
    assert 2 <= len(zoo.right(exercise)) <= 4
    assert zoo.wrong(exercise)
    assert all(len(w.why) > 10 for w in zoo.wrong(exercise).values())
