"""The verdict on an answer: play the cases of each level, judge them, say why one fails."""

from __future__ import annotations

import inspect
import random
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice

from course_check import own_cells
from course_check.cases import Case
from course_check.copies.progress import record
from course_check.diagnose import Level, diagnose
from course_check.exercise import Exercise, Finding, Play
from course_check.harness.answer import NOT_WRITTEN, Answer
from course_check.judge import judge, right_with_zeros
from course_check.light import lightly
from course_check.play import HERE, Player
from course_check.verdict import Verdict
from course_lib.errors import CheckFailed

WITHOUT_SIMULATOR = ("budget and sturdy", "schedules and hazards", "messages and bytes")


class NotPassed(CheckFailed):
    """CheckFailed as a notebook shows it: the verdict, and no word before it."""

    def _render_traceback_(self) -> list[str]:
        return str(self).splitlines()


def report(verdict: Verdict, fn: Callable) -> Verdict:
    """Note in the learner's map what an answer has reached. Returns the verdict of a right one, and
    raises that of a wrong one."""
    name = fn.__name__
    if page := record(name, {level: verdict.pays(level) for level in verdict.worth}):
        from course_check.copies.update import write_map  # with nbformat, which only notebooks need

        write_map(page)
    if not verdict.failed:
        return replace(verdict, elsewhere=own_cells.list_taken(fn))
    raise NotPassed(str(verdict), verdict=verdict)


@lightly()
def verdict_on(
    exercise: Exercise, answer: Answer, player: Player = HERE, secret: str = ""
) -> Verdict:
    """The verdict on an answer, right or wrong. It never raises because of the answer; because of
    the machine it raises CannotCheck.

    Cases are drawn by the ``secret`` if there is one, else by the answer's own text, which somebody
    may have made to fit them.
    """
    cases = _draw_cases(exercise, random.Random(secret or _make_seed(answer)))
    if complete := player.simulator_works():
        plays = player.play_all(exercise, answer, [*chain(*cases.values())])
    else:  # values only; the rest is named, not graded
        cases = {name: [] for name in cases} | {"core": _keep_real(cases["core"])[:5]}
        plays = [p for case in cases["core"] if (p := player.play_real(exercise, answer, case))]
    if plays and NOT_WRITTEN in map(str, plays[0].returned):
        return Verdict(exercise.title, exercise.points, written=False)
    for play in plays:
        judge(exercise, play)
    # The plays come back in order, and some may be missing at the end: deal them out to the levels.
    rest = iter(plays)
    played = {name: list(islice(rest, len(some))) for name, some in cases.items()}
    ended = {name: len(played[name]) == len(some) for name, some in cases.items()}
    core = [*played["core"], *_find_bypass(played["blank"])]
    if complete and ended["core"] and exercise.in_ranks and not any(p.findings for p in core):
        core += _play_for_real(exercise, answer, cases["core"], player)
    levels = {"core": Level("core", core, [p for p in core if p.findings], ended["core"])}
    if complete and exercise.budget:
        levels["budget"] = _measure_budget(played, levels["core"].passed)
    if cases["sturdy"]:
        failed = [p for p in played["sturdy"] if p.findings or p.over_budget]
        levels["sturdy"] = Level("sturdy", played["sturdy"], failed, ended["sturdy"], core)
    for level in levels.values():
        if level.failed:
            level.explanation, level.play = diagnose(exercise, level)
            level.case, level.asks = exercise.describe(level.play.case), exercise.blank
    ungraded = () if complete else WITHOUT_SIMULATOR
    return Verdict(exercise.title, exercise.points, levels, ungraded=ungraded)


def measure(case: Case) -> tuple[int, int]:
    """A key by which small cases come first."""
    return case.world, case.length


def _draw_cases(exercise: Exercise, rng: random.Random) -> dict[str, list[Case]]:
    """By level, in the order in which they are played. ``blank`` belongs to core, and ``regimes``
    to the budget."""
    core, sturdy = (sorted(cases(rng), key=measure) for cases in (exercise.core, exercise.sturdy))
    blank = _draw_blank(exercise, core)
    return {"core": core, "regimes": exercise.regimes(rng), "sturdy": sturdy, "blank": blank}


def _find_bypass(blank: list[Play]) -> list[Play]:
    """The plays with zeros in every message, called wrong if all of them are right: then the
    numbers came another way than by messages."""
    if not all(map(right_with_zeros, blank)):
        return []
    for play in blank:
        play.findings = [Finding("beside", "it is right, though all messages carried zeros")]
    return blank


def _play_for_real(ex: Exercise, answer: Answer, core: list[Case], player: Player) -> list[Play]:
    """The largest case that real ranks can play, where there is one, and there are such ranks."""
    able = _keep_real(core)
    real = player.play_real(ex, answer, max(able, key=measure)) if able else None
    if real:
        judge(ex, real)
    return [real] if real else []


def _measure_budget(played: dict[str, list[Play]], core_passed: bool) -> Level:
    """The level of the budget, which counts only if core passes: so an answer never loses points by
    getting better. (In sturdy, to keep the budget is a part of passing.)"""
    plays = [p for p in played["core"] if p.case.world > 1] + played["regimes"]
    plays.sort(key=lambda play: measure(play.case))
    over = [p for p in plays if (p.over_budget or p.error) and core_passed]
    return Level("budget", plays, over, core_passed)


def _draw_blank(exercise: Exercise, core: list[Case]) -> list[Case]:
    """Two cases of core once more, with zeros in all messages: no rank knows what others have."""
    able = exercise.in_ranks and exercise.blank
    fitting = [case for case in core if able and case.world > 1 and case.calls == 1]
    return [replace(case, blank=True) for case in fitting[:1] + fitting[1:][-1:]]


def _keep_real(core: list[Case]) -> list[Case]:
    """The cases that real ranks can play: on gloo, and on up to three ranks if there are such."""
    able = [c for c in core if c.backend == "gloo"]
    return [c for c in able if c.world <= 3] or able[:1]


def _make_seed(answer: Answer) -> int:
    """A seed from the answer's text: the same for the same answer, another one after a change."""
    source = answer.source
    if answer.function is not None:
        with suppress(OSError, TypeError):  # nobody keeps the text of what was made by exec
            source = inspect.getsource(answer.function)
    return zlib.crc32(source.encode())
