"""The verdict on an answer: play the cases of each level, judge them, say why one fails."""

from __future__ import annotations

import inspect
import random
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from operator import attrgetter
from typing import Protocol

from course_check import own_cells
from course_check import play as playing
from course_check.cases import Case
from course_check.copies.progress import record
from course_check.diagnose import Level, diagnose
from course_check.exercise import Exercise, Finding, Play
from course_check.harness.answer import NOT_WRITTEN, Answer
from course_check.judge import judge, right_with_zeros
from course_check.light import lightly
from course_check.verdict import Verdict
from course_lib.errors import CheckFailed

SIZE = attrgetter("size")
WITHOUT_SIMULATOR = ("budget and sturdy", "schedules and hazards", "messages and bytes")


class NotPassed(CheckFailed):
    """CheckFailed as a notebook shows it: the verdict, and no word before it."""

    def _render_traceback_(self) -> list[str]:
        return str(self).splitlines()


class Player(Protocol):
    """Who plays cases: ``play.py``, or grading, which trusts no answer."""

    def simulator_works(self) -> bool: ...

    def play_all(self, exercise: Exercise, answer: Answer, cases: list[Case], /) -> list[Play]: ...

    def play_real(self, exercise: Exercise, answer: Answer, case: Case, /) -> Play | None: ...


def report(verdict: Verdict, fn: Callable) -> Verdict:
    """Note in the learner's map what an answer has reached. Returns the verdict of a right one, and
    raises that of a wrong one."""
    name = fn.__name__
    if page := record(name, {level: verdict.pays(level) for level in verdict.worth}):
        from course_check.copies.update import write_map  # with nbformat, which only notebooks need

        write_map(page)
    if not verdict.failed:
        return replace(verdict, elsewhere=own_cells.taken(fn))
    raise NotPassed(str(verdict), verdict=verdict)


@lightly()
def verdict_on(
    exercise: Exercise, answer: Answer, player: Player = playing, secret: str = ""
) -> Verdict:
    """The verdict on an answer, right or wrong. Never raises because of the answer; because of the
    machine it raises CannotCheck.

    Where there is a ``secret``, it draws the cases, and not the answer's own text, which somebody
    may have made to fit them.
    """
    rng = random.Random(secret or _seed(answer))
    complete = player.simulator_works()
    core, sturdy = (sorted(cases(rng), key=SIZE) for cases in (exercise.core, exercise.sturdy))
    if complete:
        regimes, blank = exercise.regimes(rng), _blank(exercise, core)
        plays = player.play_all(exercise, answer, core + regimes + sturdy + blank)
    else:  # values only; the rest is named, not graded
        core, regimes, sturdy, blank = _for_real(core)[:5], [], [], []
        plays = [p for case in core if (p := player.play_real(exercise, answer, case))]
    if plays and NOT_WRITTEN in _texts(plays[0]):
        return Verdict(exercise.title, exercise.points, written=False)
    for play in plays:
        judge(exercise, play)
    rest = iter(plays)
    in_core, in_regimes, in_sturdy, in_blank = (
        list(islice(rest, len(cases))) for cases in (core, regimes, sturdy, blank)
    )
    ended = len(in_core) == len(core)
    several = [p for p in in_core if p.case.world > 1]
    if all(map(right_with_zeros, in_blank)):  # so the numbers came beside the messages
        for play in in_blank:
            play.findings = [Finding("beside", "it is right, though all messages carried zeros")]
        in_core += in_blank
    right = ended and not any(p.findings for p in in_core)
    if complete and right and exercise.in_ranks and (able := _for_real(core)):
        largest = max(able, key=SIZE)
        if real := player.play_real(exercise, answer, largest):
            judge(exercise, real)
            in_core.append(real)
    first = Level("core", in_core, [p for p in in_core if p.findings], ended)
    levels = {"core": first}
    # Counted where everything comes to its right end, so that an answer never loses points by
    # getting better. In sturdy the budget belongs to what has to be kept.
    if complete and exercise.budget:
        several = sorted(several + in_regimes, key=lambda play: play.case.size)
        over = [p for p in several if (p.over_budget or p.error) and first.passed]
        levels["budget"] = Level("budget", several, over, first.passed)
    if sturdy:
        failed = [p for p in in_sturdy if p.findings or p.over_budget]
        ended = len(in_sturdy) == len(sturdy)
        levels["sturdy"] = Level("sturdy", in_sturdy, failed, ended, in_core)
    for level in levels.values():
        if level.failed:
            level.explanation, level.play = diagnose(exercise, level)
            level.case, level.asks = exercise.describe(level.play.case), exercise.blank
    ungraded = () if complete else WITHOUT_SIMULATOR
    return Verdict(exercise.title, exercise.points, levels, ungraded=ungraded)


def _texts(play: Play) -> list[str]:
    """What the ranks returned, as far as it is text."""
    returned = [seen.returned for by_rank in play.seen for seen in by_rank]
    return [value for value in returned if isinstance(value, str)]


def _blank(exercise: Exercise, core: list[Case]) -> list[Case]:
    """Two cases of core once more, in which nobody can know what the others have."""
    able = exercise.in_ranks and exercise.blank
    fitting = [case for case in core if able and case.world > 1 and case.calls == 1]
    return [replace(case, blank=True) for case in fitting[:1] + fitting[1:][-1:]]


def _for_real(core: list[Case]) -> list[Case]:
    able = [c for c in core if c.backend == "gloo"]
    return [c for c in able if c.world <= 3] or able[:1]


def _seed(answer: Answer) -> int:
    """The same for the same answer, and not to be known while it is being written."""
    source = answer.source
    if answer.function is not None:
        with suppress(OSError, TypeError):  # of what was made by exec nobody keeps the text
            source = inspect.getsource(answer.function)
    return zlib.crc32(source.encode())
