"""``check(fn)``: play the cases of each level, judge them, say why one fails, on a small case."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import CodeType
from typing import Literal, Protocol

from course_lib.checks import play as playing
from course_lib.checks.cases import Case
from course_lib.checks.diagnose import Evidence, Explanation, diagnose
from course_lib.checks.exercise import Exercise, Play, find
from course_lib.checks.in_rank import NOT_WRITTEN, Answer
from course_lib.checks.judge import heard_of_nobody, judge
from course_lib.checks.verdict import LevelResult, Verdict
from course_lib.errors import CheckFailed, interruptible

WITHOUT_SIMULATOR = ("budget and sturdy", "schedules and hazards", "messages and bytes")
SMALLER_TRIED = 400  # smaller cases of which a mistake is foretold, without playing them
SMALLER_PLAYED = 24

Shrink = Literal["none", "first", "all"]


class NotPassed(CheckFailed):
    """CheckFailed as a notebook shows it: the verdict, and no word before it."""

    def _render_traceback_(self) -> list[str]:
        return str(self).splitlines()


class Player(Protocol):
    """Who plays cases: this process's simulator (``play.py``), or one that trusts no answer."""

    def simulator_works(self) -> bool: ...

    def simulated(self, exercise: Exercise, answer: Answer, cases: list[Case], /) -> list[Play]: ...

    def real(self, exercise: Exercise, answer: Answer, case: Case, /) -> Play | None: ...


def check(fn: Callable) -> Verdict:
    """Check an answer to an exercise, which is found by the function's name.

    Returns the Verdict of a right answer; raises CheckFailed, whose text is the verdict, where
    it is wrong or not written yet. Call it from a notebook or a script, not from a rank.

    >>> check(ring_all_reduce)
    """
    name = getattr(fn, "__name__", None)
    if not callable(fn) or name is None:
        raise TypeError(f"check() takes a function, not {type(fn).__name__}")
    with interruptible("check()"):
        verdict = verdict_on(find(name), Answer(name, fn))
    if not verdict.failed:
        return verdict
    raise NotPassed(str(verdict), verdict)


def verdict_on(
    exercise: Exercise, answer: Answer, player: Player = playing, shrink: Shrink = "first",
    secret: str = "",
) -> Verdict:  # fmt: skip
    """The verdict on an answer, right or wrong. Never raises because of the answer.

    ``shrink``: of which failing levels the smallest case is looked for on which the mistake can be
    seen. The first is what a verdict's text shows. Where there is a ``secret``, it draws the cases,
    and not the answer's own text, which somebody may have made to fit them.
    """
    rng = random.Random(secret or _seed(answer))
    core, sturdy = exercise.core(rng), exercise.sturdy(rng)
    if not player.simulator_works():
        return _on_real_ranks(exercise, answer, core)
    blank = _blank(exercise, core)
    plays = player.simulated(exercise, answer, core + sturdy + blank)
    if not_written(plays):
        return Verdict(exercise.title, exercise.points, written=False)
    for play in plays:
        judge(exercise, play)
    in_core, in_sturdy = plays[: len(core)], plays[len(core) :][: len(sturdy)]
    unheard = plays[len(core + sturdy) :]
    in_core += unheard if all(heard_of_nobody(p) for p in unheard) else []
    if exercise.in_ranks and len(in_core) == len(core) and not any(p.findings for p in in_core):
        real = player.real(exercise, answer, max(_for_real(core), key=lambda c: c.size))
        if real is not None:
            judge(exercise, real)
            in_core.append(real)
    levels = {"core": _level("core", in_core, [p for p in in_core if p.findings], len(core))}
    if exercise.budget:
        levels["budget"] = _budget(plays[: len(core)], levels["core"].passed)
    if sturdy:
        wrong = [p for p in in_sturdy if p.findings or p.broken]
        levels["sturdy"] = _level("sturdy", in_sturdy, wrong, len(sturdy), in_core)
    failing = [level for level in levels.values() if level.evidence.failed]
    for level in failing:
        level.explanation = diagnose(exercise, level.evidence)
        level.play = level.explanation.play
        if shrink == "all" or (shrink == "first" and level is failing[0]):
            level.play = _smallest(exercise, answer, level.explanation, player)
        level.case = exercise.describe(level.play.case)
    return Verdict(exercise.title, exercise.points, levels)


