"""``check(fn)``: play the cases of each level, judge them, shrink what fails, say why."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import CodeType
from typing import Literal, Protocol

from course_lib.checks import play as playing
from course_lib.checks.cases import Case
from course_lib.checks.diagnoses import diagnose
from course_lib.checks.exercise import Evidence, Exercise, Finding, Play, find
from course_lib.checks.judge import heard_of_nobody, judge
from course_lib.checks.play import NOT_WRITTEN, Answer
from course_lib.checks.verdict import LevelResult, Verdict
from course_lib.errors import CheckFailed, told_when_interrupted

WITHOUT_SIMULATOR = ("budget and sturdy", "schedules and hazards", "messages and bytes")
MOST_SMALLER = 48  # how many smaller cases are tried in search of the smallest that fails
FIRST_TRIED = 10  # then twice as many, and so on: a multiple of the schedules that take turns

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
    with told_when_interrupted("check()"):
        verdict = verdict_on(find(name), Answer(name, fn))
    if not verdict.failed:
        return verdict
    raise NotPassed(str(verdict), verdict)


def verdict_on(
    exercise: Exercise, answer: Answer, player: Player = playing, shrink: Shrink = "first",
    secret: str = "",
) -> Verdict:  # fmt: skip
    """The verdict on an answer, right or wrong. Never raises because of the answer.

    ``shrink``: of which failing levels the smallest failing case is looked for. The first is what
    a verdict's text shows; the others then show a case in which the mistake was seen. Where there
    is a ``secret``, it draws the cases, and not the answer's own text, which somebody may have made
    to fit them.
    """
    rng = random.Random(secret or _seed(answer))
    core, sturdy = exercise.core(rng), exercise.sturdy(rng)
    if not player.simulator_works():
        return _on_real_ranks(exercise, answer, core)
    plays = player.simulated(exercise, answer, core + sturdy + _blank(exercise, core))
    if not_written(plays):
        return Verdict(exercise.title, exercise.points, written=False)
    for play in plays:
        judge(exercise, play)
    in_core, in_sturdy = plays[: len(core)], plays[len(core) :][: len(sturdy)]
    unheard = plays[len(core + sturdy) :]
    in_core += unheard if all(heard_of_nobody(p) for p in unheard) else []
    if exercise.in_ranks and len(in_core) == len(core) and not any(p.findings for p in in_core):
        real = player.real(exercise, answer, max(core[:1] + _for_real(core), key=_size))
        if real is not None:
            judge(exercise, real)
            in_core.append(real)
    levels = {"core": _level("core", in_core, [p for p in in_core if p.findings], len(core))}
    if exercise.budget:  # what came to no end has kept none
        counted = [p for p in plays if p.done and p.case.calls == 1 and not p.case.blank]
        levels["budget"] = _level("budget", counted, [p for p in counted if p.broken],
                                  sum(c.calls == 1 for c in core + sturdy))  # fmt: skip
    if sturdy:
        levels["sturdy"] = _level("sturdy", in_sturdy, [p for p in in_sturdy if p.findings],
                                  len(sturdy))  # fmt: skip
    _explain(exercise, answer, levels, player, shrink)
    return Verdict(exercise.title, exercise.points, levels)


def _blank(exercise: Exercise, core: list[Case]) -> list[Case]:
    """Two cases of core once more, in which nobody can know what the others have."""
    told = exercise.told or exercise.fits
    fitting = [c for c in core if exercise.in_ranks and told(c) and c.calls == 1]
    return [replace(c, blank=True) for c in fitting[:1] + fitting[1:][-1:]]


def _on_real_ranks(exercise: Exercise, answer: Answer, core: list[Case]) -> Verdict:
    """Without the simulator: a few cases of core, values only; the rest is named, not graded."""
    plays: list[Play] = []
    for case in _few(core):
        plays.append(playing.real(exercise, answer, case))
        if not_written(plays):
            return Verdict(exercise.title, exercise.points, written=False)
        judge(exercise, plays[-1])
        if plays[-1].findings:
            break
    levels = {"core": _level("core", plays, [p for p in plays if p.findings], len(plays))}
    _explain(exercise, answer, levels, playing, "none")
    return Verdict(exercise.title, exercise.points, levels, ungraded=WITHOUT_SIMULATOR)


def _few(core: list[Case]) -> list[Case]:
    small = [c for c in core if c.world <= 3]
    return small[1::2][:5]


def not_written(plays: list[Play]) -> bool:
    return any(seen.returned == NOT_WRITTEN for p in plays[:1] for by in p.seen for seen in by
               if isinstance(seen.returned, str))  # fmt: skip


def _size(case: Case) -> tuple[int, int]:
    return case.world, case.length


def _for_real(core: list[Case]) -> list[Case]:
    return [c for c in core if c.world <= 3 and c.numbers != "codes"]


def _level(name: str, plays: list[Play], failed: list[Play], due: int) -> LevelResult:
    failed = sorted(failed, key=lambda p: _size(p.case))
    return LevelResult(Evidence(name, plays, failed), reached=len(plays) >= due)


def _explain(
    exercise: Exercise, answer: Answer, levels: dict[str, LevelResult], player: Player,
    shrink: Shrink,
) -> None:  # fmt: skip
    """Give each failing level its diagnosis, and a case to show."""
    failing = [level for level in levels.values() if level.evidence.failed]
    for level in failing:
        level.diagnosis = diagnose(exercise, level.evidence)
        level.play = _seen_failing(level)
        if shrink == "all" or (shrink == "first" and level is failing[0]):
            level.play = _smallest(exercise, answer, level, level.play, player)
        level.case = exercise.describe(level.play.case)


def _wrong(level: LevelResult, play: Play) -> list[Finding]:
    return play.broken if level.evidence.level == "budget" else play.findings


def _shows(level: LevelResult, play: Play) -> bool:
    """Whether the mistake that the level's diagnosis names can be seen on this play alone."""
    assert level.diagnosis is not None
    return level.diagnosis.when(level.evidence.of(play))


def _seen_failing(level: LevelResult) -> Play:
    """The smallest failing play that shows the mistake; numbers that are codes would say little."""
    failed = sorted(level.evidence.failed, key=lambda p: p.case.numbers == "codes")
    return next((p for p in failed if _shows(level, p)), failed[0])


def _smallest(
    exercise: Exercise, answer: Answer, level: LevelResult, known: Play, player: Player
) -> Play:
    """The smallest world and length in which the same thing goes wrong, and can be seen."""
    if playing.died(known) or known.world != "simulated" or known.case.blank:
        return known
    kind = _wrong(level, known)[0].kind
    left, many = _candidates(exercise, level, known.case), FIRST_TRIED
    while left:
        plays = player.simulated(exercise, answer, left[:many])
        for play in plays:
            judge(exercise, play)
            unseen = kind == "memory" and known.case.length and not play.case.length
            if (
                not unseen
                and any(f.kind == kind for f in _wrong(level, play))
                and _shows(level, play)
            ):
                return play
        if len(plays) < len(left[:many]) or playing.died(plays[-1]):
            break
        left, many = left[many:], 2 * many
    return known


def _candidates(exercise: Exercise, level: LevelResult, case: Case) -> list[Case]:
    cases = [c for c in exercise.smaller(case) if _size(c) <= _size(case)]
    if level.evidence.level != "sturdy":
        cases = [c for c in cases if exercise.fits(c)]
    return cases[:MOST_SMALLER]


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