def _budget(core: list[Play], core_passed: bool) -> LevelResult:
    """It is counted where everything comes to its right end, so that an answer never loses points
    by getting better. In sturdy it belongs to what has to be kept."""
    counted = [p for p in core if p.case.world > 1]
    level = _level("budget", counted, [p for p in counted if p.broken] if core_passed else [], 1)
    level.reached &= core_passed
    return level


def _blank(exercise: Exercise, core: list[Case]) -> list[Case]:
    """Two cases of core once more, in which nobody can know what the others have."""
    able = exercise.in_ranks and exercise.blank
    fitting = [c for c in core if able and exercise.fits(c) and c.calls == 1]
    return [replace(c, blank=True) for c in fitting[:1] + fitting[1:][-1:]]


def _on_real_ranks(exercise: Exercise, answer: Answer, core: list[Case]) -> Verdict:
    """Without the simulator: a few cases of core, values only; the rest is named, not graded."""
    plays: list[Play] = []
    for case in _for_real(core)[:5]:
        plays.append(playing.real(exercise, answer, case))
        if not_written(plays):
            return Verdict(exercise.title, exercise.points, written=False)
        judge(exercise, plays[-1])
        if plays[-1].findings:
            break
    level = _level("core", plays, [p for p in plays if p.findings], len(plays))
    if level.evidence.failed:
        level.explanation = diagnose(exercise, level.evidence)
        level.play = level.explanation.play
        level.case = exercise.describe(level.play.case)
    return Verdict(exercise.title, exercise.points, {"core": level}, ungraded=WITHOUT_SIMULATOR)


def not_written(plays: list[Play]) -> bool:
    return any(seen.returned == NOT_WRITTEN for p in plays[:1] for by in p.seen for seen in by
               if isinstance(seen.returned, str))  # fmt: skip


def _for_real(core: list[Case]) -> list[Case]:
    return [c for c in core if c.world <= 3] or core[:1]


def _level(
    name: str, plays: list[Play], failed: list[Play], due: int, besides: list[Play] | None = None
) -> LevelResult:
    besides = [p for p in besides or () if not p.findings]
    return LevelResult(Evidence(name, plays, failed, besides), reached=len(plays) >= due)


def _smallest(exercise: Exercise, answer: Answer, explanation: Explanation, player: Player) -> Play:
    """The smallest world and length on which what is said can be seen."""
    known = explanation.play
    if playing.died(known) or known.world != "simulated" or known.case.blank:
        return known
    special, usual = exercise.features(known.case), exercise.fits(known.case)
    less = [c for c in exercise.smaller(known.case) if c.size <= known.case.size
            and exercise.features(c) <= special and (exercise.fits(c) or not usual)]  # fmt: skip
    promising = (
        c for c in less[:SMALLER_TRIED] if explanation.foretells(playing.make(exercise, c))
    )
    few = [case for _, case in zip(range(SMALLER_PLAYED), promising, strict=False)]
    for play in player.simulated(exercise, answer, few) if few else []:
        judge(exercise, play)
        if (play.findings or play.broken) and explanation.holds(play):
            return play
    return known


def _seed(answer: Answer) -> int:
    """The same for the same answer, and not to be known while it is being written."""
    if answer.source:
        return zlib.crc32(answer.source.encode())
    code = getattr(answer.function, "__code__", None)
    return zlib.crc32(b"".join(_bytes_of(code))) if code else 0


def _bytes_of(code: CodeType) -> Iterable[bytes]:
    yield code.co_code + repr(code.co_names).encode()
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _bytes_of(const)
        else:
            yield repr(const).encode()
